"""A real `vllm serve` of the tiny model, and a gate before it that answers for it where a test wants."""

import json
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx

from tasks.model.identity import TINY_MODEL
from tasks.model.process import engine_environment
from tasks.model.questions import EngineConfig

KEY = "open-sesame"
NAME = "shapes"
_START_TIMEOUT_S = 240


@contextmanager
def serve_tiny_model(folder):
    """Give the URL of its API; it asks for `KEY`, and takes frame files and requests with times."""
    port = _free_port()
    log_path = folder / "vllm.log"
    command = [sys.executable, "-P", "-m", "vllm.entrypoints.openai.api_server", "--model", str(TINY_MODEL)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--api-key", KEY, "--served-model-name", NAME]
    command += ["--dtype", "float32", "--enforce-eager", "--block-size", "32", "--max-num-seqs", "16"]
    command += ["--limit-mm-per-prompt", '{"image": 16, "video": 1}']
    command += ["--media-io-kwargs", '{"video": {"video_backend": "reelabel_frames"}}']
    command += ["--trust-request-mm-kwargs", "--enable-prompt-tokens-details"]
    # By itself it takes a share of all memory, less what it holds itself: on a small machine, nothing.
    command += ["--kv-cache-memory-bytes", "256M"]
    environment = engine_environment(EngineConfig(model=str(TINY_MODEL)))
    with log_path.open("wb") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        _wait_healthy(server, f"http://127.0.0.1:{port}/health", log_path)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.terminate()
        server.wait(30)


def _free_port():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def _wait_healthy(server, url, log_path):
    deadline = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline:
        assert server.poll() is None, log_path.read_text()
        try:
            if httpx.get(url).is_success:
                return
        except httpx.TransportError:
            time.sleep(0.2)
    raise TimeoutError(log_path.read_text())


@contextmanager
def gate(url, answer=lambda _path, _body: None):
    """Give the URL of a gate before a server.

    Args:
        url: The server's.
        answer: Called with the path and the request's JSON, which it may change; gives a status and a
            message to answer with, or bytes instead of one as the whole answer, or None to pass the request on.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self._pass_on("POST", body)

        def do_GET(self):
            self._pass_on("GET", None)

        def _pass_on(self, method, body):
            refusal = answer(self.path, body)
            if refusal:
                status, content = refusal
                if isinstance(content, str):
                    content = json.dumps({"error": {"message": content, "code": status}}).encode()
            else:
                headers = {"Authorization": self.headers["Authorization"]}
                passed = httpx.request(method, f"{root}{self.path}", json=body, headers=headers, timeout=60)
                status, content = passed.status_code, passed.content
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Retry-After", "0.01")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_arguments):
            pass

    root = url.removesuffix("/v1")
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1"
        finally:
            server.shutdown()
            thread.join()
