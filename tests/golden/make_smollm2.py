#!/usr/bin/env python3
"""Writes smollm2.json: transformers' outputs for the GGUF file of the default model.

    pip install torch==2.13.0 transformers==5.23.0 tokenizers==0.23.3 accelerate==1.15.0 gguf==0.19.0 numpy==2.4.6
    python make_smollm2.py [SmolLM2-135M-Instruct-Q4_1.gguf]

torch may be a CPU build. All values are computed in float32 on the CPU, with greedy decoding.

The prompt text is transformers' `apply_chat_template` with the file's own template.

The prompt ids follow the split rules of the model's own tokenizer.json, and the model gets these
ids. transformers' ids are recorded in addition where they differ. transformers builds the tokenizer
of every GGUF file with GPT-2's split rules and ignores the rules that the file names.

SmolLM2's tokenizer.json splits off every digit first: `Digits(individual_digits=True)`, then
`ByteLevel(add_prefix_space=False, use_regex=True)`. Two spaces before a digit therefore stay
together. llama.cpp applies the same rules for the pre-tokenizer name "smollm".
"""

import hashlib
import json
import sys
from pathlib import Path

import gguf
import tokenizers
import torch
import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

HERE = Path(__file__).parent
MODEL = HERE.parent.parent / ".tandem/models/SmolLM2-135M-Instruct-Q4_1.gguf"
NEW_TOKENS = 64
TOP = 5
DECIMALS = 3  # digits that do not depend on the number of threads
CONTROL = 3  # token type in GGUF
EOS = 2


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


def system(text):
    return {"role": "system", "content": text}


LETTER = "\n".join(
    f"{month}: we sold {12 + 3 * number} boats, repaired {40 - number} and lost {number % 3}. The weather was "
    f"{'fair' if number % 2 else 'rough'}, the harbour stayed open for {20 + number} days, and old Hanna painted "
    f"{'two hulls' if number % 3 else 'one mast'} before the tide came in."
    for number, month in enumerate(
        "January February March April May June July August September October November December".split(), 1
    )
)

# Each conversation covers a case that prompts or tokenizers can get wrong.
CONVERSATIONS = {
    "plain": [user("Why is the sky blue?")],
    "system": [
        system("You are a ship's cook. Answer in one short sentence."),
        user("What should we eat when the fish are gone?"),
    ],
    "multi-turn": [
        user("Name a river in Portugal."),
        assistant("The Douro."),
        user("And the city where it meets the sea?"),
        assistant("Porto."),
        user("Tell me one thing to see there."),
    ],
    "code": [
        user(
            "What does this print?\n\n```python\ndef f(n):\n    if n < 2:\n        return n\n"
            "    return f(n - 1) + f(n - 2)\n\nprint([f(i) for i in range(10)])\n```"
        )
    ],
    "emoji": [user("Repeat these exactly: 🌧️➡️🌈 👩🏽‍🚀🚀 🇵🇹 9️⃣ 🫠")],
    "cjk": [user("「猫」と「犬」を英語で言ってください。谢谢！ 고양이도요.")],
    "arabic": [user("ما معنى كلمة \"بحر\" بالإنجليزية؟ وما هو الرقم ١٢٣؟")],
    "spaced-digits": [user("Add these up:\n  12\n   7\n 305\n\t 40  and   8.50, then  1  more.\nTotal:   ?")],
    "long": [system("You read reports."), user(f"{LETTER}\n\nIn which month were the most boats sold? Explain briefly.")],
    "whitespace": [user("\n\n  Keep   these    gaps \t\t and\r\nlines.\n\n\n\n   What did I write?   \n")],
    "json": [
        user(
            'Make this valid JSON: {"name": "Ada", \'born\': 1815, "tags": ["math", "poetry",], '
            '"path": "C:\\\\tmp\\n", "score": 1e-7, "quote": "she said \\"no\\""}'
        )
    ],
    "one-word": [user("Hi")],
    "continuation": [user("Once upon a time, a fox"), assistant("found a lantern."), user("Then?")],
    "list": [user("List the planets of the solar system, one per line.")],
    "letter": [system("You write letters."), user("Write to my landlord: the window of the kitchen is broken.")],
    "german": [user("Warum schwimmt Eis auf dem Wasser? Bitte kurz, ohne Formeln.")],
    "russian": [user("Почему листья осенью желтеют?")],
    "mathematics": [user("Solve for x: 3x + 7 = 22. Show each step.")],
    "markup": [user("Write an HTML table with the columns City and Country, and two rows.")],
    "refusal": [system("Answer only with yes or no."), user("Is the moon larger than the earth?")],
}

LOGITS_OF = ["plain", "spaced-digits"]

