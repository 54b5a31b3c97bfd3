"""Qwen2.5-VL."""

from image_cases import HALF, QWEN_TOKENS, QWEN_IDS, QWEN_TEMPLATE, qwen

TOKENS = QWEN_TOKENS
TEMPLATE = QWEN_TEMPLATE
TOKENIZER = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
IDS = QWEN_IDS

# Settings of the image processor for odd settings.
ODD = {
    "image_processor_type": "Qwen2VLImageProcessor",
    "processor": {"processor_class": "Qwen2_5_VLProcessor"},
    "settings": {"patch_size": 10, "min_pixels": 1200, "max_pixels": 24000},
}



# The number of the first case, which chooses the images of each.
FIRST = 12
CASES = {
    "qwen2_5_vl": qwen(
        "qwen2_5_vl",
        {"rope_scaling": {"type": "mrope", "mrope_section": [2, 1, 1]}, "tie_word_embeddings": True},
        {"patch_size": 10, "window_size": 60, "fullatt_block_indexes": [1]},
        {"min_pixels": 8000, "max_pixels": 24000},
        {"tie_word_embeddings": True},
    ),
    # The config has the settings of the language model at its top, as published configs do.
    "qwen2_5_vl_flat": qwen(
        "qwen2_5_vl",
        {
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]},
            "tie_word_embeddings": False,
        },
        {"depth": 4, "num_heads": 4, "patch_size": 8, "window_size": 32, "fullatt_block_indexes": [0, 2]},
        {"min_pixels": 2048, "max_pixels": 20000},
        flat=True,
    ),
    "qwen2_5_vl_windows": qwen(
        "qwen2_5_vl",
        {
            "num_hidden_layers": 4,
            "use_sliding_window": True,
            "sliding_window": 12,
            "max_window_layers": 2,
            "rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 500.0},
            "rope_theta": None,
        },
        {
            "depth": 3,
            "patch_size": 6,
            "window_size": 40,
            "spatial_merge_size": 3,
            "fullatt_block_indexes": [],
            "hidden_act": "gelu",
        },
        {"size": {"shortest_edge": 1000, "longest_edge": 14000}, "resample": 2, **HALF},
        {"tie_word_embeddings": False},
    ),
    "qwen2_5_vl_not_resized": {
        **qwen(
            "qwen2_5_vl",
            {"rope_scaling": {"type": "mrope", "mrope_section": [2, 1, 1]}, "tie_word_embeddings": True},
            {"patch_size": 10, "window_size": 60, "fullatt_block_indexes": [1]},
            {"min_pixels": 8000, "max_pixels": 24000, "do_resize": False},
            {"tie_word_embeddings": True},
        ),
        "sides": [(20, 20), (60, 40), (100, 140), (20, 40), (200, 20), (80, 80), (180, 160), (40, 20), (120, 60)],
    },
}
