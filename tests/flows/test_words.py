"""Jobs answered in words or by a JSON schema, beside jobs with choices: by a real engine, from run to report."""

import json
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from sqlalchemy import select

from reelabel.sources.object_store import ObjectStore
from tasks.database.tables import FAILURE, RESULT, RESULT_HISTORY
from tasks.demo.clips import Encoding, draw_clip, make_demo, write_clip
from tests.command_line import reelabel as run_command

pytestmark = pytest.mark.system

ROOT = Path(__file__).parents[2]
KINDS = ("label", "words", "facts")
SCHEMA = {"type": "object", "properties": {"colour": {"enum": ["red", "blue"]}}, "required": ["colour"]}


@pytest.fixture(scope="module")
def reelabel(own_environment):
    """Run a command that starts an engine of its own, or takes the one that a run before has left."""
    kept = {"COLUMNS": "200", "REELABEL_MODEL_KEEP_WARM_S": "120"}
    return lambda *arguments, **environment: run_command(own_environment | kept | environment, *map(str, arguments))


@pytest.fixture(scope="module")
def mixed_manifest(tmp_path_factory, own_services):
    """Three questions each on two clips: with choices, in words, by a schema; and two schemas that cannot be used."""
    folder = tmp_path_factory.mktemp("clips")
    root = f"{own_services.store.uri}/words"
    chosen = make_demo(folder, seed=5, clips=2, uri_prefix=root).unique("video_uri", maintain_order=True).head(2)
    assert len(chosen) == 2
    objects = ObjectStore(own_services.store)
    for path in folder.glob("clip-*"):
        objects.replace(f"{root}/{path.name}", path.read_bytes())
    videos = chosen["video_uri"].to_list()
    rows = [{name: row[name] for name in ("job_id", "video_uri", "prompt", "choices")} for row in chosen.to_dicts()]
    rows += [{"job_id": f"words-{n}", "video_uri": uri, "prompt": "Describe it."} for n, uri in enumerate(videos)]
    by_schema = {"prompt": "Which colour?", "schema": json.dumps(SCHEMA)}
    rows += [{"job_id": f"data-{n}", "video_uri": uri, **by_schema} for n, uri in enumerate(videos)]
    odd = {"video_uri": videos[0], "prompt": "What?"}
    endless = {"type": "string", "minLength": 3000, "maxLength": 3000}
    rows += [odd | {"job_id": "refused", "schema": json.dumps({"type": "wat"})}]
    rows += [odd | {"job_id": "cut", "schema": json.dumps(endless)}]
    path = tmp_path_factory.mktemp("manifest") / "mixed.parquet"
    pl.DataFrame(rows, infer_schema_length=None).write_parquet(path)
    return path


@pytest.fixture(scope="module")
def first(reelabel, mixed_manifest):
    return reelabel("classify", mixed_manifest, "--max-tokens", "40")


def rows_of(engine, table):
    with engine.connect() as connection:
        return {row["job_id"]: row for row in connection.execute(select(table)).mappings()}


def test_a_mixed_manifest_ends_as_labels_words_json_and_explained_failures(first, engine):
    assert "Reconciled: 8 jobs = 6 labels + 2 failures." in first.stdout, first.stderr + first.stdout
    rows, failed = rows_of(engine, RESULT), rows_of(engine, FAILURE)

    for name, row in rows.items():
        kind = name.partition("-")[0]
        assert (row["text"] is None, row["data"] is None) == (kind != "words", kind != "data"), name
        if kind in {"words", "data"}:
            assert (row["label"], row["margin"], row["probabilities"], row["choice_index"]) == (None,) * 4
            assert 0 < row["output_tokens"] <= 40
        else:
            assert row["label"]
            assert (row["finish_reason"], row["output_tokens"]) == (None, None)
    assert {row["data"]["colour"] for name, row in rows.items() if name.startswith("data")} <= {"red", "blue"}
    codes = {name: (row["code"], row["stage"]) for name, row in failed.items()}
    assert codes == {"refused": ("schema_refused", "prompt"), "cut": ("answer_cut_short", "inference")}
    assert "40 tokens" in failed["cut"]["message"]


def test_a_dry_run_says_how_many_jobs_are_answered_in_words(reelabel, mixed_manifest):
    dry = reelabel("classify", mixed_manifest, "--dry-run", "--dataset", "unseen")

    assert "6 of 8 jobs have no choices, and are answered in words" in " ".join(dry.stderr.split()), dry.stdout


