"""HDR videos are shown as the SDR pictures that they were made from, unless they are wanted as decoded."""

import av
import numpy as np
import pytest
from av.video.reformatter import ColorPrimaries, ColorRange, Colorspace, ColorTrc

from benchmarks.extraction.loaders import FileParts
from reelabel.containers.stream_properties import hdr_transfer
from reelabel.decode.read_index import read_index
from reelabel.extract import extract_local, extract_ranges
from reelabel.frames.cache import decode_index, encode_index
from reelabel.integrations.ray_data.prepare import PrepareVideo
from reelabel.options import Limits
from reelabel.pool.decode_pool import DecodePool
from reelabel.sampling.options import Sampling
from reelabel.sources.video_file import open_video_file

WHITE_NITS = 203
PATCHES = np.array(
    [
        [[220, 20, 20], [20, 20, 220], [20, 200, 20], [90, 70, 120]],
        [[0, 0, 0], [128, 128, 128], [200, 200, 200], [255, 255, 255]],
    ]
)
SIDE = 56
SIZE = SIDE * PATCHES.shape[1], SIDE * PATCHES.shape[0]
SAMPLERS = [Sampling(num_frames=2), Sampling(sampler="uniform", num_frames=3)]
# Linear BT.709 to linear BT.2020 (ITU-R BT.2087).
TO_BT2020 = np.array([[0.6274, 0.3293, 0.0433], [0.0691, 0.9195, 0.0114], [0.0164, 0.0880, 0.8956]])


def perceptual_quantizer(nits):
    """The inverse EOTF of PQ (ITU-R BT.2100, table 4)."""
    power = (np.maximum(nits, 0) / 10_000) ** 0.1593017578125
    return ((0.8359375 + 18.8515625 * power) / (1 + 18.6875 * power)) ** 78.84375


def hybrid_log_gamma(nits):
    """The OETF of HLG (ITU-R BT.2100, table 5), after the inverse of its system gamma at 1,000 nits."""
    scene = (np.maximum(nits, 0) / 1000) ** (1 / 1.2)
    logarithmic = 0.17883277 * np.log(np.maximum(12 * scene - 0.28466892, 1e-6)) + 0.55991073
    return np.where(scene <= 1 / 12, np.sqrt(3 * scene), logarithmic)


X265 = "pools=none:frame-threads=1:log-level=error:keyint=4:min-keyint=4:scenecut=0"
ENCODER = {"crf": "4", "preset": "ultrafast", "x265-params": X265}
TRANSFERS = {
    "PQ": (perceptual_quantizer, ColorTrc.SMPTE2084),
    "HLG": (hybrid_log_gamma, ColorTrc.ARIB_STD_B67),
}


