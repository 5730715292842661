"""The sampler auto: which frames it chooses, and from which frame files."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from reelabel.sampling.options import Sampling
from reelabel.sources.object_store import ObjectStore
from tests.clips import LONG

AUTO = Sampling(sampler="auto", num_frames=4, motion_tasks=("direction",), still_tasks=("colour",), escalate_below=0.5)


@pytest.mark.parametrize(("gop", "sampler"), [(12, "keyframes"), (48, "uniform")])
def test_its_frame_file_is_that_of_the_chosen_sampler(preparer, make_clip, gop, sampler):
    uri = str(make_clip(gop=gop))
    auto = replace(preparer, sampling=AUTO)
    alone = replace(preparer, sampling=Sampling(sampler=sampler, num_frames=4))

    first, second, third = auto.prepare(uri), auto.prepare(uri), alone.prepare(uri)

    assert {each.provenance.sampler for each in (first, second, third)} == {sampler}
    assert (first.was_cached, second.was_cached, third.was_cached) == (False, True, True)
    assert first.identity == second.identity == third.identity


@pytest.mark.parametrize("cached", [[], ["uniform"], ["keyframes"], ["uniform", "keyframes"]])
@pytest.mark.parametrize(
    ("name", "codec", "gop", "sampler", "coverage"),
    [
        pytest.param("clip.mp4", "libx264", 12, "keyframes", "", id="enough"),
        pytest.param("clip.mp4", "libx264", 48, "uniform", "one_keyframe,long_gap,low_coverage", id="not enough"),
        pytest.param("clip.avi", "mpeg4", 12, "keyframes", "", id="decoded whole, though an index lists them"),
        pytest.param("clip.ts", "libx264", 12, "keyframes", "", id="mpeg-ts"),
        pytest.param("clip.flv", "libx264", 48, "uniform", "one_keyframe,long_gap,low_coverage", id="flv"),
    ],
)
def test_cached_files_do_not_change_its_choice(preparer, make_clip, name, codec, gop, sampler, coverage, cached):
    uri = str(make_clip(name, codec=codec, gop=gop))
    for each in cached:
        first = replace(preparer, sampling=Sampling(sampler=each, num_frames=4)).prepare(uri)
        assert first.provenance.coverage == coverage

    got = replace(preparer, sampling=AUTO).prepare(uri)

    assert (got.provenance.sampler, got.provenance.coverage, got.was_cached) == (
        sampler,
        coverage,
        sampler in cached,
    )


@pytest.mark.parametrize(("gop", "first"), [(12, "keyframes"), (48, "uniform")])
def test_a_jobs_stated_needs_take_precedence_over_coverage(preparer, make_clip, gop, first):
    uri = str(make_clip(gop=gop))
    auto = replace(preparer, sampling=AUTO)

    taken = [auto.prepare(uri, shown=shown).provenance.sampler for shown in ("first", "keyframes", "dense")]

    assert taken == [first, "keyframes", "uniform"]


@pytest.mark.parametrize("gop", [12, 48], ids=["first shows keyframes", "first shows the dense sampler's"])
def test_passes_of_one_video_at_once_make_each_frame_file_once(preparer, make_clip, gop):
    uri = str(make_clip(gop=gop))
    auto = replace(preparer, sampling=AUTO)

    with ThreadPoolExecutor(6) as threads:
        passes = ["first", "dense", "keyframes"] * 2
        found = list(threads.map(lambda shown: auto.prepare(uri, shown=shown), passes))

    assert sorted(each.provenance.sampler for each in found if not each.was_cached) == ["keyframes", "uniform"]
    assert len({each.identity.key for each in found}) == 2


@pytest.mark.parametrize(("gop", "sampler", "decoded"), [(24, "keyframes", 4), (240, "uniform", 240)])
def test_more_than_keyframes_is_read_of_a_remote_video_only_if_they_are_not_enough(
    preparer, make_clip, store_settings, gop, sampler, decoded
):
    uri = f"{store_settings.uri}/clip.mp4"
    data = make_clip(**LONG | {"b_frames": 0, "gop": gop}).read_bytes()
    objects = ObjectStore(store_settings)
    objects.replace(uri, data)

    got = replace(preparer, sampling=AUTO, objects=objects, ranges_min_bytes=1).prepare(uri).provenance

    assert (got.sampler, got.frames_decoded) == (sampler, decoded)
    assert (got.bytes_fetched < len(data) / 2) == (sampler == "keyframes")
    assert got.bytes_fetched <= len(data)
