"""Surveys of real clips, in a folder and on S3."""

import json
import math
import re
import struct
import tarfile
from base64 import b64encode
from dataclasses import replace
from pathlib import Path

import av
import numpy as np
import pytest

from infra.errors import ManifestError
from infra.settings import Settings
from reelabel.sampling.options import Sampling
from reelabel.sources.opened import RANGES_MIN_BYTES
from tasks.domain.coverage import DOCS_PAGE
from tasks.survey.describe import amount, headlines, size, title
from tasks.survey.page import render
from tasks.survey.survey import _distribution
from tasks.survey.take import SurveyOptions, take_survey
from tests.clips import write_clip
from tests.hostile import HOSTILE, hidden_in
from tests.reelabel.test_hdr import encode as encode_hdr
from tests.survey.conftest import write_jobs

AUTO = Sampling(sampler="auto", num_frames=4)
QUICK = SurveyOptions(measure_s=0)


@pytest.fixture
def settings(store_settings, tmp_path):
    return Settings(home=tmp_path, store=store_settings, extract={"processes": 1})


@pytest.fixture(scope="module")
def taken(tmp_path_factory):
    """What was drawn and found: of two clips with one keyframe, two covered, a segment, and three without use."""
    folder = tmp_path_factory.mktemp("clips")
    one = [write_clip(folder / f"one-{number}.mp4", gop=300) for number in range(2)]
    many = [write_clip(folder / name, gop=6) for name in ("many.mp4", "many.mkv")]
    (folder / "junk.mp4").write_bytes(b"junk" * 500)
    (folder / "empty.mp4").touch()
    broken = [folder / name for name in ("junk.mp4", "empty.mp4", "gone.mp4")]
    manifest = write_jobs(
        folder / "jobs.parquet",
        *({"video_uri": str(path), "task": "motion"} for path in one),
        *({"video_uri": str(path), "task": "still"} for path in many),
        {"video_uri": str(many[0]), "task": "still", "start_s": 1.0, "end_s": 3.0},
        *({"video_uri": str(path), "task": "odd"} for path in broken),
    )
    settings = Settings(home=folder, extract={"processes": 1}, cost={"per_cpu_hour": 3.6})
    return take_survey(manifest, settings, AUTO, SurveyOptions())


@pytest.fixture
def survey(taken):
    return taken


def test_a_survey_tells_what_keyframes_show_and_stops_at_no_broken_file(survey):
    assert (survey.jobs, survey.videos, survey.clips, survey.seen) == (8, 7, 8, 8)
    assert survey.one_keyframe.clips.value == 2
    assert survey.not_covered.clips.value == survey.dense.clips.value == 2
    assert {share.name for share in survey.failed} == {"video_unreadable", "video_empty", "video_missing"}
    assert {share.name: share.seen for share in survey.containers} == {"mp4": 4, "matroska": 1}
    by_task = {group.task: group for group in survey.groups}
    assert by_task["motion"].one_keyframe.value == by_task["motion"].dense.value == 2
    assert by_task["odd"].failed.value == 3


def test_the_headlines_tell_how_many_clips_have_what_and_nothing_of_what_none_has(survey):
    *lines, unusable = headlines(replace(survey, took_s=2.0))

    assert lines == [
        "All 8 clips were surveyed in 2.0 s.",
        "2 of 8 clips have one keyframe: answers about anything later are guesses.",
        "2 of 8 clips may not be covered by their keyframes: 2 one_keyframe, 2 long_gap, 2 low_coverage.",
        f"auto would send 2 to the dense sampler; see {DOCS_PAGE}.",
    ]
    assert unusable.startswith("Cannot be used, according to their indexes: 1 video_")
    assert title(survey).endswith("jobs.parquet: 8 jobs on 7 videos in 8 clips")
    assert title(replace(survey, clips=7)).endswith("jobs.parquet: 8 jobs on 7 videos")


