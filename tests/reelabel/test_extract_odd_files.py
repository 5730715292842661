"""Files that mislead a decoder: damaged, hidden, disguised."""

import gzip
import io
import os
import random
import shutil
import struct
import threading
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction

import av
import numpy as np
import pytest
from av.stream import Disposition
from PIL import Image

from benchmarks.exactness.agreement import disagreements
from benchmarks.exactness.linear import decode_linearly as decode_past_errors
from benchmarks.media.matrix import Cell
from benchmarks.media.recipe import make_clip as make_recipe
from reelabel.decode import keyframes
from reelabel.errors import NoVideoStreamError, VideoMissingError, VideoUnreadableError
from reelabel.extract import extract_local
from reelabel.index import NO_PTS
from reelabel.options import Limits
from reelabel.sampling.options import Sampling
from reelabel.segment import WHOLE, Segment
from tests.clips import cut_start


def extract(path, *, num_frames=6, **options):
    return extract_local(path, sampling=Sampling(num_frames=num_frames), limits=Limits(), **options)


def assert_is_linear(got, linear):
    index_of = {pts: index for index, (pts, _, _) in enumerate(linear)}
    for image, index, pts in zip(got.unique, got.selection.frame_index, got.selection.pts.tolist(), strict=True):
        assert index in {-1, index_of[pts]}
        np.testing.assert_array_equal(image, linear[index_of[pts]][2])


@pytest.mark.parametrize("name", ["clip.mp4", "clip.mkv"])
def test_a_damaged_keyframe_looks_as_in_a_linear_decode(make_clip, decode_linearly, name):
    path = make_clip(name, b_frames=2, size=(160, 96))
    with av.open(str(path)) as container:
        damaged = [packet.pos for packet in container.demux(video=0) if packet.size and packet.is_keyframe][2]
    data = bytearray(path.read_bytes())
    data[damaged + 80 : damaged + 90] = random.Random(0).randbytes(10)
    path.write_bytes(data)

    got = extract(path, as_stored=True)

    assert (got.method, got.note) == ("linear", "a keyframe is damaged")
    assert_is_linear(got, decode_linearly(path))


def test_nothing_is_counted_by_an_index_that_does_not_match_its_file(make_clip):
    path = make_clip("clip.mp4", frames=120, gop=10, size=(160, 96))
    with av.open(str(path)) as container:
        packets = [(packet.pos, packet.size) for packet in container.demux(video=0) if packet.size]
    data = bytearray(path.read_bytes())
    start, end = packets[35][0], sum(packets[85])
    data[start:end] = random.Random(0).randbytes(end - start)
    path.write_bytes(data)
    linear = decode_past_errors(path)
    assert len(linear.frames) < 120

    got = extract(path, num_frames=16, as_stored=True)

    assert got.selection.total_frames is None
    assert disagreements(got, linear, num_frames=16) == []


def test_frames_before_an_edit_lists_start_are_not_counted(make_clip, decode_linearly, tmp_path):
    path = tmp_path / "trimmed.mp4"
    remux(make_clip(b_frames=2), path, shift=Fraction(-7, 12))

    got = extract(path, as_stored=True)

    linear = decode_linearly(path)
    assert (got.method, got.selection.total_frames, got.selection.keyframes_in_file) == ("index", len(linear), 3)
    assert_is_linear(got, linear)


@pytest.mark.parametrize("b_frames", [0, 2])
@pytest.mark.parametrize("segment", [WHOLE, Segment(0.5, 2.5)])
def test_times_count_from_the_first_frame_that_an_edit_list_leaves(
    make_clip, decode_linearly, tmp_path, b_frames, segment
):
    path = cut_start(make_clip(gop=6, b_frames=b_frames), tmp_path / "cut.mp4", frames=15)
    linear = decode_linearly(path)
    with av.open(str(path)) as container:
        unit_s = float(container.streams.video[0].time_base)

    got = extract_local(path, sampling=Sampling(num_frames=3), segment=segment)

    assert got.method == "index"
    np.testing.assert_allclose(got.time_s, (got.pts - linear[0][0]) * unit_s)


