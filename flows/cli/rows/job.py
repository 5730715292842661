"""`reelabel job`: everything about one job."""

from __future__ import annotations

import base64
import os
import sys
from collections import Counter
from dataclasses import dataclass, replace
from io import BytesIO
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from PIL import Image
from rich.text import Text

from flows.cli.console import OUT, list_times, make_table, print_json, print_line, require_format, require_sheet
from flows.cli.context import open_database
from flows.cli.options import example
from infra.database.connect import database_errors
from infra.program import command
from reelabel.digest import json_digest
from reelabel.errors import ConfigurationError, TransientError
from reelabel.sources.object_info import redact_uri
from reelabel.sources.object_store import ObjectStore
from reelabel.text import escape_controls, pluralize
from tasks.database.scope import Scope
from tasks.domain import RunSpec
from tasks.frame_cache.pool import frame_cache
from tasks.frame_cache.sheet import Picture, Section, draw_sheet
from tasks.report.jobs import JobCard, Sources, jobs_of_rows, load_jobs
from tasks.results.read import read_job
from tasks.results.runs import read_any_spec, short_ids

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from uuid import UUID

    from rich.table import Table
    from sqlalchemy import Engine, RowMapping

    from infra.settings import Settings
    from tasks.report.frames import Strip
    from tasks.results.read import JobRows

_MAX_FRAME_FILES = 20
_MAX_PICTURES, _MAX_CHUNKS = 64, 20
_TITLE_CHARACTERS = 80  # of an answer in words
_CHUNK_CHARACTERS = 4096  # maximum chunk of kitty's protocol
_ITERM = ("iTerm.app", "WezTerm")


@dataclass(frozen=True, slots=True, kw_only=True)
class _JobPage:
    """What is shown of a job.

    Attributes:
        card: Its question, videos and chunks by its newest row; None for a description, or another version's spec.
        strips: The cached frames that the model was shown.
        video: The video of a description, without credentials.
        note: Why the question or the frames are missing; otherwise empty.
        names: Short ids of runs.
    """

    rows: JobRows
    card: JobCard | None
    strips: tuple[Strip, ...]
    video: str | None
    note: str
    names: Mapping[UUID, str]


@example("reelabel job clip-7-colour --sheet frames.png")
def job(
    job_id: Annotated[str, typer.Argument(help="Id of a job that has an outcome.")],
    *,
    dataset: Annotated[str | None, typer.Option(help="Show only its outcomes in this dataset. Default: all.")] = None,
    form: Annotated[str, typer.Option("--format", help="table or json.")] = "table",
    sheet: Annotated[
        str | None,
        typer.Option(
            help="Save the frames to this image file, such as x.png. Default: shown in a terminal that supports "
            "images, otherwise saved in the home folder."
        ),
    ] = None,
) -> None:
    """Show everything about one job, with its frames.

    Prints its outcomes by run and spec, its question, and the times of its frames.
    """
    require_format(form, "table", "json")
    if sheet:
        require_sheet(sheet)
    with open_database(store=True) as (settings, engine):
        page = _gather(engine, settings, read_job(engine, job_id, dataset=dataset))
    picture = _draw(page) if page.strips else None
    if picture and sheet:
        picture.save(sheet)
    if form == "json":
        print_json(_as_json(page))
        return
    _print(page)
    if picture and not (sheet or _show_image(picture)):
        sheet = _keep(picture, settings, job_id)
    if picture and sheet:
        print_line(f"Picture of the frames: {Path(sheet).absolute()}")
    if sheet and not picture:
        print_line("There is no picture, because no frames are in the cache.")


def _gather(engine: Engine, settings: Settings, rows: JobRows) -> _JobPage:
    newest = rows.current[0]
    run_ids = {row["run_id"] for row in (*rows.current, *rows.history)} | {row["replaced_by"] for row in rows.history}
    page = _JobPage(rows=rows, card=None, strips=(), video=None, note="", names=short_ids(engine, run_ids))
    try:
        spec = read_any_spec(engine, newest["spec_id"])
    except ConfigurationError as error:  # written by another version
        return replace(page, note=error.message)
    objects, job_id = ObjectStore(settings.store, settings.web), newest["job_id"]
    its_row = {job_id: cast("RowMapping", newest)}
    try:
        if not isinstance(spec, RunSpec):
            found, note = jobs_of_rows(newest["manifest_uri"], objects, its_row, questions=False)
            return replace(page, note=note, video=redact_uri(found[job_id].video_uri) if found else None)
        if settings.store.uri is None:
            return replace(page, note="The question and the frames need the store of the run; set REELABEL_STORE_URI.")
        with database_errors(), engine.connect() as connection:
            cards, note = load_jobs(
                connection,
                Scope(dataset=newest["dataset"], spec_id=newest["spec_id"]),
                Sources(newest["manifest_uri"], spec, objects, frame_cache(settings)),
                selected={job_id: ()},
                before={},
                named_chunks={job_id: frozenset(range(_MAX_CHUNKS))},
                max_videos=_MAX_FRAME_FILES,
            )
    except (ConfigurationError, TransientError) as error:  # the store's
        return replace(page, note=f"The question and the frames are unavailable: {error.message}")
    if not cards:  # its row was replaced meanwhile
        return replace(page, note="The job's outcome is being replaced; run the command again.")
    [job] = cards
    return replace(page, card=job, strips=tuple(job.strips), note=note or ("" if job.strips else job.no_strip))


