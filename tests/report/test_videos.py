"""What the page of described videos says about rows in a real Postgres and frames in a real cache."""

import re
from uuid import uuid4

import polars as pl
import pytest

from infra.settings import StoreSettings
from reelabel.errors import ConfigurationError
from reelabel.frames.cache import FrameCache
from reelabel.sources.object_store import ObjectStore
from tasks.report.pages import page_of_run
from tasks.report.render import MAX_BYTES
from tasks.report.run import run_overview
from tasks.report.videos import load_videos, render_videos
from tasks.results.runs import close_run, find_run, open_run
from tasks.results.write import RunKey, ShardWriter
from tests.description.test_describer import SPEC, describer_of, encoder, film
from tests.factories import make_job
from tests.report.rows import PIXEL, STARTED, run_row
from tests.report.test_page import HOSTILE, cards_of
from tests.results.rows import failure, job

__all__ = ["describer_of", "encoder"]


@pytest.fixture
def run(engine, describer_of, tmp_path):
    """A run that has described a film of two scenes and one that is gone by now, and has failed on a third."""
    paths = {name: film(tmp_path / f"{name}.mp4", *scenes) for name, scenes in FILMS.items()}
    jobs = {name: make_job(path, job_id=name, prompt="", choices=()) for name, path in paths.items()}
    rows = [{"job_id": name, "video_uri": str(path)} for name, path in paths.items()]
    manifest = tmp_path / "films.parquet"
    pl.DataFrame(rows[:-1]).write_parquet(manifest)
    run = RunKey(run_id=uuid4(), dataset="d", spec_id=SPEC.spec_id, host="h")
    facts = {"dataset": "d", "manifest_uri": str(manifest), "kind": "describe", "host": "h", "versions": {}}
    open_run(engine, run_id=run.run_id, spec=SPEC, facts=facts | {"jobs_total": 3, "jobs_skipped": 0})
    describer = describer_of()
    found = [describer.describe(each, 0) for each in jobs.values()]
    ShardWriter(engine, run).write((), [failure(job("lost"), code="video_missing")], descriptions=found)
    close_run(engine, run.run_id, state="done", message="Reconciled.", jobs_labelled=2, jobs_failed=1, wall_ms={})
    return run


FILMS = {"two": (("red", 4), ("blue", 5)), "gone": (("green", 3),)}


def page_of(engine, tmp_path, **options):
    objects = ObjectStore(StoreSettings())
    cache = FrameCache(objects, f"file://{tmp_path}/cache")
    return load_videos(engine, objects, find_run(engine, "last"), SPEC, cache=cache, **options)


@pytest.mark.usefixtures("run")
def test_a_video_has_its_tags_caption_scenes_and_chunks(engine, tmp_path):
    report = page_of(engine, tmp_path)

    assert (report["described"], report["failures"], report["hours"]) == (2, 1, pytest.approx(12 / 3600))
    assert sorted(report["frequent"]) == [("blue", 1), ("green", 1)]
    [video] = [each for each in report["videos"] if each["job_id"] == "two"]
    assert [tag["text"] for tag in video["tags"]] == ["blue", "red"]
    assert video["caption"] == "red"
    assert [(scene["start_s"], scene["end_s"]) for scene in video["scenes"]] == [(0, 4), (4, 9)]
    assert [(part["start_s"], part["tags"][0]["text"]) for part in video["parts"]] == [
        (0, "red"),
        (2, "red"),
        (4, "blue"),
        (6, "blue"),
        (8, "blue"),
    ]
    assert [group["code"] for group in report["failure_groups"]] == ["video_missing"]


@pytest.mark.usefixtures("run")
def test_a_strip_has_frames_from_everywhere_and_the_first_of_each_scene(engine, tmp_path):
    found = {video["job_id"]: video for video in page_of(engine, tmp_path)["videos"]}

    times_s = [time_s for time_s, _ in found["two"]["strip"]]
    assert times_s == sorted(set(times_s))
    assert times_s[0] == 0.25
    assert times_s[-1] > 8
    assert any(4 <= time_s <= 4.5 for time_s in times_s)
    assert all(image.startswith("data:image/webp;base64,") for _, image in found["two"]["strip"])
    assert found["two"]["uri"].endswith("two.mp4")
    assert (found["gone"]["strip"], found["gone"]["uri"]) == ([], None)
    assert found["gone"]["no_strip"] == "The manifest now has another video under this id, or none."


