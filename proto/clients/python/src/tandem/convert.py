"""Converts dicts to messages of the contract, and names the field of a wrong value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from typing import Any, TypeVar

from google.protobuf.descriptor import FieldDescriptor

from tandem import names
from tandem.errors import InvalidRequest
from tandem.generate.v1 import generate_pb2
from tandem.schema import is_class_with_schema, schema_text
from tandem.task.v1 import task_pb2

M = TypeVar("M")

_WHOLE = {
    FieldDescriptor.TYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.TYPE_UINT64: (0, 2**64 - 1),
    FieldDescriptor.TYPE_INT64: (-(2**63), 2**63 - 1),
}
_FRACTIONS = (FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE)


def message(kind: type[M], given: Mapping[str, Any], arguments: Iterable[str] = ()) -> M:
    """Makes the request of a call. `arguments` are the names that the call has besides the request's fields."""
    request: M = _Converter(kind, tuple(arguments)).message(kind, given, "")
    return request


class _Converter:
    """Converts the values of one request."""

    def __init__(self, root: Any, arguments: tuple[str, ...]) -> None:
        self.root, self.arguments = root.DESCRIPTOR, arguments

    def message(self, kind: Any, given: Any, field: str) -> Any:
        if isinstance(given, kind):
            return given
        if kind is generate_pb2.Grammar:
            given = _grammar(given, field)
        if kind is task_pb2.ToolChoice:
            given = _tool_choice(given, field)
        if not isinstance(given, Mapping):
            raise InvalidRequest(field, f"must be a dict or {kind.DESCRIPTOR.name}, {_found(given)}{_remark(kind)}")
        result = kind()
        set_oneofs: dict[str, str] = {}
        for name, value in given.items():
            place = f"{field}.{name}" if field else str(name)
            descriptor = kind.DESCRIPTOR.fields_by_name.get(name)
            if descriptor is None:
                raise InvalidRequest(place, f"{kind.DESCRIPTOR.name} has no such field{self.hint(name, kind, field)}")
            if value is None:
                continue
            oneof = descriptor.containing_oneof
            if oneof is not None and set_oneofs.setdefault(oneof.name, name) != name:
                raise InvalidRequest(place, f"cannot be set beside {set_oneofs[oneof.name]}")
            self.set(result, descriptor, value, place)
        return result

    def hint(self, name: Any, kind: Any, field: str) -> str:
        if kind is generate_pb2.Grammar and name in ("type", "properties", "anyOf", "$ref", "schema"):
            return '; in Tandem: grammar={"json_schema": schema}'
        return names.hint(str(name), kind.DESCRIPTOR, self.root, self.arguments, not field)

    def set(self, result: Any, descriptor: Any, value: Any, field: str) -> None:
        name, inner = descriptor.name, descriptor.message_type
        if inner is not None and inner.GetOptions().map_entry:
            self.set_map(getattr(result, name), inner, value, field)
        elif descriptor.is_repeated:
            target = getattr(result, name)
            for i, item in enumerate(_items(value, field)):
                target.append(self.single(descriptor, item, f"{field}[{i}]"))
        elif inner is not None:
            target = getattr(result, name)
            target.CopyFrom(self.message(type(target), value, field))
            target.SetInParent()
        else:
            setattr(result, name, _scalar(descriptor, value, field))

    def single(self, descriptor: Any, value: Any, field: str) -> Any:
        if descriptor.message_type is None:
            return _scalar(descriptor, value, field)
        return self.message(descriptor.message_type._concrete_class, value, field)

    def set_map(self, target: Any, entry: Any, value: Any, field: str) -> None:
        if not isinstance(value, Mapping):
            raise InvalidRequest(field, f"must be a dict, {_found(value)}")
        kinds = entry.fields_by_name
        for key, item in value.items():
            place = f"{field}[{key}]"
            target[_scalar(kinds["key"], key, place)] = _scalar(kinds["value"], item, place)


