"""Calls as an editor checks them. `test_types.py` runs mypy on this file, which is never executed.

Each line with `type: ignore` has a mistake: mypy fails if it does not find one there.
"""

import json
from dataclasses import dataclass

import tandem
from tandem import (
    AnswerToolCall,
    AsyncTandem,
    ContentPart,
    Message,
    ParsedOutput,
    Part,
    ReasoningPart,
    Stop,
    StrictError,
    Tandem,
    Tool,
    ToolChoice,
)
from tandem.generate.v1 import generate_pb2
from tandem.render.v1 import render_pb2
from tandem.task.v1 import task_pb2

client = Tandem("127.0.0.1:50051", timeout=30, strict=True, retries=2)


@dataclass
class Person:
    name: str
    age: int


def good() -> None:
    messages: list[Message] = [{"role": "system", "content": "Be brief."}]
    messages.append({"role": "user", "content": [tandem.image("cat.png"), {"type": "text", "text": "Hi"}]})
    messages.append({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]})
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}}
    tools: list[Tool] = [{"type": "function", "function": {"name": "weather", "parameters": parameters}}]
    stop: Stop = {"max_new_tokens": 20, "stop_strings": ["\n"], "stop_token_ids": [1], "ignore_eos": True}
    answer = client.run(
        messages,
        tools=tools,
        documents=[{"text": "d"}, "{}"],
        template_args={"enable_thinking": False},
        model="m",
        options={"control_tokens": "literal", "normalization": "none", "capabilities": {"capabilities": []}},
        sampling={"temperature": 0, "seed": 1, "logit_bias": {5: 1.0}},
        stop=stop,
        return_options={"logprobs": 2, "bytes": True},
        grammar={"json_schema": {"type": "object"}},
        output_spec={"special_token_classes": [{"token_ids": [1], "action": "pass"}]},
        priority=1,
        timeout=2.5,
        request_id="mine",
    )
    for text in answer:
        print(text.upper())
    for event in answer.events():
        rendered: task_pb2.Rendered = event.rendered
        print(rendered)
    if answer.totals:
        tokens: int = answer.totals.usage.prompt_tokens
        print(tokens, answer.totals.timings.decode_ms, answer.totals.seed)
    messages.append(answer.message)
    messages.append({"role": "tool", "tool_call_id": "1", "name": "weather", "content": "sunny"})
    call = {"name": "weather", "arguments": '{"city": "Paris"}'}
    messages.append({"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": {"name": "a"}}]})
    print(call, answer.finish_reason, answer.warnings[0].path)
    parsed = client.run(messages, parse_output=True)
    for part in parsed.parts():
        if isinstance(part, (ReasoningPart, ContentPart)):
            print(part.text.upper())
        else:
            print(part.index + 1, part.id, part.name, part.arguments.upper())
    client.run(messages, tool_choice="required", parallel_tool_calls=False)
    client.run(messages, tool_choice={"type": "function", "function": {"name": "weather"}})
    choice: ToolChoice = "none"
    client.run(messages, tool_choice=choice)
    client.run(messages, tool_choice=task_pb2.ToolChoice(name="weather"))
    called: list[AnswerToolCall] = parsed.tool_calls
    for tool_call in called:
        print(tool_call["id"].upper(), json.loads(tool_call["function"]["arguments"]))
    messages.append(parsed.message)
    messages.append({"role": "assistant", "content": parsed.content, "tool_calls": called})
    print(parsed.reasoning.upper(), parsed.parse_warnings[0].offset)
    read: ParsedOutput = client.parse_output("text", prompt="p", tools=tools, rules="text", model="m", timeout=1)
    client.parse_output([1, 2], request_id="mine")
    messages.append(read.message)
    print(read.tool_calls[0]["function"]["name"], read.content, read.reasoning, read.rules, read.warnings[0].text)
    client.run(messages, grammar=Person)
    client.run(messages, grammar={"json_schema": Person, "whitespace": "none", "after_reasoning": True})
    client.run(messages, grammar={"json_schema": Person})
    client.run(messages, grammar={"choice": {"values": ["yes", "no"]}}, sampling=generate_pb2.Sampling(n=1))
    client.run(messages, options=render_pb2.RenderOptions(adapter="plain"))
    rendered_again = client.render(messages, return_token_ids=True)
    print(client.generate(rendered_again, sampling={"n": 2}).finishes[1].reason)
    client.generate([1, 2, 3], media=[{"kind": "image", "url": "https://localhost/a.png", "offset": 0}])
    client.batch_render([{"messages": messages, "model": "m"}])
    client.tokenize("text", control_tokens="literal")
    client.detokenize([1], skip_special_tokens=True)


