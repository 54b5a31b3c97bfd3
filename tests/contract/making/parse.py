"""Vectors of ParseOutput, and of tasks that read their answers."""

import json
from pathlib import Path

from transformers.utils.chat_parsing.response_parser import ResponseParser
from transformers.utils.chat_parsing.response_templates import load_response_template

from .contract import Area, error, invalid
from .generate import GREEDY
from .oracle import Oracle
from .render import talk, user

PARSE = "render.v1.RenderService/ParseOutput"
EXPLAIN = "render.v1.RegistryService/ExplainResolution"
ORACLE = "oracle: transformers' ResponseParser"
SERVERS = Path(__file__).parent.parent / "servers.json"
PROMPT = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
CALL = '{"name": "get_weather", "arguments": {"city": "Paris", "days": 3}}'
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "ok": {"type": "boolean"}}}
TOOLS = [{"function": {"name": "get_weather", "parametersJson": json.dumps(SCHEMA)}}]
WEATHER = {"name": "get_weather", "argumentsJson": '{"city": "Paris", "days": 3}'}

# Calls as the chat templates of the makers write them, by the rules that read them.
WRITTEN = {
    "json-in-tool-call": f"<tool_call>\n{CALL}\n</tool_call>",
    "parameters-in-function": "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n<parameter=days>\n3\n"
    "</parameter>\n</function>\n</tool_call>",
    "arguments-in-tool-call": "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n"
    "<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>",
    "mistral": f"[TOOL_CALLS] [{CALL}]",
    "mistral-named": '[TOOL_CALLS]get_weather[ARGS]{"city": "Paris", "days": 3}',
    "deepseek-v3": '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{"city": "Paris", "days": 3}\n'
    "```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "deepseek-v3.1": '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{"city": "Paris", "days": 3}'
    "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "deepseek-dsml": '<｜DSML｜function_calls>\n<｜DSML｜invoke name="get_weather">\n<｜DSML｜parameter name="city" string="true">Paris'
    '</｜DSML｜parameter>\n<｜DSML｜parameter name="days" string="false">3</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>',
    "gemma-4": '<|tool_call>call:get_weather{city:<|"|>Paris<|"|>,days:3}<tool_call|>',
    "minimax-m2": '<minimax:tool_call>\n<invoke name="get_weather">\n<parameter name="city">Paris</parameter>\n'
    '<parameter name="days">3</parameter>\n</invoke>\n</minimax:tool_call>',
    "granite": f"<|tool_call|>[{CALL}]",
    "phi-4-mini": f"<|tool_call|>[{CALL}]<|/tool_call|>",
    "nemotron-nano": f"<TOOLCALL>[{CALL}]</TOOLCALL>",
    "olmo-3": '<function_calls>get_weather(city="Paris", days=3)</function_calls>',
    "lfm-2": '<|tool_call_start|>[get_weather(city="Paris", days=3)]<|tool_call_end|>',
}


def make(oracle: Oracle) -> list[Area]:
    area = Area("parse_output")
    own(area, oracle)
    for rules, text in WRITTEN.items():
        area.add(
            f"rules/{rules}",
            "render",
            PARSE,
            {"text": f"Let me see.\n{text}", "tools": TOOLS, "rules": rules},
            {"response": {"output": {"message": {"role": "assistant", "text": "Let me see.", "toolCalls": [WEATHER]}}, "rules": rules},
             "absent": ["output.warnings", "output.message.reasoningContent", "output.message.extraJson"]},
            "parse.proto ParsedOutput: the calls, as the maker's chat template writes them",
        )
    fields(area)
    faults(area)
    refused(area, oracle)
    explained(area)
    return [area]


