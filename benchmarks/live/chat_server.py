"""Runs vLLM's own OpenAI-compatible server, which gets the whole history with each question."""

from __future__ import annotations

import base64
import io
import json
import subprocess
import time
from contextlib import closing, contextmanager, suppress
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import httpx
from PIL import Image

from infra.processes import free_port
from reelabel_engine.environment import engine_environment, find_python
from reelabel_engine.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt

    from benchmarks.live.stream import LiveSetup
    from reelabel_engine.live_items import FramePair

_NAME = "live"
_START_TIMEOUT_S = 300
_END_TIMEOUT_S = 30
_QUALITY = 90
_MESSAGE_CHARACTERS = 500
_STEP_TOKENS = 2048  # vLLM's default for a server


class ChatServer:
    def __init__(self, url: str) -> None:
        self._client = httpx.Client(base_url=url, timeout=600)

    def first_token_ms(self, items: Sequence[FramePair], text: str, *, system_prompt: str) -> float:
        """Send all frames, as JPEGs, and a question; return the milliseconds until the first token arrives."""
        frames = ",".join(_jpeg(image) for item in items for image in item.images)
        video = {"type": "video_url", "video_url": {"url": f"data:video/jpeg;base64,{frames}"}}
        body = {
            "model": _NAME,
            "messages": [
                {"role": "system", "content": system_prompt},
                {"role": "user", "content": [video, {"type": "text", "text": text}]},
            ],
            "max_tokens": 1,
            "temperature": 0,
            "stream": True,
        }
        began_s = time.perf_counter()
        try:
            with self._client.stream("POST", "/v1/chat/completions", json=body) as response:
                if response.is_error:
                    raise ModelError(_refusal(response.read().decode(errors="replace")))
                for line in response.iter_lines():
                    if line.startswith("data: {") and _has_token(line.removeprefix("data: ")):
                        return (time.perf_counter() - began_s) * 1e3
        except httpx.HTTPError as error:
            raise ModelError(f"vLLM's server does not answer: {error}.") from None
        raise ModelError("vLLM's server sent no token.")

    def close(self) -> None:
        self._client.close()


def _has_token(text: str) -> bool:
    """Return whether a chunk is of a token; some have no text."""
    chunk = json.loads(text)
    if "choices" not in chunk:
        raise ModelError(_refusal(text))
    return any(each["finish_reason"] or each["delta"].get("content") for each in chunk["choices"])


def _refusal(text: str) -> str:
    """Return what a server says in place of an answer."""
    with suppress(ValueError, TypeError, KeyError):
        text = str(json.loads(text)["error"]["message"])
    return f"vLLM's server refuses the question: {text[:_MESSAGE_CHARACTERS]}"


def _jpeg(image: npt.NDArray[np.uint8]) -> str:
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=_QUALITY)
    return base64.b64encode(file.getvalue()).decode()


@contextmanager
def serve_chat(setup: LiveSetup, folder: Path, *, prompt_tokens: int) -> Iterator[ChatServer]:
    """Start a server with the same model; prompts are cached as vLLM does by default.

    A step also limits a video: what is encoded of it must fit into a cache of as many tokens. So a step holds the
    longest prompt.

    Args:
        setup: The model.
        folder: Where it logs.
        prompt_tokens: Tokens of the longest prompt.
    """
    config, port = setup.config, free_port()
    command = [find_python().path, "-P", "-m", "vllm.entrypoints.openai.api_server", "--model", config.model]
    command += ["--host", "127.0.0.1", "--port", str(port), "--served-model-name", _NAME]
    command += ["--load-format", config.load_format, "--dtype", config.dtype, "--enforce-eager", "--block-size", "32"]
    command += ["--limit-mm-per-prompt", '{"image": 0, "video": 1}', "--kv-cache-memory-bytes", "1G"]
    command += ["--media-io-kwargs", '{"video": {"num_frames": -1}}']
    if prompt_tokens > _STEP_TOKENS:
        command += ["--max-num-batched-tokens", str(prompt_tokens)]
    log_path = folder / "live-chat.log"
    with TemporaryDirectory(prefix="vllm-", ignore_cleanup_errors=True) as temporary:  # where it leaves its sockets
        environment = engine_environment(config) | {"TMPDIR": temporary}
        with log_path.open("wb") as log:
            server = subprocess.Popen(command, env=environment, stdout=log, stderr=log)  # noqa: S603 - our own command
        try:
            url = f"http://127.0.0.1:{port}"
            _wait_healthy(server, url, log_path)
            with closing(ChatServer(url)) as chat:
                yield chat
        finally:
            server.terminate()
            try:
                server.wait(_END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def _wait_healthy(server: subprocess.Popen[bytes], url: str, log_path: Path) -> None:
    ends_s = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < ends_s and server.poll() is None:
        try:
            if httpx.get(f"{url}/health", timeout=5).is_success:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.5)
    raise ModelError(f"vLLM's server did not start; see {log_path}.")
