"""Why a short way to a video's frames cannot be trusted."""

from __future__ import annotations


class MisledError(Exception):
    """This way does not lead to a linear decode's frames, for the reason given; take a longer one.

    Attributes:
        bytes_fetched: Bytes that were fetched in vain.
        frames_decoded: Frames that were decoded in vain.
    """

    bytes_fetched: int = 0
    frames_decoded: int = 0


class ContradictedError(MisledError):
    """The video is not what its index says: its counts and positions, too, are mere claims."""


class KeyframeDamagedError(MisledError):
    """A keyframe is damaged: how it is patched, only a decoder knows that has seen what came before."""

    def __init__(self, reason: str = "a keyframe is damaged") -> None:
        """Say so."""
        super().__init__(reason)
