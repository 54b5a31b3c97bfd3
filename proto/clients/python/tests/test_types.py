"""mypy accepts right calls and finds the mistakes in wrong ones."""

import os
import subprocess
import sys
import unittest
from pathlib import Path

import services

import tandem


def mypy(path):
    """Checks a file as strictly as possible."""
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", services.FOLDER / "mypy", path.name]
    # mypy looks for packages in the folders of Python and of PYTHONPATH.
    environment = {**os.environ, "PYTHONPATH": str(Path(tandem.__file__).parents[1])}
    output = {"text": True, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.run(command, cwd=path.parent, env=environment, **output)


class TheTypes(unittest.TestCase):
    def test_find_every_mistake_and_no_other(self):
        checked = mypy(Path(__file__).with_name("types_of_calls.py"))
        self.assertEqual(checked.returncode, 0, checked.stdout)


if __name__ == "__main__":
    unittest.main()
