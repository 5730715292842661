"""Export of metrics: a Prometheus endpoint if configured, and OTLP if OpenTelemetry's variables are set."""

from __future__ import annotations

import errno
import logging
import os
import threading
from importlib.metadata import version
from typing import TYPE_CHECKING

from opentelemetry import metrics

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricReader

    from infra.settings import MetricsSettings

_LOG = logging.getLogger("reelabel")
_OTLP_VARIABLES = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")
# Several flow runs can share a machine, each with its own endpoint.
_PORTS = 10
_starting = threading.Lock()
_started: list[int | None] = []


def start_metrics(settings: MetricsSettings, *, page: bool = False) -> int | None:
    """Start exporting the metrics of this process, also to a page of our own (`metrics_page`) if it is asked for.

    Further calls have no effect. Pending metrics are sent when the process exits.

    Returns:
        The port of the Prometheus endpoint; None if there is none.
    """
    with _starting:
        if not _started:
            port = _serve(settings) if settings.port is not None else None
            readers = [*_prometheus_readers(wanted=page or port is not None), *_otlp_readers()]
            if readers:
                _provide(readers)
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
    """Return the metrics of this process in Prometheus' text format, and its media type."""
    from prometheus_client import CONTENT_TYPE_LATEST, generate_latest  # noqa: PLC0415 - imported only if used

    return generate_latest(), CONTENT_TYPE_LATEST


def _prometheus_readers(*, wanted: bool) -> list[MetricReader]:
    if not wanted:
        return []
    from opentelemetry.exporter.prometheus import PrometheusMetricReader  # noqa: PLC0415

    return [PrometheusMetricReader(scope_info_enabled=False)]


def _otlp_readers() -> list[MetricReader]:
    if not any(os.environ.get(name) for name in _OTLP_VARIABLES):
        return []
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter  # noqa: PLC0415
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader  # noqa: PLC0415

    return [PeriodicExportingMetricReader(OTLPMetricExporter())]


def _provide(readers: list[MetricReader]) -> None:
    from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415

    named = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": "reelabel"}
    resource = Resource.create(named | {"service.version": version("reelabel")})
    metrics.set_meter_provider(MeterProvider(metric_readers=readers, resource=resource))
