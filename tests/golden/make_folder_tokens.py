#!/usr/bin/env python3
"""Writes folder_tokens.json: the tokenizers of transformers for folders with added tokens in several files.

    pip install transformers==5.23.0 tokenizers==0.23.3
    python make_folder_tokens.py [FOLDERS] [SEED]

Without arguments, it writes the golden file. Its folders are those of NAMED, one per rule, and random
ones. A folder is a small `tokenizer.json` (one of BASES with its own added tokens and padding) and the
files beside it. For each folder that transformers loads, the file has:

- the added tokens by id, with their flags, and the ids of special tokens, which decoding skips;
- the named tokens, and the id of the eos token;
- for some texts: the ids, the byte range of each id, and the decoded text with and without special
  tokens, where these differ from the text.
"""

import json
import random
import sys
import tempfile
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast
from transformers.utils import logging

HERE = Path(__file__).parent
FLAGS = ["single_word", "lstrip", "rstrip", "normalized", "special"]
TRAINING = ["the user and the assistant say hello to the tool", "user assistant system tool call image pad end"] * 4
TEXTS = ["<s>user\nHi</s>", "x<tool>y  <TOOL> <tool>", "<|im_start|>user <|im_end|>", "<pad><img> the end"]
TOKENS = ["<s>", "</s>", "<tool>", "<|im_start|>", "<|im_end|>", "<pad>", "<img>", "user", "the", "tool", "<tool", "é", " e\u0301"]
STANDARD = ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"]


def byte_level(normalizer):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(TRAINING, trainers.BpeTrainer(vocab_size=280, initial_alphabet=alphabet, show_progress=False))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    return json.loads(tokenizer.to_str())


def sentencepiece():
    pieces = [f"<0x{byte:02X}>" for byte in range(256)] + list("▁abcdehilmnoprstuy<>/|_")
    merges = [("t", "h"), ("th", "e"), ("▁", "the"), ("u", "s"), ("us", "e"), ("use", "r"), ("▁", "user"), ("o", "l")]
    vocab = {piece: i for i, piece in enumerate(["<unk>", *pieces, *("".join(pair) for pair in merges)])}
    tokenizer = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(steps)
    return json.loads(tokenizer.to_str())


BASES = {"bytes": byte_level(None), "lower": byte_level(normalizers.Lowercase()), "pieces": sentencepiece()}


def token(content, **flags):
    return {"content": content, **{name: False for name in FLAGS}, **flags}


def added(*contents, start=280):
    return [{"id": start + i, **token(content, special=True)} for i, content in enumerate(contents)]


def folder(base="bytes", own=None, padding=None, config=None, **files):
    own = added("<s>", "</s>") if own is None else own
    config = {"bos_token": "<s>", "eos_token": "</s>"} if config is None else config
    return {"base": base, "added": own, "padding": padding, "config": config, "files": files}


def special(content, **flags):
    return token(content, special=True, **flags)


