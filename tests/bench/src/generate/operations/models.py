"""Writes tiny models of random weights with transformers, each in two depths.

models.py FOLDER writes them and prints a line of JSON for each:
{"name": TEXT, "layers": COUNT, "folder": PATH, "embeddings": COUNT}
"""

import json
import os
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"

VOCABULARY = 256
SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 512,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 2,
}
EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "norm_topk_prob": True}
# Those of Granite 3.3: with a multiplier of 1, a model does without the product.
MULTIPLIERS = {
    "embedding_multiplier": 12.0,
    "attention_multiplier": 0.0078125,
    "residual_multiplier": 0.22,
    "logits_scaling": 8.0,
}
INPUTS = {"hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": VOCABULARY}
# The name of the model's type, the layers after which kinds of layers repeat, and other settings.
FAMILIES = [
    ("llama", 2, {}),
    ("mistral", 2, {}),
    ("qwen2", 2, {}),
    ("qwen3", 2, {}),
    ("phi3", 2, {}),
    ("granite", 2, MULTIPLIERS),
    ("smollm3", 4, {}),
    ("gemma2", 2, {}),
    ("gemma3_text", 6, {}),
    ("gemma4_text", 2, INPUTS),
    ("qwen3_moe", 2, EXPERTS),
]


def write_tokenizer(folder):
    import tokenizers

    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE({char: id for id, char in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))


def main():
    import torch
    import transformers

    torch.manual_seed(1)
    for name, period, settings in FAMILIES:
        for layers in [period, 2 * period]:
            folder = Path(sys.argv[1]) / f"{name}-{layers}"
            config = SHAPE | settings | {"num_hidden_layers": layers}
            if name == "gemma4_text":
                config |= {"layer_types": ["sliding_attention", "full_attention"] * (layers // 2), "global_head_dim": 8}
            config = transformers.AutoConfig.for_model(name, **config)
            transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(folder)
            write_tokenizer(folder)
            embeddings = 2 if "hidden_size_per_layer_input" in settings else 1
            print(json.dumps({"name": name, "layers": layers, "folder": str(folder), "embeddings": embeddings}), flush=True)


main()
