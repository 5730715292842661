"""`reelabel describe`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from flows.cli.options import IdFile, example, with_describe
from flows.cli.runs.run import run_locally
from flows.run.request import DescribeRequest
from reelabel.errors import ConfigurationError
from reelabel.sources.object_info import absolute_uri


@example("reelabel describe 's3://videos/jobs/*.parquet' --tags products.txt --dataset animals")
@with_describe
def describe(
    manifest: Annotated[
        str, typer.Argument(help="Parquet file of jobs, or a glob; only job_id and video_uri are needed.")
    ],
    *,
    options: Any,  # noqa: ANN401 - the fields of a request
    id_file: IdFile = None,
) -> None:
    """Tag, caption and find the scenes of the videos of a manifest; described videos are skipped.

    With another label set or method, cached embeddings are reused and nothing is decoded.
    """
    if not manifest:
        raise ConfigurationError("No manifest given; use a Parquet file or a glob.")
    raise typer.Exit(run_locally(DescribeRequest.of(manifest=absolute_uri(manifest), **dict(options)), id_file))
