"""A real vLLM server with the tiny model, and a proxy that can answer requests in its place."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx

from infra.processes import free_port
from reelabel_engine.environment import engine_environment
from reelabel_engine.protocol import EngineConfig
from tasks.model.identity import TINY_MODEL
from tests.engine_python import engine_python
from tests.http_server import Handler, serve
from tests.shared import shared
from tests.wait import until

KEY = "open-sesame"
NAME = "shapes"
# What `gate` may do in place of an answer.
DROPPED = 0
CUT = b'{"choices": [{"logprobs": {"content": '
_MAX_ATTEMPTS = 3
_START_TIMEOUT_S = 240
_STOP_TIMEOUT_S = 30


@contextmanager
def serve_tiny_model(folder):
    """Yield the URL of its API, which requires `KEY`, and accepts frame files and requests with times.

    Concurrent callers with the same folder share the server across processes; the last one ends it.
    """

    def start():
        port, temporary = free_port(), tempfile.mkdtemp(prefix="vllm-")  # a short path, for its sockets
        with (folder / "vllm.log").open("wb") as log:
            environment = engine_environment(EngineConfig(model=str(TINY_MODEL))) | {"TMPDIR": temporary}
            server = subprocess.Popen(_command(port), env=environment, stdout=log, stderr=log, start_new_session=True)
        try:
            log_path, url = folder / "vllm.log", f"http://127.0.0.1:{port}/health"
            until(lambda: _is_healthy(server, url, log_path), _START_TIMEOUT_S, details=log_path.read_text)
        except BaseException:
            server.kill()
            server.wait()
            shutil.rmtree(temporary)
            raise
        return {"pid": server.pid, "url": f"http://127.0.0.1:{port}/v1", "temporary": temporary}

    def end(server):
        _end(server["pid"])
        shutil.rmtree(server["temporary"])  # it leaves its sockets, and `vllm_dist_*`

    with shared(folder / "vllm.json", start, end) as server:
        yield server["url"]


def _command(port):
    command = [engine_python(), "-P", "-m", "vllm.entrypoints.openai.api_server", "--model", str(TINY_MODEL)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--api-key", KEY, "--served-model-name", NAME]
    command += ["--dtype", "float32", "--enforce-eager", "--block-size", "32", "--max-num-seqs", "16"]
    command += ["--limit-mm-per-prompt", '{"image": 16, "video": 4}']
    command += ["--media-io-kwargs", '{"video": {"video_backend": "reelabel_frames"}}']
    # As our own engine's; a request by OpenAI's API cannot say so.
    command += ["--structured-outputs-config", '{"backend": "xgrammar", "disable_any_whitespace": true}']
    command += ["--trust-request-mm-kwargs", "--enable-prompt-tokens-details"]
    # The default is a share of all memory minus vLLM's own, which leaves nothing on a small machine.
    return [*command, "--kv-cache-memory-bytes", "256M"]


def _end(pid):
    """End the server and its child processes; its parent may be another process."""
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + _STOP_TIMEOUT_S
    while _is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _is_alive(pid):
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def _is_healthy(server, url, log_path):
    assert server.poll() is None, log_path.read_text()
    with suppress(httpx.TransportError):
        return httpx.get(url).is_success
    return False


def _forward(client, method, url, **request):
    """Forward a request, again if the server resets the connection, as a busy one does now and then."""
    for _ in range(_MAX_ATTEMPTS - 1):
        with suppress(httpx.ReadError):
            return client.request(method, url, **request)
    return client.request(method, url, **request)


def without_token_ids(_path, body):
    """Answer for a server of another make, which returns only its most likely tokens: see `gate`."""
    if body and "logprob_token_ids" in body:
        return 400, "Unknown parameter: logprob_token_ids"
    return None


@contextmanager
def gate(url, answer=lambda _path, _body: None, *, headers=None):
    """Yield the URL of a proxy in front of a server.

    Args:
        url: URL of the server.
        answer: Called with the path and the request's JSON, which it may change. Returns None to forward the request,
            or a status and the response: bytes for the whole body, or text for an error message. `DROPPED` as the
            status ends the connection, and `CUT` as the response ends it in the middle of the body.
        headers: Added to such responses.
    """

    class Passing(Handler):
        def do_POST(self):
            self._pass_on("POST", json.loads(self.read_body()))

        def do_GET(self):
            self._pass_on("GET", None)

        def _pass_on(self, method, body):
            refusal = answer(self.path, body)
            if refusal:
                status, content = refusal
                if status is DROPPED:
                    return
                if isinstance(content, str):
                    content = json.dumps({"error": {"message": content, "code": status}}).encode()
            else:
                key = {"Authorization": self.headers["Authorization"]}
                reply = _forward(client, method, f"{root}{self.path}", json=body, headers=key)
                status, content = reply.status_code, reply.content
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content) + (content is CUT)))
            self.send_header("Retry-After", "0.01")
            for name, value in (headers or {}).items() if refusal else ():
                self.send_header(name, value)
            self.end_headers()
            with suppress(BrokenPipeError, ConnectionResetError):  # the client may have given up
                self.wfile.write(content)

    root = url.removesuffix("/v1")
    # A client for each request would make a TLS context each time, which takes 20 ms.
    limits = httpx.Limits(max_keepalive_connections=0)
    with httpx.Client(timeout=60, limits=limits) as client, serve(Passing) as server:
        yield f"{server.url}/v1"
