"""`reelabel frames`."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from PIL.Image import registered_extensions

from flows.commands.opened import services
from flows.commands.target import require_folder
from flows.commands.terminal import say
from flows.decoding import decode_pool, video_limits
from infra.embedded import ServiceName
from infra.errors import ConfigurationError
from infra.objects import ObjectStore
from infra.wording import counted
from tasks.frames.prepare import look_at_video
from tasks.frames.show import contact_sheet, describe, save_npz
from tasks.model.identity import read_model_card

if TYPE_CHECKING:
    from infra.settings import Settings
    from tasks.domain import Sampling
    from tasks.video.keyframes import Keyframes


def show_frames(
    video: str,
    *,
    num_frames: int | None,
    every: bool,
    native: bool,
    as_json: bool,
    npz: str | None,
    sheet: str | None,
) -> None:
    """Extract a video's frames as a run would, and show or save them.

    Raises:
        VideoError: The video cannot be used.
    """
    if not video:
        raise ConfigurationError("The video's name is empty; give a path or a URI.")
    for target in filter(None, (npz, sheet)):
        require_folder(target)
    if sheet and Path(sheet).suffix.lower() not in registered_extensions():
        raise ConfigurationError(f"--sheet {sheet} ends in no picture format; write a name such as sheet.png.")
    with services(*([ServiceName.S3] if video.startswith("s3://") else [])) as settings:
        keyframes, bytes_fetched = _extract(video, settings, num_frames=num_frames, every=every, native=native)
    if npz:
        save_npz(keyframes, Path(npz))
    if sheet:
        contact_sheet(keyframes, Path(sheet))
    facts = describe(keyframes) | {"bytes_fetched": bytes_fetched}
    if as_json:
        print(json.dumps(facts, indent=2))  # noqa: T201 - for programs, not for a terminal's width
        return
    total = "" if facts["total_frames"] is None else f" in {counted(facts['total_frames'], 'frame')}"
    say(
        f"{counted(facts['keyframes_in_file'], 'keyframe')}{total}, {facts['duration_s']:.2f} s; "
        f"reached by {facts['method']} in {facts['decode_ms']:.1f} ms, {counted(bytes_fetched, 'byte')} fetched.",
    )
    for pick in facts["picks"]:
        say(f"  frame {pick['frame_index']:>6}  {pick['time_s']:9.3f} s  pts {pick['pts']}")


def _extract(
    video: str,
    settings: Settings,
    *,
    num_frames: int | None,
    every: bool,
    native: bool,
) -> tuple[Keyframes, int]:
    """Extract in a decoding process, at the model's own size; gives the bytes fetched, too."""
    objects = ObjectStore(settings.store, settings.web)
    info = look_at_video(objects, video, allow_roots=settings.extract.allow_roots)
    limits = video_limits(settings)
    with TemporaryDirectory(prefix="reelabel-") as folder, decode_pool(settings, processes=1) as pool:
        path = objects.local_path(video)
        if path is None:
            path = Path(folder) / "video"
            objects.download(video, path, fingerprint=info.fingerprint, max_bytes=limits.max_video_bytes)
        sampling = _sampling(settings, num_frames)
        return pool.extract(path, sampling=sampling, limits=limits, native=native, every=every), info.size_bytes


def _sampling(settings: Settings, num_frames: int | None) -> Sampling:
    from flows.run import make_spec  # noqa: PLC0415 - Prefect takes a second to import

    card = read_model_card(settings.model.name, revision=settings.model.revision)
    return make_spec(card, settings, num_frames=num_frames).sampling
