"""Flows with one parameter per field of a request, which fail with one sentence and no traceback."""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import wraps
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec, TypeVar
from uuid import UUID

import httpx
from prefect import State, flow, get_run_logger
from prefect.client.orchestration import get_client
from prefect.context import FlowRunContext
from prefect.exceptions import CancelledRun, PrefectException, TerminationSignal
from prefect.runtime import flow_run
from prefect.states import Cancelled, Failed
from prefect.task_runners import ThreadPoolTaskRunner
from pydantic import Field

from flows.run.request import FlowRequest
from infra.program import with_program_name
from infra.validation import PLAIN_WORDS
from reelabel.errors import ReelabelError
from reelabel.text import escape_controls

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from prefect import Flow

# Threads are created on demand, for shards extracted ahead and for those at the engine.
MAX_TASKS = 96
# Of the flows `extract` and `infer`.
PlanId = Annotated[str | None, Field(max_length=36), PLAIN_WORDS]
Model = Annotated[str | None, Field(max_length=1000), PLAIN_WORDS]
IdleTimeout = Annotated[float | None, Field(ge=0, le=86_400), PLAIN_WORDS]
TERMINATED = "Ended by SIGTERM."
Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Request = TypeVar("Request", bound=FlowRequest)


def _has_no_sentence(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], ReelabelError))


# Prefect's engine logs the traceback of whatever fails a flow that a worker has started, after the sentence.
logging.getLogger("prefect.flow_runs").addFilter(_has_no_sentence)


def run_flow(
    request: type[Request],
    *,
    name: Callable[[], str],
    has_tasks: bool = False,
    on_completion: Sequence[Callable[..., None]] = (),
) -> Callable[[Callable[[Request], Any]], Flow[..., Any]]:
    """Make a Prefect flow of a function, with a parameter for each field of its request.

    Args:
        request: The request, whose descriptions of fields appear in the form.
        name: Returns the name of a flow run.
        has_tasks: Whether it runs tasks in threads.
        on_completion: Prefect's hooks.
    """

    def decorate(function: Callable[[Request], Any]) -> Flow[..., Any]:
        @wraps(function)
        def run(**values: Any) -> Any:  # noqa: ANN401 - as of the flow
            return function(request.of(**values))

        fields = request.model_fields.items()
        run.__signature__ = Signature(  # type: ignore[attr-defined]
            [
                Parameter(
                    each,
                    Parameter.KEYWORD_ONLY,
                    default=Parameter.empty if about.is_required() else about.default,
                    annotation=about.rebuild_annotation(),
                )
                for each, about in fields
            ]
        )
        described = [f"    {each}: {' '.join(str(about.description).split())}" for each, about in fields]
        summary = str(function.__doc__).partition("\n")[0]
        run.__doc__ = "\n".join([summary, "", "Args:", *described])  # Prefect's form shows it
        return flow(
            name=function.__name__,
            description=summary,
            flow_run_name=name,
            task_runner=ThreadPoolTaskRunner(max_workers=MAX_TASKS) if has_tasks else None,  # type: ignore[arg-type]
            on_completion=[*on_completion],
            validate_parameters=False,  # Prefect would report pydantic's message
        )(fail_with_message(run))

    return decorate


def fail_with_message(
    function: Callable[Parameters, Result],
) -> Callable[Parameters, Result | State[Any]]:
    """Turn a ReelabelError into a Failed state with its message, and a stop by the user into a Cancelled one.

    Prefect would take Ctrl-C, and SIGTERM to a command, for a crash, which notifies people. It raises `CancelledRun`
    instead. A deployed run that gets SIGTERM has lost its node: it crashes, and is started again. Where the flow is
    called from code, the error is raised as it was.
    """

    @wraps(function)
    def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result | State[Any]:
        try:
            return function(*args, **kwargs)
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
        message = with_program_name(error.message)
        get_run_logger().error("%s", message)
        return Failed(message=escape_controls(message, keep="\n"), data=error)

    return run


def is_stopped_by_user(error: BaseException) -> bool:
    """Whether an error ends the current flow run because its user stopped it; if unknown, it is not.

    A deployed run gets SIGTERM both when it is cancelled in Prefect and when its pod is evicted. Of a flow run that
    another one has called, the outermost decides.
    """
    if isinstance(error, TerminationSignal) and not _is_of_a_command():
        with suppress(httpx.HTTPError, PrefectException), get_client(sync_client=True) as client:
            run = client.read_flow_run(UUID(flow_run.root_flow_run_id))
            is_cancelled = run.state is not None and (run.state.is_cancelling() or run.state.is_cancelled())
            return run.deployment_id is None or is_cancelled
        return False
    return not isinstance(error, Exception)


def _is_of_a_command() -> bool:
    context = FlowRunContext.get()
    run = context.flow_run if context else None
    return run is not None and run.deployment_id is None and run.parent_task_run_id is None