STRINGS = [
    "",
    " ",
    "  ",
    "Hello world",
    " 123",
    "  12  34",
    "a  1\n 2",
    "x = 10 + 200",
    "price: $ 5.00, 3 items",
    "\n\n1. one\n2. two\n   3. three",
    "2024-01-02 03:04",
    "tabs\t\t1\t2",
    "  trailing  ",
    "\r\n \r\n 7",
    "\u00a05 \u20035\u3000 5",
    "½ ¼ ²³ Ⅻ ① ١٢٣ ٤ १२",
    "don't I'll we've 5's DON'T",
    "naïve café e\u0301 ﬁ ＡＢ１２",
    "日本語のテスト 42、한국어 시험",
    "مرحبا ١٢ بالعالم שלום",
    "👩🏽‍🚀🚀 🇵🇹 9️⃣",
    "<|im_start|>user\n 1<|im_end|>\n",
    "<|im_start |> <im_end> <|endoftext|><|im_end|>",
    "    def f():\n\treturn {'a': [1, 2]}  # 3\n",
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
    "https://example.org/a?b=1&c=%20#d",
    "\u200b\ufeffzero\u200dwidth",
]


def own_tokenizer(path):
    """Returns the file's tokenizer with the split rules of the model's own tokenizer.json."""
    fields = gguf.GGUFReader(path).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    types = fields["tokenizer.ggml.token_type"].contents()
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"].contents()]
    tokenizer = Tokenizer(models.BPE({token: id for id, token in enumerate(tokens)}, merges))
    digits = pre_tokenizers.Digits(individual_digits=True)
    words = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, words])
    tokenizer.decoder = decoders.ByteLevel()
    special = [token for token, kind in zip(tokens, types) if kind == CONTROL]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    return tokenizer


def tokenized(text, own, converted, prefix=""):
    """Returns the ids of a text, and transformers' ids where they differ."""
    ids = own.encode(text, add_special_tokens=False).ids
    theirs = converted(text, add_special_tokens=False)["input_ids"]
    differing = {f"transformers_{prefix}ids": theirs} if theirs != ids else {}
    return {f"{prefix}ids": ids, **differing}


def generate(model, ids):
    """Returns the greedy continuation and its smallest gap between the two largest logits."""
    config = transformers.GenerationConfig(
        max_new_tokens=NEW_TOKENS,
        do_sample=False,
        eos_token_id=EOS,
        pad_token_id=EOS,
        output_logits=True,
        return_dict_in_generate=True,
    )
    out = model.generate(
        torch.tensor([ids]),
        attention_mask=torch.ones(1, len(ids), dtype=torch.long),
        generation_config=config,
    )
    best = [step[0].topk(2).values for step in out.logits]
    margin = min((top[0] - top[1]).item() for top in best)
    return out.sequences[0, len(ids) :].tolist(), margin


def case(name, messages, model, own, converted):
    prompt = converted.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    prompt_ids = tokenized(prompt, own, converted, "prompt_")
    ids = prompt_ids["prompt_ids"]
    output, margin = generate(model, ids)
    print(f"{name}: {len(ids)} + {len(output)} tokens, smallest margin {margin:.4f}", file=sys.stderr)
    return {
        "id": name,
        "messages": messages,
        "prompt": prompt,
        **prompt_ids,
        "greedy_ids": output,
        "greedy_text": own.decode(output, skip_special_tokens=True),
        "smallest_margin": round(margin, DECIMALS),
    }


def first_logits(model, one):
    with torch.inference_mode():
        top = model(torch.tensor([one["prompt_ids"]])).logits[0, -1].topk(TOP)
    logits = [round(value, DECIMALS) for value in top.values.tolist()]
    return {"id": one["id"], "ids": top.indices.tolist(), "logits": logits}


def lines(rows):
    """Returns a JSON list with one row per line, so that a diff shows single rows."""
    return "[\n" + ",\n".join("  " + json.dumps(row, ensure_ascii=False) for row in rows) + "\n ]"


def main():
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else MODEL
    own = own_tokenizer(path)
    source = {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}
    converted = transformers.AutoTokenizer.from_pretrained(**source)
    model = transformers.AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32).eval()
    cases = [case(name, messages, model, own, converted) for name, messages in CONVERSATIONS.items()]
    by_id = {one["id"]: one for one in cases}
    made_with = {package.__name__: package.__version__ for package in (torch, transformers, tokenizers)}
    head = {
        "about": "Made by make_smollm2.py. Greedy ids include the eos that ended them; greedy text has no special tokens.",
        "made_with": made_with,
        "model": path.name,
        "model_sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "max_new_tokens": NEW_TOKENS,
    }
    body = {
        "first_logits": lines(first_logits(model, by_id[name]) for name in LOGITS_OF),
        "cases": lines(cases),
        "strings": lines({"text": text, **tokenized(text, own, converted)} for text in STRINGS),
    }
    fields = [f' "{key}": {json.dumps(value)}' for key, value in head.items()]
    fields += [f' "{key}": {value}' for key, value in body.items()]
    (HERE / "smollm2.json").write_text("{\n" + ",\n".join(fields) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
