"""Validate a manifest: every fault, found by Polars in one pass over its columns."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

import polars as pl

from infra.settings.types import check_template
from infra.text_bounds import MAX_CHOICE, MAX_CHOICES, MAX_INLINE, MAX_TEXT, MAX_URI, NO_NUL, too_long
from reelabel.sources.object_info import INLINE_SCHEME, WEB_SCHEMES
from tasks.domain import MAX_MEDIA
from tasks.manifest.messages import messages_as_json, resolve_media
from tasks.manifest.schema import (
    COLUMNS,
    LONGEST_ID_BYTES,
    MAX_CHARACTERS,
    MEDIA,
    QUESTION,
    REPLACED,
    REQUIRED,
    ROW,
    SCHEMES,
    Fault,
    row_fault,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping


_MOST_DIGITS = 38  # of a decimal that Polars can convert


def conform_columns(frame: pl.DataFrame, *, questions: bool = True) -> tuple[pl.DataFrame, list[Fault]]:
    """Convert a frame to the schema's columns and types; unknown columns are dropped, messages become JSON.

    Without `questions`, only the jobs' videos are read.

    Returns:
        The frame with every column of the schema, absent ones filled with null, and the faults of its columns.
    """
    replaced = frozenset[str]().union(*(REPLACED.get(name, ()) for name in frame.columns))
    needed = [name for name in REQUIRED if name not in replaced]
    if not questions:
        frame, needed = frame.drop(QUESTION, strict=False), [name for name in needed if name not in QUESTION]
    if _holds_structs(frame):
        frame = frame.with_columns(messages_as_json(frame["messages"]))
    faults = [Fault(rule=f"Column {name} is missing.") for name in needed if name not in frame.columns]
    columns: list[pl.Expr] = []
    for name, dtype in COLUMNS.items():
        if name not in frame.columns:
            columns.append(pl.lit(None, dtype=dtype).alias(name))
            continue
        found = frame.schema[name]
        if not _casts(found, dtype):
            faults.append(Fault(rule=f"Column {name} has type {found}; it must be {dtype}."))
            columns.append(pl.lit(None, dtype=dtype).alias(name))
            continue
        columns.append(pl.col(name).cast(dtype, strict=False))
    return frame.select(columns), faults


def _holds_structs(frame: pl.DataFrame) -> bool:
    found = frame.schema.get("messages")
    return isinstance(found, pl.List | pl.Array) and isinstance(found.inner, pl.Struct)


def _casts(found: pl.DataType, wanted: pl.DataType) -> bool:
    if found == wanted or found == pl.Null():
        return True
    if wanted == pl.Float64():
        return found.is_numeric() and (getattr(found, "precision", None) or 0) <= _MOST_DIGITS
    if isinstance(wanted, pl.List):
        return isinstance(found, pl.List | pl.Array) and _casts(found.inner, wanted.inner)  # type: ignore[arg-type]
    return isinstance(found, pl.Categorical | pl.Enum) or (found.is_integer() and wanted == pl.String())


def check_manifest(frame: pl.DataFrame) -> list[Fault]:
    """Check a manifest's columns and rows; an empty list means that it is valid."""
    conformed, faults = conform_columns(frame)
    if faults:
        return faults
    if frame.is_empty():
        return [Fault(rule="The manifest has no rows.")]
    numbered = conformed.with_row_index(ROW)
    _, faults = check_rows(numbered)
    return [*faults, *find_duplicate_ids(numbered)]


def check_rows(frame: pl.DataFrame, *, questions: bool = True) -> tuple[pl.DataFrame, list[Fault]]:
    """Check each row by itself, given conformed rows with their numbers in the manifest as `ROW`.

    Returns:
        The rows with the columns of jobs and `ROW`, and their faults.
    """
    resolved, faults = resolve_media(frame)
    checked = resolved.drop("video_uris")
    if not questions:
        return without_questions(checked), [*faults, *_row_faults(resolved, _of_videos)]
    return checked, [*faults, *_row_faults(resolved), *_template_faults(resolved)]


def check_row(row: Mapping[str, object], *, questions: bool = True) -> list[str]:
    """Check one row that shows one video by its `video_uri`; return the rules that it breaks.

    As `check_rows`, but in one step, as single requests wait for it. Absent columns are null.
    """
    if questions and _is_plain(row):
        return []
    frame = pl.DataFrame({name: [row.get(name)] for name in _ONE_VIDEO}, schema=_ONE_VIDEO)
    broken = frame.select(_as_columns(questions=questions)).row(0, named=True)
    faults = [rule for rule, is_broken in broken.items() if is_broken]
    if questions and isinstance(template := row.get("template"), str):
        try:
            check_template(template)
        except ValueError as error:
            faults.append(f"template: {error}.")
    return faults


