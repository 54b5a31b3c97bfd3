"""Arguments become the fields of a request. A wrong one is named, and so is Tandem's name for it."""

import enum
import json
import re
import unittest
from dataclasses import dataclass, field
from typing import Dict, List, Literal, Optional

from tandem import InvalidRequest, Tandem, TandemError
from tandem.generate.v1 import generate_pb2
from tandem.render.v1 import render_pb2
from tandem.task.v1 import task_pb2

USER = [{"role": "user", "content": "Hi"}]


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Place:
    city: str
    country: Optional[str] = None


@dataclass
class Person:
    name: str
    age: int
    height: float
    colour: Colour
    size: Literal["s", "m"]
    places: List[Place] = field(default_factory=list)
    notes: Dict[str, bool] = field(default_factory=dict)


PLACE = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "country": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
    "required": ["city"],
    "additionalProperties": False,
}
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer"},
        "height": {"type": "number"},
        "colour": {"enum": ["red", "blue"]},
        "size": {"enum": ["s", "m"]},
        "places": {"type": "array", "items": PLACE},
        "notes": {"type": "object", "additionalProperties": {"type": "boolean"}},
    },
    "required": ["name", "age", "height", "colour", "size"],
    "additionalProperties": False,
}


class WithSchema:
    """A class as pydantic makes it."""

    @classmethod
    def model_json_schema(cls):
        open_object = {"type": "object", "properties": {}, "additionalProperties": True}
        return {"type": "object", "properties": {"z": {"type": "string"}, "a": open_object}, "required": ["z"]}


