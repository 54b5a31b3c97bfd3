"""Answers with reasoning, content and tool calls apart, whole and streamed, with both clients."""

import json
import re
import unittest

import services

from tandem import (
    AsyncTandem,
    ContentPart,
    InvalidRequest,
    ReasoningPart,
    StrictError,
    Tandem,
    TandemError,
    ToolCallPart,
)
from tandem.chat.v1 import chat_pb2
from tandem.parsed import output_so_far, parsed_output
from tandem.render.v1 import parse_pb2
from tandem.task.v1 import task_pb2

USER = [{"role": "user", "content": "Hi"}]
TOOLS = [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in ("add", "sub")]
CALLS = [("add", '{"a": 1}'), ("sub", '{"b": "x"}')]
WRITTEN = "\n".join(
    f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>' for name, arguments in CALLS
)
TEXT = f"<think>So be it.</think>Yes.\n{WRITTEN}"
BROKEN = "Yes.<tool_call>\nno JSON\n</tool_call>"


def written(text, **arguments):
    """Returns arguments of a run whose answer is a text."""
    greedy = {"sampling": {"temperature": 0}, "stop": {"max_new_tokens": 200}}
    return {"grammar": {"choice": {"values": [text]}}, "parse_output": True, **greedy, **arguments}


class Checks(unittest.TestCase):
    def check_whole(self, answer):
        calls = answer.tool_calls
        self.assertEqual([(call["function"]["name"], call["function"]["arguments"]) for call in calls], CALLS)
        self.assertEqual({call["type"] for call in calls}, {"function"})
        self.assertEqual(len({call["id"] for call in calls} - {""}), 2)
        self.assertEqual((answer.content, answer.reasoning), ("Yes.", "So be it."))
        expected = {"role": "assistant", "content": "Yes.", "reasoning_content": "So be it.", "tool_calls": calls}
        self.assertEqual(answer.message, expected)

    def check_parts(self, parts, answer):
        texts = {
            kind: "".join(part.text for part in parts if isinstance(part, kind))
            for kind in (ReasoningPart, ContentPart)
        }
        self.assertEqual(texts, {ReasoningPart: "So be it.", ContentPart: "Yes."})
        self.assertGreater(sum(isinstance(part, ContentPart) for part in parts), 1)
        calls = [part for part in parts if isinstance(part, ToolCallPart)]
        self.assertEqual(
            [(call.index, call.name, call.arguments) for call in calls], [(i, *call) for i, call in enumerate(CALLS)]
        )
        self.assertEqual([call.id for call in calls], [call["id"] for call in answer.tool_calls])


class AnAnswer(Checks):
    @classmethod
    def setUpClass(cls):
        cls.client = Tandem(services.thinking())
        cls.addClassCleanup(cls.client.close)

    def run_written(self, text, client=None, **arguments):
        return (client or self.client).run(USER, **written(text, **arguments))

    def test_has_its_parts_apart(self):
        answer = self.run_written(TEXT)
        self.assertEqual("".join(delta.text for delta in answer.deltas()), TEXT)
        self.check_whole(answer)
        self.assertEqual(answer.parse_warnings, [])

    def test_streams_its_parts(self):
        answer = self.run_written(TEXT)
        parts, seen = [], []
        for part in answer.parts():
            parts.append(part)
            seen.append((answer.content, len(answer.tool_calls)))
        self.check_parts(parts, answer)
        self.check_whole(answer)
        self.assertEqual(seen[-1], ("Yes.", 2))
        self.assertNotEqual(seen[0], seen[-1])

    def test_is_the_next_turn_of_its_conversation(self):
        answer = self.run_written(WRITTEN)
        self.assertEqual(answer.text(), WRITTEN)
        self.assertEqual((answer.message["content"], answer.content), (None, ""))
        results = [{"role": "tool", "tool_call_id": call["id"], "content": "3"} for call in answer.tool_calls]
        prompt = self.client.render([*USER, answer.message, *results], tools=TOOLS).prompt.text
        for call in answer.tool_calls:
            self.assertIn(f"<tool_call>{json.dumps(call['id'])}{call['function']['name']}", prompt)
            self.assertIn(f"3 for {call['id']}<|im_end|>", prompt)

    def test_without_calls_has_an_empty_list(self):
        answer = self.run_written("Yes.")
        answer.text()
        self.assertEqual((answer.tool_calls, answer.reasoning), ([], ""))
        self.assertEqual(answer.message, {"role": "assistant", "content": "Yes."})

    def test_keeps_its_parts_after_a_cancellation(self):
        answer = self.run_written(TEXT)
        for part in answer.parts():
            if isinstance(part, ToolCallPart):
                answer.cancel()
        self.assertEqual((answer.finish_reason, len(answer.tool_calls)), ("CANCELLED", 1))
        never = self.run_written(TEXT)
        never.cancel()
        self.assertEqual((never.text(), never.tool_calls), ("", []))

    def test_is_an_error_without_parse_output(self):
        answer = self.run_written(TEXT, parse_output=False)
        answer.text()
        names = ("tool_calls", "reasoning", "content")
        for read in (*(lambda name=name: getattr(answer, name) for name in names), answer.parts):
            with self.assertRaisesRegex(ValueError, re.escape("pass parse_output=True to run")):
                read()
        self.assertEqual((answer.message["role"], answer.parse_warnings), ("assistant", []))

    def test_is_an_error_before_it_is_read(self):
        answer = self.run_written(TEXT)
        with self.assertRaisesRegex(ValueError, "read it first"):
            self.assertIsNone(answer.tool_calls)

    def test_of_a_service_without_parse_output_is_an_error(self):
        answer = self.run_written(TEXT)
        answer._add(task_pb2.RunTaskResponse(finished=task_pb2.TaskFinished()))
        with self.assertRaisesRegex(ValueError, "the service has no parse_output"):
            self.assertIsNone(answer.message)

    def test_has_the_warnings_of_its_parts(self):
        with Tandem(services.thinking()) as client, self.assertLogs("tandem", "WARNING") as logged:
            for _ in range(2):
                answer = self.run_written(BROKEN, client)
                answer.text()
                self.assertEqual((answer.content, answer.tool_calls), (BROKEN, []))
        (warning,) = answer.parse_warnings
        self.assertEqual((warning.code, warning.offset), (parse_pb2.PARSE_WARNING_CODE_MALFORMED, 4))
        self.assertEqual(logged.output, [f"WARNING:tandem:MALFORMED: {warning.text}"])
        with Tandem(services.thinking(), strict=True) as client, self.assertRaises(StrictError) as caught:
            answer = self.run_written(BROKEN, client)
            answer.text()
        self.assertEqual((caught.exception.reason, caught.exception.field), ("MALFORMED", None))
        self.assertEqual(answer.content, BROKEN)

    def test_of_generate_has_no_parts(self):
        with self.assertRaisesRegex(InvalidRequest, "an argument of run"):
            self.client.generate("Hi", parse_output=True)


