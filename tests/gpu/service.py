"""gen-svc as a child process, and its gRPC client."""

import asyncio
import contextlib
import importlib.util
import json
import os
import pathlib
import site
import socket
import struct
import subprocess
import sys
import time
import urllib.request

import grpc

from contract import message, method

HERE = pathlib.Path(__file__).resolve().parent
MESSAGE_SIZES = [("grpc.max_receive_message_length", 1 << 30), ("grpc.max_send_message_length", 1 << 30)]
END_SECONDS = 5
GREEDY = {"temperature": 0.0, "repetition_penalty": 1.0}
# Becomes another program, which the kernel ends with this one: no service keeps the GPU's memory. Option 1 of prctl
# is PR_SET_PDEATHSIG. A function of Python cannot do this between fork and exec, because gRPC's threads break there.
ENDS_WITH_PARENT = "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); os.execv(sys.argv[1], sys.argv[1:])"


def libraries():
    """Returns the folders of the kit's libtorch and of NVIDIA's libraries in the Python packages. Those beside torch
    come first: it may be in the user's folder, or in one of PYTHONPATH."""
    torch = importlib.util.find_spec("torch")
    beside = [pathlib.Path(torch.origin).parents[1]] if torch and torch.origin else []
    packages = [*beside, *(pathlib.Path(folder) for folder in [*sys.path, *site.getsitepackages()] if folder)]
    nvidia = [folder for package in dict.fromkeys(packages) for folder in package.glob("nvidia/**/lib")]
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


def command(program, *arguments):
    """Returns the command of a program that ends with this one."""
    path = pathlib.Path(program).resolve()
    return [sys.executable, "-I", "-S", "-c", ENDS_WITH_PARENT, *(str(part) for part in (path, *arguments))]


def output(seconds, program, *arguments):
    """Returns the standard output of a program."""
    line = command(program, *arguments)
    run = subprocess.run(line, env=variables(), capture_output=True, text=True, timeout=seconds)
    if run.returncode != 0:
        raise RuntimeError(f"{program} ended with {run.returncode}: {run.stderr[-2000:]}")
    return run.stdout


def enqueued_steps(program, model, options, sequences, positions, steps, seconds):
    """Returns the milliseconds of a decode step that is launched without waiting for the one before, by the
    number of sequences."""
    counts = ",".join(map(str, sequences))
    sizes = ["--sequences", counts, "--positions", positions, "--steps", steps]
    text = output(seconds, program, "time-steps", "--model", model, *sizes, *options)
    lines = [json.loads(line) for line in text.splitlines()]
    return {each["sequences"]: each["milliseconds"] for each in lines}


def own_memory(process):
    """Returns the bytes of a process that no file holds, or None without /proc."""
    try:
        status = pathlib.Path(f"/proc/{process}/status").read_text()
    except OSError:
        return None
    found = [text.split()[1] for text in status.splitlines() if text.startswith("RssAnon:")]
    return int(found[0]) << 10 if found else None


