"""Gemma 4."""

from image_cases import FAST, TURNS, TEXT, VISION

TOKENS = (
    ["<pad>", "<eos>", "<bos>", "<|turn>", "<turn|>", "<|image>", "<image|>", "<|image|>", "<|audio>"]
    + ["<audio|>", "<|audio|>", "<|video|>"]
)
TEMPLATE = (
    TURNS.replace("BEGIN", "<|turn>").replace("END", "<turn|>").replace("IMAGE", "\\n\\n<|image|>\\n\\n")
)
TOKENIZER = {
    "bos_token": "<bos>",
    "eos_token": "<eos>",
    "pad_token": "<pad>",
    "extra_special_tokens": {
        "boi_token": "<|image>",
        "eoi_token": "<image|>",
        "image_token": "<|image|>",
        "boa_token": "<|audio>",
        "eoa_token": "<audio|>",
        "audio_token": "<|audio|>",
    },
}
IDS = {
    "image_token_id": "<|image|>",
    "boi_token_id": "<|image>",
    "eoi_token_id": "<image|>",
    "video_token_id": "<|video|>",
    "audio_token_id": "<|audio|>",
    "boa_token_id": "<|audio>",
    "eoa_token_index": "<audio|>",
}

# Settings of the image processor for odd settings.
ODD = {
    "image_processor_type": "Gemma4ImageProcessor",
    "processor": {"processor_class": "Gemma4Processor"},
    "settings": {"patch_size": 4, "pooling_kernel_size": 2, "max_soft_tokens": 70},
    "cells": (8, 8),
}

GEMMA4 = {
    **TEXT,
    "model_type": "gemma4_text",
    "head_dim": 8,
    "global_head_dim": 16,
    "hidden_size_per_layer_input": 0,
    "rope_parameters": {
        "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
    },
}
GEMMA4_VISION = {
    **VISION,
    "model_type": "gemma4_vision",
    "num_key_value_heads": 4,
    "head_dim": 8,
    "position_embedding_size": 128,
}


def gemma4(text, vision, image=None):
    vision = {**GEMMA4_VISION, **vision}
    return {
        "config": {
            "model_type": "gemma4",
            "audio_config": None,
            "text_config": {**GEMMA4, **text},
            "vision_config": vision,
        },
        "processor": {
            "processor_class": "Gemma4Processor",
            "image_seq_length": 70,
            "image_processor": {
                "image_processor_type": "Gemma4ImageProcessor",
                **FAST,
                "do_normalize": False,
                "resample": 3,
                "patch_size": vision["patch_size"],
                "pooling_kernel_size": vision["pooling_kernel_size"],
                "max_soft_tokens": 70,
                **(image or {}),
            },
            "feature_extractor": {"feature_extractor_type": "Gemma4AudioFeatureExtractor"},
            "video_processor": {"video_processor_type": "Gemma4VideoProcessor"},
        },
    }


# The number of the first case, which chooses the images of each.
FIRST = 8
CASES = {
    "gemma4": gemma4(
        {
            "num_hidden_layers": 4,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
            "sliding_window": 24,
            "hidden_size_per_layer_input": 8,
            "num_kv_shared_layers": 2,
            "use_double_wide_mlp": True,
            "final_logit_softcapping": 30.0,
        },
        {"patch_size": 8, "pooling_kernel_size": 3, "use_clipped_linears": True},
    ),
    # The window is smaller than an image.
    "gemma4_both_ways": gemma4(
        {
            "num_hidden_layers": 3,
            "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
            "sliding_window": 10,
            "use_bidirectional_attention": "vision",
            "attention_k_eq_v": True,
            "num_global_key_value_heads": 1,
        },
        {"patch_size": 10, "pooling_kernel_size": 2, "standardize": True, "rms_norm_eps": 1e-3},
    ),
    "gemma4_one_layer_type": gemma4(
        {
            "layer_types": ["full_attention"] * 2,
            "rope_parameters": {
                "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.5, "rope_theta": 500.0}
            },
        },
        {
            "patch_size": 4,
            "pooling_kernel_size": 4,
            "num_key_value_heads": 2,
            "head_dim": 12,
            "num_hidden_layers": 3,
            "rope_parameters": {"rope_type": "axial", "rope_theta": 30.0},
        },
        {"resample": 2},
    ),
    "gemma4_shared_pairs_both_ways": gemma4(
        {
            "num_hidden_layers": 5,
            "layer_types": ["sliding_attention", "full_attention"] * 2 + ["full_attention"],
            "sliding_window": 16,
            "use_bidirectional_attention": "vision",
            "hidden_size_per_layer_input": 4,
            "num_kv_shared_layers": 2,
        },
        {"patch_size": 4, "pooling_kernel_size": 2, "use_clipped_linears": True, "standardize": True, "head_dim": 16},
        {"max_soft_tokens": 140},
    ),
    "gemma4_not_resized": {
        **gemma4(
            {
                "num_hidden_layers": 2,
                "layer_types": ["sliding_attention", "full_attention"],
                "sliding_window": 24,
                "use_bidirectional_attention": "vision",
            },
            {"patch_size": 8, "pooling_kernel_size": 2},
            {"do_resize": False},
        ),
        "sides": [(16, 16), (64, 32), (48, 48), (16, 128), (128, 16), (32, 32), (272, 144), (64, 64), (160, 16)],
    },
    "gemma4_nearest": gemma4(
        {"num_hidden_layers": 2, "layer_types": ["sliding_attention", "full_attention"], "sliding_window": 24},
        {"patch_size": 4, "pooling_kernel_size": 2},
        {"resample": 0, "do_rescale": False, "do_normalize": True, "image_mean": [0.0] * 3, "image_std": [255.0] * 3},
    ),
}