PLAIN = {"eos_token": "</s>"}
PADDING = {"strategy": "BatchLongest", "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0, "pad_token": "<pad>"}
# One folder per rule.
NAMED = {
    "nothing is added": folder(),
    "config lists tokens": folder(config={**PLAIN, "added_tokens_decoder": {"282": special("<|im_start|>"), "283": special("<|im_end|>")}}),
    "order of listed ids": folder(config={**PLAIN, "added_tokens_decoder": {"400": special("<img>"), "300": special("<tool>"), "9": special("<pad>")}}),
    "listed id of another token": folder(config={**PLAIN, "added_tokens_decoder": {"280": special("<tool>")}}),
    "flags of the config": folder(own=added("<s>", "</s>", "<tool>"), config={**PLAIN, "added_tokens_decoder": {"282": token("<tool>", rstrip=True)}}),
    "no longer special": folder(own=added("<s>", "</s>", "<tool>"), config={**PLAIN, "added_tokens_decoder": {"282": token("<tool>", normalized=True)}}),
    "map ignored with a list": folder(config={**PLAIN, "added_tokens_decoder": {}}, special_tokens_map={"eos_token": "<tool>"}),
    "map names eos": folder(config={"bos_token": "<s>"}, special_tokens_map={"eos_token": "<|im_end|>"}),
    "map replaces eos": folder(special_tokens_map={"eos_token": {"content": "<tool>", "lstrip": True, "rstrip": True, "normalized": True, "single_word": False}}),
    "map has extra tokens": folder(special_tokens_map={"additional_special_tokens": ["<tool>"]}),
    "config precedes the map's extra tokens": folder(config={**PLAIN, "additional_special_tokens": ["<img>"]}, special_tokens_map={"additional_special_tokens": ["<tool>"]}),
    "map joins extra tokens": folder(config={**PLAIN, "extra_special_tokens": ["<img>"]}, special_tokens_map={"extra_special_tokens": ["<tool>", "<img>", special("<pad>", lstrip=True)]}),
    "map names extra tokens": folder(config={**PLAIN, "extra_special_tokens": ["<img>"]}, special_tokens_map={"extra_special_tokens": {"image_token": "<tool>"}}),
    "added_tokens.json": folder(added_tokens={"<|im_start|>": 282, "<|im_end|>": 283}),
    "added_tokens.json and a special token": folder(config={**PLAIN, "pad_token": "<pad>", "extra_special_tokens": ["<img>"]}, added_tokens={"<img>": 290, "<pad>": 285, "<tool>": 283}),
    "added_tokens.json with a taken id": folder(added_tokens={"<tool>": 281, "<img>": 1}),
    "added_tokens.json beside a gap": folder(own=[*added("<s>", "</s>"), *added("<pad>", start=400)], added_tokens={"<tool>": 400, "<img>": 282}),
    "listed, so the other files are ignored": folder(config={**PLAIN, "added_tokens_decoder": {}}, added_tokens={"<tool>": 282}),
    "extra tokens": folder(config={**PLAIN, "extra_special_tokens": ["<tool>", "user"]}),
    "extra tokens with names": folder(config={**PLAIN, "extra_special_tokens": {"image_token": "<img>", "eos_token": "<tool>"}}),
    "older extra tokens": folder(config={**PLAIN, "additional_special_tokens": ["<tool>"], "extra_special_tokens": []}),
    "extra token with flags": folder(config={**PLAIN, "additional_special_tokens": [{"__type": "AddedToken", **token("<tool>", lstrip=True)}]}),
    "named token with flags": folder(config={"eos_token": {"__type": "AddedToken", **token("<tool>", rstrip=True, normalized=True)}}),
    "tokens of the model": folder(config={**PLAIN, "model_specific_special_tokens": {"image_token": "<img>", "tool_token": {"__type": "AddedToken", **token("<tool>", lstrip=True)}, "call": "<|im_start|>"}}),
    "tokens of the model with standard names": folder(config={**PLAIN, "model_specific_special_tokens": {"eos_token": "<tool>", "pad_token": "<pad>"}}),
    "tokens of the model beside a list": folder(config={**PLAIN, "added_tokens_decoder": {"290": token("<img>", rstrip=True)}, "model_specific_special_tokens": {"image_token": "<img>", "tool_token": "<tool>"}}),
    "tokens of the model beside one by its own key": folder(config={**PLAIN, "image_token": "<img>", "model_specific_special_tokens": {"tool_token": "<tool>"}}),
    "tokens of the model beside one with flags": folder(config={**PLAIN, "image_token": {"__type": "AddedToken", **token("<img>", lstrip=True)}, "model_specific_special_tokens": {"tool_token": "<tool>"}}),
    "tokens of the model beside extra tokens with names": folder(config={**PLAIN, "extra_special_tokens": {"image_token": "<img>"}, "model_specific_special_tokens": {"tool_token": "<tool>"}}),
    "tokens of the model beside extra tokens": folder(config={**PLAIN, "extra_special_tokens": ["<img>"], "model_specific_special_tokens": {"tool_token": "<tool>"}}),
    "tokens of the model and the map's": folder(config={**PLAIN, "model_specific_special_tokens": {"tool_token": "<tool>"}}, special_tokens_map={"extra_special_tokens": {"image_token": "<img>"}}),
    "no tokens of the model": folder(config={**PLAIN, "model_specific_special_tokens": None}),
    "names of the model": folder(config={**PLAIN, "image_token": "<img>", "tool_token": {"content": "<tool>"}, "x_token": 5}),
    "config precedes the map's own names": folder(config={**PLAIN, "image_token": "<img>"}, special_tokens_map={"image_token": "<tool>", "pad_token": None}),
    "a word becomes special": folder(config={**PLAIN, "pad_token": "the"}),
    "named plain token": folder(own=[*added("<s>"), {"id": 281, **token("<tool>")}], config={"eos_token": "<tool>"}),
    "named plain token beside a list": folder(own=[*added("<s>"), {"id": 281, **token("<tool>")}], config={"eos_token": "<tool>", "added_tokens_decoder": {}}),
    "padding names a token": folder(padding=PADDING),
    "padding and a null": folder(padding=PADDING, config={**PLAIN, "pad_token": None}),
    "special tokens are split": folder(config={"bos_token": "<s>", "eos_token": "</s>", "split_special_tokens": True}),
    "split tokens hide others": folder(own=[*added("<tool>"), {"id": 281, **token("tool>")}, {"id": 282, **token("<img>")}], config={"split_special_tokens": True}),
    "whole words": folder(config={**PLAIN, "added_tokens_decoder": {"282": token("tool", single_word=True), "283": token("<tool", lstrip=True, rstrip=True)}}),
    "normalized": folder(base="lower", config={**PLAIN, "added_tokens_decoder": {"282": token("<TOOL>", normalized=True), "283": token("<IMG>")}}),
    "marked spaces": folder(base="pieces", own=[], config={**PLAIN, "added_tokens_decoder": {"0": special("<unk>"), "300": token("<tool>", normalized=True), "301": special("<s>")}}),
    "empty tokens": folder(config={**PLAIN, "pad_token": "", "added_tokens_decoder": {"282": token("")}}),
}


def random_flags(random):
    return {name: random.random() < 0.3 for name in FLAGS}


def random_token(random):
    content = random.choice(TOKENS)
    return random.choice([content, content, {"__type": "AddedToken", **token(content, **random_flags(random))}])


def random_folder(random):
    base = random.choice(["bytes", "bytes", "lower", "pieces"])
    own = []
    for content in random.sample(TOKENS, random.randint(0, 3)):
        own.append({"id": 288 + len(own) + random.choice([0, 0, 0, 7]), **token(content, **random_flags(random))})
    config = {name: random_token(random) for name in random.sample(STANDARD, random.randint(0, 3))}
    if random.random() < 0.4:
        ids = random.sample(range(270, 310), random.randint(0, 4))
        config["added_tokens_decoder"] = {str(i): token(random.choice(TOKENS), **random_flags(random)) for i in ids}
    if random.random() < 0.3:
        key = random.choice(["additional_special_tokens", "extra_special_tokens"])
        tokens = [random_token(random) for _ in range(random.randint(0, 3))]
        names = ["image_token", "tool_token", "eos_token"]
        config[key] = random.choice([tokens, None, {name: random_token(random) for name in random.sample(names, 2)}])
    if random.random() < 0.3:
        config["image_token"] = random_token(random)
    if random.random() < 0.3:
        names = random.sample(["image_token", "tool_token", "eos_token", "own"], random.randint(0, 3))
        config["model_specific_special_tokens"] = {name: random_token(random) for name in names}
    if random.random() < 0.2:
        config["split_special_tokens"] = random.random() < 0.8
    files = {}
    if random.random() < 0.4:
        names = random.sample(STANDARD + ["image_token", "own_token"], random.randint(0, 3))
        files["special_tokens_map"] = {name: random.choice([random.choice(TOKENS), None, random_map_token(random)]) for name in names}
        key = random.choice(["additional_special_tokens", "extra_special_tokens", "x"])
        files["special_tokens_map"][key] = [random.choice(TOKENS) for _ in range(random.randint(0, 2))]
    if random.random() < 0.4:
        files["added_tokens"] = {content: random.randint(275, 310) for content in random.sample(TOKENS, random.randint(0, 4))}
    return folder(base, own, random.choice([None, None, None, PADDING]), config, **files)


def random_map_token(random):
    flags = {name: value for name, value in random_flags(random).items() if name != "special"}
    return {"content": random.choice(TOKENS), **flags}


def byte_offsets(text, offsets):
    """Converts character offsets to byte offsets: one list of alternating starts and ends."""
    at = [0]
    for char in text:
        at.append(at[-1] + len(char.encode()))
    return [at[position] for pair in offsets for position in pair]


def case(tokenizer, text):
    encoding = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    ids = encoding["input_ids"]
    out = {"text": text, "ids": ids, "offsets": byte_offsets(text, encoding["offset_mapping"])}
    decoded, skipped = tokenizer.decode(ids), tokenizer.decode(ids, skip_special_tokens=True)
    if decoded != text:
        out["decoded"] = decoded
    if skipped != decoded:
        out["skipped"] = skipped
    return out


def expected(spec, path):
    base = {**BASES[spec["base"]], "added_tokens": spec["added"], "padding": spec["padding"]}
    (path / "tokenizer.json").write_text(json.dumps(base))
    (path / "tokenizer_config.json").write_text(json.dumps(spec["config"]))
    for name, content in spec["files"].items():
        (path / f"{name}.json").write_text(json.dumps(content))
    try:
        tokenizer = PreTrainedTokenizerFast.from_pretrained(path)
    except Exception as error:  # an oracle that fails gives no expectation
        return {"error": type(error).__name__}
    tokens = tokenizer.added_tokens_decoder
    flags = lambda found: sum(getattr(found, name) << bit for bit, name in enumerate(FLAGS))
    # The library decodes a special token with another normal form instead of skipping it.
    skipped = [i for i in tokens if tokens[i].special or tokenizer.decode([i], skip_special_tokens=True) == ""]
    texts = [text.replace("the end", random.choice(list(map(str, tokens.values())) or [""]) + "s") for text in TEXTS]
    return {
        "tokens": [[i, found.content, flags(found)] for i, found in sorted(tokens.items())],
        "skipped": sorted(i for i in skipped if str(tokens[i])),
        "named": tokenizer.special_tokens_map,
        "eos": tokenizer.eos_token_id,
        "cases": [case(tokenizer, text) for text in texts],
    }


def main():
    logging.set_verbosity_error()
    count, seed = (int(argument) for argument in (sys.argv[1:] + ["20", "41"])[:2])
    random.seed(seed)
    specs = {**NAMED, **{f"random {i}": random_folder(random) for i in range(count)}}
    folders = []
    for name, spec in specs.items():
        with tempfile.TemporaryDirectory() as path:
            folders.append({"name": name, **spec, "expected": expected(spec, Path(path))})
    out = json.dumps({"bases": BASES, "folders": folders}, ensure_ascii=False, separators=(",", ":"))
    (HERE / "folder_tokens.json").write_text(out.replace('{"name"', '\n{"name"') + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
