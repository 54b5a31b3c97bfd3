#!/usr/bin/env python3
"""Writes pre_tokenizers.json: ids under the pre-tokenizers that a GGUF file names.

    pip install tokenizers==0.23.3
    python make_pre_tokenizers.py

A GGUF file has only a name. Each rule below is `normalizer`, `pre_tokenizer` and `ignore_merges` of the
`tokenizer.json` of a model with that name (for Kimi K2, the pattern of its `tokenization_kimi.py`). The
aliases are those of llama.cpp's `src/llama-vocab.cpp`. The vocabulary is made from the texts without
any pre-tokenizer, so that a token crosses every boundary that a rule does not make.
"""

import json
from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

HERE = Path(__file__).parent
TEXTS = [
    "The harbour master's 3 boats WON'T sail; they'll wait 1234567 days, or 12 345.",
    "  two spaces,   three  1 inside\n\n \r\n\tand tabs\n\n  x\t\n",
    "DéjàVu camelCaseWORD e\u0301te\u0301 naïve ŞİŞLİ straße Ωμέγα Привет мир ΐώ",
    "漢字とかな、한국어。 数字12 हिन्दी भाषा ไทย العربية ३४५",
    "def f(x):\n    return x ** 2  # x²/½ <|a|> {\"n\": 1.50}//\n\n\n",
    "“quotes” … — 👩\u200d💻 ！？ $5 + 'S 'tis a/b\\c __init__ \u00a0\u3000 end ",
]
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace("{1,3}", "")
QWEN35 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
SEED = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
ENDING = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"


def cased(but="", ending="", digits=r"\p{N}{1,3}", punctuation=r"[\r\n/]*", first=""):
    upper, lower, start = f"[{UPPER}{but}]", f"[{LOWER}{but}]", r"[^\r\n\p{L}\p{N}]?"
    words = f"{start}{upper}*{lower}+{ending}|{start}{upper}+{lower}*{ending}"
    return first + words + "|" + digits + r"| ?[^\s\p{L}\p{N}]+" + punctuation + r"|\s*[\r\n]+|\s+(?!\S)|\s+"


# The letters of DeepSeek's first tokenizer.json files.
RANGES = """
    00b5-00b5 00c0-00d6 00d8-00f6 00f8-01ba 01bc-01bf 01c4-0293 0295-02af 0370-0373 0376-0376 0377-0377
    037b-037d 037f-037f 0386-0386 0388-038a 038c-038c 038e-03a1 03a3-03f5 03f7-0481 048a-052f 0531-0556
    10a0-10c5 13a0-13f5 13f8-13fd 1c90-1cba 1cbd-1cbf 1d00-1d2b 1d6b-1d77 1d79-1d9a 1e00-1f15 1f18-1f1d
    1f20-1f45 1f48-1f4d 1f50-1f57 1f59-1f59 1f5b-1f5b 1f5d-1f5d 1f5f-1f7d 1f80-1fb4 1fb6-1fbc 1fbe-1fbe
    1fc2-1fc4 1fc6-1fcc 1fd0-1fd3 1fd6-1fdb 1fe0-1fec 1ff2-1ff4 1ff6-1ffc 2102-2102 2107-2107 210a-2113
    2115-2115 2119-211d 2124-2124 2126-2126 2128-2128 212a-212d 212f-2134 2139-2139 213c-213f 2145-2149
    214e-214e 2183-2183 2184-2184 2c00-2c7b 2c7e-2ce4 2ceb-2cee 2cf2-2cf2 2cf3-2cf3 a640-a66d a680-a69b
    a722-a76f a771-a787 a78b-a78e ab70-abbf fb00-fb06 fb13-fb17 ff21-ff3a ff41-ff5a 10400-1044f
    104b0-104d3 104d8-104fb 10c80-10cb2 10cc0-10cf2 118a0-118df 1e900-1e943
"""
LETTERS = "A-Za-z" + "".join(
    chr(int(first, 16)) if first == last else f"{chr(int(first, 16))}-{chr(int(last, 16))}"
    for first, last in (part.split("-") for part in RANGES.split())
)
HAN = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
PUNCTUATION = "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+"
DEEPSEEK3 = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
NFC = {"type": "NFC"}
DIGITS = {"type": "Digits", "individual_digits": True}


def byte_level(use_regex):
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


def rule(names, *steps, normalizer=None, ignore_merges=False, use_regex=False):
    split = lambda step: {"type": "Split", "pattern": {"Regex": step}, "behavior": "Isolated", "invert": False}
    steps = [split(step) if isinstance(step, str) else step for step in steps] + [byte_level(use_regex)]
    return names.split(), normalizer, {"type": "Sequence", "pretokenizers": steps}, ignore_merges


RULES = [
    rule("gpt-2 default phi-2 jina-es jina-de jina-v2-es jina-v2-de gigachat a.x-4.0 mellum exaone4 jais trillion granite-docling", use_regex=True),
    rule("mpt olmo modern-bert", normalizer=NFC, use_regex=True),
    rule("smollm starcoder refact codeshell exaone minerva-7b mellum2", DIGITS, use_regex=True),
    rule("command-r", DIGITS, normalizer=NFC, use_regex=True),
    rule("llama-bpe llama3 llama-v3 smaug-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano", LLAMA3, ignore_merges=True),
    rule("dbrx glm4 chatglm-bpe", LLAMA3),
    rule("qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan", QWEN2, normalizer=NFC),
    rule("solar-open grok-2", QWEN2),
    rule("qwen35", QWEN35, normalizer=NFC),
    rule("gpt-4o llama4 kanana2 talkie minimax-m2", cased(ending=ENDING), ignore_merges=True),
    rule("tekken", cased(digits=r"\p{N}"), ignore_merges=True),
    rule("kimi-k2", cased(r"&&[^\p{Han}]", ENDING, punctuation=r"[\r\n]*", first=r"[\p{Han}]+|"), ignore_merges=True),
    rule("seed-coder", SEED),
    rule("deepseek-llm", "[\r\n]", f"\\s?[{LETTERS}]+", PUNCTUATION, "\\s+$", HAN, DIGITS),
    rule("deepseek-coder", "[\r\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", HAN, DIGITS),
    rule("deepseek-v3 hunyuan-dense joyai-llm hy_v4", r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+", DEEPSEEK3),
]


def vocabulary():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=900, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(TEXTS * 3, trainer)
    return json.loads(tokenizer.to_str())["model"]


def main():
    model = vocabulary()
    rules = []
    for names, normalizer, pre_tokenizer, ignore_merges in RULES:
        file = {"version": "1.0", "added_tokens": [], "normalizer": normalizer, "pre_tokenizer": pre_tokenizer}
        tokenizer = Tokenizer.from_str(json.dumps({**file, "model": {**model, "ignore_merges": ignore_merges}}))
        rules.append({"names": names, "ids": [tokenizer.encode(text).ids for text in TEXTS]})
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    merges = [" ".join(merge) for merge in model["merges"]]
    out = {"texts": TEXTS, "tokens": tokens, "merges": merges, "rules": rules}
    text = json.dumps(out, ensure_ascii=False, separators=(",", ":")).replace('{"names"', '\n{"names"')
    (HERE / "pre_tokenizers.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
