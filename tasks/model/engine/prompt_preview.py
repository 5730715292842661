"""Show what the model is sent for one question, down to its tokens; runs in a process that loads no weights."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import TYPE_CHECKING

from reelabel_engine.environment import engine_environment
from reelabel_engine.errors import ModelError

if TYPE_CHECKING:
    from reelabel_engine.preview import PreviewRequest, RenderedPrompt


def preview_prompt(request: PreviewRequest, *, timeout_s: float) -> RenderedPrompt:
    """Render a question with the engine's own tokenizer and processor, without the engine.

    Most of the seconds allowed go into importing vLLM.

    Raises:
        ConfigurationError: vLLM is not installed.
        ModelError: The model's processor cannot be loaded, or not within the timeout.
    """
    command = [sys.executable, "-P", "-m", "reelabel_engine.preview_main"]
    environment = engine_environment(request.config)
    try:
        finished = subprocess.run(  # noqa: S603 - our own module
            command,
            input=pickle.dumps(request),
            env=environment,
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ModelError(
            f"The processor of {request.config.model} did not load within {timeout_s:g} s; raise model.start_timeout_s."
        ) from None
    if finished.returncode or not finished.stdout:
        last_line = (finished.stderr.decode(errors="replace").strip().splitlines() or ["its process died"])[-1]
        raise ModelError(f"Cannot load the processor of {request.config.model}: {last_line}")
    rendered: RenderedPrompt = pickle.loads(finished.stdout)  # noqa: S301 - from our own process
    return rendered
