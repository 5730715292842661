"""The page of a run of questions: its counts and its rendering."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from sqlalchemy import Integer, case, cast, func, select

from infra.database.connect import database_errors
from reelabel.errors import ConfigurationError
from reelabel.sampling.options import DEFAULT_NUM_FRAMES, estimate_frames
from reelabel.sources.object_info import redact_uri
from reelabel.text import pluralize
from tasks.database.scope import Scope
from tasks.database.tables import FAILURE, RESULT
from tasks.domain import RunCost
from tasks.domain.chunks import split_chunk_id
from tasks.domain.cost import format_price
from tasks.domain.coverage import DOCS_PAGE, coverage_warnings
from tasks.evaluation.calibration import BINS
from tasks.report.changes import count_other_ways, earlier_runs, label_changes
from tasks.report.jobs import MAX_JOBS, Sources, load_jobs, select_jobs
from tasks.report.render import Frames, render, render_page, with_cards
from tasks.report.timeline import load_timeline, slowest_jobs
from tasks.results.evaluation.evaluations import last_evaluation
from tasks.results.evaluation.routing import read_routing
from tasks.results.runs import short_ids
from tasks.results.summary import describe_rewritten

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from sqlalchemy import ColumnElement, Connection, Engine, RowMapping

    from reelabel.frames.cache import FrameCache
    from reelabel.sources.object_store import ObjectStore
    from tasks.domain import RunSpec
    from tasks.evaluation.scores import Evaluation
    from tasks.report.jobs import JobCard

_MAX_VIDEOS = 60
_HISTOGRAM_BINS = 20  # so that the first bin is what is below LOW_CHOICE_MASS
_MAX_LABELS = 16
_FAILURE_EXAMPLES = 3
_SUBTASKS_EACH_END = 6
_MIN_DRAWN_SHARE = 0.005
_IS_RIGHT = RESULT.c.label == RESULT.c.answer
_CONFIDENCE = RESULT.c.probabilities[RESULT.c.choice_index + 1]
_SECTIONS = (
    ("overview", "Run"),
    ("time", "Time"),
    ("labels", "Labels"),
    ("failures", "Failures"),
    ("changes", "Changes"),
    ("trade", "Trade-off"),
    ("jobs", "Jobs"),
    ("replay", "Replay"),
)


def load_run(
    engine: Engine,
    objects: ObjectStore,
    run: RowMapping,
    spec: RunSpec | None,
    *,
    cache: FrameCache,
    job_ids: Sequence[str] = (),
) -> dict[str, Any]:
    """Load the data of a run's page, by its names in the template, always including the named jobs.

    `spec` is that of the run; None if this version cannot read it. The id of a chunk selects its job, with the frames
    of that chunk.

    Raises:
        ConfigurationError: A named job has no row, or too many jobs are named.
        TransientError: A service is unavailable.
    """
    named = len(set(job_ids))
    if named > MAX_JOBS:
        raise ConfigurationError(f"A report shows at most {MAX_JOBS} jobs, but {named:,} were named; name fewer.")
    scope = Scope.of(run)
    job_ids, named_chunks = _split(job_ids) if spec and spec.chunk_s is not None else (job_ids, {})
    evaluation = last_evaluation(engine, dataset=scope.dataset)
    routing = read_routing(engine, scope, run_id=run["run_id"])
    with database_errors(), engine.connect() as connection:
        runs = earlier_runs(connection, run)
        names = short_ids(engine, [each["run_id"] for each in runs])
        changes = label_changes(connection, scope, runs)
        before = dict(changes["job_ids"]) if changes else {}
        jobs, note = load_jobs(
            connection,
            scope,
            Sources(run["manifest_uri"], spec, objects, cache),
            selected=select_jobs(connection, scope, named=job_ids, changed=before),
            before=before,
            named_chunks=named_chunks,
            max_videos=_MAX_VIDEOS,
        )
        require_rows(job_ids, {job.job_id for job in jobs}, scope, "label or failure")
        reliability, tasks = _reliability(connection, scope), _tasks(connection, scope)
        known, words = sum(task["known"] for task in tasks), _words(connection, scope)
        return {
            "overview": run_overview(run, model=spec.model.name if spec else ""),
            "labels": scope.count(connection, RESULT) - words["answers"],
            "words": words,
            "failures": scope.count(connection, FAILURE),
            "sampling": spec.sampling.to_dict() if spec else {},
            "native_sampler": run["native_sampler"],
            "label_counts": _label_counts(connection, scope),
            "margins": _histogram(connection, scope, RESULT.c.margin),
            "choice_masses": _histogram(connection, scope, RESULT.c.choice_mass),
            "reliability": reliability,
            "calibration_error": _calibration_error(reliability),
            "tasks": tasks,
            "known": known,
            "accuracy": sum(task["right"] for task in tasks) / known if known else None,
            "routing": routing,
            "failure_groups": group_failures(connection, scope),
            "caveats": _caveats(connection, scope, run),
            "slowest": slowest_jobs(connection, scope, run),
            "timeline": load_timeline(connection, scope, run),
            "runs": runs,
            "names": names,
            "changes": changes,
            "other_ways": count_other_ways(connection, run),
            "trade": select_trade_off(evaluation, scope.spec_id) if evaluation else None,
            "jobs": jobs,
            "note": note,
            "made_at": datetime.now(UTC),
        }


def _split(ids: Sequence[str]) -> tuple[Sequence[str], dict[str, set[int]]]:
    """Split ids of jobs and chunks into job ids and chunk numbers by job."""
    chunks: dict[str, set[int]] = {job_id: set() for job_id, _ in map(split_chunk_id, ids)}
    for job_id, number in map(split_chunk_id, ids):
        if number is not None:
            chunks[job_id].add(number)
    return list(chunks), chunks


def require_rows(job_ids: Sequence[str], found: AbstractSet[str], scope: Scope, what: str) -> None:
    """Raise a ConfigurationError if jobs that were named have no row."""
    if missing := sorted(set(job_ids) - found):
        raise ConfigurationError(
            f"{pluralize(len(missing), 'job')} without a {what} in dataset {scope.dataset}, such as "
            f"{redact_uri(missing[0])}; to list them all: `reelabel audit --list FILE`."
        )


def run_overview(run: RowMapping, *, model: str = "") -> dict[str, Any]:
    """Return the columns of a run shown on its page, with its `model`, cost, and length in seconds."""
    cost = RunCost.of_run(run)
    return {
        **run,
        "model": model,
        "manifest_uri": redact_uri(run["manifest_uri"]),
        "spent_s": (run["ended_at"] - run["started_at"]).total_seconds() if run["ended_at"] else None,
        "ended": run["jobs_labelled"] + run["jobs_failed"],
        "price": None if run["cost"] is None else format_price(run["cost"]),
        "cost": cost if cost and cost.jobs and cost.loaded_ms else None,
        "parts": sorted((run["wall_ms"] or {}).items(), key=lambda part: -part[1]),
        "versions": {name: str(value) for name, value in run["versions"].items() if not isinstance(value, dict)},
    }


def _words(connection: Connection, scope: Scope) -> RowMapping:
    """Count `answers` in words, those `cut` at the limit, and their `tokens`."""
    query = select(
        func.count(RESULT.c.finish_reason).label("answers"),
        func.count().filter(RESULT.c.finish_reason == "length").label("cut"),
        func.coalesce(func.sum(RESULT.c.output_tokens), 0).label("tokens"),
    ).where(scope.matches(RESULT))
    return connection.execute(query).mappings().one()


def _label_counts(connection: Connection, scope: Scope) -> list[RowMapping]:
    """Count labels, the most frequent first; `label` is None for those too rare to be listed."""
    jobs = func.count().label("jobs")
    ranked = (
        select(RESULT.c.label, jobs, func.row_number().over(order_by=(jobs.desc(), RESULT.c.label)).label("rank"))
        .where(scope.matches(RESULT), RESULT.c.label.is_not(None))
        .group_by(RESULT.c.label)
        .subquery()
    )
    name = case((ranked.c.rank <= _MAX_LABELS, ranked.c.label), else_=None)
    query = (
        select(name.label("label"), cast(func.sum(ranked.c.jobs), Integer).label("jobs"))
        .group_by(name)
        .order_by(name.is_(None), func.min(ranked.c.rank))
    )
    return list(connection.execute(query).mappings())


def _histogram(connection: Connection, scope: Scope, value: ColumnElement[float]) -> list[dict[str, Any]]:
    """Count jobs by a value from 0 to 1, in bins of equal width, by whether the label is correct, if known."""
    number = _bin(value, _HISTOGRAM_BINS, func.floor(value * _HISTOGRAM_BINS))
    counts = {
        "right": func.count().filter(_IS_RIGHT),
        "wrong": func.count().filter(RESULT.c.answer.is_not(None), ~_IS_RIGHT),
        "unknown": func.count().filter(RESULT.c.answer.is_(None)),
    }
    query = select(number.label("number"), *(count.label(name) for name, count in counts.items()))
    rows = connection.execute(query.where(scope.matches(RESULT), value.is_not(None)).group_by(number)).mappings()
    found = {row["number"]: row for row in rows}
    empty = dict.fromkeys(counts, 0)
    return [
        {"low": at / _HISTOGRAM_BINS, "high": (at + 1) / _HISTOGRAM_BINS, **found.get(at, empty)}
        for at in range(_HISTOGRAM_BINS)
    ]


def _reliability(connection: Connection, scope: Scope) -> list[RowMapping]:
    """Compare confidence and accuracy in the bins of `expected_calibration_error`, omitting empty bins."""
    number = _bin(_CONFIDENCE, BINS, func.ceil(_CONFIDENCE * BINS) - 1)
    query = (
        select(
            func.avg(_CONFIDENCE).label("confidence"),
            (func.count().filter(_IS_RIGHT) * 1.0 / func.count()).label("accuracy"),
            func.count().label("jobs"),
        )
        .where(scope.matches(RESULT), RESULT.c.answer.is_not(None))
        .group_by(number)
        .order_by(number)
    )
    return list(connection.execute(query).mappings())


def _bin(value: ColumnElement[float], bins: int, number: ColumnElement[float]) -> ColumnElement[int]:
    """Return the index of a value's bin, clamped because rounding may exceed the bounds."""
    return case((value <= 0, 0), else_=cast(func.least(func.greatest(number, 0), bins - 1), Integer))


