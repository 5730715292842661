"""Which jobs a backfill asks: whose rows tell how jobs ended, and what the user chose among them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polars as pl

from infra.database import Login, connect
from infra.errors import ConfigurationError, ObjectError
from infra.wording import counted
from tasks.domain.digest import digest_of
from tasks.manifest.read import dataset_name
from tasks.results.choose import ChosenJobs, Scope, choose_jobs
from tasks.results.runs import find_run, newest_run, read_spec

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from uuid import UUID

    from infra.objects import ObjectStore
    from infra.settings import Settings
    from tasks.domain import RunSpec
    from tasks.manifest.table import JobTable
    from tasks.results.selection import Selection

_SHOWN_IDS = 5
_WHERE_TIMEOUT_S = 60  # statement timeout for the SQL of --where


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierRun:
    """Whose rows tell how jobs ended.

    Attributes:
        dataset: Where its rows are.
        spec: How it asked; None where there is none yet.
        run_id: The run that the user named, for what it wrote alone; None where none was named.
    """

    dataset: str
    spec: RunSpec | None
    run_id: UUID | None = None

    def restored(self, settings: Settings) -> Settings:
        """Give the settings with the numeric type of then; what else a spec holds needs none of them."""
        if self.spec is None:
            return settings
        model = settings.model.model_copy(update={"dtype": self.spec.model.dtype})
        return settings.model_copy(update={"model": model})


def find_earlier(settings: Settings, *, manifest: str, dataset: str | None, run: str | None) -> EarlierRun:
    """Find the run that a backfill corrects: the one that is named, or the manifest's last.

    Raises:
        ConfigurationError: No such run, or it belongs to another dataset, or cannot be repeated.
    """
    reader = connect(settings.database, Login.READER)
    try:
        if run is None:
            row = newest_run(reader, manifest_uri=manifest, dataset=dataset)
            if row is None:
                return EarlierRun(dataset=dataset or dataset_name(manifest), spec=None)
            return EarlierRun(dataset=row["dataset"], spec=read_spec(reader, row["spec_id"]))
        named = find_run(reader, run)
        if dataset not in {None, named["dataset"]}:
            raise ConfigurationError(
                f"Run {named['run_id']} belongs to the dataset {named['dataset']}, not {dataset}; leave one out."
            )
        return EarlierRun(dataset=named["dataset"], spec=read_spec(reader, named["spec_id"]), run_id=named["run_id"])
    finally:
        reader.dispose()


@dataclass(frozen=True, slots=True, kw_only=True)
class Choosing:
    """A user's choice, ready to be made among a manifest's jobs.

    Attributes:
        selection: By how jobs ended.
        named: By id.
        earlier: Whose rows tell how they ended.
    """

    selection: Selection
    named: Sequence[str] = field(repr=False)
    earlier: EarlierRun
    settings: Settings = field(repr=False)

    def __post_init__(self) -> None:
        """Refuse what would choose every job by saying nothing."""
        if not self.named and self.selection.is_empty:
            raise ConfigurationError(
                "Nothing was chosen; name jobs by id, or choose by failed, missing, label, margin_below, run, task, "
                "since, until or where."
            )

    @property
    def only(self) -> pl.Series | None:
        """Ids beside which no job of the manifest can be chosen; None where any can."""
        return None if self.selection.names_states or not self.named else pl.Series("job_id", self.named)

    def look(self, jobs: JobTable, spec: RunSpec) -> ChosenJobs:
        """Choose, without complaint.

        Args:
            jobs: The manifest's, or those of them that can be chosen.
            spec: How they are going to be asked; its rows tell where there is no earlier run.

        Raises:
            ConfigurationError: Postgres refuses the user's SQL.
        """
        database, earlier = self.settings.database, self.earlier
        scope = Scope(dataset=earlier.dataset, spec_id=(earlier.spec or spec).spec_id, run_id=earlier.run_id)
        reader = connect(database, Login.READER)
        try:
            return choose_jobs(
                reader,
                self.selection,
                scope=scope,
                jobs=jobs,
                named=self.named,
                timeout_s=_WHERE_TIMEOUT_S,
            )
        finally:
            reader.dispose()

    def choose(self, jobs: JobTable, spec: RunSpec) -> JobTable:
        """Choose, as `look` does.

        Raises:
            ConfigurationError: Postgres refuses the user's SQL, or a job that was named is not in the manifest.
        """
        chosen = self.look(jobs, spec)
        if chosen.unknown and not self.selection.skip_unknown:
            raise ConfigurationError(
                f"{name_unknown(chosen.unknown, self.settings.home)}; correct them, or pass over them (--skip-unknown)."
            )
        return chosen.jobs


def name_unknown(unknown: Sequence[str], folder: Path) -> str:
    """Say which ids are not in the manifest; where they are many, all of them stand in a file of `folder`."""
    shown = ", ".join(unknown[:_SHOWN_IDS])
    verb = "is" if len(unknown) == 1 else "are"
    if len(unknown) <= _SHOWN_IDS:
        return f"{counted(len(unknown), 'job id')} {verb} not in the manifest: {shown}"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder.resolve() / "unknown-ids.txt"
    path.write_text("".join(f"{job_id}\n" for job_id in unknown), encoding="utf-8")
    return f"{counted(len(unknown), 'job id')} {verb} not in the manifest, such as {shown} (all of them: {path})"


def store_ids(job_ids: Sequence[str], objects: ObjectStore, root: str) -> str:
    """Put ids where every worker can read them, one a line; gives the file's URI.

    A flow run's parameters may hold half a megabyte; a million ids are more.
    """
    uri = f"{root.rstrip('/')}/selections/{digest_of(list(job_ids))[:16]}.txt"
    objects.replace(uri, "".join(f"{job_id}\n" for job_id in job_ids).encode())
    return uri


def read_ids(uri: str, objects: ObjectStore) -> list[str]:
    """Read ids, one a line; empty lines are passed over.

    Raises:
        ConfigurationError: Nothing stands there, or it is no text.
    """
    try:
        lines = objects.read(uri).decode("utf-8-sig").splitlines()
    except ObjectError as error:
        raise ConfigurationError(f"The job ids cannot be read: {error.message}") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"The job ids cannot be read: {uri} is no text in UTF-8.") from None
    return list(dict.fromkeys(text for line in lines if (text := line.strip())))
