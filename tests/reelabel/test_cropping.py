"""What a container crops is cut off, before the picture is turned and scaled."""

from contextlib import closing

import av
import numpy as np
import pytest

from benchmarks.extraction.loaders import FileParts
from reelabel.decode.decoder import LocalDecoder
from reelabel.decode.read_index import read_index
from reelabel.extract import Progress, Request, extract, extract_local, extract_ranges
from reelabel.frames.cache import decode_index, encode_index
from reelabel.options import Limits
from reelabel.pool.decode_pool import DecodePool
from reelabel.sampling.options import Sampling
from reelabel.sources.sparse_file import SparseFile
from reelabel.sources.video_file import open_video_file
from tests.clips import crop_in_container

LEFT, TOP, RIGHT, BOTTOM = 6, 14, 22, 14
SIZE = 140, 112  # both sizes are multiples of the model's patch, so that nothing is scaled
CROPPED = 112, 84
CLIP = {"size": SIZE, "pix_fmt": "yuv444p", "frames": 24}  # chroma of neighbours is not mixed
LONG = {"frames": 120, "qp": "1", "preset": "ultrafast"}  # of which ranges are worth reading
SAMPLERS = [Sampling(num_frames=3), Sampling(sampler="uniform", num_frames=5)]


def remux(path, target, options):
    with av.open(str(path)) as source, av.open(str(target), "w", options=options or {}) as written:
        [stream] = source.streams
        copy = written.add_stream_from_template(stream)
        for packet in source.demux(stream):
            if packet.size:
                packet.stream = copy
                written.mux(packet)
    return target


@pytest.fixture
def make_cropped(make_clip):
    """Return a function that makes a clip, and the same with margins that its container crops."""

    def make(name="clip.mp4", *, mux_options=None, **clip):
        whole, path = (make_clip(each, **CLIP | clip) for each in ("whole.mp4", "cropped.mp4"))
        crop_in_container(path, *CROPPED, left=LEFT, top=TOP, size=SIZE)
        return whole, (path if name == "clip.mp4" else remux(path, path.with_name(name), mux_options))

    return make


def inside(images):
    return images[:, TOP:-BOTTOM, LEFT:-RIGHT]


@pytest.mark.parametrize("sampling", SAMPLERS, ids=lambda sampling: sampling.sampler)
@pytest.mark.parametrize(
    ("name", "options", "method"),
    [
        ("clip.mp4", {}, "index"),
        ("clip.mov", {}, "index"),
        ("clip.mkv", {}, "index"),
        ("fragmented.mp4", {"movflags": "frag_keyframe+empty_moov"}, "seek"),
    ],
    ids=["mp4", "mov", "mkv", "fragmented"],
)
def test_margins_are_cut_off_whatever_the_container_and_the_sampler(make_cropped, sampling, name, options, method):
    whole, cropped = make_cropped(name, mux_options=options)

    got = extract_local(cropped, sampling=sampling)

    assert got.method == (method if sampling.sampler == "keyframes" else "seek")
    assert (got.selection.native_width_px, got.selection.native_height_px) == CROPPED
    np.testing.assert_array_equal(got.unique, inside(extract_local(whole, sampling=sampling).unique))


def test_margins_are_cut_off_of_what_is_decoded_from_the_beginning(make_cropped):
    whole, cropped = make_cropped()

    every = Sampling(num_frames=-1)
    with open_video_file(cropped) as file, closing(LocalDecoder(file, Limits())) as decoder:
        linear = extract(decoder, Request(sampling=every), Progress(ways=("decode",)))

    assert linear.method == "linear"
    np.testing.assert_array_equal(linear.unique, inside(extract_local(whole, sampling=every).unique))


def test_a_picture_is_cropped_before_it_is_turned(make_cropped):
    whole, cropped = make_cropped(rotation_deg=90)

    got = extract_local(cropped, sampling=Sampling(num_frames=2))

    assert got.selection.rotation_deg == 90
    upright = np.rot90(extract_local(whole, sampling=Sampling(num_frames=2)).unique, -1, axes=(1, 2))
    np.testing.assert_array_equal(got.unique, np.rot90(inside(upright), 1, axes=(1, 2)))


def test_a_picture_is_cropped_before_it_is_scaled(make_cropped):
    _, cropped = make_cropped()

    got = extract_local(cropped, sampling=Sampling(num_frames=1, max_pixels=112 * 84 // 4, size_multiple_px=28))

    assert got.unique.shape[1:3] == (28, 56)
    assert (got.selection.native_width_px, got.selection.native_height_px) == CROPPED


def test_native_frames_are_as_stored(make_cropped, decode_linearly):
    _, cropped = make_cropped()

    got = extract_local(cropped, sampling=Sampling(num_frames=2), as_stored=True)

    assert (got.selection.native_width_px, got.selection.native_height_px) == SIZE
    np.testing.assert_array_equal(got.unique[0], decode_linearly(cropped)[0][2])


@pytest.mark.parametrize("name", ["clip.mp4", "clip.mkv"])
def test_ranges_of_a_video_suffice_to_crop_it_and_so_does_its_saved_index(make_cropped, name):
    whole, cropped = make_cropped(name, **LONG)
    wanted = {"sampling": SAMPLERS[0], "limits": Limits()}

    got, index = extract_ranges(FileParts(cropped), **wanted)
    again, _ = extract_ranges(FileParts(cropped), **wanted, known=decode_index(encode_index(index)))

    expected = inside(extract_local(whole, sampling=SAMPLERS[0]).unique)
    for frames in (got, again):
        assert (frames.selection.native_width_px, frames.selection.native_height_px) == CROPPED
        np.testing.assert_array_equal(frames.unique, expected)


def test_a_sandboxed_process_crops_as_well(make_cropped):
    _, cropped = make_cropped()
    with DecodePool(processes=1) as pool:
        sandboxed = [pool.extract(cropped, sampling=sampling, limits=Limits()) for sampling in SAMPLERS]

    for frames, sampling in zip(sandboxed, SAMPLERS, strict=True):
        assert (frames.selection.native_width_px, frames.selection.native_height_px) == CROPPED
        np.testing.assert_array_equal(frames.unique, extract_local(cropped, sampling=sampling).unique)


@pytest.mark.parametrize("name", ["clip.mp4", "clip.mkv"])
def test_a_survey_reports_the_size_that_is_shown(make_cropped, name):
    _, cropped = make_cropped(name)

    with open_video_file(cropped) as file:
        local, _ = read_index(file, Limits(), lists="keyframes")
    remote, _ = read_index(SparseFile(FileParts(cropped)), Limits(), lists="keyframes")

    assert local.info.shown_size == remote.info.shown_size == CROPPED


def test_margins_that_leave_nothing_are_ignored(make_clip):
    path = make_clip("clip.mp4", **CLIP)
    plain = extract_local(path, sampling=Sampling(num_frames=1))
    crop_in_container(path, 2, 2, left=600, top=600, size=SIZE)

    got = extract_local(path, sampling=Sampling(num_frames=1))

    np.testing.assert_array_equal(got.unique, plain.unique)
