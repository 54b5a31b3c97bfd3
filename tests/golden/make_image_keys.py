#!/usr/bin/env python3
"""Writes image_keys.json: transformers' outputs for tiny models with images and one changed key of the config.

    pip install torch==2.13.0 torchvision==0.28.0 transformers==5.23.0 pillow==13.0.0 num2words
    python make_image_keys.py

torch may be a CPU build. All values are computed in float32 on the CPU.

The models are those of `image_families`, with their weights and a prompt with an image. Each key of a
section of the config, and each key of the section's class, is left out, set to null and set to another
value. The weights stay, so that a model with tensors of other shapes, or with more tensors, cannot be loaded.

A result has the likeliest tokens after the prompt with their log-probabilities, or the reason why there are
none. For each key of a class, the default is saved too.
"""

import base64
import copy
import dataclasses
import importlib
import json
import tempfile
import warnings
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file

from make_config_keys import UNUSED
from make_image_architectures import conversations, encode, encoded, tokenizer, weight, write

HERE = Path(__file__).parent
SHOWN = 4
MOST_PARAMETERS = 1_000_000
# The number of the conversation, which has one image.
CONVERSATION = 3

# The models, and the sections whose keys are changed: the whole config is "".
IMAGES = ["", "vision_config"]
MODELS = {
    "smolvlm_whole_images": IMAGES,
    "idefics3": IMAGES,
    "gemma3_small_windows": IMAGES,
    "gemma4_one_layer_type": IMAGES,
    "gemma4_shared_pairs_both_ways": ["vision_config"],
    "qwen2_5_vl_flat": [""],
    "qwen2_5_vl_windows": ["", "vision_config", "text_config"],
    "qwen3_vl_large_blocks": ["", "vision_config", "text_config"],
    "qwen3_5_large_blocks": ["", "vision_config", "text_config"],
    "qwen3_5_moe": ["", "vision_config", "text_config"],
    "mistral3_windows": IMAGES,
    "mistral3_large_blocks": IMAGES,
    "internvl": IMAGES,
    "internvl_rms_norms": ["vision_config"],
    "llava_next_rests": IMAGES,
}

# Keys without an effect on logits: of every class, of training, and of videos and sounds.
IGNORED = (UNUSED - {"model_type"}) | {
    "audio_config",
    "audio_token_id",
    "boa_token_id",
    "eoa_token_index",
    "hidden_dropout_prob",
    "initializer_factor",
    "layer_scale_init_value",
    "projection_dropout",
    "tokens_per_second",
    "video_token_id",
}

ROPE = {"rope_type": "default", "rope_theta": 7.0}
LINEAR = {"rope_type": "linear", "factor": 4.0, "rope_theta": 7.0}
# Other spellings of the rotary embeddings of a tower.
SPELLINGS = [
    {"rope_theta": 7.0},
    {"rope_scaling": ROPE},
    {"rope_scaling": {"type": "linear", "factor": 4.0}},
    {"rope_parameters": {"type": "axial"}, "rope_theta": 7.0},
]
# Other values of some keys. Numbers are doubled, and flags are negated.
OTHERS = {
    "hidden_act": ["gelu", "gelu_new", "silu", "quick_gelu", "relu"],
    "hidden_activation": ["gelu", "silu"],
    "norm_type": ["layer_norm", "rms_norm"],
    "projector_hidden_act": ["gelu_pytorch_tanh", "silu"],
    "rope_parameters": [ROPE, LINEAR, {}],
    "vision_feature_layer": [-1, -2, 1, [-2, -1]],
    "vision_feature_select_strategy": ["full"],
}


def others(key, value):
    """Returns other values of a key."""
    if key in OTHERS:
        return [other for other in OTHERS[key] if other != value]
    if isinstance(value, bool):
        return [not value]
    return [2 * value] if isinstance(value, (int, float)) and value else []


def class_defaults(config, section):
    """Returns the keys of a section's class, with those defaults that are no objects."""
    given = config.get(section, {}) if section else config
    if section and "model_type" not in given:
        return {}
    fields = dataclasses.fields(type(transformers.AutoConfig.for_model(given["model_type"])))
    default = lambda value: list(value) if isinstance(value, tuple) else value  # noqa: E731
    is_plain = lambda value: isinstance(value, (int, float, bool, str, tuple))  # noqa: E731
    shown = {field.name: default(field.default) if is_plain(field.default) else None for field in fields}
    return {key: value for key, value in shown.items() if key not in IGNORED and key != "model_type"}


def variants(section, settings, defaults):
    """Yields settings, and removed keys."""
    if section == "vision_config" and "rope_parameters" in defaults:
        yield from ((change, None) for change in SPELLINGS)
    for key in sorted({*settings, *defaults} - IGNORED):
        if key in settings:
            yield {}, key
        yield {key: None}, None
        value = settings.get(key)
        for other in others(key, defaults.get(key) if value is None else value):
            yield {key: other}, None


