"""MPEG-TS: where in a file each video stream has pictures (ISO/IEC 13818-1, 2.4.3); a demuxer shows only one stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from reelabel.containers.container_format import read_up_to

if TYPE_CHECKING:
    import numpy.typing as npt

    from reelabel.sources.video_file import VideoFile

FORMAT = "mpegts"  # FFmpeg's name
_SYNC = 0x47
_SIZES = (188, 192, 204)  # of packets, in Blu-rays and with check bytes
_CHECKED = 5  # packets that begin where they should
_READ_BYTES = 4 * 1024**2
_PES_BYTES = 4  # of the prefix and the stream's id
_VIDEO_IDS = range(0xE0, 0xF0)


def later_stream(source: VideoFile, pid: int) -> int | None:
    """Return the PID of a video stream that begins after the last picture of the stream `pid`; None if none does."""
    starts: dict[int, int] = {}
    last, position = -1, 0
    file = source.reopen()
    while len(data := read_up_to(file, _READ_BYTES)) > max(_SIZES):
        pids = _picture_pids(np.frombuffer(data, np.uint8))
        for number, each in enumerate(pids):
            starts.setdefault(each, position + number)
            last = position + number if each == pid else last
        position += len(pids)
    return next((each for each, start in starts.items() if start > last >= 0), None)


def _picture_pids(data: npt.NDArray[np.uint8]) -> list[int]:
    packets = _packets(data)
    begins = packets[(packets[:, 0] == _SYNC) & (packets[:, 1] & 0x40 > 0) & (packets[:, 3] & 0x10 > 0)]
    at = 4 + np.where(begins[:, 3] & 0x20, 1 + begins[:, 4].astype(np.int64), 0)
    begins, at = begins[at <= _SIZES[0] - _PES_BYTES], at[at <= _SIZES[0] - _PES_BYTES]
    heads = begins[np.arange(len(at))[:, None], at[:, None] + np.arange(_PES_BYTES)]
    are_video = (heads[:, :3] == (0, 0, 1)).all(axis=1) & np.isin(heads[:, 3], _VIDEO_IDS)
    pids: list[int] = ((begins[are_video, 1] & 0x1F).astype(np.int64) << 8 | begins[are_video, 2]).tolist()
    return pids


def _packets(data: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    for size in _SIZES:
        for start in np.flatnonzero(data[:size] == _SYNC).tolist():
            if (data[start : start + _CHECKED * size : size] == _SYNC).all():
                count = (len(data) - start - _SIZES[0]) // size + 1
                return np.lib.stride_tricks.as_strided(data[start:], (count, _SIZES[0]), (size, 1))
    return data[:0].reshape(0, _SIZES[0])
