"""Manifests as other programs write them, and as they break."""

import base64
import hashlib
from io import BytesIO
from uuid import UUID

import polars as pl
import pyarrow as pa
import pytest
from pyarrow import parquet
from pyarrow.parquet import encryption

from infra.errors import ManifestError
from tasks.manifest.table import open_jobs, read_jobs

COLUMNS = {"job_id": ["a", "b"], "video_uri": ["/a.mp4", "/b.mp4"], "prompt": ["What?"] * 2}
CHOICES = {"choices": [["yes", "no"]] * 2}


def as_parquet(columns, **options):
    file = BytesIO()
    parquet.write_table(pa.table(columns), file, **options)
    return file.getvalue()


class _Keys(encryption.KmsClient):
    def __init__(self, _connection):
        super().__init__()

    def wrap_key(self, key, _name):
        return base64.b64encode(key)


def encrypted(*, plaintext_footer):
    rules = encryption.EncryptionConfiguration(
        footer_key="f", column_keys={"c": ["prompt"]}, plaintext_footer=plaintext_footer
    )
    properties = encryption.CryptoFactory(_Keys).file_encryption_properties(encryption.KmsConnectionConfig(), rules)
    return as_parquet(COLUMNS | CHOICES, encryption_properties=properties)


WHOLE = as_parquet(COLUMNS | CHOICES)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(b"", "is empty, without even a header; write it again.", id="empty"),
        pytest.param(WHOLE[:-200], "is cut short: its end is missing; copy or write it again.", id="cut short"),
        pytest.param(WHOLE[:-8] + b"\xff\xff\xff\x7fPAR1", "is damaged (Parquet file size", id="damaged footer"),
        pytest.param(WHOLE[:4] + b"\xff" * 40 + WHOLE[44:], "is damaged (", id="damaged pages"),
        pytest.param(WHOLE.replace(b"prompt", b"pr\xffmpt"), "is damaged (", id="damaged names"),
        pytest.param(encrypted(plaintext_footer=False), "is encrypted; write it without", id="encrypted"),
        pytest.param(encrypted(plaintext_footer=True), "is encrypted; write it without", id="encrypted columns"),
        pytest.param(b"job_id,video_uri\n", "is not a Parquet file; `reelabel manifest import` converts", id="CSV"),
    ],
)
def test_a_file_that_cannot_be_read_is_distinguished(tmp_path, local_objects, data, message):
    (tmp_path / "m.parquet").write_bytes(data)

    with pytest.raises(ManifestError) as raised:
        read_jobs(f"{tmp_path}/m.parquet", local_objects)

    assert raised.value.message.startswith(f"{tmp_path}/m.parquet {message}")
    assert "␊" not in raised.value.message


def test_values_in_the_names_of_folders_are_columns(tmp_path, local_objects):
    for folder, job_id in (("task=colour%20of%3Dball", "a"), ("task=__HIVE_DEFAULT_PARTITION__", "b"), ("dt=1", "c")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "1.parquet").write_bytes(
            as_parquet(COLUMNS | CHOICES | {"job_id": [job_id, f"{job_id}2"]})
        )
    own = COLUMNS | CHOICES | {"job_id": ["d", "e"], "task": ["x", "y"]}
    (tmp_path / "task=z").mkdir()
    (tmp_path / "task=z" / "1.parquet").write_bytes(as_parquet(own))

    with open_jobs(f"{tmp_path}/*=*/*.parquet", local_objects) as jobs:
        rows = pl.concat(jobs.parts())
    with open_jobs(f"{tmp_path}/*=*/*.parquet", local_objects, only=pl.Series(["a"])) as jobs:
        [chosen] = pl.concat(jobs.parts())["task"]

    tasks = dict(rows.select("job_id", "task").rows())
    assert tasks == {"a": "colour of=ball", "a2": "colour of=ball", "b": None, "b2": None} | {
        "c": None, "c2": None, "d": "x", "e": "y"
    }  # fmt: skip
    assert chosen == "colour of=ball"


