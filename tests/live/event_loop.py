"""An event loop in a thread of its own, for tests that are not asynchronous."""

import asyncio
import threading
from inspect import isawaitable

from tasks.live.event_log import EventLog
from tasks.live.session import Session

_WAIT_S = 60


class EventLoop:
    """The loop, until it is closed."""

    def __init__(self):
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def of(self, target):
        """Return an object whose methods are called on the loop, and awaited."""
        return _OnLoop(self, target)

    def call(self, function, *args, **options):
        async def run():
            result = function(*args, **options)
            return await result if isawaitable(result) else result

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(_WAIT_S)

    def close(self):
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class _OnLoop:
    def __init__(self, loop, target):
        self.__dict__.update(_loop=loop, _target=target)

    def __getattr__(self, name):
        value = getattr(self._target, name)
        if not callable(value):
            return self._wrap(value)
        return lambda *args, **options: self._wrap(self._loop.call(value, *args, **options))

    def __setattr__(self, name, value):
        setattr(self._target, name, value)

    def __bool__(self):
        return True

    def __len__(self):
        return len(self._target)

    def _wrap(self, value):
        return self._loop.of(value) if isinstance(value, (Session, EventLog)) else value
