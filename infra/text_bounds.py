"""Limits on texts from manifests, requests, live sessions, settings and parameters of flows.

A tokenizer takes a second for 100,000 characters, during which nothing else is prepared.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import AfterValidator, Field

# In characters: of a prompt, a system prompt, a template or examples, and of the question that is built from them.
MAX_TEXT = 100_000
MAX_CHOICE = 4_000
# Of a job, a frame, a query, a task or a model.
MAX_ID = 1_024
MAX_URI = 8_192
# Of a URI that holds its video, and of chat messages, which may have such URIs.
MAX_INLINE = 16 * 1024**2
# Of a JSON schema, and how deep its objects and lists may be nested: it is compiled to a grammar.
MAX_SCHEMA, MAX_SCHEMA_DEPTH = 10_000, 32
# How deep an answer by a schema may be nested: a recursive schema has no bound, but JSON writers do, at 255.
MAX_DATA_DEPTH = 100
# Of an answer in words.
MAX_OUTPUT_TOKENS = 4_096
# Choices of one question.
MAX_CHOICES = 1_024

NO_NUL = "must not contain the character U+0000"  # neither Postgres nor C takes it


def storable(text: str) -> str:
    """Return a text, or raise ValueError with a clause on why it cannot be stored."""
    if "\0" in text:
        raise ValueError(NO_NUL)
    return text


def is_nested_deeper(value: object, levels: int) -> bool:
    """Return whether the lists and objects of a JSON value are nested in more than this many levels."""
    level = [value]
    for _ in range(levels):
        nested = (each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list))
        level = [inner for values in nested for inner in values]
    return any(isinstance(each, dict | list) for each in level)


def too_long(most: int) -> str:
    """Return a clause on a text that has more characters than it may."""
    return f"must have at most {most:,} characters"


Text: TypeAlias = Annotated[str, Field(max_length=MAX_TEXT), AfterValidator(storable)]
Words: TypeAlias = Annotated[str, Field(min_length=1, max_length=MAX_TEXT), AfterValidator(storable)]
Choice: TypeAlias = Annotated[str, Field(min_length=1, max_length=MAX_CHOICE), AfterValidator(storable)]
Id: TypeAlias = Annotated[str, Field(max_length=MAX_ID), AfterValidator(storable)]
