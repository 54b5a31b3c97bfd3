"""Names of other APIs, and the arguments of Tandem for them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

_SCHEMA = "grammar.json_schema"
_STREAM = "every answer is streamed: iterate over it, or call its text()"
_RUN = "an argument of run"
_CALLER = "request_id, and the client's token names the caller"
_TEXT = "every answer is text"

OTHERS = {
    "max_tokens": "stop.max_new_tokens",
    "max_completion_tokens": "stop.max_new_tokens",
    "max_output_tokens": "stop.max_new_tokens",
    "min_tokens": "stop.min_new_tokens",
    "stop_sequences": "stop.stop_strings",
    "include_stop_str_in_output": "stop.include_stop",
    "top_logprobs": "return_options.logprobs",
    "return_logprob": "return_options.logprobs",
    "echo": "return_options.prompt_logprobs",
    "return_token_ids": "return_options.token_ids",
    "response_format": _SCHEMA,
    "text_format": _SCHEMA,
    "guided_json": _SCHEMA,
    "guided_regex": "grammar.regex",
    "guided_grammar": "grammar.lark",
    "guided_choice": "grammar.choice",
    "structured_outputs": "grammar",
    "tool_choice": _RUN,
    "function_call": "tool_choice",
    "parallel_tool_calls": _RUN,
    "functions": "tools",
    "input": "messages",
    "instructions": 'a message with the role "system"',
    "chat_template_kwargs": "template_args",
    "reasoning_effort": "template_args.reasoning_effort",
    "enable_thinking": "template_args.enable_thinking",
    "chat_template": "options.template",
    "service_tier": "priority",
    "prompt_cache_key": "cache_salt",
    "stream": _STREAM,
    "stream_options": "answer.totals has the usage",
    "extra_headers": "request_id and the client's token",
    "extra_body": "each field as an argument",
    "metadata": "request_id",
    "max_retries": "the setting retries of the client",
    "user": _CALLER,
    "safety_identifier": _CALLER,
    "include_reasoning": "parse_output",
    "separate_reasoning": "parse_output",
    "parse_output": f"{_RUN}; client.parse_output(text) reads any other output",
    "store": "no answer is stored",
    "modalities": _TEXT,
    "audio": _TEXT,
    "verbosity": "a request in a message, such as: answer in one sentence",
    "prediction": "no prediction: leave it out",
    "web_search_options": "a tool that your program runs: see the agent of the README",
}
"""OpenAI's, vLLM's and Hugging Face's names that differ, each with a path of Tandem or a sentence."""

SETTINGS = {
    "max_retries": "retries",
    "api_key": "token",
    "default_timeout": "timeout",
    "base_url": "address, the first argument",
}
"""OpenAI's names of a client's settings, with Tandem's."""


def hint(name: str, kind: Any, root: Any, arguments: Iterable[str], is_root: bool) -> str:
    """Returns the end of the message about an unknown name: Tandem's name for it, or the nearest one."""
    known = [*(name for name in kind.fields_by_name if name != "conversation"), *(arguments if is_root else ())]
    other = OTHERS.get(name)
    if other is not None and not is_root and other.rpartition(".")[2] in known:
        return f"; did you mean {other.rpartition('.')[2]}?"
    path = other or _path(name, root)
    if path is not None:
        return f"; in Tandem: {spelled(path)}"
    nearest = difflib.get_close_matches(name, known, 1)
    return f"; did you mean {nearest[0]}?" if nearest else f"; the fields are {', '.join(sorted(known))}"


def spelled(path: str) -> str:
    """Returns a path as the argument of a call: `stop={"max_new_tokens": …}`."""
    if " " in path:
        return path
    outer, dot, inner = path.partition(".")
    return f'{outer}={{"{inner}": …}}' if dot else f"{outer}=…"


def _path(name: str, root: Any) -> str | None:
    """Returns the path of a field of this name one level below the request."""
    for outer in root.fields:
        inner = outer.message_type
        if inner is not None and not outer.message_type.GetOptions().map_entry and outer.name != "conversation":
            if name in inner.fields_by_name:
                return f"{outer.name}.{name}"
    return None
