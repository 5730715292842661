"""Render one prompt with vLLM's own tokenizer and processor: `python -m reelabel_engine.preview_main`.

Reads a pickled PreviewRequest from standard input and writes a pickled RenderedPrompt to standard output.
Loads no weights: the renderer is the one that `LLM` runs before its engine.
"""

from __future__ import annotations

import os
import pickle
import sys
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any

from reelabel.errors import JobError
from reelabel_engine.preview import PromptSpan, RenderedPrompt
from reelabel_engine.protocol import QuestionFailure
from reelabel_engine.renderer import HashedMedium, InputRenderer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reelabel_engine.preview import PreviewRequest

_FEWEST_REPEATS = 4


def main() -> None:
    """Serve one request."""
    # Libraries may print to standard output; keep that out of the answer.
    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    rendered = render(pickle.load(sys.stdin.buffer))  # noqa: S301 - from our own process
    with answer:
        pickle.dump(rendered, answer)


def render(request: PreviewRequest) -> RenderedPrompt:
    """Render a question as the engine would, as far as that succeeds."""
    renderer = InputRenderer(request.config)
    tokenizer = renderer.tokenizer
    refusals: list[QuestionFailure] = []
    try:
        found = renderer.tokens(request.question)
        choices = tuple({token: tokenizer.decode([token]) for token in sorted(tokens)} for tokens in found)
    except JobError as error:
        choices = ()
        refusals.append(QuestionFailure.of(error))
    runs: tuple[PromptSpan, ...] = ()
    tokens = video_tokens = None
    try:
        media = [
            HashedMedium(kind=each.kind, frames=frames, hash=f"prompt-preview-{number}")
            for number, (each, frames) in enumerate(zip(request.question.shown, request.media, strict=True))
        ]
        prompt = renderer.prompt(request.question, media)
        runs = (PromptSpan(text=prompt["prompt"]),)
        rendered = renderer.render(prompt)
        ids = rendered["prompt_token_ids"]
        tokens = len(ids)
        places = chain.from_iterable(rendered["mm_placeholders"].values())
        video_tokens = sum(place.get_num_embeds() for place in places)
        runs = tuple(_runs(ids, tokenizer))
    except JobError as error:
        refusals.append(QuestionFailure.of(error))
    return RenderedPrompt(
        runs=runs,
        tokens=tokens,
        video_tokens=video_tokens,
        max_model_len=renderer.max_model_len,
        choices=choices,
        refusals=tuple(refusals),
    )


def _runs(ids: list[int], tokenizer: Any) -> Iterator[PromptSpan]:  # noqa: ANN401 - transformers' tokenizer
    """Decode a prompt; a token that repeats many times becomes a run of its own."""
    plain: list[int] = []
    for token, group in groupby(ids):
        repeats = len(list(group))
        if repeats < _FEWEST_REPEATS:
            plain += [token] * repeats
            continue
        if plain:
            yield PromptSpan(text=tokenizer.decode(plain))
            plain = []
        yield PromptSpan(text=tokenizer.decode([token]), repeats=repeats)
    if plain:
        yield PromptSpan(text=tokenizer.decode(plain))


if __name__ == "__main__":
    main()
