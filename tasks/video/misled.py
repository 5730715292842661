"""Why a short way to a video's frames cannot be trusted."""

from __future__ import annotations


class MisledError(Exception):
    """This way does not lead to a linear decode's frames, for the reason given; take a longer one."""


class KeyframeDamagedError(MisledError):
    """A keyframe is damaged: how it is patched, only a decoder knows that has seen what came before."""

    def __init__(self) -> None:
        """Say so."""
        super().__init__("a keyframe is damaged")
