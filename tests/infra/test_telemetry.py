"""Metrics leave the process; each test has its own, because OpenTelemetry allows only one provider per process."""

import os
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from infra.processes import free_port

MEASURE = """
import sys, urllib.request
from opentelemetry import metrics
from infra.settings import MetricsSettings
from infra.telemetry import start_metrics
metrics.get_meter("reelabel").create_counter("reelabel.tried").add(3)
port = start_metrics(MetricsSettings(port=int(sys.argv[1]) or None))
assert start_metrics(MetricsSettings()) == port
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
    """A collector's address, and the metrics that it was sent."""
    received = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.append(ExportMetricsServiceRequest.FromString(body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", received
    server.shutdown()
    server.server_close()


def test_metrics_are_sent_by_otlp_if_the_standard_variable_is_set(collector):
    url, received = collector

    measure(0, OTEL_EXPORTER_OTLP_ENDPOINT=url, OTEL_EXPORTER_OTLP_COMPRESSION="none")

    [resource] = received[0].resource_metrics
    attributes = {each.key: each.value.string_value for each in resource.resource.attributes}
    names = [metric.name for scope in resource.scope_metrics for metric in scope.metrics]
    assert attributes["service.name"] == "reelabel"
    assert names == ["reelabel.tried"]
