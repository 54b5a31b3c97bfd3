#!/usr/bin/env python3
"""Compares llama.cpp's answers about images with those of gen-svc, from the same GGUF files.

The suite converts tiny models as llama.cpp's converter does. If llama.cpp reads the files and agrees,
the suite's files are equivalent to the converter's, and gen-svc reads them as llama.cpp does.

llama.cpp resizes images with its own resampling. The images here need none.

    pip install xllamacpp==2026.10.11549
    mkdir tiny; TANDEM_KEEP=$PWD/tiny cargo test -p tandem-tests-full files_for_llama_cpp
    python check_mmproj.py tiny
"""

import json
import re
import sys
from pathlib import Path

from llama_cpp import call, serve

# The image tokens of gen-svc's prompt with the tokens around them, which llama.cpp adds itself.
IMAGES = [
    r"<start_of_image>(<image_soft_token>)+<end_of_image>",
    r"<\|vision_start\|>(<\|image_pad\|>)+<\|vision_end\|>",
    r"<fake_token_around_image>.*<image><fake_token_around_image>",
]

# The largest difference of the log-probability of a likely token. llama.cpp computes GELU from a table
# of f16.
TOLERANCE = 0.02


def compare(case, answer):
    """Returns the equal leading tokens, the steps with probabilities, and their largest difference.

    llama.cpp leaves out the probabilities of a token that ends within a character, so that only those
    before the first such token can be compared.
    """
    tokens = [step["id"] for step in case["steps"]]
    pairs = enumerate(zip(answer["tokens"], tokens))
    equal = next((i for i, (found, expected) in pairs if found != expected), len(tokens))
    compared, distance = 0, 0.0
    for step, found in zip(case["steps"][:equal], answer["completion_probabilities"]):
        if found["id"] != step["id"]:
            break
        expected = dict(map(tuple, step["top"][:5]))
        pairs = [(top["logprob"], expected[top["id"]]) for top in found["top_logprobs"] if top["id"] in expected]
        distance = max([distance] + [abs(one - other) for one, other in pairs])
        compared += 1
    return equal, compared, distance


def main(folder):
    failed = False
    for path in sorted(folder.glob("*.json")):
        case = json.loads(path.read_text())
        server = serve(folder / f"{path.stem}.gguf", folder / f"mmproj-{path.stem}.gguf")
        address = server.listening_address
        marker = call(address, "/props").get("media_marker", "<__media__>")
        text = case["prompt"]
        for pattern in IMAGES:
            text = re.sub(pattern, marker, text, flags=re.DOTALL)
        request = {"prompt": {"prompt_string": text, "multimodal_data": [case["image"]]}, "cache_prompt": False}
        sampling = {"n_predict": len(case["steps"]), "temperature": 0, "top_k": 1, "ignore_eos": True}
        answer = call(address, "/completion", {**request, **sampling, "n_probs": 20, "return_tokens": True})
        equal, compared, distance = compare(case, answer)
        tokens = answer["tokens_evaluated"]
        print(f"{path.stem}: prompt of {tokens} tokens (gen-svc: {case['tokens']}), equal leading tokens {equal} of "
              f"{len(case['steps'])}, largest difference of a log-probability in {compared} steps {distance:.5f}")
        failed |= tokens != case["tokens"] or equal != len(case["steps"]) or not compared or distance > TOLERANCE
        del server
    sys.exit(failed)


main(Path(sys.argv[1]))
