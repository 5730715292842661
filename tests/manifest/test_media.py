"""Jobs that show several videos and images."""

import json
import re
from dataclasses import replace

import polars as pl
import pytest

from infra.errors import ManifestError
from infra.settings import StoreSettings
from reelabel.sampling.options import Sampling
from reelabel.seal import Seal
from reelabel.segment import Segment
from reelabel.sources.object_store import ObjectStore
from tasks.domain import (
    MAX_MEDIA,
    ONE_VIDEO,
    Job,
    MediaCounts,
    Medium,
    ModelIdentity,
    RunSpec,
    Shard,
    View,
    group_by_views,
    views_of,
)
from tasks.manifest.check import check_manifest, require_cuttable
from tasks.manifest.digests import jobs_to_rows, rows_to_jobs
from tasks.manifest.importers.csv_rows import import_csv, read_mapped
from tasks.manifest.importers.imported import QuestionFiles
from tasks.manifest.importers.openai_batch import import_openai_batch
from tasks.manifest.media import media_of, videos_of
from tasks.manifest.parquet import open_manifest
from tasks.manifest.plan_file import PlanWriter, read_media, read_shard
from tasks.manifest.table import open_jobs, read_jobs, read_unchecked_batches
from tests.job_table import job_table

OBJECTS = ObjectStore(StoreSettings())
CLIP = {"type": "video_url", "video_url": {"url": "s3://b/clip.mp4"}}
OTHER = {"type": "video_url", "video_url": {"url": "s3://b/other.mp4"}}
PICTURE = {"type": "image_url", "image_url": {"url": "s3://b/picture.png"}}
TEXT = {"type": "text", "text": "Which?"}


def manifest_rows(**columns):
    [count] = {len(values) for values in columns.values()}
    return pl.DataFrame(
        {"job_id": [f"j{n}" for n in range(count)], "choices": [["a", "b"]] * count} | columns, strict=False
    )


def several(*uris, **more):
    return manifest_rows(
        video_uris=[[*each] if each is not None else None for each in uris], prompt=["Which?"] * len(uris), **more
    )


def messages(*parts):
    return json.dumps([{"role": "user", "content": [*parts]}])


def jobs_of(frame, tmp_path):
    frame.write_parquet(tmp_path / "jobs.parquet")
    return read_jobs(str(tmp_path / "jobs.parquet"), OBJECTS)


def rules(frame):
    return [re.sub(r" [\d,]+ rows?, first .*", "", sentence) for sentence in check_manifest(frame)]


def shown(*media):
    return tuple(Medium(*each) for each in media)


def test_a_row_lists_several_videos_which_are_shown_in_their_order(tmp_path):
    first, second = jobs_of(several(["b.mp4", "a.mp4"], ["a.mp4", "b.mp4"]), tmp_path)

    assert first.media == shown(("video", "b.mp4"), ("video", "a.mp4"))
    assert (first.video_uri, second.video_uri) == ("b.mp4", "a.mp4")
    assert first.digest != second.digest


def test_messages_show_videos_and_images_in_their_order(tmp_path):
    frame = manifest_rows(
        messages=[messages(CLIP, TEXT, PICTURE, OTHER), messages(PICTURE, CLIP, TEXT), messages(CLIP, TEXT)]
    )

    mixed, pictured, plain = jobs_of(frame, tmp_path)

    clip, picture = ("video", "s3://b/clip.mp4"), ("image", "s3://b/picture.png")
    assert mixed.media == shown(clip, picture, ("video", "s3://b/other.mp4"))
    assert pictured.media == shown(picture, clip)
    assert pictured.video_uri == "s3://b/clip.mp4"
    assert (plain.media, plain.prompt) == (None, "Which?")


def test_a_list_of_one_video_is_the_job_that_the_video_alone_is(tmp_path):
    (listed,) = jobs_of(several(["a.mp4"]), tmp_path)
    (alone,) = jobs_of(manifest_rows(video_uri=["a.mp4"], prompt=["Which?"]), tmp_path)

    assert listed == alone
    assert listed.digest == alone.digest


def test_rows_with_one_video_and_with_several_can_be_mixed(tmp_path):
    jobs = jobs_of(several(["a.mp4", "b.mp4"], None, video_uri=[None, "c.mp4"]), tmp_path)

    assert [len(job.shown) for job in jobs] == [2, 1]


