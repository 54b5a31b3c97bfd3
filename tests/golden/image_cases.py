"""The settings and images that the models of image_families share."""

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

def qwen(family, text, vision, image, config=None, flat=False):
    is_third = family != "qwen2_5_vl"
    text = {**TEXT, "rms_norm_eps": 1e-6, "rope_theta": 1e6, **text}
    vision = {"model_type": f"{family}_vision" if not flat else family, **QWEN_VISION, **vision}
    texts = text if flat else {"text_config": {"model_type": f"{family}_text", **text}}
    return {
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
