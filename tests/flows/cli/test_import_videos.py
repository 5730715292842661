"""`reelabel manifest import` of videos, in layouts that were made by their own writers (tests/data/layouts/make.py)."""

import io
import json
import os
import shutil
import tarfile
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from pyarrow import parquet

from flows.cli.manifest import ImportOptions, read_source
from infra.errors import ManifestError
from reelabel.errors import ConfigurationError
from reelabel.frames.fetch import VideoReader
from reelabel.options import Limits
from reelabel.sampling.options import Sampling
from reelabel.segment import Segment
from reelabel.sources.object_store import ObjectStore
from reelabel.sources.opened import stat_video
from tests.command_line import reelabel

LAYOUTS = Path(__file__).parents[2] / "data" / "layouts"
QUESTION = {"prompt": "Which colour?", "choices": "red|green|blue"}
ASKED = ("--prompt", "Which colour?", "--choices", "red|green|blue")


def rows(source, layout, objects=None, **options):
    found = read_source(str(source), ImportOptions(layout=layout, **QUESTION | options), objects)
    return found.valid().to_dicts()


def colours(job, objects, pool):
    """The colours of the frames that a job shows."""
    reader, info = VideoReader(objects=objects, pool=pool, limits=Limits()), stat_video(objects, job["video_uri"])
    segment = Segment.of(job.get("start_s"), job.get("end_s"))
    images = reader.fetch(info, Sampling(sampler="uniform", num_frames=6), segment=segment).frames.images
    return {("red", "green", "blue")[at] for at in images.mean((1, 2)).argmax(1).tolist()}


CASES = {
    "webdataset": ("webdataset", ["answer=colour"], ["shard-000/clips/0000", "shard-001/clips/0002"]),
    "parquet": ("hugging_face/binary.parquet", ["answer=answer"], ["binary/0", "binary/2"]),
}


@pytest.mark.parametrize("location", ["folder", "s3"])
@pytest.mark.parametrize("layout", CASES)
def test_jobs_show_the_videos_that_the_writer_packed(layout, location, pool, request):
    source, columns, (first, last) = CASES[layout]
    objects, root = ObjectStore(), str(LAYOUTS)
    if location == "s3":
        objects, root = request.getfixturevalue("objects"), request.getfixturevalue("store_settings").uri
        for file in (LAYOUTS / source).rglob("*") if (LAYOUTS / source).is_dir() else [LAYOUTS / source]:
            objects.replace(f"{root}/{file.relative_to(LAYOUTS)}", file.read_bytes())

    jobs = rows(f"{root}/{source}", layout, objects, column=columns)

    assert (jobs[0]["job_id"], jobs[-1]["job_id"]) == (first, last)
    assert [job["answer"] for job in jobs] == ["red", "green", "blue"]
    assert [colours(job, objects, pool) for job in jobs] == [{"red"}, {"green"}, {"blue"}]
    assert jobs[0]["prompt"] == "Which colour?"


def test_structs_of_bytes_and_path_are_read_and_other_columns_mapped(pool):
    jobs = rows(LAYOUTS / "hugging_face" / "struct.parquet", "parquet", column=["subtask=caption", "task=label"])

    assert [(job["job_id"], job["task"], job["subtask"]) for job in jobs][1] == ("struct/1", "1", "a green clip")
    assert [colours(job, ObjectStore(), pool) for job in jobs] == [{"red"}, {"green"}, {"blue"}]


def test_questions_of_their_own_are_mapped():
    jobs = rows(LAYOUTS / "hugging_face" / "binary.parquet", "parquet", prompt=None, column=["prompt=question"])

    assert {job["prompt"] for job in jobs} == {"Which colour?"}


def test_a_member_is_a_field_as_well():
    with pytest.raises(ManifestError) as raised:
        rows(LAYOUTS / "webdataset", "webdataset", column=["subtask=txt"])

    assert "it has no field txt; its fields: colour, number. 2 rows" in str(raised.value)
    found = read_source(
        str(LAYOUTS / "webdataset"), ImportOptions(layout="webdataset", column=["subtask=txt"], **QUESTION)
    )
    assert [row["subtask"] for row in found.rows] == ["the last one"]


def test_episodes_are_segments_that_show_nothing_of_their_neighbours(pool):
    jobs = rows(LAYOUTS / "lerobot", "lerobot", column=["video_uri=observation.images.top"])

    assert [job["job_id"] for job in jobs] == [f"episode-{number:06}/observation.images.top" for number in range(3)]
    assert [job["task"] for job in jobs] == [f"Pick up the {colour} cube" for colour in ("red", "green", "blue")]
    assert [colours(job, ObjectStore(), pool) for job in jobs] == [{"red"}, {"green"}, {"blue"}]
    assert len(rows(LAYOUTS / "lerobot", "lerobot")) == 6  # two cameras