@pytest.mark.parametrize("name", ["cut.mp4", "cut.mkv"])
def test_frames_of_a_clip_without_its_first_keyframe_are_those_that_are_shown(
    make_clip, decode_linearly, tmp_path, name
):
    remux(make_clip(b_frames=2), tmp_path / name, skip=3)

    got = extract(tmp_path / name, as_stored=True)

    linear = decode_linearly(tmp_path / name)
    assert (got.method, got.selection.total_frames) == ("linear", len(linear))
    assert got.selection.frame_index[0] == 0
    assert_is_linear(got, linear)
    part = extract(tmp_path / name, segment=Segment(0.5, None))
    assert part.selection.starts_s == pytest.approx(0.5 + float(linear[0][0] * time_base(tmp_path / name)))


FRAGMENTED = {"mux_options": {"movflags": "frag_keyframe+empty_moov"}}
BEGINS_WITHIN_A_GOP = {"skipped_packets": 3, "gop": 20, "mux_options": {"frag_duration": "300000"}}


@pytest.mark.parametrize(
    ("cell", "changes", "segment"),
    [
        (Cell("fmp4", "hevc"), BEGINS_WITHIN_A_GOP, Segment(0.4, None)),
        (Cell("mp4", "h264", "intra-refresh"), FRAGMENTED, Segment(None, 0.2)),
    ],
    ids=["hevc", "h264"],
)
def test_packets_that_are_no_keyframes_are_not_counted_where_all_are_listed(
    tmp_path, decode_linearly, cell, changes, segment
):
    path = tmp_path / "clip"
    path.write_bytes(make_recipe(replace(cell.recipe, **changes)))
    linear = decode_linearly(path)

    got = extract_local(path, sampling=Sampling(sampler="uniform", num_frames=2), as_stored=True, segment=segment)

    assert got.note == "a packet is flagged as a keyframe, but its frame is not"
    assert (got.selection.total_frames, got.selection.keyframes_in_file) == (
        len(linear),
        sum(is_key for _, is_key, _ in linear),
    )
    assert_is_linear(got, linear)


@pytest.mark.parametrize("sampler", ["keyframes", "uniform"])
def test_a_matroska_file_that_ends_before_zero_is_decoded(tmp_path, decode_linearly, sampler):
    path = tmp_path / "clip.mkv"
    before_zero = {"ticks": lambda number: number - 70, "mux_options": {"avoid_negative_ts": "disabled"}}
    path.write_bytes(make_recipe(replace(Cell("mkv", "vp8").recipe, frames=1, **before_zero)))

    got = extract_local(path, sampling=Sampling(sampler=sampler), as_stored=True)

    assert got.method == "linear"
    assert_is_linear(got, decode_linearly(path))


def test_hidden_frames_of_vp8_are_not_counted(make_clip, decode_linearly):
    path = make_clip("clip.webm", codec="libvpx", **{"auto-alt-ref": "1", "lag-in-frames": "16"})

    got = extract(path, as_stored=True)

    assert (got.method, got.selection.total_frames) == ("index", None)
    assert_is_linear(got, decode_linearly(path))


def test_a_clip_of_only_keyframes_has_them_all_in_its_index(make_clip, decode_linearly):
    path = make_clip(gop=1)

    got = extract(path, as_stored=True)

    assert (got.method, got.selection.keyframes_in_file) == ("index", 48)
    assert_is_linear(got, decode_linearly(path))


def test_a_stream_that_refreshes_without_keyframes_is_decoded_linearly(make_clip, decode_linearly):
    path = make_clip(**{"x264-params": "intra-refresh=1:keyint=12"})

    got = extract(path, as_stored=True)

    assert got.method == "linear"
    assert_is_linear(got, decode_linearly(path))


