"""Starts and stops the servers of `servers.json`."""

import asyncio
import json
import os
import shutil
import signal
import socket
from pathlib import Path

import grpc
from expand import expanded

START_SECONDS = 120


class Servers:
    """The running servers. `stop` ends all of them.

    contract  the folder with servers.json and the model
    programs  the folder of the services' executables
    folder    a folder for the servers' files and logs
    """

    def __init__(self, contract, programs, folder):
        self.contract, self.programs, self.folder = contract, programs, folder
        self.specs = json.loads((contract / "servers.json").read_text(encoding="utf8"), object_hook=expanded)
        self.running = {}

    async def get(self, key):
        if key not in self.running:
            spec = self.specs[key]
            replicas = [await self.get(replica) for replica in spec.get("replicas", [])]
            server = Server(key, spec, self.folder / key)
            self.running[key] = server
            await server.start(self.contract, self.programs, replicas)
        return self.running[key]

    async def release(self, key):
        """Stops a server, unless others use it."""
        if not any(key in spec.get("replicas", []) for spec in self.specs.values()):
            await self.running.pop(key).stop()

    async def stop(self):
        for server in reversed(self.running.values()):
            await server.stop()


class Server:
    """One process, and the channels to its ports."""

    def __init__(self, key, spec, folder):
        self.key, self.spec, self.folder = key, spec, folder
        self.address, self.control_address = free_address(), free_address()
        self.process = None
        self.channels = []

    async def start(self, contract, programs, replicas):
        self.folder.mkdir(parents=True)
        for name, content in self.spec.get("files", {}).items():
            write(self.folder / name, content, contract)
        values = {"model": contract / "model", "folder": self.folder, "control": self.control_address}
        values["generate"] = f"http://{replicas[0].address}" if replicas else ""
        arguments = [filled(argument, values) for argument in self.spec["args"]]
        environment = {name: filled(value, values) for name, value in self.spec.get("environment", {}).items()}
        with (self.folder / "log").open("wb") as log:
            self.process = await asyncio.create_subprocess_exec(
                *(programs / self.spec["service"], "serve", "--listen", self.address, *arguments),
                **{"stdout": log, "stderr": log, "env": {**os.environ, **environment}},
            )
        self.channel = self.open(self.address, contract)
        self.control = self.open(self.control_address, contract)
        await self.wait("connections", self.accepts)
        if self.spec.get("ready", True):
            await self.wait("health SERVING", self.is_serving)

    def open(self, address, contract):
        options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        if authority := self.spec.get("tls"):
            credentials = grpc.ssl_channel_credentials((contract / authority).read_bytes())
            self.channels.append(grpc.aio.secure_channel(address, credentials, options))
        else:
            self.channels.append(grpc.aio.insecure_channel(address, options))
        return self.channels[-1]

    async def accepts(self):
        try:
            _, writer = await asyncio.open_connection(*self.address.split(":"))
        except OSError:
            return False
        writer.close()
        return True

    async def is_serving(self):
        from grpc_health.v1 import health_pb2, health_pb2_grpc

        try:
            answer = await health_pb2_grpc.HealthStub(self.channel).Check(health_pb2.HealthCheckRequest(), timeout=5)
        except grpc.RpcError:
            return False
        return answer.status == health_pb2.HealthCheckResponse.SERVING

    async def wait(self, what, condition):
        for _ in range(START_SECONDS * 20):
            if await condition():
                return
            if self.process.returncode is not None:
                break
            await asyncio.sleep(0.05)
        raise RuntimeError(f"server {self.key} has no {what}:\n{(self.folder / 'log').read_text(encoding='utf8')}")

    async def terminate(self):
        """Sends SIGTERM, and waits until health is not SERVING."""
        self.process.send_signal(signal.SIGTERM)
        while await self.is_serving():
            await asyncio.sleep(0.05)

    async def stop(self):
        for channel in self.channels:
            await channel.close()
        if self.process is not None and self.process.returncode is None:
            is_loading = not self.spec.get("ready", True)
            self.process.kill() if is_loading else self.process.terminate()
            try:
                await asyncio.wait_for(self.process.wait(), 10)
            except asyncio.TimeoutError:
                self.process.kill()
                await self.process.wait()


def filled(text, values):
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", str(value))
    return text


def write(path, content, contract):
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, str):
        path.write_text(content, encoding="utf8")
    elif "pipe" in content:
        os.mkfifo(path)
    elif (source := contract / content["copy"]).is_dir():
        shutil.copytree(source, path)
    else:
        shutil.copyfile(source, path)
        if size := content.get("size"):
            os.truncate(path, size)


def free_address():
    """Returns an address whose port was free a moment ago."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return "127.0.0.1:%d" % free.getsockname()[1]
