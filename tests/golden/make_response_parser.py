"""Makes response_parser.json: answers of models as transformers' ResponseParser reads them.

The templates are those of transformers' server, and the ones in response_templates, each with a prompt and answers.
Each answer is parsed whole and in random pieces, as it is and with random faults.

Needs transformers==5.23.0. Arguments: OUTPUT.
"""

import json
import math
import random
import struct
import sys
from pathlib import Path

from transformers.cli.serving.utils import _RESPONSE_TEMPLATE_FALLBACKS
from transformers.utils.chat_parsing.response_parser import ResponseParser
from transformers.utils.chat_parsing.response_templates import load_response_template

FOLDER = Path(__file__).parent / "response_templates"
RULES = Path(__file__).parents[2] / "render-svc/src/parse/rules"
TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "parameters": {"properties": {
        "city": {"type": "string"}, "days": {"type": ["integer", "null"]}, "ok": {"type": "boolean"},
        "t": {"anyOf": [{"type": "number"}, {"type": "array"}]}}}}},
]
SERVER_PROMPTS = ["<|im_start|>assistant\n", "<|im_start|>assistant\n<think>\n", "<bos><|turn>model\n"]
SERVER_ANSWERS = [
    ['<think>\nhm\n</think>\n\nHi<|im_end|>\n<|endoftext|>',
     '<think>a</think>\n\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "1", "days": "2"}}\n</tool_call>'],
    ["x\n<tool_call>\n<function=get_weather>\n<parameter=days>\n12\n</parameter>\n<parameter=t>\n1.50\n</parameter>\n"
     "</function>\n</tool_call><|im_end|>\n<|endoftext|>"],
    ['<|channel>thought\nhm<channel|>b<|tool_call>call:get_weather{city:<|"|>12<|"|>,days:3}<tool_call|><turn|>'],
]
FAULTS = ["\n", " ", "<", "</", "|>", "é", "😀", "{", "}", '"', "\\", "null", "<think>", "</think>", "<|im_end|>"]


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


def events(reported):
    kinds = {
        "region_open": lambda event: [event["field"]],
        "region_chunk": lambda event: [event["field"], event["text"], event["dirty"]],
        "region_close": lambda event: [event["field"], shown(event["value"])],
    }
    return [[event["type"].removeprefix("region_"), *kinds[event["type"]](event)] for event in reported]


def parsed(template, prompt, pieces):
    """Returns the events of each piece and the message, or the step that fails."""
    result, step = {"events": []}, "prompt"
    try:
        parser = ResponseParser(load_response_template(template), prefix=prompt, tools=TOOLS)
        result["events"].append(events(parser.initial_events))
        for step, piece in enumerate(pieces):
            result["events"].append(events(parser.feed(piece)))
        step = "end"
        message, last = parser.finalize()
        return result | {"message": shown(message), "last": events(last)}
    except (ValueError, KeyError):
        return result | {"fails": step}


def faulty(generator, text):
    """Returns a text with some parts missing, twice, or in another place."""
    for _ in range(generator.choice([1, 1, 2, 4])):
        at = generator.randint(0, len(text))
        end = min(len(text), at + generator.choice([0, 1, 2, 5, 12]))
        change = generator.random()
        if change < 0.5:
            text = text[:at] + generator.choice(FAULTS) + text[at:]
        elif change < 0.8:
            text = text[:at] + text[end:]
        else:
            text = text[:end] + text[at:]
    return text


def pieces(generator, text):
    at, result = 0, []
    while at < len(text):
        size = generator.choice([1, 1, 2, 3, 5, 8, 20])
        result.append(text[at : at + size])
        at += size
    return result


def models():
    server = zip(_RESPONSE_TEMPLATE_FALLBACKS.values(), SERVER_PROMPTS, SERVER_ANSWERS)
    for number, (template, prompt, answers) in enumerate(server):
        yield f"server-{number}", {"template": template, "prompt": prompt, "answers": answers}
    answers = {}
    for path in sorted(FOLDER.glob("*.json")):
        model = json.loads(path.read_text())
        answers[path.stem] = model["answers"]
        yield path.stem, model
    # The built-in rules, unless they use a parser that transformers lacks. Each reads answers with calls, and a plain one.
    every = [answer for listed in answers.values() for answer in listed]
    for path in sorted(RULES.glob("*.json")):
        text = path.read_text()
        if "-calls\"" not in text and "json_group" not in text:
            template = json.loads(text)
            for field in template["fields"].values():
                field.pop("interrupts", None)
            called = [answer for answer in every if "tool_calls" in json.dumps(parsed(template, "", [answer]).get("message"))]
            yield f"rules/{path.stem}", {"template": template, "prompt": "", "answers": [*called[:3], "a\n<think>b</think> c"]}


def main():
    generator, rows = random.Random(1), []
    for name, model in models():
        for answer in model["answers"]:
            for text in [answer, faulty(generator, answer)]:
                for fed in [[text], pieces(generator, text)]:
                    rows.append({"name": name, "pieces": fed, **parsed(model["template"], model["prompt"], fed)})
    used = {name: {"template": model["template"], "prompt": model["prompt"]} for name, model in models()}
    made = {"made_with": "transformers 5.23.0", "tools": TOOLS, "models": used}
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    head = json.dumps(made, ensure_ascii=False).removesuffix("}")
    Path(sys.argv[1]).write_text(f'{head}, "rows": [\n{lines}\n]}}\n')


main()
