"""Schedules live requests in the engine's process, builds their prompts, and collects their replies."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from reelabel.errors import JobError
from reelabel_engine.errors import InferenceError, PromptTooLongError
from reelabel_engine.live.item_cache import ItemCache
from reelabel_engine.live.renderer import PromptEnds, RenderedItem
from reelabel_engine.positions import positions_per_s, time_indexes
from reelabel_engine.prompts import score_choices
from reelabel_engine.protocol import LiveDone, LiveReply, LiveRequest, LiveText, Rejected, RequestRef
from reelabel_engine.renderer import translate_vllm_error
from reelabel_engine.vllm_api import (
    MultiModalKwargsItems,
    PlaceholderRange,
    RequestOutputKind,
    VLLMValidationError,
    mm_input,
    scoring_parameters,
    writing_parameters,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from reelabel_engine.vllm_api import LoRARequest, SamplingParams


QUESTION, PREFILL, BATCH = 0, 1, 2  # vLLM's priorities: the lowest goes first


@dataclass(slots=True, kw_only=True)
class _Request:
    """A request that has not ended."""

    message: LiveRequest
    ends: PromptEnds
    items: list[RenderedItem] = field(default_factory=list, repr=False)  # empty until all are rendered
    output_tokens: int = 0

    @property
    def is_question(self) -> bool:
        return self.message.query is not None

    @property
    def fresh_tokens(self) -> int:
        fresh = self.items[len(self.items) - self.message.fresh :]
        return sum(len(item.token_ids) for item in fresh)


class LiveScheduler:
    """Admits live requests to the engine: questions at once; prefixes while no question waits for its first token.

    Prefixes are admitted up to the tokens of a step; while an answer is generated, one at a time.
    """

    def __init__(
        self,
        engine: Any,  # noqa: ANN401 - vLLM's LLMEngine
        *,
        adapter: LoRARequest | None,
        max_model_len: int,
        step_tokens: int,
        positions: int | None,
    ) -> None:
        self.items = ItemCache()
        self._engine, self._adapter = engine, adapter
        self._max_model_len, self._step_tokens, self._positions = max_model_len, step_tokens, positions
        self._per_s = positions_per_s(engine.model_config.hf_config)
        self._unrendered: list[_Request] = []
        self._prefixes: list[_Request] = []  # that are not admitted yet
        self._in_flight: dict[str, _Request] = {}
        self._replies: list[tuple[RequestRef, LiveReply]] = []

    @property
    def is_idle(self) -> bool:
        """Whether nothing is admitted or could be; what is being rendered announces itself."""
        return not self._in_flight and not self._prefixes

    def receive(
        self, message: LiveRequest, items: dict[str, RenderedItem | Rejected], ends: PromptEnds | Rejected
    ) -> None:
        """Take a rendered request; continue those that waited for its items."""
        self.items.put(message.session, items)
        if isinstance(ends, Rejected):
            self._reply(message, ends)
        else:
            self._unrendered.append(_Request(message=message, ends=ends))
        waiting, self._unrendered = self._unrendered, []
        for request in waiting:
            self._continue(request)

    def _continue(self, request: _Request) -> None:
        try:
            found = self.items.find(request.message.session, request.message.hashes)
        except InferenceError as error:
            self._reply(request.message, Rejected.of(error))
            return
        if found is None:
            self._unrendered.append(request)
        elif rejected := next((item for item in found if isinstance(item, Rejected)), None):
            self._reply(request.message, rejected)
        else:
            request.items = [item for item in found if isinstance(item, RenderedItem)]
            if request.is_question:
                self._admit(request)
            else:
                self._prefixes.append(request)

    def admit(self) -> None:
        """Admit waiting prefixes, unless a question waits for its first token."""
        while self._prefixes:
            questions = [each for each in self._in_flight.values() if each.is_question]
            reading = [each for each in self._in_flight.values() if not each.is_question]
            most = 1 if questions else self._step_tokens
            if any(not each.output_tokens for each in questions):
                return
            if reading and sum(each.fresh_tokens for each in reading) >= most:
                return
            self._admit(self._prefixes.pop(0))

    def _admit(self, request: _Request) -> None:
        name, priority = _name(request.message.number), QUESTION if request.is_question else PREFILL
        try:
            prompt = self._compose(request)
            parameters = self._parameters(request, room=self._max_model_len - len(prompt["prompt_token_ids"]))
            self._engine.add_request(name, prompt, parameters, lora_request=self._adapter, priority=priority)
        except JobError as error:
            self._reply(request.message, Rejected.of(error))
        except (ValueError, VLLMValidationError) as error:
            self._reply(request.message, Rejected.of(translate_vllm_error(error, self._max_model_len)))
        else:
            self._in_flight[name] = request

    def _reply(self, message: LiveRequest, reply: LiveReply) -> None:
        self._replies.append((RequestRef(message.number), reply))

    def replies(self) -> list[tuple[RequestRef, LiveReply]]:
        replies, self._replies = self._replies, []
        return replies

    def _parameters(self, request: _Request, *, room: int) -> SamplingParams:
        query = request.message.query
        if query is None:
            return writing_parameters(max_tokens=1, temperature=0, detokenize=False)
        if query.choices:
            return scoring_parameters(request.ends.choices)
        return writing_parameters(
            max_tokens=min(query.max_tokens, room),
            temperature=query.temperature,
            top_p=query.top_p,
            seed=query.seed,
            output_kind=RequestOutputKind.DELTA,
        )

    def _compose(self, request: _Request) -> Any:  # noqa: ANN401 - vLLM's EngineInput
        """Build a prompt: head, items side by side, tail.

        Raises:
            PromptTooLongError: It has more tokens, or spans more positions, than the model takes.
        """
        ids = list(request.ends.head)
        salt = request.message.salt
        values: dict[str, list[Any]] = defaultdict(list)
        hashes: dict[str, list[str]] = defaultdict(list)
        placeholders: dict[str, list[PlaceholderRange]] = defaultdict(list)
        for name, item in zip(request.message.hashes, request.items, strict=True):
            values[item.kind].append(item.values)
            hashes[item.kind].append(f"{salt}{name}")
            placeholders[item.kind].append(item.at(len(ids)))
            ids += item.token_ids
        ids += request.ends.tail
        if len(ids) >= self._max_model_len:
            raise PromptTooLongError(
                f"The session's frames and the question have {len(ids):,} tokens, but the model takes "
                f"{self._max_model_len - 1:,}; choose a smaller window, fewer frames or smaller ones."
            )
        self._check_positions(request, ids)
        return mm_input(
            prompt_token_ids=ids,
            mm_kwargs=MultiModalKwargsItems(values),
            mm_hashes=hashes,
            mm_placeholders=placeholders,
            cache_salt=salt,
        )

    def _check_positions(self, request: _Request, ids: list[int]) -> None:
        times = [item.time_s for item in request.items if item.time_s is not None]
        if self._positions is None or len(times) < len(request.items):
            return
        last = len(ids) + int(time_indexes(times, self._per_s, has_audio=request.message.has_audio).max())
        if last >= self._positions:
            raise PromptTooLongError(
                f"The times of the session's frames take the prompt to position {last:,}, but the model's positions "
                f"end at {self._positions - 1:,}; choose a smaller window."
            )

    def cancel(self, number: int) -> None:
        self._unrendered = [each for each in self._unrendered if each.message.number != number]
        self._prefixes = [each for each in self._prefixes if each.message.number != number]
        if self._in_flight.pop(_name(number), None):
            self._engine.abort_request([_name(number)])

    def collect(self, outputs: Iterable[Any]) -> None:
        """Collect the outputs of an engine step."""
        for output in outputs:
            request = self._in_flight.get(output.request_id)
            if request is None:  # of a batch, or cancelled
                continue
            [made] = output.outputs
            request.output_tokens += len(made.token_ids)
            if request.is_question and not request.ends.choices and made.token_ids:
                self._reply(request.message, LiveText(text=made.text))
            if output.finished:
                del self._in_flight[output.request_id]
                self._reply(request.message, _done(output, request))


def _name(number: int) -> str:
    return f"live {number}"


def _done(output: Any, request: _Request) -> LiveDone | Rejected:  # noqa: ANN401 - vLLM's RequestOutput
    [made] = output.outputs
    probabilities: tuple[float, ...] = ()
    choices = request.ends.choices
    if choices:
        try:
            logprobs = {token: entry.logprob for token, entry in made.logprobs[0].items()}
            probabilities = score_choices(choices, logprobs).probabilities
        except InferenceError as error:
            return Rejected.of(error)
    return LiveDone(
        prompt_tokens=len(output.prompt_token_ids),
        cached_tokens=output.num_cached_tokens or 0,
        output_tokens=request.output_tokens,
        finish_reason="stop" if made.finish_reason == "stop" or choices else "length",
        probabilities=probabilities,
    )