def changed(config, section, change, removed):
    config = copy.deepcopy(config)
    settings = config[section] if section else config
    settings.update(change)
    if removed:
        del settings[removed]
    return config


def outputs(folder, config, inputs):
    """Returns the likeliest tokens after the prompt, or the reason why there are none."""
    write(folder, "config.json", config)
    try:
        made = transformers.AutoConfig.from_pretrained(folder)
        with torch.device("meta"):
            model = transformers.AutoModelForImageTextToText.from_config(made)
        if sum(parameter.numel() for parameter in model.parameters()) > MOST_PARAMETERS:
            return "too large"
        model, info = transformers.AutoModelForImageTextToText.from_pretrained(
            folder,
            attn_implementation="eager",
            dtype="float32",
            output_loading_info=True,
            ignore_mismatched_sizes=True,
        )
        if info["missing_keys"] or info["mismatched_keys"]:
            return "other tensors"
        row = model.eval()(**inputs).logits[0, -1]
        if not row.isfinite().all():
            return "refused: the logits are no numbers"
        top = row.log_softmax(-1).topk(SHOWN)
        return [[id, round(value, 5)] for id, value in zip(top.indices.tolist(), top.values.tolist())]
    except Exception as error:  # a config that the class refuses, or features that do not fit the prompt
        return f"refused: {type(error).__name__}"


def prepared(folder, golden, family, case, files):
    """Writes the files of a model. Returns the inputs of the prompt."""
    for file, value in case["files"].items():
        write(folder, file, value)
    write(folder, "tokenizer.json", tokenizer(golden["tokens"]))
    write(folder, "chat_template.jinja", golden["template"])
    vocabulary = 257 + len(golden["tokens"])
    shapes = case["tensors"].items()
    tensors = {name: weight(case["seed"], name, shape, case["weights"], vocabulary) for name, shape in shapes}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    processor = transformers.AutoProcessor.from_pretrained(folder)
    number = family.FIRST + list(family.CASES).index(case["name"])
    messages = conversations(number, family.CASES[case["name"]].get("sides"))[CONVERSATION]
    return encode(processor, encoded(messages, files))


def are_close(one, other):
    return all(a[0] == b[0] and abs(a[1] - b[1]) < 1e-4 for a, b in zip(one, other, strict=True))


def rows_of(name, golden, family, files):
    """Returns the defaults of a model's sections, its result and the rows."""
    case = next(case for case in golden["cases"] if case["name"] == name)
    config, defaults, rows = case["files"]["config.json"], {}, []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        inputs = prepared(folder, golden, family, case, files)
        result = outputs(folder, config, inputs)
        expected = case["conversations"][CONVERSATION]["likeliest"][:SHOWN]
        if not are_close(result, expected):
            raise SystemExit(f"{name}: {result} instead of {expected}")
        for section in MODELS[name]:
            known = class_defaults(config, section)
            defaults[section] = {key: value for key, value in known.items() if value is not None}
            for change, removed in variants(section, config[section] if section else config, known):
                found = outputs(folder, changed(config, section, change, removed), inputs)
                row = {"section": section, "set": change} | ({"without": removed} if removed else {})
                rows.append(row | {"result": "unchanged" if found == result else found})
    return {"model": name, "defaults": defaults, "rows": rows}


def main():
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    files = {name: base64.b64decode(data) for name, data in json.loads((HERE / "image_files.json").read_text()).items()}
    models = []
    for path in sorted((HERE / "image_families").glob("*.json")):
        golden, family = json.loads(path.read_text()), importlib.import_module(f"image_families.{path.stem}")
        for name in [name for name in family.CASES if name in MODELS]:
            model = rows_of(name, golden, family, files)
            kinds = [row["result"] if isinstance(row["result"], str) else "logits" for row in model["rows"]]
            print(name, {kind: kinds.count(kind) for kind in sorted(set(kinds))}, flush=True)
            models.append(model)
    head = {
        "made_with": {"torch": torch.__version__, "transformers": transformers.__version__},
        "conversation": CONVERSATION,
    }
    compact = lambda value: json.dumps(value, separators=(",", ":"))  # noqa: E731
    lines = [
        f'{{"model":{compact(model["model"])},"defaults":{compact(model["defaults"])},"rows":[\n'
        + ",\n".join(map(compact, model["rows"]))
        + "\n]}"
        for model in models
    ]
    text = compact(head)[:-1] + ',"models":[\n' + ",\n".join(lines) + "\n]}\n"
    (HERE / "image_keys.json").write_text(text)


if __name__ == "__main__":
    with torch.no_grad():
        main()
