"""The rules that make one answer of the answers to a job's chunks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tasks.domain.outcome import Answer

SHORTEST_CHUNK_S = 1.0
DEFAULT_RULE = "majority"
_ANY = "any:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a rule makes of the answers so far.

    Attributes:
        choice_index: Index of the job's choice.
        probabilities: One per choice.
        is_final: Whether the choice stays the same, whatever the chunks without an answer would have answered.
    """

    choice_index: int
    probabilities: tuple[float, ...]
    is_final: bool


def check_rule(text: str) -> str:
    """Return the name of a rule.

    Raises:
        ValueError: There is no such rule.
    """
    if text in _RULES or (text.startswith(_ANY) and text != _ANY):
        return text
    raise ValueError("use majority, mean, or any:CHOICE with one of the choices, such as any:yes")


ChunkRuleName = Annotated[str, AfterValidator(check_rule)]


def choice_of(rule: str) -> str | None:
    """Return the choice that `any:CHOICE` looks for; None for other rules."""
    return rule.removeprefix(_ANY) if rule.startswith(_ANY) else None


def combine(rule: str, answers: Sequence[Answer], choices: Sequence[str], *, unanswered: int) -> Verdict:
    """Apply a rule that `check_rule` accepts to the answers, at least one, to a job's chunks in their order."""
    if len(answers) == 1 and not unanswered:
        return Verdict(choice_index=answers[0].choice_index, probabilities=answers[0].probabilities, is_final=True)
    wanted = choice_of(rule)
    if wanted is not None:
        return _combine_any(choices.index(wanted), answers, unanswered)
    return _combine_by_scores(_RULES[rule](answers), answers, unanswered)


def _votes(answers: Sequence[Answer]) -> list[float]:
    chosen = [answer.choice_index for answer in answers]
    return [float(chosen.count(choice)) for choice in range(len(answers[0].probabilities))]


def _sums(answers: Sequence[Answer]) -> list[float]:
    return [sum(shares) for shares in zip(*(answer.probabilities for answer in answers), strict=True)]


_RULES: dict[str, Callable[[Sequence[Answer]], list[float]]] = {"majority": _votes, "mean": _sums}


def _combine_by_scores(scores: Sequence[float], answers: Sequence[Answer], unanswered: int) -> Verdict:
    """Choose the highest score; of equal ones, the choice with the higher mean probability, then the first.

    A chunk adds at most 1 to a score, so a lead of more than the number of unanswered chunks stands.
    """
    by_score = sorted(range(len(scores)), key=lambda choice: (scores[choice], _sums(answers)[choice]), reverse=True)
    lead = scores[by_score[0]] - scores[by_score[1]]
    return Verdict(
        choice_index=by_score[0],
        probabilities=tuple(score / len(answers) for score in scores),
        is_final=not unanswered or lead > unanswered,
    )


def _combine_any(wanted: int, answers: Sequence[Answer], unanswered: int) -> Verdict:
    """Take over the answer of one chunk.

    Of the chunks that chose the wanted choice, it is the surest one. If there is none, it is the one that came closest
    to it among those with the majority's label.
    """
    found = [answer for answer in answers if answer.choice_index == wanted]
    if not found:
        usual = _combine_by_scores(_votes(answers), answers, 0).choice_index
        closest = [answer for answer in answers if answer.choice_index == usual]
    decisive = max(found or closest, key=lambda answer: answer.probabilities[wanted])
    return Verdict(
        choice_index=decisive.choice_index,
        probabilities=decisive.probabilities,
        is_final=bool(found) or not unanswered,
    )
