"""`reelabel worker`."""

from __future__ import annotations

from typing import Any

from flows.cli.console import OUT, print_notice
from flows.cli.context import prefect_ready, running_services
from infra.embedded import ServiceName


def run_stage(stage: str, **parameters: Any) -> None:  # noqa: ANN401 - the flow's own
    """Run the flow of a stage in this process, and print its result."""
    with (
        running_services(ServiceName.POSTGRES, ServiceName.S3, ServiceName.PREFECT) as settings,
        prefect_ready(settings),
    ):
        from flows.extract import extract  # noqa: PLC0415 - Prefect takes a second to import
        from flows.infer import infer  # noqa: PLC0415

        flow: Any = {"extract": extract, "infer": infer}[stage]
        print_notice(flow(**parameters), console=OUT)