def encode(path, transfer, *, nits=None):
    """Encode the patches, or patches of one brightness each, as HDR."""
    to_signal, trc = TRANSFERS[transfer]
    light = (
        WHITE_NITS * (PATCHES / 255) ** 2.4 @ TO_BT2020.T if nits is None else np.array(nits)[..., None].repeat(3, -1)
    )
    signal = np.rint(to_signal(light) * 65535).astype(np.uint16).repeat(SIDE, 0).repeat(SIDE, 1)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx265", rate=12, options=ENCODER)
        codec = stream.codec_context
        codec.width, codec.height, codec.pix_fmt = signal.shape[1], signal.shape[0], "yuv420p10le"
        codec.color_primaries, codec.color_trc = ColorPrimaries.BT2020, trc
        codec.colorspace, codec.color_range, codec.gop_size = Colorspace.BT2020, ColorRange.MPEG, 4
        for _ in range(12):
            frame = av.VideoFrame.from_ndarray(signal, format="rgb48le").reformat(
                format="yuv420p10le", dst_colorspace=Colorspace.BT2020, dst_color_range=ColorRange.MPEG
            )
            frame.color_primaries, frame.color_trc, frame.pts = ColorPrimaries.BT2020, trc, None
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def patches_of(image):
    return image[SIDE // 2 :: SIDE, SIDE // 2 :: SIDE].astype(int)


@pytest.mark.parametrize("transfer", TRANSFERS)
@pytest.mark.parametrize("sampling", SAMPLERS, ids=lambda sampling: sampling.sampler)
@pytest.mark.parametrize("suffix", [".mp4", ".mkv", ".ts"])
def test_an_hdr_video_is_shown_in_the_colours_of_its_sdr_original(tmp_path, transfer, sampling, suffix):
    got = extract_local(encode(tmp_path / f"clip{suffix}", transfer), sampling=sampling)

    assert got.unique.shape[1:3] == SIZE[::-1]
    assert f"{transfer} tone-mapped to SDR" in got.note
    for image in got.unique:
        assert np.abs(patches_of(image) - PATCHES).max() <= 25


@pytest.mark.parametrize("transfer", TRANSFERS)
def test_light_keeps_its_brightness_up_to_the_knee_and_is_compressed_above(tmp_path, transfer):
    path = encode(tmp_path / "clip.mp4", transfer, nits=[[50, 100, 150, 203], [250, 300, 400, 1000]])

    [image] = extract_local(path, sampling=Sampling(num_frames=1)).unique

    grey = patches_of(image)
    assert np.ptp(grey, axis=-1).max() <= 2
    levels = grey[..., 0].ravel()
    assert (np.diff(levels) > 0).all()
    np.testing.assert_allclose(levels[:3], 255 * (np.array([50, 100, 150]) / WHITE_NITS) ** (1 / 2.4), atol=2)
    assert levels[-1] >= 254


@pytest.mark.parametrize("transfer", TRANSFERS)
def test_frames_as_decoded_are_those_of_ffmpeg(tmp_path, transfer, decode_linearly):
    path = encode(tmp_path / "clip.mp4", transfer)

    got = extract_local(path, sampling=Sampling(num_frames=1, hdr="as_decoded"))
    native = extract_local(path, sampling=Sampling(num_frames=1), as_stored=True)

    assert got.note == f"{transfer} shown as decoded"
    assert np.abs(patches_of(got.unique[0]) - patches_of(native.unique[0])).max() <= 3  # scaled exactly, and not
    assert native.note == ""
    np.testing.assert_array_equal(native.unique[0], decode_linearly(path)[native.selection.frame_index[0]][2])


def test_ranges_a_saved_index_and_a_sandboxed_process_show_the_same(tmp_path):
    path = encode(tmp_path / "clip.mp4", "HLG")
    path.write_bytes(path.read_bytes() + (1 << 16).to_bytes(4) + b"free" + bytes((1 << 16) - 8))  # so that ranges pay
    expected = extract_local(path, sampling=SAMPLERS[0])
    wanted = {"sampling": SAMPLERS[0], "limits": Limits()}

    got, index = extract_ranges(FileParts(path), **wanted)
    again, _ = extract_ranges(FileParts(path), **wanted, known=decode_index(encode_index(index)))
    with DecodePool(processes=1) as pool:
        pooled = pool.extract(path, **wanted)

    for frames in (got, again, pooled):
        assert frames.note == expected.note == "HLG tone-mapped to SDR"
        np.testing.assert_array_equal(frames.unique, expected.unique)


def test_each_row_of_prepare_video_says_what_was_done(tmp_path):
    path = encode(tmp_path / "clip.mp4", "PQ")
    notes = {}
    for hdr in ("sdr", "as_decoded"):
        prepare = PrepareVideo(sampling={"num_frames": 2, "hdr": hdr}, output_format="numpy")
        rows = prepare({"video_uri": [str(path)]})
        notes[hdr] = rows["video_meta"][0][0]["decode_note"]

    assert notes == {"sdr": "PQ tone-mapped to SDR", "as_decoded": "PQ shown as decoded"}


def test_a_spec_says_how_hdr_is_shown_only_if_it_is_not_tone_mapped():
    plain = Sampling().to_dict()

    assert Sampling(hdr="sdr") == Sampling()
    assert Sampling(hdr="as_decoded").to_dict() == plain | {"hdr": "as_decoded"}


@pytest.mark.parametrize("transfer", TRANSFERS)
def test_an_index_tells_that_a_video_is_hdr(tmp_path, make_clip, transfer):
    facts = []
    for path in (encode(tmp_path / "hdr.mp4", transfer), make_clip("sdr.mp4")):
        with open_video_file(path) as file:
            facts.append(read_index(file, Limits(), lists="keyframes")[0].info.hdr)

    assert facts == [transfer, ""]


def test_sdr_frames_are_not_hdr(make_clip):
    with av.open(str(make_clip())) as container:
        assert hdr_transfer(next(container.decode(video=0))) == ""
