"""Schedules live requests in the engine's process, lays out their prompts, and collects their replies."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from reelabel.errors import JobError
from reelabel_engine.errors import InferenceError, PromptTooLongError
from reelabel_engine.positions import time_indexes
from reelabel_engine.prompts import score_choices
from reelabel_engine.protocol import LiveDone, LiveReply, LiveRequest, LiveText, Rejected, RequestRef

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from reelabel_engine.live.renderer import PromptEnds, RenderedItem
    from reelabel_engine.prompts import ChoiceTokens


class ItemCache:
    """The rendered items of each session; None in place of one that is being rendered."""

    def __init__(self) -> None:
        self._items: dict[str, dict[str, RenderedItem | Rejected | None]] = {}

    def expect(self, session: str, hashes: Iterable[str]) -> None:
        self._items.setdefault(session, {}).update(dict.fromkeys(hashes))

    def put(self, session: str, items: dict[str, RenderedItem | Rejected]) -> None:
        """Store rendered items, except those that were dropped meanwhile."""
        kept = self._items.get(session, {})
        kept.update((name, item) for name, item in items.items() if name in kept)

    def drop(self, session: str, hashes: Iterable[str] | None) -> None:
        if hashes is None:
            self._items.pop(session, None)
        for name in hashes or ():
            self._items.get(session, {}).pop(name, None)

    def find(self, session: str, hashes: Sequence[str]) -> list[RenderedItem | Rejected] | None:
        """Return items in order; None while one of them is being rendered.

        Raises:
            InferenceError: One was dropped.
        """
        kept = self._items.get(session, {})
        try:
            found = [kept[name] for name in hashes]
        except KeyError:
            raise InferenceError("The session's frames were dropped before it was answered.") from None
        present = [item for item in found if item is not None]
        return present if len(present) == len(found) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class LivePrompt:
    """A live request as input of the engine: head, adjacent items, tail."""

    message: LiveRequest
    ids: list[int]  # its tokens
    items: list[tuple[str, RenderedItem, int]]  # each with its hash and the offset of its first token
    choices: ChoiceTokens  # token ids per choice of the question


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
        add: Callable[[str, LivePrompt], None],
        abort: Callable[[list[str]], None],
        *,
        max_model_len: int,
        step_tokens: int,
        positions: int | None,
        positions_per_s: float,
    ) -> None:
        """`add` queues a prompt under a name, or raises a JobError; `positions` is None if they depend on no time."""
        self.items = ItemCache()
        self._add, self._abort = add, abort
        self._max_model_len, self._step_tokens, self._positions = max_model_len, step_tokens, positions
        self._per_s = positions_per_s
        self._unrendered: list[_Request] = []
        self._prefixes: list[_Request] = []  # that are not admitted yet
        self._in_flight: dict[str, _Request] = {}
        self._replies: list[tuple[RequestRef, LiveReply]] = []

    @property
    def is_idle(self) -> bool:
        """Whether nothing is in flight or can be admitted; requests that are being rendered come by `receive`."""
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
            request.items = [item for item in found if not isinstance(item, Rejected)]
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
        name = _name(request.message.number)
        try:
            self._add(name, self._lay_out(request))
        except JobError as error:
            self._reply(request.message, Rejected.of(error))
        else:
            self._in_flight[name] = request

    def _reply(self, message: LiveRequest, reply: LiveReply) -> None:
        self._replies.append((RequestRef(message.number), reply))

    def replies(self) -> list[tuple[RequestRef, LiveReply]]:
        replies, self._replies = self._replies, []
        return replies

    def _lay_out(self, request: _Request) -> LivePrompt:
        """Lay out a prompt.

        Raises:
            PromptTooLongError: It has more tokens, or spans more positions, than the model takes.
        """
        ids = list(request.ends.head)
        items = []
        for name, item in zip(request.message.hashes, request.items, strict=True):
            items.append((name, item, len(ids)))
            ids += item.token_ids
        ids += request.ends.tail
        if len(ids) >= self._max_model_len:
            raise PromptTooLongError(
                f"The session's frames and the question have {len(ids):,} tokens, but the model takes "
                f"{self._max_model_len - 1:,}; choose a smaller window, fewer frames or smaller ones."
            )
        self._check_positions(request, ids)
        return LivePrompt(message=request.message, ids=ids, items=items, choices=request.ends.choices)

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
            self._abort([_name(number)])

    def collect(self, outputs: Iterable[Any]) -> None:
        """Collect the outputs of an engine step."""
        for output in outputs:
            request = self._in_flight.get(output.request_id)
            if request is None:  # of a batch, or cancelled
                continue
            [completion] = output.outputs
            request.output_tokens += len(completion.token_ids)
            if request.is_question and not request.ends.choices and completion.token_ids:
                self._reply(request.message, LiveText(text=completion.text))
            if output.finished:
                del self._in_flight[output.request_id]
                self._reply(request.message, _done(output, request))


def _name(number: int) -> str:
    return f"live {number}"


def _done(output: Any, request: _Request) -> LiveDone | Rejected:  # noqa: ANN401 - vLLM's RequestOutput
    [completion] = output.outputs
    probabilities: tuple[float, ...] = ()
    choices = request.ends.choices
    if choices:
        try:
            logprobs = {token: entry.logprob for token, entry in completion.logprobs[0].items()}
            probabilities = score_choices(choices, logprobs).probabilities
        except InferenceError as error:
            return Rejected.of(error)
    return LiveDone(
        prompt_tokens=len(output.prompt_token_ids),
        cached_tokens=output.num_cached_tokens or 0,
        output_tokens=request.output_tokens,
        finish_reason="stop" if completion.finish_reason == "stop" or choices else "length",
        probabilities=probabilities,
    )
