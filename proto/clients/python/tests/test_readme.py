"""The first program of the README answers."""

import contextlib
import io
import re
import unittest
from pathlib import Path

import services

README = Path(__file__).parents[1] / "README.md"


class TheReadme(unittest.TestCase):
    def test_starts_with_a_program_that_answers(self):
        short = ("--model", services.MODEL, "--default-output-tokens", 8)
        generation = services.start("gen-svc", *short, name="short-gen-svc")
        arguments = ("--models", services.MODEL, "--generate", f"http://{generation}")
        address = services.start("render-svc", *arguments, name="short-render-svc")
        program = re.search(r"```python\n(.*?)```", README.read_text(encoding="utf8"), re.DOTALL)[1]
        self.assertIn("127.0.0.1:50051", program)
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(program.replace("127.0.0.1:50051", address), {})
        self.assertTrue(printed.getvalue())


if __name__ == "__main__":
    unittest.main()
