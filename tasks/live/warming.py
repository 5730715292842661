"""Having the model read the frames of a session as they are kept, and how far it is behind."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING

from infra.errors import EngineLostError
from reelabel.errors import ReelabelError
from reelabel_engine.errors import PromptTooLongError
from tasks.live import metrics
from tasks.live.arrivals import ReadAgain
from tasks.live.messages import ErrorEvent, Notice

if TYPE_CHECKING:
    from tasks.live.arrivals import Arrivals
    from tasks.live.kept import KeptFrames
    from tasks.live.model import LiveModel, Prefix, Warmed
    from tasks.live.outbox import Outbox

_LOG = logging.getLogger(__name__)


class EngineWatch:
    """Tells the client of one session when the engine is lost, and when it answers again. Thread-safe.

    Attributes:
        losses: How often it was lost.
    """

    def __init__(self, outbox: Outbox) -> None:
        """Start with an engine that answers."""
        self.losses = 0
        self._outbox = outbox
        self._is_lost = False
        self._lock = threading.Lock()

    def lost(self) -> None:
        """Note that it is lost."""
        with self._lock:
            was_lost, self._is_lost = self._is_lost, True
            self.losses += not was_lost
        if not was_lost:
            text = "The engine was lost, and starts again; the kept frames are read again, and queries wait."
            self._outbox.put(Notice(code="engine_lost", message=text))

    def back(self) -> None:
        """Note that it has answered."""
        with self._lock:
            was_lost, self._is_lost = self._is_lost, False
        if was_lost:
            self._outbox.put(Notice(code="engine_back", message="The engine answers again."))


class Warming:
    """Has the model read the kept frames of one session."""

    def __init__(
        self, model: LiveModel, kept: KeptFrames, arrivals: Arrivals, outbox: Outbox, watch: EngineWatch
    ) -> None:
        """Prepare.

        Args:
            model: What reads.
            kept: The frames.
            arrivals: Is told when frames must be read again.
            outbox: Where the client is told of frames that the model does not take.
            watch: Is told when the engine is lost, and back.
        """
        self._model, self._kept, self._arrivals, self._outbox, self._watch = model, kept, arrivals, outbox, watch
        self._reading = 0
        self._was_lost = self._is_too_long = False
        self._lock = threading.Lock()

    def warm(self) -> None:
        """Have the model read what is kept now, and last what a later window begins with; return at once."""
        if current := self._kept.current:
            with self._lock:
                self._reading += 1
            self._read(current).add_done_callback(self._was_read)
        if following := self._kept.following:
            self._read(following, following=True).add_done_callback(_was_following)

    def _read(self, prefix: Prefix, *, following: bool = False) -> Future[Warmed]:
        try:
            return self._model.warm(prefix, following=following)
        except Exception as error:  # noqa: BLE001 - the frames are kept all the same
            failed: Future[Warmed] = Future()
            failed.set_exception(error)
            return failed

    def warm_again(self) -> None:
        """Have the model read what is kept once more after a loss, if it is not doing so already."""
        if not self._reading:
            self.warm()

    def _was_read(self, future: Future[Warmed]) -> None:
        error = future.exception()
        with self._lock:
            self._reading -= 1
            self._was_lost |= isinstance(error, EngineLostError)
            must_read_again = self._was_lost and not self._reading
            self._was_lost &= not must_read_again
        if error is None and not (warmed := future.result()).is_dropped:
            metrics.frames_prefilled(warmed.total_ms)
            self._watch.back()
        match error:
            case None:
                pass
            case EngineLostError():
                self._watch.lost()
            case PromptTooLongError():
                self._tell_too_long(error)
            case _:
                _LOG.error("A live session's frames could not be read", exc_info=error)
        if must_read_again:
            self._arrivals.put(ReadAgain())

    def _tell_too_long(self, error: PromptTooLongError) -> None:
        """Tell the client once: the next frames will not fit, either."""
        if not self._is_too_long:
            self._is_too_long = True
            self._outbox.put(ErrorEvent(code="prompt_too_long", message=f"{error.message} Configure a smaller window."))


def _was_following(future: Future[Warmed]) -> None:
    error = future.exception()
    if error is not None and not isinstance(error, ReelabelError):
        _LOG.error("A live session's next window could not be read", exc_info=error)
