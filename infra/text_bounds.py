"""Limits on texts from manifests, requests, live sessions, settings and parameters of flows.

A tokenizer needs a second for 100,000 characters, in which nothing else is prepared.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import AfterValidator, Field

# In characters: of a prompt, a system prompt, a template or examples, and of the question that is made of them.
MAX_TEXT = 100_000
MAX_CHOICE = 4_000
# Of a job, a frame, a query, a task or a model.
MAX_ID = 1_024
MAX_URI = 8_192
# Of a URI that holds its video, and of chat messages, which may have such URIs.
MAX_INLINE = 16 * 1024**2
# Of a JSON schema, and how deep its objects and lists may be nested: a compiler makes a grammar of it.
MAX_SCHEMA, MAX_SCHEMA_DEPTH = 10_000, 32
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


def too_long(most: int) -> str:
    """Return a clause on a text that has more characters than it may."""
    return f"must have at most {most:,} characters"


Text: TypeAlias = Annotated[str, Field(max_length=MAX_TEXT), AfterValidator(storable)]
Words: TypeAlias = Annotated[str, Field(min_length=1, max_length=MAX_TEXT), AfterValidator(storable)]
Choice: TypeAlias = Annotated[str, Field(min_length=1, max_length=MAX_CHOICE), AfterValidator(storable)]
Id: TypeAlias = Annotated[str, Field(max_length=MAX_ID), AfterValidator(storable)]
