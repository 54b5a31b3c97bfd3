"""The template gets the caller's values as they are."""

import base64
import json
import unittest

import services

from tandem import InvalidRequest, Tandem, conversation, image

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de"
    "0000000c49444154789c63f8cfc0000003010100c9fe92ef0000000049454e44ae426082"
)
CALL = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": {"z": 1.0, "a": 1}}}
RESULT = {"type": "tool_result", "tool_use_id": "1", "content": "3", "is_error": False}
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"b": 1, "a": 10**30}}, "strict": True}


def fields(value):
    """Returns the field of the InvalidRequest that a conversation causes."""
    try:
        conversation(**value)
    except InvalidRequest as error:
        return error.field
    return None


class ATemplate(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.client = Tandem(services.echo())
        cls.addClassCleanup(cls.client.close)

    def seen(self, messages, **parts):
        return self.client.render(messages, **parts).prompt.text

    def test_gets_messages_as_transformers_passes_them(self):
        messages = [
            {"role": "system", "content": "Söz\u2028"},
            {"role": "user", "content": [{"type": "text", "text": "Hi"}], "cache": {"b": 1.0, "a": None}},
            {"role": "assistant", "content": None, "tool_calls": [CALL], "refusal": None},
            {"role": "tool", "content": "", "tool_call_id": "call_1", "name": "add"},
            {"role": "user", "content": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}]},
            {"role": "user", "content": [RESULT]},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "add", "input": {"a": 1e30}}]},
        ]
        shown = [{key: value for key, value in message.items() if value is not None} for message in messages]
        expected = [shown, [TOOL], [{"text": "d"}], False]  # templates do not get keys that are null
        no_rewriting = {"normalization": "NORMALIZATION_NONE"}
        parts = {"tools": [TOOL], "documents": [{"text": "d"}], "template_args": {"enable_thinking": False}}
        seen = self.seen(messages, options=no_rewriting, **parts)
        self.assertEqual(json.loads(seen), expected)
        self.assertIn('"arguments": {"z": 1.0, "a": 1}', seen)
        self.assertIn('{"b": 1, "a": 1' + "0" * 30 + "}", seen)

    def test_gets_json_text_unchanged(self):
        text = '{"z": 1.0, "10": 1, "2": 3, "e": 1e3, "big": 123456789012345678901234567890}'
        call = {"function": {"name": "add", "arguments": text}}
        block = {"type": "tool_use", "name": "add", "input": text}
        messages = [{"role": "assistant", "content": [block], "tool_calls": [call]}]
        seen = self.seen(messages, tools=[text], documents=[text], template_args='{"enable_thinking": 1}')
        with_python_numbers = json.dumps(json.loads(text))
        self.assertEqual(seen.count(with_python_numbers), 4, seen)

    def test_gets_an_image_in_every_form(self):
        data = base64.b64encode(PNG).decode()
        url = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
        text = json.dumps({"type": "image", "base64": data})
        forms = [image(PNG, "image/png"), {"type": "image", "base64": data}, url, text, {**image(PNG), "alt": "dot"}]
        rendered = self.client.render([{"role": "user", "content": [form]} for form in forms])
        shown = json.loads(rendered.hf_messages.messages_json)
        self.assertEqual([message["content"][0]["base64"] for message in shown], [data] * len(forms))
        self.assertEqual(shown[0]["content"][0]["mime_type"], "image/png")
        self.assertEqual(shown[4]["content"][0]["alt"], "dot")

    def test_gets_an_image_of_a_file(self):
        path = services.FOLDER / "dot.png"
        path.write_bytes(PNG)
        self.assertEqual(image(path), {"type": "image", "data": PNG, "mime_type": "image/png"})


class AValueWithoutAPlace(unittest.TestCase):
    def test_is_named(self):
        user = {"role": "user", "content": "Hi"}
        cases = [
            ({"messages": [user, "Hi"]}, "messages[1]"),
            ({"messages": [{"role": 1}]}, "messages[0].role"),
            ({"messages": [{"role": "user", "content": 1}]}, "messages[0].content"),
            ({"messages": [{"role": "user", "content": [1]}]}, "messages[0].content[0]"),
            ({"messages": [{"role": "user", "content": [{"type": "x", "y": b""}]}]}, "messages[0].content[0]"),
            ({"messages": [{"role": "user", "x": {1, 2}}]}, "messages[0]"),
            ({"messages": [{"role": "a", "tool_calls": [{**CALL, "index": 0}]}]}, "messages[0].tool_calls[0]"),
            ({"messages": [{"role": "a", "tool_calls": [{"name": "f"}]}]}, "messages[0].tool_calls[0].function"),
            (
                {"messages": [{"role": "a", "tool_calls": [{"function": {}}]}]},
                "messages[0].tool_calls[0].function.name",
            ),
            ({"messages": [{"role": "a", "tool_calls": [{**CALL, "id": 1}]}]}, "messages[0].tool_calls[0].id"),
            (
                {"messages": [{"role": "user", "content": [{**RESULT, "tool_use_id": 1}]}]},
                "messages[0].content[0].tool_use_id",
            ),
            (
                {"messages": [{"role": "user", "content": [{**RESULT, "is_error": 1}]}]},
                "messages[0].content[0].is_error",
            ),
            ({"messages": "Hi"}, "messages"),
            ({"messages": user}, "messages"),
            ({"messages": [user], "tools": TOOL}, "tools"),
            ({"messages": [user], "documents": "{}"}, "documents"),
            ({"messages": [user], "tools": [1]}, "tools[0]"),
            ({"messages": [user], "documents": [[]]}, "documents[0]"),
            ({"messages": [user], "template_args": {"x": float("nan")}}, "template_args"),
        ]
        for value, field in cases:
            with self.subTest(field=field):
                self.assertEqual(fields(value), field)

    def test_is_an_error_in_any_field_of_a_request(self):
        client = Tandem("127.0.0.1:1")
        self.addCleanup(client.close)
        for wrong in ({"stop": {"max_tokens": 2}}, {"temperature": 0}, {"sampling": {"temperature": "0"}}):
            with self.assertRaises(InvalidRequest):
                client.run([{"role": "user", "content": "Hi"}], **wrong)


if __name__ == "__main__":
    unittest.main()
