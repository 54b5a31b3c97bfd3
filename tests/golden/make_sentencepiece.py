#!/usr/bin/env python3
"""Writes sentencepiece.json: SentencePiece vocabularies in GGUF's form, with transformers' ids.

    pip install transformers==5.23.0 tokenizers==0.23.3 sentencepiece==0.2.3 protobuf
    python make_sentencepiece.py

This script generates a corpus and trains each vocabulary on it, in the form of a model family with
a SentencePiece tokenizer. Tokens, scores and types equal the output of llama.cpp's
`convert_hf_to_gguf.py`.

The ids equal the ids of the `tokenizer.json` that transformers converts from the SentencePiece
model. For texts without added tokens, they also equal SentencePiece's own ids. Mistral's tokenizer
is an exception, because it puts no second space before a text that begins with a space.
"""

import json
import random
import tempfile
from pathlib import Path
from types import SimpleNamespace

import sentencepiece
from tokenizers import AddedToken
from transformers.convert_slow_tokenizer import GemmaConverter, LlamaConverter, generate_merges

HERE = Path(__file__).parent

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

PHI3 = ["<|endoftext|>", "<|assistant|>", "<|end|>", "<|user|>"]
NEWLINES = ["\n" * count for count in range(1, 7)]
SPACES = ["▁" * count for count in range(2, 7)]
GEMMA = [*NEWLINES, *SPACES, "<table>", "</td>"]

# Each text covers a case that tokenizers can get wrong.
TEXTS = [
    "",
    " ",
    "a",
    " a",
    "   a ",
    "the harbour master's 3 boats  won't sail",
    "\n",
    "\n\n\n\n\n\n\n\nx\n",
    "a" + 2 * " " + "b" + 5 * " " + "c" + 33 * " " + "d",
    "\t\tx\r\n",
    "déjà vu, 漢字 한국어 👩\u200d💻",
    "\x00\x07\x7f",
    "<0x0A><0x41>",
    "▁▁x ▁",
    "mamamamamama------------====",
    "def f(x):\n    return x ** 2\n",
]

# Texts that contain added tokens.
MARKED = [
    "<s>the</s>",
    "<s> the </s> sail<unk>",
    "[INST] the[/INST] sail</s>[INST]  3 [/INST]",
    "<|user|>\n the boats<|end|> \n <|assistant|>\nsail<|endoftext|> \nx",
    "<start_of_turn>user\nthe<end_of_turn>\n<table> 3  </td>\n\n",
]


class Extractor:
    """The extractor of transformers 4. Version 5 lacks it, but its converters need it."""

    def __init__(self, path):
        pass

    def extract(self, scores):
        return None, generate_merges({piece: i for i, (piece, _) in enumerate(scores)}, dict(scores))


LlamaConverter.SpmExtractor = GemmaConverter.SpmExtractor = Extractor


def corpus():
    """Returns sentences of random words, numbers, code and runs of white space."""
    chance = random.Random(7)
    words = ["".join(chance.choice(["ma", "the", "sail", "bo", "at", "s", "har", "é", "ing", "-", "漢"]) for _ in range(length))
             for length in (1, 1, 2, 2, 3, 4) for _ in range(40)]
    gaps = [" "] * 12 + ["  ", "    ", "\t", ", ", ". ", " = ", "(x): "]
    return ["".join(chance.choice(words) + chance.choice(gaps) for _ in range(12)) + str(chance.randrange(999)) for _ in range(2000)]


def train(folder, name, **settings):
    prefix = str(Path(folder) / name)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus()), model_prefix=prefix, model_type="bpe", vocab_size=420, byte_fallback=True,
        normalization_rule_name="identity", remove_extra_whitespaces=False, allow_whitespace_only_pieces=True, split_digits=True,
        character_coverage=0.999, num_threads=1, minloglevel=2, **settings)
    return prefix + ".model"


def kind(model, i):
    known = [(model.is_unknown, UNKNOWN), (model.is_control, CONTROL), (model.is_unused, UNUSED), (model.is_byte, BYTE)]
    return next((kind for is_kind, kind in known if is_kind(i)), NORMAL)


