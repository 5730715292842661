"""Jobs of videos in folders, tar shards, Parquet files and data sets of LeRobot, in the layouts of their writers."""

import io
import json
import re
import shutil
import tarfile
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from pyarrow import parquet

from infra.errors import ManifestError
from reelabel.errors import ConfigurationError
from reelabel.options import WebOptions
from reelabel.sources.object_store import ObjectStore
from tasks.manifest.importers.lerobot import read_lerobot
from tasks.manifest.importers.parquet_videos import read_parquet_videos
from tasks.manifest.importers.videos import VideoFiles, read_folder
from tasks.manifest.importers.webdataset import read_webdataset
from tasks.manifest.one_question import QuestionOnVideos
from tests.reelabel.sources.web_server import serving

LAYOUTS = Path(__file__).parents[1] / "data" / "layouts"


def read(reader, source, **columns):
    return reader(VideoFiles(uri=str(source), objects=ObjectStore(), prompt="Which?", columns=columns))


def faults(found):
    return [(name, reason) for name, _, reason, _ in found._unread]


def pack(path, *members):
    with tarfile.open(path, "w") as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


def test_each_sample_of_the_shards_is_a_job():
    rows = read(read_webdataset, LAYOUTS / "webdataset", subtask="colour", task="number").valid()

    assert rows["job_id"].to_list() == ["shard-000/clips/0000", "shard-000/clips/0001", "shard-001/clips/0002"]
    assert rows["video_uri"][2] == f"{LAYOUTS}/webdataset/shard-001.tar#clips/0002.mp4"
    assert rows.select("subtask", "task").rows() == [("red", "0"), ("green", "1"), ("blue", "2")]


def test_a_sample_may_have_several_videos_and_members_as_fields(tmp_path):
    pack(
        tmp_path / "a.tar",
        *(("x/1.left.MP4", b"v"), ("x/1.right.webm", b"v"), ("x/1.txt", b" said \n"), ("x/1.json", b'{"txt": 1}')),
        *(("2.mp4", b"v"), ("2.json", b'{"txt": "noted"}'), (".hidden", b""), ("plain", b"")),
    )

    rows = read(read_webdataset, tmp_path / "a.tar", subtask="txt").valid()

    assert rows.select("job_id", "subtask").rows() == [
        ("a/x/1.left.MP4", "said"),
        ("a/x/1.right.webm", "said"),
        ("a/2", "noted"),
    ]


def test_a_sample_that_cannot_be_read_is_rejected_alone(tmp_path):
    pack(
        tmp_path / "a.tar",
        *(("good.mp4", b"v"), ("good.json", b'{"kind": "x"}'), ("none.json", b"{}")),
        *(("list.mp4", b"v"), ("list.json", b"[]"), ("deep.mp4", b"v"), ("deep.json", b"[" * 100_000)),
        *(("long.mp4", b"v"), ("long.json", b'"' + b"x" * 1024**2), ("bytes.mp4", b"v"), ("bytes.json", b"\xff")),
        *(("text.mp4", b"v"), ("text.json", b"{,")),
    )
    with tarfile.open(tmp_path / "a.tar", "a") as archive:
        for name, kind in (("folder.mp4", tarfile.DIRTYPE), ("link.mp4", tarfile.SYMTYPE)):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "good.mp4"
            archive.addfile(info)

    found = read(read_webdataset, tmp_path, task="kind")

    assert [row["job_id"] for row in found.rows] == ["a/good"]
    rejected = dict(faults(found))
    assert rejected["a.tar, sample none"] == "it has no video."
    assert rejected["a.tar, sample list"] == "list.json is not a JSON object."
    assert rejected["a.tar, sample deep"] == "its JSON is nested too deeply."
    assert rejected["a.tar, sample long"] == "long.json has 1,048,577 bytes, which is too long for a field."
    assert rejected["a.tar, sample bytes"] == "bytes.json is not UTF-8."
    assert rejected["a.tar, sample text"].startswith("text.json is not JSON (")
    assert "link" in rejected["a.tar#link.mp4"]
    assert len(rejected) == 7


