"""SmolVLM and Idefics 3."""

from image_cases import FAST, HALF, CLIP, BYTES, LINES, VISION, LLAMA

TOKENS = (
    ["<|endoftext|>", "<|im_start|>", "<fake_token_around_image>", "<image>", "<end_of_utterance>"]
    + ["<global-img>"]
    + [f"<row_{row}_col_{column}>" for row in range(1, 5) for column in range(1, 5)]
)
TEMPLATE = LINES
TOKENIZER = {
    "bos_token": "<|im_start|>",
    "eos_token": "<end_of_utterance>",
    "pad_token": "<|endoftext|>",
    "extra_special_tokens": {
        "fake_image_token": "<fake_token_around_image>",
        "image_token": "<image>",
        "end_of_utterance_token": "<end_of_utterance>",
        "global_image_token": "<global-img>",
    },
}
IDS = {"image_token_id": "<image>"}

# Settings of the image processor for odd settings.
ODD = {
    "image_processor_type": "SmolVLMImageProcessor",
    "processor": {"processor_class": "SmolVLMProcessor"},
    "settings": {"size": {"longest_edge": 130}, "max_image_size": {"longest_edge": 64}},
}



def smolvlm(config, text, vision, image, seq_len, model_type="smolvlm"):
    name = "SmolVLM" if model_type == "smolvlm" else "Idefics3"
    return {
        "config": {
            "model_type": model_type,
            **config,
            "text_config": {**LLAMA, **text},
            "vision_config": {"model_type": f"{model_type}_vision", **VISION, **vision},
        },
        "preprocessor": {
            "image_processor_type": f"{name}ImageProcessor",
            **FAST,
            **HALF,
            "resample": 1,
            "do_pad": True,
            "do_image_splitting": True,
            "max_image_size": {"longest_edge": vision["image_size"]},
            **image,
        },
        "processor": {"processor_class": f"{name}Processor", "image_seq_len": seq_len},
    }


# The number of the first case, which chooses the images of each.
FIRST = 0
CASES = {
    "smolvlm": smolvlm(
        {"scale_factor": 2, "tie_word_embeddings": True},
        {"tie_word_embeddings": True},
        {"image_size": 64, "patch_size": 16},
        {"size": {"longest_edge": 128}},
        4,
    ),
    "smolvlm_whole_images": smolvlm(
        {"scale_factor": 3, "tie_word_embeddings": False},
        {"num_key_value_heads": 1, "rms_norm_eps": 1e-3, "attention_bias": True},
        {"image_size": 54, "patch_size": 9, "hidden_act": "gelu", "layer_norm_eps": 1e-3, "num_hidden_layers": 3},
        {"size": {"longest_edge": 100}, "do_image_splitting": False, "resample": 3, **CLIP},
        4,
    ),
    "idefics3": smolvlm(
        {"scale_factor": 4, "tie_word_embeddings": False},
        {"num_hidden_layers": 3, "rope_parameters": {"rope_type": "default", "rope_theta": 500.0}, "rope_theta": None},
        {"image_size": 64, "patch_size": 8, "num_attention_heads": 2, "hidden_act": "silu"},
        {"size": {"longest_edge": 150}},
        4,
        "idefics3",
    ),
    # With 25 patches per side, fractional positions differ from the index.
    "idefics3_fractions": smolvlm(
        {"scale_factor": 5, "tie_word_embeddings": True},
        {"tie_word_embeddings": True, "mlp_bias": True},
        {"image_size": 100, "patch_size": 4, "intermediate_size": 24, "hidden_act": "quick_gelu"},
        {"size": {"longest_edge": 100}, "resample": 2},
        25,
        "idefics3",
    ),
    "smolvlm_not_resized": {
        **smolvlm(
            {"scale_factor": 2, "tie_word_embeddings": True},
            {"tie_word_embeddings": True},
            {"image_size": 64, "patch_size": 16},
            {"size": {"longest_edge": 128}, "do_resize": False, "resample": 0, **BYTES},
            4,
        ),
        "sides": [(64, 48), (64, 64), (30, 90), (130, 64), (20, 20), (5, 60), (65, 65), (64, 128), (100, 31)],
    },
}
