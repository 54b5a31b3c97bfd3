"""Qwen 3.5, also as a mixture of experts."""

from image_cases import CLIP, QWEN_TOKENS, QWEN_IDS, QWEN_TEMPLATE, qwen

TOKENS = QWEN_TOKENS
TEMPLATE = QWEN_TEMPLATE
TOKENIZER = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
IDS = QWEN_IDS

DELTA_NET = {
    "num_hidden_layers": 4,
    "head_dim": 32,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "rope_theta": None,
}


def rope(sections, **others):
    return {"rope_type": "default", "mrope_interleaved": True, "mrope_section": sections, "rope_theta": 1e4, **others}


# The number of the first case, which chooses the images of each.
FIRST = 32
CASES = {
    # The type of the text has no effect.
    "qwen3_5": {
        **qwen(
            "qwen3_5",
            {
                **DELTA_NET,
                "model_type": "qwen3_5_moe_text",
                "tie_word_embeddings": True,
                "rope_parameters": rope([4, 2, 2], partial_rotary_factor=0.5),
            },
            {"patch_size": 8, "num_position_embeddings": 36, "deepstack_visual_indexes": []},
            {"size": {"shortest_edge": 1024, "longest_edge": 12000}},
            {"tie_word_embeddings": True},
        ),
        "norms_around": 0.0,
    },
    "qwen3_5_moe": {
        **qwen(
            "qwen3_5_moe",
            {
                **DELTA_NET,
                "num_experts": 8,
                "num_experts_per_tok": 2,
                "moe_intermediate_size": 24,
                "shared_expert_intermediate_size": 40,
                "rope_parameters": rope([2, 1, 1]),
            },
            {"depth": 3, "num_heads": 4, "patch_size": 6, "num_position_embeddings": 16, "hidden_act": "gelu"},
            {"size": {"shortest_edge": 1500, "longest_edge": 9000}, **CLIP},
            {"tie_word_embeddings": False},
        ),
        "norms_around": 0.0,
    },
    # Positions without sections, and a list of blocks that has no effect.
    "qwen3_5_large_blocks": {
        **qwen(
            "qwen3_5",
            {
                **DELTA_NET,
                "hidden_size": 40,
                "intermediate_size": 56,
                "num_hidden_layers": 5,
                "full_attention_interval": 2,
                "attention_bias": True,
                "linear_num_value_heads": 6,
                "linear_value_head_dim": 24,
                "linear_conv_kernel_dim": 3,
                "rope_theta": 2000.0,
            },
            {
                "hidden_size": 24,
                "patch_size": 5,
                "spatial_merge_size": 3,
                "out_hidden_size": 40,
                "num_position_embeddings": 121,
                "deepstack_visual_indexes": [1],
                "rope_parameters": {"rope_type": "axial", "rope_theta": 100.0},
            },
            {"size": {"shortest_edge": 900, "longest_edge": 10000}, "resample": 2},
            {"tie_word_embeddings": False},
        ),
        "norms_around": 0.0,
    },
}
