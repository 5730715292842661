"""How vLLM scores the choices of a question in one step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reelabel_engine.vllm_api import MAX_LOGPROB_TOKEN_IDS, SamplingParams

if TYPE_CHECKING:
    from reelabel_engine.prompts import ChoiceTokens


def scoring_parameters(tokens: ChoiceTokens) -> SamplingParams:
    """Return parameters with which one step gives the logprobs of the choices' tokens, over the whole vocabulary."""
    wanted = sorted(set().union(*tokens))
    if len(wanted) > MAX_LOGPROB_TOKEN_IDS:
        return SamplingParams(max_tokens=1, temperature=0, logprobs=-1, detokenize=False)
    return SamplingParams(max_tokens=1, temperature=0, logprob_token_ids=wanted, detokenize=False)
