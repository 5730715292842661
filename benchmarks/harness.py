"""Shared parts of benchmarks: tables with targets, timing, separate processes and separate services."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import threading
import time
import venv
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from rich.box import MARKDOWN
from rich.console import Console
from rich.table import Table as RichTable

from reelabel.errors import ReelabelError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from uuid import UUID

    from prefect import Flow

    from infra.settings import Settings
    from reelabel.sources.object_store import ObjectStore

OUT = Console(width=None if sys.stdout.isatty() else 200)  # a file has no width of its own
PROGRESS = Console(stderr=True)
MIB, GIB = 1024**2, 1024**3
_INSTALL_S = 1200.0
Row: TypeAlias = Mapping[str, Any]


class Column(NamedTuple):
    """A column of a table.

    Attributes:
        key: The row's field, or a function of the row.
        format: Format specification of its numbers, such as `,.1f`; with `x` at the end for ratios.
    """

    heading: str
    key: str | Callable[[Row], Any]
    format: str = ""

    def value(self, row: Row) -> Any:  # noqa: ANN401 - of JSON
        return row.get(self.key) if isinstance(self.key, str) else self.key(row)

    def cell(self, row: Row) -> str:
        value = self.value(row)
        if value is None or isinstance(value, str):
            return value or ""
        spec = self.format.removesuffix("x")
        return f"{value:{spec}}{'x' if spec != self.format else ''}"


def ratio(heading: str, one: str, other: str) -> Column:
    """Return a column of how many times as much one field is as another, where the row has both."""
    return Column(heading, lambda row: row[one] / row[other] if {one, other} <= row.keys() else None, ",.2fx")


class Table(NamedTuple):
    """Rows to show. With `across`, each row is a column of the table, headed by the first of `columns`."""

    title: str
    rows: Sequence[Row]
    columns: Sequence[Column]
    note: str = ""
    across: bool = False


class Target(NamedTuple):
    """A figure that a benchmark should reach: at least `least`, at most `most`."""

    name: str
    value: float
    least: float | None = None
    most: float | None = None

    @property
    def is_met(self) -> bool:
        return (self.least is None or self.value >= self.least) and (self.most is None or self.value <= self.most)

    def __str__(self) -> str:
        bound = f"at least {self.least:,.4g}" if self.least is not None else f"at most {self.most:,.4g}"
        return f"{'met   ' if self.is_met else 'MISSED'}  {self.name}: {self.value:,.4g} ({bound})"


def show(
    tables: Iterable[Table], *, targets: Sequence[Target] = (), facts: Row | None = None, as_json: bool = False
) -> int:
    """Print tables in Markdown, targets and facts, or all of it as JSON; return 1 if a target is missed, else 0."""
    if as_json:
        report = {
            "tables": [{"title": table.title, "rows": table.rows} for table in tables],
            "targets": [target._asdict() | {"is_met": target.is_met} for target in targets],
            **(facts or {}),
        }
        print(json.dumps(report, indent=2, default=asdict))  # noqa: T201
    else:
        for table in tables:
            OUT.print(_rendered(table))
            if table.note:
                OUT.print(table.note, soft_wrap=True, highlight=False)
        for target in targets:
            OUT.print(str(target), soft_wrap=True, highlight=False)
        for name, fact in (facts or {}).items():
            if fact:
                OUT.print(f"{name}: {fact}", soft_wrap=True, highlight=False, markup=False)
    return int(not all(target.is_met for target in targets))


def _rendered(table: Table) -> RichTable:
    head, *others = table.columns
    lines = [[column.heading, *map(column.cell, table.rows)] for column in others]
    heads = [head.heading, *map(head.cell, table.rows)]
    if not table.across:
        heads = [column.heading for column in table.columns]
        lines = [[column.cell(row) for column in table.columns] for row in table.rows]
    rendered = RichTable(title=table.title, title_justify="left", box=MARKDOWN)
    for place, heading in enumerate(heads):
        is_text = place == 0 or (not table.across and isinstance(table.columns[place].value(table.rows[0]), str))
        rendered.add_column(heading, justify="left" if is_text else "right", no_wrap=True)
    for line in lines:
        rendered.add_row(*line)
    return rendered


@contextmanager
def progress(text: str = "") -> Iterator[Callable[[str], None]]:
    """Show what is being done: in place on a terminal, else line by line; yield what changes the text."""
    with PROGRESS.status(text) as status:

        def update(line: str) -> None:
            status.update(line)
            if not PROGRESS.is_terminal:
                PROGRESS.print(line, soft_wrap=True)

        yield update


def about(name: str, show: Callable[[str], None]) -> Callable[[str], None]:
    """Return what shows a text as `show` does, with a name before it."""
    return lambda text: show(f"{name}: {text}")


def time_ms(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return (time.perf_counter() - started) * 1e3


def race(calls: Mapping[str, Callable[[], object]], *, rounds: int, warm_up: bool = True) -> dict[str, list[float]]:
    """Return the milliseconds of each call in each round; the calls take turns, so that other load falls on all."""
    if warm_up:
        for call in calls.values():
            call()
    turns = [{name: time_ms(call) for name, call in calls.items()} for _ in range(rounds)]
    return {name: [turn[name] for turn in turns] for name in calls}


def medians(times: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {name: median(values) for name, values in times.items()}


def paired(times: Mapping[str, Sequence[float]], one: str, other: str) -> float:
    """Return the median over the rounds of how many times as long `one` takes as `other`."""
    return median(a / b for a, b in zip(times[one], times[other], strict=True))


class StepResult(NamedTuple):
    """Return value of a step, its seconds without the start of the process, and the process's peak memory."""

    value: Any
    seconds: float
    peak_bytes: int


