"""Nothing that a manifest, a database or a file's name says acts on the terminal, whatever command prints it."""

import csv
import io
import os
from dataclasses import replace
from datetime import UTC, datetime
from uuid import uuid4

import polars as pl
import pytest

from flows.cli.console import OUT, SafeConsole, TerminalSink, cell
from flows.cli.evaluation.evaluate import print_evaluation
from flows.cli.operations.cache import _line
from flows.cli.operations.schedule import _print_scheduled
from flows.cli.rows.formats import write_rows
from flows.cli.runs.summary import print_summary
from flows.cli.videos.prompt import PromptPreview, _print_prompt
from flows.schedule.catch_up import ScheduledRun
from infra.embedded import export
from infra.settings import StoreSettings
from reelabel.sources.object_info import ObjectInfo
from reelabel.text import escape_controls
from reelabel_engine.protocol import PromptSpan, RenderedPrompt
from tasks.domain import Failure, Stage
from tasks.evaluation.scores import CandidateScore, Difference, Estimate, Evaluation, GroupScore
from tasks.manifest.digests import jobs_to_rows
from tasks.results.runs import close_run, open_run, update_run
from tasks.results.write import RunKey, ShardWriter
from tests.command_line import reelabel
from tests.hostile import HOSTILE, SHOWN, hidden_in, require_tame
from tests.results.rows import FACTS, SPEC, job, result

FORMULA = "=HYPERLINK(A1)"
MANIFEST = HOSTILE.translate(dict.fromkeys(map(ord, "[]/"))) + ".parquet"  # neither a glob nor a folder


def write_manifest(path, jobs):
    """Write a manifest; Polars takes names for globs."""
    columns = ("job_id", "video_uri", "prompt", "choices", "task", "subtask")
    with path.open("wb") as file:
        jobs_to_rows(jobs).select(columns).write_parquet(file)


@pytest.fixture
def jobs():
    """A labelled job, one that failed, one without a row, and one that a spreadsheet would run."""
    texts = {"prompt": HOSTILE, "choices": (HOSTILE, f"{HOSTILE}!"), "task": HOSTILE, "subtask": HOSTILE}
    named = [job(name, **texts) for name in (HOSTILE, f"{HOSTILE}2", f"{HOSTILE}3")]
    return [*named, job(FORMULA, choices=("yes", "-no"))]


@pytest.fixture
def settings(prefect_services, database, tmp_path, jobs):
    """Settings of a database, a store and a home whose names and contents are hostile."""
    store = tmp_path / "store"
    store.mkdir()
    write_manifest(tmp_path / MANIFEST, jobs)
    return prefect_services.model_copy(
        update={"database": database, "store": StoreSettings(uri=store.as_uri()), "home": tmp_path / "home"}
    )


@pytest.fixture
def run_id(db, jobs, tmp_path):
    run_id = uuid4()
    facts = FACTS | {"dataset": HOSTILE, "manifest_uri": str(tmp_path / MANIFEST), "host": HOSTILE}
    open_run(db, run_id=run_id, spec=SPEC, facts=facts)
    key = RunKey(run_id=run_id, dataset=HOSTILE, spec_id=SPEC.spec_id, host=HOSTILE)
    failed = Failure(job=jobs[1], stage=Stage.DECODE, code="no_frames", message=HOSTILE, shard_index=0)
    ShardWriter(db, key).write(results=[result(jobs[0]), result(jobs[3])], failures=[failed])
    update_run(db, run_id, bottleneck=HOSTILE, jobs_labelled=2, jobs_failed=1)
    close_run(db, run_id, state="failed", message=HOSTILE)
    return run_id


@pytest.fixture
def shown(settings, run_id):  # noqa: ARG001 - the run that commands find
    """Run a command, and return what it prints."""

    def run(*arguments, **variables):
        completed = reelabel(os.environ | export(settings) | {"COLUMNS": "400"} | variables, *arguments)
        return completed.stdout + completed.stderr

    return run


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["results", "last"], SHOWN),
        (["audit", "last"], "1 missing"),
        (["status"], "classify a␛[2J"),
        (["results", HOSTILE], SHOWN),
        (["classify", HOSTILE], SHOWN),
        (["classify", "{manifest}", "--model", HOSTILE], SHOWN),
        (["manifest", "check", HOSTILE], SHOWN),
        (["manifest", "import", HOSTILE, "x.parquet"], SHOWN),
        (["manifest", "import", "x.csv", f"/{HOSTILE}/x.parquet"], "␛"),
        (["frames", HOSTILE], SHOWN),
        (["frames", __file__, "--npz", f"/{HOSTILE}/x.npz"], "␛"),
        (["frames", __file__, "--sampler", HOSTILE], SHOWN),
        (["report", "last", "--job", f"{HOSTILE}9"], SHOWN),
        (["backfill", "--ids-file", HOSTILE], "␛"),
        (["results", "--format", HOSTILE], SHOWN),
        (["cache", "gc", "--older-than", HOSTILE], SHOWN),
        (["catch-up", "--since", HOSTILE], SHOWN),
    ],
    ids=lambda value: "-".join(value[:2]).replace(HOSTILE, "hostile") if isinstance(value, list) else "",
)
def test_hostile_text_in_a_commands_output_is_shown_and_harmless(shown, tmp_path, arguments, expected):
    printed = shown(*(text.replace("{manifest}", str(tmp_path / MANIFEST)) for text in arguments))

    require_tame(printed)
    assert expected in printed
    assert "Traceback" not in printed