def own(area, oracle):
    """The model's own rules."""
    files = json.loads(SERVERS.read_text(encoding="utf8"))["answers"]["files"]
    template = json.loads(files["own/tokenizer_config.json"])["response_template"]
    answers = {
        "content": "Hello there.",
        "reasoning": "<think>\nShort.\n</think>\n\nHello.",
        "call": f"<think>a</think>b<tool_call>\n{CALL}\n</tool_call>",
        "two_calls": f"<tool_call>{CALL}</tool_call>\n<tool_call>\n{CALL}\n</tool_call>",
        "further_field": "<mood>glad</mood>Hi",
        "end_of_turn": "Hi<|im_end|>",
        "letters_beyond_ascii": "<think>größer</think>漢字 😀",
        "typed_by_the_schema": '<tool_call>{"name": "get_weather", "arguments": {"city": "1", "days": "2", "ok": "true"}}</tool_call>',
    }
    plain = [{"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}}]
    for start in ("", "<think>\n"):
        for name, text in answers.items():
            text = text.removeprefix("<think>") if start else text
            parser = ResponseParser(load_response_template(template), prefix=PROMPT + start, tools=plain)
            parser.feed(text)
            message, _ = parser.finalize()
            request = {"model": "own", "text": text, "prompt": PROMPT + start, "tools": TOOLS}
            case = f"own/{name}" if not start else f"own/reasoning_in_the_prompt/{name}"
            if start and "</think>" not in text:
                continue
            area.add(case, "answers", PARSE, request, expected(message), ORACLE)
    ids = oracle.encode(answers["call"])
    parser = ResponseParser(load_response_template(template), prefix=PROMPT, tools=plain)
    parser.feed(answers["call"])
    request = {"model": "own", "tokens": {"tokenIds": ids}, "prompt": PROMPT, "tools": TOOLS}
    area.add("own/ids", "answers", PARSE, request, expected(parser.finalize()[0]), ORACLE)


def expected(message):
    """Returns the expectation of a message of the oracle."""
    response = {"role": "assistant"}
    absent = ["output.warnings"]
    further = {key: value for key, value in message.items() if key not in ("role", "content", "reasoning_content", "tool_calls")}
    calls = [
        {"name": call["function"]["name"], "argumentsJson": json.dumps(call["function"]["arguments"], ensure_ascii=False)}
        for call in message.get("tool_calls", [])
    ]
    for key, value in (
        ("text", message.get("content")),
        ("reasoningContent", message.get("reasoning_content")),
        ("toolCalls", calls),
        ("extraJson", json.dumps(further) if further else None),
    ):
        if value:
            response[key] = value
        else:
            absent.append(f"output.message.{key}")
    return {"response": {"output": {"message": response}, "rules": "response_template"}, "absent": absent}


def fields(area):
    rule = "parse.proto ParsedOutput.message: the calls, each with an id: the model's"
    text = '<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:4<|tool_call_argument_begin|>{"city": "Paris", "days": 3}' \
        "<|tool_call_end|><|tool_calls_section_end|>"
    message = {"role": "assistant", "toolCalls": [WEATHER | {"id": "functions.get_weather:4"}]}
    response = {"output": {"message": message}, "rules": "kimi-k2"}
    request = {"text": text, "rules": "kimi-k2"}
    area.add("id_of_the_model", "render", PARSE, request, {"response": response, "absent": ["output.message.text"]}, rule)
    area.add(
        "rules_of_the_model",
        "render",
        PARSE,
        {"text": WRITTEN["json-in-tool-call"]},
        {"response": {"output": {"message": {"toolCalls": [WEATHER]}}, "rules": "json-in-tool-call"}},
        "render.proto ParseOutput: the rules are those of the model",
    )
    area.add(
        "empty",
        "render",
        PARSE,
        {"text": ""},
        {"response": {"output": {"message": {"role": "assistant", "text": ""}}}, "absent": ["output.message.toolCalls"]},
        "parse.proto ParsedOutput.message: `text` is unset only if there are tool calls",
    )


def faults(area):
    """Nothing is lost of an answer that the rules cannot read."""
    rule = "parse.proto ParsedOutput.warnings: no text is lost"
    cases = {
        "malformed": ("a <tool_call>{no json}</tool_call> b", "a <tool_call>{no json}</tool_call> b", [], ("MALFORMED", 1)),
        "unclosed_call": ('é<tool_call>{"name": "get_w', 'é<tool_call>{"name": "get_w', [], ("UNCLOSED", 2), ("MALFORMED", 2)),
        "unclosed_but_whole": (f"<tool_call>{CALL}", None, [WEATHER], ("UNCLOSED", 0)),
        "no_name": ('<tool_call>{"arguments": {}}</tool_call>', '<tool_call>{"arguments": {}}</tool_call>', [], ("MALFORMED", 0)),
    }
    for name, (text, content, calls, *warnings) in cases.items():
        message = {"role": "assistant"} | ({"text": content} if content else {}) | ({"toolCalls": calls} if calls else {})
        listed = [{"code": f"PARSE_WARNING_CODE_{code}", "offset": offset} for code, offset in warnings]
        response = {"output": {"message": message, "warnings": listed}}
        area.add(f"faults/{name}", "render", PARSE, {"text": text, "rules": "json-in-tool-call"}, {"response": response}, rule)
    text = WRITTEN["json-in-tool-call"].replace("get_weather", "get_time")
    response = {
        "message": {"toolCalls": [WEATHER | {"name": "get_time"}]},
        "warnings": [{"code": "PARSE_WARNING_CODE_UNKNOWN_TOOL", "text": 'the request declares no tool "get_time"'}],
    }
    request = {"text": text, "rules": "json-in-tool-call", "tools": TOOLS}
    area.add("faults/unknown_tool", "render", PARSE, request, {"response": {"output": response}}, "parse.proto ParseWarningCode")
    text = "<|START_THINKING|>a<|END_THINKING|>b<|START_RESPONSE|>c<|END_RESPONSE|>"
    message = {"role": "assistant", "text": "bc", "reasoningContent": "a"}
    response = {"output": {"message": message, "warnings": [{"code": "PARSE_WARNING_CODE_OUTSIDE", "offset": 35}]}}
    area.add("faults/outside", "render", PARSE, {"text": text, "rules": "command"}, {"response": response}, rule)


def explained(area):
    rule = "registry.proto OutputRules: the rules by which ParseOutput reads answers, and the reason"
    for model, name, reason in (
        ("own", "response_template", "tokenizer_config.json has them"),
        ("tiny", "json-in-tool-call", "the chat template has <tool_call>"),
    ):
        response = {"response": {"outputRules": {"name": name, "reason": reason}}}
        area.add(f"explained/{model}", "answers", EXPLAIN, {"model": model}, response, rule)


def refused(area, oracle):
    rule = "render.proto ParseOutput: INVALID_REQUEST"
    area.add("refused/no_output", "render", PARSE, {}, invalid("output"), rule)
    area.add("refused/rules", "render", PARSE, {"text": "a", "rules": "none"}, invalid("rules"), rule)
    area.add("refused/no_own_rules", "render", PARSE, {"text": "a", "rules": "response_template"}, invalid("rules"), rule)
    request = {"tokens": {"tokenIds": [0, 4294967295]}}
    area.add("refused/id", "render", PARSE, request, invalid("tokens.token_ids[1]"), rule)
    request = {"text": "a", "tools": [{"function": {"name": "f", "parametersJson": "["}}]}
    area.add("refused/tool", "render", PARSE, request, invalid("tools[0].function.parameters_json"), rule)
    area.add(
        "refused/model",
        "render",
        PARSE,
        {"model": "none", "text": "a"},
        error("NOT_FOUND", "MODEL_NOT_FOUND", "model", resource=("model", "none")),
        "render.proto ParseOutput: MODEL_NOT_FOUND",
    )
    request = {"model": "bare", "tokens": {"tokenIds": [1]}}
    because = "render.proto ParseOutput: NO_TOKENIZER for ids"
    area.add("refused/no_tokenizer", "many", PARSE, request, error("FAILED_PRECONDITION", "NO_TOKENIZER"), because)
    request = {"model": "refused", "text": "a"}
    because = "render.proto ParseOutput: RULES_INVALID"
    area.add("refused/rules_of_the_model", "answers", PARSE, request, error("FAILED_PRECONDITION", "RULES_INVALID"), because)
    request = {"model": "refused", "text": "a", "rules": "text"}
    response = {"response": {"output": {"message": {"text": "a"}}, "rules": "text"}}
    area.add("other_rules_for_refused_ones", "answers", PARSE, request, response, "proto/ERRORS.md RULES_INVALID: other rules can be pinned")


def choose(area, oracle):
    """Tasks that choose their tools. The schemas leave one call to write, so that the grammar forces it."""
    run, rule = "task.v1.TaskService/RunTask", "task.proto ToolChoice: "
    schema = '{"type": "object", "properties": {"city": {"const": "Paris"}}, "required": ["city"]}'
    weather = {"function": {"name": "get_weather", "parametersJson": schema}}
    bare = [{"function": {"name": name}} for name in ("get_day", "get_time")]
    # The model of the vectors has random weights: its first token could start reasoning.
    without_reasoning = {**GREEDY, "logitBias": {"298": -100}}

    def request(choice, tools, **more):
        talked = talk(user("hi"), tools=tools)
        return {"conversation": talked, "sampling": without_reasoning, "stop": {"maxNewTokens": 80}, "parseOutput": True, "toolChoice": choice, **more}

    def called(name, arguments):
        message = {"role": "assistant", "toolCalls": [{"name": name, "argumentsJson": arguments}]}
        events = [{"rendered": {}}, {"accepted": {}}, {"delta": {}}, {"finished": {"parsed": {"message": message}}}]
        return {"events": events, "absent": ["events[3].finished.parsed.warnings", "events[3].finished.parsed.message.text"]}

    text = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    prompt = oracle.tokenizer.encode(text, add_special_tokens=False)
    once = {"parallelToolCalls": False}
    required = {"mode": "TOOL_CHOICE_MODE_REQUIRED"}
    expected = called("get_weather", '{"city": "Paris"}')
    area.add("tool_choice/required", "calling", run, request(required, [weather], **once), expected, rule + "at least one tool, with arguments by the schemas; parallel_tool_calls: one at most")
    expected = called("get_time", "{}")
    area.add("tool_choice/name", "calling", run, request({"name": "get_time"}, bare), expected, rule + "name of a tool, which the answer calls once")
    request_of_none = request({"mode": "TOOL_CHOICE_MODE_NONE"}, [weather], stop={"maxNewTokens": 1})
    plain = {"events": [{"rendered": {}}, {"accepted": {}}, {"delta": {}}, {"finished": {"usage": {"promptTokens": len(prompt)}}}], "absent": ["events[3].finished.parsed.message.toolCalls"]}
    area.add("tool_choice/none", "calling", run, request_of_none, plain, rule + "NONE: the prompt has no tools; oracle: the ids of the prompt without tools")
    unset = request({}, [weather], stop={"maxNewTokens": 1})
    area.add("tool_choice/unset", "calling", run, unset, {"events": [{"rendered": {}}, {"accepted": {}}, {"delta": {}}, {"finished": {}}]}, rule + "unset means as the model decides")
    area.add("refused/tool_choice/no_tools", "calling", run, request(required, []), invalid("tool_choice"), rule + "no tools")
    area.add("refused/tool_choice/name", "calling", run, request({"name": "none"}, [weather]), invalid("tool_choice.name"), rule + "a name that no tool has")
    forced = request(required, [weather], grammar={"choice": {"values": ["a"]}})
    area.add("refused/tool_choice/grammar", "calling", run, forced, invalid("grammar"), rule + "cannot be combined with grammar")
    unsupported = error("FAILED_PRECONDITION", "TOOL_CHOICE_NOT_SUPPORTED", "tool_choice")
    area.add("refused/tool_choice/notation", "task", run, request(required, [weather]), unsupported, rule + "a model whose way to write calls gives no grammar")
    unsupported = error("FAILED_PRECONDITION", "TOOL_CHOICE_NOT_SUPPORTED", "parallel_tool_calls")
    area.add("refused/parallel_tool_calls", "task", run, request({}, [weather], **once), unsupported, rule + "field parallel_tool_calls")


def extend(area, oracle):
    """Tasks that read their answers. A grammar forces the text."""
    text = f"Yes.\n<tool_call>\n{CALL}\n</tool_call>"
    request = {
        "conversation": talk(user("hi"), tools=[{"function": {"name": "get_weather"}}]),
        "sampling": GREEDY,
        "stop": {"maxNewTokens": 120},
        "grammar": {"choice": {"values": [text]}},
        "parseOutput": True,
    }
    parsed = {"message": {"role": "assistant", "text": "Yes.", "toolCalls": [WEATHER]}}
    finished = {"message": {"role": "assistant", "text": text}, "parsed": parsed}
    area.add(
        "parse_output",
        "task",
        "task.v1.TaskService/RunTask",
        request,
        {"events": [{"rendered": {}}, {"accepted": {}}, {"delta": {"text": text}}, {"finished": finished}],
         "absent": ["events[3].finished.parsed.warnings", "events[3].finished.message.toolCalls"]},
        "task.proto RunTaskRequest.parse_output: events and the message stay as they are",
    )