def test_a_number_that_is_too_large_rejects_its_sample_alone(tmp_path):
    pack(
        tmp_path / "a.tar",
        *(("good.mp4", b"v"), ("good.json", b'{"from": 1}')),
        *(("huge.mp4", b"v"), ("huge.json", b'{"from": 1%s}' % (b"0" * 400))),
    )

    found = read(read_webdataset, tmp_path, start_s="from")

    assert [row["start_s"] for row in found.rows] == [1.0]
    assert faults(found) == [("a.tar, sample huge", "int too large to convert to float.")]


def test_each_row_of_a_table_is_a_job_that_refers_to_its_bytes():
    rows = read(read_parquet_videos, LAYOUTS / "hugging_face" / "struct.parquet", task="label").valid()
    named = read(read_parquet_videos, LAYOUTS / "hugging_face" / "binary.parquet", job_id="answer").valid()

    assert rows.select("job_id", "task").rows() == [(f"struct/{number}", f"{number}") for number in range(3)]
    assert rows["video_uri"][1] == f"{LAYOUTS}/hugging_face/struct.parquet#column=video&row=1"
    assert named["job_id"].to_list() == ["red", "green", "blue"]
    assert named["video_uri"][0].endswith("binary.parquet#column=mp4&row=0")


@pytest.mark.parametrize(
    ("reader", "name", "ending"),
    [
        (read_webdataset, "a.tar.gz", ".tar"),
        (read_webdataset, "a.mp4", ".tar"),
        (read_parquet_videos, "a.pq", ".parquet"),
    ],
)
def test_a_file_that_is_named_but_no_archive_by_its_name_is_refused(tmp_path, reader, name, ending):
    parquet.write_table(pa.table({"clip": [b"v"]}), tmp_path / name)

    with pytest.raises(ManifestError, match=rf"{re.escape(name)} does not end in {re.escape(ending)}\."):
        read(reader, tmp_path / name)


def test_the_signature_of_an_archive_on_the_web_is_in_no_id(tmp_path):
    pack(tmp_path / "a.tar", ("1.mp4", b"v"))
    with serving() as web:
        uri = web.add("/a.tar", body=(tmp_path / "a.tar").read_bytes()) + "?signature=b/c.d"
        objects = ObjectStore(web=WebOptions(allow_networks=["127.0.0.0/8"]))
        found = read_webdataset(VideoFiles(uri=uri, objects=objects, prompt="Which?"))

    assert [(row["job_id"], row["video_uri"]) for row in found.rows] == [("a/1", f"{uri}#1.mp4")]


STRUCT = pa.struct([("bytes", pa.large_binary()), ("path", pa.large_string())])


def test_a_table_has_bytes_or_paths_and_says_which_rows_have_neither(tmp_path):
    (tmp_path / "in").mkdir()
    half = pa.array([{"bytes": b"v", "path": "a.mp4"}, {"bytes": None, "path": "b.mp4"}], STRUCT)
    parquet.write_table(pa.table({"clip": half, "id": ["x", None]}), tmp_path / "half.parquet")
    paths = pa.array([{"bytes": None, "path": "a.mp4"}, {"bytes": None, "path": ""}, None], STRUCT)
    parquet.write_table(pa.table({"clip": paths, "id": ["y", "z", None]}), tmp_path / "in" / "paths.parquet")

    found = read(read_parquet_videos, tmp_path, job_id="id")

    assert [(row["job_id"], row["video_uri"].removeprefix(f"{tmp_path}/")) for row in found.rows] == [
        ("x", "half.parquet#column=clip&row=0"),
        ("half/1", "half.parquet#column=clip&row=1"),
        ("y", "in/a.mp4"),
    ]
    assert found.notes == ["1 row of half.parquet have no video in column clip."]
    neither = "it has neither bytes nor a path."
    assert faults(found) == [("in/paths.parquet, row 1", neither), ("in/paths.parquet, row 2", neither)]


@pytest.mark.parametrize("kind", [pa.timestamp("ms"), pa.timestamp("ms", tz="Nowhere/Land"), pa.duration("s")])
def test_a_time_that_cannot_be_read_is_named_with_its_table(tmp_path, kind):
    table = pa.table({"clip": [b"v"], "made": pa.array([2**60], kind)})
    parquet.write_table(table, tmp_path / "t.parquet")

    with pytest.raises(ManifestError, match=r"t\.parquet has a value that cannot be read in the column made: "):
        read(read_parquet_videos, tmp_path, task="made")


