"""Makes a model with images of random weights, and measures transformers with it.

measured.py FOLDER THREADS FAMILY writes the model into FOLDER. The towers have the width of real
ones, and some have fewer layers. A request names a JPEG file, which is drawn if it is missing. The
answer has the times of its parts:
{"prepare": SECONDS, "tower": SECONDS, "first": SECONDS, "token": ID, "tokens": COUNT}
"""

import json
import os
import time
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"

import peer  # noqa: E402

QUESTION = "What is in the picture?"
SIDES = (1280, 960)
NORMS = {"openai": ([0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711])}

SMOLVLM_TOKENS = ["<|im_start|>", "<fake_token_around_image>", "<image>", "<global-img>", "<end_of_utterance>"]
SMOLVLM_TOKENS += [f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7)]
SMOLVLM = {
    "tokens": SMOLVLM_TOKENS,
    "class": "SmolVLMForConditionalGeneration",
    "about": "smolvlm: 12 layers of 768, tiles of 512 pixels; text 6 layers of 576",
    "config": {
        "model_type": "smolvlm",
        "image_token_id": 258,
        "scale_factor": 4,
        "tie_word_embeddings": True,
        "text_config": {
            "model_type": "llama",
            "hidden_size": 576,
            "intermediate_size": 1536,
            "num_hidden_layers": 6,
            "num_attention_heads": 9,
            "num_key_value_heads": 3,
            "max_position_embeddings": 8192,
            "rope_theta": 100000.0,
            "tie_word_embeddings": True,
        },
        "vision_config": {
            "model_type": "smolvlm_vision",
            "hidden_size": 768,
            "intermediate_size": 3072,
            "num_hidden_layers": 12,
            "num_attention_heads": 12,
            "image_size": 512,
            "patch_size": 16,
        },
    },
    "preprocessor": {
        "image_processor_type": "SmolVLMImageProcessor",
        "do_image_splitting": True,
        "do_pad": True,
        "resample": 1,
        "size": {"longest_edge": 1024},
        "max_image_size": {"longest_edge": 512},
        "image_mean": [0.5] * 3,
        "image_std": [0.5] * 3,
    },
    "processor": {"processor_class": "SmolVLMProcessor", "image_seq_len": 64},
    "extra": {
        "fake_image_token": "<fake_token_around_image>",
        "image_token": "<image>",
        "end_of_utterance_token": "<end_of_utterance>",
        "global_image_token": "<global-img>",
    },
    "image": "<image>",
    "end": "<end_of_utterance>",
}
QWEN2_5_VL = {
    "tokens": ["<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"],
    "class": "Qwen2_5_VLForConditionalGeneration",
    "about": "qwen2_5_vl: 8 layers of 1280, two of them over the whole image; text 2 layers of 2048",
    "config": {
        "model_type": "qwen2_5_vl",
        "vision_start_token_id": 258,
        "vision_end_token_id": 259,
        "image_token_id": 260,
        "video_token_id": 261,
        "tie_word_embeddings": True,
        "text_config": {
            "model_type": "qwen2_5_vl_text",
            "hidden_size": 2048,
            "intermediate_size": 11008,
            "num_hidden_layers": 2,
            "num_attention_heads": 16,
            "num_key_value_heads": 2,
            "max_position_embeddings": 8192,
            "rope_theta": 1000000.0,
            "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
            "tie_word_embeddings": True,
        },
        "vision_config": {
            "model_type": "qwen2_5_vl_vision",
            "depth": 8,
            "hidden_size": 1280,
            "intermediate_size": 3420,
            "num_heads": 16,
            "patch_size": 14,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "out_hidden_size": 2048,
            "window_size": 112,
            "fullatt_block_indexes": [3, 7],
            "hidden_act": "silu",
        },
    },
    "preprocessor": {
        "image_processor_type": "Qwen2VLImageProcessor",
        "resample": 3,
        "patch_size": 14,
        "temporal_patch_size": 2,
        "merge_size": 2,
        "min_pixels": 3136,
        "max_pixels": 401408,
        "image_mean": NORMS["openai"][0],
        "image_std": NORMS["openai"][1],
    },
    "processor": {"processor_class": "Qwen2_5_VLProcessor"},
    "extra": {},
    "image": "<|vision_start|><|image_pad|><|vision_end|>",
    "end": "<|im_end|>",
}
FAMILIES = {"smolvlm": SMOLVLM, "qwen2_5_vl": QWEN2_5_VL}
SWITCHES = {"do_resize": True, "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True, "do_convert_rgb": True}


def write_tokenizer(folder, family):
    """A token for each byte, and the family's special tokens."""
    import tokenizers

    bytes_ = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    model = tokenizers.models.BPE({char: id for id, char in enumerate(bytes_)}, [])
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens([tokenizers.AddedToken(token, special=True) for token in family["tokens"]])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": family["end"], "pad_token": family["end"]}
    settings |= {"processor_class": family["processor"]["processor_class"], "extra_special_tokens": family["extra"]}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def make(folder, family):
    import torch
    import transformers

    write_tokenizer(folder, family)
    config = family["config"]
    config["text_config"]["vocab_size"] = 256 + len(family["tokens"])
    settings = transformers.AutoConfig.for_model(**config)
    torch.manual_seed(1)
    model = getattr(transformers, family["class"])(settings)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=parameter[0].numel() ** -0.5)
    model.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(SWITCHES | family["preprocessor"]))
    (folder / "processor_config.json").write_text(json.dumps(family["processor"]))
    template = "{%% for m in messages %%}{%% for b in m['content'] %%}{%% if b['type'] == 'image' %%}%s{%% else %%}{{ b['text'] }}{%% endif %%}{%% endfor %%}%s{%% endfor %%}"
    (folder / "chat_template.jinja").write_text(template % (family["image"], family["end"]))


