"""The spec of a run, from the settings and the run's overrides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flows.run.request import NO_OVERRIDES
from infra.settings import PromptOptions
from infra.settings.engine_args import args_of_answers, args_of_performance
from reelabel.errors import ConfigurationError, InvalidOptionError
from reelabel.sampling.options import FITTED, Sampling
from reelabel.sampling.registry import DEFAULT_DENSE_SAMPLER, NATIVE, ROUTING_OPTIONS, SAMPLER_OPTIONS, find_sampler
from tasks.domain import EmbeddingSpec, RunSpec
from tasks.domain.chunks import DEFAULT_RULE, check_rule
from tasks.domain.spec import DEFAULT_MAX_TOKENS
from tasks.embedding.encoder import read_encoder_info
from tasks.model.backend import backend_of
from tasks.model.identity import max_frame_pixels

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pydantic import JsonValue

    from flows.run.request import QuestionOptions
    from infra.settings import ChunkOptions, ModelSettings, SamplingOptions, SamplingSettings, Settings
    from tasks.model.backend import Backend
    from tasks.model.identity import ModelInfo


def make_spec(
    model_info: ModelInfo,
    settings: Settings,
    overrides: QuestionOptions = NO_OVERRIDES,
    *,
    base: RunSpec | None = None,
) -> RunSpec:
    """Return everything on the run's side that can change an answer.

    The overrides change the settings, or the spec of an earlier run (`base`); their model is that of `model_info`.

    Raises:
        ConfigurationError: The sampling options conflict, or there are engine arguments that have no effect.
        ModelError: The image-text model of a sampler by the question cannot be used.
    """
    identity = model_info.identity.model_copy(update={"dtype": settings.model.dtype})
    usual = base.sampling if base else settings.sampling
    options = _resolve_native(_merged_options(usual, overrides.sampling), usual, overrides.sampling, model_info)
    options["size_multiple_px"] = model_info.size_multiple_px
    shown = options["num_frames"]
    is_unchanged = base is not None and base.model == identity and base.sampling.num_frames == shown
    options["max_pixels"] = (
        usual.max_pixels if is_unchanged else max_frame_pixels(model_info, settings, num_frames=shown)
    )
    try:
        sampling = Sampling(**options)
    except InvalidOptionError as error:
        where, value, clause = error.faults[0]
        fault = f"{where} {value}: {clause}" if where else clause
        raise ConfigurationError(f"Conflicting sampling options: {fault}.") from None
    defaults: RunSpec | ModelSettings = base or settings.model
    pruned = defaults.video_pruning_rate if overrides.video_pruning_rate is None else overrides.video_pruning_rate
    backend = backend_of(settings)
    if pruned and not backend.prunes_videos:
        raise ConfigurationError(
            f"The backend {backend.name} takes no video_pruning_rate, because pruning is up to its server; leave it "
            "out, or set it to 0."
        )
    usual_wording = {name: getattr(defaults, name, None) for name in PromptOptions.model_fields}
    wording = {name: value for name, value in usual_wording.items() if value is not None}
    return RunSpec(
        model=identity,
        sampling=sampling,
        frames_as=backend.frames_as(model_info, settings),
        video_pruning_rate=pruned or None,
        max_tokens=overrides.max_tokens or (base.max_tokens if base else DEFAULT_MAX_TOKENS),
        chat_template_args=defaults.chat_template_args,
        engine_args=_engine_args(defaults, backend, model_info),
        **_chunk_options(base, overrides.chunks, sampling),
        relevance=_relevance(settings, sampling),
        once_per_duplicate=base.once_per_duplicate if base else None,
        **wording | overrides.prompts.model_dump(exclude_none=True),
    )


def _relevance(settings: Settings, sampling: Sampling) -> EmbeddingSpec | None:
    if not find_sampler(sampling.sampler).needs_question:
        return None
    if settings.run.executor == "remote":
        raise ConfigurationError(
            f"The sampler {sampling.sampler} needs an image-text model next to the decoders, but extract flows load "
            "none; set run.executor to local, or use another sampler."
        )
    describe = settings.describe
    fields = {
        "sampler": describe.sampler,
        "seconds_per_chunk": describe.chunk_s,
        "frames_per_chunk": describe.frames_per_chunk,
    }
    return EmbeddingSpec(
        model=read_encoder_info(settings).identity,
        **{name: value for name, value in fields.items() if value is not None},
    )


def _chunk_options(base: RunSpec | None, choice: ChunkOptions, sampling: Sampling) -> dict[str, Any]:
    chunk_s = base.chunk_s if base and choice.chunk_s is None else choice.chunk_s
    if not chunk_s:
        if choice.chunk_rule is not None:
            raise ConfigurationError(f"The chunk rule {choice.chunk_rule} has no chunks; also set chunk_s, such as 60.")
        return {}
    if sampling.escalate_below == FITTED:
        raise ConfigurationError(
            "A fitted escalate_below was fitted to the margins of whole clips, not of chunks; set a number, or set "
            "chunk_s to 0."
        )
    rule = choice.chunk_rule or (base and base.chunk_rule) or DEFAULT_RULE
    try:
        return {"chunk_s": chunk_s, "chunk_rule": check_rule(rule)}
    except ValueError as error:
        raise ConfigurationError(f"There is no chunk rule {rule!r}: {error}.") from None


def _engine_args(defaults: RunSpec | ModelSettings, backend: Backend, model_info: ModelInfo) -> dict[str, JsonValue]:
    if defaults.engine_args and not backend.takes_engine_args:
        raise ConfigurationError(
            f"The backend {backend.name} takes no model.engine_args, because its server has its own; leave them out."
        )
    of_adapters = [name for name in defaults.engine_args if "lora" in name]
    if of_adapters and not model_info.adapter:
        raise ConfigurationError(
            f"model.engine_args has {', '.join(of_adapters)}, but model {model_info.identity.name} is no LoRA adapter; "
            "leave it out, or set model.name to an adapter's folder."
        )
    return args_of_answers(defaults.engine_args)


def engine_settings(settings: Settings, spec: RunSpec) -> Settings:
    """Return the settings with which a backend answers a spec: an earlier run, or an option, may have set others."""
    changes = {
        "video_pruning_rate": spec.video_pruning_rate,
        "chat_template_args": spec.chat_template_args,
        "engine_args": args_of_performance(settings.model.engine_args) | spec.engine_args,
    }
    model = settings.model.model_copy(update=changes)
    return settings.model_copy(update={"model": model})


def native_warning(
    model_info: ModelInfo, settings: Settings, overrides: QuestionOptions = NO_OVERRIDES, *, base: RunSpec | None = None
) -> str:
    """Return a warning, without a final period, if a run takes its model's native sampler, which is not known.

    The arguments are those of `make_spec`.
    """
    usual = base.sampling if base else settings.sampling
    options = _merged_options(usual, overrides.sampling)
    if not model_info.native_doubt or _had_default(usual, overrides.sampling):
        return ""
    if NATIVE not in {options["sampler"], _dense_sampler(options)}:
        return ""
    return (
        f"The native sampler of {model_info.identity.name} is not known: {model_info.native_doubt}; "
        f"{model_info.native_sampler} is used, as vLLM does; name another one if the model was trained otherwise"
    )


def _resolve_native(
    options: dict[str, Any], usual: Sampling | SamplingSettings, choice: SamplingOptions, model_info: ModelInfo
) -> dict[str, Any]:
    """Replace `native`, also where it is the default, by the sampler that the model was trained with."""
    if options["sampler"] == NATIVE:
        options = options | {"sampler": model_info.native_sampler}
        is_usual = isinstance(usual, Sampling) or "num_frames" in usual.model_fields_set
        is_set = choice.num_frames is not None or (usual.sampler == NATIVE and is_usual)
        if model_info.native_frames and not is_set:
            options["num_frames"] = model_info.native_frames
    if _dense_sampler(options) == NATIVE:
        # As in specs that name none, so that equal choices have equal ids.
        is_default = model_info.native_sampler == DEFAULT_DENSE_SAMPLER or _had_default(usual, choice)
        options = options | {"dense_sampler": None if is_default else model_info.native_sampler}
    return options


def _had_default(usual: Sampling | SamplingSettings, choice: SamplingOptions) -> bool:
    """Return whether the sampling is that of an earlier run whose dense sampler was the default of the library."""
    return (
        isinstance(usual, Sampling)
        and usual.dense_sampler is None
        and choice.dense_sampler is None
        and _dense_sampler(_options_of(usual)) is not None
    )


def _dense_sampler(options: Mapping[str, Any]) -> str | None:
    if options["sampler"] == "auto" or (options["sampler"] == "keyframes" and options.get("escalate_below")):
        return options.get("dense_sampler") or NATIVE
    return None


def resolve_spec(
    overrides: QuestionOptions, settings: Settings, *, base: RunSpec | None = None
) -> tuple[ModelInfo, RunSpec]:
    """Read the model's facts, and resolve the spec; without overrides, it must be that of the earlier run (`base`).

    Raises:
        ModelError: The model cannot be used.
        ConfigurationError: The options conflict, or the earlier spec cannot be reproduced.
    """
    # The spec does not include a folder's path, so a folder other than that in the settings must be named.
    backend = backend_of(settings)
    named = overrides.model
    if base and not named and backend.takes_hub_models:
        named = base.model.name if base.model.revision is not None else settings.model.name
        if not named:
            raise ConfigurationError(
                f"The earlier run's model, {base.model.name}, was a folder; name that folder as the model, or set "
                "REELABEL_MODEL_NAME."
            )
    model_info = backend.model_info(named, settings)
    spec = make_spec(model_info, settings, overrides, base=base)
    if base:
        _require_unchanged(spec, base, overrides)
    return model_info, spec


def _require_unchanged(spec: RunSpec, base: RunSpec, overrides: QuestionOptions) -> None:
    kept: Collection[str] = RunSpec.model_fields
    if overrides != NO_OVERRIDES:
        kept = () if overrides.model is not None else ("model", "frames_as")
    changed = [name for name in kept if getattr(spec, name) != getattr(base, name)]
    if changed:
        raise ConfigurationError(
            f"The settings no longer match the earlier run's {', '.join(changed)} (its model was {base.model.name}); "
            "restore them, or name the model to use."
        )


def _merged_options(usual: Sampling | SamplingSettings, choice: SamplingOptions) -> dict[str, Any]:
    """Apply overrides to the usual sampling; options of the usual sampler do not carry over to another one."""
    options = _options_of(usual)
    sampler = choice.sampler or usual.sampler
    if sampler != usual.sampler:
        options |= dict.fromkeys(SAMPLER_OPTIONS - ROUTING_OPTIONS)
    escalate_below = usual.escalate_below if choice.escalate_below is None else choice.escalate_below
    options |= dict.fromkeys(_unused_options(sampler, escalate_below or None)) | choice.model_dump(exclude_none=True)
    return options | {"escalate_below": options.get("escalate_below") or None}


def _options_of(sampling: Sampling | SamplingSettings) -> dict[str, Any]:
    return sampling.to_dict() if isinstance(sampling, Sampling) else sampling.model_dump()


def _unused_options(sampler: str, escalate_below: float | str | None) -> frozenset[str]:
    """Return the options for routing and of dense samplers that have no effect with this sampler."""
    if sampler == "auto":
        return frozenset()
    if sampler != "keyframes":
        return ROUTING_OPTIONS
    if escalate_below is not None:
        return ROUTING_OPTIONS - {"escalate_below", "dense_sampler"}
    return ROUTING_OPTIONS | {"frame_recovery"}


def require_model(flow: str, parameters: Mapping[str, Any], settings: Settings) -> None:
    """Check that `classify` or `describe` has a model; other flows need none.

    Raises:
        ConfigurationError: Neither the parameters nor the settings name it.
    """
    options = parameters.get("overrides" if flow == "classify" else "options") or {}
    if options.get("model"):
        return
    if flow == "classify" and settings.model.backend == "vllm" and not settings.model.name:
        backend_of(settings).model_info(None, settings)
    if flow == "describe" and not settings.describe.model:
        read_encoder_info(settings)
