"""What every script is asked for, and how it tells what it has; only of the standard library.

A script's lines on standard output are JSON: `began`, once its libraries are imported, then one line for each row.
"""

from __future__ import annotations

import ctypes
import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sized

_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True, kw_only=True)
class FrameJob:
    """Frames of videos on S3.

    Attributes:
        uris: The videos, `s3://...`.
        choice: `keyframes`, or `uniform`, spread evenly.
        frames: Frames wanted of each video.
        start_s: Start of the part of the videos that is asked about, in seconds.
        end_s: Its end.
        fps: Frames per second of the videos.
        is_whole: Whether the part is all of the video.
        endpoint: URL of the S3 server.
        key: Access key.
        secret: Secret key.
        cores: Cores to use.
        folder: Empty folder for what the script stores.
    """

    uris: list[str]
    choice: str
    frames: int
    start_s: float
    end_s: float
    fps: float
    is_whole: bool
    endpoint: str
    key: str
    secret: str
    cores: int
    folder: str

    @property
    def step_s(self) -> float:
        """Seconds between two uniform frames."""
        return (self.end_s - self.start_s) / self.frames

    def indices(self) -> list[int]:
        """Return the numbers of uniform frames, each in the middle of its share of the part."""
        return [round((self.start_s + (number + 0.5) * self.step_s) * self.fps) for number in range(self.frames)]


def read_job() -> FrameJob:
    """Read what is asked for, and adopt the orphans below this process from now on: the bench counts and ends them."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    return FrameJob(**json.loads(sys.stdin.readline()))


def pick_evenly(things: Sized, count: int) -> list[int]:
    """Return at most `count` indices that spread over `things`, the first and last among them."""
    if count >= len(things):
        return list(range(len(things)))
    return [round(number * (len(things) - 1) / max(1, count - 1)) for number in range(count)]


def began() -> None:
    """Tell that the libraries are imported and started, and the work begins."""
    _tell(event="began")


def report(uri: str, frames: int, *, given: int, error: str = "") -> None:
    """Tell what came of one row.

    Args:
        uri: Its video.
        frames: Frames that the script has.
        given: Frames that the library gave for that, before the script chose among them.
        error: Why there are none.
    """
    _tell(event="row", uri=uri, frames=frames, given=given, error=error)


def _tell(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)
