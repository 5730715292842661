"""Concurrent clients of a service, and the latencies of its answers."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np

from benchmarks.harness import Column, Table
from reelabel.errors import ReelabelError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_TIMEOUT_S = 300
_OK, _BUSY = 200, 429
RATES = (
    Column("clients", "clients"),
    Column("requests", "requests", ","),
    Column("failed", "failed", ","),
    Column("requests/s", "per_s", ".1f"),
    Column("P50, ms", "p50_ms", ",.0f"),
    Column("P95, ms", "p95_ms", ",.0f"),
    Column("P99, ms", "p99_ms", ",.0f"),
    Column("P99 / P50", "tail", ".1f"),
    Column("refused", "refused", ","),
    Column("in at most, ms", "refused_ms", ",.0f"),
)


class Service(NamedTuple):
    """A route of a service; `token` is None if it needs none."""

    url: str
    route: str
    token: str | None = None

    def connect(self) -> http.client.HTTPConnection:
        """Return a connection, which opens when it is first used."""
        address = urlsplit(self.url)
        kind = http.client.HTTPSConnection if address.scheme == "https" else http.client.HTTPConnection
        return kind(address.netloc, timeout=_TIMEOUT_S)


class Body(NamedTuple):
    """The body of a request; `name` is that of its answer."""

    name: str
    data: bytes
    media_type: str = "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A request that was answered.

    Attributes:
        name: That of its body.
        fields: Its JSON.
        ended_s: When, by `time.monotonic`.
        took_ms: Milliseconds, as its client saw them.
    """

    name: str
    fields: Mapping[str, Any] = field(repr=False)
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


def ask_all(service: Service, bodies: Iterable[Body], *, clients: int) -> Step:
    """Send all bodies by so many clients at once, each the next one as soon as it has its answer."""
    step, left, lock = Step(), iter(bodies), threading.Lock()
    threads = [threading.Thread(target=_ask_in_turn, args=(service, left, step, lock)) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return step


def _ask_in_turn(service: Service, left: Iterator[Body], step: Step, lock: threading.Lock) -> None:
    connection = service.connect()
    while True:
        with lock:
            body = next(left, None)
        if body is None:
            break
        try:
            _ask(service, connection, body, step)
        except (OSError, http.client.HTTPException, ValueError) as error:  # ValueError: it is no JSON
            connection.close()
            step.errors.append(repr(error))
    connection.close()


def _ask(service: Service, connection: http.client.HTTPConnection, body: Body, step: Step) -> None:
    headers = {"Content-Type": body.media_type}
    if service.token:
        headers["Authorization"] = f"Bearer {service.token}"
    while True:
        began_s = time.monotonic()
        connection.request("POST", f"/v1/{service.route}", body.data, headers)
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
        took_ms = (ended_s - began_s) * 1e3
        step.answered.append(Answer(name=body.name, fields=json.loads(text), ended_s=ended_s, took_ms=took_ms))
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


def stage_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return the mean latency by stage, of rows of `summarize`."""
    columns = (Column("clients", "clients"), *(Column(name, name, ",.0f") for name in rows[0]["stages"]))
    return Table("Mean latency by stage, ms", [{"clients": row["clients"], **row["stages"]} for row in rows], columns)