def _print(page: _JobPage) -> None:
    newest, card = page.rows.current[0], page.card
    print_line((newest["job_id"], "bold"), f" of {newest['dataset']}")
    if card and card.question is not None:
        if card.system_prompt:
            OUT.print(Text(escape_controls(f"System: {card.system_prompt}", keep="\n")), style="dim")
        OUT.print(Text(escape_controls(card.question, keep="\n")))
    for parts in _outcome(page):
        print_line(*parts)
    for line in _videos(page):
        print_line(line)
    if page.note:
        print_line((page.note, "yellow"))
    if card and card.chunks:
        OUT.print(_chunk_table(card))
        if len(card.chunks) > _MAX_CHUNKS:
            print_line(f"... and {len(card.chunks) - _MAX_CHUNKS:,} more; use --format json for all of them.")
    OUT.print(_history(page))
    options = {"dataset": newest["dataset"], "force": newest["kind"] != "failure"}
    print_line(f"To answer it again: {command('backfill', ids=[newest['job_id']], **options)}")


def _outcome(page: _JobPage) -> Iterator[tuple[str | tuple[str, str], ...]]:
    row, card = page.rows.current[0], page.card
    if row["kind"] == "failure":
        yield (row["code"], "red"), f": {row['message']}"
        yield (f"Failed in stage {row['stage']} after {pluralize(row['attempts'], 'attempt')}.",)
        return
    if row["kind"] == "description":
        tags = ", ".join(f"{tag['text']} {tag['score']:.3f}" for tag in row["tags"][:5]) or "none"
        yield (f"Tags: {tags}",)
        if row["caption"]:
            yield (f"Caption: {row['caption']}",)
        return
    if row["copied_from"] is not None:
        yield (f"Copied from job {row['copied_from']}, whose video is a near-duplicate; this one was not asked.",)
    if row["label"] is None:
        yield (_title(row),)
        yield (f"{pluralize(row['output_tokens'], 'token')}, ended by {row['finish_reason']}.",)
        return
    pairs = card.choices if card and card.choices else [(row["label"], row["probabilities"][row["choice_index"]])]
    for choice, probability in pairs:
        yield f"  {probability:.3f}  {choice}", ("  ← label" if choice == row["label"] else "", "green")
    mass = "" if row["choice_mass"] is None else f", choice_mass {row['choice_mass']:.3f}"
    known_answer = f"; the known answer is {row['answer']}" if row["answer"] is not None else ""
    yield (f"Margin {row['margin']:.3f}{mass}{known_answer}.",)
    if row["first_label"] is not None:
        yield (f"Escalated to {row['sampler']}: at first {row['first_label']}, margin {row['first_margin']:.3f}.",)


def _title(row: Mapping[str, Any]) -> str:
    """Return the short outcome of a row: its label, code, words or JSON, or that it is a description."""
    if row.get("kind") == "description":
        return "description"
    named = row.get("label") or row.get("code")  # neither can be empty, unlike words
    words = row.get("text")
    return str(named or (dumps(row["data"], ensure_ascii=False) if words is None else words) or "no words")


def _videos(page: _JobPage) -> Iterator[str]:
    """Yield a line for each video and image, and for the frames of each that are in the cache."""
    card = page.card
    if page.video:
        yield f"Video: {page.video}"
    if card is None:
        return
    end = "the end" if card.end_s is None else f"{card.end_s:g} s"
    segment = "" if card.start_s is None and card.end_s is None else f", from {card.start_s or 0:g} s to {end}"
    if card.media:
        yield from (
            f"{each['kind'].capitalize()}: {each['uri']}{segment * (each['kind'] == 'video')}" for each in card.media
        )
    elif card.video:
        yield f"Video: {card.video}{segment}"
    if not card.chunks:
        yield from (f"{_frames_line(strip)}." for strip in page.strips)


def _frames_line(strip: Strip) -> str:
    times = list_times(strip.frames[at].time_s for at in strip.picks)
    method = f"by {strip.sampler}, {strip.frames_decoded:,} decoded"
    return f"{pluralize(len(strip.picks), 'frame')} {method}, at {', '.join(times)}"


def _chunk_table(card: JobCard) -> Table:
    rows = (
        (
            f"{card.job_id}#{chunk['chunk']}",
            f"{chunk['start_s']:g} s",
            "end" if chunk["end_s"] is None else f"{chunk['end_s']:g} s",
            chunk["label"] or chunk["code"],
            chunk["margin"],
        )
        for chunk in card.chunks[:_MAX_CHUNKS]
    )
    return make_table(("chunk", "from", "to", "label", "margin"), rows)


