"""Finds jobs that will fail because a single token cannot tell their choices apart, by the tokenizer alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

import polars as pl

from reelabel.text import pluralize
from reelabel_engine.errors import ChoicesAmbiguousError, SpecialTokensError
from reelabel_engine.plain_text import TextTokenizer, special_tokens
from reelabel_engine.prompts import choice_tokens
from tasks.model.identity import ModelInfo, model_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


_SHOWN_IDS = 3
_OF_NO_SCRIPT = "\ue000"
_CACHED_REASONS = 65_536
_DISTINGUISHED_BY = {"text": pl.col("choices"), "letter": pl.col("choices").list.len()}


@dataclass(frozen=True, slots=True, kw_only=True)
class AmbiguousJobs:
    """Jobs that will fail with `choices_ambiguous`."""

    jobs: int  # jobs checked
    count: int  # number of them that will fail
    reason: str  # the most frequent reason
    job_ids: tuple[str, ...]  # the first jobs in the manifest that fail for that reason

    def __str__(self) -> str:
        verb = "has" if self.count == 1 else "have"
        shown = ", ".join(self.job_ids)
        jobs = pluralize(self.jobs, "job")
        return (
            f"{self.count:,} of {jobs} {verb} choices that a single token cannot tell apart (for example {shown}): "
            f"{self.reason}"
        )


def find_ambiguous_jobs(
    parts: Iterable[pl.DataFrame], *, scoring: Literal["letter", "text"], encode: Callable[[str], list[int]]
) -> AmbiguousJobs | None:
    """Check the choices of jobs (`row`, `job_id`, `choices`), each distinct set once; None if all can be told apart.

    `encode` is the model's tokenizer, without special tokens.
    """

    @lru_cache(_CACHED_REASONS)
    def failure_reason(choices: tuple[str, ...] | int) -> str | None:
        try:
            # With letters, only the number of choices matters.
            shown = ("",) * choices if isinstance(choices, int) else choices
            choice_tokens(shown, scoring=scoring, encode=encode)
        except ChoicesAmbiguousError as error:
            return error.message
        except SpecialTokensError:
            pass  # for the engine to report, as another failure
        return None

    jobs, found = 0, [pl.DataFrame(schema={"row": pl.UInt32, "job_id": pl.String, "reason": pl.String})]
    for part in parts:
        jobs += len(part)
        chosen = part.filter(pl.col("choices").list.len() > 0)
        sets = chosen.group_by(choices=_DISTINGUISHED_BY[scoring]).agg("row", "job_id")
        distinct = (tuple(each) if isinstance(each, list) else each for each in sets["choices"].to_list())
        reasons = pl.Series("reason", map(failure_reason, distinct), dtype=pl.String)
        failing = sets.with_columns(reasons).drop_nulls("reason")
        found.append(failing.select("row", "job_id", "reason").explode("row", "job_id"))
    return _summarise(pl.concat(found).sort("row"), jobs)


def _summarise(found: pl.DataFrame, jobs: int) -> AmbiguousJobs | None:
    if found.is_empty():
        return None
    reason = found["reason"].mode(maintain_order=True)[0]
    first = found.filter(pl.col("reason") == reason)["job_id"].head(_SHOWN_IDS)
    return AmbiguousJobs(jobs=jobs, count=len(found), reason=reason, job_ids=tuple(first))


def load_tokenizer(model_info: ModelInfo) -> TextTokenizer | None:
    """Load a model's tokenizer without the engine, in a fraction of a second; None without a usable file."""
    if model_info.identity.served_at or not model_info.location:
        return None
    try:
        from tokenizers import Tokenizer  # noqa: PLC0415 - only here

        tokenizer = Tokenizer.from_file(str(model_file(model_info, "tokenizer.json")))
        tokenizer.encode(_OF_NO_SCRIPT)  # some fail on a character that they lack
    except Exception:  # noqa: BLE001 - tokenizers raises bare exceptions, the hub client those of its HTTP library
        return None
    return TextTokenizer(
        lambda text: list(tokenizer.encode(text, add_special_tokens=False).ids),
        special_tokens(tokenizer.get_added_tokens_decoder()),
    )
