"""How vLLM answers: scores the choices of a question in one step, or writes words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reelabel_engine.vllm_api import MAX_LOGPROB_TOKEN_IDS, SamplingParams, StructuredOutputsParams

if TYPE_CHECKING:
    from reelabel_engine.prompts import ChoiceTokens


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
