"""Writes a model of random weights: `model.gguf` in Q4_1, and `folder` with the same sizes for transformers.

    python models.py KIND PATH

Kinds: `mixture`, a mixture of experts; `hybrid`, layers of linear attention beside attention.
"""

import json
import math
import sys
from pathlib import Path

import gguf
import numpy
import torch
from gguf import GGMLQuantizationType as Type
from safetensors.torch import save_file

FIRST_TOKEN = 0x4E00
VOCABULARY = 16384
SHARED = {"vocab_size": VOCABULARY, "hidden_size": 1024, "max_position_embeddings": 8192, "rms_norm_eps": 1e-6, "tie_word_embeddings": False}
# The published sizes of a layer's parts of Qwen3.5 0.8B, and about a third of those of Qwen3 30B-A3B.
HYBRID = SHARED | {
    "model_type": "qwen3_5_text",
    "intermediate_size": 3584,
    "num_hidden_layers": 12,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 16,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25},
}
MIXTURE = SHARED | {
    "model_type": "qwen3_moe",
    "intermediate_size": 3072,
    "moe_intermediate_size": 384,
    "num_hidden_layers": 10,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "num_experts": 32,
    "num_experts_per_tok": 4,
    "norm_topk_prob": True,
    "rope_theta": 1e6,
}
FEED_FORWARD, EXPERT = 3584, 384


def gguf_of_hybrid(config):
    """The architecture, its numbers and the names of tensors: of a file and of transformers."""
    values = config["linear_num_value_heads"] * config["linear_value_head_dim"]
    numbers = {
        "ssm.conv_kernel": config["linear_conv_kernel_dim"],
        "ssm.state_size": config["linear_key_head_dim"],
        "ssm.group_count": config["linear_num_key_heads"],
        "ssm.time_step_rank": config["linear_num_value_heads"],
        "ssm.inner_size": values,
        "feed_forward_length": config["intermediate_size"],
        "rope.dimension_count": config["head_dim"] // 4,
    }
    rows = 2 * config["linear_num_key_heads"] * config["linear_key_head_dim"] + values
    delta = {
        "attn_qkv.weight": ("linear_attn.in_proj_qkv.weight", [rows, 1024]),
        "attn_gate.weight": ("linear_attn.in_proj_z.weight", [values, 1024]),
        "ssm_beta.weight": ("linear_attn.in_proj_b.weight", [config["linear_num_value_heads"], 1024]),
        "ssm_alpha.weight": ("linear_attn.in_proj_a.weight", [config["linear_num_value_heads"], 1024]),
        "ssm_conv1d.weight": ("linear_attn.conv1d.weight", [rows, config["linear_conv_kernel_dim"]]),
        "ssm_a": ("linear_attn.A_log", [config["linear_num_value_heads"]]),
        "ssm_dt.bias": ("linear_attn.dt_bias", [config["linear_num_value_heads"]]),
        "ssm_norm.weight": ("linear_attn.norm.weight", [config["linear_value_head_dim"]]),
        "ssm_out.weight": ("linear_attn.out_proj.weight", [1024, values]),
    }
    layers = [attention(config, 2) if layer % 4 == 3 else delta for layer in range(config["num_hidden_layers"])]
    feed_forward = {
        "post_attention_norm.weight": ("post_attention_layernorm.weight", [1024]),
        **{f"ffn_{name}.weight": (f"mlp.{name}_proj.weight", [FEED_FORWARD, 1024]) for name in ("gate", "up")},
        "ffn_down.weight": ("mlp.down_proj.weight", [1024, FEED_FORWARD]),
    }
    return "qwen35", numbers, [layer | feed_forward for layer in layers]


