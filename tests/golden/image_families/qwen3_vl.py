"""Qwen3-VL."""

from image_cases import CLIP, QWEN_TOKENS, QWEN_IDS, QWEN_TEMPLATE, qwen

TOKENS = QWEN_TOKENS
TEMPLATE = QWEN_TEMPLATE
TOKENIZER = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
IDS = QWEN_IDS



# The number of the first case, which chooses the images of each.
FIRST = 16
CASES = {
    "qwen3_vl": qwen(
        "qwen3_vl",
        {
            "head_dim": 8,
            "rope_scaling": {"rope_type": "default", "mrope_interleaved": True, "mrope_section": [2, 1, 1]},
            "tie_word_embeddings": True,
        },
        {"patch_size": 8, "num_position_embeddings": 36, "deepstack_visual_indexes": [0]},
        {"size": {"shortest_edge": 1024, "longest_edge": 12000}},
        {"tie_word_embeddings": True},
    ),
    "qwen3_vl_three_features": qwen(
        "qwen3_vl",
        {
            "head_dim": 16,
            "num_hidden_layers": 4,
            "rope_scaling": {"rope_type": "default", "mrope_interleaved": True, "mrope_section": [4, 2, 2]},
            "rope_theta": 2000.0,
            "attention_bias": True,
        },
        {
            "depth": 4,
            "num_heads": 4,
            "patch_size": 6,
            "num_position_embeddings": 16,
            "deepstack_visual_indexes": [0, 2, 3],
            "hidden_act": "gelu",
        },
        {"size": {"shortest_edge": 1500, "longest_edge": 9000}, **CLIP},
        {"tie_word_embeddings": False},
    ),
    "qwen3_vl_large_blocks": qwen(
        "qwen3_vl",
        {
            "num_attention_heads": 2,
            "head_dim": 16,
            "rope_parameters": {"rope_type": "default", "mrope_section": [2, 3, 3], "rope_theta": 1e4},
            "rope_theta": None,
        },
        {
            "depth": 3,
            "patch_size": 5,
            "spatial_merge_size": 3,
            "num_position_embeddings": 121,
            "deepstack_visual_indexes": [2, 1],
            "rope_parameters": {"rope_type": "axial", "rope_theta": 100.0},
        },
        {"size": {"shortest_edge": 900, "longest_edge": 10000}, "resample": 2},
        {"tie_word_embeddings": False},
    ),
}