@pytest.mark.usefixtures("run")
def test_frames_that_were_evicted_are_reported(engine, tmp_path):
    for path in (tmp_path / "cache").rglob("*.arrow"):
        path.unlink()

    found = {video["job_id"]: video for video in page_of(engine, tmp_path)["videos"]}

    assert (found["two"]["strip"], found["two"]["no_strip"]) == ([], "Its frames are not in the cache.")


@pytest.mark.usefixtures("run")
def test_only_the_first_videos_have_frames_and_chunks_if_there_are_many(engine, tmp_path, monkeypatch):
    monkeypatch.setattr("tasks.report.videos._MAX_CHUNKS", 5)
    monkeypatch.setattr("tasks.report.videos._MAX_STRIPS", 1)
    (tmp_path / "films.parquet").unlink()
    rows = [{"job_id": name, "video_uri": str(tmp_path / f"{name}.mp4")} for name in FILMS]
    pl.DataFrame(rows).write_parquet(tmp_path / "films.parquet")

    first, other = page_of(engine, tmp_path, job_ids=["two"])["videos"]

    assert (len(first["parts"]), bool(first["strip"]), first["no_strip"]) == (5, True, "")
    assert (other["parts"], other["strip"], other["no_strip"]) == ([], [], "Its frames did not fit into this report.")


@pytest.mark.usefixtures("run")
def test_a_manifest_that_is_gone_leaves_the_descriptions(engine, tmp_path):
    (tmp_path / "films.parquet").unlink()

    report = page_of(engine, tmp_path)

    assert sorted(video["job_id"] for video in report["videos"]) == sorted(FILMS)
    assert report["note"].startswith("Videos and frames are unavailable: ")


@pytest.mark.usefixtures("run")
def test_named_videos_come_first_and_one_without_a_description_is_named(engine, tmp_path):
    for name in FILMS:
        assert page_of(engine, tmp_path, job_ids=[name])["videos"][0]["job_id"] == name
    with pytest.raises(ConfigurationError, match="1 job without a description in dataset d, such as lost"):
        page_of(engine, tmp_path, job_ids=["two", "lost"])


@pytest.mark.usefixtures("run")
def test_the_page_of_a_run_follows_from_what_it_was_for(engine, tmp_path):
    objects = ObjectStore(StoreSettings())
    cache = FrameCache(objects, f"file://{tmp_path}/cache")

    page = page_of_run(engine, objects, find_run(engine, "last"), cache=cache)

    assert "All 2 described videos are in this report, 1 with their frames." in page
    assert set(cards_of(page)) == set(FILMS)


def shown(name="film", image=PIXEL, frames=2, parts=2, **changed):
    tags = [{"text": "park", "score": 0.5}]
    return {
        "job_id": name,
        "uri": "s3://videos/film.mp4",
        "duration_s": 20.0,
        "tags": tags,
        "caption": "a dog runs",
        "caption_score": 0.4,
        "scenes": [{"start_s": 0.0, "end_s": 12.0, "shots": 1}, {"start_s": 12.0, "end_s": 20.0, "shots": 2}],
        "scene_changes": 1,
        "scene_method": "index",
        "scene_note": "",
        "decode_note": None,
        "parts": [
            {"start_s": 10.0 * at, "end_s": 10.0 * at + 10, "tags": tags, "caption": "a dog runs"}
            for at in range(parts)
        ],
        "strip": [(8.0 * at, image) for at in range(frames)],
        "no_strip": "",
        **changed,
    }


def videos_report(*videos, **changed):
    return {
        "overview": run_overview(run_row(kind="describe"), model="siglip"),
        "described": len(videos),
        "failures": 0,
        "hours": 1.0,
        "frequent": [("park", 1)],
        "failure_groups": [],
        "spec": {"seconds_per_chunk": 10.0},
        "videos": videos,
        "note": "",
        "made_at": STARTED,
        **changed,
    }


def test_a_page_loads_nothing_from_elsewhere_and_texts_stay_texts():
    hostile = shown(HOSTILE, caption=HOSTILE, tags=[{"text": HOSTILE, "score": 0.2}], scene_note=HOSTILE)
    hostile["parts"] = [part | {"caption": HOSTILE, "tags": hostile["tags"]} for part in hostile["parts"]]

    page = render_videos(videos_report(shown(), hostile, frequent=[(HOSTILE, 1)]))

    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)[1]
    assert "default-src &#39;none&#39;" in policy
    assert page.count("<script") == policy.count("sha256-") == 1
    assert "<img src=x" not in page
    assert page.count("&lt;img src=x") > 10


