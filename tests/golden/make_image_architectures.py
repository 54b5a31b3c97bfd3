#!/usr/bin/env python3
"""Writes image_families/FAMILY.json: transformers' outputs for tiny models with images, and the pixel
values of their image processors under odd settings.

    pip install torch==2.13.0 torchvision==0.28.0 transformers==5.23.0 pillow==13.0.0 num2words
    python make_image_architectures.py [FAMILY...]

`image_families/FAMILY.py` has the settings of the models, and `image_cases.py` their images.

torch may be a CPU build. All values are computed in float32 on the CPU, one conversation at a time.

Nothing is downloaded. This script and the suite compute the same weights from a seed and the
tensor's name (`weight` below), and the same PNG files from a seed (`png` below). All weights are
exact in bfloat16. Files of other formats are in `image_files.json`.

An image processor has its settings and, for images of several sides, the shape and the digest of the
pixel values as 32-bit floats, or null if it refuses the image. This script and the suite compute the
images from their sides (`picture` below).

A seed is used only if the two largest logits differ enough at every greedy step, if no special
token is generated, and if mirrored pixels change every answer about an image. Two correct
implementations then choose the same tokens.
"""

import base64
import hashlib
import importlib
import io
import json
import sys
import tempfile
import warnings
import zlib
from pathlib import Path

import numpy
import torch
import transformers
from PIL import Image
from safetensors import safe_open
from safetensors.torch import save_file

from image_cases import CONVERSATIONS, FILES, IMAGES, PNGS

HERE = Path(__file__).parent
NEW_TOKENS = 32
SHOWN = 16  # the likeliest tokens after each prompt
SMALLEST_GAP = 1e-3
SPECIAL = 257  # the first special token

# How a tensor's weights are drawn, by a part of its name: the mean; a number that a random sign
# multiplies; the largest difference from them. The first row that fits is used.
WEIGHTS = [
    ["input_min", -2.0, 0.0, 0.5],
    ["output_min", -2.0, 0.0, 0.5],
    ["input_max", 2.0, 0.0, 0.5],
    ["output_max", 2.0, 0.0, 0.5],
    ["std_bias", 0.0, 0.0, 0.5],
    ["std_scale", 1.0, 0.0, 0.5],
    ["lambda_", 1.0, 0.0, 0.25],
    ["layer_scalar", 1.0, 0.0, 0.25],
    ["position_embedding", 0.0, 0.0, 0.5],
    ["pos_embed", 0.0, 0.0, 0.5],
    ["cls_token", 0.0, 0.0, 0.5],
    ["embed_tokens", 0.0, 0.0, 0.5],
    ["A_log", -3.0, 0.0, 0.5],  # recurrent states forget a few percent with each token
]

# ---- numbers ----


def scramble(counters):
    """Returns SplitMix64 of counters."""
    z = counters + numpy.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
    return z ^ (z >> numpy.uint64(31))


def scrambled(text, count):
    """Returns `count` numbers of a text's generator."""
    start = 0xCBF29CE484222325
    for byte in text.encode():
        start = ((start ^ byte) * 0x100000001B3) & ((1 << 64) - 1)
    return scramble(numpy.uint64(start) + numpy.arange(count, dtype=numpy.uint64))


def drawing(name, shape, rows):
    """Returns the mean, the signed number and the largest difference of a tensor's weights."""
    for part, *numbers in rows:
        if part in name:
            return numbers
    if len(shape) == 1:
        return [1.0, 0.0, 0.25] if name.endswith(".weight") else [0.0, 0.0, 0.25]
    inner, scale = int(numpy.prod(shape[1:])), 1.0
    while scale * scale * inner > 8:
        scale /= 2
    return [0.0, 0.0, scale]


def weight(seed, name, shape, rows, vocabulary):
    """Returns a tensor. The rows of special tokens are smaller, so that none is generated."""
    mean, signed, spread = drawing(name, shape, rows)
    drawn = scrambled(f"{seed}:{name}", int(numpy.prod(shape)))
    drawn = (drawn >> numpy.uint64(58)).astype(numpy.float64) / 32 - 1
    values = (mean + numpy.where(drawn < 0, -signed, signed) + spread * drawn).reshape(shape)
    if shape[:1] == [vocabulary]:
        values[SPECIAL:] /= 4
    tensor = torch.tensor(values).bfloat16()
    if not numpy.array_equal(tensor.double().numpy(), values):
        raise SystemExit(f"{name} is not exact in bfloat16")
    return tensor


