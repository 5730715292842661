"""The flow on all videos, then the service: step by step, with more and more clients."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.pipeline.flow_run import FlowRun
from benchmarks.pipeline.workload import WARM_UP_CLIPS, Workload, make_jobs, write_manifest
from benchmarks.serve.clients import ask_all
from flows.run.spec import make_spec
from infra.embedded import export
from reelabel.sources.object_store import ObjectStore
from tasks.model.engine.vllm_backend import engine_config
from tasks.model.identity import read_model_card

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from benchmarks.serve.clients import Step
    from infra.settings import Settings
    from tasks.domain import Job

_START_S, _STOP_S = 900, 30
_ADDRESS = re.compile(r"at (http://\S+);")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRow:
    """One number of clients. Rates, latencies and shares are of the second half of the step.

    Attributes:
        clients: How many asked at once.
        requests: Requests that were answered, in the second half.
        refused: Requests that were refused with 429 and a Retry-After, and asked again later.
        refused_ms: The longest time that a refusal took, as clients see it; 0 if there was none.
        failed: Requests that failed.
        wrong: Answers that are not those of the flow.
        per_s: Requests per second.
        p50_ms: Median of the latencies, as clients see them; then the 95th and the 99th percentile.
        stages: Share of the latency by stage, 0 to 1; `outside` is what the service does not see of it.
    """

    clients: int
    requests: int
    refused: int
    refused_ms: float
    failed: int
    wrong: int
    per_s: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    stages: Mapping[str, float] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The whole measurement.

    Attributes:
        flow_per_s: Jobs per second of the flow on the same videos.
        rated: Places of the service, beyond which it refuses.
    """

    flow_per_s: float
    rated: int
    jobs: int
    rows: Sequence[StepRow]


def measure_serve(
    counts: Sequence[int],
    *,
    requests: int,
    warm: bool,
    model: Path,
    clips: Sequence[Path],
    settings: Settings,
    on_progress: Callable[[str], None],
) -> Measured:
    """Measure the flow on all videos, and the service with each number of clients on its own share of them.

    No question is asked twice of one engine, so that no cached prefix helps.

    Args:
        counts: Numbers of clients.
        requests: Requests of a step, the first half of which is thrown away.
        warm: Let the service find the flow's frames in the cache; else it has an empty cache.
        model: Model folder.
        clips: Videos: those of the warm-up, then `requests` for each step.
        settings: Of running services.
        on_progress: Called with a description of each step.
    """
    chosen = settings.model.model_copy(update={"name": str(model), "dtype": "float32"})
    settings = settings.model_copy(update={"model": chosen})
    card = read_model_card(str(model))
    workload = Workload(
        name="serve",
        engine=engine_config(card, settings),
        spec=make_spec(card, settings),
        jobs=make_jobs(clips[WARM_UP_CLIPS:], questions_per_video=1),
        warm_up=make_jobs(clips[:WARM_UP_CLIPS], questions_per_video=1),
    )
    root_uri = f"{settings.store.uri}/serve"
    manifest_uri = _upload(workload, settings, root_uri)
    on_progress("the flow")
    flow = FlowRun(
        workload=workload, settings=settings, manifest_uri=manifest_uri, cache_uri=f"{root_uri}/cache", name="serve"
    )
    timing = flow.run(1)
    labels = {job.job_id: job.choices[choice] for job, choice in zip(workload.jobs, timing.labels, strict=True)}
    cache_uri = f"{root_uri}/cache/{1 if warm else 'of the service'}"
    store = replace(settings.store, uri=cache_uri.replace(" ", "-"))
    with _serving(settings.model_copy(update={"store": store})) as url:
        on_progress("the service: warm-up")
        ask_all(url, [_body(job, root_uri) for job in workload.warm_up], clients=1)
        rows = []
        for place, count in enumerate(counts):
            on_progress(f"the service: {count} clients")
            jobs = workload.jobs[place * requests : (place + 1) * requests]
            step = ask_all(url, [_body(job, root_uri) for job in jobs], clients=count)
            rows.append(_summarize(count, step, labels))
    return Measured(flow_per_s=timing.jobs_per_s, rated=settings.serve.max_requests, jobs=len(workload.jobs), rows=rows)


def _upload(workload: Workload, settings: Settings, root_uri: str) -> str:
    """Put the videos and their manifest on the store; return the manifest's URI."""
    objects = ObjectStore(settings.store)
    for path in {job.video_uri for job in (*workload.jobs, *workload.warm_up)}:
        objects.replace(f"{root_uri}/{Path(path).name}", Path(path).read_bytes())
    with TemporaryDirectory(prefix="reelabel-") as folder:
        manifest = Path(folder) / "manifest.parquet"
        write_manifest(workload.jobs, manifest, root_uri=root_uri)
        objects.replace(f"{root_uri}/manifest.parquet", manifest.read_bytes())
    return f"{root_uri}/manifest.parquet"


def _body(job: Job, root_uri: str) -> dict[str, object]:
    uri = f"{root_uri}/{Path(job.video_uri).name}"
    return {"job_id": job.job_id, "video_uri": uri, "prompt": job.prompt, "choices": list(job.choices)}


@contextmanager
def _serving(settings: Settings) -> Iterator[str]:
    """Run `reelabel serve` in a process of its own; yield its URL."""
    command = [sys.executable, "-P", "-m", "flows.cli", "serve", "--port", "0"]
    environment = os.environ | export(settings) | {"REELABEL_SERVE_LOAD": '["classify"]'}
    log = settings.home / "logs" / "serve.log"
    with (
        log.open("w") as errors,
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True) as process,  # noqa: S603 - our own command
    ):
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if found := _ADDRESS.search(line):
                    yield found[1]
                    break
            else:
                raise RuntimeError(f"reelabel serve ended: {log.read_text()[-2000:]}")
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()


def _summarize(clients: int, step: Step, labels: Mapping[str, str]) -> StepRow:
    answered = step.answered
    half = len(answered) // 2
    measured = answered[half:]
    took_ms = np.array([each.took_ms for each in measured])
    seconds = measured[-1].ended_s - answered[half - 1].ended_s
    stages = Counter[str]()
    for each in measured:
        stages.update(dict(each.stage_ms))
    shares = {name: ms / took_ms.sum() for name, ms in stages.items()}
    p50, p95, p99 = np.percentile(took_ms, [50, 95, 99])
    return StepRow(
        clients=clients,
        requests=len(measured),
        refused=len(step.refused_ms),
        refused_ms=max(step.refused_ms, default=0.0),
        failed=len(step.faults),
        wrong=sum(each.label != labels[each.job_id] for each in answered),
        per_s=len(measured) / seconds,
        p50_ms=float(p50),
        p95_ms=float(p95),
        p99_ms=float(p99),
        stages=shares | {"outside": 1 - sum(shares.values())},
    )
