"""Measures `reelabel serve` by the number of concurrent clients, compared with the flow on the same videos."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np

from benchmarks.harness import Column, Row, Table, Target
from benchmarks.media.footage import make_footage
from benchmarks.models import model_folder
from benchmarks.pipeline.flow import FlowRun
from benchmarks.pipeline.workload import WARM_UP_CLIPS, upload, uri_of, workload_of
from infra.embedded import export
from reelabel.errors import ReelabelError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from infra.settings import Settings
    from tasks.domain import Job

_SIDE_PX = 240
_TIMEOUT_S, _STOP_S = 300, 30
_OK, _BUSY = 200, 429
_ADDRESS = re.compile(r"at (http://\S+);")
# To reach: this share of the flow's rate with so many clients; and tails of at most so many medians.
_SHARE, _AT_CLIENTS, _TAIL = 0.9, 16, 3.0
_RATES = (
    Column("clients", "clients"),
    Column("requests", "requests", ","),
    Column("failed", "failed", ","),
    Column("wrong", "wrong", ","),
    Column("requests/s", "per_s", ".1f"),
    Column("of the flow", "of_flow", ".2f"),
    Column("P50, ms", "p50_ms", ",.0f"),
    Column("P95, ms", "p95_ms", ",.0f"),
    Column("P99, ms", "p99_ms", ",.0f"),
    Column("P99 / P50", "tail", ".1f"),
    Column("refused", "refused", ","),
    Column("in at most, ms", "refused_ms", ",.0f"),
)


def measure_serve(
    settings: Settings,
    folder: Path,
    counts: Sequence[int],
    *,
    requests: int,
    model: str,
    show: Callable[[str], None],
) -> tuple[list[Table], list[Target]]:
    """Measure the flow on all videos, and the service with each number of clients on its own share of them.

    No question is asked twice of one engine, so that no cached prefix helps. The first half of a step's requests is
    thrown away. The service has an empty cache of frames.
    """
    clips = make_footage(folder, count=WARM_UP_CLIPS + requests * len(counts), width_px=_SIDE_PX, height_px=_SIDE_PX)
    chosen = settings.model.model_copy(update={"name": str(model_folder(model, folder)), "dtype": "float32"})
    settings = settings.model_copy(update={"model": chosen})
    workload = workload_of(settings, clips)
    root_uri = f"{settings.store.uri}/serve"
    manifest_uri = upload(workload, settings.store, root_uri)
    show("the flow")
    cache_uri = f"{root_uri}/cache"
    flow = FlowRun(workload=workload, settings=settings, manifest_uri=manifest_uri, cache_uri=cache_uri, name="serve")
    timing = flow.run(1)
    labels = {job.job_id: job.choices[choice or 0] for job, choice in zip(workload.jobs, timing.labels, strict=True)}
    store = replace(settings.store, uri=f"{cache_uri}/of-the-service")
    rows = []
    with _serving(settings.model_copy(update={"store": store})) as url:
        show("the service: warm-up")
        ask_all(url, (_request(job, root_uri) for job in workload.warm_up), clients=1)
        for place, count in enumerate(counts):
            show(f"the service: {count} clients")
            jobs = workload.jobs[place * requests : (place + 1) * requests]
            step = ask_all(url, (_request(job, root_uri) for job in jobs), clients=count)
            row = summarize(count, step)
            wrong = sum(answer.fields["label"] != labels[answer.job_id] for answer in step.answered)
            rows.append(row | {"wrong": wrong, "of_flow": row["per_s"] / timing.jobs_per_s})
    title = f"{model}; the flow on the same {len(workload.jobs):,} videos: {timing.jobs_per_s:.1f} jobs/s"
    stages = (_RATES[0], *(Column(name, name, ",.0f") for name in rows[0]["stages"]))
    by_stage = [{"clients": row["clients"], **row["stages"]} for row in rows]
    tables = [Table(title, rows, _RATES), Table("Mean latency by stage, ms", by_stage, stages)]
    return tables, targets(rows, rated=settings.serve.max_requests)


def targets(rows: Sequence[Row], *, rated: int) -> list[Target]:
    """Return what is to be reached; `rated` is the number of slots of the service, beyond which it refuses."""
    found = []
    for row in rows:
        who = f"{row['clients']} clients"
        found += [Target(f"{who}: {name} requests", row[name], most=0) for name in ("failed", "wrong")]
        if row["clients"] <= rated:
            found.append(Target(f"{who}: refused requests, of no more than there are slots", row["refused"], most=0))
            found.append(Target(f"{who}: P99 / P50", row["tail"], most=_TAIL))
        if row["clients"] == _AT_CLIENTS:
            found.append(Target(f"{who}: share of the flow's rate", row["of_flow"], least=_SHARE))
    return found


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


class Request(NamedTuple):
    job_id: str
    body: bytes


def _request(job: Job, root_uri: str) -> Request:
    asked = {"video_uri": uri_of(job.video_uri, root_uri), "prompt": job.prompt, "choices": list(job.choices)}
    return Request(job.job_id, json.dumps(asked).encode())


class Answer(NamedTuple):
    """The JSON that answers a request; when it came, by `time.monotonic`, and after how many milliseconds."""

    job_id: str
    fields: dict[str, Any]
    ended_s: float
    took_ms: float


@dataclass(slots=True)
class Step:
    """What clients that asked at the same time got.

    Attributes:
        answered: In the order of the answers.
        refused_ms: Of each request that found no slot, how long its refusal took; it was sent again after the time
            that the service named.
        errors: Answers that are neither, and connections that broke.
    """

    answered: list[Answer] = field(default_factory=list)
    refused_ms: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


def ask_all(url: str, requests: Iterable[Request], *, clients: int) -> Step:
    """Send all requests by so many clients at once, each the next one as soon as it has its answer."""
    step, left, lock = Step(), iter(requests), threading.Lock()

    def ask_in_turn() -> None:
        connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=_TIMEOUT_S)
        while True:
            with lock:
                request = next(left, None)
            if request is None:
                break
            try:
                _ask(connection, request, step)
            except (OSError, http.client.HTTPException, ValueError) as error:  # ValueError: it is no JSON
                connection.close()
                step.errors.append(repr(error))
        connection.close()

    threads = [threading.Thread(target=ask_in_turn) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return step


def _ask(connection: http.client.HTTPConnection, request: Request, step: Step) -> None:
    while True:
        began_s = time.monotonic()
        connection.request("POST", "/v1/classify", request.body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        ended_s = time.monotonic()
        again_s = answer.headers["Retry-After"]
        if answer.status != _BUSY or again_s is None:
            break
        step.refused_ms.append((ended_s - began_s) * 1e3)
        connection.close()  # the service closes idle ones
        time.sleep(float(again_s))
    if answer.status == _OK:
        step.answered.append(Answer(request.job_id, json.loads(text), ended_s, (ended_s - began_s) * 1e3))
    else:
        step.errors.append(text.decode(errors="replace"))


def summarize(clients: int, step: Step) -> dict[str, Any]:
    """Return rates, latencies and their means by stage, of the second half of a step.

    `outside` is what the service does not see of the latency.
    """
    half = len(step.answered) // 2
    if not half:
        last = step.errors[-1] if step.errors else "none"
        raise ReelabelError(f"The service answered {len(step.answered)} requests; its last error: {last}")
    measured = step.answered[half:]
    took_ms = np.array([each.took_ms for each in measured])
    stages = Counter[str]()
    for each in measured:
        stages.update(each.fields["stage_ms"])
    by_stage = {name: ms / len(measured) for name, ms in stages.items()}
    p50, p95, p99 = map(float, np.percentile(took_ms, [50, 95, 99]))
    return {
        "clients": clients,
        "requests": len(measured),
        "refused": len(step.refused_ms),
        "refused_ms": max(step.refused_ms, default=None),
        "failed": len(step.errors),
        "per_s": len(measured) / (measured[-1].ended_s - step.answered[half - 1].ended_s),
        "p50_ms": p50,
        "p95_ms": p95,
        "p99_ms": p99,
        "tail": p99 / p50,
        "stages": by_stage | {"outside": float(took_ms.mean()) - sum(by_stage.values())},
    }