def _is_plain(row: Mapping[str, object]) -> bool:
    """Return true for most valid rows and for no other, in a hundredth of the time that Polars takes for one row."""
    uri, choices, prompt = row.get("video_uri"), row.get("choices"), row.get("prompt")
    if not (isinstance(uri, str) and isinstance(prompt, str) and isinstance(choices, list | tuple)):
        return False
    given = {name for name, value in row.items() if value is not None}
    texts = [row.get("job_id"), uri, prompt, *choices]
    return (
        given == _PLAIN_COLUMNS
        and all(isinstance(text, str) and text.strip() and "\0" not in text for text in texts)
        and len(str(texts[0])) <= _SHORT_ID
        and len(uri) <= MAX_URI
        and len(prompt) <= MAX_TEXT
        and max(map(len, choices), default=0) <= MAX_CHOICE
        and MAX_CHOICES >= len(choices) == len(set(choices)) > 1
        and _PLAIN_URI.fullmatch(uri) is not None
    )


_PLAIN_COLUMNS = {"job_id", "video_uri", "prompt", "choices"}
_PLAIN_URI = re.compile(r"(?:s3://[^/]+/|https?://[\w.-]+/|/)[\w./-]+")
_SHORT_ID = 100
_ONE_VIDEO = COLUMNS | {"media": MEDIA}


@cache
def _as_columns(*, questions: bool) -> list[pl.Expr]:
    """Return for each rule whether a row breaks it, under its name."""
    return [broken.alias(rule) for rule, _, broken in (_rules if questions else _of_videos)()]


def without_questions(frame: pl.DataFrame) -> pl.DataFrame:
    """Empty all columns of resolved rows but those of their videos, so that equal videos have equal digests."""
    empty = [pl.lit(value, dtype=COLUMNS[name]).alias(name) for name, value in QUESTION.items()]
    return frame.with_columns(*empty, pl.lit(None, dtype=pl.String).alias("messages"))


def find_duplicate_ids(frame: pl.DataFrame) -> list[Fault]:
    """Find ids shared by several rows; `frame` needs only `ROW` and `job_id`."""
    return _id_faults(frame, "job_id is not unique.", pl.col("job_id").is_duplicated())


def find_later_duplicates(frame: pl.DataFrame) -> list[Fault]:
    """Find rows whose id an earlier one has; `frame` needs only `ROW` and `job_id`."""
    return _id_faults(frame, "job_id is that of an earlier row.", ~pl.col("job_id").is_first_distinct())


def _id_faults(frame: pl.DataFrame, rule: str, broken: pl.Expr) -> list[Fault]:
    rows = frame.filter(broken & pl.col("job_id").is_not_null())
    return [] if rows.is_empty() else [row_fault(rule, "job_id", rows.select(ROW, "job_id").rows())]


def _of_videos() -> Iterator[tuple[str, str, pl.Expr]]:
    """Yield the rules of jobs without questions, as `_rules` does."""
    yield from _presence_rules([name for name in REQUIRED if name not in QUESTION])
    yield from _text_rules([name for name in _TEXTS if name not in QUESTION])
    yield from _video_rules()
    yield (
        "Several videos or images are shown; describe takes one video a row.",
        "job_id",
        pl.col("media").is_not_null(),
    )


def _row_faults(
    frame: pl.DataFrame, rules_of: Callable[[], Iterator[tuple[str, str, pl.Expr]]] | None = None
) -> Iterator[Fault]:
    rules = [*(rules_of or _rules)(), *(_media_rules() if frame["media"].null_count() < len(frame) else ())]
    # Evaluate all rules in parallel first; look for rows only where a rule is broken.
    any_broken = frame.select(broken.any().alias(rule) for rule, _, broken in rules).row(0)
    for (rule, shown, broken), is_broken in zip(rules, any_broken, strict=True):
        if is_broken:
            yield row_fault(rule, shown, frame.filter(broken.fill_null(value=False)).select(ROW, shown).rows())


def _template_faults(frame: pl.DataFrame) -> Iterator[Fault]:
    templates = frame.select(ROW, "job_id", "template").drop_nulls("template")
    for template in templates["template"].unique(maintain_order=True):
        try:
            check_template(template)
        except ValueError as error:
            rows = templates.filter(pl.col("template") == template).select(ROW, "job_id")
            yield row_fault(f"template: {error}.", "job_id", rows.rows())


def _rules() -> Iterator[tuple[str, str, pl.Expr]]:
    """Yield each rule, the column to show, and which rows break it."""
    yield from _presence_rules()
    yield from _text_rules()
    yield from _choice_rules()
    yield from _video_rules()


def _presence_rules(required: Iterable[str] = tuple(REQUIRED)) -> Iterator[tuple[str, str, pl.Expr]]:
    for name in required:
        replaced = [pl.col(other).is_not_null() for other, names in REPLACED.items() if name in names]
        yield f"{name} is null.", "job_id", pl.col(name).is_null() & ~pl.any_horizontal(pl.lit(value=False), *replaced)
    yield "video_uris is empty.", "job_id", pl.col("video_uris").list.len() == 0
    for name in required:
        if COLUMNS[name] == pl.String:
            yield f"{name} is empty.", "job_id", pl.col(name).str.strip_chars() == ""


