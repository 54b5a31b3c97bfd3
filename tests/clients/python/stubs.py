"""Generates the code of the contract with grpcio-tools."""

import pathlib
import sys
import tempfile

from grpc_tools import protoc


def generate(proto):
    """Generates modules from the `.proto` files of a folder, and makes them importable."""
    out = tempfile.mkdtemp()
    files = [str(path) for path in sorted((pathlib.Path(proto) / "tandem").rglob("*.proto"))]
    well_known = pathlib.Path(protoc.__file__).parent / "_proto"
    paths = [f"-I{proto}", f"-I{well_known}"]
    code = protoc.main(["protoc", *paths, f"--python_out={out}", f"--grpc_python_out={out}", *files])
    assert code == 0, f"protoc failed with {code}"
    sys.path.insert(0, out)
    return out
