"""Import of WebDataset: tar shards of samples, whose members have the same name up to the first dot.

See "The WebDataset Format" in the documentation of webdataset.
"""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from reelabel.errors import VideoError
from reelabel.sources.object_info import member_uri, redact_uri
from tasks.manifest.importers.imported import ImportedRows
from tasks.manifest.importers.videos import VIDEO_SUFFIXES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reelabel.sources.members import MemberIndex
    from tasks.manifest.importers.videos import VideoFiles

_MEMBER = re.compile(r"((?:.*/)?[^./][^./]*)\.([^/]+)", re.DOTALL)
_THREADS = 16
_MAX_FIELD_BYTES = 1024**2
_JSON = "json"


class _Sample(NamedTuple):
    shard: str
    key: str  # the common part of its members' names
    members: dict[str, str]  # their names by the rest, such as `mp4`

    @property
    def videos(self) -> list[str]:
        return [ending for ending in self.members if ending.rpartition(".")[2].lower() in VIDEO_SUFFIXES]


def read_webdataset(source: VideoFiles) -> ImportedRows:
    """Make a job of each video of each sample; its id is `SHARD/KEY`.

    Columns are mapped to fields of the sample's JSON, or to the endings of its other members, such as `txt`. Only
    headers and mapped members are read, by range.
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
    by_ending = [name for name in source.fields if name in sample.members and name != _JSON]
    if len(by_ending) < len(source.fields) and _JSON in sample.members:
        try:
            values = json.loads(_read(source, sample, _JSON))
        except json.JSONDecodeError as error:
            raise ValueError(f"{sample.members[_JSON]} is not JSON ({error.msg} at character {error.pos})") from None
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
