"""The command line's `work`: one stage of the work, for runs whose place is workers."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.commands.example import example

work_app = typer.Typer(
    help="Do one stage of the work for runs whose run.executor is remote.",
    epilog="Example: reelabel work infer",
    no_args_is_help=True,
)
Plan = Annotated[str | None, typer.Option(help="Id of the plan to work on; else every open plan.")]
Idle = Annotated[float | None, typer.Option("--idle", min=0, help="Seconds without a shard, after which this ends.")]


@work_app.command("extract")
@example("reelabel work extract")
def work_extract(plan: Plan = None, idle_s: Idle = None) -> None:
    """Extract planned shards until none is left, or none came for a while."""
    from flows.commands.work import run_stage  # noqa: PLC0415

    run_stage("extract", plan=plan, idle_s=idle_s)


@work_app.command("infer")
@example("reelabel work infer --model Qwen/Qwen2.5-VL-7B-Instruct")
def work_infer(
    plan: Plan = None,
    model: Annotated[str | None, typer.Option(help="Model folder or hub name.")] = None,
    idle_s: Idle = None,
) -> None:
    """Load the model once, and answer extracted shards until none is left, or none came for a while."""
    from flows.commands.work import run_stage  # noqa: PLC0415

    run_stage("infer", plan=plan, model=model, idle_s=idle_s)
