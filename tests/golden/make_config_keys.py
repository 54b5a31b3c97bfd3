#!/usr/bin/env python3
"""Writes config_keys.json: transformers' outputs for tiny models with one changed key of the config.

    pip install torch==2.13.0 transformers==5.23.0
    python make_config_keys.py

torch may be a CPU build. All values are computed in float32 on the CPU.

The models are those of architectures.json, in both spellings of rotary embeddings. Each key of the
class of a config, and each key of the model's config, is left out and set to null. Some keys are
set to other values. The weights stay those of architectures.json, so that a model with tensors of
other shapes, or with more tensors, cannot be loaded.

For each key that is left out, the default of the class is saved too.
"""

import copy
import dataclasses
import json
from pathlib import Path

import torch
import transformers

from make_architectures import LONG, fill

HERE = Path(__file__).parent
SHOWN = 6
MOST_PARAMETERS = 3_000_000
# A window, original contexts and rotations have an effect within it.
PROMPT = [(i * 7 + 14) % 160 for i in range(50)]

# The model of each architecture.
MODELS = [
    "llama_linear_rope_and_biases",
    "llama3_rope",
    "mistral",
    "qwen2_windows",
    "qwen3",
    "qwen3_moe",
    "gemma2_tight",
    "gemma3_tight",
    "phi3",
    "phi3_longrope_crossed",
    "granite",
    "smollm3",
    "gemma4",
    "qwen3_5_wide",
    "qwen3_5_moe",
    "qwen3_next_dense_layers",
]

# Keys of every class that no computation of logits depends on.
UNUSED = {
    "architectures", "attention_dropout", "bos_token_id", "chunk_size_feed_forward", "dtype", "embd_pdrop",
    "eos_token_id", "id2label", "initializer_range", "is_encoder_decoder", "label2id", "model_type",
    "output_attentions", "output_hidden_states", "output_router_logits", "pad_token_id", "pretraining_tp",
    "problem_type", "resid_pdrop", "return_dict", "router_aux_loss_coef", "transformers_version", "use_cache",
}

LINEAR = {"rope_type": "linear", "factor": 4.0}
LLAMA3 = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
# Replaced by a list of both types in turns.
ALTERNATING = "alternating"
# Changes of every model, by name: settings, of which null removes a key.
CHANGES = [
    {"attention_bias": True},
    {"mlp_bias": True},
    {"rope_theta": 77.0},
    {"rope_scaling": LINEAR},
    {"rope_scaling": {"type": "linear", "factor": 4}},
    {"rope_scaling": {}},
    {"rope_scaling": {**LINEAR, "rope_theta": 77.0}},
    {"rope_scaling": LLAMA3},
    {"rope_scaling": {**LLAMA3, "original_max_position_embeddings": 32}},
    {"rope_scaling": {**LLAMA3, "original_max_position_embeddings": 32}, "original_max_position_embeddings": 8},
    {"rope_parameters": {}},
    {"rope_parameters": {"rope_type": "default", "rope_theta": 77.0}},
    {"rope_parameters": {**LINEAR, "rope_theta": 77.0}},
    {"rope_parameters": {"rope_type": "default", "rope_theta": 77.0}, "rope_scaling": LINEAR},
    {"rope_parameters": {}, "rope_scaling": LINEAR},
    {"rope_parameters": LINEAR, "rope_scaling": {}, "rope_theta": 77.0},
    {
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 77.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 33.0},
        },
        "rope_scaling": {"rope_type": "linear", "factor": 2.0},
    },
    {"use_sliding_window": True, "sliding_window": 12},
    {"use_sliding_window": True, "sliding_window": 12, "max_window_layers": 1},
    {"use_sliding_window": False, "sliding_window": 12},
    {"use_sliding_window": True, "sliding_window": 12, "layer_types": ALTERNATING},
    {"sliding_window": 12, "layer_types": ALTERNATING},
    {"attn_logit_softcapping": None},
    {"final_logit_softcapping": None},
    {"partial_rotary_factor": 0.5},
    {"partial_rotary_factor": None},
    {"full_attention_interval": 3, "layer_types": None},
    {"hidden_act": "gelu_pytorch_tanh"},
    {"hidden_act": "gelu_new"},
    {"hidden_act": "gelu_fast"},
    {"hidden_act": "gelu_accurate"},
    {"hidden_act": "gelu_python_tanh"},
    {"hidden_act": "gelu"},
    {"hidden_act": "quick_gelu"},
    {"use_bidirectional_attention": True},
    {"tie_word_embeddings": False},
    {"num_key_value_heads": None},
    {"norm_topk_prob": False},
    {"decoder_sparse_step": 2},
    {"mlp_only_layers": [0]},
    {"no_rope_layer_interval": 2},
    {"no_rope_layers": [0, 1, 1, 0, 1]},
]
LONGROPE = {"type": "longrope", "short_factor": [1.0] * 6, "long_factor": LONG}
# Changes of the model with two sets of factors.
LONGROPE_CHANGES = [
    {"rope_scaling": {**LONGROPE, "original_max_position_embeddings": 8}},
    {"rope_scaling": {**LONGROPE, "type": "su"}},
    {"rope_scaling": {**LONGROPE, "type": "yarn", "factor": 2.0}},
    {"rope_scaling": {**LONGROPE, "factor": 3.0}},
    {"rope_scaling": {**LONGROPE, "attention_factor": 1.5}},
    {"original_max_position_embeddings": 50},
    {"original_max_position_embeddings": 49},
    {"max_position_embeddings": 40},
]


