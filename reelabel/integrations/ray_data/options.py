"""The options of `PrepareVideo`; instances with equal options share decoding processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from reelabel.limits import Limits  # noqa: TC001 - `check_options` reads the annotations
from reelabel.options import check_options, conflict, option, read_options
from reelabel.sampling.options import Sampling
from reelabel.sampling.passes import check_no_job_options
from reelabel.sampling.registry import find_sampler
from reelabel.sandbox import SandboxMode  # noqa: TC001
from reelabel.sources.options import S3Options, WebOptions  # noqa: TC001

_FPS = 3.0
# The size of Qwen's video processing: 768 of its patches.
_SIZE: dict[str, Any] = {"max_pixels": 602_112, "size_multiple_px": 28}
_TITLE = "arguments of PrepareVideo"


def parse_sampling(given: Sampling | Mapping[str, Any] | None) -> Sampling:
    """Parse `{"fps": 3}`, `{"num_frames": 8}`, or the options of any sampler together with its `sampler` name.

    Frames have the size of Qwen's video processing, unless it is given.
    """
    if isinstance(given, Sampling):
        return given if given.max_pixels else replace(given, **_SIZE)
    if not isinstance(given, Mapping | None):
        raise ValueError(f"must be a dictionary or a Sampling, not {type(given).__name__}")  # noqa: TRY004 - a clause
    sampler = "num_frames" if "num_frames" in (given or {}) else "fps"
    options = {"sampler": sampler} | _SIZE | dict(given or {})
    return read_options(Sampling, {"fps": _FPS} | options if options["sampler"] == "fps" else options)


def _folders(given: Any) -> Any:  # noqa: ANN401 - whatever a user gave
    return tuple(map(_absolute, given)) if isinstance(given, list | tuple) else given


def _absolute(path: Any) -> Any:  # noqa: ANN401
    return Path(path).absolute() if isinstance(path, str | Path) else path


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareOptions:
    """The validated arguments of `PrepareVideo`."""

    sampling: Sampling = option(convert=parse_sampling, check=check_no_job_options)
    cache_dir: Path | None = option(check=Path.absolute)
    cache_mode: Literal["auto", "disk", "memory"]
    output_format: Literal["pil", "numpy"]
    channels_first: bool
    timeout_s: float = option(gt=0, le=300)
    max_concurrency: int = option(ge=1, le=256)
    retries: int = option(ge=0, le=19)
    bypass_if_frames_present: bool
    sample_frames_present: bool
    pack_for_model: bool
    processes: int = option(ge=1, le=256)
    videos_per_process: int = option(ge=1)
    sandbox: SandboxMode
    s3: S3Options
    web: WebOptions
    allow_roots: tuple[Path, ...] = option(convert=_folders)
    read_buckets: tuple[str, ...]
    limits: Limits

    def __post_init__(self) -> None:
        check_options(self, PrepareOptions, _TITLE)
        if self.sample_frames_present and self.bypass_if_frames_present:
            raise conflict(
                self, "sample_frames_present and bypass_if_frames_present exclude each other; leave one out", _TITLE
            )
        if self.sample_frames_present and find_sampler(self.sampling.sampler).choose is None:
            clause = f"the sampler {self.sampling.sampler} chooses from a file, not from frames; use num_frames"
            raise conflict(self, clause, _TITLE)