# The others have their own rules.
_TEXTS = tuple(name for name, kind in COLUMNS.items() if kind == pl.String and name not in {"video_uri", "messages"})


def _text_rules(names: Iterable[str] = _TEXTS) -> Iterator[tuple[str, str, pl.Expr]]:
    """Yield rules for what would hold a tokenizer up, or what Postgres would reject once the model has answered."""
    yield (
        f"job_id is longer than {LONGEST_ID_BYTES:,} bytes.",
        "job_id",
        pl.col("job_id").str.len_bytes() > LONGEST_ID_BYTES,
    )
    for name in names:
        most = MAX_CHARACTERS[name]
        if name != "job_id":
            yield f"{name} {too_long(most)}.", "job_id", pl.col(name).str.len_chars() > most
        yield f"{name} {NO_NUL}.", "job_id", _has_nul(pl.col(name))


def _has_nul(text: pl.Expr) -> pl.Expr:
    return text.str.contains("\0", literal=True)


def _choice_rules() -> Iterator[tuple[str, str, pl.Expr]]:
    choices, choice = pl.col("choices"), pl.element()
    yield "choices has fewer than two answers.", "choices", choices.list.len() < 2  # noqa: PLR2004
    yield f"choices must have at most {MAX_CHOICES:,} answers.", "job_id", choices.list.len() > MAX_CHOICES
    is_long = choice.str.len_chars() > MAX_CHOICE
    yield f"Each of choices {too_long(MAX_CHOICE)}.", "job_id", choices.list.eval(is_long).list.any()
    yield f"choices {NO_NUL}.", "job_id", choices.list.eval(_has_nul(choice)).list.any()
    yield (
        "choices contains an empty answer.",
        "choices",
        choices.list.eval(choice.is_null() | (choice.str.strip_chars() == "")).list.any(),
    )
    yield "choices contains duplicates.", "choices", choices.list.n_unique() < choices.list.len()
    yield "answer is not one of choices.", "answer", ~pl.col("answer").is_in(choices)


def _video_rules() -> Iterator[tuple[str, str, pl.Expr]]:
    start_s, end_s = pl.col("start_s"), pl.col("end_s")
    for clause, broken in _uri_rules(pl.col("video_uri")):
        yield f"video_uri {clause}", "video_uri", broken & pl.col("media").is_null()
    for name, seconds in (("start_s", start_s), ("end_s", end_s)):
        yield f"{name} is not a finite number.", name, ~seconds.is_finite()
    yield "start_s is negative.", "start_s", start_s < 0
    yield "end_s is not after start_s.", "end_s", end_s <= start_s.fill_null(0.0)


def _media_rules() -> Iterator[tuple[str, str, pl.Expr]]:
    """Yield rules for rows that show more than one video."""
    media, kind, uri = pl.col("media"), pl.element().struct.field("kind"), pl.element().struct.field("uri")
    where = "A URI of video_uris or messages"
    is_empty = uri.is_null() | (uri.str.strip_chars() == "")
    yield f"{where} is empty.", "job_id", media.list.eval(is_empty).list.any()
    for clause, broken in _uri_rules(uri):
        yield f"{where} {clause}", "job_id", media.list.eval(broken).list.any()
    yield f"More than {MAX_MEDIA} videos and images are shown.", "job_id", media.list.len() > MAX_MEDIA
    has_segment = pl.col("start_s").is_not_null() | pl.col("end_s").is_not_null()
    yield (
        "start_s and end_s are given with several videos; leave them out, and cut the videos before.",
        "job_id",
        has_segment & (media.list.eval(kind == "video").list.sum() > 1),
    )


def _uri_rules(uri: pl.Expr) -> Iterator[tuple[str, pl.Expr]]:
    """Yield what can be wrong with a URI, as a clause, and where it is."""
    scheme = pl.coalesce(uri.str.extract(r"^([A-Za-z][A-Za-z0-9+.-]*)://", 1), uri.str.extract("^(data):", 1))
    is_inline, characters = (scheme == INLINE_SCHEME).fill_null(value=False), uri.str.len_chars()
    yield f"{too_long(MAX_URI)}.", ~is_inline & (characters > MAX_URI)
    yield f"that holds a video {too_long(MAX_INLINE)}; name a file instead.", is_inline & (characters > MAX_INLINE)
    yield f"{NO_NUL}.", _has_nul(uri)
    yield (
        f"is not a path, and its scheme is not one of {', '.join(SCHEMES)}.",
        scheme.is_not_null() & ~scheme.is_in(SCHEMES),
    )
    yield (
        "has no bucket or no key; write s3://bucket/key.",
        (scheme == "s3") & ~uri.str.contains("^s3://[^/]+/."),
    )
    yield (
        "has no host; write https://host/path.",
        scheme.is_in(WEB_SCHEMES) & ~uri.str.contains("^https?://[^/?#]"),
    )
    yield (
        "has no comma before its data; write data:video/mp4;base64,AAAA.",
        (scheme == INLINE_SCHEME) & ~uri.str.contains(",", literal=True),
    )