def _calibration_error(bins: Sequence[RowMapping]) -> float | None:
    """Return the mean gap between confidence and accuracy, weighted by jobs; None if no answer is known."""
    jobs = sum(each["jobs"] for each in bins)
    return sum(abs(each["confidence"] - each["accuracy"]) * each["jobs"] for each in bins) / jobs if jobs else None


def _tasks(connection: Connection, scope: Scope) -> list[RowMapping]:
    """Count correct labels by task, omitting tasks without a known answer."""
    task = func.coalesce(RESULT.c.task, "")
    query = (
        select(task.label("task"), func.count().label("known"), func.count().filter(_IS_RIGHT).label("right"))
        .where(scope.matches(RESULT), RESULT.c.answer.is_not(None))
        .group_by(task)
        .order_by(task)
    )
    return list(connection.execute(query).mappings())


def group_failures(connection: Connection, scope: Scope) -> list[dict[str, Any]]:
    """Group failures by code and stage, the most frequent first, with example job ids and messages."""
    same = (FAILURE.c.code, FAILURE.c.stage)
    ranked = (
        select(
            *(FAILURE.c[name] for name in ("code", "stage", "job_id", "message")),
            func.count().over(partition_by=same).label("jobs"),
            func.row_number().over(partition_by=same, order_by=FAILURE.c.job_id).label("rank"),
        )
        .where(scope.matches(FAILURE))
        .subquery()
    )
    order = (ranked.c.jobs.desc(), ranked.c.code, ranked.c.stage, ranked.c.rank)
    rows = connection.execute(select(ranked).where(ranked.c.rank <= _FAILURE_EXAMPLES).order_by(*order)).all()
    return [
        {"code": code, "stage": stage, "jobs": jobs, "examples": [(row.job_id, row.message) for row in found]}
        for (code, stage, jobs), found in groupby(rows, attrgetter("code", "stage", "jobs"))
    ]


