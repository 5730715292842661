"""Calls from one deployment to another: what is answered, or the error that the other one had."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar

from ray.exceptions import RayActorError, RayTaskError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError

from flows.serve.refusals import RequestRefusedError
from reelabel.errors import ReelabelError
from reelabel.waiting import AbandonedError, go_on

if TYPE_CHECKING:
    from collections.abc import Callable

Result = TypeVar("Result")
RETRY_AFTER_S = 5.0
_LOOK_S = 0.25


def outcome_of(work: Callable[[], Result]) -> Result | ReelabelError:
    """Work; return the result, or the error that explains itself: if raised, Ray would wrap it, and log its stack."""
    try:
        return work()
    except ReelabelError as error:
        return error


def call(method: Any, *arguments: object) -> Any:  # noqa: ANN401 - Ray's
    """Call a method that returns an `outcome_of`, and wait; in a thread, as an event loop must not wait.

    What a replica worked on when it was lost is asked of another one, once.

    Args:
        method: Of a deployment's handle.
        arguments: Its arguments.

    Raises:
        RequestRefusedError: All replicas are busy, or those that worked on it were lost.
        AbandonedError: Nobody waits.
        ReelabelError: As the method has returned it.
    """
    try:
        try:
            outcome = _wait(method.remote(*arguments))
        except RayActorError:
            outcome = _wait(method.remote(*arguments))
    except BackPressureError:
        raise RequestRefusedError(
            "All replicas are busy; try again after the seconds in Retry-After.",
            code="busy",
            status=HTTPStatus.TOO_MANY_REQUESTS,
            retry_after_s=RETRY_AFTER_S,
        ) from None
    except (RayActorError, DeploymentUnavailableError):
        raise RequestRefusedError(
            "The replicas that worked on this request were lost; try again after the seconds in Retry-After.",
            code="replica_lost",
            status=HTTPStatus.SERVICE_UNAVAILABLE,
            retry_after_s=RETRY_AFTER_S,
        ) from None
    if isinstance(outcome, ReelabelError):
        raise outcome
    return outcome


def _wait(response: Any) -> Any:  # noqa: ANN401
    try:
        while True:
            try:
                return response.result(timeout_s=_LOOK_S)
            except TimeoutError as error:
                if isinstance(error, RayTaskError):  # the method's own
                    raise
                go_on()
    except AbandonedError:
        response.cancel()
        raise
