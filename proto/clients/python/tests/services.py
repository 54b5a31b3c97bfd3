"""Both services, started for the tests with the model that `cargo xtask setup` fetches."""

import atexit
import json
import os
import shutil
import socket
import subprocess
import tempfile
import threading
from functools import lru_cache
from pathlib import Path

import vision

REPOSITORY = Path(__file__).parents[4]
PROGRAMS = Path(os.environ.get("TANDEM_PROGRAMS", REPOSITORY / "target/debug"))
MODEL = REPOSITORY / ".tandem/models/SmolLM2-135M-Instruct-Q4_1.gguf"
CASES = json.loads((REPOSITORY / "tests/golden/smollm2.json").read_text(encoding="utf8"))["cases"]
"""Conversations with prompts and tokens, as transformers computes them with the same model."""
FOLDER = Path(tempfile.mkdtemp(prefix="tandem-client-"))
atexit.register(shutil.rmtree, FOLDER)


def start(program, *arguments, name=None, listen="127.0.0.1:0"):
    """Starts a service, by default on a free port, and returns its address. It is stopped when the tests end."""
    return start_child(program, *arguments, name=name, listen=listen)[0]


def start_child(program, *arguments, name=None, listen="127.0.0.1:0"):
    """As `start`. Returns the address and the process."""
    command = [PROGRAMS / program, "serve", "--listen", listen, *map(str, arguments)]
    log = FOLDER / f"{name or program}.log"
    with log.open("a", encoding="utf8") as errors:
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
    atexit.register(stop, child)
    for line in child.stdout:
        if line.startswith(f"{program} listening on "):
            return line.split()[-1], child
    raise RuntimeError(f"{program} ended: {log.read_text(encoding='utf8')}")


def stop(child):
    child.terminate()
    child.wait()
    child.stdout.close()


def start_later(seconds, address):
    """Starts a render-svc at an address after a time, in another thread."""
    arguments = ("--models", MODEL, "--generate", f"http://{generation()}")
    later = threading.Timer(seconds, lambda: start("render-svc", *arguments, name="later", listen=address))
    later.start()
    return later


def free_address():
    """Returns an address whose port was free a moment ago."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return "127.0.0.1:%d" % free.getsockname()[1]


@lru_cache(None)
def control_address():
    """The address of gen-svc's ControlService."""
    return free_address()


@lru_cache(None)
def generation():
    """The address of gen-svc."""
    return start("gen-svc", "--model", MODEL, "--dtype", "f32", "--control-listen", control_address())


@lru_cache(None)
def rendering():
    """The address of render-svc, with gen-svc behind it."""
    return start("render-svc", "--models", MODEL, "--generate", f"http://{generation()}")


@lru_cache(None)
def vision_generation():
    """The address of a gen-svc with a tiny model that takes images."""
    folder = FOLDER / "vision"
    folder.mkdir()
    vision.write_model(folder)
    return start("gen-svc", "--model", folder, "--dtype", "f32", name="vision-gen-svc")


@lru_cache(None)
def vision_rendering():
    """The address of a render-svc with the same model, and with that gen-svc behind it."""
    generation = f"http://{vision_generation()}"
    return start("render-svc", "--models", FOLDER / "vision", "--generate", generation, name="vision-render-svc")


@lru_cache(None)
def thinking():
    """The address of a render-svc whose model has tokens for `<think>` and `</think>`, with a gen-svc behind it."""
    model = REPOSITORY / "tests/contract/model"
    generation = start("gen-svc", "--model", model, "--dtype", "f32", name="thinking-gen-svc")
    return start("render-svc", "--models", model, "--generate", f"http://{generation}", name="thinking-render-svc")


@lru_cache(None)
def echo():
    """The address of a render-svc whose template prints its input as JSON."""
    folder = FOLDER / "echo"
    folder.mkdir()
    # The service renders the types of blocks that the template names.
    template = "{% set types = ['tool_use'] %}{{ [messages, tools, documents, enable_thinking] | tojson }}"
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}), encoding="utf8")
    return start("render-svc", "--models", folder, name="echo")


@lru_cache(None)
def short_generation():
    """The address of a gen-svc whose outputs have as many tokens as the programs of the README need."""
    return start("gen-svc", "--model", MODEL, "--max-output-tokens", 500, name="short-gen-svc")


@lru_cache(None)
def short_rendering():
    """The address of a render-svc with that gen-svc behind it."""
    arguments = ("--models", MODEL, "--generate", f"http://{short_generation()}")
    return start("render-svc", *arguments, name="short-render-svc")


@lru_cache(None)
def with_tools():
    """The address of a render-svc whose model has tools, with the gen-svc of short outputs behind it."""
    folder = FOLDER / "with-tools"
    folder.mkdir()
    template = Path(__file__).with_name("with_tools.jinja").read_text(encoding="utf8").strip()
    (folder / MODEL.name).write_bytes(with_template(MODEL.read_bytes(), template))
    arguments = ("--models", folder / MODEL.name, "--generate", f"http://{short_generation()}")
    return start("render-svc", *arguments, name="with-tools")


def with_template(gguf, template):
    """Returns a GGUF file with a chat template that is not longer than its own. Spaces in a tag fill the rest."""
    key = b"tokenizer.chat_template"
    start = gguf.index(key) + len(key) + 4  # after the type of the value
    size = int.from_bytes(gguf[start : start + 8], "little")
    filled = template[:-2].encode().ljust(size - 2) + template[-2:].encode()
    assert len(filled) == size, f"the template may have {size} bytes"
    return gguf[: start + 8] + filled + gguf[start + 8 + size :]


@lru_cache(None)
def certificates():
    """Makes an authority, and certificates of a server and a client. Returns the folder of the files."""
    folder = FOLDER / "tls"
    folder.mkdir()

    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ca")
    (folder / "ext").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n", encoding="utf8")
    for name in ("server", "client"):
        request = ("-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.csr")
        openssl("req", *request, "-subj", f"/CN={name}")
        authority = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "ext")
        openssl("x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.pem", *authority)
    return folder
