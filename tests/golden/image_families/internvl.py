"""InternVL."""

from image_cases import FAST, HALF, IMAGENET, CHATML, TEXT, VISION

TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<img>", "</img>", "<IMG_CONTEXT>", "<video>"]
TEMPLATE = CHATML.replace("IMAGE", "<IMG_CONTEXT>\\n")
TOKENIZER = {
    "eos_token": "<|im_end|>",
    "pad_token": "<|endoftext|>",
    "extra_special_tokens": {
        "start_image_token": "<img>",
        "end_image_token": "</img>",
        "context_image_token": "<IMG_CONTEXT>",
        "video_token": "<video>",
    },
}
IDS = {"image_token_id": "<IMG_CONTEXT>"}

# Settings of the image processor for odd settings.
ODD = {
    "image_processor_type": "GotOcr2ImageProcessor",
    "processor": {"processor_class": "InternVLProcessor"},
    "settings": {"size": {"height": 56, "width": 56}, "max_patches": 6},
    "call": {"crop_to_patches": True},
}



def internvl(seq_len, config, text, vision, image):
    side = vision["image_size"]
    side = side[0] if isinstance(side, list) else side
    return {
        "config": {
            "model_type": "internvl",
            "image_seq_length": seq_len,
            "vision_feature_layer": -1,
            "vision_feature_select_strategy": "default",
            "projector_hidden_act": "gelu",
            **config,
            "text_config": {**TEXT, "rms_norm_eps": 1e-6, "rope_theta": 1e6, **text},
            "vision_config": {"model_type": "internvl_vision", **VISION, **vision},
        },
        "preprocessor": {
            "image_processor_type": "GotOcr2ImageProcessorFast",
            **FAST,
            **IMAGENET,
            "resample": 3,
            "size": {"height": side, "width": side},
            "crop_to_patches": False,
            **image,
        },
        "processor": {"processor_class": "InternVLProcessor", "image_seq_length": seq_len},
    }


# The number of the first case, which chooses the images of each.
FIRST = 24
CASES = {
    "internvl": internvl(
        4,
        {"downsample_ratio": 0.5, "tie_word_embeddings": False},
        {"model_type": "qwen2"},
        {"image_size": [56, 56], "patch_size": [14, 14], "attention_bias": True},
        {"min_patches": 1, "max_patches": 6},
    ),
    "internvl_rms_norms": internvl(
        4,
        {"downsample_ratio": 0.25, "tie_word_embeddings": True},
        {"model_type": "qwen3", "head_dim": 16, "tie_word_embeddings": True},
        {
            "image_size": [64, 64],
            "patch_size": [8, 8],
            "norm_type": "rms_norm",
            "use_qk_norm": True,
            "attention_bias": False,
            "layer_norm_eps": 1e-3,
            "num_hidden_layers": 3,
        },
        {"min_patches": 2, "max_patches": 4, **HALF},
    ),
    "internvl_without_positions": internvl(
        9,
        {"downsample_ratio": 1.0, "tie_word_embeddings": False},
        {"model_type": "llama", "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}, "rope_theta": None},
        {
            "image_size": 30,
            "patch_size": 10,
            "use_mean_pooling": False,
            "use_absolute_position_embeddings": False,
            "num_attention_heads": 2,
            "hidden_act": "gelu_pytorch_tanh",
        },
        {"max_patches": 12, "resample": 2},
    ),
}