@pytest.mark.parametrize("arguments", [["nothing" + HOSTILE], ["results", "last", "table", HOSTILE], ["--" + HOSTILE]])
def test_mistyped_arguments_and_matched_file_names_are_shown_escaped(shown, arguments):
    require_tame(shown(*arguments))


def test_names_in_the_cache_are_shown_escaped():
    require_tame(_line(ObjectInfo(uri=HOSTILE, size_bytes=1, fingerprint="", modified=None), as_json=False))


def test_the_summary_of_a_run_shows_hostile_text_escaped(settings, run_id, capsys):
    print_summary(settings, run_id)

    printed = capsys.readouterr().out
    require_tame(printed)
    assert "Not reconciled" in printed


def test_the_tables_of_an_evaluation_show_hostile_text_escaped(capsys):
    share = Estimate(value=0.5, low=0.4, high=0.6)
    difference = Difference(value=0.1, low=0.0, high=0.2, jobs=2, gained=1, lost=0, p_value=0.5, p_holm=0.5)
    groups = [
        GroupScore(
            spec=HOSTILE,
            task=f"{name}{HOSTILE}",
            subtask=None,
            jobs=2,
            correct=1,
            accuracy=share,
            difference=difference,
        )
        for name in "ab"
    ]
    score = CandidateScore(
        name=HOSTILE,
        spec_id="s",
        sampling={},
        model=HOSTILE,
        jobs=2,
        labels=2,
        failures=0,
        correct=1,
        accuracy=share,
        calibration_error=None,
        difference=difference,
    )
    facts = {"manifest_uri": HOSTILE, "dataset": HOSTILE, "created_at": "", "jobs": 2, "known": 2, "baseline": HOSTILE}
    print_evaluation(Evaluation(**facts, specs=(score,), tasks=tuple(groups), subtasks=()))

    require_tame(capsys.readouterr().out)


def test_the_nights_of_a_schedule_show_hostile_text_escaped(capsys):
    _print_scheduled([ScheduledRun(at=datetime(2026, 11, 1, tzinfo=UTC), state="missed", manifest=HOSTILE, attempts=0)])

    require_tame(capsys.readouterr().out)


def test_a_printed_prompt_shows_invisible_characters_and_keeps_its_lines(capsys):
    span = PromptSpan(text=f"one\ntwo {HOSTILE.replace(chr(10), '')} :x:[b]")
    rendered = RenderedPrompt(
        runs=(span,), tokens=None, video_tokens=None, max_model_len=9, choices=({1: HOSTILE},), refusals=()
    )
    preview = PromptPreview(job=replace(job("a"), video_uri=HOSTILE), orders=1, rendered=rendered, times_s=[[]])
    _print_prompt(preview)

    printed = capsys.readouterr().out
    require_tame(printed)
    assert "one\ntwo a␛[2J<U+202E>" in printed
    assert ":x:[b]" in printed


def test_a_status_line_is_not_parsed_as_markup():
    console = SafeConsole()
    with console.capture() as captured, console.status(cell(f"[/none] {HOSTILE}")):
        pass
    console.print(cell("[/none]"))
    assert "\x1b" not in captured.get()


def test_every_renderable_of_the_console_escapes_hostile_text(capsys):
    OUT.print(HOSTILE.replace("\n", ""), {"x": HOSTILE})

    require_tame(capsys.readouterr().out)


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_formulas_in_the_csv_of_results_are_disarmed_unless_raw(shown):
    safe, raw = (rows_of(shown("results", "last", "--format", "csv", *more)) for more in ([], ["--raw"]))

    assert {row["job_id"] for row in raw} >= {FORMULA}
    assert {row["job_id"] for row in safe} >= {f"'{FORMULA}"}
    assert ["'-no" in row["label"] for row in safe].count(True) == 1
    assert [row["margin"] for row in safe] == [row["margin"] for row in raw]


@pytest.mark.parametrize("ending", ["csv", "parquet", "txt"])
def test_formulas_in_the_list_of_an_audit_are_disarmed_unless_raw(shown, jobs, tmp_path, ending):
    write_manifest(tmp_path / MANIFEST, [replace(each, prompt="another?") for each in jobs])
    path = tmp_path / "out" / f"list.{ending}"
    path.parent.mkdir()

    shown("audit", "last", "--list", str(path))
    safe = path.read_bytes()

    assert (f"'{FORMULA}".encode() in safe) == (ending == "csv")
    assert FORMULA.encode() in safe
    if ending == "csv":
        shown("audit", "last", "--list", str(path), "--raw")
        assert f"'{FORMULA}".encode() not in path.read_bytes()
    else:
        assert "--raw is for --list with a .csv file" in shown("audit", "last", "--list", str(path), "--raw")


def test_rows_on_a_terminal_show_hostile_text_escaped(capsys):
    write_rows([pl.DataFrame({"job_id": [HOSTILE]})], form="csv", sink=TerminalSink())

    printed = capsys.readouterr().out
    assert hidden_in(printed) == []
    assert "a␛[2J<U+202E>" in printed


def test_raw_requires_csv(shown):
    assert "--raw is for --format csv" in shown("results", "last", "--format", "json", "--raw")


def test_tables_and_messages_write_a_job_id_alike(shown):
    assert shown("results", "last").count(escape_controls(HOSTILE)) >= 2


def test_a_full_disk_is_named_if_an_output_file_does_not_fit(settings, run_id):  # noqa: ARG001 - the run of the report
    completed = reelabel(os.environ | export(settings), "report", "last", "--out", "/dev/full")

    assert completed.returncode == 1
    assert "disk_full: The disk of " in completed.stderr
    assert "run the same command again" in completed.stderr
