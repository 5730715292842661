"""Containers of the matrix, codecs that PyAV's FFmpeg can encode, and which container supports which."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Codec:
    """A codec of the matrix.

    Attributes:
        encoder: FFmpeg's name of the encoder.
        containers: Names in `CONTAINERS` that support it, separated by spaces.
        raw: Muxer of its bare stream, for the container `raw`.
        changes: Fields of `Recipe` that it needs.
    """

    encoder: str
    containers: str
    raw: str = ""
    changes: Mapping[str, Any] = field(default_factory=dict)


# Without scene detection, keyframes are where the recipe places them; without rate control, the same pictures give
# the same bytes.
_X264 = {"options": {"preset": "veryfast", "x264-params": "scenecut=0:log-level=none:qp=20"}}
_X265 = {"options": {"preset": "ultrafast", "x265-params": "scenecut=0:bframes=0:open-gop=0:log-level=none"}}
_VPX = {"options": {"deadline": "realtime", "cpu-used": "8", "auto-alt-ref": "0"}}
_AV1 = {"options": {"preset": "12", "svtav1-params": "lp=1"}}

CODECS: dict[str, Codec] = {
    "h264": Codec(
        encoder="libx264",
        containers="mp4 fmp4 mov mkv avi flv ts ps asf mxf 3gp raw",
        raw="h264",
        changes=_X264,
    ),
    "hevc": Codec(encoder="libx265", containers="mp4 fmp4 mov mkv flv ts ps raw", raw="hevc", changes=_X265),
    "vp8": Codec(encoder="libvpx", containers="mkv webm avi ogg ivf", changes=_VPX),
    "vp9": Codec(encoder="libvpx-vp9", containers="mp4 fmp4 mkv webm avi flv ivf", changes=_VPX),
    "av1": Codec(encoder="libsvtav1", containers="mp4 fmp4 mkv webm avi flv ivf raw", raw="obu", changes=_AV1),
    "mpeg1": Codec(encoder="mpeg1video", containers="mp4 fmp4 mov mkv avi ts ps raw", raw="mpeg1video"),
    "mpeg2": Codec(encoder="mpeg2video", containers="mp4 fmp4 mov mkv avi ts ps mxf raw", raw="mpeg2video"),
    "mpeg4": Codec(encoder="mpeg4", containers="mp4 fmp4 mov mkv avi ts ps asf 3gp raw", raw="m4v"),
    "mjpeg": Codec(
        encoder="mjpeg",
        containers="mp4 fmp4 mov mkv avi asf raw",
        raw="mjpeg",
        changes={"pix_fmt": "yuvj420p"},
    ),
    "h263": Codec(
        encoder="h263",
        containers="mov avi 3gp raw",
        raw="h263",
        changes={"width_px": 128, "height_px": 96},
    ),
    "h261": Codec(encoder="h261", containers="avi raw", raw="h261", changes={"width_px": 176, "height_px": 144}),
    "flv1": Codec(encoder="flv", containers="avi flv"),
    "msmpeg4v3": Codec(encoder="msmpeg4", containers="mov mkv avi asf"),
    "msmpeg4v2": Codec(encoder="msmpeg4v2", containers="avi asf"),
    "wmv1": Codec(encoder="wmv1", containers="avi asf"),
    "wmv2": Codec(encoder="wmv2", containers="avi asf"),
    "rv10": Codec(encoder="rv10", containers="rm"),
    "rv20": Codec(encoder="rv20", containers="rm"),
    "ffv1": Codec(encoder="ffv1", containers="mp4 fmp4 mkv avi mxf"),
    "huffyuv": Codec(encoder="huffyuv", containers="avi", changes={"pix_fmt": "yuv422p"}),
    "ffvhuff": Codec(encoder="ffvhuff", containers="avi"),
    "utvideo": Codec(encoder="utvideo", containers="avi", changes={"pix_fmt": "yuv422p"}),
    "magicyuv": Codec(encoder="magicyuv", containers="mov avi", changes={"pix_fmt": "yuv422p"}),
    "prores": Codec(encoder="prores_ks", containers="mov mkv mxf", changes={"pix_fmt": "yuv422p10le"}),
    "dnxhd": Codec(
        encoder="dnxhd",
        containers="mov mxf",
        changes={"pix_fmt": "yuv422p", "width_px": 256, "height_px": 144, "options": {"profile": "dnxhr_sq"}},
    ),
    "dv": Codec(
        encoder="dvvideo",
        containers="mov avi mxf raw",
        raw="dv",
        changes={"width_px": 720, "height_px": 576, "frames": 8},
    ),
    "jpeg2000": Codec(encoder="jpeg2000", containers="mp4 fmp4 mov mkv avi mxf"),
    "snow": Codec(encoder="snow", containers="mkv avi", changes={"options": {"strict": "experimental"}}),
    "cinepak": Codec(encoder="cinepak", containers="mov avi", changes={"pix_fmt": "rgb24", "frames": 20}),
    "msvideo1": Codec(encoder="msvideo1", containers="avi", changes={"pix_fmt": "rgb555le"}),
    "rpza": Codec(encoder="rpza", containers="mov avi", changes={"pix_fmt": "rgb555le"}),
    "svq1": Codec(encoder="svq1", containers="mov avi", changes={"pix_fmt": "yuv410p"}),
    "qtrle": Codec(encoder="qtrle", containers="mov", changes={"pix_fmt": "rgb24"}),
    "cfhd": Codec(encoder="cfhd", containers="mov avi", changes={"pix_fmt": "yuv422p10le"}),
    "flashsv": Codec(encoder="flashsv", containers="avi flv", changes={"pix_fmt": "bgr24"}),
    "png": Codec(encoder="png", containers="mp4 fmp4 mov avi", changes={"pix_fmt": "rgb24"}),
    "gif": Codec(encoder="gif", containers="mov raw", raw="gif", changes={"pix_fmt": "rgb8"}),
    "apng": Codec(encoder="apng", containers="raw", raw="apng", changes={"pix_fmt": "rgb24"}),
    "rawvideo": Codec(encoder="rawvideo", containers="mkv avi", changes={"frames": 20}),
}
