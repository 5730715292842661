"""The rules of a manifest, as expressions over its columns."""

from __future__ import annotations

import json
from collections import defaultdict
from functools import cache
from typing import TYPE_CHECKING

import polars as pl

from infra.errors import ManifestError
from infra.settings.types import check_template
from infra.text_bounds import (
    MAX_CHOICE,
    MAX_CHOICES,
    MAX_INLINE,
    MAX_SCHEMA,
    MAX_SCHEMA_DEPTH,
    MAX_URI,
    NO_NUL,
    is_nested_deeper,
    too_long,
)
from reelabel.sources.object_info import FSSPEC_PREFIX, INLINE_SCHEME, WEB_SCHEMES
from tasks.domain import MAX_MEDIA
from tasks.domain.chunks import MARK, choice_of
from tasks.manifest.media import messages_as_json, resolve_media
from tasks.manifest.rejects import VIOLATIONS, find_violations, list_violations, shorten_list
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
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from tasks.domain import RunSpec
    from tasks.manifest.rejects import Rule

NO_ROWS = "The manifest has no rows."
_WITH_OWN_RULES = ("video_uri", "messages")
_MAX_DIGITS = 38  # of a decimal that Polars can convert
_MAX_S = 10**12  # milliseconds of any time up to it are exact


def cast_columns(frame: pl.DataFrame, *, questions: bool = True) -> tuple[pl.DataFrame, list[str]]:
    """Cast a frame to the manifest's columns and types; unknown columns are dropped, messages become JSON.

    Absent columns are null. Without `questions`, only the columns of videos keep their values. Also return a sentence
    for each faulty column.
    """
    replaced = frozenset[str]().union(*(REPLACED.get(name, ()) for name in frame.columns))
    needed = [name for name in REQUIRED if name not in replaced]
    if not questions:
        frame, needed = frame.drop(QUESTION, strict=False), [name for name in needed if name not in QUESTION]
    messages = frame.schema.get("messages")
    if isinstance(messages, pl.List | pl.Array) and isinstance(messages.inner, pl.Struct):
        frame = frame.with_columns(messages_as_json(frame["messages"]))
    faults = [f"Column {name} is missing." for name in needed if name not in frame.columns]
    columns: list[pl.Expr] = []
    for name, dtype in COLUMNS.items():
        found = frame.schema.get(name, pl.Null())
        if _casts(found, dtype):
            column = pl.col(name) if name in frame.columns else pl.lit(None).alias(name)
            columns.append(column.cast(dtype, strict=False))
        else:
            faults.append(f"Column {name} has type {found}; it must be {dtype}.")
            columns.append(pl.lit(None, dtype=dtype).alias(name))
    return frame.select(columns), faults


def _casts(source: pl.DataType, target: pl.DataType) -> bool:
    if source == target or source == pl.Null():
        return True
    if target == pl.Float64():
        return source.is_numeric() and (getattr(source, "precision", None) or 0) <= _MAX_DIGITS
    if isinstance(target, pl.List):
        return isinstance(source, pl.List | pl.Array) and _casts(source.inner, target.inner)  # type: ignore[arg-type]
    return isinstance(source, pl.Categorical | pl.Enum) or (source.is_integer() and target == pl.String())


def check_manifest(frame: pl.DataFrame, place: Callable[[int], str] = "row {}".format) -> list[str]:
    """Check a manifest's columns and rows; return a sentence for each fault. `place` names a row, given its number."""
    columns, faults = cast_columns(frame)
    if faults:
        return faults
    if frame.is_empty():
        return [NO_ROWS]
    numbered = columns.with_row_index(ROW)
    return list_violations(pl.concat([check_rows(numbered)[1], find_duplicates(numbered)]), place)


