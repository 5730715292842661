"""`reelabel backfill`."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.commands.opened import opened
from flows.commands.run import run_here
from flows.commands.terminal import say
from flows.spec import make_spec
from infra.embedded import ServiceName, export
from infra.errors import ConfigurationError
from infra.objects import ObjectStore
from infra.settings import PromptChoice, SamplingChoice
from infra.uri import absolute_uri
from infra.wording import counted
from tasks.manifest.read import read_jobs
from tasks.model.identity import read_model_card
from tasks.results.read import read_failures
from tasks.results.runs import find_run

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from infra.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which jobs the user means.

    Attributes:
        ids: Separated by commas.
        ids_file: One id a line; `-` is standard input.
        failed: Every job that ended as a failure.
        force: Also jobs with a valid label.
    """

    ids: str
    ids_file: str | None
    failed: bool
    force: bool

    def job_ids(self) -> list[str]:
        """List the ids that were named.

        Raises:
            ConfigurationError: The file cannot be read, or nothing was chosen.
        """
        lines: list[str] = []
        try:
            if self.ids_file == "-":
                lines = sys.stdin.read().splitlines()
            elif self.ids_file:
                lines = Path(self.ids_file).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"Cannot read {self.ids_file}: {error}.") from None
        found = [text.strip() for text in (*self.ids.split(","), *lines)]
        named = list(dict.fromkeys(text for text in found if text))
        if not named and not self.failed:
            raise ConfigurationError("Nothing was chosen; give --ids, --ids-file or --failed.")
        return named


def run_backfill(  # noqa: PLR0913 - a command's options
    choice: Choice,
    *,
    dry_run: bool,
    manifest: str | None,
    dataset: str | None,
    num_frames: int | None,
    sampling: SamplingChoice,
    prompts: PromptChoice,
    model: str | None,
    permutations: int | None,
) -> int:
    """Ask chosen jobs again, or say what would be asked; gives the exit code."""
    job_ids = choice.job_ids()
    with opened(ServiceName.POSTGRES, ServiceName.S3) as (settings, engine):
        if manifest is None or dataset is None:
            last = find_run(engine, "last")
            manifest, dataset = manifest or last["manifest_uri"], dataset or last["dataset"]
        parameters: dict[str, Any] = {
            "manifest": absolute_uri(manifest),
            "dataset": dataset,
            "num_frames": num_frames,
            "sampling": sampling.model_dump(exclude_none=True),
            "prompts": prompts.model_dump(exclude_none=True),
            "model": model,
            "permutations": permutations,
        }
        if dry_run:
            _print_plan(choice, job_ids, parameters, settings=settings, engine=engine)
            return 0
        chosen = {"job_ids": job_ids, "failed": choice.failed, "force": choice.force}
        return run_here("backfill", parameters | chosen)


def _print_plan(
    choice: Choice,
    job_ids: list[str],
    parameters: dict[str, Any],
    *,
    settings: Settings,
    engine: Engine,
) -> None:
    os.environ.update(export(settings))
    from flows.backfill import choose_jobs  # noqa: PLC0415 - Prefect reads its environment when it is imported
    from flows.run import find_pending  # noqa: PLC0415

    objects = ObjectStore(settings.store, settings.web)
    jobs = read_jobs(parameters["manifest"], objects)
    card = read_model_card(parameters["model"] or settings.model.name, revision=settings.model.revision)
    spec = make_spec(
        card,
        settings,
        num_frames=parameters["num_frames"],
        choice=SamplingChoice(**parameters["sampling"]),
        prompts=PromptChoice(**parameters["prompts"]),
        permutations=parameters["permutations"],
    )
    dataset = parameters["dataset"]
    chosen = set(job_ids)
    if choice.failed:
        chosen |= set(read_failures(engine, dataset=dataset, spec_id=spec.spec_id)["job_id"].to_list())
    pending = find_pending(engine, objects, dataset=dataset, spec=spec, jobs=jobs, retry_failures=True)
    wanted = choose_jobs(jobs, pending, chosen=chosen, force=choice.force)
    videos = len({job.video_uri for job in wanted})
    say(
        f"Would ask {counted(len(wanted), 'job')} on {counted(videos, 'video')} of {dataset}; "
        f"{len(chosen) - len(wanted):,} of the chosen have a valid label.",
    )
