"""Runs the examples of proto/docs, and compares their output with `examples.json`.

Prints each difference, and the number of examples without one. The exit status is 0 if there is no
difference. The environment variables are those of replay.py.
"""

import asyncio
import contextlib
import io
import json
import re
import sys
import tempfile
from pathlib import Path

import stubs
from replay import CONTRACT, PROGRAMS, REPOSITORY
from servers import Servers

EXPECTED = json.loads(Path(__file__).parents[1].joinpath("examples.json").read_text(encoding="utf8"))


def output(examples, method, address):
    """Returns the lines that the example of a method prints."""
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", method.split(".")[1]).lower()
    with contextlib.redirect_stdout(io.StringIO()) as printed, examples.connect(address) as channel:
        getattr(examples, name)(channel)
    return printed.getvalue().splitlines()


async def run(examples):
    good = 0
    with tempfile.TemporaryDirectory() as folder:
        servers = Servers(CONTRACT, PROGRAMS, Path(folder))
        try:
            for example in EXPECTED:
                method, server = example["method"], await servers.get(example["server"])
                address = server.control_address if method.startswith("ControlService.") else server.address
                found = await asyncio.to_thread(output, examples, method, address)
                good += found == example["prints"]
                if found != example["prints"]:
                    print(f"{method}: expected {example['prints']}, got {found}")
        finally:
            await servers.stop()
    print(f"examples: {good} of {len(EXPECTED)}")
    return good == len(EXPECTED)


if __name__ == "__main__":
    stubs.generate(REPOSITORY / "proto")
    import examples

    sys.exit(0 if asyncio.run(run(examples)) else 1)
