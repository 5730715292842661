"""`reelabel demo`: the main job, as production would run it, on clips made here."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from flows.commands.opened import services
from flows.commands.run import submit_and_watch
from flows.commands.scheduler import prefect_ready
from flows.commands.summary import print_summary
from flows.commands.terminal import OUT, say
from infra.database import connect
from infra.embedded import ServiceName, login_path, status
from infra.objects import ObjectStore
from infra.uri import absolute_uri
from tasks.demo.clips import make_demo
from tasks.results.read import read_results
from tasks.results.runs import find_run
from tasks.results.schema import prepare_database
from tools.tiny_model.evaluate import accuracy_table, evaluate, faults, make_evaluation

if TYPE_CHECKING:
    import polars as pl

    from infra.settings import Settings

_SEED = 30_000  # neither the training's clips nor the evaluation's


def run_demo(*, model: str | None, clips: int, keep: bool, measure: bool) -> int:
    """Run the whole demo; gives the exit code."""
    with services(*ServiceName, keep=keep, own=True) as started, prefect_ready(started):
        prepare_database(started.database)
        manifest, jobs = _upload_clips(started, clips, measure=measure)
        from flows.deploy import deploy_flows  # noqa: PLC0415 - see prefect_ready

        say(f"Deployed {', '.join(deploy_flows(started))}.")
        # Forced: a second demo shows the frame cache and the engine at work again, not "nothing to do".
        parameters = {
            "manifest": manifest,
            "dataset": "measure" if measure else "demo",
            "model": absolute_uri(model) if model and Path(model).expanduser().is_dir() else model,
            "force": True,
        }
        run_id = submit_and_watch("classify/on-demand", parameters, started)
        code = print_summary(started, run_id)
        if measure:
            code = max(code, _print_accuracy(started, jobs))
    if not any(service.is_running for service in status(started.home)):
        say("Stopped what was started; `reelabel up` brings the Prefect pages back.")
    else:
        say(f"Prefect's pages ask for a login: it is what stands in {login_path(started.home)}.")
    return code


def _upload_clips(settings: Settings, clips: int, *, measure: bool) -> tuple[str, pl.DataFrame]:
    """Make clips and their manifest, and put both on the store; gives the manifest's URI and rows."""
    assert settings.store.uri is not None
    objects = ObjectStore(settings.store, settings.web)
    root = settings.store.uri.rstrip("/") + ("/measure" if measure else "/demo")
    with TemporaryDirectory(prefix="reelabel-") as folder, OUT.status("Making clips"):
        if measure:
            jobs = make_evaluation(Path(folder), uri_prefix=root)
        else:
            jobs = make_demo(Path(folder), seed=_SEED, clips=clips, uri_prefix=root)
        for path in sorted(Path(folder).iterdir()):
            objects.replace(f"{root}/{path.name}", path.read_bytes())
    videos = jobs["video_uri"].n_unique()
    say(f"Made {videos} clips and {len(jobs)} jobs, and put them on {root}.")
    return f"{root}/manifest.parquet", jobs


def _print_accuracy(settings: Settings, jobs: pl.DataFrame) -> int:
    """Print accuracy beside its two controls; 1 where a score misses its target."""
    engine = connect(settings.database)
    try:
        run = find_run(engine, "last")
        labels = read_results(engine, dataset=run["dataset"], spec_id=run["spec_id"])
    finally:
        engine.dispose()
    label_of = dict(labels.select("job_id", "label").iter_rows())
    scores = evaluate(jobs, lambda rows: [label_of.get(row["job_id"], "") for row in rows])
    OUT.print(accuracy_table(scores))
    missed = faults(scores)
    for fault in missed:
        say((fault, "red"))
    return 1 if missed else 0
