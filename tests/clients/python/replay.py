"""Replays the contract's vectors with generated code and grpc.aio.

Usage: replay.py [--read FOLDER]

Starts the services and compares every answer with its vector. Prints each difference, and the number
of vectors without one. The exit status is 0 if there is no difference.

TANDEM_PROGRAMS   the folder of the services. Default: target/debug
TANDEM_CONTRACT   the folder of the vectors. Default: tests/contract
TANDEM_SERVERS    keys of servers.json, with commas. Only their vectors are replayed. Default: all
TANDEM_EXCHANGE   a folder. The suite writes its requests' bytes into `python.txt` of it

With --read, calls nothing: reads the requests that the suites of all languages wrote into the folder.
"""

import asyncio
import base64
import importlib
import json
import os
import sys
import tempfile
from pathlib import Path

import grpc
import stubs
from compare import check, differences, joined, present
from expand import expanded
from google.protobuf import json_format, symbol_database
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from servers import Servers

REPOSITORY = Path(__file__).resolve().parents[3]
CONTRACT = Path(os.environ.get("TANDEM_CONTRACT", REPOSITORY / "tests/contract"))
PROGRAMS = Path(os.environ.get("TANDEM_PROGRAMS", REPOSITORY / "target/debug")).absolute()
SERVERS = os.environ.get("TANDEM_SERVERS")
EVENTUALLY_SECONDS = 10
CONTROL = "tandem.generate.v1.ControlService"


def import_services(out):
    """Imports the generated modules. Returns the stub class of each service by its full name."""
    result = {"grpc.health.v1.Health": health_pb2_grpc.HealthStub}
    for path in sorted(Path(out).rglob("*_pb2.py")):
        name = ".".join(path.relative_to(out).with_suffix("").parts)
        messages, calls = importlib.import_module(name), importlib.import_module(f"{name}_grpc")
        for service in messages.DESCRIPTOR.services_by_name.values():
            result[service.full_name] = getattr(calls, f"{service.name}Stub")
    return result


def vectors():
    for path in sorted((CONTRACT / "vectors").glob("*.json")):
        yield from json.loads(path.read_text(encoding="utf8"), object_hook=expanded)


def is_chosen(vector):
    return SERVERS is None or vector["server"] in SERVERS.split(",")


def method_of(vector):
    """Returns the descriptor of a vector's method."""
    service, name = vector["method"].split("/")
    pool = symbol_database.Default().pool
    return pool.FindServiceByName(service).methods_by_name[name]


def request_of(vector, data=None):
    """Returns the request from the vector's JSON, from its bytes, or from other bytes."""
    type_ = symbol_database.Default().GetSymbol(method_of(vector).input_type.full_name)
    if data is None and vector.get("binary_only"):
        data = base64.b64decode(vector["request_binary"])
    return json_format.ParseDict(vector["request"], type_()) if data is None else type_.FromString(data)


def own_request_of(vector):
    """Returns the request of the vector's bytes, or of its JSON if it has no bytes."""
    data = vector.get("request_binary")
    return request_of(vector, None if data is None else base64.b64decode(data))


def as_json(message):
    return json_format.MessageToDict(message)


class Answer:
    """The result of a call: its messages as proto3 JSON, and its status."""

    def __init__(self):
        self.messages, self.error, self.metadata = [], None, {}

    def fail(self, error):
        self.add_metadata(error.initial_metadata(), error.trailing_metadata())
        self.error = {"code": error.code().name, "message": error.details(), "reason": ""}
        data = self.metadata.get("grpc-status-details-bin")
        for detail in status_pb2.Status.FromString(data).details if data else ():
            self.add_detail(detail)

    def add_metadata(self, *parts):
        for part in parts:
            self.metadata.update(part or ())

    def add_detail(self, detail):
        info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
        retry, missing = error_details_pb2.RetryInfo(), error_details_pb2.ResourceInfo()
        if detail.Unpack(info):
            self.error.update(reason=info.reason, metadata=dict(info.metadata))
        elif detail.Unpack(bad):
            self.error["field"] = bad.field_violations[0].field
        elif detail.Unpack(retry):
            self.error["retry"] = retry.retry_delay.ToNanoseconds() > 0
        elif detail.Unpack(missing):
            self.error["resource"] = {"type": missing.resource_type, "name": missing.resource_name}