def draw(path):
    """Waves of colour with some noise, as in a photo. The name of the file is the seed."""
    import numpy
    from PIL import Image

    random = numpy.random.default_rng(int(path.stem))
    x, y = numpy.meshgrid(numpy.linspace(0, 1, SIDES[0]), numpy.linspace(0, 1, SIDES[1]))
    planes = []
    for _ in range(3):
        waves = sum(numpy.sin(a * x + b * y + c) for a, b, c in random.uniform(-30, 30, (6, 3)))
        planes.append(waves * 20 + 128 + random.normal(0, 6, x.shape))
    Image.fromarray(numpy.stack(planes, -1).clip(0, 255).astype("uint8")).save(path, quality=90)


class Transformers:
    def __init__(self, folder, threads, family):
        import torch
        import torchvision
        import transformers

        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)
        family = FAMILIES[family]
        make(Path(folder), family)
        self.torch = torch
        self.version = f"transformers {transformers.__version__}, torch {torch.__version__}, torchvision {torchvision.__version__}; {family['about']}; images of {SIDES[0]} x {SIDES[1]}"
        self.processor = transformers.AutoProcessor.from_pretrained(folder)
        self.model = transformers.AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32).eval()

    def image(self, path):
        if not Path(path).exists():
            draw(Path(path))
        blocks = [{"type": "image", "path": path}, {"type": "text", "text": QUESTION}]
        messages = [{"role": "user", "content": blocks}]
        start = time.perf_counter()
        inputs = self.processor.apply_chat_template(
            messages, tokenize=True, return_dict=True, return_tensors="pt", add_generation_prompt=True
        )
        prepared = time.perf_counter()
        names = ("pixel_values", "image_grid_thw", "pixel_attention_mask")
        self.model.model.get_image_features(**{name: inputs[name] for name in names if name in inputs})
        encoded = time.perf_counter()
        token = self.model.generate(**inputs, max_new_tokens=1, do_sample=False)[0, -1].item()
        end = time.perf_counter()
        tower, first = encoded - prepared, prepared - start + end - encoded
        tokens = inputs["input_ids"].shape[1]
        return {"prepare": prepared - start, "tower": tower, "first": first, "token": token, "tokens": tokens}


if __name__ == "__main__":
    peer.serve(Transformers)
