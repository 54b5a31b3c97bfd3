#!/usr/bin/env python3
"""Writes architectures.json: transformers' outputs for tiny models of each gen-svc architecture.

    pip install torch==2.13.0 transformers==5.23.0
    python make_architectures.py [CASE...]

With names of cases, the other cases of the file stay as they are.

torch may be a CPU build. All values are computed in float32 on the CPU, without a KV cache, one
sequence at a time.

Nothing is downloaded. This script and the suite compute the same weights from a seed and the
tensor's name (`weight` below). All weights are exact in bfloat16.

A seed is used only if the two largest logits differ enough at every greedy step. Two correct
implementations then choose the same tokens.
"""

import json
import sys
from pathlib import Path

import torch
import transformers

HERE = Path(__file__).parent
VOCABULARY = 160
NEW_TOKENS = 64
# Shorter and longer than a block of 16 positions, every window and every original context length.
LENGTHS = [3, 17, 33, 50, 21]
POSITIONS = [0, 20, 49]  # in the fourth prompt
SHOWN = 24  # logits per position
SMALLEST_GAP = 1e-3

LLAMA = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
}
EXPERTS = {
    "head_dim": 16,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
    "rope_theta": 500.0,
}
GEMMA4 = {
    "tie_word_embeddings": True,
    "num_hidden_layers": 4,
    "head_dim": 16,
    "global_head_dim": 32,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "sliding_window": 8,
    "hidden_size_per_layer_input": 0,
    "vocab_size_per_layer_input": VOCABULARY,
    "rope_parameters": {
        "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
    },
}
DELTA_NET = {
    "head_dim": 32,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 4,
}
SHARED_EXPERT = {
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 48,
}
LONG = [1.0 + 0.25 * i for i in range(6)]
GEMMA_NORMS = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}

