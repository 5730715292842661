"""HDR pictures, of HLG or PQ in BT.2020, as SDR displays show them.

Diffuse white, at 203 nits (ITU-R BT.2408), is shown almost as white. What is darker than three quarters of it keeps its
brightness; highlights of up to 1,000 nits are compressed into the rest, and keep their hue. Brighter ones, and colours
that BT.709 lacks, are clipped. Mastering metadata is not used: not every frame has it, and a frame must not depend on
those before it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from av.video.reformatter import ColorPrimaries

from reelabel.containers.stream_properties import hdr_transfer

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    from av.video.frame import VideoFrame

    _Floats = npt.NDArray[np.float32]

DEEP_PLANAR = "gbrp12le"  # planes in the order green, blue, red
_LEVELS = 2**12
_WHITE_NITS, _PEAK_NITS = 203.0, 1000.0
_SDR_GAMMA = 2.4  # ITU-R BT.1886
_KNEE = 0.75
_PEAK = _PEAK_NITS / _WHITE_NITS
_BAND_PIXELS = 16 * 1024  # of which all that is computed fits into a processor's cache
# Linear BT.2020 to linear BT.709 (ITU-R BT.2407, 2.2).
_TO_BT709 = (
    (1.6605, -0.5876, -0.0728),
    (-0.1246, 1.1329, -0.0083),
    (-0.0182, -0.1006, 1.1187),
)


def tone_map(frame: VideoFrame, planes: Sequence[npt.NDArray[np.uint16]], image: npt.NDArray[np.uint8]) -> None:
    """Convert a frame, of which only the colour space is read, to SDR.

    `planes` are its green, blue and red in 12 bits, shape (H, W) each; `image` is filled, shape (H, W, 3).
    """
    linear = _linear_light(hdr_transfer(frame))
    is_wide = frame.color_primaries != ColorPrimaries.BT709
    rows = max(1, _BAND_PIXELS // image.shape[1])
    for top in range(0, len(image), rows):
        band = slice(top, top + rows)
        green, blue, red = (linear[plane[band]] for plane in planes)
        channels = [red, green, blue]
        _draw([_sum(weights, channels) for weights in _TO_BT709] if is_wide else channels, image[band])


def _draw(channels: Sequence[_Floats], image: npt.NDArray[np.uint8]) -> None:
    brightest = np.maximum(np.maximum(channels[0], channels[1]), channels[2])
    bright = np.flatnonzero(brightest > _KNEE)
    gain = _compress(np.minimum(brightest.ravel()[bright], _PEAK)) / brightest.ravel()[bright]
    for number, channel in enumerate(channels):
        np.maximum(channel, 0, out=channel)
        channel.ravel()[bright] *= gain
        level = (_LEVELS - 1) * np.sqrt(channel)  # of the root, so that dark levels are not merged
        image[..., number] = _gamma()[level.astype(np.uint16)]


def _sum(weights: Sequence[float], channels: Sequence[_Floats]) -> _Floats:
    total = channels[0] * np.float32(weights[0])
    for weight, channel in zip(weights[1:], channels[1:], strict=True):
        total += channel * np.float32(weight)
    return total


@lru_cache(maxsize=2)
def _linear_light(transfer: str) -> _Floats:
    """Return the displayed light of each signal level, where diffuse white is 1 (ITU-R BT.2100, tables 4 and 5)."""
    signal = np.arange(_LEVELS) / (_LEVELS - 1)
    if transfer == "PQ":
        power = signal ** (32 / 2523)
        nits = 10_000 * (np.maximum(power - 0.8359375, 0) / (18.8515625 - 18.6875 * power)) ** (16384 / 2610)
    else:
        a, b, c = 0.17883277, 0.28466892, 0.55991073
        scene = np.where(signal <= 0.5, signal**2 / 3, (np.exp((signal - c) / a) + b) / 12)  # noqa: PLR2004 - of the table
        # The system gamma of 1.2 is applied to each channel, as FFmpeg's zscale does, not to luminance.
        nits = 1000 * scene**1.2
    return (nits / _WHITE_NITS).astype(np.float32)


@lru_cache(maxsize=1)
def _gamma() -> npt.NDArray[np.uint8]:
    return np.rint(255 * (np.arange(_LEVELS) / (_LEVELS - 1)) ** (2 / _SDR_GAMMA)).astype(np.uint8)


def _compress(light: _Floats) -> _Floats:
    """Map light from the knee to the peak to what lies between the knee and white, as FFmpeg's `tonemap=mobius`."""
    a = -(_KNEE**2) * (_PEAK - 1) / (_KNEE**2 - 2 * _KNEE + _PEAK)
    b = (_KNEE**2 - 2 * _KNEE * _PEAK + _PEAK) / (_PEAK - 1)
    scale = (b * b + 2 * b * _KNEE + _KNEE**2) / (b - a)
    return scale * (light + a) / (light + b)