def run_in_process(step: Callable[..., Any], *arguments: Any) -> StepResult:  # noqa: ANN401 - of the step
    """Run a step in a new process, so that its peak memory can be measured."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        return process.submit(_measure, step, arguments).result()


def _measure(step: Callable[..., Any], arguments: tuple[Any, ...]) -> StepResult:
    started = time.perf_counter()
    value = step(*arguments)
    # Not getrusage: its peak survives exec, and could be that of the parent process.
    return StepResult(value, time.perf_counter() - started, status_bytes("VmHWM"))


def status_bytes(name: str) -> int:
    """Return a size of this process's status, such as VmHWM, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) * 1024


def proportional_bytes(pid: int) -> int:
    """Return the physical memory of a process, with its share of what it shares with others; 0 if it has ended."""
    with suppress(OSError):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024
    return 0


@contextmanager
def repeating(action: Callable[[], object], *, every_s: float) -> Iterator[None]:
    """Call a function in a thread of its own, again and again while the body runs."""
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(every_s):
            action()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def variables(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables, from which a flow loads its settings, and restore them."""
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def make_environment(
    home: Path, requirements: Path, *, what: str, options: Sequence[str] = (), shared: Sequence[Path] = ()
) -> Path:
    """Return the Python of an environment with pinned packages, which is made unless it exists.

    The folders of `shared` packages come after its own on its path; what they have in editable form stays theirs.
    """
    home = home.absolute()
    wanted = requirements.read_text() + "".join(f"# beside {folder}\n" for folder in shared)
    python, installed = home / "bin/python", home / "requirements.txt"
    if not installed.exists() or installed.read_text() != wanted:
        venv.create(home, clear=True)
        (packages_of(home) / "shared.pth").write_text("".join(f"{folder}\n" for folder in shared))
        command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", *options]
        command += ["--requirement", str(requirements)]
        try:
            done = subprocess.run(command, check=False, text=True, capture_output=True, timeout=_INSTALL_S)  # noqa: S603
        except subprocess.TimeoutExpired:
            raise ReelabelError(f"{what} was not installed within {_INSTALL_S:g} s; try again.") from None
        if done.returncode:
            last = " ".join(line.strip() for line in done.stderr.splitlines()[-3:])
            raise ReelabelError(f"{what} cannot be installed ({last}); check the access to PyPI and the disk's space.")
        installed.write_text(wanted)
    return python


def packages_of(home: Path) -> Path:
    """Return the folder of an environment's packages."""
    return home / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"


@contextmanager
def own_services(*wanted: str) -> Iterator[Settings]:
    """Run Postgres, S3 and Prefect, or those of them that are wanted, for this benchmark alone; yield the settings.

    The user's own services and data are never touched.
    """
    from infra.embedded import ServiceName, running  # noqa: PLC0415 - `--help` needs none of it
    from infra.settings import load_settings  # noqa: PLC0415

    user = load_settings()
    ours = {name: type(getattr(user, name))() for name in ("database", "store", "prefect")}
    names = frozenset(map(ServiceName, wanted or ("postgres", "s3", "prefect")))
    with TemporaryDirectory(prefix="reelabel-") as home:
        settings = user.model_copy(update=ours | {"home": Path(home)})
        with PROGRESS.status("Starting services"), running(settings, wanted=names) as started:
            yield started


@contextmanager
def flow_services() -> Iterator[Settings]:
    """Run all services with a prepared database; flows may be imported and run inside."""
    from flows.cli.context import prefect_ready  # noqa: PLC0415
    from tasks.database.schema import prepare_database  # noqa: PLC0415

    with own_services() as settings, prefect_ready(settings):
        prepare_database(settings.database)
        yield settings


@contextmanager
def own_store() -> Iterator[tuple[ObjectStore, str]]:
    """Run an S3 server for this benchmark alone; yield its client, and a URI below which it is empty."""
    from reelabel.sources.object_store import ObjectStore  # noqa: PLC0415

    with own_services("s3") as settings:
        yield ObjectStore(settings.store, settings.web), f"{settings.store.uri}/bench"


def run_flow(flow: Flow[..., Any], parameters: dict[str, Any], settings: Settings) -> UUID:
    """Run a flow in this process with these settings; return the id of its run."""
    from prefect.client.orchestration import get_client  # noqa: PLC0415 - once Prefect is configured
    from prefect.flow_engine import run_flow as run  # noqa: PLC0415

    from infra.embedded import export  # noqa: PLC0415

    with variables(export(settings)):
        with get_client(sync_client=True) as client:
            flow_run = client.create_flow_run(flow, parameters=parameters)
        run(flow, flow_run=flow_run, parameters=parameters)
    return flow_run.id
