"""Metrics and traces: a Prometheus endpoint if configured, and OTLP if OpenTelemetry's variables are set.

All spans of a run, on whatever machine, are one trace, whose id is the run's: nothing is passed between them.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.metadata import version
from typing import TYPE_CHECKING
from uuid import UUID

from opentelemetry import metrics, trace
from opentelemetry.context import Context

from infra.logs import log_fields

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opentelemetry.sdk.metrics.export import MetricReader
    from opentelemetry.sdk.resources import Resource

    from infra.settings import MetricsSettings

_LOG = logging.getLogger("reelabel")
_OTLP = "OTEL_EXPORTER_OTLP_ENDPOINT"
_OTLP_METRICS, _OTLP_TRACES = "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
_SPAN_IDS = 1 << 64
_TRACER = "reelabel"
# Several flow runs can share a machine, each with its own endpoint.
_PORTS = 10
_starting = threading.Lock()
_started: list[int | None] = []
_root: ContextVar[UUID | None] = ContextVar("root", default=None)


def start_telemetry(settings: MetricsSettings, *, page: bool = False) -> int | None:
    """Export the metrics and traces of this process; return the port of the Prometheus endpoint.

    `page` is whether `metrics_page` is needed. Further calls have no effect. The rest is sent when the process exits.
    """
    with _starting:
        if not _started:
            port = _serve(settings) if settings.port is not None else None
            readers = _readers(is_scraped=page or port is not None)
            if readers:
                from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415

                metrics.set_meter_provider(MeterProvider(metric_readers=readers, resource=_resource()))
            if os.environ.get(_OTLP) or os.environ.get(_OTLP_TRACES):
                trace.set_tracer_provider(_tracer_provider())
            _started.append(port)
        return _started[0]


def _serve(settings: MetricsSettings) -> int | None:
    """Open the endpoint on the first free port; if that fails, log a warning, because the run matters more."""
    from prometheus_client import start_http_server  # noqa: PLC0415 - imported only if used

    assert settings.port is not None
    for port in range(settings.port, settings.port + _PORTS):
        try:
            start_http_server(port, settings.host)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                continue
            _LOG.warning("Cannot serve metrics at %s:%s: %s; fix metrics.host.", settings.host, port, error.strerror)
            return None
        return port
    _LOG.warning("Cannot serve metrics: ports %s to %s are in use; set metrics.port.", settings.port, port)
    return None


def metrics_page() -> tuple[bytes, str]:
    from prometheus_client import CONTENT_TYPE_LATEST, generate_latest  # noqa: PLC0415 - imported only if used

    return generate_latest(), CONTENT_TYPE_LATEST


def _readers(*, is_scraped: bool) -> list[MetricReader]:
    readers: list[MetricReader] = []
    if is_scraped:
        from opentelemetry.exporter.prometheus import PrometheusMetricReader  # noqa: PLC0415 - imported only if used

        readers.append(PrometheusMetricReader(scope_info_enabled=False))
    if os.environ.get(_OTLP) or os.environ.get(_OTLP_METRICS):
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter  # noqa: PLC0415
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader  # noqa: PLC0415

        readers.append(PeriodicExportingMetricReader(OTLPMetricExporter()))
    return readers


def _tracer_provider() -> trace.TracerProvider:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    from opentelemetry.sdk.trace.id_generator import RandomIdGenerator  # noqa: PLC0415

    class Ids(RandomIdGenerator):
        """Random, but for the first span of a run."""

        def generate_trace_id(self) -> int:
            root = _root.get()
            return root.int if root else super().generate_trace_id()

        def generate_span_id(self) -> int:
            root = _root.get()
            return root.int % _SPAN_IDS if root else super().generate_span_id()

    class OurSpans(BatchSpanProcessor):
        """Without Prefect's, which would begin a trace for each task."""

        def on_end(self, span: ReadableSpan) -> None:
            if span.instrumentation_scope and span.instrumentation_scope.name == _TRACER:
                super().on_end(span)

    provider = TracerProvider(resource=_resource(), id_generator=Ids())
    provider.add_span_processor(OurSpans(OTLPSpanExporter()))
    return provider


def _resource() -> Resource:
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415

    named = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": "reelabel"}
    return Resource.create(named | {"service.version": version("reelabel")})


@contextmanager
def run_traced(run_id: UUID, name: str) -> Iterator[None]:
    """Record the first span of a run's trace while the body runs."""
    token = _root.set(run_id)
    try:
        span = trace.get_tracer(_TRACER).start_span(name, Context(), attributes={"reelabel.run": str(run_id)})
    finally:
        _root.reset(token)
    with _current(span):
        yield


@contextmanager
def traced(name: str) -> Iterator[None]:
    """Record a span of what the body's log lines are about: of their run, plan and shard."""
    known = log_fields()
    run = UUID(str(known["run"])) if "run" in known else None
    context = None
    if run and trace.get_current_span().get_span_context().trace_id != run.int:
        first = trace.SpanContext(
            run.int, run.int % _SPAN_IDS, is_remote=True, trace_flags=trace.TraceFlags(trace.TraceFlags.SAMPLED)
        )
        context = trace.set_span_in_context(trace.NonRecordingSpan(first))
    attributes = {f"reelabel.{field}": str(value) for field, value in known.items()}
    span = trace.get_tracer(_TRACER).start_span(name, context, attributes=attributes)
    with _current(span):
        yield


@contextmanager
def _current(span: trace.Span) -> Iterator[None]:
    """Make a span the current one; an error sets its status to the error's type, as its text may contain addresses."""
    with trace.use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
        try:
            yield
        except BaseException as error:
            span.set_status(trace.StatusCode.ERROR, type(error).__name__)
            raise