GGUF_MIXERS = {
    "modules": {"post_attention_layernorm": "post_attention_norm"},
    "integers": {
        "full_attention_interval": "full_attention_interval",
        "linear_conv_kernel_dim": "ssm.conv_kernel",
        "linear_key_head_dim": "ssm.state_size",
        "linear_num_key_heads": "ssm.group_count",
        "linear_num_value_heads": "ssm.time_step_rank",
    },
}
GGUF_EXPERTS = {
    "modules": {
        "mlp.gate": "ffn_gate_inp",
        "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
        "mlp.shared_expert.up_proj": "ffn_up_shexp",
        "mlp.shared_expert.down_proj": "ffn_down_shexp",
        "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    },
    "integers": {
        "num_experts": "expert_count",
        "num_experts_per_tok": "expert_used_count",
        "moe_intermediate_size": "expert_feed_forward_length",
        "shared_expert_intermediate_size": "expert_shared_feed_forward_length",
    },
}

# The GGUF file of each model type, as llama.cpp's convert_hf_to_gguf.py writes it: the value of
# general.architecture; the modules of a layer and the numbers whose names not all model types share;
# whether the rows of queries and keys are interleaved; the number added to the weights of norms.
GGUF = {
    "llama": {"architecture": "llama", "interleaved": True},
    "mistral": {"architecture": "llama", "interleaved": True},
    "qwen2": {"architecture": "qwen2"},
    "qwen3": {"architecture": "qwen3"},
    "qwen3_moe": {
        "architecture": "qwen3moe",
        "modules": {"mlp.gate": "ffn_gate_inp"},
        "integers": {
            "num_experts": "expert_count",
            "num_experts_per_tok": "expert_used_count",
            "moe_intermediate_size": "expert_feed_forward_length",
        },
    },
    "gemma2": {
        "architecture": "gemma2",
        "modules": GEMMA_NORMS,
        "floats": {
            "attn_logit_softcapping": "attn_logit_softcapping",
            "final_logit_softcapping": "final_logit_softcapping",
        },
        "norm_offset": 1.0,
    },
    "gemma3_text": {
        "architecture": "gemma3",
        "modules": GEMMA_NORMS,
        "floats": {"rope_local_base_freq": "rope.freq_base_swa"},
        "norm_offset": 1.0,
    },
    "phi3": {
        "architecture": "phi3",
        "modules": {"self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up"},
    },
    "granite": {
        "architecture": "granite",
        "interleaved": True,
        "floats": {
            "attention_multiplier": "attention.scale",
            "embedding_multiplier": "embedding_scale",
            "residual_multiplier": "residual_scale",
            "logits_scaling": "logit_scale",
        },
    },
    "smollm3": {"architecture": "smollm3", "interleaved": True},
    "qwen3_5_text": {"architecture": "qwen35", **GGUF_MIXERS, "norm_offset": 1.0},
    "qwen3_5_moe_text": {
        "architecture": "qwen35moe",
        "modules": {**GGUF_MIXERS["modules"], **GGUF_EXPERTS["modules"]},
        "integers": {**GGUF_MIXERS["integers"], **GGUF_EXPERTS["integers"]},
        "norm_offset": 1.0,
    },
}
GGUF["qwen3_next"] = {**GGUF["qwen3_5_moe_text"], "architecture": "qwen3next"}
# Cases with settings that a GGUF file cannot express, or of an architecture that is not read from
# GGUF files.
WITHOUT_GGUF = [
    "qwen2_windows",
    "gemma2_tight",
    "gemma3_tight",
    "qwen3_moe_dense_layers",
    "gemma4",
    "gemma4_shared_pairs",
    "gemma4_keys_as_values",
    "qwen3_5_wide",
    "qwen3_next_dense_layers",
]

# Name, model type, and settings with the names of transformers 4, which published models use.
CASES = [
    ("llama", "llama", {"rope_theta": 500.0}),
    (
        "llama3_rope",
        "llama",
        {
            "tie_word_embeddings": True,
            "rope_theta": 10000.0,
            "rope_scaling": {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            },
        },
    ),
    (
        "llama_linear_rope_and_biases",
        "llama",
        {"attention_bias": True, "mlp_bias": True, "rope_theta": 500.0, "rope_scaling": {"type": "linear", "factor": 4.0}},
    ),
    ("mistral", "mistral", {"head_dim": 32, "sliding_window": 8, "rope_theta": 500.0}),
    ("qwen2", "qwen2", {"rope_theta": 500.0}),
    ("qwen2_windows", "qwen2", {"use_sliding_window": True, "sliding_window": 12, "max_window_layers": 1, "rope_theta": 500.0}),
    ("qwen3", "qwen3", {"head_dim": 16, "rope_theta": 1000.0}),
    (
        "gemma2",
        "gemma2",
        {
            "tie_word_embeddings": True,
            "head_dim": 32,
            "num_hidden_layers": 4,
            "query_pre_attn_scalar": 32,
            "attn_logit_softcapping": 50.0,
            "final_logit_softcapping": 30.0,
            "sliding_window": 8,
        },
    ),
    (
        "gemma2_tight",
        "gemma2",
        {
            "tie_word_embeddings": True,
            "head_dim": 16,
            "num_hidden_layers": 6,
            "query_pre_attn_scalar": 24,
            "attn_logit_softcapping": 5.0,
            "final_logit_softcapping": 3.0,
            "sliding_window": 8,
            "rope_theta": 1000.0,
        },
    ),
    (
        "gemma3",
        "gemma3_text",
        {
            "tie_word_embeddings": True,
            "head_dim": 16,
            "num_hidden_layers": 7,
            "query_pre_attn_scalar": 16,
            "sliding_window": 8,
            "rope_theta": 1000000.0,
            "rope_local_base_freq": 10000.0,
            "rope_scaling": {"rope_type": "linear", "factor": 8.0},
        },
    ),
    (
        "gemma3_tight",
        "gemma3_text",
        {
            "tie_word_embeddings": True,
            "head_dim": 16,
            "num_hidden_layers": 8,
            "query_pre_attn_scalar": 24,
            "sliding_window": 8,
            "sliding_window_pattern": 3,
            "rope_theta": 2000.0,
            "rope_local_base_freq": 100.0,
            "rope_scaling": {"rope_type": "linear", "factor": 8.0},
        },
    ),
    ("phi3", "phi3", {"partial_rotary_factor": 0.75, "rope_theta": 500.0}),
    ("phi3_windows", "phi3", {"partial_rotary_factor": 0.75, "sliding_window": 12, "rope_theta": 500.0}),
    (
        "phi3_longrope",
        "phi3",
        {
            "partial_rotary_factor": 0.75,
            "rope_theta": 500.0,
            "original_max_position_embeddings": 2,
            "rope_scaling": {"type": "longrope", "short_factor": [1.0] * 6, "long_factor": LONG},
        },
    ),
    (
        "phi3_longrope_unused",
        "phi3",
        {
            "partial_rotary_factor": 0.75,
            "rope_theta": 500.0,
            "original_max_position_embeddings": 512,
            "rope_scaling": {"type": "longrope", "short_factor": LONG, "long_factor": [9.0] * 6},
        },
    ),
    (
        "phi3_longrope_crossed",
        "phi3",
        {
            "partial_rotary_factor": 0.75,
            "rope_theta": 500.0,
            "original_max_position_embeddings": 40,
            "rope_scaling": {"type": "longrope", "short_factor": [1.0] * 6, "long_factor": LONG},
        },
    ),
    (
        "granite",
        "granite",
        {
            "tie_word_embeddings": True,
            "embedding_multiplier": 1.5,
            "attention_multiplier": 0.2,
            "residual_multiplier": 0.9,
            "logits_scaling": 2.0,
            "rope_theta": 500.0,
        },
    ),
    ("smollm3", "smollm3", {"num_hidden_layers": 5, "tie_word_embeddings": True, "rope_theta": 500.0}),
    ("qwen3_moe", "qwen3_moe", EXPERTS),
    ("qwen3_moe_dense_layers", "qwen3_moe", {**EXPERTS, "norm_topk_prob": False, "mlp_only_layers": [1]}),
    ("gemma4", "gemma4_text", {**GEMMA4, "hidden_size_per_layer_input": 8, "final_logit_softcapping": 30.0}),
    (
        "gemma4_shared_pairs",
        "gemma4_text",
        {
            **GEMMA4,
            "num_hidden_layers": 7,
            "layer_types": (["sliding_attention"] * 2 + ["full_attention"]) * 2 + ["full_attention"],
            "num_kv_shared_layers": 4,
            "use_double_wide_mlp": True,
            "hidden_size_per_layer_input": 8,
        },
    ),
    (
        "gemma4_keys_as_values",
        "gemma4_text",
        {**GEMMA4, "attention_k_eq_v": True, "num_global_key_value_heads": 1},
    ),
    ("qwen3_5", "qwen3_5_text", {**DELTA_NET, "num_hidden_layers": 4, "rope_theta": 500.0, "partial_rotary_factor": 0.5}),
    (
        "qwen3_5_wide",
        "qwen3_5_text",
        {
            **DELTA_NET,
            "tie_word_embeddings": True,
            "attention_bias": True,
            "hidden_act": "gelu_pytorch_tanh",
            "num_hidden_layers": 5,
            "full_attention_interval": 2,
            "linear_num_value_heads": 6,
            "linear_value_head_dim": 24,
            "linear_conv_kernel_dim": 3,
            "rope_theta": 100.0,
        },
    ),
    (
        "qwen3_5_moe",
        "qwen3_5_moe_text",
        {**DELTA_NET, **SHARED_EXPERT, "num_hidden_layers": 4, "rope_theta": 500.0},
    ),
    (
        "qwen3_next",
        "qwen3_next",
        {**DELTA_NET, **SHARED_EXPERT, "num_hidden_layers": 4, "rope_theta": 500.0, "linear_num_value_heads": 6},
    ),
    (
        "qwen3_next_dense_layers",
        "qwen3_next",
        {
            **DELTA_NET,
            **SHARED_EXPERT,
            "attention_bias": True,
            "num_hidden_layers": 4,
            "layer_types": ["linear_attention", "full_attention", "full_attention", "linear_attention"],
            "norm_topk_prob": False,
            "mlp_only_layers": [3],
            "decoder_sparse_step": 2,
            "partial_rotary_factor": 1.0,
            "rope_theta": 500.0,
        },
    ),
]


def scramble(counter):
    """Returns SplitMix64 of a counter."""
    mask = (1 << 64) - 1
    z = (counter + 0x9E3779B97F4A7C15) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return z ^ (z >> 31)


def fnv(text):
    """Returns the 64-bit FNV-1a hash of a text."""
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = ((value ^ byte) * 0x100000001B3) & ((1 << 64) - 1)
    return value


# The steps between the numbers of some tensors, by the end of the name: 1/32 and 1/64. Those of others are 1/128.
STEPS = {"conv1d.weight": 32, "A_log": 64}


def weight(seed, name, shape, around=0.0):
    """Returns 64 different multiples of a step around `around`."""
    step = next((step for end, step in STEPS.items() if name.endswith(end)), 128)
    start = fnv(f"{seed}:{name}")
    count = 1
    for size in shape:
        count *= size
    values = [around + ((scramble(start + i) >> 58) - 32) / step for i in range(count)]
    return torch.tensor(values, dtype=torch.float32).reshape(shape)


# Model types that add 1 to the weights of norms.
OFFSET_NORMS = ["gemma2", "gemma3_text", "qwen3_5_text", "qwen3_5_moe_text", "qwen3_next"]


def norms_around(model_type):
    """Returns the mean of the weights of norms. Some architectures add 1 to them."""
    return 0.0 if model_type in OFFSET_NORMS else 1.0


# The means of other tensors, by the end of the name. States forget a few percent with each token.
MEANS = {"layer_scalar": 1.0, "linear_attn.norm.weight": 1.0, "A_log": -3.0}


def fill(model, seed):
    """Sets the weights of a model. Returns the shapes of its checkpoint's tensors by name."""
    around = norms_around(model.config.model_type)
    shapes = {}

    def get(name, shape):
        shapes[name] = list(shape)
        is_norm = len(shape) == 1 and name.endswith(".weight")
        means = [mean for end, mean in MEANS.items() if name.endswith(end)]
        return weight(seed, name, shape, means[0] if means else around if is_norm else 0.0)

    tied = model.config.tie_word_embeddings
    for name, parameter in model.named_parameters():
        if tied and name == "lm_head.weight":
            continue
        shape = tuple(parameter.shape)
        if name.endswith("mlp.experts.gate_up_proj"):
            path, each = name.removesuffix(".gate_up_proj"), (shape[1] // 2, shape[2])
            experts = [[get(f"{path}.{e}.{part}_proj.weight", each) for part in ("gate", "up")] for e in range(shape[0])]
            value = torch.stack([torch.cat(parts) for parts in experts])
        elif name.endswith("mlp.experts.down_proj"):
            path = name.removesuffix(".down_proj")
            value = torch.stack([get(f"{path}.{e}.down_proj.weight", shape[1:]) for e in range(shape[0])])
        else:
            value = get(name, shape)
        parameter.data.copy_(value)
    for name, buffer in model.named_buffers():
        if name.endswith("layer_scalar"):
            buffer.copy_(get(name, tuple(buffer.shape)))
    return shapes


def prompt(number):
    return [(i * 7 + 3 + 11 * number) % VOCABULARY for i in range(LENGTHS[number])]


def greedy(model, ids):
    """Returns the greedy continuation and its smallest gap between the two largest logits."""
    ids, new, closest = list(ids), [], float("inf")
    while len(new) < NEW_TOKENS and closest > SMALLEST_GAP:
        top = model(torch.tensor([ids])).logits[0, -1].topk(2)
        closest = min(closest, float(top.values[0] - top.values[1]))
        new.append(int(top.indices[0]))
        ids.append(new[-1])
    return new, closest


def case(name, model_type, settings):
    """Returns the golden case of a model, with the first seed whose gaps are all large enough."""
    older = {"model_type": model_type, **LLAMA, **settings}
    config = transformers.AutoConfig.for_model(**json.loads(json.dumps(older)))
    config._attn_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    for seed in range(200):
        shapes = fill(model, seed)
        outputs = []
        for number in range(len(LENGTHS)):
            outputs.append(greedy(model, prompt(number)))
            if outputs[-1][1] < SMALLEST_GAP:
                break
        else:
            break
    else:
        raise SystemExit(f"{name}: no seed has gaps of at least {SMALLEST_GAP}")
    logits = model(torch.tensor([prompt(3)])).logits[0]
    rows = [[round(value, 5) for value in logits[position, :SHOWN].tolist()] for position in POSITIONS]
    gap = min(closest for _, closest in outputs)
    distinct = len({id for new, _ in outputs for id in new})
    print(f"{name}: seed {seed}, smallest gap {gap:.4f}, {distinct} distinct tokens, largest logit {logits.abs().max():.2f}")
    saved = json.loads(config.to_json_string(use_diff=True))
    return {
        "name": name,
        "seed": seed,
        "config": saved,
        "older_config": {key: value for key, value in older.items() if value is not None},
        "gguf": None if name in WITHOUT_GGUF else GGUF[model_type],
        "norms_around": norms_around(model_type),
        "tensors": shapes,
        "prompts": [prompt(number) for number in range(len(LENGTHS))],
        "positions": POSITIONS,
        "logits": rows,
        "greedy": [new for new, _ in outputs],
    }


def main():
    torch.set_num_threads(1)
    path, chosen = HERE / "architectures.json", sys.argv[1:]
    kept = {each["name"]: each for each in json.loads(path.read_text())["cases"]} if chosen else {}
    with torch.no_grad():
        cases = [case(*each) if each[0] in chosen or not chosen else kept[each[0]] for each in CASES]
    lines = ",\n".join(json.dumps(each, separators=(",", ":")) for each in cases)
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    text = f'{{"made_with":{json.dumps(versions)},"cases":[\n{lines}\n]}}\n'
    path.write_text(text)


if __name__ == "__main__":
    main()
