#!/usr/bin/env python3
"""Writes image_processors.json: how transformers' default loader treats odd files, and which chat
template its processors apply.

    pip install torch==2.13.0 torchvision==0.28.0 transformers==5.23.0 pillow==13.0.0
    python make_image_processors.py

torch may be a CPU build. Nothing is downloaded. A file has the digest of its decoded bytes, by row,
column and channel, or null if the loader refuses it. Bitmaps are read by Pillow, because the default
loader refuses them all. libjpeg-turbo decodes some damaged files differently without vector
instructions; such a file has that result too, as "portable".

A row of templates has the files of a folder that may contain chat templates, and the text of the default
template that AutoProcessor applies.
"""

import base64
import hashlib
import io
import json
import os
import random
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import numpy
import tokenizers
import torch
import transformers
from PIL import Image, ImageFilter
from transformers.image_utils import load_image, load_image_as_tensor

from image_families import gemma3

HERE = Path(__file__).parent
# The argument of the process that prints results without vector instructions.
PORTABLE = "--portable"

# ---- files ----


def blurred(seed, width, height, channels=3):
    """Returns an image with soft edges."""
    noise = numpy.random.default_rng(seed).integers(0, 256, (height, width, channels), dtype=numpy.uint8)
    image = Image.fromarray(noise.squeeze(-1) if channels == 1 else noise, "CMYK" if channels == 4 else None)
    return image.filter(ImageFilter.GaussianBlur(2))


def saved(image, kind, **options):
    data = io.BytesIO()
    image.save(data, kind, **options)
    return data.getvalue()


def turned_files():
    """Yields a file of each format that may have an EXIF orientation."""
    image, exif = blurred(1, 12, 7), Image.Exif()
    for orientation in (3, 6):
        exif[0x112] = orientation
        for kind, options in [("JPEG", {}), ("PNG", {}), ("WEBP", {"lossless": True}), ("WEBP", {"quality": 60})]:
            yield f"{kind}_{orientation}_{len(options)}", saved(image, kind, exif=exif.tobytes(), **options)


JPEGS = {
    "baseline": (40, 33, 3, {"quality": 80}),
    "whole_chroma": (23, 31, 3, {"quality": 60, "subsampling": 0}),
    "progressive": (37, 40, 3, {"quality": 75, "progressive": True}),
    "restarts": (48, 32, 3, {"quality": 70, "restart_marker_blocks": 2}),
    "gray": (30, 30, 1, {"quality": 75}),
    "cmyk": (24, 24, 4, {"quality": 80}),
}


def damaged_jpegs():
    """Yields JPEG files that are cut or have wrong bytes."""
    chance = random.Random(8)
    for seed, (name, (width, height, channels, options)) in enumerate(JPEGS.items()):
        whole = saved(blurred(seed, width, height, channels), "JPEG", **options)
        start = whole.index(b"\xff\xda") + 14
        place = lambda: chance.randrange(start, len(whole) - 2)
        yield f"{name}_whole", whole
        yield f"{name}_cut", whole[: place()]
        yield f"{name}_without_end", whole[:-2]
        yield f"{name}_early_end", whole[: place()] + b"\xff\xd9"
        at = place()
        yield f"{name}_lost_bytes", whole[:at] + whole[min(at + 9, len(whole) - 2) :]
        for i in range(3):
            wrong = bytearray(whole)
            for _ in range(i + 1):
                wrong[place()] ^= 1 << chance.randrange(8)
            yield f"{name}_wrong_bits_{i}", bytes(wrong)


def bitmap(width, height, bits, runs, colors, declared=None):
    """Returns a BMP file with run-length-encoded pixels."""
    palette = b"".join(bytes([7 * i % 256, 255 - i, 31 * i % 256, 0]) for i in range(1, colors + 1))
    offset = 54 + len(palette)
    header = [40, width, height, 1 | bits << 16, {8: 1, 4: 2}[bits], len(runs), 0, 0, declared or colors, 0]
    numbers = b"".join(number.to_bytes(4, "little") for number in header)
    return b"BM" + (offset + len(runs)).to_bytes(4, "little") + bytes(4) + offset.to_bytes(4, "little") + numbers + palette + runs


