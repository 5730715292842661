"""Import of the episodes of LeRobot 3 data sets."""

from __future__ import annotations

import json
import re
from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING, Any

from infra.errors import ManifestError
from reelabel.errors import ConfigurationError, ObjectMissingError
from reelabel.sources.object_info import redact_uri
from reelabel.text import quoted
from tasks.manifest.importers.imported import ImportedRows, read_columns

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tasks.manifest.importers.videos import VideoFiles

_INFO, _EPISODES = "meta/info.json", "meta/episodes"
_VERSION = "v3."
_FIELDS = ("episode_index", "tasks", "length")
_OF_CAMERA = ("chunk_index", "file_index", "from_timestamp", "to_timestamp")
_FILLED_IN = re.compile(r"\{(\w+)(?::0?(\d?)d)?\}")
_SEGMENT = ("start_s", "end_s")


def read_lerobot(source: VideoFiles) -> ImportedRows:
    """Make a job `episode-000000/CAMERA` of each episode and camera, on a segment of an MP4.

    `task` is the robot's instruction, unless a column is mapped to it; `--column video_uri=CAMERA` takes one camera.

    Raises:
        ManifestError: It is not a data set of LeRobot 3, or has no such camera.
        ConfigurationError: A column is mapped to the segment, which episodes have.
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
    columns += [name for name in source.fields if name not in columns]
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
    # An episode ends where the next one begins, but a segment includes its end.
    segment = {"start_s": start_s, "end_s": end_s - 0.5 / info["fps"]}
    return {"task": fields["tasks"] or None} | job | segment


def _fill(pattern: str, values: Mapping[str, str | int]) -> str:
    """Fill in a path such as `videos/{video_key}/chunk-{chunk_index:03d}.mp4`.

    Not by `str.format`, with which a pattern could read attributes, or allocate gigabytes.
    """
    names = {name for name, _ in _FILLED_IN.findall(pattern)}
    if names - values.keys() or set(_FILLED_IN.sub("", pattern)) & {"{", "}"}:
        raise ValueError(f"the pattern {quoted(pattern)} of video_path cannot be filled in")
    return _FILLED_IN.sub(lambda found: str(values[found[1]]).zfill(int(found[2] or 0)), pattern)
