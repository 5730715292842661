"""H.264 that was joined without being encoded again: keyframes whose parameters or colours are of earlier packets."""

import av
import numpy as np
import pytest

from reelabel.decode import gops
from reelabel.extract import extract_local
from reelabel.sampling.options import Sampling
from tests.conformance.shortcuts import shortcut_faults
from tests.reelabel.decode.nal_units import units_of

IDR, SPS_AT = 5, 8
COLOURS = "fullrange=on:colorprim=bt709:transfer=bt709:colormatrix=bt709"
CAVLC = "cabac=0:qp=20:chroma-qp-offset"  # decoded with other offsets, it has other colours and no errors
JOINED = {
    "colours are stated first": ([COLOURS, "ref=2"], "linear"),
    "colours are stated later": (["ref=2", COLOURS], "linear"),
    "an open GOP with other parameters": ([f"{CAVLC}=0", f"{CAVLC}=9:open-gop=1:bframes=2"], "seek"),
    "IDR pictures with other parameters": ([f"{CAVLC}=0", f"{CAVLC}=9"], "index"),
    "nothing differs": (["open-gop=0", "open-gop=0"], "index"),
}
SAMPLINGS = [
    Sampling(num_frames=1),
    Sampling(num_frames=4),
    Sampling(sampler="uniform", num_frames=5),
    Sampling(sampler="uniform", num_frames=96),
]


@pytest.fixture(autouse=True)
def tiny_pictures_are_shared(monkeypatch):
    monkeypatch.setattr(gops, "LEAST_SHARED_PIXELS", 1)
    monkeypatch.setattr(gops, "LEAST_THREADED_PIXELS", 1)


def joined(make_clip, path, parts):
    """Join clips under the header of the first, with the parameter sets of each before its IDR pictures, as FFmpeg."""
    clips = [make_clip(f"{number}.mp4", b_frames=2, **{"x264-params": part}) for number, part in enumerate(parts)]
    with av.open(str(clips[0])) as first, av.open(str(path), "w") as target:
        stream, since = target.add_stream_from_template(first.streams.video[0]), 0
        for clip in clips:
            with av.open(str(clip)) as source:
                sets = parameter_sets(source.streams.video[0].codec_context.extradata)
                packets = [packet for packet in source.demux(video=0) if packet.size]
            for packet in packets:
                units = units_of(bytes(packet))
                units = [*(sets if any(unit[0] & 0x1F == IDR for unit in units) else ()), *units]
                changed = av.Packet(b"".join(len(unit).to_bytes(4) + unit for unit in units))
                changed.pts, changed.dts, changed.duration = packet.pts + since, packet.dts + since, packet.duration
                changed.time_base, changed.is_keyframe, changed.stream = packet.time_base, packet.is_keyframe, stream
                target.mux(changed)
            since += len(packets) * packets[0].duration
    return path


def parameter_sets(avcc):
    """Return the only SPS and the only PPS of a configuration (ISO/IEC 14496-15, 5.3.3.1)."""
    end = SPS_AT + int.from_bytes(avcc[SPS_AT - 2 : SPS_AT])
    return avcc[SPS_AT:end], avcc[end + 3 : end + 3 + int.from_bytes(avcc[end + 1 : end + 3])]


@pytest.mark.parametrize("suffix", [".mp4", ".mkv"])
@pytest.mark.parametrize("name", JOINED)
def test_keyframes_of_joined_clips_are_those_of_a_linear_decode(make_clip, tmp_path, decode_linearly, name, suffix):
    parts, method = JOINED[name]
    path = joined(make_clip, tmp_path / f"joined{suffix}", parts)
    linear = {pts: pixels for pts, _, pixels in decode_linearly(path)}
    assert len(linear) == 96

    for sampling in SAMPLINGS:
        for threads in (1, 3):
            got = extract_local(path, sampling=sampling, as_stored=True, threads=threads)
            for pts, image in zip(got.selection.pts.tolist(), got.unique, strict=True):
                np.testing.assert_array_equal(image, linear[pts])

    assert extract_local(path, sampling=Sampling(num_frames=8)).method == method
    assert shortcut_faults(path)[1] == []