def test_videos_without_an_index_are_read_whole_and_rare_kinds_are_counted_together(
    make_clip, write_manifest, settings, monkeypatch
):
    monkeypatch.setattr("tasks.survey.survey._MOST_NAMES", 1)
    paths, noted = [make_clip(name) for name in ("a.mp4", "b.mp4", "c.ts")], []
    manifest = write_manifest(*({"video_uri": str(path)} for path in paths))

    found = take_survey(manifest, settings, Sampling(), QUICK, note=lambda *step: noted.append(step))

    assert [(share.name, share.seen) for share in found.containers] == [("mp4", 2), ("others", 1)]
    assert "1 of 3 clips has no index of keyframes: a run reads them whole." in list(headlines(found))
    assert (found.groups, found.rates, found.extract_s, found.cache_bytes) == ((), None, None, None)
    assert noted == [("Reading the manifest", 0, 0), ("Reading indexes", 3, 3), ("Measuring this machine", 0, 0)]


@pytest.mark.parametrize(
    ("limit", "value", "clips"),
    [("MEASURED_CLIPS", 1, 1), ("_MAX_CLIP_BYTES", 20_000_000, 2), ("_MAX_CLIP_BYTES", 9, 0)],
)
def test_few_and_small_clips_are_measured(make_clip, write_manifest, settings, monkeypatch, limit, value, clips):
    monkeypatch.setattr(f"tasks.survey.measure.{limit}", value)
    manifest = write_manifest(*({"video_uri": str(make_clip(name))} for name in ("a.mp4", "b.mp4")))

    rates = take_survey(manifest, settings, Sampling(num_frames=2), SurveyOptions()).rates

    assert (rates.clips if rates else 0) == clips


def test_a_table_tells_what_a_run_on_the_surveyed_clips_costs(survey):
    frames, read, stored = (each.value for each in (survey.frames, survey.read_bytes, survey.cache_bytes))

    table = dict(amount(survey))

    assert table["sampler"] == "auto, 4 frames"
    assert (table["dense sampler"], table["frames to decode"]) == ("2 clips", f"{frames:.0f}")
    assert (table["bytes to read"], table["cache"], table["that last"]) == (size(read), size(stored), "16.0 s")
    assert table["measured"].startswith("on 5 clips decoded here: ")
    assert "chunks" not in table


@pytest.mark.parametrize(("num_frames", "text"), [(1, "keyframes, 1 frame"), (-1, "keyframes, every frame")])
def test_a_table_tells_how_many_frames_a_run_shows(survey, num_frames, text):
    every = replace(survey, sampling=Sampling(num_frames=num_frames).to_dict())

    assert dict(amount(every))["sampler"] == text


def test_a_survey_measures_this_machine_on_the_manifests_own_clips(survey):
    rates = survey.rates
    assert rates.clips == 5
    spent_ms = survey.frames.value * rates.decode_ms_per_frame + survey.read_bytes.value * rates.fetch_ms_per_byte
    assert survey.extract_s.value == pytest.approx(spent_ms / 1e3)
    assert survey.extract_s.value > 0
    assert survey.extract_cost.value == pytest.approx(survey.extract_s.value * 3.6 / 3600)
    assert survey.cache_bytes.value == pytest.approx(5 * 4 * rates.bytes_per_frame)


def test_a_survey_sums_each_video_once_whatever_its_clips(survey):
    folder = Path(survey.manifest).parent

    assert survey.length_s.value == pytest.approx(4 * 4.0)  # of five clips
    assert survey.size_bytes.value == sum(
        path.stat().st_size for kind in ("one-*", "many.*") for path in folder.glob(kind)
    )


def test_figures_are_distributed_over_clips_and_those_of_videos_over_videos(survey):
    found = json.loads(survey.to_json())["distributions"]
    keyframes, _, cover, lengths, sizes = found

    assert [sum(each["counts"]) for each in found] == [5, 5, 5, 4, 4]
    assert (keyframes["counts"][0], keyframes["counts"][-1], keyframes["quantiles"]) == (2, 2, [1, 1, 5, 8, 8])
    assert (keyframes["edges"][0], keyframes["edges"][-1]) == pytest.approx((1, 8))
    assert (cover["edges"][0], cover["edges"][-1], cover["counts"][3], cover["counts"][-1]) == (0, 1, 2, 3)
    assert [each["is_log"] for each in found] == [True, True, False, True, True]
    assert lengths["quantiles"] == [4.0] * 5
    assert sizes["unit"] == "bytes"


