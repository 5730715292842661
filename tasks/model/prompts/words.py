"""Answers in words: text, or JSON by the job's schema."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, NoReturn

from infra.text_bounds import MAX_DATA_DEPTH, is_nested_deeper
from reelabel.text import quoted
from reelabel_engine.errors import AnswerCutShortError, AnswerNotJsonError
from tasks.domain import Words
from tasks.domain.record import Json

if TYPE_CHECKING:
    from reelabel_engine.protocol import FinishReason, Question

# NUL, which Postgres does not store, and unpaired surrogates, which have no encoding.
_UNSTORABLE = re.compile(r"(?<!\\)(?:\\\\)*\\u0000|[\ud800-\udfff]")


def read_words(question: Question, text: str, *, finish_reason: FinishReason, output_tokens: int) -> Words:
    """Read an answer in words.

    Raises:
        AnswerCutShortError: The question has a schema, and its answer ended early.
        AnswerNotJsonError: The question has a schema, and its answer is no JSON.
    """
    if question.schema is None:
        return Words(text=text, finish_reason=finish_reason, output_tokens=output_tokens)
    if finish_reason == "length":
        cut = f"The answer by the schema was cut short at {output_tokens:,} tokens"
        if 0 < output_tokens < question.max_tokens:  # 0 if a server does not count them
            raise AnswerCutShortError(
                f"{cut}, at the model's limit; shorten the prompt, or lower num_frames or max_pixels."
            )
        raise AnswerCutShortError(f"{cut}; raise max_tokens, or bound its texts and lists.")
    return Words(data=_read_json(text), finish_reason=finish_reason, output_tokens=output_tokens)


def _read_json(text: str) -> Json:
    try:
        value = json.loads(text, parse_constant=_refuse)
        found = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError):
        raise AnswerNotJsonError(
            f"The answer by the schema is no JSON: {quoted(text)}; ask again, or reword."
        ) from None
    if is_nested_deeper(value, MAX_DATA_DEPTH):
        raise AnswerNotJsonError(
            f"The answer by the schema is nested deeper than {MAX_DATA_DEPTH} levels; bound the schema's recursion."
        )
    if _UNSTORABLE.search(found):
        raise AnswerNotJsonError(
            "The answer by the schema contains U+0000 or an unpaired surrogate, which cannot be stored; ask again, or "
            "reword."
        )
    return Json(found)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)