def bitmaps():
    """Yields BMP files whose runs are whole, short, or skip pixels."""
    rows8 = [bytes([5, 3, 1, 9, 0, 0]), bytes([0, 3, 4, 5, 6, 0, 3, 2, 0, 0]), bytes([2, 1, 0, 0]), bytes([6, 8, 0, 1])]
    rows4 = [bytes([6, 0x12, 0, 0]), bytes([0, 6, 0x12, 0x34, 0x56, 0, 0, 0]), bytes([3, 0x77, 0, 0]), bytes([6, 0xAB, 0, 1])]
    for bits, rows, colors in [(8, rows8, 16), (4, rows4, 16)]:
        runs = b"".join(rows)
        yield f"rle{bits}", bitmap(6, 4, bits, runs, colors)
        for length in [0, 1, len(rows[0]), len(runs) // 2, len(runs) - 4, len(runs) - 3, len(runs) - 2, len(runs) - 1]:
            yield f"rle{bits}_of_{length}_bytes", bitmap(6, 4, bits, runs[:length], colors)
        yield f"rle{bits}_early_end", bitmap(6, 4, bits, rows[0] + bytes([0, 1]), colors)
        yield f"rle{bits}_delta", bitmap(6, 4, bits, rows[0] + bytes([0, 2, 2, 1, 4, 0x99, 0, 0, 6, 0x33, 0, 1]), colors)


def decoded(data, name):
    """Returns the sides and the digest of a file, or None."""
    text = base64.b64encode(data).decode()
    try:
        if data[:2] == b"BM":
            pixels = numpy.asarray(load_image(text))
        else:
            pixels = load_image_as_tensor(text).permute(1, 2, 0).numpy()
    except Exception as error:
        print(f"{name}: {str(error).splitlines()[0][:80]}")
        return None
    height, width, _ = pixels.shape
    return {"width": width, "height": height, "sha256": hashlib.sha256(pixels.tobytes()).hexdigest()}


# ---- chat templates ----

JINJA = {"chat_template.jinja": "from a file"}
LEGACY = {"chat_template.json": json.dumps({"chat_template": "from chat_template.json"})}
NAMED = {"additional_chat_templates/rag.jinja": "named"}
FOLDERS = {
    "file": (JINJA, {}),
    "file_and_named": (JINJA | NAMED, {}),
    "legacy": (LEGACY, {}),
    "legacy_and_file": (LEGACY | JINJA, {}),
    "processor": (JINJA, {"chat_template": "from the processor"}),
    "processor_and_legacy": (LEGACY | JINJA, {"chat_template": "from the processor"}),
    "several_of_the_processor": (JINJA, {"chat_template": {"default": "the default one", "rag": "another"}}),
    "null_of_the_processor": (LEGACY | JINJA, {"chat_template": None}),
}


def templates():
    """Yields folders and the templates that their processors apply."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.add_special_tokens(gemma3.TOKENS)
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": "of the tokenizer", **gemma3.TOKENIZER}
    for name, (files, processor) in FOLDERS.items():
        own = {"processor_class": "Gemma3Processor", "image_seq_length": 4, **processor}
        files = files | {
            "processor_config.json": json.dumps(own),
            "preprocessor_config.json": json.dumps({"image_processor_type": "Gemma3ImageProcessor"}),
            "tokenizer_config.json": json.dumps(settings),
        }
        with tempfile.TemporaryDirectory() as folder:
            for file, text in files.items():
                path = Path(folder) / file
                path.parent.mkdir(exist_ok=True)
                path.write_text(text)
            tokenizer.save(f"{folder}/tokenizer.json")
            loaded = transformers.AutoProcessor.from_pretrained(folder)
            yield {"name": name, "files": files, "default": loaded.apply_chat_template([{"role": "user", "content": "x"}])}


def odd_files():
    """Returns the rows of all files, with the results of this process."""
    return [
        {"name": name, "data": base64.b64encode(data).decode(), "result": decoded(data, name)}
        for name, data in [*turned_files(), *damaged_jpegs(), *bitmaps()]
    ]


def portable_results():
    """Returns the results of all files by a process whose libjpeg-turbo uses no vector instructions."""
    command = [sys.executable, __file__, PORTABLE]
    done = subprocess.run(command, env={**os.environ, "JSIMD_FORCENONE": "1"}, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main():
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    files = odd_files()
    if PORTABLE in sys.argv:
        print(json.dumps([file["result"] for file in files]))
        return
    for file, portable in zip(files, portable_results()):
        if portable != file["result"]:
            file["portable"] = portable
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    lines = lambda rows: ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    text = f'{{"made_with":{json.dumps(versions)},\n"files":[\n{lines(files)}\n],\n"templates":[\n{lines(templates())}\n]}}\n'
    (HERE / "image_processors.json").write_text(text)


main()
