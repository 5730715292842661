"""OpenTelemetry metrics of live sessions."""

from __future__ import annotations

from opentelemetry import metrics

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)

_METER = metrics.get_meter("reelabel")
SESSIONS = _METER.create_up_down_counter("reelabel.live.sessions", "{session}", "Live sessions that are open.")
FRAMES = _METER.create_counter("reelabel.live.frames", "{frame}", "Frames of live sessions, by status.")
PREFILL = _METER.create_histogram(
    "reelabel.live.prefill.lag",
    "s",
    "Seconds from a kept frame to the end of its prefill.",
    explicit_bucket_boundaries_advisory=_SECONDS,
)
_first_token = _METER.create_histogram(
    "reelabel.live.first_token",
    "s",
    "Seconds from a question to the first token of its answer.",
    explicit_bucket_boundaries_advisory=_SECONDS,
)
_answers = _METER.create_counter("reelabel.live.answers", "{answer}", "Questions that ended, by outcome.")


def count_question(outcome: str, first_token_ms: float | None = None) -> None:
    _answers.add(1, {"outcome": outcome})
    if first_token_ms is not None:
        _first_token.record(first_token_ms / 1e3)
