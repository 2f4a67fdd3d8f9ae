"""The JSON schema of an argument model, in the plain form that every endpoint accepts."""

from __future__ import annotations

from pydantic import BaseModel, JsonValue

from loopline.agents.records import JsonObject


def inline_schema(model: type[BaseModel]) -> JsonObject:
    """The model's schema without titles and with every `$ref` written out.

    Small models and some endpoints stumble over `$defs`; arguments of tools are never recursive.
    Raises `TypeError` for a recursive model.
    """
    schema = model.model_json_schema()
    definitions = schema.pop("$defs", {})
    inlined = _inline(schema, definitions, ())
    if not isinstance(inlined, dict):
        raise TypeError(f"{model.__name__} has no object schema")
    inlined.pop("description", None)
    return inlined


def _inline(node: JsonValue, definitions: JsonObject, inside: tuple[str, ...]) -> JsonValue:
    if isinstance(node, list):
        return [_inline(item, definitions, inside) for item in node]
    if not isinstance(node, dict):
        return node
    reference = node.get("$ref")
    if isinstance(reference, str):
        name = reference.rpartition("/")[2]
        if name in inside:
            raise TypeError(f"the argument model {name} is recursive")
        return _inline(definitions[name], definitions, (*inside, name))
    result: JsonObject = {}
    for key, value in node.items():
        if key == "properties" and isinstance(value, dict):
            # Here keys are the names of fields: one may well be called "title".
            result[key] = {
                field: _inline(schema, definitions, inside) for field, schema in value.items()
            }
        elif key != "title":
            result[key] = _inline(value, definitions, inside)
    return result