def gguf_of_mixture(config):
    experts = config["num_experts"]
    numbers = {
        "expert_count": experts,
        "expert_used_count": config["num_experts_per_tok"],
        "expert_feed_forward_length": EXPERT,
        "feed_forward_length": config["intermediate_size"],
        "rope.dimension_count": config["head_dim"],
    }
    layer = attention(config, 1) | {
        "ffn_norm.weight": ("post_attention_layernorm.weight", [1024]),
        "ffn_gate_inp.weight": ("mlp.gate.weight", [experts, 1024]),
        "ffn_gate_exps.weight": ("mlp.experts.{}.gate_proj.weight", [experts, EXPERT, 1024]),
        "ffn_up_exps.weight": ("mlp.experts.{}.up_proj.weight", [experts, EXPERT, 1024]),
        "ffn_down_exps.weight": ("mlp.experts.{}.down_proj.weight", [experts, 1024, EXPERT]),
    }
    return "qwen3moe", numbers, [layer] * config["num_hidden_layers"]


def attention(config, query_parts):
    """The tensors of attention. Queries have a gate beside them if `query_parts` is 2."""
    heads, pairs, size = config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]
    rows = {"q": query_parts * heads * size, "k": pairs * size, "v": pairs * size}
    found = {f"attn_{name}.weight": (f"self_attn.{name}_proj.weight", [count, 1024]) for name, count in rows.items()}
    found |= {f"attn_{name}_norm.weight": (f"self_attn.{name}_norm.weight", [size]) for name in "qk"}
    return found | {"attn_output.weight": ("self_attn.o_proj.weight", [1024, heads * size])}


KINDS = {"hybrid": (HYBRID, gguf_of_hybrid), "mixture": (MIXTURE, gguf_of_mixture)}


def numbers_of(name, shape, random):
    """Random numbers of a size at which activations neither vanish nor grow."""
    values = random.standard_normal(shape, dtype=numpy.float32)
    if name == "ssm_a":
        return -0.05 - numpy.abs(values) / 20
    return 1 + values / 50 if len(shape) == 1 and "norm" in name else values / math.sqrt(shape[-1])


def main(kind, path):
    config, describe = KINDS[kind]
    architecture, numbers, layers = describe(config)
    writer = gguf.GGUFWriter(path / "model.gguf", architecture)
    add_header(writer, config, numbers, kind)
    random, folder = numpy.random.default_rng(7), {}

    def add(stored, name, shape):
        values = numbers_of(stored.split(".", 2)[-1] if stored.startswith("blk.") else stored, shape, random)
        is_matrix = len(shape) > 1 and "conv1d" not in stored and "gate_inp" not in stored
        type = Type.Q4_1 if is_matrix else Type.F32
        writer.add_tensor(stored, gguf.quants.quantize(values, type) if is_matrix else values, raw_dtype=type)
        # The file has other forms of these numbers. Their values have no effect on the time.
        tensor = torch.from_numpy(values).to(torch.bfloat16)
        tensor = tensor[:, None] if "conv1d" in name else tensor
        if "{}" in name:
            folder.update({name.format(expert): tensor[expert].clone() for expert in range(shape[0])})
        else:
            folder[name] = tensor

    add("token_embd.weight", "model.embed_tokens.weight", [VOCABULARY, 1024])
    for index, layer in enumerate(layers):
        add(f"blk.{index}.attn_norm.weight", f"model.layers.{index}.input_layernorm.weight", [1024])
        for stored, (name, shape) in layer.items():
            add(f"blk.{index}.{stored}", f"model.layers.{index}.{name}", shape)
    add("output_norm.weight", "model.norm.weight", [1024])
    add("output.weight", "lm_head.weight", [VOCABULARY, 1024])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    (path / "folder").mkdir()
    (path / "folder" / "config.json").write_text(json.dumps(config))
    save_file(folder, path / "folder" / "model.safetensors", metadata={"format": "pt"})


def add_header(writer, config, numbers, kind):
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config.get("rope_theta", 1e7))
    for key, number in numbers.items():
        writer.add_uint32(f"{writer.arch}.{key}", number)
    if kind == "hybrid":
        writer.add_rope_dimension_sections([11, 11, 10, 0])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    tokens = [chr(FIRST_TOKEN + token) for token in range(VOCABULARY - 1)]
    writer.add_token_list([*tokens, tokens[0] + tokens[1]])
    writer.add_token_types([1] * VOCABULARY)
    writer.add_token_merges([f"{tokens[0]} {tokens[1]}"])  # A file without merges is refused.


main(sys.argv[1], Path(sys.argv[2]))
