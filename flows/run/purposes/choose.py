"""The purpose of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flows.run.purposes.descriptions import Descriptions
from flows.run.purposes.questions import Questions

if TYPE_CHECKING:
    from flows.run.purposes.purpose import Purpose
    from flows.run.request import RunRequest


def purpose_of(request: RunRequest) -> Purpose:
    """Return what a run is for."""
    return Questions() if request.describes is None else Descriptions()
