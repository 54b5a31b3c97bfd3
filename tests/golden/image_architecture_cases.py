"""The models and images of make_image_architectures.py, as data."""

FAST = {"do_resize": True, "do_rescale": True, "rescale_factor": 1 / 255, "do_convert_rgb": True, "do_normalize": True}
HALF = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
CLIP = {"image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711]}
IMAGENET = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}

# Values of bytes that are not scaled first.
BYTES = {"do_rescale": False, "image_mean": [127.5, 120.0, 130.0], "image_std": [127.5, 100.0, 90.0]}

CHATML = """\
{% for message in messages %}
<|im_start|>{{ message.role }}
{% for block in message.content %}
{{- block.text if block.type == 'text' else 'IMAGE' }}
{%- endfor %}<|im_end|>
{% endfor %}
{% if add_generation_prompt %}
<|im_start|>assistant
{% endif %}"""
TURNS = """\
{{ bos_token }}
{%- for message in messages %}
BEGIN{{ 'model' if message.role == 'assistant' else message.role }}
{% for block in message.content %}
{{- block.text | trim if block.type == 'text' else 'IMAGE' }}
{%- endfor %}END
{% endfor %}
{% if add_generation_prompt %}
BEGINmodel
{% endif %}"""
LINES = """\
<|im_start|>
{%- for message in messages %}
{{- message.role | capitalize }}:{{ '' if message.content[0].type == 'image' else ' ' }}
{%- for block in message.content %}
{{- block.text if block.type == 'text' else '<image>' }}
{%- endfor %}<end_of_utterance>
{% endfor %}
{% if add_generation_prompt %}
Assistant:
{%- endif %}"""
BRACKETS = """\
{{ bos_token }}
{%- for message in messages %}
{%- set name = {'system': 'SYSTEM_PROMPT', 'user': 'INST'}[message.role] %}
{{- '[' + name + ']' if name else '' }}
{%- for block in message.content %}
{{- block.text if block.type == 'text' else '[IMG]' }}
{%- endfor %}
{{- '[/' + name + ']' if name else eos_token }}
{%- endfor %}"""

QWEN_TOKENS = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
]
QWEN_IDS = {
    "image_token_id": "<|image_pad|>",
    "video_token_id": "<|video_pad|>",
    "vision_start_token_id": "<|vision_start|>",
    "vision_end_token_id": "<|vision_end|>",
}
QWEN_TEMPLATE = CHATML.replace("IMAGE", "<|vision_start|><|image_pad|><|vision_end|>")