class Replay:
    """Replays vectors. Counts those without a difference."""

    def __init__(self, servers, services):
        self.servers, self.services = servers, services
        self.good, self.total = 0, 0

    async def all(self, key, vectors):
        """Replays the vectors of one server, one after the other."""
        server = await self.servers.get(key)
        held = await self.prepare(server)
        for vector in vectors:
            lines = await self.differences(server, vector)
            self.total += 1
            self.good += not lines
            for line in lines:
                print(f"{vector['name']}: {line}", flush=True)
        for call in held:
            call.cancel()
        await self.servers.release(key)

    async def prepare(self, server):
        """Opens the calls that a server is busy with during its vectors, and sends the server's signal."""
        held = []
        if hold := server.spec.get("hold"):
            held.append(self.call(server, {"deadline_ms": 600_000, **hold}))
            while (await held[-1].read()).WhichOneof("event") == "progress":
                pass
        if queued := server.spec.get("queued"):
            held.append(self.call(server, {"deadline_ms": 600_000, **queued}))
            event = await held[-1].read()
            assert event.WhichOneof("event") == "progress", event
        if "signal" in server.spec:
            await server.terminate()
        return held

    async def differences(self, server, vector):
        """Returns a line for each difference between a vector and the answer to it."""
        lines = []
        if not vector.get("binary_only") and request_of(vector) != own_request_of(vector):
            lines.append("request_binary: differs from request")
        for attempt in range(EVENTUALLY_SECONDS * 20):
            if attempt > 0:
                await asyncio.sleep(0.05)
            found = list(compared(vector, await self.answer(server, vector)))
            if not found or not vector.get("eventually"):
                break
        return lines + found

    def call(self, server, vector):
        service, name = vector["method"].split("/")
        stub = self.services[service](server.control if service == CONTROL else server.channel)
        metadata = list(vector.get("metadata", {}).items())
        timeout = vector.get("deadline_ms", 60_000) / 1000
        compression = grpc.Compression.Gzip if vector.get("compression") else None
        return getattr(stub, name)(request_of(vector), timeout=timeout, metadata=metadata, compression=compression)

    async def late_call(self, server, vector):
        """Opens a call, lets the server drain, and then sends the call's message."""
        request, output = request_of(vector), method_of(vector).output_type.full_name
        read = symbol_database.Default().GetSymbol(output).FromString
        open_call = server.channel.stream_stream(f"/{vector['method']}", type(request).SerializeToString, read)
        call = open_call(timeout=60)
        await call.wait_for_connection()
        await server.is_serving()  # on the same connection, so that the server has the call before its answer
        await server.terminate()
        await call.write(request)
        await call.done_writing()
        return call

    async def answer(self, server, vector):
        answer = Answer()
        try:
            is_late = vector.get("signal_after") == 0
            call = await self.late_call(server, vector) if is_late else self.call(server, vector)
            if not method_of(vector).server_streaming:
                answer.messages.append(as_json(await call))
            else:
                await self.read(server, call, vector, answer)
            answer.add_metadata(await call.initial_metadata(), await call.trailing_metadata())
        except grpc.RpcError as error:
            answer.fail(error)
        except asyncio.CancelledError:
            answer.error = {"code": "CANCELLED", "reason": ""}
        return answer

    async def read(self, server, call, vector, answer):
        count = 0
        async for message in call:
            answer.messages.append(as_json(message))
            if "progress" in answer.messages[-1] and not keeps_progress(vector):
                continue
            count += 1
            if count == vector.get("cancel_after"):
                call.cancel()
            if count == vector.get("signal_after"):
                await server.terminate()


def keeps_progress(vector):
    """Returns true if the vector expects `progress` events. Otherwise they are skipped."""
    return any("progress" in event for event in vector["expect"].get("events", ()))


def compared(vector, answer):
    expected = vector["expect"]
    is_cancelled, wanted = "cancel_after" in vector, expected.get("error")
    if is_cancelled:
        wanted = {"code": "CANCELLED"}
    if (wanted is None) != (answer.error is None):
        yield f"status: expected {wanted or 'OK'}, got {answer.error or 'OK'}"
    elif wanted is not None:
        yield from differences(wanted, answer.error, "error")
    for name, value in expected.get("headers", {}).items():
        if value != answer.metadata.get(name) and not (value == "*" and name in answer.metadata):
            yield f"headers.{name}: expected {value!r}, got {answer.metadata.get(name)!r}"
    result = {}
    if "response" in expected:
        result = answer.messages[0] if answer.messages else {}
        yield from differences(expected["response"], result)
    elif "events" in expected:
        result = {"events": joined(answer.messages, keeps_progress(vector))}
        yield from differences({"events": expected["events"]}, result)
    yield from present(expected.get("absent", ()), result)


async def replay(services):
    by_server = {}
    for vector in filter(is_chosen, vectors()):
        by_server.setdefault(vector["server"], []).append(vector)
    with tempfile.TemporaryDirectory() as folder:
        servers = Servers(CONTRACT, PROGRAMS, Path(folder))
        run = Replay(servers, services)
        try:
            for key, some in by_server.items():
                await run.all(key, some)
        finally:
            await servers.stop()
    print(f"vectors: {run.good} of {run.total}")
    return run.good == run.total > 0


def write(folder):
    """Writes the bytes of every request."""
    with open(Path(folder, "python.txt"), "w", encoding="utf8") as out:
        for vector in vectors():
            data = base64.b64encode(request_of(vector).SerializeToString()).decode()
            print(vector["name"], data, sep="\t", file=out)


def read(folder):
    """Compares the requests that each language wrote with the vectors' own. Returns true if all are equal."""
    known, differing = list(vectors()), 0
    for path in sorted(Path(folder).glob("*.txt")):
        sent = dict(line.split("\t") for line in path.read_text(encoding="utf8").splitlines())
        wrong = [vector["name"] for vector in known if not is_sent(vector, sent.get(vector["name"]))]
        for name in wrong:
            print(f"{name}: differs in {path.name}")
        print(f"requests of {path.stem}: {len(known) - len(wrong)} of {len(known)}")
        differing += len(wrong)
    return differing == 0


def is_sent(vector, data):
    return data is not None and request_of(vector, base64.b64decode(data)) == own_request_of(vector)


def check_newer():
    """Reads messages with fields and enum numbers of a later version. Raises AssertionError if one differs."""
    cases = json.loads((Path(__file__).parents[1] / "comparison.json").read_text(encoding="utf8"))["newer"]
    for case in cases:
        type_ = symbol_database.Default().GetSymbol(method_of(case).output_type.full_name)
        assert as_json(type_.FromString(base64.b64decode(case["binary"]))) == case["json"], case


def main():
    services = import_services(stubs.generate(REPOSITORY / "proto"))
    if sys.argv[1:2] == ["--read"]:
        sys.exit(0 if read(sys.argv[2]) else 1)
    check()
    check_newer()
    if exchange := os.environ.get("TANDEM_EXCHANGE"):
        write(exchange)
    sys.exit(0 if asyncio.run(replay(services)) else 1)


if __name__ == "__main__":
    main()