@pytest.mark.parametrize("named", ["in/paths.parquet", "in", ""])
def test_the_paths_in_a_table_are_relative_to_its_folder_whether_it_or_a_folder_is_named(tmp_path, named):
    (tmp_path / "in").mkdir()
    parquet.write_table(pa.table({"clip": ["a.mp4", "more/b.mp4"]}), tmp_path / "in" / "paths.parquet")

    rows = read(read_parquet_videos, tmp_path / named, video_uri="clip").valid()

    assert rows["video_uri"].to_list() == [f"{tmp_path}/in/a.mp4", f"{tmp_path}/in/more/b.mp4"]


def test_a_table_whose_column_of_videos_is_unclear_is_refused(tmp_path):
    parquet.write_table(pa.table({"a": [b"v"], "b": [b"v"], "c": [1]}), tmp_path / "t.parquet")

    with pytest.raises(ConfigurationError, match=r"has several columns of bytes \(a, b\); name that of the videos"):
        read(read_parquet_videos, tmp_path)
    with pytest.raises(ConfigurationError, match=r"Column c of .* holds neither bytes nor paths"):
        read(read_parquet_videos, tmp_path, video_uri="c")
    (tmp_path / "t.parquet").write_bytes(b"no table")
    with pytest.raises(ManifestError, match=r"Cannot read .*t\.parquet as Parquet"):
        read(read_parquet_videos, tmp_path)


def test_an_episode_is_a_segment_that_ends_half_a_frame_before_the_next_one():
    rows = read(read_lerobot, LAYOUTS / "lerobot", video_uri="observation.images.top").valid()

    assert rows["job_id"].to_list() == [f"episode-{number:06}/observation.images.top" for number in range(3)]
    assert rows["video_uri"].unique().to_list() == [
        f"{LAYOUTS}/lerobot/videos/observation.images.top/chunk-000/file-000.mp4"
    ]
    assert rows["start_s"].to_list() == pytest.approx([0, 1, 2.5])
    assert rows["end_s"].to_list() == pytest.approx([each - 0.5 / 12 for each in (1, 2.5, 4.5)])
    assert rows["task"].to_list() == [f"Pick up the {colour} cube" for colour in ("red", "green", "blue")]
    both = read(read_lerobot, LAYOUTS / "lerobot", task="length").valid()
    assert both["job_id"].to_list()[:2] == ["episode-000000/observation.images.top", both["job_id"][1]]
    assert (len(both), both["task"].to_list()[::2]) == (6, ["12", "18", "24"])


def change_episodes(folder, **columns):
    """Copy the data set with other columns of its episodes."""
    shutil.copytree(LAYOUTS / "lerobot", folder)
    path = folder / "meta/episodes/chunk-000/file-000.parquet"
    pl.read_parquet(path).with_columns(pl.Series(name, values) for name, values in columns.items()).write_parquet(path)
    return folder


def test_episodes_are_in_the_order_of_their_numbers_and_have_all_their_tasks(tmp_path):
    folder = change_episodes(tmp_path / "set", episode_index=[2, 0, 1], tasks=[["a", "b"], [], None])

    rows = read(read_lerobot, folder, video_uri="observation.images.top").valid()

    assert rows.select("job_id", "task").rows() == [
        ("episode-000000/observation.images.top", None),
        ("episode-000001/observation.images.top", None),
        ("episode-000002/observation.images.top", "a; b"),
    ]


@pytest.mark.parametrize(
    ("column", "fault"),
    [
        ("chunk_index", "chunk_index or file_index is not a number"),
        ("file_index", "chunk_index or file_index is not a number"),
        ("from_timestamp", "from_timestamp or to_timestamp is not a number of seconds"),
        ("to_timestamp", "from_timestamp or to_timestamp is not a number of seconds"),
    ],
)
def test_an_episode_without_a_place_is_rejected(tmp_path, column, fault):
    name = f"videos/observation.images.top/{column}"
    folder = change_episodes(tmp_path / "set", **{name: ["1", "2", "3"]})

    with pytest.raises(ManifestError, match=f"{fault}. 3 rows, first episode 0, camera observation.images.top"):
        read(read_lerobot, folder, video_uri="observation.images.top").valid()


