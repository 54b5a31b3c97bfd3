"""The choice of the tools that an answer calls, with both clients."""

import json
import unittest

import services

from tandem import AsyncTandem, Tandem, TandemError, ToolCallPart

USER = [{"role": "user", "content": "Give the weather in Paris, and add 2 and 3."}]
PARAMETERS = {
    "weather": {"city": {"enum": ["Paris", "Rome"]}},
    "add": {"a": {"type": "integer", "minimum": 0, "maximum": 9}, "b": {"type": "integer", "minimum": 0, "maximum": 9}},
}


def tool(name):
    properties = PARAMETERS[name]
    schema = {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}
    return {"type": "function", "function": {"name": name, "parameters": schema}}


def choice(name):
    return {"type": "function", "function": {"name": name}}


def fields(**arguments):
    """Returns arguments of a short answer with tools."""
    greedy = {"sampling": {"temperature": 0}, "stop": {"max_new_tokens": 60}}
    return {"tools": [tool(name) for name in PARAMETERS], "parse_output": True, **greedy, **arguments}


def read_tools(answer):
    """Returns the names of the tools that an answer calls, whose arguments follow their schemas."""
    for call in answer.tool_calls:
        arguments = json.loads(call["function"]["arguments"])
        if call["function"]["name"] == "weather":
            assert arguments in [{"city": "Paris"}, {"city": "Rome"}], arguments
        else:
            assert set(arguments) == {"a", "b"} and set(arguments.values()) <= set(range(10)), arguments
    return [call["function"]["name"] for call in answer.tool_calls]


class AChoice(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.client = Tandem(services.with_tools())
        cls.addClassCleanup(cls.client.close)

    def tools(self, **arguments):
        answer = self.client.run(USER, **fields(**arguments))
        answer.text()
        return read_tools(answer)

    def test_of_required_calls_a_tool(self):
        called = self.tools(tool_choice="required")
        self.assertTrue(called)
        self.assertLessEqual(set(called), set(PARAMETERS))

    def test_of_required_has_no_content(self):
        answer = self.client.run(USER, **fields(tool_choice="required", parallel_tool_calls=False))
        (call,) = answer.parts()
        self.assertIsInstance(call, ToolCallPart)
        self.assertEqual((answer.content, answer.message["content"], answer.finish_reason), ("", None, "STOP"))

    def test_of_a_name_calls_this_tool_once(self):
        for name in PARAMETERS:
            self.assertEqual(self.tools(tool_choice=choice(name)), [name])

    def test_of_none_calls_no_tool(self):
        self.assertEqual(self.tools(tool_choice="none"), [])

    def test_of_auto_leaves_it_to_the_model(self):
        answers = []
        for arguments in ({}, {"tool_choice": "auto"}):
            answer = self.client.run(USER, **fields(**arguments))
            answers.append(answer.text())
        self.assertEqual(*answers)

    def test_without_parallel_calls_calls_one_tool_at_most(self):
        self.assertEqual(len(self.tools(tool_choice="required", parallel_tool_calls=False)), 1)
        self.assertLessEqual(len(self.tools(parallel_tool_calls=False)), 1)

    def test_that_cannot_be_kept_is_a_typed_error(self):
        cases = [
            ({"tool_choice": choice("music")}, "INVALID_REQUEST", "tool_choice.name"),
            ({"tool_choice": "required", "tools": []}, "INVALID_REQUEST", "tool_choice"),
        ]
        for arguments, reason, field in cases:
            with self.subTest(reason=reason), self.assertRaises(TandemError) as caught:
                self.tools(**arguments)
            self.assertEqual((caught.exception.reason, caught.exception.field), (reason, field))
        with Tandem(services.short_rendering()) as client, self.assertRaises(TandemError) as caught:
            client.run(USER, **fields(tool_choice="required")).text()
        self.assertEqual(
            (caught.exception.reason, caught.exception.field), ("TOOL_CHOICE_NOT_SUPPORTED", "tool_choice")
        )


class AnAsyncChoice(unittest.IsolatedAsyncioTestCase):
    async def test_calls_the_chosen_tools(self):
        async with AsyncTandem(services.with_tools()) as client:
            for chosen, expected in ((choice("add"), ["add"]), ("none", [])):
                answer = client.run(USER, **fields(tool_choice=chosen))
                await answer.text()
                self.assertEqual(read_tools(answer), expected)
            answer = client.run(USER, **fields(tool_choice="required", parallel_tool_calls=False))
            await answer.text()
            self.assertEqual(len(read_tools(answer)), 1)


if __name__ == "__main__":
    unittest.main()
