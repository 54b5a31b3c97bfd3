#!/usr/bin/env python3
"""Writes gguf_keys.json: llama.cpp's results for GGUF files with changed keys and tensors.

    pip install xllamacpp==2026.10.11549 numpy
    python make_gguf_keys.py

For each architecture there is a tiny model. Each case removes, changes or adds keys or tensors. The
golden has log-probabilities of the token after each prompt, or null if llama.cpp refuses the file, ends
with an assertion, or computes numbers that are not finite. "same" means the numbers of the unchanged
model.

Nothing is downloaded. This script and the suite compute the same weights from the tensor's name.
"""

import json
import math
import os
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy

HERE = Path(__file__).parent
VOCABULARY, HIDDEN, HEADS, PAIRS, INNER, EXPERTS, EXPERT = 64, 64, 4, 2, 96, 4, 32
PROMPTS = [[5, 9, 33, 12, 50, 7, 1], [(7 * i * i + 3 * i + 11) % VOCABULARY for i in range(40)]]
SHOWN = list(range(1, VOCABULARY, 11))  # the tokens whose log-probabilities are in the golden

TYPES = {"u32": 4, "i32": 5, "f32": 6, "bool": 7, "str": 8}
FORMATS = {"u32": "<I", "i32": "<i", "f32": "<f", "bool": "<?"}

# ---- files ----


def text(value):
    return struct.pack("<Q", len(value.encode())) + value.encode()


def encoded(kind, value):
    """Returns a metadata value. A kind in brackets is an array."""
    if kind.startswith("["):
        items = b"".join(encoded(kind[1:-1], item) for item in value)
        return struct.pack("<IQ", TYPES[kind[1:-1]], len(value)) + items
    return text(value) if kind == "str" else struct.pack(FORMATS[kind], value)


def entry(key, kind, value):
    return text(key) + struct.pack("<I", 9 if kind.startswith("[") else TYPES[kind]) + encoded(kind, value)


def scrambled(start, count):
    """Returns the outputs of SplitMix64 for the states from `start` on."""
    with numpy.errstate(over="ignore"):
        z = numpy.arange(count, dtype=numpy.uint64) + numpy.uint64(start) + numpy.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
        return z ^ (z >> numpy.uint64(31))


def fnv(name):
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = ((value ^ byte) * 0x100000001B3) % (1 << 64)
    return value


def numbers(name, shape):
    """Returns the numbers of a tensor: multiples of 1/128, around 1 in norms, negative in decays; rising divisors."""
    if name.startswith("rope_"):
        step = 0.5 if "long" in name else 0.25
        return numpy.array([1 + step * i for i in range(shape[0])], dtype="<f4")
    around = -0.375 if name.endswith("ssm_a") else 1.0 if len(shape) == 1 and name.endswith(".weight") else 0.0
    values = scrambled(fnv(name), int(numpy.prod(shape))) >> numpy.uint64(58)
    return (around + (values.astype(numpy.float32) - 32) / 128).astype("<f4")


def file(architecture, keys, tensors):
    tokens = [chr(0x4E00 + i) for i in range(VOCABULARY)]
    entries = [entry("general.architecture", "str", architecture)]
    entries += [entry(f"{architecture}.{key}", kind, value) for key, (kind, value) in keys.items()]
    entries += [
        entry("tokenizer.ggml.model", "str", "gpt2"),
        entry("tokenizer.ggml.pre", "str", "smollm"),
        entry("tokenizer.ggml.tokens", "[str]", tokens),
        entry("tokenizer.ggml.token_type", "[i32]", [1] * VOCABULARY),
        entry("tokenizer.ggml.merges", "[str]", []),
    ]
    out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(entries)) + b"".join(entries)
    data = b""
    for name, shape in tensors.items():
        out += text(name) + struct.pack("<I", len(shape)) + b"".join(struct.pack("<Q", size) for size in shape[::-1])
        out += struct.pack("<IQ", 0, len(data))
        data += numbers(name, shape).tobytes()
        data += bytes(-len(data) % 32)
    return out + bytes(-len(out) % 32) + data


# ---- models ----


