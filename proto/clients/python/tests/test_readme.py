"""The programs of the README run, and a type checker accepts them."""

import base64
import contextlib
import io
import os
import re
import textwrap
import unittest
from pathlib import Path

import services
import test_types
import vision

import tandem
from tandem import Tandem, TandemError

README = Path(__file__).parents[1] / "README.md"
PROGRAMS = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf8"), re.DOTALL)
ADDRESS = "127.0.0.1:50051"
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}
DECLARATIONS = """
import tandem
from tandem import Message, Tandem, TandemError, Tool

client: Tandem
generation_client: Tandem
messages: list[Message]
tool: Tool
"""
"""The names that the programs use without a definition."""


def run(program, address, **names):
    """Runs a program, and returns its output."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(program.replace(ADDRESS, address), names)
    return printed.getvalue()


class TheReadme(unittest.TestCase):
    def program(self, mark):
        """Returns the first program with a text."""
        return next(program for program in PROGRAMS if mark in program)

    def test_starts_with_a_program_that_answers(self):
        self.assertIn(ADDRESS, PROGRAMS[0])
        self.assertTrue(run(PROGRAMS[0], services.short_rendering()))

    def test_has_programs_that_run(self):
        picture, *_ = [b for m in vision.conversations()[0]["messages"] for b in m["content"] if b["type"] == "image"]
        (services.FOLDER / "cat.png").write_bytes(base64.b64decode(picture["base64"]))
        here = os.getcwd()
        self.addCleanup(os.chdir, here)
        os.chdir(services.FOLDER)
        for program in PROGRAMS[1:]:
            has_image = "image(" in program
            address = services.vision_rendering() if has_image else services.with_tools()
            if "print(error.reason, error.field)\n" in program and "strict" in program:
                address = services.short_rendering()  # a model without tools
            with self.subTest(program), Tandem(address) as client:
                names = {"tandem": tandem, "Tandem": Tandem, "TandemError": TandemError, "tool": TOOL}
                messages = [{"role": "user", "content": "Why is the sky blue?"}]
                run(program, address, client=client, messages=messages, **names)

    def test_has_structured_output(self):
        with Tandem(services.short_rendering()) as client:
            printed = run(self.program("(BaseModel)"), services.short_rendering(), client=client)
        self.assertEqual(printed, "41\n")

    def test_keeps_untrusted_text(self):
        program = self.program("control_tokens").replace("client.run(", "client.render(")
        with Tandem(services.short_rendering()) as client:
            run(program, "", client=client)
            names = {"client": client}
            exec(program, names)
            special = client.tokenize("<|im_start|>").token_ids[0]
        self.assertEqual(list(names["answer"].prompt.token_ids).count(special), 3)  # system, user, assistant

    def test_has_an_agent_that_calls_two_tools(self):
        """A grammar makes the small model write two calls and an unknown one, and then an answer."""
        calls = [("weather", "Paris"), ("local_time", "Paris"), ("music", "Rome")]
        written = [
            f'<tool_call>\n{{"name": "{name}", "arguments": {{"city": "{city}"}}}}\n</tool_call>' for name, city in calls
        ]
        texts = iter(["\n".join(written[:2]), written[2], "Yes, it rains."])
        program = self.program("FUNCTIONS = ")
        self.assertLessEqual(len(program.splitlines()), 30)
        forced = program.replace("parse_output=True", "parse_output=True, grammar=grammar()")
        names = {"grammar": lambda: {"choice": {"values": [next(texts)]}}}
        with self.assertLogs("tandem", "WARNING") as logged:  # UNKNOWN_TOOL
            printed = run(forced, services.with_tools(), **names)
        self.assertEqual(len(logged.output), 1)
        called = "".join(f'calls {name} {{"city": "{city}"}}\n' for name, city in calls)
        self.assertEqual(printed, f"{called}Yes, it rains.\n")

    def test_has_a_choice_of_tools(self):
        messages = [{"role": "user", "content": "Add 2 and 3."}]
        properties = {"sum": {"enum": [2, 5]}}
        parameters = {"type": "object", "properties": properties, "required": ["sum"], "additionalProperties": False}
        tool = {"type": "function", "function": {"name": "add", "parameters": parameters}}
        with Tandem(services.with_tools()) as client:
            printed = run(self.program("tool_choice="), "", client=client, messages=messages, tool=tool)
        self.assertRegex(printed, r"'function': \{'name': 'add', 'arguments': '\{\"sum\": ?[25]\}'\}")

    def test_names_a_warning(self):
        program = self.program("StrictError")
        names = {"Tandem": Tandem, "tandem": tandem, "messages": services.CASES[0]["messages"], "tool": TOOL}
        printed = run(program, services.short_rendering(), **names)
        self.assertEqual(printed, "TOOLS_IGNORED conversation.tools\n")

    def test_has_right_types(self):
        typed = [program for program in PROGRAMS if "import grpc\n" not in program]  # grpcio has no types
        functions = "".join(
            f"\n\ndef program_{i}() -> None:\n{textwrap.indent(program, ' ' * 4)}" for i, program in enumerate(typed)
        )
        path = services.FOLDER / "readme.py"
        path.write_text(DECLARATIONS + functions, encoding="utf8")
        checked = test_types.mypy(path)
        self.assertEqual(checked.returncode, 0, checked.stdout)


if __name__ == "__main__":
    unittest.main()
