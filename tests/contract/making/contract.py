"""The contract's messages, generated from the `.proto` files, and the list of vectors."""

import base64
import importlib
import json
import sys
import tempfile
from pathlib import Path

from google.protobuf import descriptor_pool, json_format, message_factory
from grpc_tools import protoc

PROTO = Path(__file__).parents[3] / "proto"


def load() -> None:
    """Compiles the contract, so that the default descriptor pool has it."""
    out = tempfile.mkdtemp()
    files = sorted(str(path.relative_to(PROTO)) for path in PROTO.glob("tandem/**/*.proto"))
    files += ["google/rpc/status.proto", "google/rpc/error_details.proto"]
    well_known = Path(protoc.__file__).parent / "_proto"
    if protoc.main(["protoc", f"-I{PROTO}", f"-I{well_known}", f"--python_out={out}", *files]) != 0:
        raise RuntimeError("protoc failed")
    sys.path.insert(0, out)
    import google

    google.__path__.append(f"{out}/google")
    for file in files:
        importlib.import_module(file.replace("/", ".").replace(".proto", "_pb2"))
    importlib.import_module("grpc_health.v1.health_pb2")


def types(method: str):
    """Returns the request and the response of a method."""
    service, name = method.split("/")
    found = descriptor_pool.Default().FindServiceByName(service).FindMethodByName(name)
    return tuple(message_factory.GetMessageClass(kind) for kind in (found.input_type, found.output_type))


class Area:
    """The vectors of one file."""

    def __init__(self, name: str):
        self.name = name
        self.vectors = []

    def add(self, name, server, method, request, expect, because, binary=None, **options):
        """Adds a vector. `because` is the rule of the `.proto`, or begins with "oracle:".

        `binary` replaces the encoded request, where JSON cannot express it.
        """
        name = f"{self.name}/{name}"
        assert all(vector["name"] != name for vector in self.vectors), name
        method = method if method.startswith("grpc.") else f"tandem.{method}"
        kind, response = types(method)
        encoded = json_format.ParseDict(expanded(request), kind()).SerializeToString(deterministic=True)
        check(expect, response, name)
        vector = {"name": name, "rule": because, "server": server, "method": method}
        vector |= {key: options[key] for key in ("metadata", "deadline_ms", "eventually", "compression") if key in options}
        vector["request"] = request
        if json.dumps(expanded(request)) == json.dumps(request):
            vector["request_binary"] = base64.b64encode(encoded if binary is None else binary).decode()
        vector |= {key: options[key] for key in ("cancel_after", "signal_after") if key in options}
        if binary is not None:
            vector["binary_only"] = True
        self.vectors.append(vector | {"expect": expect})


def check(expect: dict, response, name: str) -> None:
    """Fails if an expectation is not in the contract's terms."""
    for item in [expect["response"]] if "response" in expect else expect.get("events", []):
        json_format.ParseDict(expanded(item), response())
    known = {"response", "events", "error", "absent", "headers"}
    assert set(expect) <= known and set(expect) & {"response", "events", "error"}, name


def repeated(part, count: int, before=None, after=None) -> dict:
    """Returns a text or a list in short: `before`, `count` times `part`, `after`."""
    ends = {"before": before, "after": after}
    return {"repeat": part, "count": count} | {key: value for key, value in ends.items() if value is not None}


def expanded(value):
    """Returns JSON with the texts and lists that its parts in short mean."""

    def expand(found):
        if "repeat" not in found:
            return found
        part = found["repeat"]
        return found.get("before", part[:0]) + part * found["count"] + found.get("after", part[:0])

    return json.loads(json.dumps(value), object_hook=expand)


def error(code, reason, field=None, retry=False, resource=None, **more):
    """Returns the expectation of a failed call."""
    expected = {"code": code, "reason": reason, "retry": retry}
    if field is not None:
        expected["field"] = field
    if resource is not None:
        expected["resource"] = dict(zip(("type", "name"), resource))
    return {"error": expected | more}


def invalid(field, reason="INVALID_REQUEST", **more):
    """Returns the expectation of an invalid field."""
    return error("INVALID_ARGUMENT", reason, field, **more)
