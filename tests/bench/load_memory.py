"""Measures the memory of gen-svc while it loads models of Llama's shape on a CPU.

    python3 tests/bench/load_memory.py target/release/gen-svc --layers 4 16 32
    python3 tests/bench/load_memory.py target/release/gen-svc --kernels int4 --layers 4 32

With 32 layers, a model has 8 billion parameters. The files of weights are sparse, so that they take no space on a disk.

Without --kernels, libtorch loads the weights in bf16. They are in the memory of the process too: the bytes that it has
read, but for the piece that is not copied yet, are subtracted.

With --kernels, the kernels of gen-svc pack the weights in this format. Printed are the packed bytes that gen-svc logs,
the most anonymous memory of the process until the model is loaded, and the memory that a prompt of 512 tokens adds: its
keys and values, and the intermediate results of a step.
"""

import argparse
import contextlib
import json
import math
import pathlib
import re
import subprocess
import tempfile
import time

CONFIG = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
}
LIBTORCH = ["--device", "cpu-torch", "--dtype", "bf16", "--kv-memory-mib", "64"]
KERNELS = ["--log", "info", "--kv-memory-mib", "256", "--quantize"]
PROMPT = 512
# The bytes of a piece, which the README of gen-svc states for 32-bit floats.
PIECE = (32 << 20) // 2
# The available memory under which a measurement ends.
LEAST_AVAILABLE = 3 << 29
SECONDS_BETWEEN_SAMPLES = 0.005


def tensors(layers):
    """Yields the names and the shapes of the tensors."""
    hidden, feed_forward, vocabulary = (CONFIG[f"{name}_size"] for name in ("hidden", "intermediate", "vocab"))
    rows = {name: CONFIG["head_dim"] * CONFIG["num_attention_heads"] for name in ("q_proj", "o_proj")}
    rows |= {name: CONFIG["head_dim"] * CONFIG["num_key_value_heads"] for name in ("k_proj", "v_proj")}
    for name in ("model.embed_tokens", "lm_head"):
        yield name, [vocabulary, hidden]
    for start in (f"model.layers.{layer}" for layer in range(layers)):
        for name in ("input_layernorm", "post_attention_layernorm"):
            yield f"{start}.{name}", [hidden]
        for name, count in rows.items():
            yield f"{start}.self_attn.{name}", [count, hidden]
        for name in ("gate_proj", "up_proj"):
            yield f"{start}.mlp.{name}", [feed_forward, hidden]
        yield f"{start}.mlp.down_proj", [hidden, feed_forward]
    yield "model.norm", [hidden]


def write(folder, layers):
    """Writes a model whose numbers are zeros. Returns the bytes of its weights."""
    header, end = {}, 0
    for name, shape in tensors(layers):
        begin, end = end, end + 2 * math.prod(shape)
        header[f"{name}.weight"] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)
    (folder / "config.json").write_text(json.dumps({**CONFIG, "num_hidden_layers": layers}))
    vocabulary = {chr(0x10000 + token): token for token in range(CONFIG["vocab_size"])}
    tokenizer = {"version": "1.0", "model": {"type": "BPE", "vocab": vocabulary, "merges": []}}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    return end


def number(path, name):
    """Returns a number of a file in /proc, in bytes."""
    line = next(line for line in pathlib.Path(path).read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) << (10 if line.endswith("kB") else 0)


def excess(process, log, subtracts=True):
    """Returns the most anonymous bytes of the process until its model is loaded, beside its weights or with them."""
    most = 0
    while b"model loaded" not in log.read_bytes():
        if process.poll() is not None:
            raise SystemExit(f"gen-svc ended: {log.read_text()}")
        if number("/proc/meminfo", "MemAvailable") < LEAST_AVAILABLE:
            raise SystemExit("too little memory is available")
        own, read = number(f"/proc/{process.pid}/status", "RssAnon"), number(f"/proc/{process.pid}/io", "rchar")
        most = max(most, own - max(0, read - PIECE) if subtracts else own)
        time.sleep(SECONDS_BETWEEN_SAMPLES)
    return most


def with_libtorch(program, folder, log):
    command = [program, "serve", "--listen", "127.0.0.1:0", "--model", folder, *LIBTORCH]
    with log.open("wb") as file, subprocess.Popen(command, stdout=file, stderr=file) as process:
        try:
            return f"at most {excess(process, log) >> 20} MiB beside the weights"
        finally:
            process.kill()


def with_kernels(program, folder, log, kind):
    command = [program, "generate", "--jsonl", "--model", folder, *KERNELS, kind]
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file, text=True)
    try:
        most = excess(process, log, subtracts=False) >> 20
        packed = int(re.search(r"weights_mib\W+(\d+)", log.read_text())[1])
        loaded = number(f"/proc/{process.pid}/status", "RssAnon") >> 20
        request = {"token_ids": list(range(PROMPT)), "max_new_tokens": 1, "ignore_eos": True}
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.close()
        used = loaded
        while process.poll() is None:
            # A process that ends has no memory.
            with contextlib.suppress(StopIteration, FileNotFoundError):
                used = max(used, number(f"/proc/{process.pid}/status", "RssAnon") >> 20)
            time.sleep(SECONDS_BETWEEN_SAMPLES)
        share = 100 * (most - packed) / packed
        return f"packed {packed} MiB, while loading {most} MiB ({share:+.1f} %), a prompt adds {used - loaded} MiB"
    finally:
        process.kill()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--layers", type=int, nargs="+", default=[4, 16, 32])
    parser.add_argument("--kernels", choices=["int4", "int8"])
    arguments = parser.parse_args()
    for layers in arguments.layers:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            size, log = write(folder, layers), folder / "log"
            if arguments.kernels:
                result = with_kernels(arguments.program, folder, log, arguments.kernels)
            else:
                result = with_libtorch(arguments.program, folder, log)
            print(f"{layers} layers, {size / 2e9:.1f} billion parameters: {result}", flush=True)


if __name__ == "__main__":
    main()
