"""Generates the modules of the contract's messages when the package is built."""

import tempfile
from pathlib import Path

from grpc_tools import protoc
from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Messages(BuildHookInterface):
    """Adds `*_pb2.py`, their types and the stubs `*_pb2_grpc.py` to the wheel. An editable install gets them in `src/`."""

    def initialize(self, version, build_data):
        root = Path(self.root)
        # In the repository, this folder is below the contract. A source distribution contains it.
        protos = next(folder for folder in (root / "proto", root.parents[1]) if (folder / "tandem").is_dir())
        self.folder = tempfile.TemporaryDirectory()
        out = root / "src" if version == "editable" else Path(self.folder.name)
        generate(protos, out)
        if version != "editable":
            modules = (path for path in out.rglob("*") if path.is_file())
            build_data["force_include"].update({str(path): path.relative_to(out).as_posix() for path in modules})

    def finalize(self, version, build_data, artifact_path):
        self.folder.cleanup()


def generate(protos, out):
    """Writes the modules of the `.proto` files below `protos/tandem` into the folder `out`."""
    files = sorted(str(path.relative_to(protos)) for path in (protos / "tandem").rglob("*.proto"))
    well_known = Path(protoc.__file__).parent / "_proto"
    options = [f"-I{protos}", f"-I{well_known}", f"--python_out={out}"]
    options += [f"--grpc_python_out={out}", f"--mypy_out={out}"]
    if protoc.main(["protoc", *options, *files]) != 0:
        raise RuntimeError(f"protoc failed on the files of {protos}")
