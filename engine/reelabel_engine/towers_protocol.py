"""What crosses the boundary between the flow and the process of the towers: JSON and raw arrays, never pickles.

Each message is a JSON object in one piece, followed by the arrays that it announces, a piece each.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.connection import Connection

    import numpy.typing as npt

_MAX_ARRAYS = 100_000
_DTYPES = {"uint8": np.uint8, "float32": np.float32}
_MAX_DIMENSIONS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class TowersConfig:
    """How to load a model's towers.

    Attributes:
        model: Folder or hub name.
        revision: Hub revision; None for a folder.
        devices: GPUs, as `CUDA_VISIBLE_DEVICES` names them; empty uses what is visible, or the CPU.
        batch_frames: Frames that the image tower is given at once.
    """

    model: str
    revision: str | None = None
    devices: tuple[str, ...] = ()
    batch_frames: int = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class TowersInfo:
    """What the towers report once they are loaded.

    Attributes:
        device: The GPU's name, or `cpu`.
        gpus: Number of GPUs in use; 0 on a CPU.
        dtype: Numeric type of the weights.
        dimensions: Size of a vector, D.
        size_px: Side of the square that frames are resized to.
        max_tokens: Tokens that the text tower takes, special ones included.
        scale: Factor that turns a cosine into a logit; None if the model has none.
        bias: Added to it; None if the model has none.
        start_ms: Milliseconds from process start to the loaded model.
        versions: Versions by package.
    """

    device: str
    gpus: int
    dtype: str
    dimensions: int
    size_px: int
    max_tokens: int
    scale: float | None
    bias: float | None
    start_ms: float
    versions: dict[str, str]


@dataclass(frozen=True, slots=True)
class Message:
    """One message.

    Attributes:
        kind: What it is.
        body: JSON values.
        arrays: C-contiguous arrays, uint8 or float32.
    """

    kind: str
    body: dict[str, Any]
    arrays: tuple[npt.NDArray[Any], ...] = ()

    @classmethod
    def of_info(cls, info: TowersInfo) -> Message:
        """Wrap a report."""
        return cls("info", asdict(info))


def send(connection: Connection, message: Message) -> None:
    """Send a message.

    Raises:
        OSError: The other end is closed.
    """
    arrays = [np.ascontiguousarray(array) for array in message.arrays]
    announced = [{"dtype": str(array.dtype), "shape": array.shape} for array in arrays]
    connection.send_bytes(json.dumps({"kind": message.kind, "body": message.body, "arrays": announced}).encode())
    for array in arrays:
        if array.nbytes:
            connection.send_bytes(array.data.cast("B"))


def receive(connection: Connection) -> Message:
    """Receive a message.

    Raises:
        EOFError: The other end is closed.
        OSError: So is this one.
        ValueError: What came is not a message.
    """
    header = json.loads(connection.recv_bytes())
    if not isinstance(header, dict) or not header.keys() >= {"kind", "body", "arrays"}:
        raise ValueError("not a message")
    if len(header["arrays"]) > _MAX_ARRAYS:
        raise ValueError("too many arrays")
    arrays = [_receive_array(connection, announced) for announced in header["arrays"]]
    return Message(str(header["kind"]), header["body"], tuple(arrays))


def _receive_array(connection: Connection, announced: dict[str, Any]) -> npt.NDArray[Any]:
    shape: Sequence[int] = [int(size) for size in announced["shape"]]
    dtype = np.dtype(_DTYPES[announced["dtype"]])
    if len(shape) > _MAX_DIMENSIONS or min(shape, default=0) < 0:
        raise ValueError("not a shape")
    count = int(np.prod(shape, dtype=object))
    data = connection.recv_bytes() if count else b""
    if len(data) != count * dtype.itemsize:
        raise ValueError("an array is shorter or longer than announced")
    return np.frombuffer(data, dtype).reshape(shape)