@pytest.mark.parametrize(
    ("frame", "rule"),
    [
        (several(["a.mp4", "b.mp4"], video_uri=["a.mp4"]), "video_uri and video_uris are both given; leave one out."),
        (several([]), "video_uris is empty."),
        (several(["a.mp4", ""]), "A URI of video_uris or messages is empty."),
        (several(["a.mp4", None]), "A URI of video_uris or messages is empty."),
        (
            several(["a.mp4", "s3://b"]),
            "A URI of video_uris or messages has no bucket or no key; write s3://bucket/key.",
        ),
        (several(["a.mp4", "https:///v"]), "A URI of video_uris or messages has no host; write https://host/path."),
        (several([f"{n}.mp4" for n in range(MAX_MEDIA + 1)]), "More than 16 videos and images are shown."),
        (
            several(["a.mp4", "b.mp4"], end_s=[3.0]),
            "start_s and end_s are given with several videos; leave them out, and cut the videos before.",
        ),
        (
            manifest_rows(messages=[messages(CLIP, TEXT)], video_uris=[["a.mp4"]]),
            "messages: video_uris given both in messages and in a column; leave one out.",
        ),
        (manifest_rows(messages=[messages(PICTURE, TEXT)]), "messages: expected a video, found none."),
        (
            manifest_rows(messages=[messages(CLIP, TEXT, {"type": "image_url"})]),
            "messages: a part of type 'image_url' without its URL.",
        ),
        (
            manifest_rows(video_uris=[[1, 2]], prompt=["Which?"]).cast({"video_uris": pl.List(pl.Float64)}),
            "Column video_uris has type List(Float64); it must be List(String).",
        ),
    ],
)
def test_each_fault_of_several_videos_is_told_once(frame, rule):
    assert rules(frame) == [rule]


def test_a_segment_is_that_of_the_only_video_beside_images(tmp_path):
    (job,) = jobs_of(manifest_rows(messages=[messages(PICTURE, CLIP, TEXT)], start_s=[1.0], end_s=[2.0]), tmp_path)

    assert views_of(job, Sampling()) == (
        View("s3://b/picture.png", "image"),
        View("s3://b/clip.mp4", "first", Segment(1.0, 2.0)),
    )


def test_bad_rows_are_left_out_when_asked_to_keep_going(tmp_path):
    several(["a.mp4", "b.mp4"], ["a.mp4", ""]).write_parquet(tmp_path / "jobs.parquet")

    with open_jobs(str(tmp_path / "jobs.parquet"), OBJECTS, keep_going=True) as table:
        assert [job.job_id for part in table.parts() for job in rows_to_jobs(part)] == ["j0"]
        assert table.media == MediaCounts(2)
        assert table.rejects["reason"].to_list() == ["A URI of video_uris or messages is empty."]


def test_an_audit_reads_the_digests_that_a_run_has_written(tmp_path):
    frame = manifest_rows(messages=[messages(CLIP, PICTURE, TEXT), messages(CLIP, TEXT)])
    jobs = jobs_of(frame, tmp_path)

    with open_manifest(str(tmp_path / "jobs.parquet"), OBJECTS) as files:
        audited = pl.concat(read_unchecked_batches(files))

    assert audited["job_digest"].to_list() == [job.digest for job in jobs]


def test_a_video_is_described_alone(tmp_path):
    manifest_rows(messages=[messages(CLIP, PICTURE, TEXT), messages(CLIP, TEXT)]).write_parquet(
        tmp_path / "jobs.parquet"
    )

    with open_jobs(str(tmp_path / "jobs.parquet"), OBJECTS, keep_going=True, questions=False) as table:
        assert table.rejects["reason"].to_list() == [
            "Several videos or images are shown; describe takes one video a row."
        ]
        assert [job.video_uri for part in table.parts() for job in rows_to_jobs(part)] == ["s3://b/clip.mp4"]


def test_a_users_own_column_media_changes_nothing(tmp_path):
    (job,) = jobs_of(manifest_rows(video_uri=["a.mp4"], prompt=["Which?"], media=["tape"]), tmp_path)

    assert job.media is None


def test_csv_lists_videos_as_json_or_with_bars(tmp_path):
    path = tmp_path / "jobs.csv"
    path.write_text(
        'job_id,video_uris,prompt,choices\na,x.mp4|y.mp4,Which?,1|2\nb,"[""x.mp4"", ""y.mp4""]",Which?,1|2\n'
    )

    assert import_csv(path).valid()["video_uris"].to_list() == [["x.mp4", "y.mp4"]] * 2


def test_a_layout_has_one_video_a_row(tmp_path):
    with pytest.raises(ManifestError, match="A layout has one video a row; leave out video_uris"):
        read_mapped(QuestionFiles(path=tmp_path / "jobs.csv", columns={"video_uris": "clips"}))


