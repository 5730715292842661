"""Frame files that hold a video's own packets."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from infra.settings import StoreSettings
from reelabel.errors import FrameFileError, VideoError
from reelabel.extract import extract_local
from reelabel.frames.cache import FrameCache
from reelabel.frames.extractor import FrameExtractor
from reelabel.frames.frame_file import decode_frame_file
from reelabel.frames.packets import with_pixels
from reelabel.limits import Limits
from reelabel.sampling.options import Sampling
from reelabel.sources.object_store import ObjectStore


@pytest.fixture
def preparer(tmp_path, pool):
    objects = ObjectStore(StoreSettings())
    return FrameExtractor(
        objects=objects,
        cache=FrameCache(objects, f"file://{tmp_path}/cache"),
        pool=pool,
        sampling=Sampling(num_frames=4),
        limits=Limits(),
        pixel_encoding="packets",
    )


@pytest.fixture
def clip(make_clip):
    return make_clip(size=(160, 120), frames=240, gop=24, b_frames=2, qp="2")


def stored(preparer, uri):
    return preparer.cache.find(preparer.prepare(str(uri)).identity)


@pytest.mark.parametrize("options", [{}, {"num_frames": 64}, {"drop_similar": 0.99}, {"max_pixels": 784}])
def test_packets_decode_to_the_extracted_pixels(preparer, pool, clip, options):
    preparer = replace(preparer, sampling=Sampling(**{"num_frames": 4} | options))

    file = stored(preparer, clip)

    expected = extract_local(clip, sampling=preparer.sampling, limits=Limits())
    got = decode_frame_file(with_pixels(file, pool, Limits()))
    assert (file.encoding, got.encoding) == ("packets", "raw")
    np.testing.assert_array_equal(got.images, expected.images)
    for name in ("pts", "time_s", "frame_index", "is_keyframe", "picks"):
        np.testing.assert_array_equal(getattr(got, name), getattr(expected, name))


def test_packets_take_a_fraction_of_the_bytes(preparer, clip):
    scaled = Sampling(num_frames=4, max_pixels=602_112, size_multiple_px=28)
    preparer = replace(preparer, sampling=scaled)
    usual = replace(preparer, pixel_encoding="zstd", cache=FrameCache(preparer.objects, preparer.cache.uri_of("usual")))

    assert len(stored(preparer, clip).data) < len(stored(usual, clip).data) / 2


def test_packets_of_a_video_on_s3_are_stored_and_nothing_is_printed(
    preparer, pool, clip, objects, store_settings, capfd
):
    uri = f"{store_settings.uri}/clip.mp4"
    objects.replace(uri, clip.read_bytes())
    preparer = replace(preparer, objects=objects, cache=FrameCache(objects, f"{store_settings.uri}/cache"))

    first, again = stored(preparer, uri), stored(replace(preparer, sampling=Sampling(num_frames=3)), uri)

    for file, count in ((first, 4), (again, 3)):
        expected = extract_local(clip, sampling=Sampling(num_frames=count), limits=Limits())
        assert file.encoding == "packets"
        np.testing.assert_array_equal(decode_frame_file(with_pixels(file, pool, Limits())).images, expected.images)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("name", "sampling"),
    [("clip.ts", Sampling(num_frames=4)), ("clip.mp4", Sampling(sampler="uniform", num_frames=4))],
)
def test_frames_without_a_packet_of_their_own_are_compressed_and_the_file_says_so(preparer, make_clip, name, sampling):
    file = stored(replace(preparer, sampling=sampling), make_clip(name, frames=96, gop=24))

    assert file.encoding == "zstd"
    assert "packets were requested" in file.facts["encoding_note"]
    assert file.images.shape == file.shape


def test_jpeg_takes_precedence_over_packets(preparer, clip):
    assert stored(replace(preparer, sampling=Sampling(num_frames=4, jpeg_quality=90)), clip).encoding == "jpeg"


def test_readers_of_pixels_never_see_packets(preparer, clip):
    with pytest.raises(FrameFileError, match="holds packets, not pixels"):
        _ = stored(preparer, clip).images


@pytest.mark.parametrize("seed", range(4))
def test_packets_are_always_decoded_in_child_processes_which_print_nothing(preparer, pool, clip, seed, capfd):
    file = stored(preparer, clip)
    noise = np.random.default_rng(seed)
    packets = [noise.bytes(len(packet)) for packet in file.read_pixels().to_pylist()]
    hostile = decode_frame_file(file.replace_pixels(pa.array(packets, pa.binary()), encoding="packets"))

    with pytest.raises((FrameFileError, VideoError)):
        with_pixels(hostile, pool, Limits())

    assert decode_frame_file(with_pixels(file, pool, Limits())).encoding == "raw"
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("facts", [None, {}, {"pos": 1}])
def test_a_file_without_its_decoder_parameters_is_not_used(preparer, pool, clip, facts):
    file = stored(preparer, clip)
    strange = decode_frame_file(file.replace_pixels(file.read_pixels(), encoding="packets", packets=facts))

    with pytest.raises(FrameFileError):
        with_pixels(strange, pool, Limits())
