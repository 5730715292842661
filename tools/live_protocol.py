"""Writes the JSON Schema of every message of a live session: `python -m tools.live_protocol`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

from pydantic.json_schema import GenerateJsonSchema, models_json_schema

from tasks.live import events, messages

SCHEMA = Path(__file__).parents[1] / "docs/live-protocol.json"
_CLIENT = get_args(get_args(messages.ClientMessage)[0])
_SERVER = get_args(events.Event)


class _WithoutTitles(GenerateJsonSchema):
    """Gives fields no titles, which would repeat their names."""

    def field_title_should_be_set(self, schema: object) -> bool:
        """Return false."""
        del schema
        return False


def schema() -> str:
    """Return the schema: a client's messages are `oneOf` under `$defs.client`, the server's events under `server`."""
    models = [(model, "validation") for model in _CLIENT] + [(model, "serialization") for model in _SERVER]
    references, definitions = models_json_schema(models, schema_generator=_WithoutTitles)  # type: ignore[arg-type]  # the literals of the two modes
    defs = dict(definitions["$defs"])
    defs["client"] = {"oneOf": [references[model, "validation"] for model in _CLIENT]}
    defs["server"] = {"oneOf": [references[model, "serialization"] for model in _SERVER]}
    whole = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Messages of WebSocket /v1/video/chat/stream",
        "oneOf": [{"$ref": "#/$defs/client"}, {"$ref": "#/$defs/server"}],
        "$defs": defs,
    }
    return json.dumps(whole, indent=2) + "\n"


if __name__ == "__main__":
    SCHEMA.write_text(schema())
