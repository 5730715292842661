"""Everything that the engine uses of vLLM, to adapt to other versions in one place; `check` lists what they lack."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

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
    ChatTemplateResolutionError,  # raised by safe_apply_chat_template; its module varies by version
    resolve_chat_template_content_format,
    safe_apply_chat_template,
)
from vllm.sampling_params import MAX_LOGPROB_TOKEN_IDS, RequestOutputKind, StructuredOutputsParams

if TYPE_CHECKING:
    from reelabel_engine.prompts import ChoiceTokens

LORA_RANKS: tuple[int, ...] = get_args(MaxLoRARanks)


def scoring_parameters(tokens: ChoiceTokens) -> SamplingParams:
    """Return parameters with which one step gives the logprobs of the choices' tokens, over the whole vocabulary."""
    wanted = sorted(set().union(*tokens))
    if len(wanted) > MAX_LOGPROB_TOKEN_IDS:
        return SamplingParams(max_tokens=1, temperature=0, logprobs=-1, detokenize=False)
    return SamplingParams(max_tokens=1, temperature=0, logprob_token_ids=wanted, detokenize=False)


def writing_parameters(*, max_tokens: int, schema: str | None = None, **options: Any) -> SamplingParams:  # noqa: ANN401 - of vLLM
    """Return parameters with which so many steps at most write an answer in words, or in JSON by a schema."""
    structured = StructuredOutputsParams(json=schema) if schema is not None else None
    return SamplingParams(max_tokens=max_tokens, structured_outputs=structured, **options)
