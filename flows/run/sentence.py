"""Flows that fail with a sentence: no traceback, and no name of an exception."""

from __future__ import annotations

import logging
from functools import wraps
from inspect import signature
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from prefect import State, get_run_logger
from prefect.context import FlowRunContext
from prefect.exceptions import CancelledRun, TerminationSignal
from prefect.states import Cancelled, Failed
from pydantic import ValidationError, validate_call

from infra.program import as_started
from infra.settings.types import title_of
from infra.validation import describe_fault
from reelabel.errors import ConfigurationError, ReelabelError
from reelabel.text import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

TERMINATED = "Ended by SIGTERM."
Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def _has_no_sentence(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], ReelabelError))


# Prefect's engine logs the traceback of whatever fails a flow that a worker has started, after the sentence.
logging.getLogger("prefect.flow_runs").addFilter(_has_no_sentence)


def fail_with_message(
    function: Callable[Parameters, Result],
) -> Callable[Parameters, Result | State[Any]]:
    """Have a flow's function end as Failed with the sentence of its error as the message, or as Cancelled by its user.

    Prefect would take Ctrl-C, and SIGTERM to a command, for a crash, which notifies people. It raises `CancelledRun`
    instead. A deployed run that gets SIGTERM has lost its node: it crashes, and is started again.

    It also validates the parameters, because Prefect's own validation reports pydantic's words: the flow has
    `validate_parameters=False`. Where the flow is called from code, the error is raised as it was.
    """
    validated, parameters = validate_call(function), tuple(signature(function).parameters)

    @wraps(function)
    def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result | State[Any]:
        try:
            return validated(*args, **kwargs)
        except ValidationError as fault:
            if fault.title != function.__name__:
                raise
            error: ReelabelError = ConfigurationError(_sentence(fault, parameters))
        except ReelabelError as raised:
            error = raised
        except (KeyboardInterrupt, CancelledRun):  # of a flow that this one has called
            if FlowRunContext.get() is None:
                raise
            return Cancelled(message="Stopped by the user.")
        except TerminationSignal:
            if not _is_of_a_command():
                raise
            return Cancelled(message=TERMINATED)
        if FlowRunContext.get() is None:
            raise error
        message = as_started(error.message)
        get_run_logger().error("%s", message)
        return Failed(message=printable(message, keep="\n"), data=error)

    return run


def _is_of_a_command() -> bool:
    context = FlowRunContext.get()
    flow_run = context.flow_run if context else None
    return flow_run is not None and flow_run.deployment_id is None and flow_run.parent_task_run_id is None


def _sentence(fault: ValidationError, parameters: Sequence[str]) -> str:
    first = fault.errors(include_url=False)[0]
    parameter, *within = first["loc"]
    # Arguments passed by position are named by it.
    names = [parameters[parameter] if isinstance(parameter, int) else parameter, *within]
    labels = [title_of(str(name)) for name in names if not isinstance(name, int)]
    where = ", ".join([*labels[:1], *(label[:1].lower() + label[1:] for label in labels[1:])])
    return f"{where}: {describe_fault(first).rstrip('.')}."