# Per family: the special tokens, the chat template, the settings of tokenizer_config.json, and the
# tokens whose ids the config has.
FAMILIES = {
    "smolvlm": {
        "tokens": ["<|endoftext|>", "<|im_start|>", "<fake_token_around_image>", "<image>", "<end_of_utterance>"]
        + ["<global-img>"]
        + [f"<row_{row}_col_{column}>" for row in range(1, 5) for column in range(1, 5)],
        "template": LINES,
        "tokenizer": {
            "bos_token": "<|im_start|>",
            "eos_token": "<end_of_utterance>",
            "pad_token": "<|endoftext|>",
            "extra_special_tokens": {
                "fake_image_token": "<fake_token_around_image>",
                "image_token": "<image>",
                "end_of_utterance_token": "<end_of_utterance>",
                "global_image_token": "<global-img>",
            },
        },
        "ids": {"image_token_id": "<image>"},
    },
    "gemma3": {
        "tokens": ["<pad>", "<eos>", "<bos>", "<start_of_turn>", "<end_of_turn>", "<start_of_image>"]
        + ["<end_of_image>", "<image_soft_token>"],
        "template": TURNS.replace("BEGIN", "<start_of_turn>")
        .replace("END", "<end_of_turn>")
        .replace("IMAGE", "<start_of_image>"),
        "tokenizer": {
            "bos_token": "<bos>",
            "eos_token": "<eos>",
            "pad_token": "<pad>",
            "extra_special_tokens": {
                "boi_token": "<start_of_image>",
                "eoi_token": "<end_of_image>",
                "image_token": "<image_soft_token>",
            },
        },
        "ids": {
            "image_token_index": "<image_soft_token>",
            "boi_token_index": "<start_of_image>",
            "eoi_token_index": "<end_of_image>",
        },
    },
    "gemma4": {
        "tokens": ["<pad>", "<eos>", "<bos>", "<|turn>", "<turn|>", "<|image>", "<image|>", "<|image|>", "<|audio>"]
        + ["<audio|>", "<|audio|>", "<|video|>"],
        "template": TURNS.replace("BEGIN", "<|turn>").replace("END", "<turn|>").replace("IMAGE", "\\n\\n<|image|>\\n\\n"),
        "tokenizer": {
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
        },
        "ids": {
            "image_token_id": "<|image|>",
            "boi_token_id": "<|image>",
            "eoi_token_id": "<image|>",
            "video_token_id": "<|video|>",
            "audio_token_id": "<|audio|>",
            "boa_token_id": "<|audio>",
            "eoa_token_index": "<audio|>",
        },
    },
    "qwen2_5_vl": {
        "tokens": QWEN_TOKENS,
        "template": QWEN_TEMPLATE,
        "tokenizer": {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"},
        "ids": QWEN_IDS,
    },
    "qwen3_vl": {
        "tokens": QWEN_TOKENS,
        "template": QWEN_TEMPLATE,
        "tokenizer": {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"},
        "ids": QWEN_IDS,
    },
    "mistral3": {
        "tokens": ["<unk>", "<s>", "</s>", "<pad>", "[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"]
        + ["[IMG]", "[IMG_BREAK]", "[IMG_END]"],
        "template": BRACKETS,
        "tokenizer": {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"},
        "ids": {"image_token_index": "[IMG]"},
    },
    "internvl": {
        "tokens": ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<img>", "</img>", "<IMG_CONTEXT>", "<video>"],
        "template": CHATML.replace("IMAGE", "<IMG_CONTEXT>\\n"),
        "tokenizer": {
            "eos_token": "<|im_end|>",
            "pad_token": "<|endoftext|>",
            "extra_special_tokens": {
                "start_image_token": "<img>",
                "end_image_token": "</img>",
                "context_image_token": "<IMG_CONTEXT>",
                "video_token": "<video>",
            },
        },
        "ids": {"image_token_id": "<IMG_CONTEXT>"},
    },
}

TEXT = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
}
VISION = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
QWEN_VISION = {
    "depth": 2,
    "hidden_size": 32,
    "intermediate_size": 40,
    "num_heads": 2,
    "in_channels": 3,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
    "out_hidden_size": 32,
}
LLAMA = {**TEXT, "model_type": "llama", "head_dim": 8, "rms_norm_eps": 1e-5, "rope_theta": 1e4}
GEMMA3 = {
    **TEXT,
    "model_type": "gemma3_text",
    "head_dim": 16,
    "query_pre_attn_scalar": 16,
    "rope_theta": 1e6,
    "rope_local_base_freq": 1e4,
}
SIGLIP = {**VISION, "model_type": "siglip_vision_model", "vision_use_head": False}
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


def smolvlm(config, text, vision, image, seq_len, model_type="smolvlm"):
    name = "SmolVLM" if model_type == "smolvlm" else "Idefics3"
    return {
        "family": "smolvlm",
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


def gemma3(tokens, text, vision, image=None, config=None, rename=None):
    side = vision["image_size"]
    return {
        "family": "gemma3",
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


def gemma4(text, vision, image=None):
    vision = {**GEMMA4_VISION, **vision}
    return {
        "family": "gemma4",
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


def qwen(family, text, vision, image, config=None, flat=False):
    is_third = family == "qwen3_vl"
    text = {**TEXT, "rms_norm_eps": 1e-6, "rope_theta": 1e6, **text}
    vision = {"model_type": f"{family}_vision" if not flat else family, **QWEN_VISION, **vision}
    texts = text if flat else {"text_config": {"model_type": f"{family}_text", **text}}
    return {
        "family": family,
        "config": {"model_type": family, **texts, "vision_config": vision, **(config or {})},
        "preprocessor": {
            "image_processor_type": "Qwen2VLImageProcessorFast" if is_third else "Qwen2VLImageProcessor",
            "processor_class": "Qwen3VLProcessor" if is_third else "Qwen2_5_VLProcessor",
            **FAST,
            **(HALF if is_third else CLIP),
            "resample": 3,
            "patch_size": vision["patch_size"],
            "temporal_patch_size": vision["temporal_patch_size"],
            "merge_size": vision["spatial_merge_size"],
            **image,
        },
        "processor": {},
    }


def mistral3(config, text, vision, image):
    merge, patch = config["spatial_merge_size"], vision["patch_size"]
    text = {**TEXT, "model_type": "mistral", "head_dim": 8, "rms_norm_eps": 1e-5, "sliding_window": None, **text}
    return {
        "family": "mistral3",
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


def internvl(seq_len, config, text, vision, image):
    side = vision["image_size"]
    side = side[0] if isinstance(side, list) else side
    return {
        "family": "internvl",
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


# The models by name. Configs have the names of transformers 4, as in published models, or those of
# transformers 5 (rope_parameters).
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

# Images as PNG files: kind, width, height, and orientation (0: none in the file).
PNGS = [
    ("rgb", 64, 48, 0),
    ("rgb", 57, 91, 0),
    ("gray", 80, 33, 0),
    ("rgba", 70, 70, 0),
    ("rgb", 1, 1, 0),
    ("gray_alpha", 37, 50, 0),
    ("rgb", 90, 60, 6),
    ("palette", 64, 41, 0),
    ("rgb", 28, 28, 0),
    ("rgb", 120, 40, 0),
    ("rgba", 23, 60, 8),
    ("gray", 5, 9, 0),
    ("rgb", 160, 120, 0),
    ("rgb", 40, 29, 3),
    ("palette", 96, 96, 0),
    ("rgb", 210, 9, 0),
    ("gray_alpha", 55, 20, 5),
    ("rgb", 12, 150, 0),
    ("rgb", 33, 34, 2),
    ("rgba", 3, 7, 0),
    ("gray", 101, 77, 0),
    ("rgb", 50, 50, 4),
    ("rgb", 144, 81, 0),
    ("rgba", 130, 65, 7),
]

# Small files of other formats: kind, width, height, and arguments of Pillow's `save`.
FILES = {
    "baseline.jpg": ("RGB", 48, 36, {"quality": 70}),
    "progressive.jpg": ("RGB", 61, 40, {"quality": 80, "progressive": True}),
    "turned.jpg": ("RGB", 40, 56, {"quality": 75, "orientation": 6}),
    "gray.jpg": ("L", 44, 52, {"quality": 60}),
    "whole_chroma.jpg": ("RGB", 35, 35, {"quality": 90, "subsampling": 0}),
    "lossy.webp": ("RGB", 64, 40, {"quality": 75}),
    "lossless_alpha.webp": ("RGBA", 30, 42, {"lossless": True, "exact": True}),
    "interlaced_frame.gif": ("P", 50, 38, {}),
}

# Conversations as (role, blocks). A number is the number of an image in the model's list.
CONVERSATIONS = [
    [("user", ["What is red?"])],
    [("system", ["Be brief."]), ("user", ["Hello!"]), ("assistant", ["Hi."]), ("user", ["And\nnow?"])],
    [("user", [0])],
    [("user", ["See ", 1, " there"])],
    [("user", [2, "or", 3, "?"])],
    [("user", [4, "Who?"]), ("assistant", ["A cat."]), ("user", ["And this? ", 5])],
    [("system", ["Look."]), ("user", [7, 8, " Compare."])],
    [("user", ["\n", 6, "\n\nWhat?"])],
]
IMAGES = 9