@pytest.mark.parametrize("more", [0, 1, 2, 30])
def test_figures_that_differ_by_rounding_alone_are_in_one_bin(more):
    figures = np.array([3.003, 3.003 + more * math.ulp(3.003)])

    found = [_distribution("longest gap", "s", values, is_log=True) for values in (figures, figures * 0)]

    assert [sorted(each.counts)[-2:] for each in found] == [[0, 2]] * 2


def test_a_sample_gives_intervals_around_what_is_true(make_clip, write_manifest, settings):
    clip, short = make_clip(gop=6), make_clip("short.mp4", gop=300)
    tagged = [{"video_uri": str(short if number % 4 == 0 else clip), "start_s": number / 100} for number in range(60)]

    found = take_survey(write_manifest(*tagged), settings, Sampling(), SurveyOptions(sample=30, measure_s=0))

    one = found.one_keyframe.clips
    assert (found.is_sample, found.seen, found.clips) == (True, 30, 60)
    assert one.low <= 15 <= one.high < 30
    assert found.frames.low < found.frames.value < found.frames.high


def test_a_survey_that_a_time_limit_has_ended_says_so(survey):
    early = replace(survey, seen=3, stopped_early=True)

    assert next(iter(headlines(early))).startswith("Estimated from 3 clips, drawn at random until the time limit")


def test_without_time_nothing_is_begun(make_clip, write_manifest, settings):
    with pytest.raises(ManifestError, match=r"No video of .* was surveyed within 0 s"):
        take_survey(
            write_manifest({"video_uri": str(make_clip())}), settings, Sampling(), SurveyOptions(limit_s=0, measure_s=0)
        )


def test_videos_in_an_archive_on_s3_are_surveyed_as_any_other(make_clip, write_manifest, settings, objects, tmp_path):
    with tarfile.open(tmp_path / "shard.tar", "w") as archive:
        for name, gop in (("a.mp4", 6), ("b.mp4", 300)):
            archive.add(make_clip(name, gop=gop), name)
    uri = f"{settings.store.uri}/shard.tar"
    objects.replace(uri, (tmp_path / "shard.tar").read_bytes())
    manifest = write_manifest(*({"video_uri": f"{uri}#{name}"} for name in ("a.mp4", "b.mp4", "c.mp4")))

    found = take_survey(manifest, settings, Sampling(), SurveyOptions())

    assert found.one_keyframe.clips.value == 1
    assert found.rates.fetch_ms_per_byte > 0
    assert [(share.name, share.seen) for share in found.failed] == [("video_missing", 1)]


def test_a_survey_of_videos_whose_indexes_are_cached_reads_nothing_of_them(
    make_clip, write_manifest, settings, objects
):
    uri = f"{settings.store.uri}/long.mp4"
    padding = struct.pack(">I4s", 8 + RANGES_MIN_BYTES, b"free") + bytes(RANGES_MIN_BYTES)  # a large video
    objects.replace(uri, make_clip().read_bytes() + padding)
    manifest = write_manifest({"video_uri": uri})

    first, again = (take_survey(manifest, settings, AUTO, QUICK) for _ in range(2))

    assert (first.seen, again.seen) == (1, 1)
    assert first.bytes_read > 0 == again.bytes_read


def test_of_a_large_video_a_run_reads_the_index_and_the_frames_it_decodes(make_clip, write_manifest, settings, objects):
    uri, clip = f"{settings.store.uri}/long.mp4", make_clip(frames=48, gop=12)
    padding = struct.pack(">I4s", 8 + RANGES_MIN_BYTES, b"free") + bytes(RANGES_MIN_BYTES)
    objects.replace(uri, clip.read_bytes() + padding)
    manifest, index_bytes = write_manifest({"video_uri": uri}), 32 * 1024
    with av.open(str(clip)) as container:
        sizes = [packet.size for packet in container.demux(video=0) if packet.is_keyframe]

    keyframes, dense = (
        take_survey(manifest, settings, Sampling(sampler=sampler, num_frames=4), QUICK)
        for sampler in ("keyframes", "uniform")
    )

    assert keyframes.read_bytes.value == index_bytes + sum(sizes)
    whole = clip.stat().st_size + len(padding)
    assert dense.read_bytes.value == index_bytes + int(whole * dense.frames.value / 48)


