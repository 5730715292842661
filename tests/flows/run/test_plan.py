"""What happens to the plans of a run."""

import re
import sys
from dataclasses import replace
from types import SimpleNamespace

import polars as pl
import pytest
from prefect.logging import disable_run_logger
from pydantic import SecretStr
from sqlalchemy import DDL, text

from flows.run.execute import _answer_jobs, _execute_plan, open_run, write_report_page
from flows.run.plan import Planner, select_jobs, size_line
from flows.run.progress import Progress
from flows.run.questions import prepare_questions
from flows.run.remote import _dropped_if_stopped
from flows.run.request import ClassifyRequest, QuestionOptions
from infra.database.connect import connect
from infra.errors import PlanForeignError
from infra.settings import ChunkOptions, DatabaseSettings, ResultsSettings, Settings
from reelabel.errors import ConfigurationError
from tasks.database.tables import PLAN, SHARD
from tasks.demo.clips import make_demo
from tasks.frame_cache.pool import current_fingerprints, video_store
from tasks.manifest.plan_file import read_shard
from tasks.model.identity import TINY_MODEL
from tasks.plans.lease import Work, claim, finish
from tasks.plans.plan import is_drained, open_plans
from tasks.results.choose import ChosenJobs
from tasks.results.runs import read_run, update_run
from tasks.results.selection import Selection
from tasks.results.write import ShardWriter
from tests.results.rows import result

_LOSE_ONCE = """
CREATE SEQUENCE reelabel.changes;
GRANT USAGE, SELECT ON SEQUENCE reelabel.changes TO PUBLIC;
CREATE FUNCTION reelabel.lose_once() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF nextval('reelabel.changes') = 1 THEN
        PERFORM pg_terminate_backend(pg_backend_pid());
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER lose_once AFTER {change} ON reelabel.plan FOR EACH STATEMENT EXECUTE FUNCTION reelabel.lose_once()
"""


def lose_once(database, change):
    """End the session of the first statement that makes a change to the table of plans: INSERT or UPDATE."""
    owner = connect(database.model_copy(update={"url": database.owner_url}))
    with owner.begin() as connection:
        connection.execute(DDL(_LOSE_ONCE.format(change=change)))
    owner.dispose()


def was_lost(engine):
    with engine.connect() as connection:
        return connection.execute(text("SELECT last_value FROM reelabel.changes")).scalar_one() > 1


@pytest.fixture
def settings(services, database, store_settings):
    model = services.model.model_copy(update={"name": str(TINY_MODEL)})
    run = services.run.model_copy(update={"executor": "remote", "extract_flows": 0, "infer_flows": 0})
    parts = {"database": database, "store": store_settings, "model": model, "run": run}
    return services.model_copy(update=parts)


@pytest.fixture
def ready_for(settings, tmp_path):
    """Prepare a run of three jobs."""
    make_demo(tmp_path, seed=5, clips=1).write_parquet(tmp_path / "manifest.parquet")

    def ready_for(**options):
        manifest = str(tmp_path / "manifest.parquet")
        return open_run(ClassifyRequest(**{"manifest": manifest} | options), settings, prepare_questions)

    with disable_run_logger():
        yield ready_for


def test_a_run_is_refused_at_once_if_what_writes_its_rows_to_a_lake_is_not_installed(settings, monkeypatch):
    lake = ResultsSettings(export_uri="s3://lake/rows", export_format="delta")
    monkeypatch.setitem(sys.modules, "deltalake", None)

    opened = open_run(
        ClassifyRequest(manifest="jobs.parquet"), settings.model_copy(update={"results": lake}), prepare_questions
    )

    with pytest.raises(ConfigurationError, match=r"results\.export_format delta"), opened:
        pass


def test_a_restarted_run_drops_a_plan_that_nobody_shares(ready_for):
    with ready_for(force=True) as ready:
        first, second = (Planner(ready).plan() for _ in range(2))

        assert open_plans(ready.database) == [second]
        assert first.plan_id != second.plan_id
        assert not list(ready.objects.list(first.plan_uri))
        assert read_shard(ready.objects, second.plan_uri, 0, seal=ready.settings.store.seal)


def test_a_restarted_run_continues_a_plan_that_others_share(ready_for):
    with ready_for() as ready:
        first, second = (Planner(ready).plan() for _ in range(2))

        assert first == second
        assert open_plans(ready.database) == [first]


def test_a_run_that_is_restarted_with_another_manifest_leaves_its_plan_to_those_that_share_it(ready_for):
    with ready_for() as ready:
        shared = Planner(ready).plan()

        later = Planner(replace(ready, manifest_fingerprint="another version")).plan()

        assert open_plans(ready.database) == [shared, later]


