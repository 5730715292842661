"""VVC, which PyAV can decode but not encode.

The streams are of 48 pictures of 96x64, 4:2:0: the luma of picture n is (2x + 3y + 5n) mod 256, and 235 on a disc whose
centre moves by 1.5 pixels a picture; its chroma is 90 + n and 160 - n. VVenC 1.15 has encoded them, with
`vvencFFapp --preset=faster -s 96x64 -fr 12 --InputBitDepth=8 --InternalBitDepth=8 --IntraPeriod=16 --GOPSize=16 -q 34`
and a `--RefreshType` of `idr` (radl), `cra` (rasl) or `idr_no_radl` (closed). The first two begin with pictures that
are decoded after the first keyframe and shown before it.
"""

from fractions import Fraction
from functools import cache
from pathlib import Path

import av
import pytest

from benchmarks.exactness.conformance import check_file
from reelabel.extract import extract_local
from reelabel.sampling.options import Sampling
from reelabel.segment import Segment

DATA = Path(__file__).parents[1] / "data"
GOP = 16
# Pictures that a linear decode shows: of the whole stream, and of what follows its first GOP. The pictures before the
# first keyframe are cut off by the edit list of an MP4, and elsewhere cannot be decoded if they are RASL and cut.
SHOWN = {
    ("radl", "mp4"): (33, 17),
    ("rasl", "mp4"): (33, 17),
    ("closed", "mp4"): (48, 32),
    ("radl", "matroska"): (48, 32),
    ("rasl", "matroska"): (48, 17),
    ("closed", "matroska"): (48, 32),
    ("radl", "mpegts"): (48, 32),
    ("rasl", "mpegts"): (48, 17),
    ("closed", "mpegts"): (48, 32),
    ("radl", "vvc"): (48, 32),
    ("rasl", "vvc"): (48, 17),
    ("closed", "vvc"): (48, 32),
}


@cache
def read(stream):
    """Return the packets of a stream, and the place of each among the pictures shown."""
    with av.open(str(DATA / f"vvc-{stream}.266")) as container:
        decoder = container.streams.video[0].codec_context
        packets = [packet for packet in container.demux(video=0) if packet.size]
        for number, packet in enumerate(packets):
            packet.pts = packet.dts = number
        frames = [frame for packet in (*packets, None) for frame in decoder.decode(packet)]
    position_of = {frame.pts: position for position, frame in enumerate(frames)}
    return [(bytes(packet), packet.is_keyframe, position_of[number]) for number, packet in enumerate(packets)]


def write(path, stream, container, *, skipped):
    """Mux the packets of a stream, without the first ones."""
    packets = read(stream)[skipped:]
    if container == "vvc":
        path.write_bytes(b"".join(data for data, *_ in packets))
        return
    delay = max(number - position + skipped for number, (*_, position) in enumerate(packets))
    with av.open(str(DATA / f"vvc-{stream}.266")) as source, av.open(str(path), "w", format=container) as muxer:
        out = muxer.add_stream_from_template(source.streams.video[0], opaque=True)
        for number, (data, is_keyframe, position) in enumerate(packets):
            packet = av.Packet(data)
            packet.stream, packet.time_base, packet.is_keyframe = out, Fraction(1, 12), is_keyframe
            packet.pts, packet.dts = position - skipped + delay, number
            muxer.mux(packet)


@pytest.mark.parametrize("skipped", [pytest.param(0, id="whole"), pytest.param(GOP, id="cut")])
@pytest.mark.parametrize(("stream", "container"), SHOWN)
def test_frames_of_vvc_equal_those_of_a_linear_decode(stream, container, skipped, tmp_path):
    path = tmp_path / "clip"
    write(path, stream, container, skipped=skipped)

    result = check_file(path)

    assert result.faults == ()
    assert result.frames == SHOWN[stream, container][skipped > 0]
    assert result.method == ("index" if container in {"mp4", "matroska"} else "linear")


@pytest.mark.parametrize(
    ("stream", "skipped", "expected_s"),
    [
        pytest.param("radl", 0, [15 / 12, 31 / 12, 47 / 12], id="leading pictures"),
        pytest.param("radl", GOP, [15 / 12, 31 / 12], id="leading pictures after a cut"),
        pytest.param("rasl", GOP, [0, 16 / 12], id="leading pictures that cannot be decoded"),
        pytest.param("closed", 0, [0, 16 / 12, 32 / 12], id="none"),
    ],
)
def test_times_count_from_the_leading_pictures_of_vvc_that_are_shown_first(stream, skipped, expected_s, tmp_path):
    path = tmp_path / "clip"
    write(path, stream, "matroska", skipped=skipped)

    listed, all_shown = (
        extract_local(path, sampling=Sampling(sampler=name, num_frames=-1)) for name in ("keyframes", "uniform")
    )
    late = extract_local(path, sampling=Sampling(num_frames=-1), segment=Segment(1.0, 1.4))

    assert listed.method == "index"
    assert listed.time_s == pytest.approx(expected_s, abs=2e-3)
    assert all_shown.time_s[all_shown.is_keyframe] == pytest.approx(expected_s, abs=2e-3)
    assert late.time_s == pytest.approx([each for each in expected_s if 1.0 <= each <= 1.4], abs=2e-3)