def test_frames_stand_in_their_scenes_and_only_the_first_card_is_open():
    early = {"start_s": 5.0, "end_s": 5.0, "shots": 1}  # a scene without a frame on the page
    film = shown(frames=4, scenes=[{"start_s": 0.0, "end_s": 5.0}, early, {"start_s": 8.0001, "end_s": 30.0}])

    first, other = cards_of(render_videos(videos_report(film, shown("other", scenes=[])))).values()

    scenes = first.split('<li class="scene">')[1:]
    assert [scene.count("<img") for scene in scenes] == [1, 0, 3]
    assert "scene 3, 0:08.0 to 0:30.0" in scenes[2]
    assert other.split('<li class="scene">')[1].count("<img") == 2
    assert [card.partition(">")[0].endswith(" open") for card in (first, other)] == [True, False]


def test_the_tags_of_a_single_frame_are_drawn_over_the_whole_width():
    part = {"start_s": 0.0, "end_s": 0.0, "caption": "a dog", "tags": [{"text": "park", "score": 0.2}]}

    page = render_videos(videos_report(shown(duration_s=0.0, scenes=[], parts=1) | {"parts": [part]}))

    assert '<rect x="1%" width="98%" y="2" height="18" opacity="1"/>' in page


def test_the_strongest_tags_by_score_and_time_are_drawn():
    tags = [("short", 0.9, 1), ("long", 0.4, 9), ("weak", 0.01, 9), *((f"tag {at}", 0.2, 9) for at in range(6))]
    parts = [
        {"start_s": 0.0, "end_s": float(end_s), "caption": None, "tags": [{"text": text, "score": score}]}
        for text, score, end_s in tags
    ]

    [card] = cards_of(render_videos(videos_report(shown(parts=0) | {"parts": parts}))).values()

    drawn = card.partition('aria-label="Tags over time, by their score: ')[2].partition('."')[0]
    assert drawn == "long, tag 0, tag 1, tag 2, tag 3, tag 4, tag 5, short"
    assert 'opacity="0.15"' in card
    assert 'opacity="1"' in card


def test_a_tag_of_every_chunk_is_drawn_before_one_of_a_single_chunk_even_if_their_cosines_are_negative():
    tags = [[("always", -0.02), ("low", -0.05)], [("always", -0.02), ("once", -0.03)], [("always", -0.02)]]
    parts = [
        {
            "start_s": at,
            "end_s": at + 1,
            "caption": None,
            "tags": [{"text": text, "score": score} for text, score in each],
        }
        for at, each in enumerate(tags)
    ]

    [card] = cards_of(render_videos(videos_report(shown() | {"parts": parts}))).values()

    assert "by their score: always, once, low." in card


def test_a_page_stays_small_by_leaving_out_frames_then_chunks_then_videos():
    big = [shown(f"film-{at}", image=PIXEL + "A" * 40_000) for at in range(60)]
    long = [shown(f"film-{at}", frames=0, parts=1_000) for at in range(20)]
    many = [shown(f"film-{at}", caption="'" * 2_000, frames=0) for at in range(1_000)]

    framed, chunked, left_out = (render_videos(videos_report(*videos)) for videos in (big, long, many))

    assert max(len(page.encode()) for page in (framed, chunked, left_out)) < MAX_BYTES
    with_frames = ['class="strip"' in card for card in cards_of(framed).values()]
    assert with_frames == sorted(with_frames, reverse=True)
    assert 10 < sum(with_frames) < len(with_frames) == 60
    assert "Its frames did not fit into this report." in cards_of(framed)["film-59"]
    with_chunks = ['class="tags"' in card for card in cards_of(chunked).values()]
    assert with_chunks == sorted(with_chunks, reverse=True)
    assert 0 < sum(with_chunks) < len(with_chunks) == 20
    assert "Its chunks did not fit into this report." in cards_of(chunked)["film-19"]
    assert 300 < len(cards_of(left_out)) <= 1_000


def test_a_thousand_videos_with_frames_are_below_three_megabytes_and_all_are_listed():
    videos = [shown(f"film-{at}", image=PIXEL + "A" * 4_000, frames=24 * (at < 40), parts=12) for at in range(1_000)]

    page = render_videos(videos_report(*videos))

    assert len(page.encode()) < MAX_BYTES
    assert len(cards_of(page)) == 1_000
    assert page.count('class="tags"') > 300
    assert page.count('class="scenes"') >= 10