def check_rows(frame: pl.DataFrame, *, questions: bool = True) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Check each row by itself; `frame` has the columns of `cast_columns` and `ROW`, the rows' numbers.

    Return the rows with the columns of jobs and `ROW`, and the violations, as `VIOLATIONS`.
    """
    resolved, found = resolve_media(frame)
    rules = [*_rules(questions=questions)]
    rules += _media_rules() if resolved["media"].null_count() < len(resolved) else ()
    rules += (*_template_rules(resolved["template"]), *_schema_rules(resolved["schema"])) if questions else ()
    checked = resolved.drop("video_uris")
    checked = checked if questions else without_questions(checked)
    return checked, pl.concat([found, find_violations(resolved, rules)])


def check_row(row: Mapping[str, object], *, questions: bool = True) -> list[str]:
    """Check a row that has a `video_uri`, in one step, since single requests wait for it; return the broken rules."""
    frame = pl.DataFrame({name: [row.get(name)] for name in _ONE_VIDEO}, schema=_ONE_VIDEO)
    broken = frame.select(_as_columns(questions=questions)).row(0, named=True)
    faults = [rule for rule, is_broken in broken.items() if is_broken]
    worded = (*_template_rules(frame["template"]), *_schema_rules(frame["schema"])) if questions else ()
    return [*faults, *(rule for rule, _, _ in worded)]


_ONE_VIDEO = COLUMNS | {"media": MEDIA}


@cache
def _as_columns(*, questions: bool) -> list[pl.Expr]:
    return [broken.alias(rule) for rule, _, broken in _rules(questions=questions)]


def without_questions(frame: pl.DataFrame) -> pl.DataFrame:
    """Clear the columns of questions, so that jobs on the same video have the same digest."""
    empty = [pl.lit(value, dtype=COLUMNS[name]).alias(name) for name, value in QUESTION.items()]
    return frame.with_columns(*empty, pl.lit(None, dtype=pl.String).alias("messages"))


def find_duplicates(frame: pl.DataFrame, *, keep_first: bool = False) -> pl.DataFrame:
    """Find rows that share an id, or all but the first of these; `frame` needs only `ROW` and `job_id`."""
    job_id = pl.col("job_id")
    broken = ~job_id.is_first_distinct() if keep_first else job_id.is_duplicated()
    rule = "job_id is that of an earlier row." if keep_first else "job_id is not unique."
    return find_violations(frame, [(rule, "job_id", broken & job_id.is_not_null())])


def _template_rules(templates: pl.Series) -> Iterator[Rule]:
    for template in templates.drop_nulls().unique(maintain_order=True):
        try:
            check_template(template)
        except ValueError as error:
            yield f"template: {error}.", "job_id", pl.col("template") == template


def _schema_rules(schemas: pl.Series) -> Iterator[Rule]:
    found: dict[str, list[str]] = defaultdict(list)
    for schema in schemas.drop_nulls().unique(maintain_order=True):
        if len(schema) <= MAX_SCHEMA and (fault := _schema_fault(schema)):
            found[fault].append(schema)
    for fault, faulty in found.items():
        yield f"schema {fault}.", "job_id", pl.col("schema").is_in(faulty)


def _schema_fault(schema: str) -> str:
    """Return a clause on why a text is not a JSON schema, or too deep for a compiler; empty if it is fine."""
    deep = f"is nested deeper than {MAX_SCHEMA_DEPTH} levels; flatten it"
    try:
        found = json.loads(schema)
        # Python also reads NaN, infinite numbers and halves of surrogate pairs, which are no JSON.
        json.dumps(found, ensure_ascii=False, allow_nan=False).encode()
    except RecursionError:
        return deep
    except ValueError:
        return "is not JSON; write a JSON schema as text"
    if not isinstance(found, dict):
        return "is not a JSON object; write a JSON schema as text"
    return deep if is_nested_deeper(found, MAX_SCHEMA_DEPTH) else ""


def _rules(*, questions: bool) -> Iterator[Rule]:
    names = [name for name in COLUMNS if questions or name not in QUESTION]
    yield from _presence_rules([name for name in names if name in REQUIRED])
    yield from _text_rules([name for name in names if COLUMNS[name] == pl.String and name not in _WITH_OWN_RULES])
    if questions:
        yield from _choice_rules()
    yield from _video_rules()
    if not questions:
        rule = "Several videos or images are shown; describe takes one video a row."
        yield rule, "job_id", pl.col("media").is_not_null()


def _presence_rules(required: Sequence[str]) -> Iterator[Rule]:
    for name in required:
        replaced = [pl.col(other).is_not_null() for other, names in REPLACED.items() if name in names]
        yield f"{name} is null.", "job_id", pl.col(name).is_null() & ~pl.any_horizontal(pl.lit(value=False), *replaced)
    yield "video_uris is empty.", "job_id", pl.col("video_uris").list.len() == 0
    for name in required:
        if COLUMNS[name] == pl.String:
            yield f"{name} is empty.", "job_id", pl.col(name).str.strip_chars() == ""


def _text_rules(names: Iterable[str]) -> Iterator[Rule]:
    """Yield rules against texts that would stall a tokenizer, or that Postgres would reject after the answer."""
    is_long = pl.col("job_id").str.len_bytes() > LONGEST_ID_BYTES
    yield f"job_id is longer than {LONGEST_ID_BYTES:,} bytes.", "job_id", is_long
    for name in names:
        limit = MAX_CHARACTERS[name]
        if name != "job_id":
            yield f"{name} {too_long(limit)}.", "job_id", pl.col(name).str.len_chars() > limit
        yield f"{name} {NO_NUL}.", "job_id", _has_nul(pl.col(name))


def _has_nul(text: pl.Expr) -> pl.Expr:
    return text.str.contains("\0", literal=True)


def _choice_rules() -> Iterator[Rule]:
    choices, choice = pl.col("choices"), pl.element()
    yield "choices has fewer than two answers.", "choices", choices.list.len() < 2  # noqa: PLR2004
    yield f"choices must have at most {MAX_CHOICES:,} answers.", "job_id", choices.list.len() > MAX_CHOICES
    is_long = choice.str.len_chars() > MAX_CHOICE
    yield f"Each of choices {too_long(MAX_CHOICE)}.", "job_id", choices.list.eval(is_long).list.any()
    yield f"choices {NO_NUL}.", "job_id", choices.list.eval(_has_nul(choice)).list.any()
    is_empty = choice.is_null() | (choice.str.strip_chars() == "")
    yield "choices contains an empty answer.", "choices", choices.list.eval(is_empty).list.any()
    yield "choices contains duplicates.", "choices", choices.list.n_unique() < choices.list.len()
    yield "answer is not one of choices.", "answer", ~pl.col("answer").is_in(choices)
    without = "is given without choices; leave it out, or add them."
    for name in ("answer", "template"):
        yield f"{name} {without}", "job_id", choices.is_null() & pl.col(name).is_not_null()
    with_both = choices.is_not_null() & pl.col("schema").is_not_null()
    yield "schema is given with choices; leave out one of them.", "job_id", with_both


def _video_rules() -> Iterator[Rule]:
    start_s, end_s = pl.col("start_s"), pl.col("end_s")
    for clause, broken in _uri_rules(pl.col("video_uri")):
        yield f"video_uri {clause}", "video_uri", broken & pl.col("media").is_null()
    for name, seconds in (("start_s", start_s), ("end_s", end_s)):
        yield f"{name} is not a finite number.", name, ~seconds.is_finite()
        yield f"{name} is above {_MAX_S:,}; it is in seconds.", name, seconds.is_finite() & (seconds > _MAX_S)
    yield "start_s is negative.", "start_s", start_s < 0
    yield "end_s is not after start_s.", "end_s", end_s <= start_s.fill_null(0.0)


def _media_rules() -> Iterator[Rule]:
    media, kind, uri = pl.col("media"), pl.element().struct.field("kind"), pl.element().struct.field("uri")
    where = "A URI of video_uris or messages"
    is_empty = uri.is_null() | (uri.str.strip_chars() == "")
    yield f"{where} is empty.", "job_id", media.list.eval(is_empty).list.any()
    for clause, broken in _uri_rules(uri):
        yield f"{where} {clause}", "job_id", media.list.eval(broken).list.any()
    yield f"More than {MAX_MEDIA} videos and images are shown.", "job_id", media.list.len() > MAX_MEDIA
    has_segment = pl.col("start_s").is_not_null() | pl.col("end_s").is_not_null()
    rule = "start_s and end_s are given with several videos; leave them out, and cut the videos before."
    yield rule, "job_id", has_segment & (media.list.eval(kind == "video").list.sum() > 1)


def _uri_rules(uri: pl.Expr) -> Iterator[tuple[str, pl.Expr]]:
    scheme = pl.coalesce(uri.str.extract(r"^([A-Za-z][A-Za-z0-9+.-]*)://", 1), uri.str.extract("^(data):", 1))
    is_inline, characters = (scheme == INLINE_SCHEME).fill_null(value=False), uri.str.len_chars()
    yield f"{too_long(MAX_URI)}.", ~is_inline & (characters > MAX_URI)
    yield f"that holds a video {too_long(MAX_INLINE)}; name a file instead.", is_inline & (characters > MAX_INLINE)
    yield f"{NO_NUL}.", _has_nul(uri)
    yield (
        f"is not a path, and its scheme is not one of {', '.join(SCHEMES)}, or fsspec+ and another.",
        scheme.is_not_null() & ~scheme.is_in(SCHEMES) & ~scheme.str.starts_with(FSSPEC_PREFIX),
    )
    yield "has no bucket or no key; write s3://bucket/key.", (scheme == "s3") & ~uri.str.contains("^s3://[^/]+/.")
    yield "has no host; write https://host/path.", scheme.is_in(WEB_SCHEMES) & ~uri.str.contains("^https?://[^/?#]")
    lacks_comma = is_inline & ~uri.str.contains(",", literal=True)
    yield "has no comma before its data; write data:video/mp4;base64,AAAA.", lacks_comma


def require_choices(manifest: str, *, has_choices: bool) -> None:
    """Raise ManifestError if all jobs are answered in words, which cannot be compared with known answers."""
    if not has_choices:
        raise ManifestError(f"No job of {manifest} has choices; answers in words are not compared with known ones.")


def require_cuttable(parts: Iterable[pl.DataFrame], spec: RunSpec, *, manifest: str) -> None:
    """Check that jobs can be cut into chunks, if the spec cuts them; `parts` are those of a `JobTable`.

    Raises:
        ManifestError: A job shows several media, has no choices or not that of the rule, or has the id of a chunk.
    """
    if spec.chunk_s is None or spec.chunk_rule is None:
        return
    is_marked, is_lacking = pl.col("job_id").str.contains(MARK, literal=True), pl.lit(value=False)
    if (choice := choice_of(spec.chunk_rule)) is not None:
        is_lacking = ~pl.col("choices").list.contains(choice)
    lacks_choices = pl.col("choices").list.len().fill_null(0) == 0
    several = "With chunk_s, a job must show one video and no image; set chunk_s to 0."
    in_words = "With chunk_s, a job must have choices, because words cannot be aggregated over chunks."
    rules = [
        (several, "job_id", pl.col("media").is_not_null()),
        (in_words, "job_id", lacks_choices),
        (f"With chunk_s, a job_id must not contain {MARK}, which numbers chunks.", "job_id", is_marked),
        (f"The chunk rule any:{choice} needs {choice!r} among the choices.", "job_id", is_lacking),
    ]
    found = pl.concat([pl.DataFrame(schema=VIOLATIONS), *(find_violations(part, rules) for part in parts)])
    if len(found):
        raise ManifestError(f"{manifest} cannot be cut into chunks:", shorten_list(list_violations(found)))