def test_episodes_without_numbers_or_files_are_refused(tmp_path):
    folder = change_episodes(tmp_path / "set", episode_index=["a", "b", "c"])

    with pytest.raises(ManifestError, match="have no numbers in episode_index"):
        read(read_lerobot, folder)
    (folder / "meta/episodes/chunk-000/file-000.parquet").unlink()
    with pytest.raises(ManifestError, match="There are no Parquet files below"):
        read(read_lerobot, folder)


@pytest.fixture
def clips(tmp_path):
    for name in ("clips/a.mp4", "clips/b/c.WEBM", "clips/b/d.txt", "clips/.trash/e.mp4"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"video")
    return tmp_path / "clips"


def test_each_video_of_a_folder_or_a_glob_is_a_job(clips):
    found = read(read_folder, clips)

    assert [row["job_id"] for row in found.rows] == ["a.mp4", "b/c.WEBM"]
    assert [row["video_uri"] for row in found.rows] == [f"{clips}/a.mp4", f"{clips}/b/c.WEBM"]
    [note] = found.notes
    assert note.startswith("Left out 2 files, hidden or without the suffix of a video (first: ")
    assert [row["job_id"] for row in read(read_folder, f"{clips}/*/*").rows] == ["b/c.WEBM"]
    assert read(read_folder, f"{clips}/*/*.W*").notes == []
    with pytest.raises(ManifestError, match=r"There is no video below .*b/d.*; check the path"):
        read(read_folder, f"{clips}/b/d*")
    with pytest.raises(ConfigurationError, match="the videos of a folder have none; leave it out"):
        read(read_folder, clips, task="x")


@pytest.mark.parametrize(
    ("uri", "name"),
    [
        ("https://host/x/a.mp4?signature=1", "a.mp4"),
        ("https://host/watch/7", "7"),
        ("s3://bucket/shard.tar#clips/7.mp4", "shard.tar#clips/7.mp4"),
    ],
)
def test_one_video_is_a_job_named_after_it(uri, name):
    [row] = read(read_folder, uri).rows

    assert (row["job_id"], row["video_uri"]) == (name.rpartition("/")[2], uri)


def test_a_question_about_a_folder_becomes_a_manifest_in_the_store(clips, tmp_path):
    (clips / f"{'n' * 200}").mkdir()
    (clips / f"{'n' * 200}" / "f.mp4").write_bytes(b"video")
    question = QuestionOnVideos.of(str(clips), "Is it?", "yes|no")

    found = question.find_videos(ObjectStore())
    uri = found.write(ObjectStore(), f"file://{tmp_path}/store/")

    assert uri == f"file://{tmp_path}/store/questions/{question.name}.parquet"
    written = pl.read_parquet(f"{tmp_path}/store/questions/{question.name}.parquet")
    assert written["job_id"].to_list() == ["a.mp4", "b/c.WEBM", f"{'n' * 200}/f.mp4"]
    assert written["choices"].to_list() == [["yes", "no"]] * 3
    assert (found.left_out, len(found.notes)) == (0, 1)


def test_videos_whose_names_cannot_be_ids_are_left_out_and_counted(clips):
    long = clips / "/".join("n" * 250 for _ in range(5))
    long.mkdir(parents=True)
    for number in range(4):
        (long / f"{number}.mp4").write_bytes(b"video")

    found = QuestionOnVideos.of(f"{clips}/", "Is it?", None).find_videos(ObjectStore())

    assert (found.left_out, found.jobs["job_id"].to_list()) == (4, ["a.mp4", "b/c.WEBM"])
    [_, note] = found.notes
    assert note.startswith(f"Left out 4 videos (first: {'n' * 250}/")
    assert note.count("0.mp4") == note.count("2.mp4") == 1
    assert "3.mp4" not in note
    assert note.endswith(": job_id is longer than 1,024 bytes.")


def test_metadata_must_be_an_object(tmp_path):
    (tmp_path / "meta").mkdir()
    (tmp_path / "meta" / "info.json").write_text(json.dumps({"codebase_version": "v3.0", "fps": True}))

    with pytest.raises(ManifestError, match="has no frame rate; fps is True"):
        read(read_lerobot, tmp_path)
