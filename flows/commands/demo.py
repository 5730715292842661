"""`reelabel demo`: the main job, as production would run it, on clips made here."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from flows.commands.opened import own_settings, services
from flows.commands.scheduler import prefect_ready
from flows.commands.terminal import OUT, say
from infra.database import connect
from infra.embedded import STORE_URI, ServiceName, login_path, start, status
from infra.objects import ObjectStore
from infra.uri import absolute_uri

if TYPE_CHECKING:
    from concurrent.futures import Executor

    import polars as pl

    from infra.settings import Settings

_SEED = 30_000  # neither the training's clips nor the evaluation's
_SERVERS = (ServiceName.POSTGRES, ServiceName.S3, ServiceName.PREFECT)


def run_demo(*, model: str | None, clips: int, keep: bool, measure: bool) -> int:
    """Run the whole demo; gives the exit code."""
    root = f"{STORE_URI}/{'measure' if measure else 'demo'}"
    parameters: dict[str, object] = {
        "manifest": f"{root}/manifest.parquet",
        "dataset": "measure" if measure else "demo",
        "model": absolute_uri(model) if model and Path(model).expanduser().is_dir() else model,
        # A second demo shows the frame cache and the engine at work again, not "nothing to do".
        "force": True,
    }
    with TemporaryDirectory(prefix="reelabel-") as folder, ThreadPoolExecutor(2, "demo") as beside:
        made = beside.submit(_make_clips, Path(folder), root, clips, measure=measure)
        imported = beside.submit(_import_flows)
        with services(*_SERVERS, keep=keep, own=True) as started:
            imported.result()
            with prefect_ready(started):
                with OUT.status("Waiting for the clips"):
                    jobs = made.result()
                code = _run(started, parameters, Path(folder), jobs, beside)
                if measure:
                    code = max(code, _print_accuracy(started, jobs))
    if not any(service.is_running for service in status(started.home)):
        say("Stopped what was started; `reelabel up` brings the Prefect pages back.")
    else:
        say(f"Prefect's pages ask for a login: it is what stands in {login_path(started.home)}.")
    return code


def _run(settings: Settings, parameters: dict[str, object], folder: Path, jobs: pl.DataFrame, beside: Executor) -> int:
    """Run the deployment by a worker, which starts while the flows are deployed; gives the summary's exit code."""
    from flows.commands.run import submit, watch_submitted  # noqa: PLC0415
    from flows.commands.summary import print_summary  # noqa: PLC0415
    from flows.deploy import deploy_flows  # noqa: PLC0415 - see prefect_ready
    from tasks.results.schema import prepare_database  # noqa: PLC0415

    worker = beside.submit(start, own_settings(), wanted=frozenset(ServiceName))
    with OUT.status("Uploading the clips, deploying the flows and starting a worker"):
        prepare_database(settings.database)
        root = str(parameters["manifest"]).rpartition("/")[0]
        objects = ObjectStore(settings.store, settings.web)
        for path in sorted(folder.iterdir()):
            objects.replace(f"{root}/{path.name}", path.read_bytes())
        say(f"Made {jobs['video_uri'].n_unique()} clips and {len(jobs)} jobs, and put them on {root}.")
        say(f"Deployed {', '.join(deploy_flows(settings))}.")
        run_id = submit("classify/on-demand", parameters)
        worker.result()
    watch_submitted(run_id, settings)
    return print_summary(settings, run_id)


def _make_clips(folder: Path, root: str, clips: int, *, measure: bool) -> pl.DataFrame:
    """Make clips and their manifest, as they will be found below `root`; gives the manifest's rows."""
    if measure:
        from tasks.demo.evaluate import make_evaluation  # noqa: PLC0415

        return make_evaluation(folder, uri_prefix=root)
    from tasks.demo.clips import make_demo  # noqa: PLC0415

    return make_demo(folder, seed=_SEED, clips=clips, uri_prefix=root)


def _import_flows() -> None:
    """Import what takes seconds while the services start; `prefect_ready` has Prefect read its settings again."""
    import flows.commands.run  # noqa: PLC0415
    import flows.deploy  # noqa: F401, PLC0415


def _print_accuracy(settings: Settings, jobs: pl.DataFrame) -> int:
    """Print accuracy beside its two controls; 1 where a score misses its target."""
    from tasks.demo.evaluate import accuracy_table, evaluate, faults  # noqa: PLC0415
    from tasks.results.read import read_results  # noqa: PLC0415
    from tasks.results.runs import find_run  # noqa: PLC0415

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
