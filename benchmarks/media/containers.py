"""Containers of the matrix."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A container of the matrix.

    Attributes:
        title: Its name in the document.
        muxer: FFmpeg's name of the muxer; empty where the codec decides.
        mux_options: Options of the muxer.
    """

    title: str
    muxer: str
    mux_options: Mapping[str, str] = field(default_factory=dict)


CONTAINERS: dict[str, Container] = {
    "mp4": Container(title="MP4", muxer="mp4"),
    "fmp4": Container(
        title="fragmented MP4",
        muxer="mp4",
        mux_options={"movflags": "frag_keyframe+empty_moov"},
    ),
    "mov": Container(title="MOV", muxer="mov"),
    "mkv": Container(title="MKV", muxer="matroska"),
    "webm": Container(title="WebM", muxer="webm"),
    "avi": Container(title="AVI", muxer="avi"),
    "flv": Container(title="FLV", muxer="flv"),
    "ts": Container(title="MPEG-TS", muxer="mpegts"),
    "ps": Container(title="MPEG-PS", muxer="vob"),
    "ogg": Container(title="Ogg", muxer="ogg"),
    "asf": Container(title="ASF", muxer="asf"),
    "mxf": Container(title="MXF", muxer="mxf"),
    "3gp": Container(title="3GP", muxer="3gp"),
    "ivf": Container(title="IVF", muxer="ivf"),
    "rm": Container(title="RealMedia", muxer="rm"),
    "raw": Container(title="bare stream", muxer=""),
}
