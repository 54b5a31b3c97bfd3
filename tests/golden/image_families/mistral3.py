"""Mistral 3."""

from image_cases import FAST, HALF, CLIP, BYTES, BRACKETS, TEXT, VISION

TOKENS = (
    ["<unk>", "<s>", "</s>", "<pad>", "[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"]
    + ["[IMG]", "[IMG_BREAK]", "[IMG_END]"]
)
TEMPLATE = BRACKETS
TOKENIZER = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
IDS = {"image_token_index": "[IMG]"}

# Settings of the image processor for odd settings.
ODD = {
    "image_processor_type": "PixtralImageProcessor",
    "processor": {"processor_class": "PixtralProcessor", "patch_size": 8, "spatial_merge_size": 2},
    "settings": {"size": {"longest_edge": 96}},
    "call": {"patch_size": 16},
    "cells": (1, 16),
}



def mistral3(config, text, vision, image):
    merge, patch = config["spatial_merge_size"], vision["patch_size"]
    text = {**TEXT, "model_type": "mistral", "head_dim": 8, "rms_norm_eps": 1e-5, "sliding_window": None, **text}
    return {
        "config": {
            "model_type": "mistral3",
            "vision_feature_layer": -1,
            "projector_hidden_act": "gelu",
            **config,
            "text_config": text,
            "vision_config": {"model_type": "pixtral", **VISION, **vision},
        },
        "preprocessor": {
            "image_processor_type": "PixtralImageProcessorFast",
            "processor_class": "PixtralProcessor",
            **FAST,
            **CLIP,
            "resample": 3,
            "patch_size": {"height": patch, "width": patch},
            **image,
        },
        "processor": {
            "processor_class": "PixtralProcessor",
            "image_token": "[IMG]",
            "image_break_token": "[IMG_BREAK]",
            "image_end_token": "[IMG_END]",
            "patch_size": patch,
            "spatial_merge_size": merge,
        },
    }


# The number of the first case, which chooses the images of each.
FIRST = 20
CASES = {
    "mistral3": mistral3(
        {"spatial_merge_size": 2, "tie_word_embeddings": False},
        {"rope_theta": 1e6},
        {"image_size": 112, "patch_size": 8, "rope_theta": 1e4, "hidden_act": "silu", "head_dim": 8},
        {"size": {"longest_edge": 112}},
    ),
    "mistral3_large_blocks": mistral3(
        {"spatial_merge_size": 3, "multimodal_projector_bias": True, "tie_word_embeddings": True},
        {"rope_theta": 1e4, "rms_norm_eps": 1e-3, "num_key_value_heads": 1, "tie_word_embeddings": True},
        {
            "image_size": 100,
            "patch_size": 5,
            "rope_theta": 100.0,
            "hidden_act": "gelu",
            "num_attention_heads": 2,
            "num_hidden_layers": 3,
            "head_dim": 16,
        },
        {"size": {"height": 100, "width": 60}, "resample": 2, **HALF},
    ),
    # Without a flag, the embeddings are tied.
    "mistral3_windows": mistral3(
        {"spatial_merge_size": 1},
        {"sliding_window": 12, "rope_parameters": {"rope_type": "default", "rope_theta": 500.0}, "head_dim": 12},
        {
            "image_size": 84,
            "patch_size": 14,
            "rope_parameters": {"rope_type": "axial", "rope_theta": 1000.0},
            "hidden_act": "gelu_pytorch_tanh",
            "head_dim": 8,
        },
        {"size": {"longest_edge": 84}},
    ),
    "mistral3_not_resized": {
        **mistral3(
            {"spatial_merge_size": 2, "tie_word_embeddings": False},
            {"rope_theta": 1e6},
            {"image_size": 112, "patch_size": 8, "rope_theta": 1e4, "hidden_act": "silu", "head_dim": 8},
            {"size": {"longest_edge": 112}, "do_resize": False, "resample": 0, **BYTES},
        ),
        "sides": [(64, 48), (57, 91), (33, 30), (150, 17), (16, 60), (79, 41), (40, 24), (90, 90), (31, 48)],
    },
}
