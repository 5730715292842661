"""The forecast of a clip's cost, compared with what extracting it really costs."""

from dataclasses import replace

import pytest

from reelabel.extract import extract_local
from reelabel.frames.fetch import VideoReader
from reelabel.options import Limits
from reelabel.pool.decode_pool import DecodePool
from reelabel.sampling.options import Sampling
from reelabel.segment import WHOLE, Segment
from reelabel.sources.object_store import ObjectStore
from tasks.frame_cache.look import look_at
from tasks.survey.clips import Clip, Tags
from tasks.survey.cost import cost_of, passes_of
from tasks.survey.measure import measure_rates
from tasks.survey.read import SeenClip


@pytest.fixture(scope="module")
def reader():
    with DecodePool(processes=1, timeout_s=30, memory_mib=2048) as pool:
        yield VideoReader(objects=ObjectStore(), pool=pool, limits=Limits())


@pytest.mark.parametrize("segment", [WHOLE, Segment(2.0, 9.0), Segment(2.0, 2.4)])
@pytest.mark.parametrize("sampler", ["keyframes", "uniform", "fps", "auto"])
@pytest.mark.parametrize("name", ["clip.mp4", "clip.mkv"])
def test_the_frames_to_decode_are_those_that_a_run_decodes(name, sampler, segment, make_clip, reader):
    path = make_clip(name, frames=240, gop=30, b_frames=2)
    sampling = Sampling(sampler=sampler, num_frames=6)

    cost = cost_of(Clip(uri=str(path), segment=segment), look_at(reader, str(path)), sampling)

    decoded = extract_local(path, sampling=sampling, segment=segment)
    assert cost.coverage == decoded.coverage(cost_thresholds())
    if sampler == "keyframes":
        assert (cost.frames, cost.stored) == (decoded.cost.frames_decoded, len(decoded.unique))
    else:
        assert decoded.cost.frames_decoded * 0.9 <= cost.frames <= decoded.cost.frames_decoded * 2


def test_a_dense_sampler_decodes_each_frame_from_its_keyframe(make_clip, reader):
    path = make_clip("clip.mp4", frames=240, gop=30)

    cost = cost_of(Clip(uri=str(path)), look_at(reader, str(path)), Sampling(sampler="uniform", num_frames=6))

    runs = [(0, 0), (30, 47), (90, 95), (120, 143), (180, 191), (210, 239)]
    assert (cost.frames, cost.stored) == (sum(last + 1 - first for first, last in runs), 6)


def test_of_a_short_segment_a_rate_shows_as_many_frames_as_fit(make_clip, reader):
    path = make_clip("clip.mp4", frames=240, gop=30)
    clip = Clip(uri=str(path), segment=Segment(2.0, 2.4))

    assert cost_of(clip, look_at(reader, str(path)), Sampling(sampler="uniform", fps=5)).stored == 2


@pytest.mark.parametrize("sampler", ["keyframes", "uniform"])
def test_the_seconds_forecast_of_a_measured_clip_are_those_measured(sampler, make_clip, reader, monkeypatch):
    path, spent_ms = make_clip("clip.mp4", frames=240, gop=60, b_frames=3), []
    fetch, sampling = VideoReader.fetch, Sampling(sampler=sampler, num_frames=6)
    monkeypatch.setattr(
        VideoReader,
        "fetch",
        lambda reader, info, sampling, **options: (
            got := fetch(reader, info, sampling, **options),
            spent_ms.append(got.frames.cost.decode_ms),
        )[0],
    )
    clip = SeenClip(clip=Clip(uri=str(path)), seen=look_at(reader, str(path)))

    rates = measure_rates([clip], reader, sampling, processes=1, encoding="zstd", limit_s=10)

    forecast_ms = cost_of(clip.clip, clip.seen, sampling).frames * rates.decode_ms_per_frame
    assert forecast_ms == pytest.approx(sum(spent_ms))


def cost_thresholds():
    from reelabel.coverage import CoverageThresholds  # noqa: PLC0415

    return CoverageThresholds()


def test_tags_decide_the_sampler_of_a_clip_as_in_a_run():
    sampling = Sampling(sampler="auto", motion_tasks=("motion",), still_tasks=("still",))
    clip = Clip(uri="/v.mp4", tags=(Tags(task="motion"), Tags(task="still"), Tags()))

    assert [each.sampler for each in passes_of(clip, sampling, is_good=True)] == ["uniform", "keyframes", "keyframes"]


def test_passes_of_one_clip_are_added_up_and_a_file_that_is_read_whole_is_read_once(make_clip, reader):
    path = make_clip("clip.mp4", frames=240, gop=30)
    sampling = Sampling(sampler="auto", num_frames=6, motion_tasks=("motion",), still_tasks=("still",))
    tags = Tags(task="motion"), Tags(task="still")
    seen = look_at(reader, str(path))

    dense, keyframes, both = (
        cost_of(Clip(uri=str(path), tags=each), seen, sampling) for each in (tags[:1], tags[1:], tags)
    )

    whole = cost_of(Clip(uri=str(path), tags=tags), replace(seen, is_whole_read=True), sampling)
    assert (both.frames, both.stored) == (dense.frames + keyframes.frames, 12)
    assert both.bytes_read == dense.bytes_read + keyframes.bytes_read
    assert (both.is_dense, keyframes.is_dense) == (True, False)
    assert whole == replace(both, bytes_read=path.stat().st_size)


def test_frames_from_everywhere_are_decoded_before_a_question_chooses_some(make_clip, reader):
    path = make_clip("clip.mp4", frames=240, gop=30)
    sampling = Sampling(sampler="relevant", num_frames=6)

    whole, part = (
        cost_of(Clip(uri=str(path), segment=segment), look_at(reader, str(path)), sampling)
        for segment in (WHOLE, Segment(0.0, 5.0))
    )

    assert (whole.frames, whole.stored, whole.is_dense) == (240, 6, True)
    assert 0 < part.frames < 120
