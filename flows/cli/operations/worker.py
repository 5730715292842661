"""`reelabel worker`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from flows.cli.console import OUT, print_notice
from flows.cli.context import OF_A_RUN, running_with_prefect
from flows.cli.options import example

commands = typer.Typer(epilog="Example: reelabel worker infer")
Plan = Annotated[str | None, typer.Option(help="Id of the plan to work on. Default: every open plan.")]
IdleTimeout = Annotated[
    float | None,
    typer.Option("--idle-timeout", min=0, help="Exit after this many seconds without a shard. Default: 300."),
]


@commands.command("extract")
@example("reelabel worker extract")
def extract_shards(plan: Plan = None, idle_timeout_s: IdleTimeout = None) -> None:
    """Extract planned shards until none is left or the idle timeout passes."""
    _run_stage("extract", plan=plan, idle_timeout_s=idle_timeout_s)


@commands.command("infer")
@example("reelabel worker infer --model Qwen/Qwen2.5-VL-7B-Instruct")
def infer_shards(
    plan: Plan = None,
    model: Annotated[str | None, typer.Option(help="Model folder or Hugging Face name. Default: model.name.")] = None,
    idle_timeout_s: IdleTimeout = None,
) -> None:
    """Load the model once, and answer extracted shards until none is left or the idle timeout passes."""
    _run_stage("infer", plan=plan, model=model, idle_timeout_s=idle_timeout_s)


def _run_stage(stage: str, **parameters: Any) -> None:  # noqa: ANN401 - the flow's own
    with running_with_prefect(*OF_A_RUN):
        from flows.extract import extract  # noqa: PLC0415 - Prefect takes a second to import
        from flows.infer import infer  # noqa: PLC0415

        flow: Any = {"extract": extract, "infer": infer}[stage]
        print_notice(flow(**parameters), console=OUT)