def changed(config, change, removed):
    config = copy.deepcopy(config)
    config.update(change)
    if removed:
        del config[removed]
    return config


def outputs(config, weights):
    """Returns the first logits after the prompt, or the reason why there are none."""
    try:
        # The default of the class may be outside of the small vocabulary.
        config = {"pad_token_id": None, **copy.deepcopy(config)}
        config = transformers.AutoConfig.for_model(**config)
        config._attn_implementation = "eager"
        with torch.device("meta"):
            model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
        if sum(parameter.numel() for parameter in model.parameters()) > MOST_PARAMETERS:
            return "too large"
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
        shapes = fill(model, weights["seed"])
        for name, shape in shapes.items():
            if weights["tensors"].get(name) != shape:
                return "other tensors"
        row = model(torch.tensor([PROMPT])).logits[0, -1, :SHOWN]
        if not row.isfinite().all():
            return "refused: the logits are no numbers"
        return [round(value, 5) for value in row.tolist()]
    except Exception as error:  # a config that the class refuses
        return f"refused: {type(error).__name__}"


def class_defaults(model_type):
    """Returns the keys of a class, with those defaults that are no objects."""
    fields = dataclasses.fields(type(transformers.AutoConfig.for_model(model_type)))
    is_plain = lambda value: isinstance(value, (int, float, bool, str))  # noqa: E731
    return {field.name: field.default if is_plain(field.default) else None for field in fields if field.name not in UNUSED}


def variants(config, defaults, changes):
    """Yields names, changes and removed keys."""
    yield {}, None
    for key in sorted({*config, *defaults} - UNUSED):
        if key in config:
            yield {}, key
        yield {key: None}, None
    types = ["full_attention", "sliding_attention"]
    for change in changes:
        if change.get("layer_types") == ALTERNATING:
            change = {**change, "layer_types": [types[i % 2] for i in range(config["num_hidden_layers"])]}
        yield change, None


def main():
    torch.set_num_threads(2)
    cases = {case["name"]: case for case in json.loads((HERE / "architectures.json").read_text())["cases"]}
    models = []
    for name in MODELS:
        case = cases[name]
        defaults = class_defaults(case["older_config"]["model_type"])
        changes = CHANGES + (LONGROPE_CHANGES if "longrope" in name else [])
        rows = []
        for spelling in ["older_config", "config"]:
            config = case[spelling]
            for change, removed in variants(config, defaults, changes):
                # Each change that is not of rotary embeddings is made in one spelling.
                is_rope = any("rope" in key for key in [*change, removed or ""]) or (not change and not removed)
                if spelling == "config" and not is_rope:
                    continue
                result = outputs(changed(config, change, removed), case)
                rows.append({"of": spelling, "set": change, "without": removed, "result": result})
        kinds = [row["result"] if isinstance(row["result"], str) else "logits" for row in rows]
        print(name, {kind: kinds.count(kind) for kind in sorted(set(kinds))})
        sizes = {key: value for key, value in defaults.items() if value is not None}
        models.append({"model": name, "defaults": sizes, "rows": rows})
    head = {"made_with": {"torch": torch.__version__, "transformers": transformers.__version__}, "prompt": PROMPT}
    compact = lambda value: json.dumps(value, separators=(",", ":"))  # noqa: E731
    lines = [
        f'{{"model":{compact(model["model"])},"defaults":{compact(model["defaults"])},"rows":[\n'
        + ",\n".join(map(compact, model["rows"]))
        + "\n]}"
        for model in models
    ]
    text = compact(head)[:-1] + ',"models":[\n' + ",\n".join(lines) + "\n]}\n"
    (HERE / "config_keys.json").write_text(text)


if __name__ == "__main__":
    with torch.no_grad():
        main()