def test_a_video_whose_name_is_not_utf_8_is_named_and_can_be_left_out(tmp_path, objects):
    for name in (b"caf\xe9.mp4", "caf\u00e9 \n#?%.mp4".encode()):
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).write_bytes(b"a video")

    found = read_source(str(tmp_path), ImportOptions(layout="folder", **QUESTION), objects)

    with pytest.raises(ManifestError, match=r"the name is not UTF-8; rename it\. 1 row, first caf<U\+DCE9>\.mp4"):
        found.valid()
    good, bad = found.divided()
    assert good["video_uri"].to_list() == [f"{tmp_path}/caf\u00e9 \n#?%.mp4"]
    assert bad["place"].to_list() == ["caf<U+DCE9>.mp4"]


def test_every_video_of_a_folder_or_prefix_is_a_job(tmp_path, objects, store_settings):
    names = ["a.mp4", "b/c.WEBM", "b/d.txt", "odd.tar#e.mkv"]
    for name in names:
        objects.replace(f"{store_settings.uri}/{name.replace('#', '%23')}", b"video")
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"video")

    for root, store in ((str(tmp_path), ObjectStore()), (store_settings.uri, objects)):
        found = read_source(root, ImportOptions(layout="folder", **QUESTION), store)
        assert [row["job_id"] for row in found.rows] == ["a.mp4", "b/c.WEBM", "odd.tar#e.mkv"]
        assert all(store.stat(row["video_uri"]).size_bytes == 5 for row in found.rows)
        assert found.notes == ["Left out 1 file, hidden or without the suffix of a video (first: b/d.txt)."]


def test_a_file_beside_its_table_is_named_by_its_path(tmp_path):
    table = {"video": ["clips/a.mp4", "../b.mp4", "", "/etc/c.mp4", "s3://other/d.mp4"]}
    parquet.write_table(pa.table(table), tmp_path / "t.parquet")
    external = pa.table({"video": [{"bytes": None, "path": "e.mp4"}]}, pa.schema([("video", STRUCT)]))
    parquet.write_table(external, tmp_path / "u.parquet")

    found = read_source(str(tmp_path), ImportOptions(layout="parquet", column=["video_uri=video"], **QUESTION))

    assert [row["video_uri"] for row in found.rows] == [f"{tmp_path}/clips/a.mp4", f"{tmp_path}/e.mp4"]
    assert len(found._unread) == 4


STRUCT = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def pack(path, members):
    with tarfile.open(path, "w") as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


def test_a_sample_with_half_a_character_is_rejected_alone(tmp_path):
    pack(
        tmp_path / "a.tar",
        [("a.mp4", b"v"), ("a.json", b'{"kind": "\\ud800"}'), ("b.mp4", b"v"), ("b.json", b'{"kind": "x"}')],
    )

    good, bad = read_source(
        str(tmp_path), ImportOptions(layout="webdataset", column=["task=kind"], **QUESTION)
    ).divided()

    assert good["task"].to_list() == ["x"]
    assert bad["reason"].to_list() == ["task contains an unpaired surrogate, which is not a valid character."]
    assert bad["given"].to_list() == ['{"kind": "\\ud800"}']


def test_tables_without_rows_are_noted(tmp_path):
    table = pa.table({"video": ["a.mp4"]})
    parquet.write_table(table, tmp_path / "full.parquet")
    for name in ("before", "none"):
        parquet.write_table(table.slice(0, 0), tmp_path / f"{name}.parquet")

    found = read_source(str(tmp_path), ImportOptions(layout="parquet", column=["video_uri=video"], **QUESTION))

    assert found.notes == ["before.parquet has no rows.", "none.parquet has no rows."]


