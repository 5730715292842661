"""What can go wrong between a pool and one of its decoding processes; the pool turns these into errors of the video."""

from __future__ import annotations


class ProcessDiedError(Exception):
    """The process has ended, or closed its end of the socket."""


class InvalidAnswerError(Exception):
    """The process sent what no sound one sends: a video may have taken it over."""


class NotBegunError(Exception):
    """The process was lost before it began with the video, which is not at fault."""
