"""Job selection of a backfill: the earlier run, and the user's selection among its jobs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import polars as pl

from infra.database.connect import Role, connected
from infra.program import command
from reelabel.digest import json_digest
from reelabel.errors import ConfigurationError, ObjectError
from reelabel.sources.object_store import ObjectStore
from reelabel.text import pluralize
from tasks.database.scope import Scope
from tasks.domain import DescribeSpec
from tasks.frame_cache.pool import current_fingerprints, video_store
from tasks.manifest.location import dataset_name
from tasks.results.choose import ChosenJobs, choose_jobs
from tasks.results.pending import changed_jobs
from tasks.results.read import count_labels
from tasks.results.runs import describe_spec, find_reference, find_run, list_other_specs, read_any_spec

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from uuid import UUID

    from sqlalchemy import Engine, RowMapping

    from flows.run.request import BackfillRequest
    from infra.settings import Settings
    from tasks.domain import Spec
    from tasks.manifest.table import JobTable
    from tasks.results.selection import Selection

_SHOWN_IDS = 5
_SHOWN_LABELS = 20
_SHOWN_DIGITS = 8  # of a spec's id
_OTHER_SPECS = 5
_WHERE_TIMEOUT_S = 60  # statement timeout for the user's SQL


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseRun:
    """The run that a backfill corrects.

    Attributes:
        spec: Its spec; None if there is no earlier run.
        row: Its row; None if there is no earlier run.
        run_id: The run that the user named, which limits the selection to its results; None if none was named.
    """

    dataset: str
    spec: Spec | None
    row: RowMapping | None = field(default=None, repr=False)
    run_id: UUID | None = None

    @property
    def keep_going(self) -> bool:
        """Whether it answered a manifest with invalid rows; if so, the backfill does, too."""
        return self.row is not None and bool(self.row["jobs_rejected"])

    @property
    def describes(self) -> bool:
        """Whether it described videos instead of answering questions."""
        return isinstance(self.spec, DescribeSpec)

    def restored(self, settings: Settings) -> Settings:
        """Return the settings with the earlier run's numeric type, the only setting that its spec depends on."""
        if self.spec is None:
            return settings
        model = settings.model.model_copy(update={"dtype": self.spec.model.dtype})
        return settings.model_copy(update={"model": model})

    def name_specs(self, spec: Spec | None) -> str:
        """Name the spec that a backfill selects from, and the one that it writes to, if that is known."""
        if self.spec is None or self.row is None:
            return f"Selects from and writes to {_name(spec)}; the manifest has no earlier run." if spec else ""
        which = ", the reference" if self.row["reference_at"] else ""
        earlier = f"{_name(self.spec)}, of run {self.row['run_id']}{which}"
        if spec is None:
            return f"Selects from {earlier}."
        if spec.spec_id == self.spec.spec_id:
            return f"Selects from and writes to {earlier}."
        return f"Selects from {earlier}; writes to {_name(spec)}."


def _name(spec: Spec) -> str:
    return f"spec {spec.spec_id[:_SHOWN_DIGITS]} ({describe_spec(spec.model_dump(mode='json'))})"


def find_base_run(
    settings: Settings, *, manifest: str, dataset: str | None, run: str | None, own: UUID | None = None
) -> BaseRun:
    """Find the run that a backfill corrects: the named one, or the manifest's reference.

    `own` is the run of the backfill, which has a row if Prefect has restarted it, and may then be the last one itself.

    Raises:
        ConfigurationError: No such run, or it belongs to another dataset, or its spec cannot be read.
    """
    with connected(settings.database, Role.READER) as reader:
        if run is None:
            row = find_reference(reader, manifest_uri=manifest, dataset=dataset)
            if row is None:
                return BaseRun(dataset=dataset or dataset_name(manifest), spec=None)
            return _base_run(reader, row)
        named = find_run(reader, run, besides=own)
        if dataset not in {None, named["dataset"]}:
            raise ConfigurationError(
                f"Run {named['run_id']} belongs to dataset {named['dataset']}, not {dataset}; name only one of them."
            )
        return replace(_base_run(reader, named), run_id=named["run_id"])


