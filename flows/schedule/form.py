"""The form of a deployment in the Prefect UI."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from prefect.utilities.callables import parameter_schema

from infra.settings.types import title_of

if TYPE_CHECKING:
    from prefect import Flow


@cache  # several deployments of one flow
def form_of(flow: Flow[..., Any]) -> dict[str, Any]:
    """Return a flow's parameters as a JSON schema, with titles in one style, in the order of the signature.

    Prefect's database forgets the order of keys; its UI sorts the fields of a form, and of the groups in it, by
    `position`.
    """
    form: dict[str, Any] = parameter_schema(flow).model_dump(mode="json", exclude_unset=True)
    form["additionalProperties"] = False  # an unknown parameter would crash each attempt of the run
    for group in (form, *form.get("definitions", {}).values()):
        for position, (name, field) in enumerate(group.get("properties", {}).items()):
            field |= {"title": title_of(name), "position": position}
    return form
