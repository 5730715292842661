"""Whether the installed vLLM has all that the engine uses: `python -m reelabel_engine.check` lists what it lacks.

The names are those that `vllm_api` imports; the calls and attributes are listed below, as no file declares them.
"""

from __future__ import annotations

import ast
import re
import sys
from importlib import import_module
from inspect import getsource, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

# Arguments that the engine gives by name or by position, after `self`.
_CALLS = {
    "vllm.v1.engine.llm_engine:LLMEngine.add_request": ("request_id", "prompt", "params", "lora_request", "priority"),
    "vllm.v1.engine.llm_engine:LLMEngine.abort_request": ("request_ids",),
    "vllm.v1.engine.llm_engine:LLMEngine.add_lora": ("lora_request",),
    "vllm.v1.engine.llm_engine:LLMEngine.step": (),
    "vllm.lora.model_manager:LoRAModelManager.list_adapters": (),
    "vllm.lora.request:LoRARequest": ("lora_name", "lora_int_id", "lora_path"),
    "vllm:LLM.collective_rpc": ("method",),
    "vllm.engine.arg_utils:EngineArgs.create_engine_config": (),
    "vllm.engine.arg_utils:EngineArgs.create_model_config": (),
    "vllm.renderers:renderer_from_config": ("config",),
    "vllm.renderers.hf:safe_apply_chat_template": ("model_config", "tokenizer", "conversation", "tokenize"),
    "vllm.inputs.engine:mm_input": ("prompt_token_ids", "mm_kwargs", "mm_hashes", "mm_placeholders", "cache_salt"),
}
# Attributes of instances that the engine reaches through a worker.
_ATTRIBUTES = (
    "vllm.v1.worker.lora_model_runner_mixin:LoRAModelRunnerMixin.lora_manager",
    "vllm.lora.worker_manager:WorkerLoRAManager._adapter_manager",
    "vllm.lora.model_manager:LoRAModelManager.modules",
    "vllm.lora.lora_model:LoRAModel.loras",
)


def main() -> None:
    """Print what is missing; the exit code is 1 if anything is."""
    missing = [*_missing_names(), *_changed_calls(), *_missing_attributes()]
    for each in missing:
        print(each)  # noqa: T201 - what the command is for
    checked = f"{len({*_imports()})} names, {len(_CALLS)} calls and {len(_ATTRIBUTES)} attributes"
    print(f"vLLM {_version()}: {checked}, {len(missing)} missing or changed")  # noqa: T201
    sys.exit(bool(missing))


def _version() -> str:
    import vllm  # noqa: PLC0415 - in a process of its own; it takes seconds

    return str(vllm.__version__)


def _imports() -> Iterator[tuple[str, str]]:
    for node in ast.parse(Path(__file__).with_name("vllm_api.py").read_text()).body:
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("vllm"):
            yield from ((str(node.module), alias.name) for alias in node.names)


def _missing_names() -> Iterator[str]:
    for module, name in sorted({*_imports()}):
        try:
            getattr(import_module(module), name)
        except (ImportError, AttributeError) as error:
            yield f"{module}.{name}: {error}"


def _changed_calls() -> Iterator[str]:
    for path, wanted in _CALLS.items():
        try:
            taken = signature(_find(path)).parameters
        except (ImportError, AttributeError) as error:
            yield f"{path}: {error}"
            continue
        takes_any = any(each.kind is each.VAR_KEYWORD for each in taken.values())
        if lacking := [name for name in wanted if name not in taken and not takes_any]:
            yield f"{path} takes no {', '.join(lacking)}: {', '.join(taken)}"


def _missing_attributes() -> Iterator[str]:
    for path in _ATTRIBUTES:
        of, _, name = path.rpartition(".")
        try:
            source = getsource(_find(of))
        except (ImportError, AttributeError) as error:
            yield f"{path}: {error}"
            continue
        if not re.search(rf"\bself\.{name}\b[^=\n]*= ", source):
            yield f"{path} is not set"


def _find(path: str) -> Any:  # noqa: ANN401 - a function of vLLM
    module, _, name = path.partition(":")
    found = import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


if __name__ == "__main__":
    main()
