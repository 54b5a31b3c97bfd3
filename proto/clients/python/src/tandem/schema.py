"""JSON schemas of classes, for structured output."""

from __future__ import annotations

import dataclasses
import enum
import json
import types
from collections.abc import Mapping
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from tandem.errors import InvalidRequest

_SIMPLE = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
_UNIONS = (Union, getattr(types, "UnionType", Union))


def schema_text(given: Any, field: str) -> str:
    """Returns the text of a JSON schema: of a dict, of its text, or of a class.

    The schema of a class is closed: the model writes the fields of the class, and no other.
    """
    if isinstance(given, str):
        return given
    if isinstance(given, Mapping):
        schema: Any = given
    elif hasattr(given, "model_json_schema"):
        schema = _closed(given.model_json_schema())
    elif dataclasses.is_dataclass(given):
        schema = _closed(_of_dataclass(given, field))
    else:
        wanted = "a dict, JSON text, a dataclass, or a class with model_json_schema()"
        raise InvalidRequest(field, f"must be {wanted}, not {given!r}")
    try:
        return json.dumps(schema, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidRequest(field, f"cannot be JSON: {error}") from error


def is_class_with_schema(given: Any) -> bool:
    return hasattr(given, "model_json_schema") or dataclasses.is_dataclass(given)


def _closed(schema: Any) -> Any:
    """Forbids properties without a schema, where the class does not say otherwise."""
    if isinstance(schema, list):
        return [_closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: value if key in ("default", "const", "enum") else _closed(value) for key, value in schema.items()}
    if schema.get("type") == "object" and isinstance(schema.get("properties"), dict):
        closed.setdefault("additionalProperties", False)
    return closed


def _of_dataclass(kind: Any, field: str) -> dict[str, Any]:
    hints = get_type_hints(kind)
    members = [member for member in dataclasses.fields(kind) if member.init]
    is_required = {
        member.name: member.default is dataclasses.MISSING and member.default_factory is dataclasses.MISSING
        for member in members
    }
    return {
        "type": "object",
        "properties": {name: _of_type(hints[name], f"{field}.{name}") for name in is_required},
        "required": [name for name, required in is_required.items() if required],
    }


def _of_type(kind: Any, field: str) -> dict[str, Any]:
    """Returns the schema of the type of a dataclass's field."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return {}
    if kind in _SIMPLE:
        return {"type": _SIMPLE[kind]}
    if origin is Literal:
        return {"enum": list(arguments)}
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return {"enum": [member.value for member in kind]}
    if origin in _UNIONS:
        return {"anyOf": [_of_type(argument, field) for argument in arguments]}
    if origin is list and arguments:
        return {"type": "array", "items": _of_type(arguments[0], field)}
    if origin is dict and arguments and arguments[0] is str:
        return {"type": "object", "additionalProperties": _of_type(arguments[1], field)}
    if dataclasses.is_dataclass(kind):
        return _of_dataclass(kind, field)
    if hasattr(kind, "model_json_schema"):
        raise InvalidRequest(field, "is a class with model_json_schema(): use such a class for the whole schema")
    raise InvalidRequest(field, f"has a type without a JSON schema: {kind!r}")
