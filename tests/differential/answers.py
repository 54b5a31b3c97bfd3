"""Reads random answers with transformers' ResponseParser, and writes the results.

Usage: answers.py SEED COUNT

generate_answers.py makes the cases. Writes one JSON object per line: {"template", "cases": [{"prompt", "tools",
"pieces", "events", "message"?, "last"?, "fails"?}]}. "events" has the events of the prompt and of each piece. "fails"
is "prompt", "end", or the index of the piece that fails. A template that cannot be loaded has "fails": "load" and no
cases. One that transformers loads and Tandem refuses has "refused": true.

Needs transformers==5.23.0. Two processes share the work.
"""

import functools
import itertools
import json
import logging
import math
import multiprocessing
import os
import struct
import sys
import types

os.environ["TRANSFORMERS_VERBOSITY"] = "error"

import transformers.utils.chat_parsing.content_parsers as content_parsers
import transformers.utils.chat_parsing.response_parser as response_parser
from generate_answers import Corpus, group
from transformers.cli.serving.utils import _RESPONSE_TEMPLATE_FALLBACKS
from transformers.utils.chat_parsing.response_templates import load_response_template

logging.disable(logging.CRITICAL)
# Templates of one round. The output does not depend on it.
ROUND = 400
PROCESSES = 2


class Unpaired(Exception):
    """Half of a surrogate pair, which UTF-8 cannot encode. Tandem refuses it wherever JSON has it."""


class Endless(Exception):
    """Anchors that match an empty text at one place without end."""


def loads(text):
    """Loads JSON, without halves of surrogate pairs."""
    value = json.loads(text)
    if "\\u" in text:
        pairs = []
        json.loads(text, object_pairs_hook=lambda found: pairs.extend(found) or dict(found))
        try:
            json.dumps([value, pairs], ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise Unpaired from error
    return value


class Parser(response_parser.ResponseParser):
    """A parser that fails instead of running without end."""

    # Each field opens and closes at most once at a place, unless the parser repeats itself.
    MOST_AT_ONE_PLACE = 50
    scanned = (0, 0)

    def _scan(self, watch, eos):
        at, times = self.scanned
        self.scanned = (self._pos, times + 1 if at == self._pos else 0)
        if times > self.MOST_AT_ONE_PLACE:
            raise Endless
        return super()._scan(watch, eos)

    def _process(self, events, eos):
        self.scanned = (self._pos, 0)
        super()._process(events, eos)


def shown(value):
    """Returns a value in JSON that has Python's integers and floats apart."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, int):
        return {"int": str(value)}
    if isinstance(value, float):
        return {"float": "nan" if math.isnan(value) else struct.pack(">d", value).hex()}
    if isinstance(value, list):
        return [shown(item) for item in value]
    return {"entries": [[key, shown(item)] for key, item in value.items()]}


def shown_event(event):
    kind, field = event["type"].removeprefix("region_"), event["field"]
    if kind == "open":
        return [kind, field]
    return [kind, field, event["text"], event["dirty"]] if kind == "chunk" else [kind, field, shown(event["value"])]


def events(reported):
    return [shown_event(event) for event in reported]


def parsed(template, case):
    """Returns a case with the events of each piece and the message, or with the step that fails."""
    result, step = {**case, "events": []}, "prompt"
    try:
        parser = Parser(template, prefix=case["prompt"], tools=case["tools"])
        result["events"].append(events(parser.initial_events))
        for step, piece in enumerate(case["pieces"]):
            result["events"].append(events(parser.feed(piece)))
        step = "end"
        message, last = parser.finalize()
        return result | {"message": shown(message), "last": events(last)}
    except Exception:  # any Python error is a result
        return result | {"fails": step}


@functools.cache
def corpus():
    return Corpus(list(_RESPONSE_TEMPLATE_FALLBACKS.values()))


def line(seed, number):
    """Returns the line of a template, and the number of its cases."""
    made = group(seed, number, corpus())
    try:
        template = load_response_template(json.loads(json.dumps(made["template"])))
    except Exception:  # any Python error is a result
        return json.dumps({"template": made["template"], "fails": "load", "cases": []}), 1
    made["cases"] = [parsed(template, case) for case in made["cases"]]
    return json.dumps(made), max(1, len(made["cases"]))


def main():
    seed, count = int(sys.argv[1]), int(sys.argv[2])
    shim = types.SimpleNamespace(loads=loads, dumps=json.dumps, JSONDecodeError=json.JSONDecodeError)
    content_parsers.json = response_parser.json = shim
    corpus()
    made = 0
    with multiprocessing.get_context("fork").Pool(PROCESSES) as pool:
        for start in itertools.count(0, ROUND):
            for text, cases in pool.starmap(line, [(seed, number) for number in range(start, start + ROUND)], 20):
                if made < count:
                    print(text)
                    made += cases
            if made >= count:
                return


if __name__ == "__main__":
    main()