def test_jobs_that_are_cut_into_chunks_have_small_shards(ready_for, tmp_path):
    manifest = tmp_path / "many.parquet"
    rows = {"job_id": [*"abcdefghi"], "video_uri": [f"{name}.mp4" for name in "abcdefghi"]}
    pl.DataFrame(rows).with_columns(prompt=pl.lit("?"), choices=pl.lit(["yes", "no"])).write_parquet(manifest)
    chunks = QuestionOptions(chunks=ChunkOptions(chunk_s=60))

    with ready_for(manifest=str(manifest)) as whole:
        assert Planner(whole).plan().shards == 1
    with ready_for(manifest=str(manifest), overrides=chunks) as cut:
        assert Planner(cut).plan().shards == 2


def test_a_restarted_backfill_answers_as_many_jobs_in_all_as_its_limit_allows(ready_for, settings):
    with ready_for() as ready:
        plan = Planner(ready).plan()
        first = read_shard(ready.objects, plan.plan_uri, 0, seal=ready.settings.store.seal).jobs[0]
        selection = Selection(missing=True, limit=2)
        chosen = ChosenJobs(jobs=ready.jobs, reasons={}, runs={}, unknown=())
        backfill = replace(ready, selector=SimpleNamespace(selection=selection, choose=lambda *_: chosen))
        assert len(select_jobs(backfill).jobs) == 2

        [fingerprint] = current_fingerprints(video_store(settings), [first.video_uri])
        ShardWriter(ready.database, ready.key).write([result(first, fingerprint=fingerprint)], [])

        assert len(select_jobs(backfill).jobs) == 1
        assert len(select_jobs(replace(backfill, request=ready.request.model_copy(update={"force": True}))).jobs) == 2


@pytest.fixture
def opened(ready_for):
    """A run, and the open plan of another one with the same manifest."""
    with ready_for() as first, ready_for() as ready:
        yield ready, Planner(first).plan()


def test_a_run_replaces_the_altered_plan_of_another_run(opened):
    ready, altered = opened
    [file] = ready.objects.list(altered.plan_uri)
    ready.objects.replace(file.uri, ready.objects.read(file.uri).replace(b"red", b"RED"))

    plan = Planner(ready).plan()

    assert open_plans(ready.database) == [plan]
    assert plan.plan_id != altered.plan_id
    assert not list(ready.objects.list(altered.plan_uri))


def with_another_key(ready):
    store = replace(ready.settings.store, mac_key=SecretStr("another key, as long as the first"))
    return replace(ready, settings=ready.settings.model_copy(update={"store": store}))


def test_a_run_with_another_key_replaces_an_idle_plan(opened):
    ready, foreign = opened

    plan = Planner(with_another_key(ready)).plan()

    assert open_plans(ready.database) == [plan]
    assert plan.plan_id != foreign.plan_id


def test_a_run_with_another_key_does_not_drop_a_plan_in_use(opened):
    ready, foreign = opened
    claim(ready.database, foreign.plan_id, Work.BOTH, holder="there", lease_s=60)

    with pytest.raises(PlanForeignError, match=r"another store\.mac_key"):
        Planner(with_another_key(ready)).plan()

    assert open_plans(ready.database) == [foreign]


def do_one_shard(ready, plan, *, labels):
    lease = claim(ready.database, plan.plan_id, Work.BOTH, holder="there", lease_s=60)
    with ready.database.begin() as connection:
        tally = {"shards_done": 1, "jobs_labelled": labels, "stage_ms.answer": 5}
        finish(connection, lease, state="done", report={"tally": tally, "gpus": 0})


@pytest.mark.usefixtures("prefect_api")  # where progress is shown
def test_a_run_that_joins_a_plan_counts_work_done_since_then_and_adds_its_later_plans(ready_for):
    with ready_for() as first, ready_for() as ready:
        engine, run_id, progress = ready.database, ready.key.run_id, Progress(processes=1)
        plan = Planner(first).plan()
        with engine.begin() as connection:
            connection.execute(SHARD.update().values(jobs=1))
            connection.execute(SHARD.insert().values(plan_id=plan.plan_id, shard_index=1, jobs=2))
        do_one_shard(first, plan, labels=1)

        def row():
            names = ("jobs_labelled", "jobs_skipped", "shards_done", "shards_total", "versions", "stage_ms")
            found = read_run(engine, run_id)
            return [found[name] for name in names]

        planner = Planner(ready)
        assert planner.plan() == plan
        update_run(engine, run_id, versions={"vllm": "1"})
        do_one_shard(ready, plan, labels=2)
        _execute_plan(plan, progress, ready, done_before=planner.done_before)
        assert row() == [2, 1, 1, 1, {"vllm": "1"}, {"answer": 5}]

        later = planner.plan()  # for nobody here has written a label
        assert later.run_id == run_id
        do_one_shard(ready, later, labels=3)
        _execute_plan(later, progress, ready, done_before=planner.done_before)
        assert row() == [5, 0, 2, 2, {"vllm": "1"}, {"answer": 10}]


