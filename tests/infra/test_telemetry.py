"""Metrics and traces leave the process; each test has its own, as OpenTelemetry allows one provider per process."""

import os
import socket
import subprocess
import sys
from uuid import uuid4

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from infra.processes import free_port
from tests.http_server import Handler, serve

MEASURE = """
import sys, urllib.request
from opentelemetry import metrics
from infra.settings import MetricsSettings
from infra.telemetry import start_telemetry
metrics.get_meter("reelabel").create_counter("reelabel.tried").add(3)
port = start_telemetry(MetricsSettings(port=int(sys.argv[1]) or None))
assert start_telemetry(MetricsSettings()) == port
metrics.get_meter("reelabel").create_counter("reelabel.tried").add(3)
print(port)
if port:
    print(urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode())
"""


def measure(port, **variables):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")} | variables
    command = [sys.executable, "-P", "-c", MEASURE, str(port)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=True)


def test_the_next_port_is_taken_where_one_is_in_use():
    first = free_port()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", first))
        taken.listen()
        shown = measure(first).stdout

    port = int(shown.split()[0])
    assert first < port < first + 10
    assert "reelabel_tried_total 3.0" in shown


def test_without_a_port_or_variables_nothing_listens_or_is_sent():
    assert measure(0).stdout == "None\n"


@pytest.fixture
def collector():
    """A collector's address, and the metrics and traces that it was sent."""
    received = []

    class Collector(Handler):
        def do_POST(self):
            kind = {"/v1/metrics": ExportMetricsServiceRequest, "/v1/traces": ExportTraceServiceRequest}[self.path]
            received.append(kind.FromString(self.read_body()))
            self.respond(200)

    with serve(Collector) as server:
        yield server.url, received


def test_metrics_are_sent_by_otlp_if_the_standard_variable_is_set(collector):
    url, received = collector

    measure(0, OTEL_EXPORTER_OTLP_ENDPOINT=url, OTEL_EXPORTER_OTLP_COMPRESSION="none")

    [resource] = received[0].resource_metrics
    attributes = {each.key: each.value.string_value for each in resource.resource.attributes}
    names = [metric.name for scope in resource.scope_metrics for metric in scope.metrics]
    assert attributes["service.name"] == "reelabel"
    assert names == ["reelabel.tried"]


TRACE = """
import contextlib
import sys
from uuid import UUID
from opentelemetry import trace
from infra.logs import logged
from infra.settings import MetricsSettings
from infra.telemetry import run_traced, start_telemetry, traced
start_telemetry(MetricsSettings())
run = UUID(sys.argv[1])
with logged(run=run):
    if sys.argv[2] == "run":
        with run_traced(run, "classify"), logged(shard=1), traced("infer"), traced("rows"):
            with trace.get_tracer("prefect").start_as_current_span("infer-shard-1"):
                pass
        with logged(shard=3), contextlib.suppress(ValueError), traced("failing"):
            raise ValueError("https://host/x?X-Amz-Signature=abcdef")
    else:
        with logged(shard=2), traced("extract"):
            pass
"""


def test_what_a_run_does_on_several_machines_is_one_trace_with_its_id(collector):
    url, received = collector
    run = uuid4()
    for role in ("elsewhere", "run"):
        environment = os.environ | {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_EXPORTER_OTLP_COMPRESSION": "none"}
        command = [sys.executable, "-P", "-c", TRACE, str(run), role]
        subprocess.run(command, env=environment, timeout=300, check=True)

    traces = [each for each in received if isinstance(each, ExportTraceServiceRequest)]
    spans = {
        span.name: span
        for each in traces
        for resource in each.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    }
    assert "abcdef" not in str(received)
    failing = spans.pop("failing")
    assert (failing.status.code, failing.status.message, len(failing.events)) == (2, "ValueError", 0)
    assert set(spans) == {"classify", "extract", "infer", "rows"}
    assert {span.trace_id for span in spans.values()} == {run.bytes}
    first, infer = spans["classify"].span_id, spans["infer"].span_id
    parents = {name: span.parent_span_id for name, span in spans.items()}
    assert parents == {"classify": b"", "extract": first, "infer": first, "rows": infer}
    about = {each.key: each.value.string_value for each in spans["rows"].attributes}
    assert about == {"reelabel.run": str(run), "reelabel.shard": "1"}
