"""gen-svc as a child process, and its gRPC client."""

import asyncio
import contextlib
import json
import os
import pathlib
import site
import socket
import subprocess
import time
import urllib.request

import grpc

from contract import message, method

HERE = pathlib.Path(__file__).resolve().parent
START_SECONDS = 400
ANSWER_SECONDS = 400


def libraries():
    """Returns the folders of the kit's libtorch and of NVIDIA's libraries in the Python packages."""
    packages = [pathlib.Path(folder) for folder in site.getsitepackages()]
    nvidia = [folder for package in packages for folder in package.glob("nvidia/**/lib")]
    return [folder for folder in [HERE / "lib", *nvidia] if folder.is_dir()]


def free_port():
    """Returns a free port of the loopback address."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


def variables(environment=None):
    """Returns the environment in which gen-svc finds its libraries."""
    paths = [str(path) for path in libraries()] + [os.environ.get("LD_LIBRARY_PATH", "")]
    return {**os.environ, "LD_LIBRARY_PATH": ":".join(filter(None, paths)), **(environment or {})}


def enqueued_steps(program, model, options, sequences, positions, steps):
    """Returns the milliseconds of a decode step that is launched without waiting for the one before, by the
    number of sequences."""
    counts = ",".join(map(str, sequences))
    sizes = ["--sequences", counts, "--positions", str(positions), "--steps", str(steps)]
    command = [str(program), "time-steps", "--model", str(model), *sizes, *options]
    run = subprocess.run(command, env=variables(), capture_output=True, text=True, timeout=START_SECONDS)
    if run.returncode != 0:
        raise RuntimeError(f"gen-svc time-steps ended with {run.returncode}: {run.stderr[-2000:]}")
    lines = [json.loads(text) for text in run.stdout.splitlines()]
    return {each["sequences"]: each["milliseconds"] for each in lines}


def computed_steps(metrics):
    """Returns the steps that a service has computed. `metrics` is the address of its metrics."""
    with urllib.request.urlopen(f"http://{metrics}/metrics", timeout=10) as page:
        lines = page.read().decode().splitlines()
    return sum(float(text.rsplit(" ", 1)[1]) for text in lines if text.startswith("tandem_engine_steps_total"))


@contextlib.contextmanager
def serve(program, model, log, options, environment=None):
    """Serves a model, and yields the address once it is loaded."""
    address = f"127.0.0.1:{free_port()}"
    command = [str(program), "serve", "--model", str(model), "--listen", address, *options]
    with open(log, "w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, env=variables(environment))
    try:
        wait_until_loaded(process, address, log)
        yield address
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_until_loaded(process, address, log):
    """Waits until the service names its model."""
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        if process.poll() is not None:
            raise RuntimeError(f"gen-svc ended with {process.returncode}: {pathlib.Path(log).read_text()[-2000:]}")
        with grpc.insecure_channel(address) as channel:
            try:
                return loaded_model(channel)
            except grpc.RpcError:
                time.sleep(0.5)
    raise RuntimeError(f"the model was not loaded within {START_SECONDS} s")


def loaded_model(channel):
    """Returns the service's description of its model."""
    return method(channel, "GetLoadedModel")(message("GetLoadedModelRequest")(), timeout=5).model


def gpu(address):
    """Returns the GPU of a service, or None on a CPU."""
    with grpc.insecure_channel(address) as channel:
        model = loaded_model(channel)
    return model.gpu if model.HasField("gpu") else None


def request(ids, tokens, *, logprobs=None, prompt_logprobs=None, priority=0, salt=""):
    """Returns a greedy request that ignores the end of text."""
    returns = {"token_ids": True, "logprobs": logprobs, "prompt_logprobs": prompt_logprobs}
    return message("GenerateRequest")(
        token_ids={"ids": ids},
        sampling={"temperature": 0.0, "repetition_penalty": 1.0},
        stop={"max_new_tokens": tokens, "ignore_eos": True},
        return_options={key: value for key, value in returns.items() if value is not None},
        priority=priority,
        cache_salt=salt,
    )


class Answer:
    """The tokens of an answer, their log probabilities and times."""

    def __init__(self):
        self.ids, self.tokens, self.times, self.prompt = [], [], [], []
        self.cached = 0
        self.summary = None

    def add(self, event):
        """Adds one event of the stream."""
        kind = event.WhichOneof("event")
        if kind == "accepted":
            self.cached = event.accepted.cached_tokens
        elif kind == "delta":
            self.ids += event.delta.token_ids
            self.tokens += event.delta.tokens
            self.times += [time.monotonic()] * len(event.delta.token_ids)
        elif kind == "prompt_logprobs":
            self.prompt += event.prompt_logprobs.tokens
        elif kind == "summary":
            self.summary = event.summary


async def ask(channel, request, delay):
    """Returns the whole answer to one request."""
    await asyncio.sleep(delay)
    answer = Answer()
    async for event in method(channel, "Generate")(request, timeout=ANSWER_SECONDS):
        answer.add(event)
    return answer


async def ask_together(address, requests, delay):
    """Returns the answers to requests that are sent at once, or each `delay` seconds."""
    options = [("grpc.max_receive_message_length", 1 << 30), ("grpc.max_send_message_length", 1 << 30)]
    async with grpc.aio.insecure_channel(address, options=options) as channel:
        return await asyncio.gather(*(ask(channel, request, i * delay) for i, request in enumerate(requests)))


def answers(address, requests, delay=0.0):
    """Returns the answers to requests that run together."""
    return asyncio.run(ask_together(address, requests, delay))


def answers_in_turn(address, requests):
    """Returns the answers to requests of which each waits for the one before."""
    return [answers(address, [request])[0] for request in requests]
