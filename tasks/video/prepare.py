"""The import path of `PrepareVideo` for users of Ray Data."""

from tasks.batches.prepare import PrepareVideo

__all__ = ["PrepareVideo"]
