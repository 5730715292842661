"""Checks that one model, the named one, answers at a server's address throughout a run.

A server may have loaded another model than the named one, may be replaced in the middle of a run, or may be several
servers behind a load balancer, and labels of another model look like any others. So fixed questions are asked at the
start, and again before labels are written: if the answers differ by more than those of one model do, what was answered
in between is not written.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reelabel.errors import ConfigurationError, JobError
from reelabel.sources.object_info import expand_home
from reelabel.text import escape_controls
from reelabel_engine.errors import ModelError
from tasks.model.adapter import is_folder
from tasks.model.identity import read_model_info
from tasks.model.server.answers import ReturnedLogprobs, read_logprobs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tasks.model.server.answers import ServedModel
    from tasks.model.server.client import ServerClient

_LOG = logging.getLogger(__name__)

PROBES = ("A or B?", "Is this A, B, C or D? Only the letter.", "Which of A and B comes first in the alphabet?")
CHECK_EVERY_S = 180.0
_REPEATS = 3  # of each probe at the start, all at once, so that they reach every server behind a load balancer
_LOWEST = -50.0  # in place of minus infinity


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """A server's facts about its model, and its answers to the probes."""

    facts: dict[str, Any]
    logprobs: list[ReturnedLogprobs]


class ModelWatch:
    """Compares a server's model with the one at the start; thread-safe."""

    def __init__(
        self,
        client: ServerClient,
        *,
        probes: Sequence[dict[str, Any]],
        encode: Callable[[str], list[int]],
        version: str | None,
        tolerance: float,
    ) -> None:
        """Ask the probes several times; `tolerance` is a mean difference of logprobs, in nats.

        Raises:
            ConfigurationError: The answers differ, as if several models shared the address.
            ServerUnavailableError: The server does not respond.
        """
        self._client, self._probes, self._encode = client, probes, encode
        self._version, self._tolerance = version, tolerance
        self._lock = threading.Lock()
        # When the last check began that found the same model, and how many connections had been lost by then.
        self._good_s, self._losses = time.monotonic(), client.connections_lost
        self._first, *others = self._take_snapshots(_REPEATS)
        drift = max(_drift(self._first, each) for each in others)
        if drift > tolerance:
            raise ConfigurationError(
                f"The server at {client.url} answers the same question in different ways (by {drift:.2g} nats, "
                f"server.probe_tolerance is {tolerance:g}), as if several models shared its address; set server.url to "
                "that of one."
            )

    def confirm(self) -> None:
        """Check that the same model still answers; concurrent callers share a check.

        Raises:
            ConfigurationError: Another one does.
            ServerUnavailableError: The server does not respond.
        """
        asked_s = time.monotonic()
        with self._lock:
            if self._good_s < asked_s:
                began_s, losses = time.monotonic(), self._client.connections_lost
                self._good_s = -math.inf  # until a check succeeds, each batch waits for one
                self._compare(*self._take_snapshots(1))
                self._good_s, self._losses = began_s, losses

    def confirm_if_due(self) -> None:
        """Check if the last check is too long ago, has failed, or a connection was lost since; raises as `confirm`."""
        if time.monotonic() - self._good_s > CHECK_EVERY_S or self._client.connections_lost > self._losses:
            self.confirm()

    def _compare(self, current: _Snapshot) -> None:
        changed = [
            f"{name} was {_quoted(self._first.facts[name])} and is {_quoted(value)}"
            for name, value in current.facts.items()
            if value != self._first.facts[name]
        ]
        drift = _drift(self._first, current)
        if drift > self._tolerance:
            changed.append(
                f"answers to fixed questions differ by {drift:.2g} nats, server.probe_tolerance is {self._tolerance:g}"
            )
        if changed:
            raise ConfigurationError(
                f"The server at {self._client.url} answers with another model than at the start "
                f"({'; '.join(changed)}), so what it answered since the last check is not written; check what it "
                "serves, then run again."
            )
        _LOG.debug("The model of %s is the same, within %.2g nats.", self._client.url, drift)

    def _take_snapshots(self, times: int) -> list[_Snapshot]:
        facts = _facts(self._client.current_model(), self._version)
        with ThreadPoolExecutor(times * len(self._probes), thread_name_prefix="probe-server") as threads:
            answers = list(threads.map(self._ask, [*self._probes] * times))
        count = len(self._probes)
        return [_Snapshot(facts, answers[at * count : (at + 1) * count]) for at in range(times)]

    def _ask(self, body: dict[str, Any]) -> ReturnedLogprobs:
        try:
            return read_logprobs(self._client.complete(body), self._encode)
        except JobError as error:
            raise ConfigurationError(
                f"The server at {self._client.url} does not answer a question that any model can answer: "
                f"{error.message}"
            ) from None


def require_named(root: str | None, named: str) -> None:
    """Raise a ConfigurationError if a server has loaded another model, as far as hub names or files tell."""
    if root is None or root == named:
        return
    theirs, ours = expand_home(root), expand_home(named)
    if is_folder(theirs) and is_folder(ours):
        try:
            is_other = read_model_info(root).identity.fingerprint != read_model_info(named).identity.fingerprint
        except ModelError:  # the server's folder of this path is on another machine
            return
    else:
        is_other = _is_hub_name(root) and _is_hub_name(named) and root.lower() != named.lower()
    if is_other:
        raise ConfigurationError(
            f"The server has loaded {_quoted(root)}, not {_quoted(named)}; set model.name to what it serves, or "
            "server.url to a server of that model."
        )


def _is_hub_name(name: str) -> bool:
    return name.count("/") == 1 and not name.startswith(("/", ".", "~")) and not is_folder(Path(name))


def _facts(model: ServedModel, version: str | None) -> dict[str, Any]:
    """Return the facts that stay the same while a model is loaded; vLLM's `created` is the time of the request."""
    facts: dict[str, Any] = {"root": model.root, "max_model_len": model.max_model_len}
    return facts if version else facts | {"created": model.created}


def _drift(one: _Snapshot, other: _Snapshot) -> float:
    """Return the mean difference of two answers' logprobs, in nats, of the probe where it is the largest."""
    return max(map(_difference, one.logprobs, other.logprobs))


def _difference(one: ReturnedLogprobs, other: ReturnedLogprobs) -> float:
    """Compare two answers token by token; a missing token counts with the lowest logprob that was returned."""
    tokens = one.logprobs.keys() | other.logprobs.keys()
    gaps = [
        abs(max(_LOWEST, one.logprobs.get(token, one.least)) - max(_LOWEST, other.logprobs.get(token, other.least)))
        for token in tokens
    ]
    return sum(gaps) / len(gaps) if gaps else math.inf


def _quoted(value: object) -> str:
    return escape_controls(str(value)[:200])