def test_openai_batches_may_show_several_videos_and_images(tmp_path):
    path = tmp_path / "batch.jsonl"
    metadata = {"choices": '["a", "b"]'}
    bodies = [json.loads(messages(CLIP, TEXT, PICTURE)), json.loads(messages(OTHER, TEXT))]
    path.write_text(
        "\n".join(
            json.dumps({"custom_id": f"j{number}", "body": {"messages": body, "metadata": metadata}})
            for number, body in enumerate(bodies)
        )
    )

    both, alone = jobs_of(import_openai_batch(path).valid(), tmp_path)

    assert both.media == shown(("video", "s3://b/clip.mp4"), ("image", "s3://b/picture.png"))
    assert (both.prompt, both.choices) == ("Which?", ("a", "b"))
    assert (alone.video_uri, alone.media, alone.messages) == ("s3://b/other.mp4", None, None)


MANY = Job(
    job_id="m",
    video_uri="a.mp4",
    prompt="Which?",
    choices=("a", "b"),
    media=shown(("video", "a.mp4"), ("image", "p.png"), ("video", "b.mp4")),
)
ONE = Job(job_id="o", video_uri="b.mp4", prompt="Which?", choices=("a", "b"))


def test_jobs_survive_their_columns():
    assert rows_to_jobs(jobs_to_rows([MANY, ONE])) == [MANY, ONE]


def test_jobs_survive_the_file_of_a_plan(tmp_path):
    with PlanWriter(OBJECTS, f"{tmp_path}/plan", seal=Seal()) as writer:
        writer.add(jobs_to_rows([MANY, ONE]), [2])

    assert read_shard(OBJECTS, f"{tmp_path}/plan", 0, seal=Seal()).jobs == (MANY, ONE)


def test_a_plan_tells_what_an_engine_must_take(tmp_path):
    for name, jobs in (("several", [MANY]), ("one", [ONE])):
        with PlanWriter(OBJECTS, f"{tmp_path}/{name}", seal=Seal()) as writer:
            writer.add(jobs_to_rows(jobs), [1])

    assert read_media(OBJECTS, f"{tmp_path}/several", seal=Seal()) == MediaCounts(2, 1)
    assert read_media(OBJECTS, f"{tmp_path}/one", seal=Seal()) == ONE_VIDEO


def test_a_table_knows_all_media_of_its_jobs():
    table = job_table([MANY, ONE])
    [part] = table.parts()

    assert media_of(part).rows() == [
        (0, "video", "a.mp4"),
        (0, "image", "p.png"),
        (0, "video", "b.mp4"),
        (1, "video", "b.mp4"),
    ]
    assert videos_of(part)["uri"].to_list() == ["a.mp4", "b.mp4", "b.mp4"]
    assert table.count_videos() == 2
    assert table.media == MediaCounts(2, 1)
    assert job_table([ONE]).media == ONE_VIDEO


def test_digests_of_jobs_on_one_video_are_those_of_earlier_versions():
    assert ONE.digest == "16a00dac9e6f4f96bd0986673e03758a"
    assert MANY.digest != ONE.digest


def test_jobs_on_several_videos_or_images_cannot_be_cut_into_chunks():
    spec = RunSpec(model=ModelIdentity(name="m"), chunk_s=60, chunk_rule="majority")
    pictured = replace(MANY, job_id="p", media=MANY.media[:2])

    require_cuttable(job_table([ONE]).parts(), spec, manifest="jobs.parquet")
    for several in (MANY, pictured):
        with pytest.raises(
            ManifestError, match=r"must show one video and no image; set chunk_s to 0\. 1 row, first row 1"
        ):
            require_cuttable(job_table([ONE, several]).parts(), spec, manifest="jobs.parquet")


def test_a_shard_lists_everything_that_is_shown():
    assert Shard(index=0, jobs=(MANY, ONE)).video_uris == ("a.mp4", "p.png", "b.mp4")


def test_jobs_that_show_the_same_share_its_views():
    swapped = replace(MANY, job_id="s", media=MANY.media[::-1])

    groups = group_by_views([MANY, ONE, swapped, MANY], Sampling())

    assert [[job.job_id for job in jobs] for jobs in groups.values()] == [["m", "m"], ["o"], ["s"]]


def test_a_second_answer_shows_each_video_by_the_dense_sampler_and_images_as_they_are():
    assert [view.shown for view in views_of(MANY, Sampling(), dense=True)] == ["dense", "image", "dense"]
