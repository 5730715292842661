"""What the model is sent for a question, as the engine's own processor renders it."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from reelabel_engine.environment import engine_environment, find_python
from reelabel_engine.errors import ModelError
from reelabel_engine.protocol import PreviewRequest, RenderedPrompt, decode_reply, encode

if TYPE_CHECKING:
    from pathlib import Path


def preview_prompt(request: PreviewRequest, *, timeout_s: float, python: Path | None = None) -> RenderedPrompt:
    """Render a question in a process that loads no weights; most of the seconds allowed go into importing vLLM.

    Raises:
        ConfigurationError: vLLM is not installed.
        ModelError: The model's processor cannot be loaded, or not within the timeout.
    """
    found, model = find_python(python), request.config.model
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
            f"The processor of {model} did not load within {timeout_s:g} s; raise model.start_timeout_s."
        ) from None
    rendered = decode_reply(finished.stdout) if finished.stdout and not finished.returncode else None
    if not isinstance(rendered, RenderedPrompt):
        lines = finished.stderr.decode(errors="replace").strip().splitlines()
        raise ModelError(f"Cannot load the processor of {model}: {(lines or ['its process died'])[-1]}")
    return rendered