def _caveats(connection: Connection, scope: Scope, run: RowMapping) -> list[str]:
    """Return caveats about the labels, one sentence each."""
    query = select(
        func.count().filter(RESULT.c.decode_note.contains("cut short")).label("cut_short"),
        func.count().filter(RESULT.c.same_position).label("by_position"),
        func.count().filter(RESULT.c.permutations > 1).label("in_orders"),
        func.count(RESULT.c.copied_from).label("copied"),
    ).where(scope.matches(RESULT))
    counts = connection.execute(query).mappings().one()
    caveats = [f"{line}." for line in coverage_warnings(run["coverage"])]
    if run["videos_rewritten"]:
        caveats.append(f"In this run, {describe_rewritten(run['videos_rewritten'])}.")
    if run["jobs_rejected"]:
        caveats.append(f"Rejected, and not answered: {pluralize(run['jobs_rejected'], 'row')} of the manifest.")
    if counts["copied"]:
        caveats.append(f"Copied from jobs on near-duplicates: {pluralize(counts['copied'], 'answer')}.")
    if counts["cut_short"]:
        caveats.append(f"Based on truncated videos: {pluralize(counts['cut_short'], 'label')}.")
    if counts["by_position"]:
        caveats.append(
            f"In {counts['by_position']:,} of {pluralize(counts['in_orders'], 'job')} the model chose the same "
            "position in every order of the choices: there, position decided, not the choices."
        )
    if run["state"] != "running" and run["message"] and not run["message"].startswith("Reconciled"):
        caveats.append(run["message"])
    return caveats


