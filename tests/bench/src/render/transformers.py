"""Measures transformers: answers one command per line on stdin with one line of JSON on stdout.

round          nanoseconds per case, null where it fails
cold FOLDER    nanoseconds to load the tokenizer in FOLDER and render a first conversation
long FILE      FILE holds {"folder", "requests": [...]}; nanoseconds per request, rendered and tokenized
"""

import json
import os
import sys
import time

os.environ["TRANSFORMERS_VERBOSITY"] = "error"
os.environ["HF_HUB_OFFLINE"] = "1"

from tokenizers import Tokenizer, models  # noqa: E402
from transformers import PreTrainedTokenizerFast  # noqa: E402


def bare(special_tokens):
    vocabulary = models.WordLevel({"<unk>": 0}, unk_token="<unk>")
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(vocabulary), **special_tokens)


def render(tokenizer, template, text, tokenize=False):
    request = json.loads(text)
    return tokenizer.apply_chat_template(
        request["messages"],
        chat_template=template,
        tools=request.get("tools"),
        documents=request.get("documents"),
        add_generation_prompt=request.get("add_generation_prompt", True),
        continue_final_message=request.get("continue_final_message", False),
        tokenize=tokenize,
        return_dict=False,
        **(request.get("template_args") or {}),
    )


def timed(run):
    start = time.perf_counter_ns()
    try:
        run()
    except Exception:
        return None
    return time.perf_counter_ns() - start


def real(folder):
    with open(f"{folder}/tokenizer_config.json", encoding="utf8") as file:
        config = json.load(file)
    text = lambda token: token["content"] if isinstance(token, dict) else token  # noqa: E731
    names = [name for name in ("bos_token", "eos_token") if config.get(name)]
    tokens = {name: text(config[name]) for name in names}
    return PreTrainedTokenizerFast(tokenizer_file=f"{folder}/tokenizer.json", **tokens), config["chat_template"]


def cold(folder):
    def load():
        tokenizer, template = real(folder)
        render(tokenizer, template, json.dumps({"messages": [{"role": "user", "content": "Hello"}]}))

    return timed(load)


def long(path):
    with open(path, encoding="utf8") as file:
        work = json.load(file)
    tokenizer, template = real(work["folder"])
    return [timed(lambda: render(tokenizer, template, text, True)) for text in work["requests"]]


def main():
    with open(sys.argv[1], encoding="utf8") as file:
        work = json.load(file)
    tokenizers = [bare(model["special_tokens"]) for model in work["models"]]
    templates = [model["template"] for model in work["models"]]

    def case(case):
        return timed(lambda: render(tokenizers[case["model"]], templates[case["model"]], case["request"]))

    commands = {"round": lambda: [case(each) for each in work["cases"]], "cold": cold, "long": long}
    for line in sys.stdin:
        command, *arguments = line.split(maxsplit=1)
        print(json.dumps(commands[command](*[argument.strip() for argument in arguments])), flush=True)


main()
