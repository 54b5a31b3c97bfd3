"""Renders cases with transformers and adds the results.

Reads one JSON object per line from stdin: {"template", "messages", "tools"?, "documents"?, "args"?,
"special_tokens"?, "add_generation_prompt"?, "continue_final_message"?}.

Writes the same objects with "expected": {"text"}, or {"error", "message", "raised"}. "raised" is
true if the template itself raised the error.

A case that already has "expected" is rendered again and written only if the result is the same.
This removes results that differ between processes, such as memory addresses.

Needs transformers==5.23.0, jinja2==3.1.6 and tokenizers==0.23.3. The clock is fixed at 2025-07-04
09:05:03.
"""

import datetime
import functools
import json
import os
import sys
import warnings

os.environ["TRANSFORMERS_VERBOSITY"] = "error"
os.environ["TZ"] = "UTC"
os.environ["LC_ALL"] = "C"
warnings.simplefilter("ignore")

import jinja2
import transformers.utils.chat_template_utils as chat_template_utils
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

NOW = datetime.datetime(2025, 7, 4, 9, 5, 3)


class FixedClock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


chat_template_utils.datetime = FixedClock


@functools.cache
def make_tokenizer(special_tokens):
    special_tokens = dict(special_tokens)
    vocabulary = Tokenizer(models.WordLevel({"<unk>": 0}, unk_token="<unk>"))
    return PreTrainedTokenizerFast(tokenizer_object=vocabulary, **special_tokens)


def render(case):
    tokenizer = make_tokenizer(tuple((case.get("special_tokens") or {}).items()))
    return tokenizer.apply_chat_template(
        case["messages"],
        chat_template=case["template"],
        tools=case.get("tools"),
        documents=case.get("documents"),
        add_generation_prompt=case.get("add_generation_prompt", False),
        continue_final_message=case.get("continue_final_message", False),
        tokenize=False,
        **(case.get("args") or {}),
    )


def outcome(case):
    try:
        text = render(case)
        text.encode("utf-8")
        return {"text": text}
    except Exception as error:  # any Python error is a result of the template
        raised = type(error) is jinja2.exceptions.TemplateError
        return {"error": type(error).__name__, "message": str(error), "raised": raised}


def main():
    for line in sys.stdin:
        case = json.loads(line)
        before = case.pop("expected", None)
        case["expected"] = outcome(json.loads(line))
        if before in (None, case["expected"]):
            print(json.dumps(case), flush=True)


if __name__ == "__main__":
    main()