def test_packet_flags_are_used_if_the_decoder_marks_no_keyframe(make_clip, decode_linearly):
    path = make_clip("clip.mov", codec="svq1", pix_fmt="yuv410p")
    linear = decode_linearly(path)
    assert not any(is_marked for _, is_marked, _ in linear)

    got = extract(path, num_frames=-1, as_stored=True)

    assert got.selection.frame_index.tolist() == [0, 12, 24, 36]
    assert got.selection.is_keyframe.all()
    assert_is_linear(got, linear)


def test_a_raw_stream_without_times_is_timed_by_its_frame_rate(make_clip):
    path = make_clip("clip.h264", fps=25)

    got = extract(path, num_frames=4)

    assert got.selection.pts.tolist() == [NO_PTS] * 4
    assert got.selection.time_s.tolist() == pytest.approx([0.0, 0.48, 0.96, 1.44])


@pytest.mark.parametrize(("rotation_deg", "turns"), [(90, 1), (-90, 3), (180, 2)])
def test_rotation_is_applied_unless_native(make_clip, rotation_deg, turns):
    clip = make_clip("upright.mp4", size=(168, 84))
    upright, path = extract(clip), clip.with_name("rotated.mp4")
    with (
        av.open(clip) as source,
        av.open(path, "w") as rotated,
    ):  # the same packets: two encodings may differ
        stream = rotated.add_stream_from_template(source.streams.video[0])
        stream.set_display_rotation(rotation_deg)
        for packet in source.demux(video=0):
            if packet.size:
                packet.stream = stream
                rotated.mux(packet)

    got = extract(path)

    np.testing.assert_array_equal(got.unique, np.rot90(upright.unique, turns, axes=(1, 2)))
    assert got.selection.rotation_deg == extract(path, as_stored=True).selection.rotation_deg == turns * 90
    assert extract(path, as_stored=True).unique.shape[1:] == (84, 168, 3)


def test_several_decoding_threads_rotate_a_clip_like_one(make_clip, monkeypatch):
    decode, others_began = keyframes.decode_single_packet, threading.Event()

    def decode_first_last(codec, packet):
        if packet.pts == 0:
            others_began.wait()
        frame = decode(codec, packet)
        others_began.set()
        return frame

    path = make_clip("rotated.mp4", size=(168, 84), rotation_deg=90)
    monkeypatch.setattr(keyframes, "decode_single_packet", decode_first_last)

    got = extract(path, threads=3)

    assert (got.method, got.selection.rotation_deg) == ("index", 90)
    np.testing.assert_array_equal(got.unique, extract(path).unique)


@pytest.mark.parametrize("codec", ["libvpx", "libvpx-vp9"])
def test_several_decoding_threads_know_where_matroska_says_that_chroma_lies(tmp_path, codec):
    path, written = tmp_path / "sited.mkv", io.BytesIO()
    with av.open(written, "w", format="matroska") as container:
        stream = container.add_stream(codec, rate=12, options={"cpu-used": "8", "deadline": "realtime", "g": "2"})
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        stream.codec_context.color_primaries = stream.codec_context.color_trc = 1
        for number in range(12):
            pixels = np.random.default_rng(number).integers(0, 255, (48, 64, 3), np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels)))
        container.mux(stream.encode())
    # In place of the transfer characteristics and the primaries: ChromaSitingHorz and ChromaSitingVert.
    changed = written.getvalue().replace(b"\x55\xba\x81\x01", b"\x55\xb7\x81\x01")
    changed = changed.replace(b"\x55\xbb\x81\x01", b"\x55\xb8\x81\x02")
    assert changed != written.getvalue()
    path.write_bytes(changed)

    one, three = (extract(path, threads=threads) for threads in (1, 3))

    assert one.method == three.method == "index"
    np.testing.assert_array_equal(one.unique, three.unique)


