#!/usr/bin/env python3
"""Compares llama.cpp's outputs for the GGUF files of the suite with architectures.json.

If llama.cpp agrees with transformers, the suite's files are equivalent to the files of llama.cpp's
own converter. The suite's GGUF code then agrees with more than itself.

    pip install xllamacpp==2026.10.11549
    mkdir tiny; TANDEM_KEEP=$PWD/tiny cargo test -p tandem-tests gguf_models_match_transformers
    python check_architectures.py tiny
"""

import json
import sys
from pathlib import Path

from llama_cpp import call, serve

HERE = Path(__file__).parent


def complete(address, prompt, count):
    """Returns `count` tokens of the greedy continuation."""
    request = {"prompt": prompt, "n_predict": count, "temperature": 0, "top_k": 1, "ignore_eos": True, "return_tokens": True}
    return call(address, "/completion", {**request, "cache_prompt": False})["tokens"]


def main(folder, names):
    for case in json.loads((HERE / "architectures.json").read_text())["cases"]:
        path = folder / f"{case['name']}.gguf"
        if not path.exists() or (names and case["name"] not in names):
            continue
        server = serve(path)
        agreed = []
        for prompt, expected in zip(case["prompts"], case["greedy"]):
            found = complete(server.listening_address, prompt, len(expected))
            pairs = zip(found, expected)
            agreed.append(next((i for i, (one, other) in enumerate(pairs) if one != other), len(found)))
        print(f"{case['name']}: equal leading tokens per prompt {agreed}, of {len(expected)}", flush=True)
        del server


main(Path(sys.argv[1]), sys.argv[2:])