def test_faults_are_named_by_shard_and_sample_and_good_samples_kept(tmp_path):
    members = [
        ("good.mp4", b"v"),
        ("good.json", b'{"q": "Who?"}'),
        ("no_video.json", b"{}"),
        ("bad_json.mp4", b"v"),
        ("bad_json.json", b"{"),
        ("bare.mp4", b"v"),
        ("twice.mp4", b"v"),
        ("twice.mp4", b"w"),
        ("binary.mp4", b"v"),
        ("binary.json", b"\xff"),
        ("two.left.mp4", b"v"),
        ("two.right.mp4", b"v"),
        ("two.json", b'{"q": "Two?"}'),
    ]
    pack(tmp_path / "a.tar", members)
    pack(tmp_path / "b.tar", [("last.mp4", bytes(5000))])
    (tmp_path / "b.tar").write_bytes((tmp_path / "b.tar").read_bytes()[:3000])
    options = ("--layout", "webdataset", "--column", "prompt=q", "--choices", "x|y")
    command = ("manifest", "import", str(tmp_path), str(tmp_path / "jobs.parquet"), *options)

    strict, going = reelabel({}, *command), reelabel({}, *command, "--keep-going")

    assert strict.returncode == 2
    for fault in (
        "it has no video. 1 row, first a.tar, sample no_video (job_id 'a/no_video').",
        "it has no field q; its fields: none. 1 row, first a.tar, sample bare (job_id 'a/bare').",
        "it occurs more than once",
        "binary.json is not UTF-8. 1 row",
        "first b.tar#last.mp4",
        "it is damaged: it is cut short at byte 3,000. 1 row, first b.tar",
    ):
        assert fault in strict.stderr
    assert going.returncode == 1, going.stderr
    jobs = pl.read_parquet(tmp_path / "jobs.parquet")
    assert jobs["job_id"].to_list() == ["a/good", "a/two.left.mp4", "a/two.right.mp4"]
    rejected = pl.read_csv(tmp_path / "rejected.csv")
    assert "a.tar, sample bad_json" in rejected["place"].to_list()


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ("webdataset", {"layout": "webdataset", "prompt": None}, "has no prompt of its own; add --prompt"),
        ("webdataset", {"layout": "webdataset", "column": ["prompt=x"]}, "--prompt and --column prompt=... exclude"),
        ("webdataset", {"layout": "webdataset", "column": ["nix=x"]}, "Unknown manifest columns: nix"),
        ("webdataset", {"layout": "webdataset", "videos": "x"}, "--videos is for --layout nextqa, mvbench"),
        ("lerobot", {"layout": "webdataset"}, "There are no files below .* that end in .tar"),
        ("nowhere", {"layout": "parquet"}, "There are no files below .* that end in .parquet"),
        ("webdataset", {"layout": "folder"}, "There is no video below"),
        ("lerobot", {"layout": "folder", "column": ["task=x"]}, "the videos of a folder have none"),
        ("webdataset", {"layout": "lerobot"}, "There is no meta/info.json below"),
        (
            "lerobot",
            {"layout": "lerobot", "column": ["video_uri=nix"]},
            "There is no camera nix; the data set has: obs",
        ),
        ("lerobot", {"layout": "lerobot", "column": ["start_s=x"]}, "Episodes have a segment of their own"),
        ("lerobot", {"layout": "lerobot", "column": ["task=nix"]}, "lacks the column nix required for LeRobot 3"),
        ("hugging_face", {"layout": "parquet", "column": ["task=nix"]}, "lacks the column nix"),
        ("hugging_face", {"layout": "parquet", "column": ["video_uri=nix"]}, "lacks the column nix"),
        (
            "hugging_face/struct.parquet",
            {"layout": "parquet", "column": ["video_uri=label"]},
            "neither bytes nor paths",
        ),
        ("lerobot/data", {"layout": "parquet"}, "has no column of bytes; name that of the videos"),
        (
            "webdataset",
            {"layout": None},
            "--choices is for --layout webdataset, parquet, lerobot, folder; leave it out",
        ),
    ],
)
def test_wrong_options_are_explained(source, options, message):
    with pytest.raises((ConfigurationError, ManifestError), match=message):
        read_source(str(LAYOUTS / source), ImportOptions(**QUESTION | options))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"codebase_version": "v2.1"}, "has version 'v2.1', not v3.0; convert the data set"),
        ({"fps": 0}, "has no frame rate; fps is 0"),
        ({"video_path": None}, "has no video_path"),
        ({"features": []}, "has no camera whose frames are videos"),
        ({"video_path": "/etc/{video_key}.mp4"}, "does not lie below"),
        ({"video_path": "../{video_key}.mp4"}, "does not lie below"),
        ({"video_path": "{video_key.__class__}.mp4"}, "cannot be filled in"),
        ({"video_path": "{chunk_index:999999999d}"}, "cannot be filled in"),
    ],
)
def test_a_data_set_that_lies_is_refused(tmp_path, change, message):
    shutil.copytree(LAYOUTS / "lerobot", tmp_path / "set")
    info = tmp_path / "set" / "meta" / "info.json"
    info.write_text(json.dumps(json.loads(info.read_text()) | change))

    with pytest.raises(ManifestError) as raised:
        rows(tmp_path / "set", "lerobot")
    assert message in str(raised.value)


@pytest.mark.parametrize("text", ["{", "[]", "[" * 100_000])
def test_metadata_that_is_no_object_is_refused(tmp_path, text):
    (tmp_path / "meta").mkdir()
    (tmp_path / "meta" / "info.json").write_text(text)

    with pytest.raises(ManifestError, match=r"info\.json"):
        rows(tmp_path, "lerobot")


def test_the_index_that_an_import_reads_is_there_for_the_run(objects, store_settings, tmp_path):
    uri = f"{store_settings.uri}/shard.tar"
    objects.replace(uri, (LAYOUTS / "webdataset" / "shard-000.tar").read_bytes())
    environment = {
        "REELABEL_STORE_URI": f"{store_settings.uri}/cache",
        "REELABEL_STORE_ENDPOINT_URL": store_settings.endpoint_url,
        "REELABEL_STORE_CA_FILE": str(store_settings.ca_file),
        "REELABEL_STORE_ACCESS_KEY_ID": store_settings.access_key_id.get_secret_value(),
        "REELABEL_STORE_SECRET_ACCESS_KEY": store_settings.secret_access_key.get_secret_value(),
    }
    run = reelabel(
        environment, "manifest", "import", uri, str(tmp_path / "jobs.parquet"), "--layout", "webdataset", *ASKED
    )

    assert run.returncode == 0, run.stderr
    assert pl.read_parquet(tmp_path / "jobs.parquet")["job_id"].to_list()[0] == "shard/clips/0000"
    assert [info.uri for info in objects.list(f"{store_settings.uri}/cache") if info.uri.endswith(".index")]