def test_frames_of_changing_size_must_be_scaled(make_clip, tmp_path):
    path = tmp_path / "joined.ts"
    parts = (make_clip("small.ts"), make_clip("large.ts", size=(128, 96)))
    path.write_bytes(b"".join(part.read_bytes() for part in parts))

    scaled = Sampling(num_frames=6, max_pixels=3136, size_multiple_px=28)
    assert extract_local(path, sampling=scaled, limits=Limits()).unique.shape[1:] == (56, 56, 3)
    for native in (False, True):
        with pytest.raises(VideoUnreadableError, match=r"frame size changes .* set max_pixels"):
            extract(path, as_stored=native)


def test_a_stream_that_appears_midway_does_not_stop_decoding(tmp_path):
    recipe = replace(Cell("ts", "h264").recipe, frames=100)
    silent, sounding = make_recipe(recipe), make_recipe(replace(recipe, sound="mp2"))
    path = tmp_path / "joined.ts"
    path.write_bytes(silent * 5 + sounding + silent * 10)

    # PyAV raises an IndexError at its end, or not, by what lay in a byte of memory that it never set.
    got = extract(path, num_frames=2, as_stored=True)

    assert got.selection.total_frames > 6 * 100
    assert disagreements(got, decode_past_errors(path), num_frames=2) == []


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("film.txt", "letters\n" * 100, "may be truncated, or not a video"),
        ("list.mp4", "ffconcat version 1.0\nfile clip.mp4\n", "is a playlist"),
        ("list.m3u8", "#EXTM3U\n#EXT-X-TARGETDURATION:5\n#EXTINF:5,\nclip.mp4\n#EXT-X-ENDLIST\n", "a playlist"),
        ("list.mpd", '<?xml version="1.0"?>\n<MPD><Period/></MPD>\n', "a playlist"),
    ],
)
def test_text_and_playlists_are_not_videos(make_clip, tmp_path, name, text, message):
    make_clip("clip.mp4")
    path = tmp_path / name
    path.write_text(text)

    with pytest.raises(VideoUnreadableError, match=message):
        extract(path)


def segment_without_its_beginning(make_clip):
    """A DASH segment: a fragment of a clip, without the boxes before it."""
    with av.open(str(make_clip())) as source, io.BytesIO() as file:
        with av.open(file, "w", format="mp4", options={"movflags": "frag_keyframe+empty_moov"}) as target:
            copy = target.add_stream_from_template(source.streams.video[0])
            for packet in source.demux(video=0):
                packet.stream = copy
                if packet.size:
                    target.mux(packet)
        whole = file.getvalue()
    return whole[whole.index(b"moof") - 4 :]


def cluster_without_its_beginning(make_clip):
    whole = make_clip("clip.mkv").read_bytes()
    return whole[whole.index(b"\x1f\x43\xb6\x75") :]


@pytest.mark.parametrize(
    ("serve", "message"),
    [
        (lambda make: gzip.compress(make().read_bytes()), "is compressed with gzip; store it, and have its server"),
        (lambda _: b"\xef\xbb\xbf\n<!-- 1 --><!DocType html><title>Log in</title>" * 9, "is a web page, not a video"),
        (lambda _: b'<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml"></html>', "is a web page"),
        (segment_without_its_beginning, "a DASH or HLS stream without its initialisation segment"),
        (cluster_without_its_beginning, "a DASH or HLS stream without its initialisation segment"),
    ],
    ids=["gzip", "html", "xhtml", "segment of mp4", "segment of webm"],
)
def test_what_is_served_in_a_videos_place_is_named(make_clip, tmp_path, serve, message):
    path = tmp_path / "served.mp4"
    path.write_bytes(serve(make_clip))

    with pytest.raises(VideoUnreadableError, match=message):
        extract(path)