def _history(page: _JobPage) -> Table:
    """List the outcomes in each dataset and spec, newest first, and the labels that they replaced."""
    rows = (
        (
            f"{row['created_at'].astimezone():%Y-%m-%d %H:%M}",
            page.names[row["run_id"]],
            row["dataset"],
            row["spec_id"],
            _title(row)[:_TITLE_CHARACTERS],
            row.get("margin"),
            f"by {page.names[row['replaced_by']]}" if "replaced_by" in row else "",
        )
        for row in (*page.rows.current, *page.rows.history)
    )
    return make_table(("time", "run", "dataset", "spec", "outcome", "margin", "replaced"), rows)


def _as_json(page: _JobPage) -> dict[str, Any]:
    card = page.card
    names = ("question", "system_prompt", "choices", "start_s", "end_s")
    of_chunk = ("start_s", "end_s", "label", "code", "message", "margin")
    return {
        "job_id": page.rows.current[0]["job_id"],
        **{name: getattr(card, name, None) for name in names},
        "video": (card and card.video) or page.video,
        "media": [{"kind": each["kind"], "uri": each["uri"]} for each in (card.media if card else ())],
        "chunks": [
            {"number": chunk["chunk"], **{name: chunk[name] for name in of_chunk}}
            for chunk in (card.chunks if card else ())
        ],
        "frames": [_strip_facts(strip) for strip in page.strips],
        "note": page.note,
        "outcomes": [dict(row) for row in page.rows.current],
        "history": [dict(row) for row in page.rows.history],
    }


def _strip_facts(strip: Strip) -> dict[str, Any]:
    names = ("sampler", "frames_decoded", "keyframes_in_file", "duration_s", "fps", "total_frames")
    return {name: getattr(strip, name) for name in names} | {"times_s": [strip.frames[at].time_s for at in strip.picks]}


def _draw(page: _JobPage) -> Image.Image:
    newest, card = page.rows.current[0], page.card
    assert card is not None
    titles = [each["uri"] for each in card.media if each["strip"]]
    titles += [f"chunk {each['chunk']}: {each['label'] or each['code']}" for each in card.chunks if each["strip"]]
    titles = titles or [_title(newest)[:_TITLE_CHARACTERS]]
    sections = [_section(title, strip) for title, strip in zip(titles, page.strips, strict=False)]
    return draw_sheet(newest["job_id"], f"{newest['dataset']}: {card.video or ''}", sections)


def _section(title: str, strip: Strip) -> Section:
    counts = Counter(strip.picks)
    pictures = [
        Picture(image=_decode(image), lines=(f"{strip.frames[at].time_s:.3f} s",), times=count)
        for at, count in counts.items()
        if (image := strip.frames[at].image)
    ]
    note = f"; {_MAX_PICTURES} of {len(pictures):,} drawn" if len(pictures) > _MAX_PICTURES else ""
    facts = f"{pluralize(len(strip.picks), 'frame')} by {strip.sampler}, {strip.frames_decoded:,} decoded{note}"
    return Section(title=title, facts=facts, pictures=tuple(pictures[:_MAX_PICTURES]), error=strip.note)


def _decode(data_uri: str) -> Image.Image:
    return Image.open(BytesIO(base64.b64decode(data_uri.partition(",")[2]))).convert("RGB")


def _keep(picture: Image.Image, settings: Settings, job_id: str) -> str | None:
    """Save a picture in the home folder; return its path, or None if there is no such folder, or none of ours."""
    if not settings.home.is_dir():
        return None
    target = settings.home / "jobs" / f"{json_digest(job_id)[:16]}.png"
    try:
        target.parent.mkdir(exist_ok=True)
        picture.save(target)
    except OSError:
        return None
    return str(target)


def _show_image(image: Image.Image) -> bool:
    """Show a picture on standard output; return False unless it is a terminal known to support images."""
    if not sys.stdout.isatty():
        return False
    written = BytesIO()
    image.save(written, "PNG")
    codes = image_codes(written.getvalue(), os.environ)
    sys.stdout.write(codes)
    sys.stdout.flush()
    return bool(codes)


def image_codes(png: bytes, environment: Mapping[str, str]) -> str:
    """Return the escape codes that show a PNG file in the terminal; empty if it is not known to support images."""
    terminal, program = environment.get("TERM", ""), environment.get("TERM_PROGRAM", "")
    data = base64.b64encode(png).decode()
    if terminal.startswith(("tmux", "screen")):
        return ""
    if terminal in {"xterm-kitty", "xterm-ghostty"}:
        parts = [data[start : start + _CHUNK_CHARACTERS] for start in range(0, len(data), _CHUNK_CHARACTERS)]
        heads = ["a=T,f=100,"] + [""] * (len(parts) - 1)
        more = [1] * (len(parts) - 1) + [0]
        return (
            "".join(f"\033_G{head}m={m};{part}\033\\" for head, m, part in zip(heads, more, parts, strict=True)) + "\n"
        )
    if program in _ITERM:
        return f"\033]1337;File=inline=1;size={len(png)}:{data}\a\n"
    return ""
