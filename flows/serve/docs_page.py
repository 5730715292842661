"""The page of all routes, from the application's own OpenAPI description; it loads nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jinja2 import Environment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# No script, no font and no style from elsewhere.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
_PAGE = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string("""\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{{ title }} {{ version }}</title>
<style>
  body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
  code { font-size: 0.9em; } h2 { margin-top: 2.5rem; } table { border-collapse: collapse; width: 100%; }
  th, td { text-align: left; vertical-align: top; padding: 0.25rem 0.75rem 0.25rem 0; border-bottom: 1px solid #ddd; }
  @media (prefers-color-scheme: dark) { body { background: #181818; color: #ddd; } td, th { border-color: #444; } }
</style>
<h1>{{ title }} {{ version }}</h1>
<p>Also as <a href="/openapi.json">OpenAPI</a>.</p>
{% for route in routes %}
<h2 id="{{ route.id }}"><code>{{ route.method }} {{ route.path }}</code></h2>
<p>{{ route.summary }}. {{ route.description }}</p>
{% for name, rows in route.tables %}
<h3>{{ name }}</h3>
<table>
  <tr><th>Field<th>Type<th>
  {% for row in rows %}
  <tr><td><code>{{ row.name }}</code>{% if row.required %}, required{% endif %}<td>{{ row.type }}
    <td>{{ row.description }}
  {% endfor %}
</table>
{% endfor %}
{% if route.refusals %}
<h3>Refused with <code>code</code> and <code>message</code></h3>
<table>
  {% for status, description in route.refusals %}
  <tr><td>{{ status }}<td>{{ description }}
  {% endfor %}
</table>
{% endif %}
{% endfor %}
</html>
""")


def docs_page(openapi: Mapping[str, Any]) -> str:
    """Render the page of an OpenAPI description."""
    schemas = openapi.get("components", {}).get("schemas", {})
    routes = [
        _route(method, path, operation, schemas)
        for path, operations in openapi["paths"].items()
        for method, operation in operations.items()
    ]
    return _PAGE.render(title=openapi["info"]["title"], version=openapi["info"]["version"], routes=routes)


def _route(method: str, path: str, operation: Mapping[str, Any], schemas: Mapping[str, Any]) -> dict[str, Any]:
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    answers = operation.get("responses", {})
    answer = answers.get("200", {}).get("content", {}).get("application/json", {}).get("schema")
    tables = {"Request": body, "Answer": answer}
    return {
        "id": operation["operationId"],
        "method": method.upper(),
        "path": path,
        "summary": operation.get("summary", ""),
        "description": operation.get("description", ""),
        "tables": [(name, list(_rows(schema, schemas))) for name, schema in tables.items() if schema],
        "refusals": [(status, each["description"]) for status, each in answers.items() if status != "200"],
    }


def _rows(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    schema = _resolve(schema, schemas)
    for name, field in schema.get("properties", {}).items():
        yield {
            "name": name,
            "type": _type(field, schemas),
            "required": name in schema.get("required", ()),
            "description": field.get("description", ""),
        }


def _resolve(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = schemas[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    return found


def _type(field: Mapping[str, Any], schemas: Mapping[str, Any]) -> str:
    """Name a type in a few words."""
    if "$ref" in field:
        fields = _resolve(field, schemas).get("properties", {})
        return f"object of {', '.join(fields)}"
    if "anyOf" in field:
        kinds = [_type(each, schemas) for each in field["anyOf"] if each.get("type") != "null"]
        return " or ".join(kinds)
    if "enum" in field:
        return " or ".join(map(str, field["enum"]))
    if field.get("type") == "array":
        return f"list of {_type(field.get('items', {}), schemas)}"
    return str(field.get("type", field.get("const", "any")))
