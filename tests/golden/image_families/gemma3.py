"""Gemma 3."""

from image_cases import FAST, HALF, IMAGENET, BYTES, TURNS, TEXT, VISION

TOKENS = (
    ["<pad>", "<eos>", "<bos>", "<start_of_turn>", "<end_of_turn>", "<start_of_image>"]
    + ["<end_of_image>", "<image_soft_token>"]
)
TEMPLATE = (
    TURNS.replace("BEGIN", "<start_of_turn>")
    .replace("END", "<end_of_turn>")
    .replace("IMAGE", "<start_of_image>")
)
TOKENIZER = {
    "bos_token": "<bos>",
    "eos_token": "<eos>",
    "pad_token": "<pad>",
    "extra_special_tokens": {
        "boi_token": "<start_of_image>",
        "eoi_token": "<end_of_image>",
        "image_token": "<image_soft_token>",
    },
}
IDS = {
    "image_token_index": "<image_soft_token>",
    "boi_token_index": "<start_of_image>",
    "eoi_token_index": "<end_of_image>",
}

# Settings of the image processor for odd settings.
ODD = {
    "image_processor_type": "Gemma3ImageProcessor",
    "processor": {"processor_class": "Gemma3Processor"},
    "settings": {"size": {"height": 56, "width": 56}},
}

GEMMA3 = {
    **TEXT,
    "model_type": "gemma3_text",
    "head_dim": 16,
    "query_pre_attn_scalar": 16,
    "rope_theta": 1e6,
    "rope_local_base_freq": 1e4,
}
SIGLIP = {**VISION, "model_type": "siglip_vision_model", "vision_use_head": False}


def gemma3(tokens, text, vision, image=None, config=None, rename=None):
    side = vision["image_size"]
    return {
        "config": {
            "model_type": "gemma3",
            "mm_tokens_per_image": tokens,
            "text_config": {**GEMMA3, **text},
            "vision_config": {**SIGLIP, **vision},
            **(config or {}),
        },
        "preprocessor": {
            "image_processor_type": "Gemma3ImageProcessor",
            **FAST,
            **HALF,
            "resample": 2,
            "size": {"height": side, "width": side},
            **(image or {}),
        },
        "processor": {"processor_class": "Gemma3Processor", "image_seq_length": tokens},
        "rename": rename or {},
        "norms_around": 0.0,
    }


# The number of the first case, which chooses the images of each.
FIRST = 4
CASES = {
    "gemma3": gemma3(
        4,
        {"sliding_window": 24, "layer_types": ["sliding_attention", "full_attention"]},
        {"image_size": 56, "patch_size": 14},
    ),
    # The window is smaller than an image. The tensors have the names of published files.
    "gemma3_small_windows": gemma3(
        16,
        {
            "sliding_window": 9,
            "sliding_window_pattern": 3,
            "num_hidden_layers": 4,
            "query_pre_attn_scalar": 24,
            "rope_scaling": {"rope_type": "linear", "factor": 8.0},
            "rope_theta": 2000.0,
            "rope_local_base_freq": 100.0,
            "final_logit_softcapping": 30.0,
        },
        {"image_size": 64, "patch_size": 8, "num_hidden_layers": 3, "layer_norm_eps": 1e-3, "hidden_act": "gelu"},
        {"resample": 3, **IMAGENET, "do_pan_and_scan": True},
        rename={"vision_tower.": "vision_tower.vision_model."},
    ),
    "gemma3_without_windows": gemma3(
        9,
        {
            "layer_types": ["full_attention"] * 3,
            "num_hidden_layers": 3,
            "num_key_value_heads": 1,
            "attention_bias": True,
            "rms_norm_eps": 1e-4,
        },
        {"image_size": 60, "patch_size": 5, "num_attention_heads": 2, "hidden_act": "quick_gelu"},
    ),
    # Rests beside whole patches are left out. Two images of a prompt must have equal sides.
    "gemma3_not_resized": {
        **gemma3(
            4,
            {"sliding_window": 24, "layer_types": ["sliding_attention", "full_attention"]},
            {"image_size": 56, "patch_size": 14},
            {"do_resize": False, **BYTES},
        ),
        "sides": [(56, 56), (57, 69), (28, 112), (28, 112), (112, 41), (112, 41), (230, 14), (69, 56), (69, 56)],
    },
}