async def good_async(other: AsyncTandem) -> None:
    try:
        async for text in other.run([{"role": "user", "content": "Hi"}], stop={"max_new_tokens": 2}):
            print(text.upper())
    except StrictError as error:
        print(error.warnings, error.field)
    part: Part
    async for part in other.run([], parse_output=True).parts():
        print(part)
    read: ParsedOutput = await other.parse_output([1])
    print(read.tool_calls[0]["function"]["arguments"].upper())
    async for part in other.run([], tool_choice="required", parse_output=True).parts():
        print(part)
    async for part in other.run([], parse_output="yes").parts():  # type: ignore
        print(part.text)  # type: ignore
    print(other.parse_output([1]).message)  # type: ignore
    async for delta in other.run([], stop={"max_new": 2}).deltas():  # type: ignore
        print(delta.text)


def mistakes() -> None:
    user: list[Message] = [{"role": "user", "content": "Hi"}]
    client.run(user, max_tokens=2)  # type: ignore
    client.run(user, temperature=0)  # type: ignore
    client.run(user, sampling={"temperture": 1})  # type: ignore
    client.run(user, sampling={"temperature": "hot"})  # type: ignore
    client.run(user, sampling={"logit_bias": {"a": 1}})  # type: ignore
    client.run(user, stop={"max_new_tokens": "x"})  # type: ignore
    client.run(user, stop={"stop_strings": 1})  # type: ignore
    client.run(user, stop={"stop_strings": "abc"})  # type: ignore
    client.run(user, grammar={"choice": {"values": "yes"}})  # type: ignore
    client.run(user, stop=["\n"])  # type: ignore
    client.run(user, return_options={"logprob": 2})  # type: ignore
    client.run(user, grammar={"foo": 1})  # type: ignore
    client.run(user, grammar={"regex": 1})  # type: ignore
    client.run(user, grammar={"regex": "a", "whitespace": "many"})  # type: ignore
    client.run(user, grammar={"choice": ["yes", "no"]})  # type: ignore
    client.run(user, options={"control_tokens": "lit"})  # type: ignore
    client.run(user, options={"capabilities": {"capabilities": ["x"]}})  # type: ignore
    client.run(user, output_spec={"special_token_classes": [{"action": "x"}]})  # type: ignore
    client.run(user, output_spec={"reasoning": {"start": []}})  # type: ignore
    client.run(user, tools=[{"type": "function", "function": {"nam": "a"}}])  # type: ignore
    client.run([{"role": "user", "contnet": "Hi"}])  # type: ignore
    client.run([{"role": "user", "content": [{"type": "text", "txt": "Hi"}]}])  # type: ignore
    client.run(user, priority="high")  # type: ignore
    client.run(user, timeout="1s")  # type: ignore
    client.tokenize("text", control_tokens="text")  # type: ignore
    client.generate("text", resume={"tokens": 1})  # type: ignore
    client.batch_render([{"mesages": user}])  # type: ignore
    client.run(user, parse_output="yes")  # type: ignore
    client.run(user, parse_outputs=True)  # type: ignore
    client.generate("text", parse_output=True)  # type: ignore
    client.run(user, tool_choice="always")  # type: ignore
    client.run(user, tool_choice={"name": "weather"})  # type: ignore
    client.run(user, tool_choice={"type": "function", "function": {"nam": "weather"}})  # type: ignore
    client.run(user, tool_choice={"type": "function", "function": {"name": "a"}, "mode": 1})  # type: ignore
    client.run(user, parallel_tool_calls="no")  # type: ignore
    client.generate("text", tool_choice="required")  # type: ignore
    client.parse_output({"text": "a"})  # type: ignore
    client.parse_output("text", rule="text")  # type: ignore
    client.parse_output("text", tools=[{"type": "function", "function": {"nam": "a"}}])  # type: ignore
    print(client.parse_output("text").calls)  # type: ignore
    print(client.run(user).tool_calls["id"])  # type: ignore
    print(client.run(user).tool_calls[0]["name"])  # type: ignore
    for part in client.run(user).parts():
        print(part.text)  # type: ignore
    client.run(user).content = ""  # type: ignore
    print(client.run(user).totals.usage)  # type: ignore
    print(client.run(user).finish)  # type: ignore
    Tandem("127.0.0.1:50051", strikt=True)  # type: ignore
