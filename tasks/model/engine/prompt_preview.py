"""What one process answers that loads no weights: what the model is sent for a question, and the engine's settings."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from reelabel_engine.environment import engine_environment, find_python
from reelabel_engine.errors import ModelError
from reelabel_engine.protocol import EngineFailure, RenderedPrompt, decode_reply, encode

if TYPE_CHECKING:
    from pathlib import Path

    from reelabel_engine.protocol import PreviewRequest, Reply, TuningRequest


def preview_prompt(request: PreviewRequest, *, timeout_s: float, python: Path | None = None) -> RenderedPrompt:
    """Render a question with the engine's own tokenizer and processor, without the engine.

    Raises:
        ConfigurationError: vLLM is not installed.
        ModelError: The model's processor cannot be loaded, or not within the timeout.
    """
    reply = ask_once(request, timeout_s=timeout_s, python=python)
    if not isinstance(reply, RenderedPrompt):
        fault = reply.message if isinstance(reply, EngineFailure) else "its process died"
        raise ModelError(f"Cannot load the processor of {request.config.model}: {fault}")
    return reply


def ask_once(request: PreviewRequest | TuningRequest, *, timeout_s: float, python: Path | None = None) -> Reply:
    """Answer a request in a process of its own; most of the seconds allowed go into importing vLLM.

    Returns:
        The reply, or an `EngineFailure` with the last line of the process's errors.

    Raises:
        ConfigurationError: vLLM is not installed.
        ModelError: It takes longer.
    """
    found = find_python(python)
    try:
        finished = subprocess.run(  # noqa: S603 - our own module
            [found.path, "-P", "-m", "reelabel_engine.once"],
            input=encode(request),
            env=engine_environment(request.config, found),
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ModelError(
            f"The processor of {request.config.model} did not load within {timeout_s:g} s; raise model.start_timeout_s."
        ) from None
    if finished.returncode or not finished.stdout:
        lines = finished.stderr.decode(errors="replace").strip().splitlines()
        return EngineFailure(message=(lines or ["its process died"])[-1])
    return decode_reply(finished.stdout)
