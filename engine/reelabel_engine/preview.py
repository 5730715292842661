"""Render one question without the engine: `python -m reelabel_engine.preview`, by standard input and output.

It is rendered by what `LLM` runs before its engine: vLLM's own tokenizer and processor.
"""

from __future__ import annotations

import os
import sys
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any

from reelabel.errors import JobError
from reelabel_engine.protocol import PreviewRequest, PromptSpan, Rejected, RenderedPrompt, decode_request, encode

if TYPE_CHECKING:
    from collections.abc import Iterator

_FEWEST_REPEATS = 4


def main() -> None:
    # Libraries may print to standard output; keep that out of the answer.
    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    request = decode_request(sys.stdin.buffer.read())
    if not isinstance(request, PreviewRequest):
        raise TypeError(f"{type(request).__name__} is not answered here")
    with answer:
        answer.write(encode(render(request)))


def render(request: PreviewRequest) -> RenderedPrompt:
    """Render a question as the engine would, as far as that succeeds."""
    from reelabel_engine.renderer import HashedMedium, InputRenderer  # noqa: PLC0415 - it imports vLLM

    renderer = InputRenderer(request.config)
    tokenizer = renderer.tokenizer
    refusals: list[Rejected] = []
    try:
        found = renderer.tokens(request.question)
        choices = tuple({token: tokenizer.decode([token]) for token in sorted(tokens)} for tokens in found)
    except JobError as error:
        choices = ()
        refusals.append(Rejected.of(error))
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
        placeholders = chain.from_iterable(rendered["mm_placeholders"].values())
        video_tokens = sum(placeholder.get_num_embeds() for placeholder in placeholders)
        runs = tuple(_runs(ids, tokenizer))
    except JobError as error:
        refusals.append(Rejected.of(error))
    return RenderedPrompt(
        runs=runs,
        tokens=tokens,
        video_tokens=video_tokens,
        max_model_len=renderer.max_model_len,
        choices=choices,
        refusals=tuple(refusals),
    )


def _runs(ids: list[int], tokenizer: Any) -> Iterator[PromptSpan]:  # noqa: ANN401 - transformers' tokenizer
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