def test_a_cover_picture_is_not_a_video(tmp_path):
    path = tmp_path / "song.mp4"
    with av.open(str(path), "w") as container:
        sound, cover = container.add_stream("aac", rate=44100), container.add_stream("mjpeg", rate=1)
        cover.width, cover.height, cover.pix_fmt = 64, 64, "yuvj420p"
        cover.disposition = Disposition.attached_pic
        silence = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
        silence.rate = 44100
        picture = av.VideoFrame.from_ndarray(np.zeros((64, 64, 3), np.uint8))
        for packet in [*cover.encode(picture), *cover.encode(), *sound.encode(silence), *sound.encode()]:
            container.mux(packet)

    with pytest.raises(NoVideoStreamError):
        extract(path)


def test_a_file_that_lost_its_index_is_unreadable(make_clip):
    path = make_clip()
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])

    with pytest.raises(VideoUnreadableError):
        extract(path)


def test_any_file_name_is_taken_literally(make_clip, tmp_path, monkeypatch):
    shutil.copy(make_clip(), tmp_path / "http:%03d.mp4")
    monkeypatch.chdir(tmp_path)

    assert extract(tmp_path.joinpath("http:%03d.mp4").relative_to(tmp_path)).selection.keyframes_in_file == 4


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(VideoMissingError):
        extract(tmp_path / "nowhere.mp4")


def time_base(path):
    with av.open(str(path)) as container:
        return container.streams.video[0].time_base


def remux(source, target, *, shift=Fraction(0), skip=0):
    """Copy the packets but the first `skip`, `shift` seconds later."""
    with av.open(str(source)) as reader, av.open(str(target), "w") as writer:
        stream = writer.add_stream_from_template(reader.streams.video[0])
        packets = [packet for packet in reader.demux(video=0) if packet.size]
        for packet in packets[skip:]:
            ticks = int(shift / packet.time_base)
            packet.pts, packet.dts, packet.stream = packet.pts + ticks, packet.dts + ticks, stream
            writer.mux(packet)


MLV = struct.pack("<4sI8sQHHIHHIIII", b"MLVI", 52, b"v2.0", 1, 0, 1, 0, 1, 0, 1, 0, 25, 1)
VOBSUB = b"# VobSub index file, v7 (do not modify this line!)\nsize: 64x48\nid: en, index: 0\n"


@pytest.mark.parametrize(
    ("name", "data", "sibling"),
    [("clip.MLV", MLV, "clip.M00"), ("clip.idx", VOBSUB, "clip.sub")],
    ids=["MLV", "VobSub"],
)
def test_a_multi_file_format_is_refused_and_its_siblings_are_not_read(tmp_path, name, data, sibling):
    (tmp_path / name).write_bytes(data)
    os.mkfifo(tmp_path / sibling)
    opened, is_over = [], threading.Event()

    def watch():
        while not is_over.wait(0.001):
            with suppress(OSError):  # nobody has opened it for reading
                os.close(os.open(tmp_path / sibling, os.O_WRONLY | os.O_NONBLOCK))
                opened.append(sibling)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with pytest.raises(VideoUnreadableError, match=r"^FFmpeg cannot open the video .*\.$"):
            extract_local(tmp_path / name)
    finally:
        is_over.set()
        watcher.join()

    assert opened == []


@pytest.mark.parametrize("name", ["photo.jpg", "photo.JPEG", "photo"])
def test_a_jpeg_is_a_video_of_one_frame_whatever_its_name(tmp_path, name):
    Image.new("RGB", (56, 84), "red").save(tmp_path / name, "jpeg")

    assert extract_local(tmp_path / name).unique.shape == (1, 84, 56, 3)


@pytest.mark.parametrize("name", ["clip.ts", "clip.flv"])
def test_a_container_without_an_index_is_decoded_at_once_for_a_dense_sampler(make_clip, name):
    got = extract_local(make_clip(name), sampling=Sampling(sampler="uniform", num_frames=6), limits=Limits())

    assert (got.method, got.note) == ("linear", "the container has no index in its header")
