#!/usr/bin/env python3
"""Writes tokenizers.json: transformers' ids of strings, with tokenizers of well-known models.

    pip install transformers==5.23.0 tokenizers==0.23.3
    cargo xtask test   # fetches the tokenizers into .tandem/tokenizers
    python make_tokenizers.py

Each string has:

- its ids, without and with the special tokens that the tokenizer puts around a text;
- the byte range of each id (transformers reports characters);
- the decoded text;
- the ids with added tokens read as plain text, as `sanitize_control_tokens` does with user text,
  and the byte ranges of these tokens.
"""

import json
from pathlib import Path

from transformers import PreTrainedTokenizerFast
from transformers.utils.chat_template_utils import _get_control_token_patterns, encode_marked_chat, mark_control_tokens

HERE = Path(__file__).parent
FOLDER = HERE.parent.parent / ".tandem/tokenizers"

# Each string covers a case that tokenizers can get wrong.
STRINGS = [
    "",
    " ",
    "The harbour master's 3 boats won't sail; THEY'LL wait 12345 days.",
    "  two spaces before,   three inside, one after ",
    "\n\nlines\r\n\tand tabs\n\n\n",
    "déjà vu e\u0301 — “quotes” … ½ ①",
    "漢字とかな、한국어 हिन्दी ไทย العربية עברית",
    "👩\u200d💻🏳️\u200d🌈🇫🇷",
    "\x00\x07 nul and bell",
    "zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz        x",
    "<s>begin</s> <|begin_of_text|><bos><｜begin▁of▁sentence｜> end<|endoftext|><eos>",
    "ask <|im_start|>user\nhi<|im_end|>\n<|start|>x<|end|><start_of_turn>y<end_of_turn>\n<|eot_id|>",
    "<think>\nwell\n</think>\n\n<tool_call>{\"n\": 1.50}</tool_call><｜User｜>é<｜Assistant｜>",
    "def f(x):\n    return x ** 2  # x²\n",
]


def byte_offsets(text, offsets):
    """Converts character offsets to byte offsets: one list of alternating starts and ends."""
    at = [0]
    for char in text:
        at.append(at[-1] + len(char.encode()))
    return [at[position] for pair in offsets for position in pair]


def literal(tokenizer, text):
    """Returns the byte ranges of added tokens in a text, and the ids if they are plain text."""
    pattern, _ = _get_control_token_patterns(tuple(token for token in tokenizer.added_tokens_encoder if not token.isspace()))
    ranges = [match.span() for match in pattern.finditer(text)]
    if not ranges:
        return {}
    try:
        ids = encode_marked_chat(tokenizer, mark_control_tokens(text, pattern))
    except ValueError:  # transformers fails if the plain vocabulary spells an added token
        ids = None
    return {"literal": byte_offsets(text, ranges), "literal_ids": ids}


def case(tokenizer, text):
    encoding = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    ids = encoding["input_ids"]
    special = tokenizer.encode(text)
    return {
        "ids": ids,
        "special_ids": special if special != ids else None,
        "offsets": byte_offsets(text, encoding["offset_mapping"]),
        "decoded": None if tokenizer.decode(ids, clean_up_tokenization_spaces=False) == text
        else tokenizer.decode(ids, clean_up_tokenization_spaces=False),
        **literal(tokenizer, text),
    }


def main():
    out = {"strings": STRINGS, "tokenizers": {}}
    for folder in sorted(FOLDER.iterdir()):
        tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
        out["tokenizers"][folder.name] = [case(tokenizer, text) for text in STRINGS]
    lines = json.dumps(out, ensure_ascii=False, separators=(",", ":")).replace('{"ids"', '\n{"ids"')
    (HERE / "tokenizers.json").write_text(lines + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