@pytest.mark.parametrize(("state", "is_kept"), [("running", True), ("lost", False)])
def test_a_stopped_run_drops_a_plan_that_it_has_joined_unless_the_run_that_made_it_is_in_progress(
    ready_for, state, is_kept
):
    with ready_for() as first, ready_for() as ready:
        Planner(first).plan()
        update_run(first.database, first.key.run_id, state=state)
        joined = Planner(ready).plan()

        with pytest.raises(KeyboardInterrupt), _dropped_if_stopped(ready, joined):
            raise KeyboardInterrupt

        assert open_plans(ready.database) == [joined] * is_kept


@pytest.mark.usefixtures("prefect_api")  # where progress is shown
def test_a_plan_is_closed_after_a_short_outage_of_the_database(ready_for, database):
    with ready_for() as ready:
        plan = Planner(ready).plan()
        do_one_shard(ready, plan, labels=3)
        lose_once(database, "UPDATE")

        _execute_plan(plan, Progress(processes=1), ready, done_before=[])

        assert was_lost(ready.database)
        with ready.database.connect() as connection:
            assert connection.execute(PLAN.select()).mappings().one()["state"] == "done"


def test_what_a_joined_plan_leaves_is_planned_after_a_short_outage_of_the_database(ready_for, database):
    def execute(run, plan, progress, _done_before):
        if not is_drained(run.database, plan.plan_id):
            do_one_shard(run, plan, labels=3)
            progress.tally["jobs_labelled"] += 3

    with ready_for() as first, ready_for() as ready:
        joined = Planner(first).plan()
        do_one_shard(first, joined, labels=3)
        lose_once(database, "INSERT")

        _answer_jobs(Planner(replace(ready, prepared=replace(ready.prepared, execute=execute))), Progress(processes=1))

        assert was_lost(ready.database)
        assert not open_plans(ready.database)
        row = read_run(ready.database, ready.key.run_id)
        assert (row["shards_total"], row["jobs_skipped"]) == (1, 0)


def test_the_run_goes_on_without_a_report_while_the_database_is_down(ready_for, settings):
    with ready_for() as ready:
        nowhere = connect(DatabaseSettings(url="postgresql://localhost:1/none"))

        assert write_report_page(nowhere, ready.key.run_id, settings) is None


def test_the_work_of_a_run_is_described_for_questions_and_for_descriptions():
    assert (
        size_line("demo", total=1200, jobs=96, shards=1, model="m") == "demo: 1,200 jobs, 96 to do in 1 shard, with m."
    )


def test_a_run_that_joins_a_plan_has_what_is_left_of_it_to_do(ready_for):
    with ready_for() as first, ready_for() as ready:
        plan = Planner(first).plan()
        with ready.database.begin() as connection:
            connection.execute(SHARD.update().values(jobs=1))
            for index, state in enumerate(("extracted", "done"), 1):
                connection.execute(SHARD.insert().values(plan_id=plan.plan_id, shard_index=index, jobs=1, state=state))

        planner = Planner(ready)

        assert planner.plan() == plan
        assert planner.done_before == [2]
        assert read_run(ready.database, ready.key.run_id)["shards_total"] == 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"run": {"max_cost": 1}}, "run.max_cost needs a price: set cost.per_gpu_hour, cost.per_cpu_hour or both."),
        ({}, "No database or store is configured; set REELABEL_DATABASE_URL and REELABEL_STORE_URI"),
        ({"store": {"uri": "file:///tmp"}}, "No database or store is configured"),
        ({"database": {"url": "postgresql://h/d"}}, "No database or store is configured"),
    ],
)
def test_a_run_without_what_it_needs_is_refused_before_it_looks_for_its_manifest(settings, message):
    opened = open_run(ClassifyRequest(manifest="/gone.parquet"), Settings(**settings), prepare_questions)

    with pytest.raises(ConfigurationError, match=f"^{re.escape(message)}"), opened:
        pass
