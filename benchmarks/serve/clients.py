"""Clients of the service: as many as ask at once, each the next job as soon as it has its answer."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_TIMEOUT_S = 300
_OK, _BUSY = 200, 429


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request that was answered.

    Attributes:
        job_id: The job.
        label: Its answer.
        ended_s: When, by `time.monotonic`.
        took_ms: Milliseconds, as its client saw them.
        stage_ms: Milliseconds by stage, as the service counts them.
    """

    job_id: str
    label: str
    ended_s: float
    took_ms: float
    stage_ms: Mapping[str, float] = field(repr=False)


@dataclass(slots=True)
class Step:
    """What clients that asked at the same time got.

    Attributes:
        answered: In the order of the answers.
        refused_ms: Of each request that found no place, how long its refusal took; it was sent again after the time
            that the service named.
        faults: Answers that are neither, and connections that broke.
    """

    answered: list[Asked] = field(default_factory=list)
    refused_ms: list[float] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


def ask_all(url: str, jobs: Sequence[Mapping[str, Any]], *, clients: int) -> Step:
    """Ask all jobs, a number of them at once.

    Args:
        url: Of the service.
        jobs: The body of each request; `job_id` is left out.
        clients: How many ask at once.
    """
    step, left, lock = Step(), deque(jobs), threading.Lock()

    def ask_in_turn() -> None:
        connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=_TIMEOUT_S)
        while True:
            with lock:
                if not left:
                    break
                job = left.popleft()
            _ask(connection, job, step, lock)
        connection.close()

    threads = [threading.Thread(target=ask_in_turn) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return step


def _ask(connection: http.client.HTTPConnection, job: Mapping[str, Any], step: Step, lock: threading.Lock) -> None:
    body = json.dumps({name: value for name, value in job.items() if name != "job_id"})
    while True:
        began_s = time.monotonic()
        try:
            connection.request("POST", "/v1/classify", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            with lock:
                step.faults.append(repr(error))
            return
        ended_s = time.monotonic()
        again_s = answer.headers["Retry-After"]
        if answer.status != _BUSY or again_s is None:
            break
        with lock:
            step.refused_ms.append((ended_s - began_s) * 1e3)
        connection.close()  # the service closes idle ones
        time.sleep(float(again_s))
    with lock:
        if answer.status != _OK:
            step.faults.append(text.decode(errors="replace"))
            return
        found = json.loads(text)
        step.answered.append(
            Asked(
                job_id=job["job_id"],
                label=found["label"],
                ended_s=ended_s,
                took_ms=(ended_s - began_s) * 1e3,
                stage_ms=found["stage_ms"],
            )
        )
