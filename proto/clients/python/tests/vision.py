"""A tiny model with images, and conversations with the tokens that transformers generates for them.

`python vision.py FOLDER` writes the model, and prints the conversations as JSON. The tests of the TypeScript
package use it too. The weights are those of tests/golden/make_image_architectures.py: integer arithmetic from
a seed and the tensor's name, here without numpy.
"""

import json
import math
import struct
import sys
from pathlib import Path

GOLDEN = Path(__file__).parents[4] / "tests/golden"
CASE = "gemma3_without_windows"
SPECIAL = 257  # the first special token
MASK = (1 << 64) - 1


def read(name):
    """Returns the golden of a model, and that of its family."""
    families = [json.loads(path.read_text(encoding="utf8")) for path in (GOLDEN / "image_families").glob("*.json")]
    return next((case, family) for family in families for case in family["cases"] if case["name"] == name)


def write_model(folder, name=CASE):
    """Writes the files of a model of the golden."""
    case, family = read(name)
    files = {**case["files"], "tokenizer.json": tokenizer(family["tokens"])}
    for file, value in files.items():
        (folder / file).write_text(json.dumps(value), encoding="utf8")
    (folder / "chat_template.jinja").write_text(family["template"], encoding="utf8")
    (folder / "model.safetensors").write_bytes(safetensors(case, SPECIAL + len(family["tokens"])))


def conversations(name=CASE):
    """Returns the conversations whose images are all files: messages with base64 data, ids of prompt and answer."""
    case, _ = read(name)
    data = json.loads((GOLDEN / "image_files.json").read_text(encoding="utf8"))
    found = []
    for given in case["conversations"]:
        images = [block for message in given["messages"] for block in message["content"] if block["type"] == "image"]
        if images and all("file" in image for image in images):
            for image in images:
                image["base64"] = data[image.pop("file")]
            found.append({"messages": given["messages"], "prompt": given["prompt"], "greedy": given["greedy"]})
    return found


def tokenizer(tokens):
    """Returns tokenizer.json: the bytes, two newlines, the special tokens."""
    others = (chr(0x100 + i) for i in range(256))
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    vocabulary = {chr(byte) if byte in printable else next(others): byte for byte in range(256)}
    newline = "\u010a"
    flags = {"special": True, "normalized": False, "single_word": False, "lstrip": False, "rstrip": False}
    added = [{"id": SPECIAL + i, "content": token, **flags} for i, token in enumerate(tokens)]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    merges = {"vocab": {**vocabulary, newline * 2: SPECIAL - 1}, "merges": [[newline, newline]]}
    model = {"type": "BPE", **merges}
    return {"version": "1.0", "added_tokens": added, "model": model, "pre_tokenizer": level, "decoder": level}


def safetensors(case, vocabulary):
    header, data = {}, b""
    for name, shape in case["tensors"].items():
        weights = tensor(case["seed"], name, shape, case["weights"], vocabulary)
        packed = struct.pack(f"<{len(weights)}f", *weights)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(packed)]}
        data += packed
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def tensor(seed, name, shape, rows, vocabulary):
    """Returns the weights of a tensor. The rows of special tokens are smaller, so that none is generated."""
    mean, signed, spread = drawing(name, shape, rows)
    start = 0xCBF29CE484222325
    for byte in f"{seed}:{name}".encode():
        start = ((start ^ byte) * 0x100000001B3) & MASK
    weights, width = [], math.prod(shape[1:])
    for i in range(math.prod(shape)):
        drawn = (scramble(start + i) >> 58) / 32 - 1
        value = mean + (-signed if drawn < 0 else signed) + spread * drawn
        is_special = shape[0] == vocabulary and i >= SPECIAL * width
        weights.append(value / 4 if is_special else value)
    return weights


def drawing(name, shape, rows):
    """Returns the mean, the signed number and the largest difference of a tensor's weights."""
    for part, *numbers in rows:
        if part in name:
            return numbers
    if len(shape) == 1:
        return [1.0, 0.0, 0.25] if name.endswith(".weight") else [0.0, 0.0, 0.25]
    inner, scale = math.prod(shape[1:]), 1.0
    while scale * scale * inner > 8:
        scale /= 2
    return [0.0, 0.0, scale]


def scramble(counter):
    """Returns SplitMix64 of a counter."""
    z = (counter + 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


if __name__ == "__main__":
    write_model(Path(sys.argv[1]))
    print(json.dumps(conversations()))
