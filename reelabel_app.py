"""Start runs from Python, and read their rows.

    from reelabel_app import classify, results

    run = classify("/videos", prompt="Is there a person?", choices=["yes", "no"])
    run.rows().filter(pl.col("margin") < 0.2)

Each call runs the command `reelabel` of the same name in a process of its own and prints what it prints. Settings are
read as the command reads them: from `reelabel.toml` in the current folder and from `REELABEL_*` variables.
"""

from __future__ import annotations

import io
import json
import re
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from infra.errors import RunFailedError
from infra.program import option_words
from reelabel.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

__all__ = ["Run", "backfill", "classify", "describe", "results"]

_COMMAND: Final = (sys.executable, "-P", "-m", "flows.cli")
_DONE_WITH_FAILURES = 1
_WRONG_USE = 2
_INTERRUPTED = 130
_POLL_S = 0.2
_KEPT_LINES = 50  # more than the longest error, that of a manifest, has
_ERROR = re.compile(r".*^[a-z_]+: (.*)", re.DOTALL | re.MULTILINE)  # greedy: the last one, with its further lines
_FRAME = re.compile(r"[╭╮╰╯│─]+")  # of the box around an error of usage


@dataclass(frozen=True, slots=True)
class Run:
    """A run that has ended.

    Attributes:
        id: Its id, which the commands and the rows name.
        ok: Whether every job has a label (or a description) and the audit found nothing missing.
    """

    id: str
    ok: bool

    def rows(self, *, calibrated: bool = False, chunks: bool = False) -> pl.DataFrame:
        """Return the labels and failures, or the descriptions, of the run's dataset and spec; see `results`."""
        return results(self.id, calibrated=calibrated, chunks=chunks)


def classify(
    source: Any,  # noqa: ANN401 - any table with the Arrow interface
    *,
    prompt: str | None = None,
    choices: Sequence[str] | str | None = None,
    dataset: str | None = None,
    settings: Mapping[str, object] | None = None,
    **options: object,
) -> Run:
    """Label the jobs of a manifest, or ask one question about every video of a folder; valid labels are kept.

    Args:
        source: A DataFrame of jobs (Polars, pandas, or any table with the Arrow interface) with the columns of a
            manifest; a Parquet file of jobs; or, with `prompt`, a folder, a glob, or a video.
        prompt: One question about each video.
        choices: Its choices, or one text as on the command line, such as `yes|no`; None asks for words, of at most the
            option `max_tokens`.
        dataset: Name within which job ids are unique; needed for a DataFrame, which has no file name.
        settings: Changed settings, such as `{"sampling.max_pixels": 200_000}`.
        **options: Options of `reelabel classify` by name, such as `model="..."`, `num_frames=8`, `force=True`.

    Raises:
        ConfigurationError: A setting, an option or the manifest is wrong; nothing was answered.
        RunFailedError: The run stopped; the same call continues it.
    """
    if not isinstance(choices, str | None):
        choices = json.dumps([*choices], ensure_ascii=False)
    question = {"dataset": dataset, "prompt": prompt, "choices": choices}
    return _run("classify", _manifest(source, dataset), question | options, settings)


def describe(
    source: Any,  # noqa: ANN401 - any table with the Arrow interface
    *,
    dataset: str | None = None,
    settings: Mapping[str, object] | None = None,
    **options: object,
) -> Run:
    """Tag, caption and find the scenes of the videos of a manifest; described videos are skipped.

    The arguments and errors are those of `classify`; only the columns `job_id` and `video_uri` are needed.
    """
    return _run("describe", _manifest(source, dataset), {"dataset": dataset} | options, settings)


def backfill(ids: Iterable[str] | str = (), *, settings: Mapping[str, object] | None = None, **options: object) -> Run:
    """Rerun jobs by id, or those that options select, such as `failed=True` or `margin_below=0.1`.

    Raises:
        ConfigurationError: As in `classify`, or no job is selected.
        RunFailedError: The run stopped; the same call continues it.
    """
    named = [ids] if isinstance(ids, str) else [*ids]
    with tempfile.TemporaryDirectory(prefix="reelabel-") as folder:
        if named:
            ids_file = Path(folder) / "ids.txt"
            ids_file.write_text("".join(f"{each}\n" for each in named), encoding="utf-8")
            options["ids_file"] = str(ids_file)
        return _run("backfill", None, options, settings)


