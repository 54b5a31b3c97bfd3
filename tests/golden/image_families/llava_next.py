"""LLaVA-NeXT."""

from image_cases import CHATML, CLIP, FAST, HALF, LLAMA, TEXT, VISION

TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<image>"]
TEMPLATE = CHATML.replace("IMAGE", "<image>\\n")
TOKENIZER = {
    "eos_token": "<|im_end|>",
    "pad_token": "<|endoftext|>",
    "extra_special_tokens": {"image_token": "<image>"},
}
IDS = {"image_token_index": "<image>"}

# Settings of the image processor for odd settings.
ODD = {
    "image_processor_type": "LlavaNextImageProcessor",
    "processor": {
        "processor_class": "LlavaNextProcessor",
        "patch_size": 8,
        "num_additional_image_tokens": 1,
        "vision_feature_select_strategy": "default",
    },
    "settings": {
        "size": {"shortest_edge": 40},
        "crop_size": {"height": 40, "width": 40},
        "image_grid_pinpoints": [[40, 80], [80, 40], [80, 80], [120, 40], [40, 120]],
    },
}


def llava_next(config, text, vision, image):
    side, patch = vision["image_size"], vision["patch_size"]
    sizes = [[side * rows, side * columns] for rows, columns in config.pop("grids")]
    return {
        "config": {
            "model_type": "llava_next",
            "vision_feature_select_strategy": "default",
            "image_grid_pinpoints": sizes,
            **config,
            "text_config": text,
            "vision_config": {"model_type": "clip_vision_model", "projection_dim": 32, **VISION, **vision},
        },
        "preprocessor": {
            "image_processor_type": "LlavaNextImageProcessor",
            **FAST,
            **CLIP,
            "resample": 3,
            "do_center_crop": True,
            "do_pad": True,
            "size": {"shortest_edge": side},
            "crop_size": {"height": side, "width": side},
            "image_grid_pinpoints": sizes,
            **image,
        },
        "processor": {
            "processor_class": "LlavaNextProcessor",
            "patch_size": patch,
            "num_additional_image_tokens": 1,
            "vision_feature_select_strategy": "default",
        },
    }


# The number of the first case, which chooses the images of each.
FIRST = 28
CASES = {
    "llava_next": llava_next(
        {"grids": [(1, 2), (2, 1), (2, 2), (3, 1), (1, 3)], "vision_feature_layer": -2},
        {**TEXT, "model_type": "mistral", "head_dim": 8, "rms_norm_eps": 1e-5, "sliding_window": None},
        {"image_size": 40, "patch_size": 8, "num_hidden_layers": 3},
        {},
    ),
    # Seven pixels of each side of a tile are in no patch. One of the sizes is that of a tile.
    "llava_next_rests": llava_next(
        {
            "grids": [(1, 1), (1, 3), (2, 2)],
            "vision_feature_layer": -1,
            "multimodal_projector_bias": False,
            "tie_word_embeddings": True,
        },
        {**LLAMA, "tie_word_embeddings": True},
        {"image_size": 47, "patch_size": 10, "hidden_act": "gelu", "layer_norm_eps": 1e-3, "num_attention_heads": 2},
        {"resample": 2, "size": {"height": 47, "width": 47}, "do_center_crop": False, "do_resize": False, **HALF},
    ),
    # The tensors have the names of published files.
    "llava_next_first_block": {
        **llava_next(
            {"grids": [(2, 3), (1, 4)], "vision_feature_layer": 1},
            {**TEXT, "model_type": "qwen2", "rms_norm_eps": 1e-6, "rope_theta": 1e6},
            {"image_size": 28, "patch_size": 7},
            {},
        ),
        "rename": {
            "model.language_model.": "language_model.model.",
            "lm_head.": "language_model.lm_head.",
            "model.vision_tower.": "vision_tower.vision_model.",
            "model.multi_modal_projector.": "multi_modal_projector.",
            "model.image_newline": "image_newline",
        },
    },
}
