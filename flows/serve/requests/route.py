"""The route of a kind of single requests: a form or JSON in, one JSON out, and how the OpenAPI page describes both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from flows.serve.refusals import Refusal
from flows.serve.requests.place import Work, answer_in_place

if TYPE_CHECKING:
    from collections.abc import Mapping

Asked = TypeVar("Asked", bound=BaseModel)
Answer = TypeVar("Answer", bound=BaseModel)
_REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": Refusal, "description": description}
    for status, description in {
        400: "The form is damaged.",
        401: "The token is missing or wrong.",
        403: "A page of another site asks.",
        408: "The body has stopped.",
        413: "The body or the upload is too large.",
        415: "The body is neither JSON nor a form.",
        421: "The service was asked for by a host name that is not loopback's.",
        422: "The request or its video is at fault.",
        429: "All places are taken; Retry-After says when to try again.",
        500: "The service failed; its log says why.",
        503: "The store or the engine is unavailable; Retry-After says when to try again.",
    }.items()
}


FramesUsed: TypeAlias = Annotated[int, Field(description="Distinct frames that the model was shown.")]
DecodeMethod: TypeAlias = Annotated[str, Field(description="How frames were found: index, seek or linear.")]
DecodeNote: TypeAlias = Annotated[
    str, Field(description="Why no faster method was used, and what was cut short or left out; empty if nothing.")
]
SourceFingerprint: TypeAlias = Annotated[str, Field(description="The version of the video.")]


class Answered(BaseModel):
    """Part of an answer."""

    model_config = ConfigDict(extra="forbid")


def request_router(
    name: str,
    asked: type[Asked],
    answer: type[Answer],
    work: Work[Asked, Answer],
    *,
    summary: str,
    description: str,
) -> APIRouter:
    """Return the route `/v1/NAME`.

    Args:
        name: What is asked for, also in the metrics.
        asked: What the JSON of a request must be.
        answer: What its answer is.
        work: What works it out.
        summary: For the OpenAPI page.
        description: For the OpenAPI page.
    """
    router = APIRouter(tags=["requests"])

    async def handle(request: Request) -> Answer:
        return await answer_in_place(request, name, asked, work)

    router.add_api_route(
        f"/v1/{name}",
        handle,
        methods=["POST"],
        name=name,
        operation_id=name,
        response_model=answer,
        responses=_REFUSALS,
        summary=summary,
        description=description,
        openapi_extra=_body_schema(asked),
    )
    return router


def _body_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return how the OpenAPI page describes a body: JSON, or a form of that JSON and a video."""
    schema = model.model_json_schema()
    form = {
        "type": "object",
        "required": ["request", "video"],
        "properties": {
            "request": {"type": "string", "contentMediaType": "application/json", "contentSchema": schema},
            "video": {"type": "string", "format": "binary"},
        },
        "additionalProperties": False,
    }
    named = schema | {"required": [*schema.get("required", ()), "video_uri"]}
    content = {"application/json": {"schema": named}, "multipart/form-data": {"schema": form}}
    return {"requestBody": {"required": True, "content": content}}


def with_rest(stage_ms: Mapping[str, float], total_ms: float) -> dict[str, float]:
    """Add the milliseconds that belong to no stage."""
    return {**stage_ms, "other": max(0.0, total_ms - sum(stage_ms.values()))}
