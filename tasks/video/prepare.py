"""`PrepareVideo`, under the name by which users of Ray Data import it."""

from tasks.batches.prepare import PrepareVideo

__all__ = ["PrepareVideo"]
