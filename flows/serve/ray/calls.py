"""Calls from one deployment to another: what is answered, or the error that the other one had."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar

from ray.exceptions import RayActorError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError

from flows.serve.refusals import RequestRefusedError
from reelabel.errors import ReelabelError

if TYPE_CHECKING:
    from collections.abc import Callable

Result = TypeVar("Result")
_RETRY_AFTER_S = 5.0


def outcome_of(work: Callable[[], Result]) -> Result | ReelabelError:
    """Work; return the result, or the error that explains itself: if raised, Ray would wrap it, and log its stack."""
    try:
        return work()
    except ReelabelError as error:
        return error


def call(method: Any, *arguments: object) -> Any:  # noqa: ANN401 - a method of a deployment's handle
    """Call a method of another deployment that returns `outcome_of` something, and wait; call it in a thread.

    What a lost replica had in work is asked of another one, once.

    Raises:
        RequestRefusedError: All replicas are busy, or they are lost.
        ReelabelError: What the method returned.
    """
    try:
        try:
            outcome = method.remote(*arguments).result()
        except RayActorError:
            outcome = method.remote(*arguments).result()
    except BackPressureError:
        raise RequestRefusedError(
            "All replicas are busy; try again after the seconds in Retry-After.",
            code="busy",
            status=HTTPStatus.TOO_MANY_REQUESTS,
            retry_after_s=_RETRY_AFTER_S,
        ) from None
    except (RayActorError, DeploymentUnavailableError):
        raise RequestRefusedError(
            "The replicas that worked on this request were lost; try again after the seconds in Retry-After.",
            code="replica_lost",
            status=HTTPStatus.SERVICE_UNAVAILABLE,
            retry_after_s=_RETRY_AFTER_S,
        ) from None
    if isinstance(outcome, ReelabelError):
        raise outcome
    return outcome
