"""mypy accepts right calls and finds the mistakes in wrong ones."""

import os
import subprocess
import sys
import unittest
from pathlib import Path

import services

import tandem


class TheTypes(unittest.TestCase):
    def test_find_every_mistake_and_no_other(self):
        cache = services.FOLDER / "mypy"
        command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", cache, "types_of_calls.py"]
        # mypy looks for packages in the folders of its own Python only.
        environment = {**os.environ, "PYTHONPATH": str(Path(tandem.__file__).parents[1])}
        checked = subprocess.run(
            command, cwd=Path(__file__).parent, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        self.assertEqual(checked.returncode, 0, checked.stdout)


if __name__ == "__main__":
    unittest.main()
