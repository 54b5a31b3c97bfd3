"""Converts a conversation in the shape of OpenAI and Hugging Face to the contract's messages.

The chat template gets every key and value as the caller gives it. A key for which the contract has no
field is sent in the message's `extra_json`, or as part of a block's JSON, or is an error.
"""

from __future__ import annotations

import base64
import json
import mimetypes
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tandem.chat.v1 import chat_pb2 as chat
from tandem.errors import InvalidRequest
from tandem.fields import Json, MediaBlock, Message, Messages, Tool

_MEDIA = ("image", "audio", "video")
_TEXTS = ("reasoning_content", "tool_call_id", "name")


def conversation(
    messages: Messages,
    tools: Iterable[Tool] | None = None,
    documents: Iterable[Json] | None = None,
    template_args: Json | None = None,
) -> chat.Conversation:
    """Returns the contract's conversation.

    Raises InvalidRequest for a value that has no place in it.
    """
    result = chat.Conversation()
    if isinstance(messages, chat.Conversation):
        result.CopyFrom(messages)
    else:
        result.messages.extend(
            _message(message, f"messages[{i}]") for i, message in enumerate(_listed(messages, "messages"))
        )
    result.tools.extend(converted_tools(tools))
    for i, document in enumerate(_listed(documents or (), "documents")):
        result.documents.append(chat.Document(document_json=_object(document, f"documents[{i}]")))
    if template_args is not None:
        result.template_args_json = _object(template_args, "template_args")
    return result


def converted_tools(tools: Iterable[Tool] | None) -> list[chat.Tool]:
    """Returns the contract's tools."""
    listed = enumerate(_listed(tools or (), "tools"))
    return [chat.Tool(tool_json=_object(tool, f"tools[{i}]")) for i, tool in listed]


def image(source: str | os.PathLike[str] | bytes, mime_type: str | None = None) -> MediaBlock:
    """Returns the block of an image: a file's path, or the bytes of an encoded image."""
    if not isinstance(source, bytes):
        mime_type = mime_type or mimetypes.guess_type(os.fspath(source))[0]
        source = Path(source).read_bytes()
    block: MediaBlock = {"type": "image", "data": source}
    if mime_type:
        block["mime_type"] = mime_type
    return block


def _message(given: Message, field: str) -> chat.ChatMessage:
    if isinstance(given, chat.ChatMessage):
        return given
    try:
        return _converted(given, field)
    except InvalidRequest:
        raise
    except (TypeError, ValueError) as error:  # protobuf's, for a value of another type than its field's
        raise InvalidRequest(field, str(error)) from error


def _converted(given: Any, field: str) -> chat.ChatMessage:
    message, extra = chat.ChatMessage(), {}
    for key, value in _checked(given, Mapping, field, "a dict with a role and content").items():
        if key == "role":
            message.role = _checked(value, str, f"{field}.role", "text")
        elif key == "content":
            _set_content(message, value, f"{field}.content")
        elif key == "tool_calls" and value:
            calls = enumerate(_checked(value, (list, tuple), f"{field}.tool_calls", "a list"))
            message.tool_calls.extend(_tool_call(call, f"{field}.tool_calls[{i}]") for i, call in calls)
        elif key in _TEXTS and isinstance(value, str):
            setattr(message, key, value)
        else:
            extra[key] = value
    if extra:
        message.extra_json = _object(extra, field)
    return message


def _set_content(holder: chat.ChatMessage | chat.ToolResultBlock, value: Any, field: str) -> None:
    if isinstance(value, str):
        holder.text = value
    elif value is not None:
        blocks = enumerate(_checked(value, (list, tuple), field, "text, None or a list of blocks"))
        holder.blocks.SetInParent()
        holder.blocks.blocks.extend(_block(block, f"{field}[{i}]") for i, block in blocks)


def _block(given: Any, field: str) -> chat.Block:
    if isinstance(given, chat.Block):
        return given
    if isinstance(given, str):
        return chat.Block(other_json=given)
    keys, kind = set(_checked(given, Mapping, field, "a dict with a type, or its JSON text")), given.get("type")
    if kind == "text" and keys == {"type", "text"} and isinstance(given["text"], str):
        return chat.Block(text=chat.TextBlock(text=given["text"]))
    if kind in _MEDIA and isinstance(given.get("data"), bytes):
        return _media(given, field)
    if kind == "tool_use" and isinstance(given.get("input"), str):
        _no_other_keys(given, ("type", "id", "name", "input"), field)
        id, name = _text(given, "id", field), _text(given, "name", field)
        use = chat.ToolUseBlock(id=id, name=name, input_json=given["input"])
        return chat.Block(tool_use=use)
    if kind == "tool_result" and keys <= {"type", "tool_use_id", "content", "is_error"}:
        is_error = given.get("is_error")
        if is_error is not None:
            _checked(is_error, bool, f"{field}.is_error", "True or False")
        result = chat.ToolResultBlock(tool_use_id=_text(given, "tool_use_id", field), is_error=is_error)
        _set_content(result, given.get("content"), f"{field}.content")
        return chat.Block(tool_result=result)
    return chat.Block(other_json=_object(given, field))


def _media(given: Any, field: str) -> chat.Block:
    """Returns the block of a media file's bytes. Only JSON has a place for further keys."""
    if set(given) <= {"type", "data", "mime_type"}:
        media: Any = chat.MediaBlock(data=given["data"], mime_type=_text(given, "mime_type", field))
        return chat.Block(**{given["type"]: media})
    text = {"base64" if key == "data" else key: value for key, value in given.items()}
    return chat.Block(other_json=_object({**text, "base64": base64.b64encode(given["data"]).decode()}, field))


def _tool_call(given: Any, field: str) -> chat.ToolCall:
    if isinstance(given, chat.ToolCall):
        return given
    shape = 'a dict {"id", "type": "function", "function": {"name", "arguments"}}'
    function = _checked(_checked(given, Mapping, field, shape).get("function"), Mapping, f"{field}.function", "a dict")
    _no_other_keys(given, ("id", "type", "function"), field)
    _no_other_keys(function, ("name", "arguments"), f"{field}.function")
    if given.get("type", "function") != "function":
        raise InvalidRequest(f"{field}.type", 'must be "function"')
    arguments = _object(function.get("arguments", "{}"), f"{field}.function.arguments")
    name = _checked(function.get("name"), str, f"{field}.function.name", "text")
    return chat.ToolCall(id=_text(given, "id", field), name=name, arguments_json=arguments)


def _text(given: Mapping[str, Any], key: str, field: str) -> str | None:
    value: str | None = given.get(key)
    return value if value is None else str(_checked(value, str, f"{field}.{key}", "text"))


def _listed(values: Any, field: str) -> Iterable[Any]:
    """Returns the items of a list, which a dict or a text is not."""
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        raise InvalidRequest(field, f"must be a list, not {type(values).__name__}")
    return values


def _object(value: Json, field: str) -> str:
    """Returns the JSON text of an object. Text is returned unchanged; the service parses it."""
    if isinstance(value, str):
        return value
    _checked(value, Mapping, field, "a dict, or JSON text")
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidRequest(field, f"cannot be JSON: {error}") from error


def _checked(value: Any, types: Any, field: str, wanted: str) -> Any:
    if not isinstance(value, types):
        raise InvalidRequest(field, f"must be {wanted}, not {type(value).__name__}")
    return value


def _no_other_keys(given: Mapping[str, Any], known: tuple[str, ...], field: str) -> None:
    for key in given:
        if key not in known:
            raise InvalidRequest(field, f"the contract has no place for the key {key!r}")
