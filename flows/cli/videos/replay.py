"""`reelabel replay`."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Annotated

import typer

from flows.cli.console import ERRORS, print_line, require_parent_folder, write_output
from flows.cli.context import running_store
from flows.cli.options import example
from reelabel.errors import ConfigurationError, NoIndexError
from reelabel.sources.object_info import redact_uri
from reelabel.sources.opened import stat_video
from tasks.frame_cache.pool import decode_pool, video_limits, video_store
from tasks.report.replay import render_replay


@example("reelabel replay clip.mp4 --out clip.html")
def replay(
    video: Annotated[str, typer.Argument(help="Path or URI of a video.")],
    *,
    out: Annotated[str | None, typer.Option(help="File to write. Default: reelabel-replay-VIDEO.html.")] = None,
) -> None:
    """Write a page that replays the frames that keyframes and uniform sampling take from a video.

    A slider sets the number of frames; the page shows them, and what must be decoded.
    """
    if out:
        require_parent_folder(out)
    with running_store(video) as settings:
        store = video_store(settings)
        uri = stat_video(store, video).uri
        name = redact_uri(uri)
        with (
            decode_pool(settings, processes=1) as pool,
            ERRORS.status("Decoding the frames"),
            pool.open(uri, store=store, limits=video_limits(settings)) as opened,
        ):
            try:
                page = render_replay(name, opened)
            except NoIndexError as error:
                raise ConfigurationError(f"{name} cannot be replayed: {error.message}") from None
    target = Path(out or f"reelabel-replay-{PurePosixPath(name).stem}.html")
    write_output(target, page)
    print_line(f"Wrote {target.absolute()}; open it in a browser.")