def header(model, user, more):
    """Returns tokens, scores and types as the converter writes them.

    User-defined tokens are spelled as in text and have the score -1000.
    """
    tokens, scores, types = [], [], []
    for i in range(model.get_piece_size()):
        piece = model.id_to_piece(i)
        of_user = piece in user
        tokens.append(piece.replace("▁", " ") if of_user else piece)
        scores.append(-1000.0 if of_user else model.get_score(i))
        types.append(USER_DEFINED if of_user else kind(model, i))
    return tokens + more, scores + [-1000.0] * len(more), types + [CONTROL] * len(more)


def converted(converter, path, model, user, more, **settings):
    """Returns transformers' tokenizer with the added tokens of the family's files.

    Phi-3's added tokens include the white space after them.
    """
    names = {"pad_token": "<pad>", "eos_token": model.id_to_piece(model.eos_id()), "bos_token": model.id_to_piece(model.bos_id())}
    original = SimpleNamespace(vocab_file=path, convert_ids_to_tokens=model.id_to_piece, **names, **settings)
    encoder = converter(original).converted()
    special = [model.id_to_piece(i) for i in range(model.get_piece_size()) if kind(model, i) in (CONTROL, UNKNOWN)]
    strips = {"</s>", *more} - {"<|endoftext|>"} if more else set()
    encoder.add_special_tokens(
        [AddedToken(token, normalized=False, special=True, rstrip=token in strips) for token in [*special, *more]])
    encoder.add_tokens([AddedToken(token, normalized=False) for token in user])
    return encoder


def cases(encoder, model, agrees):
    out = []
    for text in TEXTS + MARKED:
        encoding = encoder.encode(text, add_special_tokens=False)
        decoded = encoder.decode(encoding.ids, skip_special_tokens=False)
        if text in TEXTS and agrees and "▁" not in text:
            assert encoding.ids == model.encode(text), text
        offsets = [at for pair in encoding.offsets for at in (len(text[:pair[0]].encode()), len(text[:pair[1]].encode()))]
        out.append({"ids": encoding.ids, "offsets": offsets, "decoded": None if decoded == text else decoded})
    return out


def vocabulary(name, path, converter, architecture="llama", space=None, user=(), more=(), **settings):
    model = sentencepiece.SentencePieceProcessor(model_file=path)
    tokens, scores, types = header(model, user, list(more))
    encoder = converted(converter, path, model, user, list(more), **settings)
    return {
        "name": name, "architecture": architecture, "add_space_prefix": space,
        "bos": model.bos_id(), "eos": model.eos_id(), "unknown": model.unk_id(),
        "tokens": tokens, "scores": scores, "types": types,
        "cases": cases(encoder, model, settings.get("legacy", True)),
    }


def main():
    with tempfile.TemporaryDirectory() as folder:
        plain = train(folder, "plain")
        mistral = train(folder, "mistral", control_symbols=["[INST]", "[/INST]"])
        gemma = train(folder, "gemma", add_dummy_prefix=False, user_defined_symbols=GEMMA,
                      control_symbols=["<start_of_turn>", "<end_of_turn>"], pad_id=0, eos_id=1, bos_id=2, unk_id=3)
        vocabularies = [
            vocabulary("llama", plain, LlamaConverter, legacy=True),
            vocabulary("mistral", mistral, LlamaConverter, space=True, legacy=False, add_prefix_space=True),
            vocabulary("phi3", plain, LlamaConverter, "phi3", True, more=PHI3, legacy=True),
            vocabulary("gemma", gemma, GemmaConverter, "gemma2", False, GEMMA),
        ]
    out = {"texts": TEXTS + MARKED, "vocabularies": vocabularies}
    lines = json.dumps(out, ensure_ascii=False, separators=(",", ":")).replace('{"ids"', '\n{"ids"').replace('{"name"', '\n{"name"')
    (HERE / "sentencepiece.json").write_text(lines + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