class ARequest(unittest.TestCase):
    def setUp(self):
        self.client = Tandem("127.0.0.1:1")
        self.addCleanup(self.client.close)

    def request(self, **arguments):
        return self.client.run(USER, **arguments)._call.request

    def refusal(self, call=None, **arguments):
        with self.assertRaises(InvalidRequest) as caught:
            (call or self.client.run)(USER, **arguments)
        return caught.exception

    def test_has_the_values_of_its_arguments(self):
        request = self.request(
            model="m",
            priority=2,
            sampling={"temperature": 1, "seed": 2**64 - 1, "logit_bias": {5: 1.5}, "top_k": None},
            stop={"stop_strings": ["a"], "max_new_tokens": 3},
            output_spec={"special_token_classes": [{"token_ids": [1], "action": "pass"}], "reasoning": {}},
            options=render_pb2.RenderOptions(adapter="plain"),
        )
        self.assertEqual((request.model, request.priority, request.options.adapter), ("m", 2, "plain"))
        self.assertEqual((request.sampling.seed, dict(request.sampling.logit_bias)), (2**64 - 1, {5: 1.5}))
        self.assertTrue(request.sampling.HasField("temperature"))
        self.assertFalse(request.sampling.HasField("top_k"))
        self.assertEqual((list(request.stop.stop_strings), request.stop.max_new_tokens), (["a"], 3))
        self.assertEqual(request.output_spec.special_token_classes[0].action, 2)
        self.assertTrue(request.output_spec.HasField("reasoning"))

    def test_takes_the_labels_of_an_enum(self):
        for label in ("literal", "LITERAL", "CONTROL_TOKENS_LITERAL", render_pb2.CONTROL_TOKENS_LITERAL):
            request = self.request(options={"control_tokens": label})
            self.assertEqual(request.options.control_tokens, render_pb2.CONTROL_TOKENS_LITERAL)
        override = {"capabilities": ["supports_tool_calls", "supports_reasoning"]}
        self.assertEqual(
            list(self.request(options={"capabilities": override}).options.capabilities.capabilities), [3, 4]
        )
        error = self.refusal(options={"control_tokens": "lit"})
        self.assertEqual(error.field, "options.control_tokens")
        self.assertIn('must be "tokens" or "literal"', str(error))
        error = self.refusal(lambda _, **given: self.client.tokenize("a", **given), control_tokens="text")
        self.assertEqual((error.field, '"literal"' in str(error)), ("control_tokens", True))

    def test_takes_the_choice_of_a_tool_in_the_shape_of_openai(self):
        modes = {"auto": 1, "none": 2, "required": 3}
        for label, number in modes.items():
            self.assertEqual(self.request(tool_choice=label).tool_choice, task_pb2.ToolChoice(mode=number))
        named = task_pb2.ToolChoice(name="f")
        for choice in ({"type": "function", "function": {"name": "f"}}, named):
            self.assertEqual(self.request(tool_choice=choice).tool_choice, named)
        self.assertFalse(self.request(tool_choice=None).HasField("tool_choice"))

    def test_names_the_accepted_choices_of_a_tool(self):
        choices = '"auto", "none", "required" or {"type": "function", "function": {"name": "…"}}'
        names = (
            {"name": "f"},
            {"mode": "auto"},
            {"type": "function", "name": "f"},
            {"type": "function", "function": "f"},
        )
        for wrong in ("always", "REQUIRED", 3, True, *names, {"type": "function", "function": {"name": 1}}):
            with self.subTest(wrong):
                error = self.refusal(tool_choice=wrong)
                self.assertEqual(str(error), f"tool_choice: must be {choices}, not {wrong!r}")
        error = self.refusal(tool_choice={"type": "function", "function": {"name": "f"}, "tools": []})
        self.assertEqual(str(error), f"tool_choice.tools: ToolChoice has no such key; it must be {choices}")

    def test_has_parallel_tool_calls_only_if_they_are_given(self):
        for value in (True, False):
            request = self.request(parallel_tool_calls=value)
            self.assertEqual((request.HasField("parallel_tool_calls"), request.parallel_tool_calls), (True, value))
        self.assertFalse(self.request().HasField("parallel_tool_calls"))

    def test_of_generate_has_no_choice_of_a_tool(self):
        for name in ("tool_choice", "parallel_tool_calls"):
            error = self.refusal(lambda _, **given: self.client.generate("Hi", **given), **{name: True})
            self.assertEqual((error.field, "an argument of run" in str(error)), (name, True))

    def test_names_the_field_of_a_wrong_value(self):
        cases = [
            ({"sampling": {"temperature": "hot"}}, "sampling.temperature"),
            ({"sampling": {"temperature": True}}, "sampling.temperature"),
            ({"sampling": {"top_k": -1}}, "sampling.top_k"),
            ({"sampling": {"logit_bias": {"a": 1}}}, "sampling.logit_bias[a]"),
            ({"sampling": 1}, "sampling"),
            ({"stop": {"max_new_tokens": "x"}}, "stop.max_new_tokens"),
            ({"stop": {"stop_strings": "a"}}, "stop.stop_strings"),
            ({"stop": {"stop_strings": ["a", 1]}}, "stop.stop_strings[1]"),
            ({"return_options": {"bytes": 1}}, "return_options.bytes"),
            (
                {"output_spec": {"special_token_classes": [{"action": "x"}]}},
                "output_spec.special_token_classes[0].action",
            ),
            ({"priority": 1.5}, "priority"),
            ({"parse_output": "yes"}, "parse_output"),
            ({"parallel_tool_calls": 0}, "parallel_tool_calls"),
            ({"tool_choice": "always"}, "tool_choice"),
            (
                {"tool_choice": {"type": "function", "function": {"name": "f", "strict": True}}},
                "tool_choice.function.strict",
            ),
            ({"tool_choice": {"type": "function", "function": {"name": "f"}, "mode": "auto"}}, "tool_choice.mode"),
            ({"model": b"m"}, "model"),
            ({"grammar": {"regex": "a", "lark": "b"}}, "grammar.lark"),
            ({"grammar": {"json_schema": {"a": {1}}}}, "grammar.json_schema"),
            ({"grammar": {"json_schema": int}}, "grammar.json_schema"),
            ({"timeout": "5"}, "timeout"),
            ({"timeout": -1}, "timeout"),
            ({"timeout": True}, "timeout"),
            ({"request_id": 7}, "request_id"),
        ]
        for arguments, field in cases:
            with self.subTest(field=field):
                self.assertEqual(self.refusal(**arguments).field, field)

    def test_names_the_argument_of_tandem(self):
        cases = {
            "max_tokens": 'stop={"max_new_tokens": …}',
            "max_completion_tokens": 'stop={"max_new_tokens": …}',
            "temperature": 'sampling={"temperature": …}',
            "top_p": 'sampling={"top_p": …}',
            "seed": 'sampling={"seed": …}',
            "n": 'sampling={"n": …}',
            "presence_penalty": 'sampling={"presence_penalty": …}',
            "logit_bias": 'sampling={"logit_bias": …}',
            "logprobs": 'return_options={"logprobs": …}',
            "top_logprobs": 'return_options={"logprobs": …}',
            "response_format": 'grammar={"json_schema": …}',
            "function_call": "tool_choice=…",
            "tool_choices": "did you mean tool_choice?",
            "parallel_tool_call": "did you mean parallel_tool_calls?",
            "separate_reasoning": "parse_output=…",
            "parse_outputs": "did you mean parse_output?",
            "stream": "every answer is streamed",
            "max_new_tokens": 'stop={"max_new_tokens": …}',
            "control_tokens": 'options={"control_tokens": …}',
            "chat_template_kwargs": "template_args=…",
            "service_tier": "priority=…",
            "metadata": "request_id=…",
            "user": "the client's token names the caller",
            "safety_identifier": "the client's token names the caller",
            "store": "in Tandem: no answer is stored",
            "modalities": "every answer is text",
            "audio": "every answer is text",
            "verbosity": "a request in a message",
            "prediction": "no prediction",
            "web_search_options": "a tool that your program runs",
            "extra_body": "each field as an argument",
            "extra_headers": "request_id and the client's token",
            "timout": "did you mean timeout?",
            "max_retries": "the setting retries of the client",
            "tool": "did you mean tools?",
        }
        for name, hint in cases.items():
            with self.subTest(name):
                error = self.refusal(**{name: 1})
                self.assertEqual(error.field, name)
                self.assertIn(hint, str(error))
        self.assertIn('stop={"stop_strings": ["…"]}', str(self.refusal(stop=["\n"])))
        self.assertIn("did you mean max_new_tokens?", str(self.refusal(stop={"max_tokens": 1})))
        self.assertIn("did you mean temperature?", str(self.refusal(sampling={"temperture": 1})))
        openai = {"type": "json_schema", "json_schema": {"schema": {}}}
        for grammar in (openai, {"type": "object"}, "{}"):
            self.assertIn('grammar={"json_schema": schema}', str(self.refusal(grammar=grammar)))
        self.assertIn('{"choice": {"values": ["…"]}}', str(self.refusal(grammar={"choice": ["a"]})))

    def test_names_the_setting_of_a_client(self):
        cases = {"max_retries": "did you mean retries?", "api_key": "did you mean token?", "retry": "the settings are tls"}
        for name, hint in cases.items():
            with self.subTest(name), self.assertRaisesRegex(TypeError, re.escape(hint)):
                Tandem("127.0.0.1:1", **{name: 3})
        with self.assertRaisesRegex(ValueError, "timeout must be seconds"):
            Tandem("127.0.0.1:1", timeout="5")

    def test_takes_a_schema_as_dict_text_or_class(self):
        schema = {"type": "object", "properties": {"z": {}, "a": {}}}
        text = json.dumps(schema)
        for given in (schema, text):
            self.assertEqual(self.request(grammar={"json_schema": given}).grammar.json_schema, text)
        for kind, expected in (
            (Person, PERSON),
            (WithSchema, {**WithSchema.model_json_schema(), "additionalProperties": False}),
        ):
            for grammar in (kind, {"json_schema": kind}):
                made = self.request(grammar=grammar).grammar.json_schema
                self.assertEqual(json.dumps(json.loads(made)), json.dumps(expected))
        message = generate_pb2.Grammar(regex="a")
        self.assertEqual(self.request(grammar=message).grammar, message)

    def test_names_the_field_of_a_class_without_a_schema(self):
        @dataclass
        class Wrong:
            name: str
            when: complex

        error = self.refusal(grammar=Wrong)
        self.assertEqual(error.field, "grammar.when")

    def test_of_a_batch_is_named(self):
        with self.assertRaises(InvalidRequest) as caught:
            self.client.batch_render([{"messages": USER}, {"messages": USER, "options": {"adaptor": "a"}}])
        self.assertEqual(caught.exception.field, "requests[1].options.adaptor")

    def test_is_not_sent(self):
        with self.assertRaises(TandemError):
            self.client.models(timeout=0.1)
        self.refusal(self.client.render, sampling={})


if __name__ == "__main__":
    unittest.main()