def test_a_survey_of_chunks_counts_them_and_their_frames(make_clip, write_manifest, settings):
    film, bare = make_clip(frames=72, fps=12, gop=6), make_clip("bare.h264")
    jobs = [{"video_uri": str(film)}, {"video_uri": str(film), "end_s": 2.5}, {"video_uri": str(bare)}]
    cutting = replace(QUICK, chunk_s=2)

    found, whole = (
        take_survey(write_manifest(*jobs), settings, Sampling(num_frames=4), options) for options in (cutting, QUICK)
    )

    assert (found.chunks.value, whole.chunks) == (3 + 1, None)
    assert found.frames.value == 3 * 4 + 4
    assert [share.name for share in found.failed] == ["video_unreadable"]
    assert ("chunks", "4") in list(amount(found))


def test_the_cost_of_hundreds_of_chunks_is_extrapolated(make_clip, write_manifest, settings):
    film = make_clip(frames=80, fps=2, gop=1)

    found = take_survey(
        write_manifest({"video_uri": str(film)}), settings, Sampling(num_frames=2), replace(QUICK, chunk_s=1)
    )

    assert (found.chunks.value, found.frames.value) == (40, 80)


def test_the_page_has_no_script_and_loads_nothing(survey):
    page = render(survey)

    assert "default-src 'none'" in page.replace("&#39;", "'")
    assert "<script" not in page
    assert not re.search(r'(?:src|href)="(?!#)', page)
    assert page.count("<svg") == len(survey.distributions) == 5
    assert "From 1 to 8; 10% 1, median 5, 90% 8; logarithmic scale." in page
    assert '<rect x="0.5" y="0.0" width="19.0" height="150.0"><title>1 to 1.09: 2</title></rect>' in page
    assert '<rect x="60.5" y="50.0" width="19.0" height="100.0">' in page  # the coverage of two of five
    assert "From 4.0 s to 4.0 s; 10% 4.0 s, median 4.0 s, 90% 4.0 s" in page


def test_text_of_a_manifest_stays_text_on_the_page(survey):
    hostile = f"<script>alert(1)</script>{HOSTILE}"
    groups = (replace(survey.groups[0], task=hostile), *survey.groups[1:])

    page = render(replace(survey, groups=groups, manifest=hostile))

    assert "<script" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert not hidden_in(page.replace("\n", ""))


def test_the_json_has_all_figures(survey):
    found = json.loads(survey.to_json())

    assert found["one_keyframe"]["clips"] == {"value": 2, "low": 2, "high": 2}
    assert {"frames", "read_bytes", "extract_s", "cache_bytes", "groups", "distributions", "rates"} <= found.keys()


def test_the_json_shows_no_video_that_the_manifest_embeds(make_clip, write_manifest, settings):
    embedded = f"data:video/mp4;base64,{b64encode(make_clip(gop=300).read_bytes()).decode()}"

    found = take_survey(write_manifest({"video_uri": embedded}), settings, Sampling(), QUICK)

    assert found.one_keyframe.seen == 1
    assert re.fullmatch(r"data:video/mp4;base64,\S{18}\.\.\. \([\d,]+ characters\)", found.one_keyframe.example)
    assert embedded not in found.to_json()


def test_a_survey_counts_the_videos_that_are_hdr(tmp_path, settings):
    paths = [
        write_clip(tmp_path / "sdr.mp4"),
        encode_hdr(tmp_path / "pq.mp4", "PQ"),
        encode_hdr(tmp_path / "hlg.mp4", "HLG"),
    ]
    manifest = write_jobs(tmp_path / "jobs.parquet", *({"video_uri": str(path)} for path in paths))

    shown, unchanged = (
        list(headlines(take_survey(manifest, settings, Sampling(hdr=hdr), QUICK))) for hdr in (None, "as_decoded")
    )

    assert "2 of 3 clips are HDR, and shown tone-mapped to SDR." in shown
    assert "2 of 3 clips are HDR, and shown with unchanged pixel values." in unchanged
