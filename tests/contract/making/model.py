"""The tiny model of the vectors: tokenizer, chat templates and a Llama with weights from a seed."""

import json
from pathlib import Path

import numpy as np
import torch
import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

SEED = 7
CONTEXT = 256
LONG_CONTEXT = 65536
LONGEST_CONTEXT = 1 << 20
SPECIAL = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|media|>"]
ADDED = ["<think>", "</think>", "<tool_call>", "</tool_call>"]
MARKUP_SPECIAL = ["<|user|>", "<|hello|>"]
MARKUP_CONTROL = ["<|fim_prefix|>", "<mask>", "[PAD9]"]
MARKUP_TEXT = ["<b>", "notes", "   "]
MERGES = (
    "t h|th e|i n|a n|e r|o n|Ġ t|Ġt h|Ġth e|Ġ a|Ġ s|Ġ i|o u|r e|e n|i s|o r|a t|l l|u s|us er|"
    "h e|he ll|hell o|w or|l d|wor ld|Ġ wor|Ġwor ld|n u|nu m|1 2|12 3|Ċ Ċ|Ġ Ġ|Ã ¤|ð Ł"
).split("|")

TEMPLATE = """\
{{- bos_token }}
{%- if extra is defined %}{{- '<|im_start|>extra\\n' + extra | tojson + '<|im_end|>\\n' }}{%- endif %}
{%- if tools %}
    {{- '<|im_start|>tools\\n' }}
    {%- for tool in tools %}{{- tool | tojson + '\\n' }}{%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- endif %}
{%- if documents %}
    {{- '<|im_start|>documents\\n' }}
    {%- for document in documents %}{{- document | tojson + '\\n' }}{%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- endif %}
{%- if date %}{{- strftime_now('%Y-%m-%d %H:%M:%S') + '\\n' }}{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'forbidden' %}{{- raise_exception('the role forbidden is not allowed') }}{%- endif %}
    {%- if message.role == 'broken' %}{{- message.content.missing.attribute }}{%- endif %}
    {%- if message.role == 'endless' %}{%- for i in range(100000) %}{%- for j in range(100000) %}{{- '' }}{%- endfor %}{%- endfor %}{%- endif %}
    {{- '<|im_start|>' + message.role }}
    {%- if message.name is defined %}{{- ' ' + message.name }}{%- endif %}
    {{- '\\n' }}
    {%- if message.reasoning_content is defined %}{{- '<think>' + message.reasoning_content + '</think>' }}{%- endif %}
    {%- if message.content is string %}{{- message.content }}
    {%- elif message.content is not defined or message.content is none %}{{- '[null]' }}
    {%- else %}{{- message.content | tojson }}
    {%- endif %}
    {%- for call in message.tool_calls or [] %}
        {{- '<tool_call>' + (call.id | tojson if call.id is defined else '') + call.function.name + call.function.arguments | tojson + '</tool_call>' }}
    {%- endfor %}
    {%- if message.tool_call_id is defined %}{{- ' for ' + message.tool_call_id }}{%- endif %}
    {%- if message.mood is defined %}{{- ' ' + message.mood | tojson }}{%- endif %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""

RAG = """\
{{- bos_token }}
{%- for document in documents %}{{- '[' ~ loop.index ~ '] ' + document.text + '\\n' }}{%- endfor %}
{%- for message in messages %}{{- message.role + ': ' + message.content + '\\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{- 'assistant:' }}{%- endif %}
"""

CONFIG = {
    "vocab_size": 256 + len(MERGES) + len(SPECIAL) + len(ADDED),
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "max_position_embeddings": CONTEXT,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "bos_token_id": 256 + len(MERGES),
    "eos_token_id": 256 + len(MERGES) + 3,
    "pad_token_id": None,
}


def make(folder: Path) -> None:
    """Writes the model folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "additional_chat_templates").mkdir(exist_ok=True)
    write_tokenizer(folder)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    (folder / "additional_chat_templates/rag.jinja").write_text(RAG)
    first = 256 + len(MERGES)
    generation = {"bos_token_id": first, "eos_token_id": [first + 1, first + 3]}
    (folder / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**CONFIG, dtype="float32"))
    random = np.random.RandomState(SEED)
    with torch.no_grad():
        for name, tensor in sorted(model.named_parameters()):
            scale = {"lm_head.weight": 1.5, "model.embed_tokens.weight": 1.0}.get(name, 0.25)
            values = random.standard_normal(tuple(tensor.shape)) * scale
            if name == "lm_head.weight":
                values[[id for id in range(256) if not 0x20 <= id < 0x7F]] *= 0.2  # mostly ASCII is likely
            tensor.copy_(
                torch.tensor(1 + values / 10 if "norm" in name else values).bfloat16()
            )  # exact in every dtype
    model.generation_config = transformers.GenerationConfig(**generation)
    model.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    config.pop("transformers_version", None)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (folder / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")


def make_long(folder: Path, model: Path, context: int = LONG_CONTEXT) -> None:
    """Writes the config of the same model with a long context."""
    folder.mkdir(exist_ok=True)
    config = json.loads((model / "config.json").read_text()) | {"max_position_embeddings": context}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def make_markup(folder: Path, model: Path) -> None:
    """Writes the tokenizer with more added tokens: control tokens, and text."""
    folder.mkdir(exist_ok=True)
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    tokenizer.add_special_tokens([AddedToken(text, normalized=False) for text in MARKUP_SPECIAL])
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in [*MARKUP_CONTROL, *MARKUP_TEXT]])
    tokenizer.save(str(folder / "tokenizer.json"))


def write_tokenizer(folder: Path) -> None:
    """Writes a byte-level BPE of all bytes and MERGES, with the added tokens after them."""
    alphabet = byte_alphabet()
    vocabulary = {token: id for id, token in enumerate(alphabet)}
    merges = [tuple(merge.split(" ")) for merge in MERGES]
    for left, right in merges:
        vocabulary.setdefault(left + right, len(vocabulary))
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, normalized=False) for text in SPECIAL])
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in ADDED])
    bos = ("<s>", tokenizer.token_to_id("<s>"))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A $B", special_tokens=[bos]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "<|im_end|>",
        "model_max_length": CONTEXT,
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")


def byte_alphabet() -> list[str]:
    """Returns the letters of all bytes in the byte-level encoding, in the order of the bytes."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(0x100, 0x200))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]
