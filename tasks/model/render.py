"""Renders one prompt with vLLM's own tokenizer and processor: `python -m tasks.model.render`.

Reads a pickled PromptRequest from standard input and writes a RenderedPrompt to standard output. No
weights are read: the renderer is what `LLM` itself puts before its engine.
"""

from __future__ import annotations

import os
import pickle
import sys
from itertools import groupby
from typing import TYPE_CHECKING, Any

from vllm.engine.arg_utils import EngineArgs
from vllm.exceptions import VLLMValidationError
from vllm.renderers import renderer_from_config

from infra.errors import JobError
from tasks.model.choices import choice_tokens
from tasks.model.engine import engine_prompt, explain_refusal, llm_arguments
from tasks.model.questions import Refusal
from tasks.model.rendered import PromptRun, RenderedPrompt

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tasks.model.questions import Question
    from tasks.model.rendered import PromptRequest

_FEWEST_REPEATS = 4


def main() -> None:
    """Answer one request."""
    # What libraries print must not mix with the answer.
    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    rendered = render(pickle.load(sys.stdin.buffer))  # noqa: S301 - from our own process
    with answer:
        pickle.dump(rendered, answer)


def render(request: PromptRequest) -> RenderedPrompt:
    """Render a question as the engine would, as far as it comes."""
    config = EngineArgs(**llm_arguments(request.config)).create_engine_config()
    renderer = renderer_from_config(config)
    tokenizer = renderer.get_tokenizer()
    max_model_len = int(config.model_config.max_model_len)
    refusals: list[Refusal] = []
    try:
        choices = _choices(request.question, tokenizer)
    except JobError as error:
        choices = ()
        refusals.append(Refusal.of(error))
    prompt = engine_prompt(tokenizer, request.question, request.video)
    runs: tuple[PromptRun, ...] = (PromptRun(text=prompt["prompt"]),)
    tokens = video_tokens = None
    try:
        [rendered] = renderer.render_cmpl([prompt])
        ids = rendered["prompt_token_ids"]
        tokens = len(ids)
        video_tokens = sum(place.get_num_embeds() for place in rendered["mm_placeholders"]["video"])
        runs = tuple(_runs(ids, tokenizer))
    except (ValueError, VLLMValidationError) as error:
        refusals.append(Refusal.of(explain_refusal(error, max_model_len)))
    return RenderedPrompt(
        runs=runs,
        tokens=tokens,
        video_tokens=video_tokens,
        max_model_len=max_model_len,
        choices=choices,
        refusals=tuple(refusals),
    )


def _choices(question: Question, tokenizer: Any) -> tuple[dict[int, str], ...]:  # noqa: ANN401 - transformers' tokenizer
    found = choice_tokens(
        question.choices,
        scoring=question.scoring,
        encode=lambda text: tokenizer.encode(text, add_special_tokens=False),
    )
    return tuple({token: tokenizer.decode([token]) for token in sorted(tokens)} for tokens in found)


def _runs(ids: list[int], tokenizer: Any) -> Iterator[PromptRun]:  # noqa: ANN401 - transformers' tokenizer
    """Decode a prompt; a token that repeats many times is a run of its own."""
    plain: list[int] = []
    for token, group in groupby(ids):
        repeats = len(list(group))
        if repeats < _FEWEST_REPEATS:
            plain += [token] * repeats
            continue
        if plain:
            yield PromptRun(text=tokenizer.decode(plain))
            plain = []
        yield PromptRun(text=tokenizer.decode([token]), repeats=repeats)
    if plain:
        yield PromptRun(text=tokenizer.decode(plain))


if __name__ == "__main__":
    main()