def test_the_answers_are_printed_exported_and_shown(first, reelabel, tmp_path):
    assert first.returncode == 1, first.stderr  # finished, with failures
    listed = json.loads(reelabel("results", "last", "--format", "json").stdout)
    table = reelabel("results", "last").stdout
    exported = reelabel("results", "last", "--format", "csv").stdout
    shown = reelabel("job", "data-0").stdout
    facts = json.loads(reelabel("job", "words-1", "--format", "json").stdout)
    report = tmp_path / "report.html"
    written = reelabel("report", "last", "--out", report, "--job", "words-0")

    words = {row["job_id"]: row for row in listed}
    assert json.loads(words["data-0"]["data"])["colour"] in {"red", "blue"}
    assert words["words-0"]["text"] in table.replace("\n", " ") or words["words-0"]["text"][:20] in table
    assert "6 answers, 2 failures" in table
    assert {"text", "data", "finish_reason", "output_tokens"} <= {*exported.partition("\n")[0].split(",")}
    assert re.search(r'"colour": "(red|blue)"', shown)
    assert "ended by stop" in shown
    assert facts["outcomes"][0]["text"] == words["words-1"]["text"]
    page = report.read_text()
    assert written.returncode == 0, written.stderr
    assert "4 answers in words or JSON" in page
    assert "of words, ended by" in page


def test_a_second_run_has_nothing_to_do_and_audits_agree(first, reelabel, mixed_manifest, engine):
    before = rows_of(engine, RESULT)

    again = reelabel("classify", mixed_manifest, "--max-tokens", "40")
    audit = json.loads(reelabel("audit", "last", "--json").stdout)

    assert first.stdout
    assert "Nothing to do" in again.stdout, again.stdout
    assert (audit["jobs"], audit["labels"], audit["failures"]) == (8, 6, 2)
    assert rows_of(engine, RESULT) == before


def test_a_backfill_selects_words_by_sql_and_keeps_what_it_replaces(first, reelabel, engine):
    before = rows_of(engine, RESULT)["words-0"]

    run = reelabel("backfill", "--where", "text IS NOT NULL AND job_id = 'words-0'", "--force")

    assert first.stdout
    assert run.returncode == 0, run.stderr + run.stdout
    after = rows_of(engine, RESULT)["words-0"]
    assert (after["text"], after["run_id"] == before["run_id"]) == (before["text"], False)
    with engine.connect() as connection:
        [kept] = connection.execute(select(RESULT_HISTORY).where(RESULT_HISTORY.c.job_id == "words-0")).mappings()
    assert (kept["text"], kept["label"], kept["margin"]) == (before["text"], None, None)


def test_another_bound_is_another_spec_and_the_default_is_none(reelabel, mixed_manifest, engine):
    for options in ((), ("--max-tokens", "64")):
        run = reelabel("classify", mixed_manifest, "--dataset", "bounds", *options)
    with engine.connect() as connection:
        found = connection.execute(select(RESULT.c.spec_id).where(RESULT.c.dataset == "bounds").distinct()).all()

    assert "Nothing to do" in run.stdout
    assert len(found) == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ("classify", "--chunk-s", "2"),
            "With chunk_s, a job must have choices, because words cannot be aggregated over chunks.",
        ),
        (("evaluate",), "answers in words are not compared with known ones."),
        (("calibrate",), "answers in words are not compared with known ones."),
    ],
)
def test_what_needs_choices_refuses_words_in_a_sentence(reelabel, mixed_manifest, tmp_path, arguments, sentence):
    path = tmp_path / "words.parquet"
    pl.read_parquet(mixed_manifest).filter(pl.col("choices").is_null()).write_parquet(path)

    refused = reelabel(arguments[0], path, *arguments[1:])

    assert refused.returncode == 2
    assert sentence in " ".join(refused.stderr.split())


def test_the_documented_manifest_is_answered(reelabel, engine, tmp_path, monkeypatch):
    [example] = re.findall(r"```python\n(import json\n.*?)```", (ROOT / "docs" / "questions.md").read_text(), re.DOTALL)
    _, frames = draw_clip(np.random.default_rng(1))
    (tmp_path / "clips").mkdir()
    write_clip(tmp_path / "clips" / "1.mp4", frames, Encoding(container="mp4", codec="libx264", gop=8))
    monkeypatch.chdir(tmp_path)
    exec(example, {})  # as its reader does

    run = reelabel("classify", "jobs.parquet", "--dataset", "documented", "--max-tokens", "128")

    assert run.returncode == 0, run.stderr + run.stdout
    rows = rows_of(engine, RESULT)
    found = {kind: [bool(rows[f"1-{kind}"][name]) for name in ("label", "text", "data")] for kind in KINDS}
    assert found == {"label": [True, False, False], "words": [False, True, False], "facts": [False, False, True]}
    assert rows["1-facts"]["data"]["colour"] in {"red", "green"}


def test_a_folder_of_videos_is_described_in_words(reelabel, own_services):
    run = reelabel("classify", f"{own_services.store.uri}/words/", "--prompt", "Describe it.", "--max-tokens", "4")

    assert run.returncode == 0, run.stderr + run.stdout
    assert "2 labels + 0 failures" in run.stdout