def _base_run(reader: Engine, row: RowMapping) -> BaseRun:
    return BaseRun(dataset=row["dataset"], spec=read_any_spec(reader, row["spec_id"]), row=row)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSelector:
    """A user's selection, to be applied to a manifest's jobs.

    Attributes:
        earlier: The run whose results are used.
    """

    selection: Selection
    named: Sequence[str] = field(repr=False)
    earlier: BaseRun
    settings: Settings = field(repr=False)

    @classmethod
    def of(cls, request: BackfillRequest, settings: Settings, *, own: UUID | None = None) -> JobSelector:
        """Read the ids of a request, and find the run that it corrects; `own` is that of the backfill, if it has begun.

        Raises:
            ConfigurationError: No job is selected, the ids cannot be read, or there is no such run.
        """
        objects = ObjectStore(settings.store, settings.web)
        listed = read_ids(request.ids_file, objects) if request.ids_file else []
        selection = request.selection
        earlier = find_base_run(
            settings, manifest=request.manifest, dataset=request.dataset, run=selection.run, own=own
        )
        return cls(selection=selection, named=[*request.ids, *listed], earlier=earlier, settings=settings)

    def __post_init__(self) -> None:
        """Reject an empty selection, which would select every job, and times between which nothing lies."""
        if not self.named and self.selection.is_empty:
            raise ConfigurationError(
                "No jobs selected; name job ids, or select by failed, code, missing, changed_video, label, "
                "margin_below, run, task, since, until or where."
            )
        since, until = self.selection.since, self.selection.until
        if since and until and since >= until:
            raise ConfigurationError(f"since, {since:%Y-%m-%d %H:%M}, is not before until, {until:%Y-%m-%d %H:%M}.")

    @property
    def only(self) -> pl.Series | None:
        """Ids of the only jobs that can be selected; None if any job can."""
        return None if self.selection.names_states or not self.named else pl.Series("job_id", self.named)

    def choose(self, jobs: JobTable, spec: Spec) -> ChosenJobs:
        """Select jobs; without an earlier run, by the results under the backfill's spec.

        Raises:
            ConfigurationError: Postgres rejects the user's SQL, no job has the label, or an id is not in the manifest.
        """
        database, earlier = self.settings.database, self.earlier
        scope = Scope(dataset=earlier.dataset, spec_id=(earlier.spec or spec).spec_id)
        with connected(database, Role.READER) as reader:
            found = choose_jobs(
                reader,
                scope,
                self.selection,
                jobs=jobs,
                run_id=earlier.run_id,
                named=[*self.named, *self._changed(reader, scope, jobs)],
                timeout_s=_WHERE_TIMEOUT_S,
            )
            if not len(found.jobs):
                found = replace(found, elsewhere=tuple(self._elsewhere(reader, jobs)))
            self._require_label(reader, scope, found)
        if found.unknown and not self.selection.skip_unknown:
            raise ConfigurationError(
                f"{describe_unknown_ids(found.unknown, self.settings.home)}; correct them, or turn "
                "on skip unknown to ignore them."
            )
        return found

    def _elsewhere(self, reader: Engine, jobs: JobTable) -> Iterator[str]:
        """Name the other specs of the manifest that have what was looked for, and the commands that select it there.

        Jobs without a result are not looked for: of most specs, most jobs have none. Nor are jobs named by id.
        """
        row, present = self.earlier.row, self.selection.model_copy(update={"missing": False})
        is_only_missing = self.selection.names_states and not present.names_states
        if row is None or self.earlier.run_id or self.named or is_only_missing:
            return
        for other in list_other_specs(reader, row, limit=_OTHER_SPECS):
            scope = Scope(dataset=row["dataset"], spec_id=other["spec_id"])
            runs = choose_jobs(reader, scope, present, jobs=jobs, timeout_s=_WHERE_TIMEOUT_S).runs
            for run_id, count in [*runs.items()][:1]:  # those of one run are what --run selects
                spec = f"Spec {other['spec_id'][:_SHOWN_DIGITS]} ({describe_spec(other['body'])})"
                chosen = self.selection.model_copy(update={"run": str(run_id)})
                yield f"{spec} has {count:,} of these: `{command('backfill', selection=chosen)}`."

    def _require_label(self, reader: Engine, scope: Scope, found: ChosenJobs) -> None:
        label = self.selection.label
        if label is None:
            return
        labels = count_labels(reader, scope)
        if label not in labels:
            shown = ", ".join(f"{name} ({count:,})" for name, count in [*labels.items()][:_SHOWN_LABELS])
            message = f"No job of {scope.dataset} has the label {label!r}; the labels are: {shown or 'none yet'}."
            raise ConfigurationError(" ".join([message, *found.elsewhere]))

    def _changed(self, reader: Engine, scope: Scope, jobs: JobTable) -> list[str]:
        if not self.selection.changed_video:
            return []
        fingerprints_of = partial(current_fingerprints, video_store(self.settings))
        changed = changed_jobs(reader, scope, jobs=jobs, fingerprints_of=fingerprints_of)
        return [job_id for part in changed.parts() for job_id in part["job_id"]]


def describe_unknown_ids(unknown: Sequence[str], folder: Path) -> str:
    """Describe which ids are not in the manifest; write many of them to a file in `folder`, if possible."""
    shown = ", ".join(unknown[:_SHOWN_IDS])
    counted = f"{pluralize(len(unknown), 'job id')} {'is' if len(unknown) == 1 else 'are'}"
    if len(unknown) <= _SHOWN_IDS:
        return f"{counted} not in the manifest: {shown}"
    sentence, path = f"{counted} not in the manifest, such as {shown}", folder.resolve() / "unknown-ids.txt"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{job_id}\n" for job_id in unknown), encoding="utf-8")
    except OSError:  # the folder cannot be written, as in a container
        return sentence
    return f"{sentence} (full list: {path})"


def store_ids(ids: Sequence[str], objects: ObjectStore, root: str) -> str:
    """Write ids to the store, one per line, where every worker can read them; return the file's URI.

    A flow run's parameters are limited to half a megabyte, which a million ids exceed.
    """
    uri = f"{root.rstrip('/')}/selections/{json_digest(list(ids))[:16]}.txt"
    objects.replace(uri, "".join(f"{job_id}\n" for job_id in ids).encode())
    return uri


def split_ids(text: str) -> list[str]:
    """Return the ids of a text, one per line, each once; spaces around them and empty lines are left out.

    Only a newline ends a line: ids may contain other separators, such as U+2028.
    """
    return list(dict.fromkeys(job_id for line in text.split("\n") if (job_id := line.strip(" \t\r"))))


def read_ids(uri: str, objects: ObjectStore) -> list[str]:
    """Read ids, one per line, skipping empty lines.

    Raises:
        ConfigurationError: The file is missing, or not text.
    """
    try:
        return split_ids(objects.read(uri).decode("utf-8-sig"))
    except ObjectError as error:
        raise ConfigurationError(f"Cannot read the job ids: {error.message}") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"Cannot read the job ids: {uri} is not UTF-8 text.") from None
