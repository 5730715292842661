"""Manifests of videos: files in a folder, WebDataset, Parquet files as those of Hugging Face, and LeRobot."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import pyarrow as pa

from infra.errors import ManifestError
from reelabel.errors import ConfigurationError, ObjectError, ObjectMissingError, VideoError
from reelabel.integrations.chat_messages import is_valid_unicode
from reelabel.sources.archives import RemoteArchive
from reelabel.sources.members import RangedFile
from reelabel.sources.object_info import WEB_SCHEMES, escape_name, member_uri, redact_uri, scheme_of, split_member
from reelabel.text import escape_controls, pluralize, quoted
from tasks.manifest.cells import parse_list
from tasks.manifest.import_csv import require_one_video
from tasks.manifest.imported import ImportedRows, merge_repeated, read_columns, require_columns
from tasks.manifest.location import folder_of_glob, is_glob, matching_files
from tasks.manifest.row_batches import ParquetTable, plain_schema
from tasks.manifest.schema import OPTIONAL, REQUIRED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from reelabel.sources.members import MemberIndex
    from reelabel.sources.object_store import ObjectInfo, ObjectStore

_SUFFIXES = "3gp avi flv m2ts m4v mkv mov mp4 mpeg mpg mts ogv ts webm wmv"
VIDEO_SUFFIXES = frozenset(_SUFFIXES.split())
_NUMBERS = ("start_s", "end_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class VideoFiles:
    """A file, folder or prefix of videos.

    Attributes:
        uri: Where they are; absolute. A reader of any videos also takes a glob.
        objects: What reads them.
        prompt: The question on each, unless a column has it.
        choices: Its choices, unless a column has them; without any, it is answered in words.
        columns: Names of the source's fields, by columns of the manifest.
    """

    uri: str
    objects: ObjectStore = field(repr=False)
    prompt: str | None = None
    choices: Sequence[str] = ()
    columns: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check that each job gets a question.

        Raises:
            ConfigurationError: There is none.
            ManifestError: A column is not one of a manifest.
        """
        require_one_video(self.columns)
        for name, value in (("prompt", self.prompt), ("choices", self.choices)):
            if value and name in self.columns:
                raise ConfigurationError(f"--{name} and --column {name}=... exclude each other; leave one out.")
        if not self.prompt and "prompt" not in self.columns:
            raise ConfigurationError(
                "This layout has no prompt of its own; add --prompt for all videos, or --column prompt=FIELD."
            )

    @property
    def filled(self) -> tuple[str, ...]:
        """The manifest's columns that jobs have: the required ones, choices, and those that are mapped."""
        return (*REQUIRED, *(name for name in OPTIONAL if name in {"choices", *self.columns}))

    @property
    def wanted(self) -> tuple[str, ...]:
        """The source's fields that are mapped to anything but the video."""
        return tuple(dict.fromkeys(theirs for name, theirs in self.columns.items() if name != "video_uri"))

    def job(self, job_id: str, video_uri: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return the job on one video, given the values of its fields.

        Raises:
            ValueError: A field is missing, or has a wrong type; the message is a clause.
        """
        job: dict[str, Any] = {"job_id": job_id, "prompt": self.prompt, "choices": [*self.choices] or None}
        job |= {name: _value(name, fields, theirs) for name, theirs in self.columns.items() if name != "video_uri"}
        if job["choices"] is not None:
            job["choices"] = merge_repeated(job["choices"], job.get("answer"))
        return job | {"video_uri": video_uri}

    def files(self, *suffixes: str) -> Iterator[ObjectInfo]:
        """Yield the file, or all files of some suffixes below the folder or prefix, in order of name."""
        found = self._one_file() or [info for info in self.objects.list(self.uri) if suffix_of(info.uri) in suffixes]
        if not found:
            raise ManifestError(f"There are no files below {redact_uri(self.uri)} that end in .{', .'.join(suffixes)}.")
        yield from found

    def _one_file(self) -> list[ObjectInfo]:
        try:
            return [self.objects.stat(self.uri)]
        except ObjectError:
            return []

    def one_video(self) -> tuple[str, str] | None:
        """Return the name and URI of the video, if only one is meant: a file, a member of an archive, a web address."""
        is_web = scheme_of(self.uri) in WEB_SCHEMES
        if not (is_web or split_member(self.uri) or self._one_file()):
            return None
        path = redact_uri(self.uri).partition("?")[0] if is_web else self.uri
        return path.rpartition("/")[2] or path, self.uri

    def named_files(self) -> Iterator[tuple[str, str]]:
        """Yield the name and URI of all files below the folder or prefix, or else of those that the glob matches."""
        is_folder = False
        for info in self.objects.list(self.uri):
            is_folder = True
            yield self.name_of(info.uri), escape_name(info.uri)
        if not is_folder and is_glob(self.uri):
            folder = folder_of_glob(self.uri)
            for uri in matching_files(self.uri, self.objects):
                yield uri.removeprefix(f"{folder}/"), escape_name(uri)

    def name_of(self, uri: str) -> str:
        """Return the name of a file below the folder or prefix; its last part if it is the file itself."""
        below = uri.removeprefix(f"{self.uri.rstrip('/')}/")
        return uri.rpartition("/")[2] if below == uri else below

    def uri_of(self, place: str) -> str:
        """Return the URI of a video, given its path below the folder or prefix.

        Raises:
            ValueError: The path leads out of it.
        """
        if not place or place.startswith("/") or scheme_of(place) or ".." in place.split("/"):
            raise ValueError(f"the path {quoted(place)} does not lie below {redact_uri(self.uri)}")
        return f"{self.uri.rstrip('/')}/{escape_name(place)}"


def suffix_of(name: str) -> str:
    """Return the suffix of a name, in lower case and without its dot."""
    return name.rpartition("/")[2].rpartition(".")[2].lower()


def is_video(name: str) -> bool:
    """Return whether a name below a folder is that of a video, by its suffix, and not hidden.

    macOS keeps attributes of `a.mp4` in `._a.mp4`, and a trash; our own home folder may be there, too.
    """
    is_hidden = any(part.startswith(".") for part in name.split("/"))
    return suffix_of(name) in VIDEO_SUFFIXES and not is_hidden


def _value(name: str, fields: Mapping[str, Any], theirs: str) -> Any:  # noqa: ANN401 - as the column has it
    if theirs not in fields:
        raise ValueError(f"it has no field {theirs}; its fields: {', '.join(sorted(fields)) or 'none'}")
    value = fields[theirs]
    if value is None:
        return None
    if name == "choices":
        return _listed_choices(value, theirs)
    if name in _NUMBERS:
        if isinstance(value, bool) or not isinstance(value, float | int):
            raise ValueError(f"{theirs} {quoted(value)} is not a number of seconds")
        return float(value)
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False)
    return str(value)


def _listed_choices(value: object, theirs: str) -> list[str]:
    if isinstance(value, str):
        return parse_list(value, theirs)
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return value
    raise ValueError(f"{theirs} {quoted(value)} is not a list of choices")


def read_folder(source: VideoFiles) -> ImportedRows:
    """Make a job of each video: a file, those that a glob matches, or all below a folder or prefix.

    Its id is the path below the folder.

    Raises:
        ConfigurationError: A column is mapped, but files have no fields.
        ManifestError: There is no video.
    """
    if source.columns:
        raise ConfigurationError("--column maps fields, and the videos of a folder have none; leave it out.")
    found = ImportedRows(source=redact_uri(source.uri), columns=source.filled)
    one, videos, others = source.one_video(), 0, []
    for name, uri in [one] if one else source.named_files():
        if not (one or is_video(name)):
            others.append(name)
            continue
        videos += 1
        if is_valid_unicode(name):
            found.add(name, partial(source.job, name, uri, {}), job_id=name, given=uri)
        else:
            found.reject(
                escape_controls(name), "the name is not UTF-8; rename it", job_id=None, given=escape_controls(uri)
            )
    if not videos:
        raise ManifestError(f"There is no video below {redact_uri(source.uri)}; check the path.")
    if others:
        files, first = pluralize(len(others), "file"), escape_controls(others[0])
        found.notes.append(f"Left out {files}, hidden or without the suffix of a video (first: {first}).")
    return found


# WebDataset: tar shards of samples, whose members share the part of their name before the first dot. See "The
# WebDataset Format", in the documentation of webdataset.
_MEMBER = re.compile(r"((?:.*/)?[^./][^./]*)\.([^/]+)", re.DOTALL)
_THREADS = 16
_MAX_FIELD_BYTES = 1024**2
_JSON = "json"


class _Sample(NamedTuple):
    """A sample of a shard.

    Attributes:
        key: What its members' names share.
        members: Their names, by what follows the key.
    """

    shard: str
    key: str
    members: dict[str, str]

    @property
    def videos(self) -> list[str]:
        """The endings of its videos."""
        return [ending for ending in self.members if suffix_of(ending) in VIDEO_SUFFIXES]


def read_webdataset(source: VideoFiles) -> ImportedRows:
    """Make a job of each video of each sample; its id is `SHARD/KEY`.

    Mapped fields are those of the sample's JSON, or the ending of another member of it, such as `txt`. Only headers
    and mapped members are read, by range.
    """
    found = ImportedRows(source=redact_uri(source.uri), columns=source.filled)
    for info in source.files("tar"):
        shard = source.name_of(info.uri)
        index = source.objects.member_index(info.uri)
        samples = list(_samples(info.uri, index))
        with ThreadPoolExecutor(_THREADS) as threads:
            fields = threads.map(partial(_fields_of, source), samples)
            for sample, read in zip(samples, fields, strict=True):
                _add_sample(found, source, shard, sample, read)
        if index.damage:
            found.reject(shard, f"it is damaged: {index.damage}", job_id=None, given=info.uri)
        for member in index.members.values():
            if member.refusal and not member.refusal.startswith("is a folder"):
                found.reject(f"{shard}#{member.name}", f"it {member.refusal}", job_id=None, given=info.uri)
    return found


def _samples(shard: str, index: MemberIndex) -> Iterator[_Sample]:
    samples: dict[str, _Sample] = {}
    for name, member in index.members.items():
        if not member.refusal and (parts := _MEMBER.fullmatch(name)):
            samples.setdefault(parts[1], _Sample(shard, parts[1], {})).members[parts[2]] = name
    yield from samples.values()


def _add_sample(
    found: ImportedRows, source: VideoFiles, shard: str, sample: _Sample, fields: dict[str, Any] | ValueError
) -> None:
    place, given = f"{shard}, sample {sample.key}", sample.members
    job_id = f"{shard.removesuffix('.tar')}/{sample.key}"
    if not sample.videos:
        found.reject(place, "it has no video", job_id=job_id, given=given)
    for ending in sample.videos:
        own_id = job_id if len(sample.videos) == 1 else f"{job_id}.{ending}"
        uri = member_uri(sample.shard, sample.members[ending])
        if isinstance(fields, ValueError):
            found.reject(place, str(fields), job_id=own_id, given=given)
        else:
            found.add(place, partial(source.job, own_id, uri, fields), job_id=own_id, given=fields or given)


def _fields_of(source: VideoFiles, sample: _Sample) -> dict[str, Any] | ValueError:
    try:
        return dict(_read_fields(source, sample)) if sample.videos else {}
    except (ValueError, RecursionError) as error:
        return error if isinstance(error, ValueError) else ValueError("its JSON is nested too deeply")


def _read_fields(source: VideoFiles, sample: _Sample) -> Iterator[tuple[str, Any]]:
    by_ending = [name for name in source.wanted if name in sample.members and name != _JSON]
    if len(by_ending) < len(source.wanted) and _JSON in sample.members:
        values = json.loads(_read(source, sample, _JSON))
        if not isinstance(values, dict):
            raise ValueError(f"{sample.members[_JSON]} is not a JSON object")
        yield from values.items()
    for ending in by_ending:
        yield ending, _read(source, sample, ending).strip()


def _read(source: VideoFiles, sample: _Sample, ending: str) -> str:
    uri = member_uri(sample.shard, sample.members[ending])
    try:
        info = source.objects.stat(uri)
        if info.size_bytes > _MAX_FIELD_BYTES:
            raise ValueError(f"{sample.members[ending]} has {info.size_bytes:,} bytes, which is too long for a field")
        return source.objects.read(uri, fingerprint=info.fingerprint).decode()
    except VideoError as error:
        raise ValueError(error.message.removesuffix(".")) from None
    except UnicodeDecodeError:
        raise ValueError(f"{sample.members[ending]} is not UTF-8") from None


_BATCH_ROWS = 10_000
_BLOCK_BYTES = 256 * 1024


class _Column(NamedTuple):
    """A column of videos.

    Attributes:
        paths: The column of paths to read instead of bytes; empty if it has bytes.
        empty: How many of its rows are known to have neither.
    """

    name: str
    paths: str = ""
    empty: int = 0


def read_parquet_videos(source: VideoFiles) -> ImportedRows:
    """Make a job of each row; its id is `FILE/ROW`, unless a column is mapped to it.

    The column of videos is the one mapped to `video_uri`, or the only one that holds bytes. It is not read: jobs name
    rows of it. Where it holds paths, jobs name the files, relative to that of the table.

    Raises:
        ManifestError: There is no Parquet file, or one cannot be read or lacks a column.
        ConfigurationError: It is unclear which column holds the videos.
    """
    found = ImportedRows(source=redact_uri(source.uri), columns=source.filled)
    for info in source.files("parquet"):
        name = source.name_of(info.uri)
        try:
            archive = RangedFile(RemoteArchive(source.objects, info), block_bytes=_BLOCK_BYTES)
            with ParquetTable(archive, uri=redact_uri(info.uri)) as table:
                _add_rows(found, source, info, table)
        except (pa.ArrowException, OSError) as error:
            reason = str(error).partition("\n")[0].rstrip(".")
            raise ManifestError(f"Cannot read {redact_uri(info.uri)} as Parquet: {reason}.") from None
        if not found.rows:
            found.notes.append(f"{name} has no rows.")
    return found


def _add_rows(found: ImportedRows, source: VideoFiles, info: ObjectInfo, table: ParquetTable) -> None:
    name = source.name_of(info.uri)
    column = _find_column(source, info, table.file)
    require_columns(redact_uri(info.uri), table.names, source.wanted, layout="this mapping")
    if column.empty:
        found.notes.append(f"{pluralize(column.empty, 'row')} of {name} have no video in column {column.name}.")
    for number, fields in enumerate(_fields_of_rows(table, column, source)):
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
    folder = source.name_of(info.uri).rpartition("/")[0]
    return source.uri_of(f"{folder}/{path}" if folder else path)


def _fields_of_rows(table: ParquetTable, column: _Column, source: VideoFiles) -> Iterator[dict[str, Any]]:
    wanted = [*source.wanted, *([column.paths] if column.paths else [])]
    if not wanted:  # nothing but numbers
        yield from ({} for _ in range(table.file.metadata.num_rows))
        return
    for batch in table.batches(wanted, most_rows=_BATCH_ROWS):
        yield from batch.to_pylist()


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
    """Return how many values are null, by the statistics in the footer; 0 if it has none."""
    at = next(number for number in range(metadata.num_columns) if metadata.schema.column(number).path == path)
    chunks = (metadata.row_group(number).column(at) for number in range(metadata.num_row_groups))
    return sum(chunk.statistics.null_count or 0 for chunk in chunks if chunk.statistics)


_INFO, _EPISODES = "meta/info.json", "meta/episodes"
_VERSION = "v3."
_FIELDS = ("episode_index", "tasks", "length")
_OF_CAMERA = ("chunk_index", "file_index", "from_timestamp", "to_timestamp")
_FILLED_IN = re.compile(r"\{(\w+)(?::0?(\d?)d)?\}")
_SEGMENT = ("start_s", "end_s")


def read_lerobot(source: VideoFiles) -> ImportedRows:
    """Make a job of each episode and camera: a segment of an MP4. Its id is `episode-000000/CAMERA`.

    `task` is what the robot was told, unless a column is mapped to it; `--column video_uri=CAMERA` takes one camera.

    Raises:
        ManifestError: It is not a data set of LeRobot 3, or has no such camera.
        ConfigurationError: A segment is mapped, though episodes have their own.
    """
    if mapped := [name for name in _SEGMENT if name in source.columns]:
        raise ConfigurationError(f"Episodes have a segment of their own; leave --column {mapped[0]}=... out.")
    info = _read_info(source)
    cameras = _cameras(source, info)
    columns = [*source.filled, *(name for name in ("task", *_SEGMENT) if name not in source.filled)]
    found = ImportedRows(source=redact_uri(source.uri), columns=columns)
    for episode in _episodes(source, cameras):
        for camera in cameras:
            job_id = f"episode-{episode['episode_index']:06}/{camera}"
            place = f"episode {episode['episode_index']}, camera {camera}"
            found.add(place, partial(_episode_job, source, info, episode, camera, job_id), job_id=job_id, given=episode)
    return found


def _read_info(source: VideoFiles) -> dict[str, Any]:
    uri = f"{source.uri.rstrip('/')}/{_INFO}"
    shown = redact_uri(uri)
    try:
        info = json.loads(source.objects.read(uri))
    except ObjectMissingError:
        raise ManifestError(
            f"There is no {_INFO} below {redact_uri(source.uri)}, so it is not a data set of LeRobot 3."
        ) from None
    except (ValueError, RecursionError) as error:
        raise ManifestError(f"Cannot read {shown} as JSON: {error}.") from None
    if not isinstance(info, dict) or not str(info.get("codebase_version")).startswith(_VERSION):
        version = info.get("codebase_version") if isinstance(info, dict) else None
        raise ManifestError(
            f"{shown} has version {quoted(version)}, not {_VERSION}0; convert the data set with LeRobot's own script."
        )
    fps = info.get("fps")
    if isinstance(fps, bool) or not isinstance(fps, int | float) or not fps > 0:
        raise ManifestError(f"{shown} has no frame rate; fps is {quoted(fps)}.")
    if not isinstance(info.get("video_path"), str):
        raise ManifestError(f"{shown} has no video_path, so the data set has no videos.")
    return info


def _cameras(source: VideoFiles, info: Mapping[str, Any]) -> list[str]:
    features = info.get("features")
    features = features if isinstance(features, dict) else {}
    cameras = [name for name, each in features.items() if isinstance(each, dict) and each.get("dtype") == "video"]
    wanted = source.columns.get("video_uri")
    if wanted is not None and wanted not in cameras:
        raise ManifestError(f"There is no camera {wanted}; the data set has: {', '.join(cameras) or 'none'}.")
    if not cameras:
        raise ManifestError(f"{redact_uri(source.uri)} has no camera whose frames are videos.")
    return [wanted] if wanted is not None else cameras


def _episodes(source: VideoFiles, cameras: Sequence[str]) -> list[dict[str, Any]]:
    folder = f"{source.uri.rstrip('/')}/{_EPISODES}"
    infos = [info for info in source.objects.list(folder) if info.uri.endswith(".parquet")]
    if not infos:
        raise ManifestError(f"There are no Parquet files below {redact_uri(folder)}.")
    columns = [*_FIELDS, *(f"videos/{camera}/{name}" for camera in cameras for name in _OF_CAMERA)]
    columns += [name for name in source.wanted if name not in columns]
    episodes: list[dict[str, Any]] = []
    for info in infos:
        data = BytesIO(source.objects.read(info.uri, fingerprint=info.fingerprint))
        episodes += read_columns(data, columns, uri=redact_uri(info.uri), layout="LeRobot 3").rows(named=True)
    if not all(isinstance(each["episode_index"], int) for each in episodes):
        raise ManifestError(f"The episodes below {redact_uri(folder)} have no numbers in episode_index.")
    return sorted(episodes, key=lambda each: each["episode_index"])


def _episode_job(
    source: VideoFiles, info: Mapping[str, Any], episode: Mapping[str, Any], camera: str, job_id: str
) -> dict[str, Any]:
    chunk, file, start_s, end_s = (episode[f"videos/{camera}/{name}"] for name in _OF_CAMERA)
    if not isinstance(chunk, int) or not isinstance(file, int):
        raise ValueError("chunk_index or file_index is not a number")  # noqa: TRY004 - a fault of the data
    if not isinstance(start_s, float) or not isinstance(end_s, float):
        raise ValueError("from_timestamp or to_timestamp is not a number of seconds")  # noqa: TRY004
    path = _fill(info["video_path"], {"video_key": camera, "chunk_index": chunk, "file_index": file})
    fields = dict(episode) | {"tasks": "; ".join(map(str, episode["tasks"] or ()))}
    job = source.job(job_id, source.uri_of(path), fields)
    # An episode ends where the next one begins, and both ends of a segment belong to it.
    segment = {"start_s": start_s, "end_s": end_s - 0.5 / info["fps"]}
    return {"task": fields["tasks"] or None} | job | segment


def _fill(pattern: str, values: Mapping[str, str | int]) -> str:
    """Fill in a path such as `videos/{video_key}/chunk-{chunk_index:03d}.mp4`.

    Not by `str.format`, with which a pattern may ask for attributes, or for gigabytes.
    """
    names = {name for name, _ in _FILLED_IN.findall(pattern)}
    if names - values.keys() or set(_FILLED_IN.sub("", pattern)) & {"{", "}"}:
        raise ValueError(f"the pattern {quoted(pattern)} of video_path cannot be filled in")
    return _FILLED_IN.sub(lambda found: str(values[found[1]]).zfill(int(found[2] or 0)), pattern)
