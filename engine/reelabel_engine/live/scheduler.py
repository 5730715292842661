"""Live requests in the engine's process: their prompts, when they are admitted, and what they get."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

from reelabel.errors import JobError
from reelabel_engine.errors import InferenceError, PromptTooLongError
from reelabel_engine.live.item_cache import ItemCache
from reelabel_engine.live.positions import positions_per_s, time_indexes
from reelabel_engine.live.renderer import RenderedEnds, RenderedItem, RenderedRequest
from reelabel_engine.prompts import ChoiceTokens, score_choices
from reelabel_engine.protocol import LiveDone, LiveReply, LiveRequest, LiveText, Rejected, RequestRef
from reelabel_engine.renderer import translate_vllm_error
from reelabel_engine.scoring import scoring_parameters, writing_parameters
from reelabel_engine.vllm_api import (
    MultiModalKwargsItems,
    PlaceholderRange,
    RequestOutputKind,
    VLLMValidationError,
    mm_input,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from reelabel_engine.vllm_api import LoRARequest


ASKED, READ, BATCH = 0, 1, 2  # vLLM's priorities: the lowest goes first


@dataclass(slots=True, kw_only=True)
class _InFlight:
    request: LiveRequest
    choices: ChoiceTokens
    fresh_tokens: int
    output_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waiting:
    """A request whose items are not all rendered, or that is not admitted yet."""

    request: LiveRequest
    ends: RenderedEnds
    items: list[RenderedItem] = field(default_factory=list, repr=False)


class LiveScheduler:
    """Feeds live requests to the engine: questions at once; prefixes while no question waits for its first token.

    Of prefixes, a step's worth is admitted, and beside an answer that is being written, one.
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
        self._unrendered: list[_Waiting] = []
        self._prefixes: deque[_Waiting] = deque()
        self._in_flight: dict[str, _InFlight] = {}
        self._replies: list[tuple[RequestRef, LiveReply]] = []

    @property
    def is_idle(self) -> bool:
        """Whether nothing is admitted or could be; what is being rendered announces itself."""
        return not self._in_flight and not self._prefixes

    def receive(self, request: LiveRequest, rendered: RenderedRequest) -> None:
        self.items.put(request.session, rendered.items)
        if isinstance(rendered.ends, Rejected):
            self._reply(request, rendered.ends)
        else:
            self._unrendered.append(_Waiting(request=request, ends=rendered.ends))
        waiting, self._unrendered = self._unrendered, []
        for each in waiting:
            self._sort(each)

    def _sort(self, waiting: _Waiting) -> None:
        request = waiting.request
        try:
            found = self.items.find(request.session, request.hashes)
        except InferenceError as error:
            self._reply(request, Rejected.of(error))
            return
        if found is None:
            self._unrendered.append(waiting)
        elif failure := next((item for item in found if isinstance(item, Rejected)), None):
            self._reply(request, failure)
        else:
            items = [item for item in found if isinstance(item, RenderedItem)]
            ready = _Waiting(request=request, ends=waiting.ends, items=items)
            if request.query is None:
                self._prefixes.append(ready)
            else:
                self._admit(ready)

    def admit(self) -> None:
        """Admit prefixes that wait, unless a question waits for its first token."""
        while self._prefixes:
            questions = [each for each in self._in_flight.values() if each.request.query]
            reading = [each for each in self._in_flight.values() if not each.request.query]
            most = 1 if questions else self._step_tokens
            if any(not each.output_tokens for each in questions):
                return
            if reading and sum(each.fresh_tokens for each in reading) >= most:
                return
            self._admit(self._prefixes.popleft())

    def _admit(self, ready: _Waiting) -> None:
        try:
            self._add(ready)
        except JobError as error:
            self._reply(ready.request, Rejected.of(error))

    def _reply(self, request: LiveRequest, reply: LiveReply) -> None:
        self._replies.append((RequestRef(request.number), reply))

    def replies(self) -> list[tuple[RequestRef, LiveReply]]:
        replies, self._replies = self._replies, []
        return replies

    def _add(self, ready: _Waiting) -> None:
        request, query = ready.request, ready.request.query
        prompt = self._compose(ready)
        room = self._max_model_len - len(prompt["prompt_token_ids"])
        if query is None:
            parameters = writing_parameters(max_tokens=1, temperature=0, detokenize=False)
        elif query.choices:
            parameters = scoring_parameters(ready.ends.choices)
        else:
            parameters = writing_parameters(
                max_tokens=min(query.max_tokens, room),
                temperature=query.temperature,
                top_p=query.top_p,
                seed=query.seed,
                output_kind=RequestOutputKind.DELTA,
            )
        name = f"live {request.number}"
        try:
            priority = READ if query is None else ASKED
            self._engine.add_request(name, prompt, parameters, lora_request=self._adapter, priority=priority)
        except (ValueError, VLLMValidationError) as error:
            raise translate_vllm_error(error, self._max_model_len) from None
        fresh = chain.from_iterable(item.token_ids for item in ready.items[len(ready.items) - request.fresh :])
        self._in_flight[name] = _InFlight(
            request=request, choices=ready.ends.choices, fresh_tokens=sum(1 for _ in fresh)
        )

    def _compose(self, ready: _Waiting) -> Any:  # noqa: ANN401 - vLLM's EngineInput
        """Build a prompt: head, items side by side, tail.

        Raises:
            PromptTooLongError: It has more tokens, or spans more positions, than the model takes.
        """
        ids = list(ready.ends.head)
        session = ready.request.salt
        values: dict[str, list[Any]] = defaultdict(list)
        hashes: dict[str, list[str]] = defaultdict(list)
        places: dict[str, list[PlaceholderRange]] = defaultdict(list)
        for name, item in zip(ready.request.hashes, ready.items, strict=True):
            values[item.kind].append(item.values)
            hashes[item.kind].append(f"{session}{name}")
            places[item.kind].append(item.at(len(ids)))
            ids += item.token_ids
        ids += ready.ends.tail
        if len(ids) >= self._max_model_len:
            raise PromptTooLongError(
                f"The session's frames and the question have {len(ids):,} tokens, but the model takes "
                f"{self._max_model_len - 1:,}; choose a smaller window, fewer frames or smaller ones."
            )
        self._check_positions(ready, ids)
        return mm_input(
            prompt_token_ids=ids,
            mm_kwargs=MultiModalKwargsItems(values),
            mm_hashes=hashes,
            mm_placeholders=places,
            cache_salt=session,
        )

    def _check_positions(self, ready: _Waiting, ids: list[int]) -> None:
        times = [item.time_s for item in ready.items if item.time_s is not None]
        if self._positions is None or len(times) < len(ready.items):
            return
        last = len(ids) + int(time_indexes(times, self._per_s, has_audio=ready.request.has_audio).max())
        if last >= self._positions:
            raise PromptTooLongError(
                f"The times of the session's frames take the prompt to position {last:,}, but the model's positions "
                f"end at {self._positions - 1:,}; choose a smaller window."
            )

    def cancel(self, number: int) -> None:
        self._unrendered = [each for each in self._unrendered if each.request.number != number]
        self._prefixes = deque(each for each in self._prefixes if each.request.number != number)
        if self._in_flight.pop(f"live {number}", None):
            self._engine.abort_request([f"live {number}"])

    def note(self, outputs: Iterable[Any]) -> None:
        for output in outputs:
            in_flight = self._in_flight.get(output.request_id)
            if in_flight is None:  # of a batch, or cancelled
                continue
            [made] = output.outputs
            query = in_flight.request.query
            in_flight.output_tokens += len(made.token_ids)
            if query is not None and not query.choices and made.token_ids:
                self._reply(in_flight.request, LiveText(text=made.text))
            if output.finished:
                del self._in_flight[output.request_id]
                self._reply(in_flight.request, _done(output, in_flight))


def _done(output: Any, in_flight: _InFlight) -> LiveDone | Rejected:  # noqa: ANN401 - vLLM's RequestOutput
    [made] = output.outputs
    probabilities: tuple[float, ...] = ()
    if in_flight.choices:
        try:
            logprobs = {token: entry.logprob for token, entry in made.logprobs[0].items()}
            probabilities = score_choices(in_flight.choices, logprobs).probabilities
        except InferenceError as error:
            return Rejected.of(error)
    return LiveDone(
        prompt_tokens=len(output.prompt_token_ids),
        cached_tokens=output.num_cached_tokens or 0,
        output_tokens=in_flight.output_tokens,
        finish_reason="stop" if made.finish_reason == "stop" or in_flight.choices else "length",
        probabilities=probabilities,
    )
