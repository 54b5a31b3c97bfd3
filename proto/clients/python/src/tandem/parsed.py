"""The parts of an answer: reasoning, content and tool calls."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Union

from tandem.chat.v1 import chat_pb2
from tandem.fields import AnswerToolCall, MessageDict
from tandem.render.v1 import parse_pb2


@dataclass(frozen=True)
class ReasoningPart:
    """More of the reasoning."""

    text: str


@dataclass(frozen=True)
class ContentPart:
    """More of the content."""

    text: str


@dataclass(frozen=True)
class ToolCallPart:
    """A tool call, or more of it."""

    index: int
    """The index of the call in the message, counted from 0."""
    id: str
    """The id, in the first part of the call."""
    name: str
    """The name of the tool, in the first part of the call."""
    arguments: str
    """More of the arguments as JSON text."""


Part = Union[ReasoningPart, ContentPart, ToolCallPart]
"""A part of an answer. The parts of one kind together are the answer's."""


@dataclass(frozen=True)
class ParsedOutput:
    """An answer with its parts apart."""

    message: MessageDict
    """The assistant's message for the next turn."""
    content: str
    """The content, without white space around it."""
    reasoning: str
    """The reasoning, without white space around it."""
    tool_calls: list[AnswerToolCall]
    """The calls, in order."""
    warnings: list[parse_pb2.ParseWarning]
    """The parts that the rules could not read. Their text is content."""
    rules: str = ""
    """The name of the rules that read the answer. Empty for an answer of `run`."""


def part(delta: parse_pb2.ParsedDelta) -> Part | None:
    """Returns the part of a delta, or None for a kind of a later version."""
    kind = delta.WhichOneof("part")
    if kind == "reasoning":
        return ReasoningPart(delta.reasoning)
    if kind == "content":
        return ContentPart(delta.content)
    call = delta.tool_call
    return ToolCallPart(call.index, call.id, call.name, call.arguments_json) if kind == "tool_call" else None


def parts(event: Any) -> Iterable[Part]:
    """Returns the parts of an event of RunTask."""
    return filter(None, map(part, event.parsed.deltas))  # empty for any other event


def parsed_output(output: parse_pb2.ParsedOutput, rules: str = "") -> ParsedOutput:
    """Returns an answer as a dict and its parts."""
    message = output.message
    calls = [_call(call) for call in message.tool_calls]
    has_content = bool(message.text) or not calls
    result: MessageDict = {"role": "assistant", "content": message.text if has_content else None}
    if message.reasoning_content:
        result["reasoning_content"] = message.reasoning_content
    if calls:
        result["tool_calls"] = calls
    extra: Any = json.loads(message.extra_json or "{}")
    result.update(extra)  # keys of the model, none of those above
    return ParsedOutput(result, message.text, message.reasoning_content, calls, list(output.warnings), rules)


def output_so_far(given: Iterable[Part]) -> parse_pb2.ParsedOutput:
    """Returns the answer of the parts that have arrived. A call whose arguments are not complete is left out."""
    reasoning, content, calls = "", "", dict[int, chat_pb2.ToolCall]()
    for item in given:
        if isinstance(item, ReasoningPart):
            reasoning += item.text
        elif isinstance(item, ContentPart):
            content += item.text
        else:
            call = calls.setdefault(item.index, chat_pb2.ToolCall())
            call.id, call.name = call.id or item.id, call.name or item.name
            call.arguments_json += item.arguments
    complete = [call for _, call in sorted(calls.items()) if _is_json(call.arguments_json)]
    message = chat_pb2.ChatMessage(reasoning_content=reasoning.strip(), text=content.strip(), tool_calls=complete)
    return parse_pb2.ParsedOutput(message=message)


def _call(call: chat_pb2.ToolCall) -> AnswerToolCall:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments_json}}


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
