"""The client of a live session, for code that is not asynchronous: its events arrive on a thread."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from reelabel import live
from tasks.live.messages import EVENTS, SessionCreated

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    import numpy as np
    import numpy.typing as npt

    from tasks.live.messages import Event

_CLOSE_S = 10.0
T = TypeVar("T")


class LiveClient:
    """One session. Thread-safe."""

    def __init__(self, url: str, *, token: str | None, config: dict[str, Any], hear: Callable[[Event], None]) -> None:
        """Begin a session.

        Args:
            url: Address of `reelabel serve`, `http://` or `https://`.
            token: Its token; None if it has none.
            config: Fields of `session.config`.
            hear: Is called with each event, on a thread of this client.

        Raises:
            ConfigurationError: The server is not there, or refuses the session.
        """
        self._hear = hear
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="live-client", daemon=True)
        self._thread.start()
        try:
            self._client = live.LiveClient(url, token=token, **config)
            self._call(self._client.__aenter__())
        except BaseException:
            self._stop()
            raise
        self.session = SessionCreated.model_validate(self._client.session)
        self._listening = asyncio.run_coroutine_threadsafe(self._listen(), self._loop)

    @property
    def has_ended(self) -> bool:
        """Whether the session is over, or its connection could not be taken up again."""
        return self._listening.done()

    @property
    def is_lost(self) -> bool:
        """Whether the connection could not be taken up again."""
        return self._client.is_lost

    @property
    def resumed(self) -> int:
        """How often the connection was lost and the session taken up again."""
        return self._client.resumed

    def send_frame(self, jpeg: bytes, *, frame_id: str, time_s: float) -> bool:
        """Send a frame; return whether it was sent: none is while the connection is lost."""
        return self._call(self._client.send_frame(jpeg, frame_id=frame_id, time_s=time_s))

    def send_audio(self, samples: npt.NDArray[np.int16], *, time_s: float) -> bool:
        """Send audio, 16 kHz, shape (N,); return whether it was sent: none is while the connection is lost."""
        return self._call(self._client.send_audio(samples.astype("<i2").tobytes(), time_s=time_s))

    def ask(self, text: str, *, query_id: str, choices: tuple[str, ...] | None = None) -> None:
        """Ask a question; one that does not arrive is asked again when the session is taken up again."""
        more = {"choices": list(choices)} if choices else {}
        self._call(self._client.ask(text, query_id=query_id, **more))

    def finish(self, timeout_s: float) -> bool:
        """End the session once all questions are answered; return whether it ended in time."""
        self._call(self._client.finish())
        with suppress(TimeoutError):
            self._listening.result(timeout_s)
        return self._listening.done()

    def close(self) -> None:
        """Leave."""
        self._listening.cancel()
        self._call(self._client.close())
        self._stop()

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CLOSE_S)
        self._loop.close()

    async def _listen(self) -> None:
        async for event in self._client:
            event.pop("data", None)
            self._hear(EVENTS.validate_python(event))