def model(head=HIDDEN // HEADS, layers=3, keys={}, tied=False, fused=False, biased=False, normed=False, post=False, experts=False):
    """Returns the keys and the shapes of the tensors of a tiny model."""
    sizes = {
        "context_length": 512,
        "embedding_length": HIDDEN,
        "block_count": layers,
        "feed_forward_length": INNER,
        "attention.head_count": HEADS,
        "attention.head_count_kv": PAIRS,
        "rope.dimension_count": head,
        "attention.key_length": head,
        "attention.value_length": head,
    }
    all_keys = {key: ("u32", value) for key, value in sizes.items()}
    all_keys |= {"attention.layer_norm_rms_epsilon": ("f32", 1e-5), "rope.freq_base": ("f32", 500.0)} | keys
    parts = {"attn_norm.weight": [HIDDEN], "ffn_norm.weight": [HIDDEN], "attn_output.weight": [HIDDEN, HEADS * head]}
    rows = {"attn_q": HEADS * head, "attn_k": PAIRS * head, "attn_v": PAIRS * head}
    parts |= {"attn_qkv.weight": [sum(rows.values()), HIDDEN]} if fused else {f"{name}.weight": [size, HIDDEN] for name, size in rows.items()}
    if biased:
        parts |= {f"{name}.bias": [size] for name, size in rows.items()}
    if normed:
        parts |= {"attn_q_norm.weight": [head], "attn_k_norm.weight": [head]}
    if post:
        parts |= {"post_attention_norm.weight": [HIDDEN], "post_ffw_norm.weight": [HIDDEN]}
    if experts:
        parts |= {"ffn_gate_inp.weight": [EXPERTS, HIDDEN], "ffn_down_exps.weight": [EXPERTS, HIDDEN, EXPERT]}
        parts |= {f"ffn_{name}_exps.weight": [EXPERTS, EXPERT, HIDDEN] for name in ["gate", "up"]}
    else:
        parts |= {"ffn_up.weight": [2 * INNER if fused else INNER, HIDDEN], "ffn_down.weight": [HIDDEN, INNER]}
        parts |= {} if fused else {"ffn_gate.weight": [INNER, HIDDEN]}
    tensors = {"token_embd.weight": [VOCABULARY, HIDDEN], "output_norm.weight": [HIDDEN]}
    tensors |= {} if tied else {"output.weight": [VOCABULARY, HIDDEN]}
    tensors |= {f"blk.{layer}.{name}": shape for layer in range(layers) for name, shape in parts.items()}
    return all_keys, tensors


# Gated DeltaNets: sizes, and every how many layers attention is instead.
STATE, KEY_HEADS, VALUE_HEADS, TAPS, INTERVAL = 16, 2, 4, 4, 2


def hybrid(is_grouped, experts=False):
    """Returns the keys and the shapes of the tensors of a tiny model with DeltaNets. Their inputs b and a are in one
    tensor if `is_grouped` is true.
    """
    keys, tensors = model(head=32, layers=4, normed=True, experts=experts)
    ssm = {"conv_kernel": TAPS, "state_size": STATE, "group_count": KEY_HEADS, "time_step_rank": VALUE_HEADS}
    keys |= {f"ssm.{key}": ("u32", size) for key, size in ssm.items()} | {"ssm.inner_size": ("u32", STATE * VALUE_HEADS)}
    keys |= {"full_attention_interval": ("u32", INTERVAL), "rope.dimension_count": ("u32", 16)}
    keys |= {} if is_grouped else {"rope.dimension_sections": ("[i32]", [3, 3, 2, 0])}
    if experts:
        keys |= {"expert_count": ("u32", EXPERTS), "expert_used_count": ("u32", 2)}
        keys |= {"expert_feed_forward_length": ("u32", EXPERT), "expert_shared_feed_forward_length": ("u32", 48)}
    rows, values = (2 * KEY_HEADS + VALUE_HEADS) * STATE, VALUE_HEADS * STATE
    delta = {"attn_qkv.weight": [rows, HIDDEN], "attn_gate.weight": [values, HIDDEN], "ssm_conv1d.weight": [rows, TAPS]}
    delta |= {"ssm_a": [VALUE_HEADS], "ssm_dt.bias": [VALUE_HEADS], "ssm_norm.weight": [STATE]}
    delta |= {"ssm_out.weight": [HIDDEN, values]}
    inputs = {"ssm_ba": 2 * VALUE_HEADS} if is_grouped else {"ssm_beta": VALUE_HEADS, "ssm_alpha": VALUE_HEADS}
    delta |= {f"{name}.weight": [size, HIDDEN] for name, size in inputs.items()}
    mixer = [name for name in tensors if name.startswith("blk.0.attn_") and "attn_norm" not in name]
    for layer in range(4):
        at = f"blk.{layer}."
        tensors[at + "post_attention_norm.weight"] = tensors.pop(at + "ffn_norm.weight")
        if (layer + 1) % INTERVAL:
            for name in mixer:
                del tensors[name.replace("blk.0.", at)]
            tensors |= {at + name: shape for name, shape in delta.items()}
        else:
            tensors[at + "attn_q.weight"] = [2 * HEADS * 32, HIDDEN]
        if experts:
            tensors |= {f"{at}ffn_{name}_shexp.weight": [48, HIDDEN] for name in ["gate", "up"]}
            tensors |= {at + "ffn_down_shexp.weight": [HIDDEN, 48], at + "ffn_gate_inp_shexp.weight": [HIDDEN]}
    return keys, tensors


WINDOW = {"attention.sliding_window": ("u32", 8)}
MODELS = {
    "llama": model(),
    "granite": model(
        keys={
            "attention.scale": ("f32", 0.2),
            "embedding_scale": ("f32", 3.0),
            "residual_scale": ("f32", 0.7),
            "logit_scale": ("f32", 2.0),
        }
    ),
    "qwen2": model(biased=True),
    "qwen3": model(head=24, normed=True),
    "qwen3moe": model(
        head=24,
        normed=True,
        experts=True,
        keys={
            "expert_count": ("u32", EXPERTS),
            "expert_used_count": ("u32", 2),
            "expert_feed_forward_length": ("u32", EXPERT),
        },
    ),
    "gemma2": model(
        head=24,
        layers=4,
        tied=True,
        post=True,
        keys=WINDOW | {"attn_logit_softcapping": ("f32", 5.0), "final_logit_softcapping": ("f32", 3.0)},
    ),
    "gemma3": model(head=24, layers=7, tied=True, post=True, normed=True, keys=WINDOW | {"rope.freq_base_swa": ("f32", 100.0)}),
    "phi3": model(fused=True),
    "smollm3": model(layers=5),
    "qwen35": hybrid(is_grouped=False),
    "qwen35moe": hybrid(is_grouped=False, experts=True),
    "qwen3next": hybrid(is_grouped=True, experts=True),
    "qwen3vl": model(head=24, normed=True, keys={"rope.dimension_sections": ("[i32]", [4, 4, 4, 0])}),
}

# ---- cases ----

# Keys that some architecture of llama.cpp reads, and one that none reads.
FOREIGN = {
    "attention.causal": ("bool", False),
    "attention.clamp_kqv": ("f32", 0.01),
    "attention.key_length_swa": ("u32", 8),
    "attention.layer_norm_epsilon": ("f32", 0.5),
    "attention.max_alibi_bias": ("f32", 8.0),
    "attention.output_scale": ("f32", 0.3),
    "attention.scale": ("f32", 0.1),
    "attention.shared_kv_layers": ("u32", 1),
    "attention.sliding_window_pattern": ("u32", 3),
    "attention.temperature_scale": ("f32", 0.5),
    "attn_logit_softcapping": ("f32", 2.0),
    "embedding_length_out": ("u32", 24),
    "embedding_scale": ("f32", 3.0),
    "expert_count": ("u32", 4),
    "expert_gating_func": ("u32", 2),
    "expert_shared_count": ("u32", 1),
    "expert_used_count": ("u32", 2),
    "expert_weights_norm": ("bool", False),
    "expert_weights_scale": ("f32", 2.0),
    "final_logit_softcapping": ("f32", 2.0),
    "leading_dense_block_count": ("u32", 1),
    "logit_scale": ("f32", 3.0),
    "n_deepstack_layers": ("u32", 2),
    "nextn_predict_layers": ("u32", 1),
    "pooling_type": ("u32", 1),
    "residual_scale": ("f32", 0.5),
    "rope.dimension_count_swa": ("u32", 8),
    "rope.dimension_sections": ("[i32]", [3, 2, 1, 0]),
    "rope.freq_base_swa": ("f32", 77.0),
    "rope.scaling.alpha": ("f32", 4.0),
    "rope.scaling.yarn_attn_factor": ("f32", 1.5),
    "rope.scaling.yarn_ext_factor": ("f32", 0.5),
    "rope.scaling.yarn_log_multiplier": ("f32", 0.5),
    "tensor_data_layout": ("str", "x"),
    "unknown": ("u32", 1),
    "use_parallel_residual": ("bool", True),
    "vocab_size": ("u32", 999),
}

# Values that state that a function is not used.
NEUTRAL = {
    "attention.causal": ("bool", True),
    "attention.sliding_window": ("u32", 0),
    "expert_count": ("u32", 0),
    "expert_used_count": ("u32", 0),
    "nextn_predict_layers": ("u32", 0),
}

TYPE, FACTOR, OLDER = "rope.scaling.type", "rope.scaling.factor", "rope.scale_linear"
ATTENTION, ORIGINAL, FINETUNED = "rope.scaling.attn_factor", "rope.scaling.original_context_length", "rope.scaling.finetuned"
SCALINGS = [
    {FACTOR: 4.0},
    {FACTOR: 0.0},
    {OLDER: 4.0},
    {OLDER: 2.0, FACTOR: 4.0},
    {TYPE: "linear", FACTOR: 4.0},
    {TYPE: "linear", OLDER: 4.0},
    {TYPE: "linear"},
    {TYPE: "none", FACTOR: 4.0},
    {TYPE: "none", ATTENTION: 1.3},
    {TYPE: "longrope", FACTOR: 4.0},
    {TYPE: "yarn", FACTOR: 4.0},
    {TYPE: "llama3", FACTOR: 4.0},
    {TYPE: "default", FACTOR: 4.0},
    {ATTENTION: 1.3},
    {ATTENTION: 1.3, FACTOR: 4.0},
    {ORIGINAL: 16},
    {ORIGINAL: 16, FACTOR: 4.0},
    {FINETUNED: True, FACTOR: 4.0},
    {FINETUNED: False},
]
# With divisors in tensors. The original length is shorter than every prompt, or it is the context.
DIVIDED = [
    {},
    {FACTOR: 4.0},
    {OLDER: 4.0},
    {TYPE: "linear", FACTOR: 4.0},
    {TYPE: "none", FACTOR: 4.0},
    {ATTENTION: 1.3},
    {TYPE: "longrope"},
    {TYPE: "longrope", ORIGINAL: 4},
    {TYPE: "longrope", ORIGINAL: 4, ATTENTION: 1.3},
    {TYPE: "longrope", ORIGINAL: 4, FACTOR: 4.0},
    {ORIGINAL: 4, ATTENTION: 1.3, FACTOR: 2.0},
]
OF_LAYERS = ["feed_forward_length", "attention.head_count", "attention.head_count_kv"]


def typed(settings):
    kinds = {str: "str", float: "f32", int: "u32", bool: "bool"}
    return {key: (kinds[type(value)], value) for key, value in settings.items()}


def of_keys(architecture, keys):
    """Returns cases with other keys."""
    layers = keys["block_count"][1]
    cases = [{key: None} for key in keys]
    cases += [{key: (kind, value * 1.5)} for key, (kind, value) in keys.items() if kind == "f32"]
    cases += [{key: ("[u32]", [keys[key][1]] * layers)} for key in OF_LAYERS]
    cases += [{key: ("[i32]", [keys[key][1]] * layers)} for key in OF_LAYERS]
    cases += [{key: ("[u32]", [keys[key][1]] * (layers - 1) + [1])} for key in OF_LAYERS]
    cases += [{key: ("[u32]", [keys[key][1]] * (layers - 1))} for key in OF_LAYERS]
    cases += [{key: value} for key, value in FOREIGN.items() if key not in keys]
    cases += [{key: value} for key, value in NEUTRAL.items() if key not in keys]
    cases += [{"attention.value_length": ("u32", 8)}, {"rope.dimension_count": ("u32", 8)}]
    if "ssm.state_size" not in keys:  # llama.cpp has this epsilon for the keys of DeltaNets too
        cases += [{"attention.layer_norm_rms_epsilon": ("f32", 0.25)}]
    cases += [{"attention.sliding_window": ("u32", 6)}] if architecture not in ["phi3", "llama"] else []
    cases += [typed(settings) for settings in SCALINGS]
    if architecture == "granite":
        cases += [{key: ("f32", 0.0)} for key in ["attention.scale", "embedding_scale", "residual_scale"]]
    if architecture in ["gemma2", "gemma3"]:
        pattern, window = "attention.sliding_window_pattern", "attention.sliding_window"
        flags = [i % 3 != 1 for i in range(layers)]
        cases += [{pattern: ("u32", count)} for count in [0, 1, 2, 4]]
        cases += [{pattern: ("[bool]", flags)}, {pattern: ("[bool]", flags[1:])}, {window: ("u32", 0)}]
        cases += [{window: None, pattern: ("u32", 2)}, {window: ("u32", 0), pattern: ("[bool]", flags)}]
        cases += [{"rope.freq_base_swa": ("f32", 500.0)}, {"rope.freq_base": None, "rope.freq_base_swa": None}]
        cases += [{"attn_logit_softcapping": None, "final_logit_softcapping": None}]
    if architecture == "qwen3moe":
        cases += [{"feed_forward_length": None, "expert_feed_forward_length": None}, {"expert_used_count": ("u32", 3)}]
        cases += [{"expert_feed_forward_length": ("u32", 0)}]
    return [(case, {}) for case in cases]


def of_hybrid(architecture, keys, tensors):
    """Returns cases of models with DeltaNets: other tensors in two layers, other patterns of layers and sizes, and a
    layer that drafts tokens.
    """
    cases = [({}, {name: None}) for name in tensors if not name.startswith("blk.") or name[4] in "23"]
    added = {"attn_qkv.bias": 128, "attn_gate.bias": 64, "ssm_out.bias": HIDDEN, "ssm_conv1d.bias": 128, "ssm_norm.bias": STATE}
    cases += [({}, {f"blk.2.{name}": [size]}) for name, size in added.items()]
    biases = {"attn_q.bias": 256, "attn_k.bias": 64, "attn_v.bias": 64, "attn_output.bias": HIDDEN}
    cases += [({}, {f"blk.3.{name}": [size]}) for name, size in biases.items()]
    cases += [({}, {f"blk.3.{name}": [size] for name, size in biases.items()})]
    cases += [({}, {"blk.2.ssm_norm.weight": [1, STATE]}), ({}, {"blk.2.ssm_a": [1, VALUE_HEADS]})]
    cases += [({}, {"blk.2.ssm_a": [VALUE_HEADS, 1]}), ({}, {"blk.2.ssm_conv1d.weight": [128, 1, TAPS]})]
    cases += [({"full_attention_interval": ("u32", number)}, {}) for number in [0, 1, 3, 4]]
    flags = [(layer + 1) % INTERVAL != 0 for layer in range(4)]
    patterns = [flags, flags[1:], [not flag for flag in flags]]
    cases += [({"attention.recurrent_layers": ("[bool]", pattern)}, {}) for pattern in patterns]
    cases += [({"attention.recurrent_layers": ("[bool]", flags), "full_attention_interval": None}, {})]
    sizes = ["ssm.state_size", "ssm.group_count", "ssm.time_step_rank", "ssm.inner_size", "ssm.conv_kernel"]
    cases += [({key: ("u32", size)}, {}) for key in sizes for size in [0, 1, 8, keys[key][1] * 2]]
    cases += [({"rope.dimension_count": ("u32", 32)}, {}), ({"rope.dimension_count": ("u32", 15)}, {})]
    layer = {name.replace("blk.3.", "blk.4."): shape for name, shape in tensors.items() if name.startswith("blk.3.")}
    layer |= {"blk.4.nextn.eh_proj.weight": [HIDDEN, 2 * HIDDEN], "blk.4.nextn.enorm.weight": [HIDDEN], "blk.4.nextn.hnorm.weight": [HIDDEN]}
    drafts = {"block_count": ("u32", 5), "nextn_predict_layers": ("u32", 1)}
    cases += [(drafts, layer), (drafts, {}), ({}, layer)]
    cases += [(drafts | {"attention.recurrent_layers": ("[bool]", [*flags, False])}, layer)]
    cases += [({"nextn_predict_layers": ("u32", count)}, {}) for count in [2, 4, 5]]
    if architecture != "qwen35":
        keys = ["expert_shared_feed_forward_length", "expert_feed_forward_length"]
        cases += [({key: ("u32", 0)}, {}) for key in keys] + [({"expert_used_count": ("u32", 3)}, {})]
        whole = {f"blk.{layer}.ffn_{name}_shexp.weight": [INNER, HIDDEN] for layer in range(4) for name in ["gate", "up"]}
        whole |= {f"blk.{layer}.ffn_down_shexp.weight": [HIDDEN, INNER] for layer in range(4)}
        cases += [({"expert_shared_feed_forward_length": value}, whole) for value in [None, ("u32", 0)]]
        cases += [({}, {"blk.2.ffn_gate_inp_shexp.weight": [1, HIDDEN]})]
    return cases


def of_shapes(keys, tensors):
    """Returns cases with queries, keys and values in one tensor instead of three, or in three instead of one, and with
    dimensions of 1 in addition.
    """
    head, layers = keys["attention.key_length"][1], range(keys["block_count"][1])
    rows = {"attn_q": HEADS * head, "attn_k": PAIRS * head, "attn_v": PAIRS * head}
    sizes = {"attn_qkv": sum(rows.values())} if "blk.0.attn_q.weight" in tensors else rows

    def other(layer):
        before = {f"blk.{layer}.{name}.{kind}": None for name in [*rows, "attn_qkv"] for kind in ["weight", "bias"]}
        found = {name: shape for name, shape in before.items() if name in tensors}
        found |= {f"blk.{layer}.{name}.weight": [size, HIDDEN] for name, size in sizes.items()}
        return found | ({f"blk.{layer}.{name}.bias": [size] for name, size in sizes.items()} if "blk.0.attn_q.bias" in tensors else {})

    both = {name: shape for name, shape in other(1).items() if shape}
    ones = {f"blk.{layer}.attn_output.weight": [1, *tensors[f"blk.{layer}.attn_output.weight"]] for layer in layers}
    ones |= {"output_norm.weight": [1, 1, HIDDEN], "blk.1.ffn_norm.weight": [1, HIDDEN]}
    whole = {name: shape for layer in layers for name, shape in other(layer).items()}
    short = whole | {f"blk.1.{name}.weight": [size - head, HIDDEN] for name, size in sizes.items()}
    return [whole, other(1), both, short, ones, {"blk.1.ffn_norm.weight": [HIDDEN, 1]}]


def of_tensors(architecture, keys, tensors):
    """Returns cases with other tensors, in the layer 1 or outside the layers."""
    head = keys["attention.key_length"][1]
    cases = [{name: None} for name in tensors if not name.startswith("blk.") or name.startswith("blk.1.")]
    rows = {"attn_q": HEADS * head, "attn_k": PAIRS * head, "attn_v": PAIRS * head, "attn_output": HIDDEN, "ffn_down": HIDDEN}
    rows |= {"attn_qkv": (HEADS + 2 * PAIRS) * head, "ffn_gate": INNER, "ffn_up": tensors.get("blk.1.ffn_up.weight", [INNER])[0]}
    rows |= {"attn_norm": HIDDEN, "attn_q_norm": head, "ffn_gate_inp": EXPERTS}
    cases += [{f"blk.1.{name}.bias": [size]} for name, size in rows.items() if f"blk.1.{name}.bias" not in tensors]
    attention = [name for name in rows if name.startswith("attn") and "norm" not in name and f"blk.0.{name}.weight" in tensors]
    inner = [name for name in ["ffn_gate", "ffn_up", "ffn_down"] if f"blk.0.{name}.weight" in tensors]
    layers = range(keys["block_count"][1])
    for names in [attention, attention[:3], attention + inner, inner, inner[:2]]:
        cases.append({f"blk.{layer}.{name}.bias": [rows[name]] for layer in layers for name in names})
        cases.append({f"blk.{layer}.{name}.bias": [rows[name]] for layer in layers[1:] for name in names})
    others = {
        "output.bias": [VOCABULARY],
        "output_norm.bias": [HIDDEN],
        "output.weight": [VOCABULARY, HIDDEN],
        "token_embd_norm.weight": [HIDDEN],
        "cls.output.weight": [1, HIDDEN],
        "blk.1.attn_q_norm.weight": [head],
        "blk.1.post_attention_norm.weight": [HIDDEN],
        "blk.1.attn_sinks.weight": [HEADS],
        "blk.1.attn_q.scale": [1],
        "blk.99.attn_norm.weight": [HIDDEN],
        "unknown.weight": [HIDDEN],
        "rope_factors_long.weight": [head // 2],
    }
    cases += [{name: shape} for name, shape in others.items() if name not in tensors]
    cases.append({"output.weight": None, "output.bias": [VOCABULARY]})
    cases = [({}, {name: shape for name, shape in case.items() if shape is None or name not in tensors}) for case in cases]
    cases += [({}, case) for case in of_shapes(keys, tensors)]
    divided = [typed(settings) for settings in DIVIDED]
    cases += [(settings, {"rope_freqs.weight": [head // 2]}) for settings in divided]
    factors = {f"rope_factors_{name}.weight": [head // 2] for name in ["long", "short"]}
    return cases + [(settings, factors) for settings in divided]


# ---- llama.cpp ----


def serve_lines():
    """Answers each path on standard input with the log-probabilities of its model."""
    answers = os.fdopen(os.dup(1), "w")
    for stream in [1, 2]:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    from llama_cpp import call, serve

    for line in sys.stdin:
        try:
            server, found = serve(line.strip()), []
            for prompt in PROMPTS:
                request = {"prompt": prompt, "n_predict": 1, "temperature": 0, "top_k": 1, "ignore_eos": True}
                request |= {"n_probs": VOCABULARY, "cache_prompt": False}
                top = call(server.listening_address, "/completion", request)["completion_probabilities"][0]["top_logprobs"]
                by_id = {token["id"]: token["logprob"] for token in top}
                found.append([by_id[token] for token in range(VOCABULARY)])
            del server
            is_finite = all(math.isfinite(number) and number > -100 for row in found for number in row)
            print(json.dumps(found if is_finite else None), file=answers, flush=True)
        except Exception:
            print("null", file=answers, flush=True)


class LlamaCpp:
    """A process that is started again after an assertion of llama.cpp ended it."""

    process = None

    def logprobs(self, path):
        if self.process is None:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            self.process = subprocess.Popen([sys.executable, __file__, "--serve"], **pipes)
        print(path, file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            self.process = None
        return json.loads(line or "null")


def shown(found):
    return [[round(row[token], 5) for token in SHOWN] for row in found]


def changed(base, change):
    return {key: value for key, value in (base | change).items() if value is not None}


def main():
    reference, lines = LlamaCpp(), []
    path = Path(tempfile.mkdtemp()) / "model.gguf"
    models = {}
    for architecture, (keys, tensors) in MODELS.items():
        path.write_bytes(file(architecture, keys, tensors))
        base = reference.logprobs(path)
        models[architecture] = {"keys": keys, "tensors": tensors, "logprobs": shown(base)}
        of_others = of_hybrid if "ssm.state_size" in keys else of_tensors
        for key_changes, tensor_changes in of_keys(architecture, keys) + of_others(architecture, keys, tensors):
            case_keys, case_tensors = changed(keys, key_changes), changed(tensors, tensor_changes)
            if (case_keys, case_tensors) == (keys, tensors):
                continue
            path.write_bytes(file(architecture, case_keys, case_tensors))
            found = reference.logprobs(path)
            case = {"model": architecture, "keys": key_changes, "tensors": tensor_changes}
            is_same = found is not None and numpy.abs(numpy.array(found) - base).max() < 1e-6
            case["logprobs"] = "same" if is_same else found and shown(found)
            lines.append(json.dumps(case, separators=(",", ":")))
        print(architecture, len(lines), flush=True)
    head = json.dumps({"prompts": PROMPTS, "shown": SHOWN, "models": models}, separators=(",", ":"))
    (HERE / "gguf_keys.json").write_text(head[:-1] + ',"cases":[\n' + ",\n".join(dict.fromkeys(lines)) + "\n]}\n")


if __name__ == "__main__":
    serve_lines() if sys.argv[1:] == ["--serve"] else main()
