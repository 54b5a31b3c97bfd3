#!/usr/bin/env python3
"""Compares the goldens of the DeepSeek families with the prompts of the official encoders.

    python check_deepseek.py FOLDER

FOLDER contains `encoding_dsv32.py`, from the folder `encoding` of deepseek-ai/DeepSeek-V3.2, and
`encoding_dsv4.py` of DeepSeek-V4-Flash-0731, which the Python package xinference 4.1.0 contains. The
goldens were compared with the files of these SHA-256 digests:

    5e068c2ba2a6e5ebe37a49bb005650c507e7935d77a32f3f7c11ee071498b370  encoding_dsv32.py
    abc0d26120250dda0ae077dc64aa28836026e61e970854aaeb792445e6a0dde6  encoding_dsv4.py
"""

import importlib
import inspect
import json
import sys
from pathlib import Path

HERE = Path(__file__).parent
ENCODERS = {"deepseek-v3.2": "encoding_dsv32", "deepseek-v4": "encoding_dsv4"}

# The encoders have no such arguments, and V3.2's encoder prints lists of text blocks as Python does.
NOT_OF_THE_ENCODERS = {
    "an_empty_list_of_blocks_is_written_as_nothing",
    "no_turn_is_begun_without_a_generation_prompt",
    "text_blocks_of_the_context_are_joined",
    "the_final_message_is_continued",
}


def encoded(family, encode, request):
    """Returns the encoder's prompt for a golden's request."""
    messages, arguments = request["messages"], request.get("template_args", {})
    arguments = {name: value for name, value in arguments.items() if name in inspect.signature(encode).parameters}
    arguments.setdefault("thinking_mode", "chat")
    if family == "deepseek-v3.2":
        # The caller of V3.2's encoder drops reasoning only if the user asks next.
        arguments.setdefault("drop_thinking", messages[-1]["role"] == "user")
    if request.get("tools"):
        if messages[0]["role"] != "system":
            messages.insert(0, {"role": "system", "content": ""})
        messages[0]["tools"] = request["tools"]
    return encode(messages, **arguments)


def main(folder):
    sys.path.insert(0, folder)
    different = 0
    for family, encoder in ENCODERS.items():
        encode = importlib.import_module(encoder).encode_messages
        requests = [path for path in sorted((HERE / family).glob("*.json")) if path.stem not in NOT_OF_THE_ENCODERS]
        for path in requests:
            expected = path.with_suffix(".txt").read_bytes().decode()
            if encoded(family, encode, json.loads(path.read_text())) != expected:
                different += 1
                print(f"{family}/{path.stem} differs")
        print(f"{family}: {len(requests)} compared")
    return min(different, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
