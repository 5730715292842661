"""Measures `reelabel serve` by number of clients, compared with the flow on the same videos.

Or to a service at any address, without the flow.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any

from benchmarks.harness import Column, Table, Target
from benchmarks.media.footage import make_footage
from benchmarks.models import model_folder
from benchmarks.pipeline.flow import FlowRun
from benchmarks.pipeline.workload import WARM_UP_CLIPS, make_jobs, upload, uri_of, workload_of
from benchmarks.serve.client import RATES, Body, Service, ask_all, stage_table, summarize
from infra.embedded import export

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from infra.settings import Settings
    from tasks.domain import Job

_SIDE_PX = 240
_STOP_S = 30
_ADDRESS = re.compile(r"at (http://\S+);")
_CLIPS = 64  # each is sent with other bytes at its end, so that no service has seen it
_BOUNDARY = "reelabel-benchmark"
# To reach: this share of the flow's rate with so many clients; and tails of at most so many medians.
_SHARE, _AT_CLIENTS, _TAIL = 0.9, 16, 3.0
_AGAINST_FLOW = (
    *RATES[:3],
    Column("wrong", "wrong", ","),
    RATES[3],
    Column("of the flow", "of_flow", ".2f"),
    *RATES[4:],
)


def measure_address(
    service: Service, folder: Path, counts: Sequence[int], *, requests: int, show: Callable[[str], None]
) -> tuple[list[Table], list[Target]]:
    """Upload clips to a service with each number of clients; the first half of each step is thrown away."""
    clips = cycle(make_footage(folder, count=_CLIPS, width_px=_SIDE_PX, height_px=_SIDE_PX))
    bodies = (_form(service.route, clip) for clip in clips)
    show("warm-up")
    ask_all(service, islice(bodies, WARM_UP_CLIPS), clients=1)
    rows = []
    for count in counts:
        show(f"{count} clients")
        rows.append(summarize(count, ask_all(service, islice(bodies, requests), clients=count)))
    targets = [Target(f"{row['clients']} clients: failed requests", row["failed"], most=0) for row in rows]
    return [Table(f"{service.url}, {service.route}: clips that are uploaded", rows, RATES), stage_table(rows)], targets


def _form(route: str, clip: Path) -> Body:
    """Return the upload of a clip, which differs from all others by a box that players skip."""
    [job] = make_jobs([clip])
    request = {"prompt": job.prompt, "choices": list(job.choices)} if route == "classify" else {}
    head = f"--{_BOUNDARY}\r\nContent-Disposition: form-data; name=".encode()
    parts = (
        *(head, b'"request"\r\n\r\n', json.dumps(request).encode(), b"\r\n"),
        *(head, b'"video"; filename="clip.mp4"\r\n\r\n', clip.read_bytes()),
        *((24).to_bytes(4, "big"), b"free", os.urandom(16), f"\r\n--{_BOUNDARY}--\r\n".encode()),
    )
    return Body(clip.stem, b"".join(parts), f"multipart/form-data; boundary={_BOUNDARY}")


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
        service = Service(url, "classify")
        ask_all(service, (_body(job, root_uri) for job in workload.warm_up), clients=1)
        for place, count in enumerate(counts):
            show(f"the service: {count} clients")
            jobs = workload.jobs[place * requests : (place + 1) * requests]
            step = ask_all(service, (_body(job, root_uri) for job in jobs), clients=count)
            row = summarize(count, step)
            wrong = sum(answer.fields["label"] != labels[answer.name] for answer in step.answered)
            rows.append(row | {"wrong": wrong, "of_flow": row["per_s"] / timing.jobs_per_s})
    title = f"{model}; the flow on the same {len(workload.jobs):,} videos: {timing.jobs_per_s:.1f} jobs/s"
    tables = [Table(title, rows, _AGAINST_FLOW), stage_table(rows)]
    return tables, targets(rows, rated=settings.serve.max_requests)


def targets(rows: Sequence[Mapping[str, Any]], *, rated: int) -> list[Target]:
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


def _body(job: Job, root_uri: str) -> Body:
    uri = uri_of(job.video_uri, root_uri)
    request = {"video_uri": uri, "prompt": job.prompt, "choices": list(job.choices)}
    return Body(job.job_id, json.dumps(request).encode())


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