def _items(value: Any, field: str) -> Iterable[Any]:
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise InvalidRequest(field, f"must be a list, {_found(value)}")
    return value


def _grammar(given: Any, field: str) -> Any:
    """Returns the fields of a grammar, with a JSON schema as text."""
    if is_class_with_schema(given):
        return {"json_schema": schema_text(given, field)}
    if isinstance(given, Mapping) and given.get("json_schema") is not None and "type" not in given:
        return {**given, "json_schema": schema_text(given["json_schema"], f"{field}.json_schema")}
    return given


def _tool_choice(given: Any, field: str) -> Any:
    """Returns the fields of a choice in the shape of OpenAI."""
    modes = labels(task_pb2.ToolChoiceMode.DESCRIPTOR)
    choices = ", ".join(f'"{mode}"' for mode in modes) + ' or {"type": "function", "function": {"name": "…"}}'
    if isinstance(given, str) and given in modes:
        return {"mode": given}
    function = given.get("function") if isinstance(given, Mapping) and given.get("type") == "function" else None
    if isinstance(function, Mapping) and isinstance(function.get("name"), str):
        others = [*(set(given) - {"type", "function"}), *(f"function.{key}" for key in set(function) - {"name"})]
        if not others:
            return {"name": function["name"]}
        raise InvalidRequest(f"{field}.{min(others)}", f"ToolChoice has no such key; it must be {choices}")
    raise InvalidRequest(field, f"must be {choices}, not {given!r}")


def _remark(kind: Any) -> str:
    if kind is generate_pb2.Stop:
        return '; in Tandem: stop={"stop_strings": ["…"]}'
    if kind is generate_pb2.Grammar:
        return '; in Tandem: grammar={"json_schema": schema}, a dataclass, or a class with model_json_schema()'
    return '; in Tandem: grammar={"choice": {"values": ["…"]}}' if kind is generate_pb2.Choice else ""


def _scalar(descriptor: Any, value: Any, field: str) -> Any:
    kind = descriptor.type
    if kind == FieldDescriptor.TYPE_ENUM:
        return _number(descriptor.enum_type, value, field)
    if kind in _WHOLE:
        lowest, highest = _WHOLE[kind]
        if isinstance(value, bool) or not isinstance(value, Integral):
            raise InvalidRequest(field, f"must be an integer, {_found(value)}")
        number = int(value)
        if not lowest <= number <= highest:
            raise InvalidRequest(field, f"must be an integer from {lowest} to {highest}, not {number}")
        return number
    if kind in _FRACTIONS:
        if isinstance(value, bool) or not isinstance(value, Real):
            raise InvalidRequest(field, f"must be a number, {_found(value)}")
        return float(value)
    wanted, name = {
        FieldDescriptor.TYPE_BOOL: (bool, "True or False"),
        FieldDescriptor.TYPE_STRING: (str, "text"),
        FieldDescriptor.TYPE_BYTES: (bytes, "bytes"),
    }[kind]
    if not isinstance(value, wanted):
        raise InvalidRequest(field, f"must be {name}, {_found(value)}")
    return value


def _number(enum: Any, value: Any, field: str) -> int:
    """Returns the number of an enum's label, such as `"literal"`. Numbers and full names pass too."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    short = labels(enum)
    if isinstance(value, str):
        name = value.lower().replace("-", "_")
        number = short.get(name, short.get(name.removeprefix(_prefix(enum).lower())))
        if number is not None:
            return number
    choices = " or ".join(f'"{label}"' for label in short)
    raise InvalidRequest(field, f"must be {choices}, not {value!r}")


def labels(enum: Any) -> dict[str, int]:
    """Returns the labels of an enum in lower case, without the unspecified one, and their numbers."""
    prefix = _prefix(enum)
    return {value.name.removeprefix(prefix).lower(): value.number for value in enum.values if value.number}


def _prefix(enum: Any) -> str:
    name: str = enum.values_by_number[0].name
    return name[: -len("UNSPECIFIED")]


def _found(value: Any) -> str:
    return f"not {type(value).__name__}"
