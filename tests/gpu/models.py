"""Models of random weights with the shapes of real ones, made where the proof runs."""

import json

import torch
import transformers

transformers.utils.logging.disable_progress_bar()

# Both implementations of attention compute this shape in bf16: without a bound of scores flash, with one
# buckets. The bound is so large that it changes no score. The same seed makes the same weights.
HEADS = {
    "model_type": "gemma2",
    "hidden_size": 1024,
    "intermediate_size": 2048,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "sliding_window": 512,
    "vocab_size": 32768,
    "tie_word_embeddings": True,
    "final_logit_softcapping": None,
}
BOUND = 1e4
# Text configurations by name. "small" replaces the sizes on a machine without a GPU.
QWEN3 = {"model_type": "qwen3", "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936}
SHAPES = {
    "qwen3-1.7b": {
        **QWEN3,
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "tie_word_embeddings": True,
    },
    # As many operations in a step as qwen3-1.7b, which compute next to nothing.
    "launches": {
        **QWEN3,
        "hidden_size": 256,
        "intermediate_size": 256,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "tie_word_embeddings": True,
    },
    "qwen3-8b": {
        **QWEN3,
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "tie_word_embeddings": False,
    },
    "gemma3": {
        "model_type": "gemma3_text",
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "num_hidden_layers": 12,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "sliding_window": 512,
        "vocab_size": 151936,
        "tie_word_embeddings": True,
    },
    "heads-128": {**HEADS, "head_dim": 128, "query_pre_attn_scalar": 128, "attn_logit_softcapping": None},
    "heads-128-bound": {**HEADS, "head_dim": 128, "query_pre_attn_scalar": 128, "attn_logit_softcapping": BOUND},
    "heads-256": {**HEADS, "head_dim": 256, "query_pre_attn_scalar": 256, "attn_logit_softcapping": None},
    "heads-256-bound": {**HEADS, "head_dim": 256, "query_pre_attn_scalar": 256, "attn_logit_softcapping": BOUND},
    # A mixture that a CPU computes in little time, also without fast products of f16.
    "experts": {
        "model_type": "qwen3_moe",
        "hidden_size": 1024,
        "intermediate_size": 2048,
        "moe_intermediate_size": 512,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "num_experts": 16,
        "num_experts_per_tok": 4,
        "norm_topk_prob": True,
        "vocab_size": 32768,
        "tie_word_embeddings": False,
    },
    "mixture": {
        "model_type": "qwen3_moe",
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "moe_intermediate_size": 768,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "num_experts": 64,
        "num_experts_per_tok": 8,
        "norm_topk_prob": True,
        "vocab_size": 151936,
        "tie_word_embeddings": False,
    },
}
SMALL = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "moe_intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "sliding_window": 64,
    "vocab_size": 1024,
}
CONTEXT = 8192
# The spread of weights, times the square root of the hidden size. With it, layers change the hidden
# state more than the embeddings do, and ties are rare.
SPREAD = 1.8
SEED = 5


def config(name, small):
    """Returns the configuration of a model for transformers."""
    values = dict(SHAPES[name])
    if small:
        values |= {key: value for key, value in SMALL.items() if key in values}
    ids = {"bos_token_id": 256, "eos_token_id": 257, "pad_token_id": 257}
    spread = SPREAD / values["hidden_size"] ** 0.5
    values |= {"max_position_embeddings": CONTEXT, "initializer_range": spread, **ids}
    return transformers.AutoConfig.for_model(**values)


def exists(folder):
    """Returns true if a folder has a whole model."""
    return (folder / "complete").exists()


def make(name, folder, device, small):
    """Writes a model in bf16 with its tokenizer."""
    torch.manual_seed(SEED)
    with torch.device(device):
        model = transformers.AutoModelForCausalLM.from_config(config(name, small), dtype=torch.bfloat16)
    model.save_pretrained(folder)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer()))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
    (folder / "complete").touch()


def letters():
    """Returns the letter of each byte in byte-level vocabularies, as GPT-2 defines them."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(byte) if byte in printable else chr(0x100 + others.index(byte)) for byte in range(256)]


def tokenizer():
    """Returns tokenizer.json: a token for each byte, and the ends of a text."""
    vocabulary = {letter: i for i, letter in enumerate(letters())}
    options = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    added = [{"id": i, "content": text, **options} for i, text in enumerate(["<s>", "</s>"], len(vocabulary))]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    model = {"type": "BPE", "vocab": vocabulary, "merges": []}
    return {"version": "1.0", "added_tokens": added, "pre_tokenizer": level, "decoder": level, "model": model}


def prompts(count, lengths, vocabulary, seed):
    """Returns prompts of random token ids, whose lengths repeat."""
    generator = torch.Generator().manual_seed(seed)

    def draw(length):
        return torch.randint(0, vocabulary, (length,), generator=generator).tolist()

    return [draw(lengths[i % len(lengths)]) for i in range(count)]