class ParseOutput(Checks):
    @classmethod
    def setUpClass(cls):
        cls.client = Tandem(services.thinking())
        cls.addClassCleanup(cls.client.close)

    def test_reads_text_or_ids(self):
        ids = self.client.tokenize(TEXT, add_special_tokens=False).token_ids
        for output in (TEXT, list(ids), ids):
            read = self.client.parse_output(output, tools=TOOLS)
            self.check_whole(read)
            self.assertEqual((read.warnings, read.rules), ([], "json-in-tool-call"))

    def test_begins_where_the_prompt_ends(self):
        read = self.client.parse_output("Hm.</think>Yes.", prompt="<|im_start|>assistant\n<think>")
        self.assertEqual((read.reasoning, read.content), ("Hm.", "Yes."))

    def test_reads_by_the_rules_of_a_name(self):
        read = self.client.parse_output(WRITTEN, rules="text")
        self.assertEqual((read.tool_calls, read.content, read.rules), ([], WRITTEN, "text"))

    def test_warns(self):
        with Tandem(services.thinking()) as client, self.assertLogs("tandem", "WARNING") as logged:
            (warning,) = client.parse_output(WRITTEN, tools=TOOLS[:1]).warnings
        self.assertEqual(warning.code, parse_pb2.PARSE_WARNING_CODE_UNKNOWN_TOOL)
        self.assertEqual(len(logged.output), 1)
        with Tandem(services.thinking(), strict=True) as client, self.assertRaises(StrictError) as caught:
            client.parse_output(WRITTEN, tools=TOOLS[:1])
        self.assertEqual((caught.exception.reason, len(caught.exception.warnings)), ("UNKNOWN_TOOL", 1))

    def test_has_typed_errors(self):
        with self.assertRaises(TandemError) as caught:
            self.client.parse_output("a", rules="none")
        self.assertEqual((caught.exception.reason, caught.exception.field), ("INVALID_REQUEST", "rules"))
        cases = [
            ({"output": b"a"}, "tokens.token_ids"),
            ({"output": [-1]}, "tokens.token_ids[0]"),
            ({"output": "a", "tools": [1]}, "tools[0]"),
            ({"output": "a", "prompt": 1}, "prompt"),
            ({"output": "a", "rule": "text"}, "rule"),
        ]
        for arguments, field in cases:
            with self.subTest(field), self.assertRaises(InvalidRequest) as refused:
                self.client.parse_output(**arguments)
            self.assertEqual(refused.exception.field, field)


class AnAsyncAnswer(Checks, unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.client = AsyncTandem(services.thinking())
        self.addAsyncCleanup(self.client.close)

    async def test_has_its_parts_apart(self):
        answer = self.client.run(USER, **written(TEXT))
        self.assertEqual("".join([delta.text async for delta in answer.deltas()]), TEXT)
        self.check_whole(answer)

    async def test_streams_its_parts(self):
        answer = self.client.run(USER, **written(TEXT))
        self.check_parts([part async for part in answer.parts()], answer)
        self.check_whole(answer)

    async def test_is_an_error_without_parse_output(self):
        answer = self.client.run(USER, **written(TEXT, parse_output=False))
        await answer.text()
        with self.assertRaisesRegex(ValueError, re.escape("pass parse_output=True to run")):
            answer.parts()

    async def test_is_read_by_parse_output(self):
        self.check_whole(await self.client.parse_output(TEXT, tools=TOOLS))


class TheParts(unittest.TestCase):
    def test_of_a_call_are_joined_and_a_cut_call_is_left_out(self):
        parts = [
            ContentPart(" a"),
            ToolCallPart(0, "1", "add", '{"a"'),
            ToolCallPart(0, "", "", ": 1}"),
            ToolCallPart(1, "2", "add", '{"a": '),
        ]
        read = parsed_output(output_so_far(parts))
        function = {"name": "add", "arguments": '{"a": 1}'}
        self.assertEqual(read.tool_calls, [{"id": "1", "type": "function", "function": function}])
        self.assertEqual(read.message["content"], "a")

    def test_have_the_further_fields_of_the_model(self):
        message = chat_pb2.ChatMessage(role="assistant", text="a", extra_json='{"mood": "good"}')
        read = parsed_output(parse_pb2.ParsedOutput(message=message))
        self.assertEqual(read.message, {"role": "assistant", "content": "a", "mood": "good"})


if __name__ == "__main__":
    unittest.main()
