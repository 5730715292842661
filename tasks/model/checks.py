"""What `reelabel doctor` checks of the model's backend."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import TYPE_CHECKING

from infra.checks import Check
from reelabel.errors import ReelabelError
from tasks.model.engine.process import engine_environment
from tasks.model.identity import read_model_card
from tasks.model.prompts.ambiguity import load_tokenizer
from tasks.model.protocol import EngineConfig
from tasks.model.server.backend import ServerBackend

if TYPE_CHECKING:
    from collections.abc import Iterator

    from infra.settings import Settings
    from tasks.model.engine.tuning import Tuning


def check_server(settings: Settings) -> Check:
    """Ask the server about a probe video, as a run would."""
    name, revision = settings.model.name, settings.model.revision
    try:
        encode = load_tokenizer(read_model_card(name, revision=revision)) if name else None
        with ServerBackend(settings.server, encode=encode) as asker:
            return Check(name="server", ok=True, detail=asker.wait_ready().tuning)
    except ReelabelError as error:
        return Check(name="server", ok=False, detail=error.code, advice=error.message)


_TIMEOUT_S = 180
_IMPORT = "import torch, vllm; print(vllm.__version__, 'on torch', torch.__version__, end='')"


def check_tuning(config: EngineConfig) -> Iterator[Check]:
    """Report the settings that an engine would get on this machine, and why; loads no model.

    Args:
        config: The engine's configuration.
    """
    environment = engine_environment(config)
    found = subprocess.run(
        [sys.executable, "-P", "-m", "tasks.model.engine.tuning_main"],
        input=pickle.dumps(config),
        env=environment,
        capture_output=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    if found.returncode:
        last_line = (found.stderr.decode(errors="replace").strip().splitlines() or ["no error output"])[-1]
        advice = "Cannot read the model's configuration; check model.name and model.revision."
        yield Check(name="engine settings", ok=False, detail=last_line, advice=advice)
        return
    chosen: Tuning | ReelabelError = pickle.loads(found.stdout)  # noqa: S301 - from our own process
    if isinstance(chosen, ReelabelError):
        yield Check(name="engine settings", ok=False, detail=chosen.code, advice=chosen.message)
        return
    yield Check(name="engine settings", ok=True, detail=chosen.values)
    yield Check(name="reason", ok=True, detail=chosen.reason)


def check_engine(settings: Settings) -> Iterator[Check]:
    """Check the engine and its model, or the server that replaces them; importing vLLM takes some seconds."""
    if settings.model.backend == "openai":
        yield check_server(settings)
        return
    try:
        card = read_model_card(settings.model.name, revision=settings.model.revision)
        yield Check(name="model", ok=True, detail=f"{card.identity.name} at {card.location}")
    except ReelabelError as error:
        yield Check(name="model", ok=False, detail=error.code, advice=error.message)
    try:
        environment = engine_environment(EngineConfig(model=settings.model.name or ""))
    except ReelabelError as error:
        yield Check(name="vllm", ok=False, detail=error.code, advice=error.message)
        return
    # In the engine's own environment: only there can vLLM be imported on a CPU build of torch.
    command = [sys.executable, "-P", "-c", _IMPORT]
    found = subprocess.run(  # noqa: S603 - our own command
        command, env=environment, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
    )
    last_line = (found.stderr.strip().splitlines() or ["no error output"])[-1]
    if found.returncode:
        advice = "Install reelabel-app[gpu], or requirements/cpu.txt on a machine without a GPU."
        yield Check(name="vllm", ok=False, detail=last_line, advice=advice)
    else:
        yield Check(name="vllm", ok=True, detail=found.stdout)
