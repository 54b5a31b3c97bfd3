"""The types of the requests are those of the contract."""

import typing
import unittest
from collections.abc import Iterable, Mapping

from google.protobuf.descriptor import FieldDescriptor

from tandem import fields
from tandem.convert import labels
from tandem.generate.v1 import generate_pb2
from tandem.render.v1 import parse_pb2, render_pb2
from tandem.task.v1 import task_pb2

CONVERSATION = {"tools", "documents", "template_args"}
OPTIONS = set(fields.Options.__annotations__)
REQUESTS = [
    (fields.TaskFields, task_pb2.RunTaskRequest, {"conversation"}, CONVERSATION | OPTIONS),
    (fields.RenderArguments, render_pb2.RenderRequest, {"conversation"}, CONVERSATION | OPTIONS),
    (fields.RenderRequest, render_pb2.RenderRequest, {"conversation"}, CONVERSATION | {"messages"}),
    # The prompt is the first argument, and `render` makes the input of a template.
    (
        fields.GenerateFields,
        generate_pb2.GenerateRequest,
        {"prompt", "token_ids", "hf_messages_json", "hf_template"},
        OPTIONS,
    ),
    (fields.TokenizeFields, render_pb2.TokenizeRequest, {"text"}, OPTIONS),
    (fields.ParseFields, parse_pb2.ParseOutputRequest, {"text", "tokens", "tools"}, {"tools"} | OPTIONS),
    (fields.DetokenizeFields, render_pb2.DetokenizeRequest, {"token_ids"}, OPTIONS),
]
SCALARS = {
    FieldDescriptor.TYPE_BOOL: bool,
    FieldDescriptor.TYPE_STRING: str,
    FieldDescriptor.TYPE_BYTES: bytes,
    FieldDescriptor.TYPE_FLOAT: float,
    FieldDescriptor.TYPE_DOUBLE: float,
    FieldDescriptor.TYPE_INT32: int,
    FieldDescriptor.TYPE_UINT32: int,
    FieldDescriptor.TYPE_UINT64: int,
}
SCHEMA = "tandem.generate.v1.Grammar.json_schema"  # text of the contract, any schema for callers
TOOL_CHOICE = "tandem.task.v1.RunTaskRequest.tool_choice"  # a message of the contract, OpenAI's shape for callers


def hints(kind):
    # The keys of ReturnOptions have the name of a builtin.
    return typing.get_type_hints(kind, vars(fields), {"bytes": bytes})


def alternatives(hint):
    return typing.get_args(hint) if typing.get_origin(hint) is typing.Union else (hint,)


class TheTypes(unittest.TestCase):
    def setUp(self):
        self.seen = set()

    def check(self, kind, descriptor, outside=frozenset(), besides=frozenset()):
        """Compares the keys of a type with the fields of a message, and the types of both."""
        self.seen.add(kind)
        found = hints(kind)
        expected = {field.name for field in descriptor.fields} - outside
        self.assertEqual(set(found) - besides, expected, f"{kind.__name__} and {descriptor.full_name}")
        for name in expected:
            with self.subTest(f"{kind.__name__}.{name}"):
                self.check_field(found[name], descriptor.fields_by_name[name])

    def check_field(self, hint, field):
        entry = field.message_type if field.message_type and field.message_type.GetOptions().map_entry else None
        if entry is not None:
            types = tuple(SCALARS[entry.fields_by_name[part].type] for part in ("key", "value"))
            self.assertEqual(hint, Mapping[types])
        elif field.is_repeated and field.type == FieldDescriptor.TYPE_STRING:
            self.assertEqual(hint, fields.Texts)
        elif field.is_repeated:
            self.assertIs(typing.get_origin(hint), Iterable)
            self.check_value(typing.get_args(hint)[0], field)
        elif field.full_name == SCHEMA:
            self.assertEqual(hint, fields.Schema)
        elif field.full_name == TOOL_CHOICE:
            self.assertEqual(hint, fields.ToolChoice)
            modes = task_pb2.ToolChoiceMode.DESCRIPTOR
            self.assertEqual(list(typing.get_args(fields.ToolChoiceMode)), list(labels(modes)))
        else:
            self.check_value(hint, field)

    def check_value(self, hint, field):
        if field.enum_type is not None:
            self.assertEqual(list(typing.get_args(hint)), list(labels(field.enum_type)))
        elif field.message_type is None:
            self.assertIs(hint, SCALARS[field.type])
        else:
            message = field.message_type._concrete_class
            kinds = [kind for kind in alternatives(hint) if hasattr(kind, "__total__")]
            self.assertIn(message, alternatives(hint))
            self.assertEqual(len(kinds), 1, hint)
            self.check(kinds[0], field.message_type)

    def test_have_every_field_of_the_contract_and_no_other(self):
        for kind, message, outside, besides in REQUESTS:
            self.check(kind, message.DESCRIPTOR, outside, besides)
        self.assertGreater(len(self.seen), 15)


if __name__ == "__main__":
    unittest.main()
