"""`reelabel worker`: its commands and options."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.commands.example import example

worker_app = typer.Typer(
    help="Extract or infer for runs whose run.executor is remote.",
    epilog="Example: reelabel worker infer",
    no_args_is_help=True,
)
Plan = Annotated[str | None, typer.Option(help="Id of the plan to work on. Default: every open plan.")]
IdleTimeout = Annotated[
    float | None,
    typer.Option(
        "--idle-timeout", min=0, help="Exit after this many seconds without a shard. Default: run.idle_timeout_s."
    ),
]


@worker_app.command("extract")
@example("reelabel worker extract")
def worker_extract(plan: Plan = None, idle_timeout_s: IdleTimeout = None) -> None:
    """Extract planned shards until none is left, or the idle timeout passes."""
    from flows.commands.work import run_stage  # noqa: PLC0415

    run_stage("extract", plan=plan, idle_timeout_s=idle_timeout_s)


@worker_app.command("infer")
@example("reelabel worker infer --model Qwen/Qwen2.5-VL-7B-Instruct")
def worker_infer(
    plan: Plan = None,
    model: Annotated[str | None, typer.Option(help="Model folder or Hugging Face name. Default: model.name.")] = None,
    idle_timeout_s: IdleTimeout = None,
) -> None:
    """Load the model once, and answer extracted shards until none is left, or the idle timeout passes."""
    from flows.commands.work import run_stage  # noqa: PLC0415

    run_stage("infer", plan=plan, model=model, idle_timeout_s=idle_timeout_s)
