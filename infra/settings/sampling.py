"""Settings of frame sampling, the section `[sampling]`: the library's options, with this project's defaults."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator

from infra.settings.base import SettingsSection, library_field
from reelabel.sampling.options import Sampling
from reelabel.sampling.registry import NATIVE, dense_samplers, find_dense_sampler, find_sampler, samplers

if TYPE_CHECKING:
    from pydantic import GetJsonSchemaHandler
    from pydantic.config import JsonDict
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import core_schema


def _describe_samplers() -> str:
    """Return the samplers with their summaries, as a sentence for forms."""
    summaries = {NATIVE: "the one that the model was trained with"}
    summaries |= {name: spec.summary for name, spec in samplers().items()}
    return f"One of {', '.join(f'{name} ({summary})' for name, summary in summaries.items())}."


class _Choices:
    """Annotation of a sampler's name, which is an enum in the JSON schema; registered samplers are in it."""

    def __init__(self, *, dense: bool) -> None:
        self._is_dense = dense

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return handler(schema) | {"enum": [NATIVE, *(dense_samplers() if self._is_dense else samplers())]}


def _check_sampler(name: str) -> str:
    return name if name == NATIVE else find_sampler(name).name


def _check_dense_sampler(name: str) -> str:
    return name if name == NATIVE else find_dense_sampler(name).name


def _list_samplers(schema: JsonDict) -> None:
    schema["description"] = f"{schema['description']} {_describe_samplers()}"


def _option(name: str, **other: Any) -> Any:  # noqa: ANN401 - pydantic's field
    return library_field(Sampling, name, **other)


_Sampler = Annotated[str, AfterValidator(_check_sampler), _Choices(dense=False)]
_DenseSampler = Annotated[str, AfterValidator(_check_dense_sampler), _Choices(dense=True)]
_HOW_CHOSEN = _option("sampler", check=None, json_schema_extra=_list_samplers)


class SamplingOptions(SettingsSection):
    """Sampling options; those left empty are taken from the settings, or from the sampler's defaults.

    Here a model is known, so that `native` can stand for the sampler that it was trained with.
    """

    sampler: Annotated[_Sampler | None, _HOW_CHOSEN] = None
    fps: Annotated[float | None, _option("fps")] = None
    max_duration_s: Annotated[float | None, _option("max_duration_s")] = None
    min_frames: Annotated[int | None, _option("min_frames")] = None
    max_frames: Annotated[int | None, _option("max_frames")] = None
    frame_sample_mode: Annotated[
        Literal["uniform_last_frame", "fps", "every_frame"] | None, _option("frame_sample_mode")
    ] = None
    frame_recovery: Annotated[bool | None, _option("frame_recovery")] = None
    drop_similar: Annotated[float | None, _option("drop_similar")] = None
    jpeg_quality: Annotated[int | None, _option("jpeg_quality")] = None
    hdr: Annotated[Literal["sdr", "as_decoded"] | None, _option("hdr", check=None)] = None
    dense_sampler: Annotated[
        _DenseSampler | None,
        _option(
            "dense_sampler",
            check=None,
            description="Sampler to use where keyframes are not enough; defaults to native, the one that the model was "
            "trained with.",
        ),
    ] = None
    min_keyframes: Annotated[int | None, _option("min_keyframes")] = None
    max_gap_s: Annotated[float | None, _option("max_gap_s")] = None
    coverage_radius_s: Annotated[float | None, _option("coverage_radius_s")] = None
    min_coverage: Annotated[float | None, _option("min_coverage")] = None
    motion_tasks: Annotated[tuple[str, ...] | None, _option("motion_tasks")] = None
    still_tasks: Annotated[tuple[str, ...] | None, _option("still_tasks")] = None
    escalate_below: Annotated[float | Literal["fitted"] | None, _option("escalate_below")] = None
    num_frames: Annotated[int | None, _option("num_frames")] = None


class SamplingSettings(SamplingOptions):
    """Which frames the model sees."""

    sampler: Annotated[_Sampler, _HOW_CHOSEN] = "keyframes"
    num_frames: Annotated[int, _option("num_frames")] = 16
    max_pixels: Annotated[
        int | None,
        _option("max_pixels", exclude_if=None, description="Maximum pixels per frame; defaults to the model's limit."),
    ] = None
