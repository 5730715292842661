"""The options of `PrepareVideo`; instances with equal options share decoding processes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from reelabel.errors import ConfigurationError
from reelabel.limits import Limits  # noqa: TC001 - pydantic reads the annotations
from reelabel.sampling.options import Sampling
from reelabel.sampling.passes import require_no_job_options
from reelabel.sampling.registry import find_sampler
from reelabel.sandbox import SandboxMode  # noqa: TC001
from reelabel.sources.options import S3Options, WebOptions  # noqa: TC001
from reelabel.validation import describe_fault

if TYPE_CHECKING:
    from pydantic import ModelWrapValidatorHandler

_FPS = 3.0
# The size of Qwen's video processing: 768 of its patches.
_MAX_PIXELS, _PATCH_PX = 602_112, 28


def parse_sampling(given: Sampling | Mapping[str, Any] | None) -> Sampling:
    """Parse `{"fps": 3}`, `{"num_frames": 8}`, or the options of any sampler together with its `sampler` name.

    Frames have the size of Qwen's video processing, unless it is given.
    """
    if isinstance(given, Sampling):
        size = {"max_pixels": _MAX_PIXELS, "size_multiple_px": _PATCH_PX}
        return given if given.max_pixels else given.model_copy(update=size)
    if not isinstance(given, Mapping | None):
        raise ValueError(f"must be a dictionary or a Sampling, not {type(given).__name__}")  # noqa: TRY004 - for pydantic
    sampler = "num_frames" if "num_frames" in (given or {}) else "fps"
    options = {"sampler": sampler, "max_pixels": _MAX_PIXELS, "size_multiple_px": _PATCH_PX} | dict(given or {})
    return Sampling.model_validate({"fps": _FPS} | options if options["sampler"] == "fps" else options)


class PrepareOptions(BaseModel):
    """The validated arguments of `PrepareVideo`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sampling: Annotated[Sampling, BeforeValidator(parse_sampling), AfterValidator(require_no_job_options)]
    cache_dir: Annotated[Path, AfterValidator(Path.absolute)] | None
    cache_mode: Literal["auto", "disk", "memory"]
    output_format: Literal["pil", "numpy"]
    channels_first: bool
    timeout_s: Annotated[float, Field(gt=0, le=300)]
    max_concurrency: Annotated[int, Field(ge=1, le=256)]
    retries: Annotated[int, Field(ge=0, le=19)]
    bypass_if_frames_present: bool
    sample_frames_present: bool
    pack_for_model: bool
    processes: Annotated[int, Field(ge=1, le=256)]
    videos_per_process: Annotated[int, Field(ge=1)]
    sandbox: SandboxMode
    s3: S3Options
    web: WebOptions
    allow_roots: tuple[Annotated[Path, AfterValidator(Path.absolute)], ...]
    read_buckets: tuple[str, ...]
    limits: Limits

    @model_validator(mode="after")
    def _require_dense_sampler(self) -> Self:
        if not self.sample_frames_present:
            return self
        if self.bypass_if_frames_present:
            raise ValueError("sample_frames_present and bypass_if_frames_present exclude each other; leave one out")
        if find_sampler(self.sampling.sampler).choose is None:
            raise ValueError(
                f"the sampler {self.sampling.sampler} chooses from a file, not from frames; use num_frames"
            )
        return self

    @model_validator(mode="wrap")
    @classmethod
    def _raise_configuration_error(cls, given: Any, build: ModelWrapValidatorHandler[Self]) -> Self:  # noqa: ANN401
        try:
            return build(given)
        except ValidationError as error:
            faults = (f"{'.'.join(map(str, fault['loc']))}: {describe_fault(fault)}" for fault in error.errors())
            raise ConfigurationError(f"Invalid arguments of PrepareVideo: {'; '.join(faults)}.") from None