def results(run: str = "last", *, calibrated: bool = False, chunks: bool = False) -> pl.DataFrame:
    """Return the current rows of a run's dataset and spec: the labels and failures, or the descriptions.

    Args:
        run: The run's id, a prefix of it, or `last`.
        calibrated: Add calibrated probabilities.
        chunks: Return the answers about chunks of jobs instead.

    Raises:
        ConfigurationError: There is no such run, or it has no such rows.
    """
    with tempfile.TemporaryFile(prefix="reelabel-") as rows:
        words = [*option_words({"format": "parquet", "calibrated": calibrated, "chunks": chunks})]
        finished = subprocess.run(  # noqa: S603 - our own command
            [*_COMMAND, "results", run, *words],
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=rows,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        if finished.returncode:
            raise _error(finished.returncode, finished.stderr)
        rows.seek(0)
        return pl.read_parquet(rows)


def _manifest(source: Any, dataset: str | None) -> str:  # noqa: ANN401 - as in `classify`
    """Return the path or URI of a manifest; a table becomes a Parquet file in the home folder."""
    if isinstance(source, str | Path):
        return str(source)
    if not dataset:
        raise ConfigurationError("A DataFrame needs a name: pass dataset, under which a later call continues.")
    if not re.fullmatch(r"[\w-]+", dataset):
        raise ConfigurationError(f"{dataset!r} cannot name a DataFrame's manifest: use letters, digits, - and _.")
    written = io.BytesIO()
    try:
        jobs = source.collect() if isinstance(source, pl.LazyFrame) else pl.DataFrame(source)
        jobs.write_parquet(written)
    except (TypeError, ValueError, pl.exceptions.PolarsError) as error:
        raise ConfigurationError(f"{type(source).__name__} is no table of jobs: {error}") from None
    from infra.embedded.home import Home  # noqa: PLC0415 - slow to import
    from infra.settings import load_settings  # noqa: PLC0415
    from reelabel.sources.object_store import ObjectStore  # noqa: PLC0415

    home = load_settings().home.absolute()
    Home(home)  # creates it as commands do, which refuse a folder that others can write to
    folder = home / "manifests"
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / f"{dataset}.parquet"
    ObjectStore().replace(str(path), written.getvalue())
    return str(path)


def _run(name: str, source: str | None, options: Mapping[str, object], settings: Mapping[str, object] | None) -> Run:
    """Run a command that starts a run, printing what it prints.

    Raises:
        ConfigurationError: The command was used or set up wrongly.
        RunFailedError: The run did not end in order.
    """
    with tempfile.TemporaryDirectory(prefix="reelabel-") as folder:
        id_file = Path(folder) / "id"
        words = [*_words(options), "--id-file", str(id_file)]
        for setting, value in (settings or {}).items():
            # Texts, numbers (also NumPy's) and paths are written as they are.
            is_json = value is None or isinstance(value, bool | list | tuple | dict)
            words += ["--set", f"{setting}={json.dumps(value) if is_json else value}"]
        code, printed = _follow([*_COMMAND, name, *words, *(["--", source] if source is not None else [])])
        run_id = id_file.read_text().strip() if id_file.exists() else None
    if code not in {0, _DONE_WITH_FAILURES} or run_id is None or (code and _ERROR.match(printed)):
        raise _error(code, printed)
    return Run(id=run_id, ok=code == 0)


def _words(options: Mapping[str, object]) -> Iterator[str]:
    """Write options as on a command line; those that a setting may turn on can be turned off by False."""
    yield from option_words(options)
    if turned_off := [name for name, value in options.items() if value is False]:
        from infra.settings import SamplingOptions  # noqa: PLC0415 - slow to import

        switches = {name for name, field in SamplingOptions.model_fields.items() if field.annotation == bool | None}
        sampling = SamplingOptions(**dict.fromkeys(switches.intersection(turned_off), False))
        yield from option_words({"sampling": sampling})


def _follow(command: Sequence[str]) -> tuple[int, str]:
    """Run a command, printing what it prints; return its exit code and the last paragraph of its standard error.

    An interrupt reaches it once: it ends in order, and so does the run.
    """
    is_terminal = sys.stdout.isatty()
    errors: list[str] = []
    process = subprocess.Popen(  # noqa: S603 - our own command
        command,
        stdin=subprocess.DEVNULL,
        stdout=None if is_terminal else subprocess.PIPE,
        stderr=subprocess.PIPE,
        process_group=0,  # so that the terminal does not interrupt it, too
        text=True,
        errors="replace",
    )
    readers = [_copying(process.stderr, sys.stderr, errors)]
    if process.stdout:
        readers.append(_copying(process.stdout, sys.stdout, []))
    ended = threading.Event()

    def wait() -> None:
        for reader in readers:
            reader.join()
        process.wait()
        ended.set()

    # In a thread, which no interrupt reaches: one that arrives as `wait` returns would lose the exit code.
    threading.Thread(target=wait).start()
    while not ended.is_set():
        try:
            ended.wait(_POLL_S)  # some native threads take signals, and do not wake this one
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)
    if process.returncode in {_INTERRUPTED, -signal.SIGINT}:
        raise KeyboardInterrupt
    return process.returncode, "".join(errors)


def _copying(lines: Any, target: Any, kept: list[str]) -> threading.Thread:  # noqa: ANN401 - a notebook's is no file
    """Start a thread that prints lines as they come, and keeps the last ones."""

    def copy() -> None:
        for line in lines:
            with suppress(OSError, ValueError):  # a closed output: the command would wait until its lines are read
                target.write(line)
                target.flush()
            kept.append(line)
            del kept[:-_KEPT_LINES]

    thread = threading.Thread(target=copy)
    thread.start()
    return thread


def _error(code: int, printed: str) -> Exception:
    """Return the error that a command has printed."""
    if found := _ERROR.match(printed):
        message = found[1]
    else:
        message = _FRAME.sub(" ", printed.rpartition("--help' for help.")[2]).replace(" Error ", " ", 1)
    kind = ConfigurationError if code == _WRONG_USE else RunFailedError
    return kind(" ".join(message.split()) or f"The command ended with exit code {code}.")
