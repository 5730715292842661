"""Which jobs will fail because one token cannot tell their choices apart, found by the tokenizer alone."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from infra.errors import ChoicesAmbiguousError
from infra.wording import counted
from tasks.model.choices import choice_tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tasks.domain import Job
    from tasks.model.identity import ModelCard

_SHOWN_IDS = 3
_REMEMBERED = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class AmbiguousJobs:
    """Jobs that will fail with `choices_ambiguous`.

    Attributes:
        jobs: Jobs looked at.
        job_ids: Those of them that will fail, by the reason.
    """

    jobs: int
    job_ids: dict[str, list[str]]

    @property
    def count(self) -> int:
        """How many will fail."""
        return sum(map(len, self.job_ids.values()))

    def __str__(self) -> str:
        """Say it in one sentence, and give the most frequent reason."""
        reason, ids = max(self.job_ids.items(), key=lambda item: len(item[1]))
        verb = "has" if self.count == 1 else "have"
        shown = ", ".join(ids[:_SHOWN_IDS])
        jobs = counted(self.jobs, "job")
        return (
            f"{self.count:,} of {jobs} {verb} choices that the tokenizer cannot tell apart, such as {shown}: {reason}"
        )


def find_ambiguous(
    jobs: Sequence[Job],
    *,
    scoring: Literal["letter", "text"],
    encode: Callable[[str], list[int]],
) -> AmbiguousJobs | None:
    """Look at every job's choices, each set of them once.

    Args:
        jobs: The jobs to be asked.
        scoring: By the choice's letter, or by the first token of its own text.
        encode: The tokenizer, without special tokens.

    Returns:
        None where every job's choices can be told apart.
    """

    @lru_cache(_REMEMBERED)
    def reason_against(choices: tuple[str, ...]) -> str | None:
        try:
            choice_tokens(choices, scoring=scoring, encode=encode)
        except ChoicesAmbiguousError as error:
            return error.message
        return None

    found: dict[str, list[str]] = defaultdict(list)
    for job in jobs:
        # Letters depend on nothing but their number.
        reason = reason_against(job.choices if scoring == "text" else ("",) * len(job.choices))
        if reason:
            found[reason].append(job.job_id)
    return AmbiguousJobs(jobs=len(jobs), job_ids=dict(found)) if found else None


def read_encoder(card: ModelCard) -> Callable[[str], list[int]] | None:
    """Read a model's tokenizer without the engine, in a fraction of a second.

    Returns:
        Encodes text without special tokens; None where the model has no `tokenizer.json`, so that only
        the engine can tell.
    """
    try:
        from tokenizers import Tokenizer  # noqa: PLC0415 - comes with the engine's extra

        tokenizer = Tokenizer.from_file(str(_tokenizer_file(card)))
    except Exception:  # noqa: BLE001 - the library raises bare exceptions, the hub's client those of its HTTP library
        return None
    return lambda text: list(tokenizer.encode(text, add_special_tokens=False).ids)


def _tokenizer_file(card: ModelCard) -> Path:
    if Path(card.location).is_dir():
        return Path(card.location) / "tokenizer.json"
    from huggingface_hub import hf_hub_download  # noqa: PLC0415 - comes with the engine's extra

    return Path(hf_hub_download(card.location, "tokenizer.json", revision=card.revision))
