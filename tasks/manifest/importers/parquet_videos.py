"""Import of videos in Parquet files, such as those of Hugging Face."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import pyarrow as pa

from infra.errors import ManifestError
from reelabel.errors import ConfigurationError
from reelabel.sources.archives import RemoteArchive
from reelabel.sources.members import RangedFile
from reelabel.sources.object_info import redact_uri
from reelabel.text import named, pluralize
from tasks.manifest.importers.imported import ImportedRows, require_columns
from tasks.manifest.row_batches import UNREADABLE, ParquetTable, plain_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reelabel.sources.object_store import ObjectInfo
    from tasks.manifest.importers.videos import VideoFiles

_BATCH_ROWS = 10_000
_BLOCK_BYTES = 256 * 1024


class _Column(NamedTuple):
    name: str
    paths: str = ""  # the column to read paths from; empty if the column holds bytes
    empty: int = 0  # number of rows without a video, as far as the footer states it


def read_parquet_videos(source: VideoFiles) -> ImportedRows:
    """Make a job of each row; its id is `FILE/ROW`, unless a column is mapped to it.

    The column of videos is the one mapped to `video_uri`, or the only one that holds bytes. Bytes are not read: jobs
    refer to rows. Paths are relative to the folder of the table.

    Raises:
        ManifestError: There is no Parquet file, or one cannot be read or lacks a column.
        ConfigurationError: It is unclear which column holds the videos.
    """
    found = ImportedRows(source=redact_uri(source.uri), columns=source.filled)
    for info in source.files("parquet"):
        try:
            archive = RangedFile(RemoteArchive(source.objects, info), block_bytes=_BLOCK_BYTES)
            with ParquetTable(archive, uri=redact_uri(info.uri)) as table:
                _add_rows(found, source, info, table)
        except UNREADABLE as error:
            reason = str(error).partition("\n")[0].rstrip(".")
            raise ManifestError(f"Cannot read {redact_uri(info.uri)} as Parquet: {reason}.") from None
    return found


def _add_rows(found: ImportedRows, source: VideoFiles, info: ObjectInfo, table: ParquetTable) -> None:
    name = source.name_of(info.uri)
    column = _find_column(source, info, table.file)
    require_columns(redact_uri(info.uri), table.names, source.fields, layout="this mapping")
    if not table.file.metadata.num_rows:
        found.notes.append(f"{name} has no rows.")
    if column.empty:
        found.notes.append(f"{pluralize(column.empty, 'row')} of {name} have no video in column {column.name}.")
    for number, fields in enumerate(_fields_of_rows(table, column, source, redact_uri(info.uri))):
        job_id = f"{name.removesuffix('.parquet')}/{number}"
        job = partial(_row_job, source, info, column, number, job_id, fields)
        found.add(f"{name}, row {number}", job, job_id=job_id, given=fields)


def _row_job(
    source: VideoFiles, info: ObjectInfo, column: _Column, number: int, job_id: str, fields: dict[str, Any]
) -> dict[str, Any]:
    uri = f"{info.uri}#column={quote(column.name)}&row={number}"
    if column.paths:
        path = fields[column.paths.partition(".")[0]]
        path = path.get("path") if isinstance(path, dict) else path
        uri = _path_uri(source, info, path)
    job = source.job(job_id, uri, fields)
    return job | {"job_id": job["job_id"] or job_id}


def _path_uri(source: VideoFiles, info: ObjectInfo, path: object) -> str:
    if not isinstance(path, str) or not path:
        raise ValueError("it has neither bytes nor a path")
    if info.uri == source.uri:  # the only table
        source = replace(source, uri=info.uri.rpartition("/")[0])
    folder = source.name_of(info.uri).rpartition("/")[0]
    return source.uri_of(f"{folder}/{path}" if folder else path)


def _fields_of_rows(table: ParquetTable, column: _Column, source: VideoFiles, uri: str) -> Iterator[dict[str, Any]]:
    columns = [*source.fields, *([column.paths] if column.paths else [])]
    if not columns:  # rows are only counted
        yield from ({} for _ in range(table.file.metadata.num_rows))
        return
    for batch in table.batches(columns, max_rows=_BATCH_ROWS):
        try:
            rows = batch.to_pylist()
        except UNREADABLE:
            raise
        except (ValueError, OverflowError, LookupError) as error:  # of a time that Python cannot represent
            raise ManifestError(
                f"{uri} has a value that cannot be read in the {named('column', columns)}: {error}."
            ) from None
        yield from rows


def _find_column(source: VideoFiles, info: ObjectInfo, file: Any) -> _Column:  # noqa: ANN401
    kinds = {each.name: each.type for each in plain_schema(file.schema_arrow)}
    able = [name for name, kind in kinds.items() if _holds_bytes(kind)]
    name = source.columns.get("video_uri") or (able[0] if len(able) == 1 else "")
    if not name:
        have = f"several columns of bytes ({', '.join(able)})" if able else "no column of bytes"
        raise ConfigurationError(
            f"{redact_uri(info.uri)} has {have}; name that of the videos: --column video_uri=COLUMN."
        )
    require_columns(redact_uri(info.uri), kinds, [name], layout="this mapping")
    if pa.types.is_string(kinds[name]) or pa.types.is_large_string(kinds[name]):
        return _Column(name, paths=name)
    if name not in able:
        raise ConfigurationError(
            f"Column {name} of {redact_uri(info.uri)} holds neither bytes nor paths; name another."
        )
    is_struct = pa.types.is_struct(kinds[name])
    empty = _count_nulls(file.metadata, f"{name}.bytes" if is_struct else name)
    has_paths = is_struct and kinds[name].get_field_index("path") >= 0
    if has_paths and 0 < empty == file.metadata.num_rows:
        return _Column(name, paths=f"{name}.path")
    return _Column(name, empty=empty)


def _holds_bytes(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        at = kind.get_field_index("bytes")
        return at >= 0 and _holds_bytes(kind.field(at).type)
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _count_nulls(metadata: Any, path: str) -> int:  # noqa: ANN401
    """Count nulls by the statistics in the footer; 0 without statistics."""
    at = next(number for number in range(metadata.num_columns) if metadata.schema.column(number).path == path)
    chunks = (metadata.row_group(number).column(at) for number in range(metadata.num_row_groups))
    return sum(chunk.statistics.null_count or 0 for chunk in chunks if chunk.statistics)
