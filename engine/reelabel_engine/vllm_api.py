"""All that the engine uses of vLLM. What moves in another version is mended here; `check` lists it."""

from typing import get_args

from vllm import LLM, ModelRegistry, SamplingParams
from vllm.config import ModelConfig
from vllm.config.lora import MaxLoRARanks
from vllm.engine.arg_utils import EngineArgs
from vllm.exceptions import VLLMValidationError
from vllm.inputs.engine import mm_input
from vllm.lora.request import LoRARequest
from vllm.model_executor.model_loader import get_model_cls
from vllm.multimodal import MULTIMODAL_REGISTRY
from vllm.multimodal.inputs import (
    MultiModalFeatureSpec,
    MultiModalFieldElem,
    MultiModalKwargsItem,
    MultiModalKwargsItems,
    PlaceholderRange,
)
from vllm.platforms import current_platform
from vllm.renderers import renderer_from_config
from vllm.renderers.hf import (
    ChatTemplateResolutionError,  # which it raises, and which each version defines elsewhere
    resolve_chat_template_content_format,
    safe_apply_chat_template,
)
from vllm.sampling_params import MAX_LOGPROB_TOKEN_IDS, RequestOutputKind, StructuredOutputsParams

LORA_RANKS: tuple[int, ...] = get_args(MaxLoRARanks)

__all__ = [
    "LLM",
    "LORA_RANKS",
    "MAX_LOGPROB_TOKEN_IDS",
    "MULTIMODAL_REGISTRY",
    "ChatTemplateResolutionError",
    "EngineArgs",
    "LoRARequest",
    "ModelConfig",
    "ModelRegistry",
    "MultiModalFeatureSpec",
    "MultiModalFieldElem",
    "MultiModalKwargsItem",
    "MultiModalKwargsItems",
    "PlaceholderRange",
    "RequestOutputKind",
    "SamplingParams",
    "StructuredOutputsParams",
    "VLLMValidationError",
    "current_platform",
    "get_model_cls",
    "mm_input",
    "renderer_from_config",
    "resolve_chat_template_content_format",
    "safe_apply_chat_template",
]
