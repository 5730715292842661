"""The library's client of live sessions, for tests that are not asynchronous: its events arrive on a thread."""

import asyncio
import threading
from contextlib import suppress

from reelabel import live
from tasks.live.events import EVENTS, SessionCreated

_CLOSE_S = 10.0


class LiveClient:
    """One session. Thread-safe; `on_event` is called with each event."""

    def __init__(self, url, *, token, config, on_event):
        self._on_event = on_event
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
    def has_ended(self):
        return self._listening.done()

    @property
    def is_lost(self):
        return self._client.is_lost

    @property
    def resumed(self):
        return self._client.resumed

    def send_frame(self, jpeg, *, frame_id, time_s):
        return self._call(self._client.send_frame(jpeg, frame_id=frame_id, time_s=time_s))

    def ask(self, text, *, query_id, choices=None):
        self._call(self._client.ask(text, query_id=query_id, **({"choices": list(choices)} if choices else {})))

    def finish(self, timeout_s):
        """End the session once all questions are answered; return whether it ended in time."""
        self._call(self._client.finish())
        with suppress(TimeoutError):
            self._listening.result(timeout_s)
        return self._listening.done()

    def close(self):
        self._listening.cancel()
        self._call(self._client.close())
        self._stop()

    def _call(self, work):
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _stop(self):
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CLOSE_S)
        self._loop.close()

    async def _listen(self):
        async for event in self._client:
            event.pop("data", None)
            self._on_event(EVENTS.validate_python(event))