# ---- images ----


def samples(seed, width, height, channels):
    """Returns the bytes [height, width, channels] of an image with 5 x 5 fields and noise."""
    y, x, channel = numpy.mgrid[0:height, 0:width, 0:channels].astype(numpy.uint64)
    five = numpy.uint64(5)
    field = (y * five // numpy.uint64(height)) * five + x * five // numpy.uint64(width)
    flat = scramble(numpy.uint64(seed << 32) + field * numpy.uint64(4) + channel) >> numpy.uint64(56)
    index = (y * numpy.uint64(width) + x) * numpy.uint64(channels) + channel
    noise = scramble(numpy.uint64((seed << 32) + (1 << 31)) + index) >> numpy.uint64(60)
    return (flat ^ noise).astype(numpy.uint8)


def chunk(kind, data):
    return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")


def stored(data):
    """Returns data in the zlib format, not compressed."""
    parts = [data[i : i + 65535] for i in range(0, len(data), 65535)]
    lengths = [len(part).to_bytes(2, "little") + (len(part) ^ 65535).to_bytes(2, "little") for part in parts]
    last = [i == len(parts) - 1 for i in range(len(parts))]
    body = b"".join(bytes([end]) + length + part for end, length, part in zip(last, lengths, parts))
    return b"\x78\x01" + body + zlib.adler32(data).to_bytes(4, "big")


def png(kind, width, height, orientation, seed):
    """Returns a PNG file."""
    color, channels = {"gray": (0, 1), "rgb": (2, 3), "palette": (3, 1), "gray_alpha": (4, 2), "rgba": (6, 4)}[kind]
    rows = samples(seed, width, height, channels)
    chunks = [chunk(b"IHDR", width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes([8, color, 0, 0, 0]))]
    if orientation:
        # A TIFF structure with one entry, 0x112, of the type 3 (16 bits).
        entry = bytes([1, 0x12, 0, 3, 0, 0, 0, 1, 0, orientation, 0, 0])
        chunks.append(chunk(b"eXIf", b"MM\0\x2a\0\0\0\x08\0\x01" + entry + bytes(4)))
    if kind == "palette":
        rows >>= 4
        chunks.append(chunk(b"PLTE", samples(seed + 1, 16, 1, 3).tobytes()))
        chunks.append(chunk(b"tRNS", samples(seed + 2, 16, 1, 1).tobytes()))
    data = b"".join(b"\0" + row.tobytes() for row in rows)
    chunks += [chunk(b"IDAT", stored(data)), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def other_files():
    """Returns the files of other formats."""
    files = {}
    for seed, (name, (mode, width, height, options)) in enumerate(FILES.items(), 1000):
        channels = {"RGBA": 4, "RGB": 3}.get(mode, 1)
        pixels = samples(seed, width, height, channels).squeeze()
        image = Image.fromarray(pixels // 16 if mode == "P" else pixels)
        if mode == "P":
            image.putpalette(samples(seed + 100, 16, 1, 3).tobytes())
        options, exif = dict(options), Image.Exif()
        if orientation := options.pop("orientation", None):
            exif[0x112] = orientation
            options["exif"] = exif
        data = io.BytesIO()
        image.save(data, format={"jpg": "JPEG"}.get(name[-3:], name.split(".")[1].upper()), **options)
        files[name] = data.getvalue()
    return files


def image_list(case_number, sides):
    """Returns the images of a case as the golden describes them: with these sides, if there are any."""
    if sides:
        seeds = enumerate(sides, 100 * case_number)
        return [{"kind": "rgb", "width": w, "height": h, "orientation": 0, "seed": seed} for seed, (w, h) in seeds]
    files, images = list(FILES), []
    for i, (kind, width, height, orientation) in enumerate(PNGS):
        images.append(
            {"kind": kind, "width": width, "height": height, "orientation": orientation, "seed": 100 * case_number + 3 * i}
        )
        if i % 3 == 2:
            images.append({"file": files[i // 3]})
    first = case_number * IMAGES
    chosen = [images[(first + i) % len(images)] for i in range(IMAGES)]
    # transformers cannot compute a prompt of Mistral 3 whose images have one token in all: the
    # smallest images are in a conversation about two.
    return sorted(chosen, key=lambda image: image.get("width", 99) * image.get("height", 99) < 100)


def conversations(case_number, sides):
    """Returns the conversations as the golden has them."""
    images = image_list(case_number, sides)
    block = lambda part: {"type": "text", "text": part} if isinstance(part, str) else {"type": "image", **images[part]}
    return [
        [{"role": role, "content": [block(part) for part in parts]} for role, parts in turns] for turns in CONVERSATIONS
    ]


def encoded(messages, files):
    """Returns messages with the data of their images."""

    def block(given):
        if given["type"] == "text":
            return given
        settings = {key: value for key, value in given.items() if key != "type"}
        data = files[given["file"]] if "file" in given else png(**settings)
        return {"type": "image", "base64": base64.b64encode(data).decode()}

    return [{**message, "content": [block(given) for given in message["content"]]} for message in messages]


# ---- models ----


def letters():
    """Returns the letters of the bytes in a byte-level vocabulary."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(byte) if byte in printable else chr(0x100 + others.index(byte)) for byte in range(256)]


def tokenizer(tokens):
    """Returns tokenizer.json: the bytes, two newlines, the special tokens."""
    vocabulary = {letter: i for i, letter in enumerate(letters())}
    newline = letters()[10]
    vocabulary[newline * 2] = SPECIAL - 1
    options = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    added = [{"id": i, "content": token, **options} for i, token in enumerate(tokens, SPECIAL)]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    model = {"type": "BPE", "vocab": vocabulary, "merges": [[newline, newline]]}
    return {"version": "1.0", "added_tokens": added, "pre_tokenizer": level, "decoder": level, "model": model}


def folder_files(family, case):
    """Returns the JSON files of a case's folder, except tokenizer.json."""
    ids = {token: i for i, token in enumerate(family.TOKENS, SPECIAL)}
    size = SPECIAL + len(ids)
    named = family.TOKENIZER
    own = {key.replace("_token", "_token_id"): ids[token] for key, token in named.items() if key in TOKENS}
    config = {**case["config"], **{key: ids[token] for key, token in family.IDS.items()}}
    text = config.get("text_config", config)
    text |= {"vocab_size": size, **own}
    if "hidden_size_per_layer_input" in text:
        text["vocab_size_per_layer_input"] = size
    for key in [key for key, value in text.items() if value is None and key != "sliding_window"]:
        if key != "audio_config":
            del text[key]
    files = {
        "config.json": config,
        "generation_config.json": {"eos_token_id": own["eos_token_id"]},
        "processor_config.json": case["processor"],
        "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", **named},
    }
    if "preprocessor" in case:
        files["preprocessor_config.json"] = case["preprocessor"]
    return files, size


TOKENS = ["bos_token", "eos_token", "pad_token"]


def write(folder, name, value):
    (folder / name).write_text(value if isinstance(value, str) else json.dumps(value))


def checkpoint_shapes(folder, rename):
    """Returns the shapes of a folder's tensors as a checkpoint names them."""
    config = transformers.AutoConfig.from_pretrained(folder)
    model = transformers.AutoModelForImageTextToText.from_config(config)
    shapes = {}
    with tempfile.TemporaryDirectory() as saved:
        model.save_pretrained(saved)
        with safe_open(Path(saved) / "model.safetensors", "pt") as file:
            for name in file.keys():
                renamed = name
                for old, new in rename.items():
                    renamed = new + name.removeprefix(old) if name.startswith(old) else renamed
                shapes[renamed] = list(file.get_slice(name).get_shape())
    return dict(sorted(shapes.items()))


def load(folder, seed, shapes, rows, vocabulary):
    """Writes the weights of a seed. Returns the loaded model."""
    tensors = {name: weight(seed, name, shape, rows, vocabulary) for name, shape in shapes.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    model, info = transformers.AutoModelForImageTextToText.from_pretrained(
        folder, attn_implementation="eager", dtype="float32", output_loading_info=True
    )
    wrong = {key: value for key, value in info.items() if value}
    if wrong:
        raise SystemExit(f"the weights do not fit: {wrong}")
    return model.eval()


# ---- results ----


def pixels(inputs):
    """Returns the values of all images in order, without padding."""
    values = inputs["pixel_values"]
    if "image_position_ids" in inputs:  # Gemma 4
        values = values[inputs["image_position_ids"][..., 0] >= 0]
    elif "image_sizes" in inputs and values.dim() == 5:  # LLaVA-NeXT: tiles of zeros are padding
        values = values[values.flatten(2).any(-1)]
    elif "image_sizes" in inputs:  # Mistral 3
        sizes = inputs["image_sizes"].tolist()
        return torch.cat([image[:, :height, :width].flatten() for image, (height, width) in zip(values, sizes)])
    return values.flatten()


def greedy(model, inputs):
    """Returns the logits after the prompt, the greedy tokens, and the smallest gap between the two
    largest logits."""
    length = inputs["input_ids"].shape[1]
    model.generation_config.eos_token_id = None
    output = model.generate(
        **inputs, max_new_tokens=NEW_TOKENS, do_sample=False, output_logits=True, return_dict_in_generate=True
    )
    logits = torch.stack([step[0] for step in output.logits])
    top = logits.topk(2).values
    return logits[0], output.sequences[0, length:].tolist(), float((top[:, 0] - top[:, 1]).min())


NOT_MODEL_INPUTS = ["num_crops", "num_soft_tokens_per_image", "rows", "cols"]


def encode(processor, messages):
    encoded = processor.apply_chat_template(
        messages, tokenize=True, return_dict=True, return_tensors="pt", add_generation_prompt=True
    )
    return {key: value for key, value in encoded.items() if key not in NOT_MODEL_INPUTS}


def shortened(ids):
    """Returns ids in which [id, count] replaces a longer run of one id."""
    runs = []
    for id in ids:
        if runs and runs[-1][0] == id:
            runs[-1][1] += 1
        else:
            runs.append([id, 1])
    return [part for id, count in runs for part in ([[id, count]] if count > 3 else [id] * count)]


def result(model, inputs, messages):
    """Returns the golden of a conversation, or None if the seed does not serve."""
    logits, new, gap = greedy(model, inputs)
    if gap < SMALLEST_GAP or max(new) >= SPECIAL:
        return None
    found = {"messages": messages, "pixels": None, "prompt": shortened(inputs["input_ids"][0].tolist())}
    if "pixel_values" in inputs:
        mirrored = {**inputs, "pixel_values": inputs["pixel_values"].flip(-1) * 0.9 + 0.05}
        if greedy(model, mirrored)[1] == new:
            return None
        values = pixels(inputs).float().numpy().astype("<f4")
        found["pixels"] = hashlib.sha256(values.tobytes()).hexdigest()
    top = logits.log_softmax(-1).topk(SHOWN)
    found["likeliest"] = [[id, round(value, 5)] for id, value in zip(top.indices.tolist(), top.values.tolist())]
    return found | {"greedy": new}, gap


def seeded(family, name, case_number, files):
    """Returns the golden of a case, with the first seed that serves."""
    case = family.CASES[name]
    own, vocabulary = folder_files(family, case)
    rows = WEIGHTS + norms(case.get("norms_around", 1.0))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for file, value in own.items():
            write(folder, file, value)
        write(folder, "tokenizer.json", tokenizer(family.TOKENS))
        write(folder, "chat_template.jinja", family.TEMPLATE)
        shapes = checkpoint_shapes(folder, case.get("rename", {}))
        processor = transformers.AutoProcessor.from_pretrained(folder)
        prompts = conversations(case_number, case.get("sides"))
        inputs = [encode(processor, encoded(messages, files)) for messages in prompts]
        for seed in range(300):
            model = load(folder, seed, shapes, rows, vocabulary)
            results = []
            for given, messages in zip(inputs, prompts):
                results.append(result(model, given, messages))
                if results[-1] is None:
                    break
            else:
                break
        else:
            raise SystemExit(f"{name}: no seed serves")
    found, gaps = zip(*results)
    distinct = len({id for each in found for id in each["greedy"]})
    lengths = [each["input_ids"].shape[1] for each in inputs]
    print(f"{name}: seed {seed}, smallest gap {min(gaps):.4f}, {distinct} distinct tokens, prompts {lengths}", flush=True)
    return {
        "name": name,
        "seed": seed,
        "files": own,
        "weights": rows,
        "tensors": shapes,
        "conversations": found,
    }


def norms(around):
    """Returns the rows of the language model's norms. Gemma 3 adds 1 to their weights. The signs of
    the last norm keep tied embeddings from repeating the last token."""
    rows = [["model.norm.weight", around - 1.0, 1.25, 0.0]]
    if around != 1.0:
        rows += [[part, around, 0.0, 0.25] for part in ["soft_emb_norm", "q_norm", "k_norm", "input_layernorm"]]
        rows += [[part, around, 0.0, 0.25] for part in ["attention_layernorm", "feedforward_layernorm"]]
    return rows


# ---- odd settings ----


def picture(width, height):
    """Returns an image [3, height, width]."""
    channel, y, x = numpy.mgrid[0:3, 0:height, 0:width]
    return torch.from_numpy(((3 * x * x + 7 * y + x * y + 85 * channel) % 256).astype(numpy.uint8))


SETTINGS = [
    {"resample": 0},
    {"do_rescale": False},
    {"do_rescale": None, "do_normalize": True, "image_mean": [120.0, 110.5, 99.9], "image_std": [60.1, 57.0, 59.3]},
    {"do_rescale": False, "do_normalize": False},
    {"do_resize": False},
    {"do_resize": None, "resample": 0, "do_convert_rgb": False},
]
# Sides for every class. Some classes take some of them without a resize.
SIDES = [(50, 37), (120, 47), (3, 5), (8, 8), (56, 56), (40, 60), (300, 200)]


def prepared(odd, processor, image):
    """Returns the shape and the digest of the pixel values, or None."""
    # The sides of an image that is not resized are multiples of the first number, at least the second. The
    # image processors take others, with which the models fail.
    unit, least = odd.get("cells", (1, 1))
    if not processor.do_resize and any(side % unit or side < least for side in image.shape[1:]):
        return None
    try:
        values = processor(image, return_tensors="pt", **odd.get("call", {}))["pixel_values"]
    except Exception as error:
        print(f"{odd['image_processor_type']} {list(image.shape)}: {str(error).splitlines()[0][:80]}")
        return None
    digest = hashlib.sha256(values.float().numpy().astype("<f4").tobytes()).hexdigest()
    return {"shape": list(values.shape), "sha256": digest}


def processors(family):
    """Returns the results of a family's image processor with each setting."""
    if not (odd := getattr(family, "ODD", None)):
        return []
    rows, kind = [], odd["image_processor_type"]
    for settings in SETTINGS:
        given = {**odd["settings"], **settings}
        processor = getattr(transformers, kind)(**given)
        images = [{"sides": sides, "result": prepared(odd, processor, picture(*sides))} for sides in SIDES]
        preprocessor = {"image_processor_type": kind, **given}
        rows.append({"processor": odd["processor"], "preprocessor": preprocessor, "images": images})
    return rows


def main():
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    folder = HERE / "image_families"
    files = other_files()
    lines = lambda rows: ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    encoded = [f"{json.dumps(name)}:{json.dumps(base64.b64encode(data).decode())}" for name, data in files.items()]
    (HERE / "image_files.json").write_text("{\n" + ",\n".join(encoded) + "\n}\n")
    for name in sys.argv[1:] or sorted(path.stem for path in folder.glob("*.py")):
        family = importlib.import_module(f"image_families.{name}")
        with torch.no_grad():
            cases = [seeded(family, case, number, files) for number, case in enumerate(family.CASES, family.FIRST)]
        head = {
            "made_with": {"torch": torch.__version__, "transformers": transformers.__version__},
            "tokens": family.TOKENS,
            "template": family.TEMPLATE,
        }
        head = json.dumps(head, separators=(",", ":"))[:-1]
        text = f'{head},"cases":[\n{lines(cases)}\n],"processors":[\n{lines(processors(family))}\n]}}\n'
        (folder / f"{name}.json").write_text(text)


if __name__ == "__main__":
    main()
