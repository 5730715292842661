"""The position of a file that is read from Python, as `io.IOBase` keeps it."""

from __future__ import annotations

import io


class Seekable:
    """What files for `av.open` and for Python's readers share; each reads from `_position`.

    Attributes:
        size_bytes: Its length.
    """

    size_bytes: int
    _position = 0

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the position, as `io.IOBase.seek` does."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size_bytes}[whence]
        self._position = max(0, base + offset)
        return self._position

    def tell(self) -> int:
        """Return the current position."""
        return self._position

    def seekable(self) -> bool:
        """Return True."""
        return True
