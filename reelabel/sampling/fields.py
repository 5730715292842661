"""Types of the sampling options, and how they are described in help and forms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field
from pydantic_core import core_schema

from reelabel.sampling.registry import (
    BUILT_IN,
    NATIVE,
    dense_samplers,
    find_dense_sampler,
    find_sampler,
    samplers,
)
from reelabel.sampling.spec import EVERY, MAX_FRAMES

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
    from pydantic.config import JsonDict
    from pydantic.json_schema import JsonSchemaValue

_IGNORE_NUM_FRAMES = [name for name, spec in BUILT_IN.items() if not spec.takes_num_frames]


class _Registered:
    """Annotation of a sampler's name: validated against the registry, and an enum in the JSON schema."""

    def __init__(self, *, dense: bool, allows_native: bool = False) -> None:
        self._is_dense = dense
        self._extra = (NATIVE,) if allows_native else ()

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:  # noqa: ANN401
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return handler(schema) | {"enum": [*self._extra, *(dense_samplers() if self._is_dense else samplers())]}

    def _check(self, name: str) -> str:
        if name in self._extra:
            return name
        return (find_dense_sampler(name) if self._is_dense else find_sampler(name)).name


SamplerName = Annotated[str, _Registered(dense=False)]
DenseSamplerName = Annotated[str, _Registered(dense=True)]
# Where the model is known.
AskedSamplerName = Annotated[str, _Registered(dense=False, allows_native=True)]
AskedDenseSamplerName = Annotated[str, _Registered(dense=True, allows_native=True)]


def _list_samplers(schema: JsonDict) -> None:
    kinds: Any = schema.get("anyOf", [schema])
    with_native = any(NATIVE in kind.get("enum", ()) for kind in kinds)
    schema["description"] = f"{schema['description']} {describe_samplers(with_native=with_native)}"


def describe_samplers(*, with_native: bool) -> str:
    """Return the samplers with their summaries, as a sentence for help and forms."""
    summaries = {NATIVE: "the one that the model was trained with"} if with_native else {}
    summaries |= {name: spec.summary for name, spec in samplers().items()}
    return f"One of {', '.join(f'{name} ({summary})' for name, summary in summaries.items())}."


# Shared by the models that have these fields, with different defaults.
HOW_CHOSEN = Field(description="How frames are chosen.", json_schema_extra=_list_samplers)
HOW_MANY = Field(
    description="Frames per video, or -1 for every frame (with keyframes, every keyframe); the maximum for uniform, "
    "molmo2, openpangu and llava_onevision2; "
    f"ignored by {', '.join(_IGNORE_NUM_FRAMES[:-1])} and {_IGNORE_NUM_FRAMES[-1]}."
)


def _check_count(count: int) -> int:
    if count < 1 and count != EVERY:
        raise ValueError("must be at least 1, or -1 for every frame")
    return count


def _check_rate(fps: float) -> float:
    if fps <= 0 and fps != EVERY:
        raise ValueError("must be greater than 0, or -1 for the rate of the video itself")
    return fps


# Beside the bounds of JSON schema, which cannot leave out what lies between -1 and 1.
NumFrames = Annotated[int, Field(ge=EVERY, le=MAX_FRAMES), AfterValidator(_check_count)]
FrameRate = Annotated[float, Field(ge=EVERY, le=240), AfterValidator(_check_rate)]
MaxPixels = Annotated[int, Field(ge=784, le=16_777_216)]


def option(description: str, **bounds: Any) -> Any:  # noqa: ANN401 - as of Pydantic's own function
    """Return the field of an option of which a spec says nothing while it is left to the sampler."""
    return Field(exclude_if=lambda value: value is None, description=description, **bounds)


AS_DECODED: Literal["as_decoded"] = "as_decoded"


def is_not_false(value: object) -> bool:
    """Return whether an option that is on by default is not switched off: a spec then says nothing of it."""
    return value is not False