def select_trade_off(evaluation: Evaluation, spec_id: str) -> dict[str, Any]:
    """Select a candidate of an evaluation, and the subtasks where it loses and gains most.

    The candidate is the run's, or otherwise the first one compared with the baseline; None if there is only the
    baseline.
    """
    others = [spec for spec in evaluation.specs if spec.difference]
    candidate = next((spec for spec in others if spec.spec_id == spec_id), next(iter(others), None))
    ordered = evaluation.by_difference(candidate.name) if candidate else []
    worst, rest = ordered[:_SUBTASKS_EACH_END], ordered[_SUBTASKS_EACH_END:]
    return {"evaluation": evaluation, "candidate": candidate, "worst": worst, "best": rest[-_SUBTASKS_EACH_END:]}


def render_run(report: Mapping[str, Any]) -> str:
    """Render the page of a run from the data of `load_run`."""
    jobs: Sequence[JobCard] = report["jobs"]
    num_frames = estimate_frames(int(str(report["sampling"].get("num_frames", DEFAULT_NUM_FRAMES))))
    prompts = {job.system_prompt for job in jobs}
    shared_prompt = prompts.pop() if len(prompts) == 1 < len(jobs) else None
    page = render_page(
        "run.html.jinja",
        scripts=("report.js", "replay.js"),
        report=report,
        sections=[section for section in _SECTIONS if section[0] != "trade" or report["trade"]],
        parts=_parts(report["overview"]["parts"]),
        shown={job.job_id for job in jobs},
        reasons=Counter(reason for job in jobs for reason in job.selected_because),
        shared_prompt=shared_prompt,
        num_frames=num_frames,
        most_frames=max(64, num_frames),
        read_more=DOCS_PAGE,
    )
    frames = Frames("strip.html.jinja")

    def draw(job: JobCard, level: int) -> str:
        outcomes = Counter(chunk["label"] or chunk["code"] for chunk in job.chunks)
        return render(
            "job.html.jinja",
            job=job,
            row=job.row,
            level=level,
            frames=frames,
            outcomes=outcomes,
            shared_prompt=shared_prompt,
            run=report["names"][report["overview"]["run_id"]],
        )

    return with_cards(
        page,
        jobs,
        draw,
        frames=frames,
        noun="job",
        known=report["labels"] + report["words"]["answers"] + report["failures"],
        why="those that failed, changed, are wrong, uncertain or slow come first, then a random sample",
        note=report["note"],
    )


def _parts(parts: Sequence[tuple[str, float]]) -> list[tuple[str, float]]:
    """Return the parts of the wall-clock profile, combining those that are too short to draw."""
    least_ms = _MIN_DRAWN_SHARE * sum(ms for _, ms in parts)
    rest_ms = sum(ms for _, ms in parts if ms < least_ms)
    rest = [("all others", rest_ms)] if rest_ms >= least_ms and rest_ms else []
    return [*((name, ms) for name, ms in parts if ms >= least_ms), *rest]