def test_a_value_of_another_type_in_the_name_of_a_folder_is_refused(tmp_path, local_objects):
    (tmp_path / "start_s=1").mkdir()
    (tmp_path / "start_s=1" / "1.parquet").write_bytes(WHOLE)

    with pytest.raises(ManifestError, match="Column start_s has type String; it must be Float64"):
        read_jobs(f"{tmp_path}/start_s=1/1.parquet", local_objects)


DIGEST = hashlib.sha256(b"clip").digest()
UUIDS = [UUID(int=7), UUID(int=2**128 - 1)]


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        pytest.param(pa.array([each.bytes for each in UUIDS], pa.uuid()), [*map(str, UUIDS)], id="UUID"),
        pytest.param(pa.array([DIGEST, b"b" * 32], pa.binary(32)), [DIGEST.hex(), "b" * 32], id="fixed bytes"),
        pytest.param(pa.array([b"clip-1", b"\0\1"], pa.binary()), ["clip-1", "0001"], id="bytes"),
        pytest.param(pa.array([b"a", b"b"], pa.large_binary()).dictionary_encode(), ["a", "b"], id="dictionary"),
    ],
)
def test_ids_may_be_binary(tmp_path, local_objects, ids, expected):
    (tmp_path / "m.parquet").write_bytes(as_parquet(COLUMNS | CHOICES | {"job_id": ids}))

    assert [job.job_id for job in read_jobs(f"{tmp_path}/m.parquet", local_objects)] == expected


def test_texts_may_lack_the_mark_of_a_text(tmp_path, local_objects):
    raw = {name: pa.array([value.encode() for value in values]) for name, values in COLUMNS.items()}
    raw["choices"] = pa.array([[b"yes", b"no"]] * 2)
    (tmp_path / "raw.parquet").write_bytes(as_parquet(raw))
    (tmp_path / "plain.parquet").write_bytes(WHOLE)

    raw_jobs, plain_jobs = (read_jobs(f"{tmp_path}/{name}.parquet", local_objects) for name in ("raw", "plain"))

    assert raw_jobs == plain_jobs


@pytest.mark.parametrize("text", ["yes|no", "yes | no", '["yes", "no"]', ' ["yes","no"]'])
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string()), pa.binary()])
def test_choices_may_be_a_text(tmp_path, local_objects, text, kind):
    written = pa.array([text.encode() if kind == pa.binary() else text] * 2).cast(kind)
    (tmp_path / "text.parquet").write_bytes(as_parquet(COLUMNS | {"choices": written}))
    (tmp_path / "list.parquet").write_bytes(as_parquet(COLUMNS | CHOICES | {"job_id": ["c", "d"]}))

    jobs = read_jobs(f"{tmp_path}/*.parquet", local_objects)

    assert {job.choices for job in jobs} == {("yes", "no")}


@pytest.mark.parametrize("text", ['["yes", "no"', '["yes", 1]', "yes"])
def test_a_text_that_is_no_list_of_choices_is_shown(tmp_path, local_objects, text):
    (tmp_path / "m.parquet").write_bytes(as_parquet(COLUMNS | {"choices": ["yes|no", text]}))

    with pytest.raises(ManifestError) as raised:
        read_jobs(f"{tmp_path}/m.parquet", local_objects)

    assert f"choices has fewer than two answers. 1 row, first row 1 (choices {[text]!r})." in raised.value.message


def test_long_values_are_cut_in_messages(tmp_path, local_objects):
    long = ["x" * 9_000, "x" * 9_000]
    (tmp_path / "m.parquet").write_bytes(as_parquet(COLUMNS | {"choices": [long] * 2, "task": ["\0" * 100_000] * 2}))

    with pytest.raises(ManifestError) as raised:
        read_jobs(f"{tmp_path}/m.parquet", local_objects)

    assert "(18,008 characters)" in raised.value.message
    assert len(raised.value.message) < 1000
