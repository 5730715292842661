"""OpenTelemetry metrics of the service."""

from __future__ import annotations

from opentelemetry import metrics

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)

_METER = metrics.get_meter("reelabel")
_requests = _METER.create_counter("reelabel.requests", "{request}", "Requests that ended, by route and outcome.")
_durations = _METER.create_histogram(
    "reelabel.request.duration",
    "s",
    "Seconds from the first byte of a request to its answer, by route.",
    explicit_bucket_boundaries_advisory=_SECONDS,
)
_in_progress = _METER.create_up_down_counter(
    "reelabel.requests.under_way", "{request}", "Requests in progress, by route."
)


def request_begins(route: str) -> None:
    """Count a request as in progress."""
    _in_progress.add(1, {"route": route})


def request_ends(route: str, outcome: str, took_s: float) -> None:
    """Count a request that has ended.

    Args:
        route: `classify` or `analyze`.
        outcome: `answered`, or the code of its refusal.
        took_s: Seconds in its place.
    """
    _in_progress.add(-1, {"route": route})
    _requests.add(1, {"route": route, "outcome": outcome})
    _durations.record(took_s, {"route": route})


def request_refused(route: str) -> None:
    """Count a request that found no place."""
    _requests.add(1, {"route": route, "outcome": "busy"})