class Service:
    """A running gen-svc. `left` returns the seconds in which a call must end."""

    def __init__(self, process, address, metrics, log, left):
        self.process, self.address, self.metrics = process, address, metrics
        self.log, self.left = log, left
        self.waits_file = None
        self.load_seconds, self.peak_memory = 0.0, None

    def wait_until_loaded(self):
        """Waits until the service names its model. Measures the peak of the process's memory meanwhile."""
        start = time.monotonic()
        while self.process.poll() is None:
            self.peak_memory = max(self.peak_memory or 0, own_memory(self.process.pid) or 0) or None
            with grpc.insecure_channel(self.address) as channel, contextlib.suppress(grpc.RpcError):
                loaded_model(channel)
                self.load_seconds = time.monotonic() - start
                return
            time.sleep(0.05)
        raise RuntimeError(f"gen-svc ended with {self.process.returncode}: {self.log.read_text()[-2000:]}")

    def gpu(self):
        """Returns the GPU of the service, or None on a CPU."""
        with grpc.insecure_channel(self.address) as channel:
            model = loaded_model(channel)
        return model.gpu if model.HasField("gpu") else None

    def metric(self, name, attribute=""):
        """Returns the sum of a metric's values, of those with an attribute if it is given. None if there are none."""
        with urllib.request.urlopen(f"http://{self.metrics}/metrics", timeout=10) as page:
            lines = page.read().decode().splitlines()
        values = [float(text.rsplit(" ", 1)[1]) for text in lines if text.startswith(name) and attribute in text]
        return sum(values) if values else None

    def settled(self, name):
        """Returns a metric once it no longer changes."""
        last, value = None, self.metric(name)
        while value != last:
            time.sleep(0.2)
            last, value = value, self.metric(name)
        return value

    def waits(self):
        """Returns the calls so far that made the host wait for the GPU, and the seconds in them."""
        count, nanoseconds = struct.unpack("<QQ", self.waits_file.read_bytes())
        return count, nanoseconds / 1e9

    def answers(self, requests, delay=0.0, urgent=()):
        """Returns the answers to requests that are sent at once, or each `delay` seconds. Urgent requests are sent
        after the first token, and their answers are not returned."""
        return asyncio.run(asyncio.wait_for(self._ask(requests, delay, urgent), self.left()))

    def answers_in_turn(self, requests):
        """Returns the answers to requests of which each waits for the one before."""
        return [self.answers([request])[0] for request in requests]

    async def _ask(self, requests, delay, urgent):
        begun = asyncio.Event()
        async with grpc.aio.insecure_channel(self.address, options=MESSAGE_SIZES) as channel:
            first = [ask(channel, request, asyncio.sleep(i * delay), begun) for i, request in enumerate(requests)]
            others = [ask(channel, request, begun.wait(), begun) for request in urgent]
            return (await asyncio.gather(*first, *others))[: len(first)]


@contextlib.contextmanager
def serve(program, model, log, options, left):
    """Serves a model, and yields the service once the model is loaded."""
    address, metrics = (f"127.0.0.1:{free_port()}" for _ in range(2))
    counter = log.with_name("waits")
    counter.write_bytes(bytes(16))
    environment = {"TANDEM_WAITS": str(counter)}
    if (HERE / "lib/libwaits.so").exists():
        environment["LD_PRELOAD"] = str(HERE / "lib/libwaits.so")
    places = ["--listen", address, "--metrics-listen", metrics]
    line = command(program, "serve", "--model", model, *places, *options)
    with open(log, "w") as file:
        process = subprocess.Popen(line, stdout=file, stderr=subprocess.STDOUT, env=variables(environment))
    service = Service(process, address, metrics, log, left)
    service.waits_file = counter
    try:
        service.wait_until_loaded()
        yield service
    finally:
        end(process)


def end(process):
    """Ends a process."""
    process.terminate()
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def loaded_model(channel):
    """Returns the service's description of its model."""
    return method(channel, "GetLoadedModel")(message("GetLoadedModelRequest")(), timeout=5).model


def request(
    ids, tokens, *, logprobs=None, prompt_logprobs=None, priority=0, salt="", sampling=GREEDY, grammar=None
):
    """Returns a request, which is greedy unless its sampling is given. It ignores the end of text, unless a grammar
    ends it."""
    returns = {"token_ids": True, "logprobs": logprobs, "prompt_logprobs": prompt_logprobs}
    return message("GenerateRequest")(
        token_ids={"ids": ids},
        sampling=sampling,
        stop={"max_new_tokens": tokens, "ignore_eos": grammar is None},
        grammar=grammar,
        return_options={key: value for key, value in returns.items() if value is not None},
        priority=priority,
        cache_salt=salt,
    )


class Answer:
    """The tokens of an answer, and their log probabilities."""

    def __init__(self):
        self.ids, self.tokens, self.prompt = [], [], []
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
        elif kind == "prompt_logprobs":
            self.prompt += event.prompt_logprobs.tokens
        elif kind == "summary":
            self.summary = event.summary


async def ask(channel, request, start, begun):
    """Returns the whole answer to a request, which is sent after `start`. Its first token sets `begun`."""
    await start
    answer = Answer()
    async for event in method(channel, "Generate")(request):
        answer.add(event)
        if answer.ids:
            begun.set()
    return answer


def likeliest(token):
    """Returns the log probabilities of a position's likeliest tokens, and of the token itself, by id."""
    return {**{top.id: top.logprob for top in token.top_logprobs}, token.id: token.logprob}
