"""Real clips, encoded and decoded with PyAV."""

import struct
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

import av
import numpy as np
import pytest

from benchmarks.media.recipe import own_scheduling


@pytest.fixture
def make_clip(tmp_path):
    """Return a function that writes a clip with distinct frames into the test's folder."""

    def make(name="clip.mp4", **options):
        return write_clip(Path(tmp_path) / name, **options)

    return make


def write_clip(path, **options):
    """Write a clip whose frames are all distinct; one that is asked for again is not encoded again."""
    path.write_bytes(_encoded(path.suffix, **options))
    return path


# A clip with enough bytes that ranges of it are worth reading.
LONG = {"size": (160, 120), "frames": 240, "gop": 24, "b_frames": 2, "qp": "2", "preset": "ultrafast"}

# As fast as they become without another structure: presets of H.264 and HEVC would change the reference frames.
_FAST = {
    "libsvtav1": {"preset": "12"},
    "libvpx": {"cpu-used": "5"},
    "libvpx-vp9": {"cpu-used": "5"},
}


@lru_cache(maxsize=64)
def _encoded(suffix, **options):
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"clip{suffix}"
        _encode(path, **options)
        return path.read_bytes()


def _encode(
    path,
    *,
    codec="libx264",
    frames=48,
    gop=12,
    b_frames=0,
    size=(64, 48),
    fps=12,
    pix_fmt="yuv420p",
    rotation_deg=0,
    **options,
):
    codec_options = {"g": str(gop), "keyint_min": str(gop), "sc_threshold": "0", **_FAST.get(codec, {}), **options}
    if codec == "libx264":
        codec_options["bf"] = str(b_frames)
    width, height = size
    with own_scheduling(), av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=fps, options=codec_options)
        stream.width, stream.height, stream.pix_fmt = width, height, pix_fmt
        if rotation_deg:
            stream.set_display_rotation(rotation_deg)
        stream.codec_context.gop_size = gop
        stream.codec_context.thread_count = 1  # more would make the bytes depend on the machine, and some spin
        if codec != "libx264":
            stream.codec_context.max_b_frames = b_frames
        rows, columns = np.mgrid[0:height, 0:width]
        first = np.stack([columns * 3, rows * 4, np.zeros_like(rows)], -1).astype(np.uint8)
        for number in range(frames):
            pixels = first + np.array([number * 5, number * 2, number * 255 // frames]).astype(np.uint8)  # modulo 256
            for packet in stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")):
                container.mux(packet)
        for packet in stream.encode():
            container.mux(packet)


def cut_start(path, cut_path, *, frames):
    """Copy a clip without its first frames.

    In an MP4 they stay in the file, hidden by an edit list, since later frames depend on them.
    """
    with av.open(str(path)) as source, av.open(str(cut_path), "w") as target:
        [stream] = source.streams
        copy = target.add_stream_from_template(stream)
        packets = [packet for packet in source.demux(stream) if packet.size]
        shift = int(frames / (stream.average_rate * packets[0].time_base))
        for packet in packets if path.suffix == ".mp4" else packets[frames:]:
            packet.pts, packet.dts, packet.stream = packet.pts - shift, packet.dts - shift, copy
            target.mux(packet)
    return cut_path


def crop_in_container(path, width, height, *, left, top, size):
    """Add a `clap` box (ISO/IEC 14496-12, 12.1.4) to an MP4 of H.264 of a size, whose header is at its end."""
    centre_x, centre_y = 2 * left + width - size[0], 2 * top + height - size[1]
    box = struct.pack(">I4s4IiIiI", 40, b"clap", width, 1, height, 1, centre_x, 2, centre_y, 2)
    data = bytearray(path.read_bytes())
    at = data.index(b"mdat")
    for kind in (b"moov", b"trak", b"mdia", b"minf", b"stbl", b"stsd", b"avc1"):
        at = data.index(kind, at)
        entry_bytes = int.from_bytes(data[at - 4 : at])
        struct.pack_into(">I", data, at - 4, entry_bytes + len(box))
    end = at - 4 + entry_bytes
    data[end:end] = box
    path.write_bytes(data)


def blank_packet(path, number):
    """Overwrite the packet of one frame, counted in decode order, with zeros."""
    with av.open(str(path)) as container:
        packets = [bytes(packet) for packet in container.demux(video=0) if packet.size]
    data = path.read_bytes()
    at = data.index(packets[number])
    path.write_bytes(data[:at] + bytes(len(packets[number])) + data[at + len(packets[number]) :])


def flag_as_keyframe(path, number):
    """Let the header of an MP4 name a frame, counted in decode order, as its second keyframe."""
    data = bytearray(path.read_bytes())
    struct.pack_into(">I", data, data.index(b"stss") + 16, number + 1)
    path.write_bytes(data)


@pytest.fixture
def decode_linearly():
    """Return a function that decodes all frames of a clip with PyAV alone: a list of (pts, is_keyframe, pixels)."""

    def decode(path):
        with av.open(str(path)) as container:
            # Slice threads disable FFmpeg's error concealment, so that damaged frames would differ between runs.
            container.streams.video[0].codec_context.thread_type = "NONE"
            return [
                (frame.pts, bool(frame.key_frame), frame.to_ndarray(format="rgb24"))
                for frame in container.decode(video=0)
            ]

    return decode
