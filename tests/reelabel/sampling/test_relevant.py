"""Frames that were chosen by a question are those of the named times, exactly, in every container and segment."""

import numpy as np
import pytest

from infra.settings import SamplingOptions
from reelabel.errors import InvalidOptionError, SamplingRefusedError
from reelabel.extract import extract_local
from reelabel.frames.cache_key import FrameIdentity
from reelabel.options import Limits
from reelabel.sampling.options import Sampling, with_sampler
from reelabel.sampling.registry import choose_indices, dense_samplers
from reelabel.sampling.spec import VideoProperties
from reelabel.segment import Segment

FACTS = VideoProperties(total_frames=48, fps=12.0, duration_s=4.0)


@pytest.mark.parametrize(
    ("name", "options"),
    [("clip.mp4", {"b_frames": 2}), ("clip.mkv", {"b_frames": 2}), ("clip.avi", {"codec": "mpeg4"})],
)
@pytest.mark.parametrize("segment", [Segment(), Segment(1.0, 3.5)])
def test_the_frames_of_the_named_times_are_extracted(make_clip, name, options, segment):
    path = make_clip(name, frames=48, gop=12, **options)
    every = extract_local(path, sampling=Sampling(sampler="uniform", num_frames=-1), limits=Limits(), segment=segment)
    rows = [1, 7, 8, 20]
    times_ms = tuple(round(time_s * 1e3) for time_s in every.selection.time_s[rows])

    got = extract_local(
        path, sampling=Sampling(sampler="relevant", times_ms=times_ms), limits=Limits(), segment=segment
    )

    assert got.sampler == "relevant"
    assert got.selection.time_s.tolist() == every.selection.time_s[rows].tolist()
    np.testing.assert_array_equal(got.unique, every.unique[rows])
    assert np.abs(got.deviation_s).max() <= 0.5e-3  # times are rounded to milliseconds


def test_without_times_it_is_refused_with_the_commands_that_know_a_question():
    with pytest.raises(SamplingRefusedError, match="it is for classify, backfill and evaluate"):
        choose_indices(Sampling(sampler="relevant"), FACTS)


def test_a_video_without_times_is_refused():
    timeless = VideoProperties(total_frames=48, fps=0.0, duration_s=0.0)

    with pytest.raises(SamplingRefusedError, match="needs times, which the video lacks"):
        choose_indices(Sampling(sampler="relevant", times_ms=(0,)), timeless)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sampler": "auto", "dense_sampler": "relevant"}, "relevant is not a dense sampler; choose one of uniform"),
        ({"dense_sampler": "relevant", "escalate_below": 0.4}, "relevant is not a dense sampler"),
        ({"sampler": "relevant", "escalate_below": 0.4}, "the sampler relevant takes no escalate_below"),
        ({"sampler": "relevant", "fps": 2}, "the sampler relevant takes no fps; leave it out"),
        ({"sampler": "relevant", "num_frames": -1}, "the sampler relevant takes no num_frames of -1"),
        ({"sampler": "relevant", "times_ms": (5, 5)}, "times_ms do not increase"),
        ({"sampler": "uniform", "times_ms": (5,)}, "the sampler uniform takes no times_ms"),
    ],
)
def test_combinations_without_sense_are_refused_in_a_sentence(options, message):
    with pytest.raises(InvalidOptionError, match=message):
        Sampling(**options)


def test_it_is_offered_as_a_sampler_and_not_as_a_dense_one():
    form = SamplingOptions.model_json_schema()["properties"]

    assert "relevant" in form["sampler"]["anyOf"][0]["enum"]
    assert "relevant" not in form["dense_sampler"]["anyOf"][0]["enum"]
    assert "relevant" not in dense_samplers()
    assert "times_ms" not in form


def test_the_times_are_part_of_what_a_frame_file_is_asked_for_by():
    chosen = [Sampling(sampler="relevant", num_frames=4, times_ms=times) for times in ((0, 40), (0, 80))]

    keys = {FrameIdentity(source_uri="a.mp4", fingerprint="1", sampling=each).key for each in chosen}

    assert len(keys) == 2
    assert "times_ms" not in Sampling(sampler="relevant").to_dict()  # nor in the id of a spec
    assert with_sampler(chosen[0], "uniform").times_ms is None
