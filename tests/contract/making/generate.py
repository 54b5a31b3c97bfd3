"""Vectors of GenerateService and ControlService."""

import base64

import torch
from transformers import RepetitionPenaltyLogitsProcessor

from .contract import Area, error, invalid
from .model import CONFIG, CONTEXT
from .oracle import NAME, Oracle, logprob

GENERATE = "generate.v1.GenerateService/Generate"
LOADED = "generate.v1.GenerateService/GetLoadedModel"
CONTROL = "generate.v1.ControlService"
VOCABULARY = CONFIG["vocab_size"]
GREEDY = {"temperature": 0}
RANGE = "generate.proto GenerateRequest: a value outside its stated range is INVALID_ARGUMENT with the path of the field"
LONG = {"prompt": "hold", "sampling": GREEDY, "stop": {"maxNewTokens": 60000, "ignoreEos": True}}

PROMPTS = {
    "ascii": "hello world",
    "words": "the user is on a",
    "number": "num 123",
    "turn": "<s><|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n",
    "letters": "größer 漢字",
    "emoji": "😀",
    "one_letter": "a",
    "line_ends": "\n\n\r\n",
    "spaces": "    ",
    "marker": "<think>a</think>",
}


def make(oracle: Oracle) -> list[Area]:
    return [
        greedy(oracle),
        ranges(oracle),
        stops(oracle),
        returned(oracle),
        grammars(oracle),
        resumed(oracle),
        refused(),
        model(),
        control(oracle),
    ]


class Run:
    """One greedy output of the oracle, and the events that it demands."""

    def __init__(self, oracle, prompt, limit, **options):
        self.oracle, self.limit = oracle, limit
        self.ids = prompt if isinstance(prompt, list) else oracle.encode(prompt)
        self.output = oracle.greedy(self.ids, limit, **options)
        self.ended = bool(self.output) and self.output[-1] in (options.get("eos") or oracle.eos)
        self.shown = self.output[:-1] if self.ended else self.output

    def text(self):
        return self.oracle.decode(self.shown, True)

    def finished(self, index=0):
        end = (
            {"reason": "FINISH_REASON_STOP", "stopTokenId": self.output[-1]}
            if self.ended
            else {"reason": "FINISH_REASON_LENGTH"}
        )
        return {"finished": {"outputIndex": index} | end}

    def usage(self, completion=None):
        prompt, completion = len(self.ids), len(self.output) if completion is None else completion
        return {"promptTokens": prompt, "completionTokens": completion, "totalTokens": prompt + completion}

    def events(self, delta=None, finished=None, before=(), completion=None):
        delta = {"text": self.text()} if delta is None else delta
        parts = [{"accepted": {"promptTokens": len(self.ids)}}, *before]
        parts += [{"delta": delta}] if any(delta.values()) else []
        return {
            "events": [*parts, finished or self.finished(), {"summary": {"usage": self.usage(completion)}}]
        }


def greedy(oracle: Oracle) -> Area:
    area = Area("greedy")
    for name, prompt in PROMPTS.items():
        run = Run(oracle, prompt, 12)
        request = {"prompt": prompt, "sampling": GREEDY, "stop": {"maxNewTokens": 12}}
        area.add(f"text/{name}", "generate", GENERATE, request, run.events(), NAME)
        ids = {
            "tokenIds": {"ids": run.ids},
            "sampling": GREEDY,
            "stop": {"maxNewTokens": 12},
            "returnOptions": {"tokenIds": True},
        }
        area.add(
            f"token_ids/{name}",
            "generate",
            GENERATE,
            ids,
            run.events({"text": run.text(), "tokenIds": run.output}),
            NAME,
        )
    run = Run(oracle, "hello world", 1)
    area.add(
        "one_token",
        "generate",
        GENERATE,
        {"prompt": "hello world", "sampling": GREEDY, "stop": {"maxNewTokens": 1}},
        run.events(),
        NAME,
    )
    rest = CONTEXT - 3
    run = Run(oracle, "hello world", rest, eos={-1})
    area.add(
        "to_the_end_of_the_context",
        "generate",
        GENERATE,
        {"prompt": "hello world", "sampling": GREEDY, "stop": {"ignoreEos": True}},
        run.events(),
        f"{NAME}; generate.proto Stop.max_new_tokens: by default the rest of the context",
    )
    area.add(
        "more_than_the_context",
        "generate",
        GENERATE,
        {
            "prompt": "hello world",
            "sampling": GREEDY,
            "stop": {"maxNewTokens": 4294967295, "ignoreEos": True},
        },
        run.events(),
        f"{NAME}; generate.proto FINISH_REASON_LENGTH: max_new_tokens, or the end of the context",
    )
    full = oracle.encode("a") * (CONTEXT - 1)
    run = Run(oracle, full, 1)
    area.add(
        "prompt_fills_the_context",
        "generate",
        GENERATE,
        {"tokenIds": {"ids": full}, "sampling": GREEDY},
        run.events(),
        f"{NAME}; generate.proto PROMPT_TOO_LONG",
    )
    area.add(
        "cancelled_after_the_first_delta",
        "slow",
        GENERATE,
        LONG,
        {"events": [{"accepted": {"promptTokens": len(oracle.encode("hold"))}}]},
        "generate.proto Generate: closing the stream cancels the request",
        cancel_after=1,
    )
    area.add(
        "cancelled_in_the_middle",
        "slow",
        GENERATE,
        LONG,
        {"error": {"code": "CANCELLED"}},
        "generate.proto Generate: closing the stream cancels the request",
        cancel_after=4,
    )
    run = Run(oracle, "hello world", 6)
    area.add(
        "request_id",
        "generate",
        GENERATE,
        {"prompt": "hello world", "sampling": GREEDY, "stop": {"maxNewTokens": 6}},
        run.events() | {"headers": {"x-request-id": "vector-2"}},
        "proto/README.md: each response has the caller's x-request-id",
        metadata={"x-request-id": "vector-2"},
    )
    area.add(
        "traceparent",
        "generate",
        GENERATE,
        {"prompt": "hello world", "sampling": GREEDY, "stop": {"maxNewTokens": 6}},
        run.events(),
        NAME,
        metadata={"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"},
    )
    area.add(
        "penalty/repetition",
        "generate",
        GENERATE,
        {
            "prompt": "hello world",
            "sampling": {"temperature": 0, "repetitionPenalty": 1.5},
            "stop": {"maxNewTokens": 12},
        },
        penalized(oracle, 1.5).events(),
        "oracle: transformers' RepetitionPenaltyLogitsProcessor; generate.proto Sampling.repetition_penalty",
    )
    for name, penalties in (
        ("presence", (1.5, 0)),
        ("frequency", (0, 1.25)),
        ("presence_and_frequency", (0.5, 0.75)),
        ("negative_frequency", (0, -2)),
    ):
        run = Run(
            oracle,
            "hello world",
            12,
            change=lambda logits, output, penalties=penalties: subtract(logits, output, *penalties),
        )
        sampling = {"temperature": 0} | {
            f"{key}Penalty": value for key, value in zip(("presence", "frequency"), penalties) if value
        }
        area.add(
            f"penalty/{name}",
            "generate",
            GENERATE,
            {"prompt": "hello world", "sampling": sampling, "stop": {"maxNewTokens": 12}},
            run.events(),
            f"{NAME}; generate.proto Sampling: subtracted from the logits of tokens that are in the output, once or per occurrence",
        )
    for name, bias in (
        ("forces_a_token", {65: 100}),
        ("forbids_tokens", {id: -100 for id in Run(oracle, "hello world", 3).output}),
        ("small", {66: 0.5, 67: -0.25}),
        ("forces_half_a_character", {195: 100}),
    ):
        run = Run(oracle, "hello world", 5, change=lambda logits, output, bias=bias: biased(logits, bias))
        area.add(
            f"logit_bias/{name}",
            "generate",
            GENERATE,
            {
                "prompt": "hello world",
                "sampling": {"temperature": 0, "logitBias": bias},
                "stop": {"maxNewTokens": 5},
                "returnOptions": {"bytes": True},
            },
            run.events({"text": run.text(), "bytes": encoded(run)}),
            f"{NAME}; generate.proto Sampling.logit_bias: added to the logits; Delta.text: bytes that are not a character become U+FFFD; Delta.bytes: as the model wrote them",
        )
    return area


def encoded(run: Run) -> str:
    letters = run.oracle.tokenizer.convert_ids_to_tokens(run.shown)
    from .model import byte_alphabet

    byte = {letter: number for number, letter in enumerate(byte_alphabet())}
    return base64.b64encode(b"".join(bytes(byte[letter] for letter in token) for token in letters)).decode()


def penalized(oracle, penalty):
    ids = oracle.encode("hello world")
    processor = RepetitionPenaltyLogitsProcessor(penalty)
    return Run(
        oracle,
        "hello world",
        12,
        change=lambda logits, output: processor(torch.tensor([ids + output]), logits[None])[0],
    )


def subtract(logits, output, presence, frequency):
    for id in set(output):
        logits[id] -= presence + frequency * output.count(id)
    return logits


def biased(logits, bias):
    for id, value in bias.items():
        logits[id] += value
    return logits


def ranges(oracle: Oracle) -> Area:
    """The values at and beyond the limits of every field."""
    area = Area("ranges")
    run = Run(oracle, "hello world", 1)
    end = {
        "events": [
            {"accepted": {}},
            {"delta": {}},
            {"finished": {"reason": "FINISH_REASON_LENGTH"}},
            {"summary": {"usage": run.usage()}},
        ]
    }

    def request(**parts):
        request = {"prompt": "hello world", **parts}
        request["stop"] = {"maxNewTokens": 1, "ignoreEos": True} | request.get("stop", {})
        return request | {"returnOptions": {"tokenIds": True} | request.get("returnOptions", {})}

    def field(part, name, path, comment, good, bad):
        for label, value in good:
            given = {} if value is None else {name: value}
            area.add(
                f"{part}.{path}/{label}",
                "generate",
                GENERATE,
                request(**{part: given}),
                end,
                f"generate.proto {comment}",
            )
        for label, value in bad:
            area.add(
                f"{part}.{path}/{label}",
                "generate",
                GENERATE,
                request(**{part: {name: value}}),
                invalid(f"{snake(part)}.{path}"),
                f"generate.proto {comment}; {RANGE}",
            )

    infinite = [("nan", "NaN"), ("infinite", "Infinity"), ("minus_infinite", "-Infinity")]
    field(
        "sampling",
        "temperature",
        "temperature",
        "Sampling.temperature: 0 to 100",
        [("unset", None), ("zero", 0), ("hundred", 100), ("tiny", 1e-30)],
        [("negative", -0.01), ("above", 100.1), *infinite],
    )
    field(
        "sampling",
        "topK",
        "top_k",
        "Sampling.top_k: 0 keeps all",
        [("zero", 0), ("one", 1), ("largest", 4294967295)],
        [],
    )
    field(
        "sampling",
        "topP",
        "top_p",
        "Sampling.top_p: above 0, at most 1",
        [("one", 1), ("tiny", 1e-30)],
        [("zero", 0), ("negative", -1), ("above", 1.001), *infinite],
    )
    field(
        "sampling",
        "minP",
        "min_p",
        "Sampling.min_p: 0 to 1",
        [("zero", 0), ("one", 1)],
        [("negative", -0.1), ("above", 1.1), *infinite],
    )
    field(
        "sampling",
        "typicalP",
        "typical_p",
        "Sampling.typical_p: above 0, at most 1",
        [("one", 1), ("tiny", 1e-30)],
        [("zero", 0), ("above", 1.001), ("nan", "NaN")],
    )
    field(
        "sampling",
        "repetitionPenalty",
        "repetition_penalty",
        "Sampling.repetition_penalty: above 0, at most 100",
        [("tiny", 1e-10), ("hundred", 100)],
        [("zero", 0), ("negative", -1), ("above", 100.5), *infinite],
    )
    field(
        "sampling",
        "presencePenalty",
        "presence_penalty",
        "Sampling.presence_penalty: -2 to 2",
        [("least", -2), ("most", 2)],
        [("below", -2.1), ("above", 2.1), ("nan", "NaN")],
    )
    field(
        "sampling",
        "frequencyPenalty",
        "frequency_penalty",
        "Sampling.frequency_penalty: -2 to 2",
        [("least", -2), ("most", 2)],
        [("below", -2.1), ("above", 2.1), ("nan", "NaN")],
    )
    field(
        "sampling",
        "seed",
        "seed",
        "Sampling.seed: 64 bits",
        [("zero", "0"), ("largest", "18446744073709551615")],
        [],
    )
    field(
        "sampling",
        "n",
        "n",
        "Sampling.n: 1 to 16",
        [("one", 1)],
        [("zero", 0), ("seventeen", 17), ("largest", 4294967295)],
    )
    ids = {str(id): 1 for id in range(VOCABULARY)}
    field(
        "sampling",
        "logitBias",
        "logit_bias",
        "Sampling.logit_bias",
        [("least", {"0": -100}), ("most", {str(VOCABULARY - 1): 100}), ("every_id", ids)],
        [],
    )
    for label, bias in (
        ("below", {"5": -100.5}),
        ("above", {"5": 100.5}),
        ("nan", {"5": "NaN"}),
        ("outside_the_vocabulary", {str(VOCABULARY): 1}),
    ):
        area.add(
            f"sampling.logit_bias/{label}",
            "generate",
            GENERATE,
            request(sampling={"logitBias": bias}),
            invalid(f"sampling.logit_bias[{next(iter(bias))}]"),
            f"proto/README.md: an entry of a map has its key in brackets; generate.proto Sampling.logit_bias: each value -100 to 100, each id below the vocabulary size; {RANGE}",
        )
    area.add(
        "sampling.logit_bias/too_many",
        "generate",
        GENERATE,
        request(sampling={"logitBias": {str(id): 1 for id in range(1025)}}),
        invalid("sampling.logit_bias"),
        f"generate.proto Sampling.logit_bias: at most 1,024 ids; {RANGE}",
    )
    field(
        "stop",
        "maxNewTokens",
        "max_new_tokens",
        "Stop.max_new_tokens: at least 1",
        [("one", 1)],
        [("zero", 0)],
    )
    field(
        "stop",
        "stopStrings",
        "stop_strings",
        "Stop.stop_strings: at most 64, each 1 to 1,024 bytes",
        [
            ("most", ["q" * 20 + str(i) for i in range(64)]),
            ("longest", ["q" * 1024]),
            ("one_byte", ["\u0001"]),
        ],
        [("too_many", ["q"] * 65)],
    )
    for label, text in (("empty", ""), ("too_long", "q" * 1025), ("too_long_in_bytes", "ä" * 513)):
        area.add(
            f"stop.stop_strings/{label}",
            "generate",
            GENERATE,
            request(stop={"stopStrings": ["q" * 9, text]}),
            invalid("stop.stop_strings[1]"),
            f"generate.proto Stop.stop_strings: each 1 to 1,024 bytes; {RANGE}",
        )
    field(
        "stop",
        "stopTokenIds",
        "stop_token_ids",
        "Stop.stop_token_ids: at most 1,024",
        [("last_id", [1])],
        [("too_many", [1] * 1025)],
    )
    area.add(
        "stop.stop_token_ids/outside_the_vocabulary",
        "generate",
        GENERATE,
        request(stop={"stopTokenIds": [1, VOCABULARY]}),
        invalid("stop.stop_token_ids[1]"),
        f"generate.proto Stop.stop_token_ids: each below the vocabulary size; {RANGE}",
    )
    area.add(
        "stop.min_new_tokens/equal",
        "generate",
        GENERATE,
        request(stop={"minNewTokens": 1}),
        end,
        "generate.proto Stop.min_new_tokens: at most max_new_tokens",
    )
    area.add(
        "stop.min_new_tokens/above",
        "generate",
        GENERATE,
        request(stop={"minNewTokens": 2}),
        invalid("stop.min_new_tokens"),
        f"generate.proto Stop.min_new_tokens: at most max_new_tokens; {RANGE}",
    )
    field(
        "returnOptions",
        "logprobs",
        "logprobs",
        "ReturnOptions.logprobs: 0 to 20",
        [("zero", 0), ("twenty", 20)],
        [("twenty_one", 21)],
    )
    for label, value in (("twenty_one", 21), ("largest", 4294967295)):
        area.add(
            f"returnOptions.prompt_logprobs/{label}",
            "generate",
            GENERATE,
            request(returnOptions={"promptLogprobs": value}),
            invalid("return_options.prompt_logprobs"),
            f"generate.proto ReturnOptions.prompt_logprobs: 0 to 20; {RANGE}",
        )
    for label, salt in (("empty", ""), ("longest", "s" * 1024)):
        area.add(
            f"cache_salt/{label}",
            "generate",
            GENERATE,
            request(cacheSalt=salt),
            end,
            "generate.proto GenerateRequest.cache_salt: at most 1,024 bytes",
        )
    area.add(
        "cache_salt/too_long",
        "generate",
        GENERATE,
        request(cacheSalt="s" * 1025),
        invalid("cache_salt"),
        f"generate.proto GenerateRequest.cache_salt: at most 1,024 bytes; {RANGE}",
    )
    for value in (-2147483648, -1, 2147483647):
        area.add(
            f"priority/{value}",
            "generate",
            GENERATE,
            request(priority=value),
            end,
            "generate.proto GenerateRequest.priority: a priority above the limit counts as the limit",
        )
    specs = {
        "eos_token_ids/too_many": ({"eosTokenIds": [1] * 1025}, "eos_token_ids"),
        "eos_token_ids/outside": ({"eosTokenIds": [VOCABULARY]}, "eos_token_ids[0]"),
        "stop_strings/too_many": ({"stopStrings": ["q"] * 65}, "stop_strings"),
        "stop_strings/empty": ({"stopStrings": [""]}, "stop_strings[0]"),
        "stop_strings/too_long": ({"stopStrings": ["q", "q" * 1025]}, "stop_strings[1]"),
        "special_token_classes/outside": (
            {"specialTokenClasses": [{"tokenIds": [VOCABULARY]}]},
            "special_token_classes[0].token_ids[0]",
        ),
        "reasoning/start_and_end": (
            {"reasoning": {"startTokenIds": [5], "endTokenIds": [5]}},
            "reasoning.end_token_ids[0]",
        ),
        "reasoning/too_many": (
            {"reasoning": {"startTokenIds": list(range(17))}},
            "reasoning.start_token_ids",
        ),
        "reasoning/long_string": ({"reasoning": {"startStrings": ["q" * 65]}}, "reasoning.start_strings[0]"),
        "reasoning/empty_string": ({"reasoning": {"endStrings": [""]}}, "reasoning.end_strings[0]"),
        "reasoning/same_string": (
            {"reasoning": {"startStrings": ["q"], "endStrings": ["q"]}},
            "reasoning.end_strings[0]",
        ),
        "extraction/cut_head": ({"extraction": {"cutHead": "q" * 1025}}, "extraction.cut_head"),
        "extraction/strip_lines": ({"extraction": {"stripLines": ["q"] * 65}}, "extraction.strip_lines"),
        "extraction/empty_line": ({"extraction": {"stripLines": [""]}}, "extraction.strip_lines[0]"),
    }
    for name, (spec, path) in specs.items():
        area.add(
            f"output_spec.{name}",
            "generate",
            GENERATE,
            request(outputSpec=spec),
            invalid(f"output_spec.{path}"),
            "output_spec.proto OutputSpec: a value outside its range is INVALID_ARGUMENT with the path of the field",
        )
    return area


def snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


def stops(oracle: Oracle) -> Area:
    """The conditions that end an output. A grammar forces its text."""
    area = Area("stops")
    text = "one two three"

    def forced(name, stop, shown, finished, because, **more):
        request = {
            "prompt": "hello world",
            "sampling": GREEDY,
            "grammar": {"choice": {"values": [text]}},
            "stop": stop,
            **more,
        }
        expected = [
            {"accepted": {}},
            *([{"delta": {"text": shown}}] if shown else []),
            {"finished": finished},
            {"summary": {}},
        ]
        area.add(name, "generate", GENERATE, request, {"events": expected}, because)

    ended = {"reason": "FINISH_REASON_STOP"}
    forced(
        "string",
        {"stopStrings": ["two"]},
        "one ",
        ended | {"stopString": "two"},
        "generate.proto Stop.stop_strings: the text ends before the first match",
    )
    forced(
        "string/included",
        {"stopStrings": ["two"], "includeStop": True},
        "one two",
        ended | {"stopString": "two"},
        "generate.proto Stop.include_stop: include it as the end of the text",
    )
    forced(
        "string/across_tokens",
        {"stopStrings": ["e two t"]},
        "on",
        ended | {"stopString": "e two t"},
        "generate.proto Stop.stop_strings: the text ends before the first match",
    )
    forced(
        "string/first_match",
        {"stopStrings": ["three", "ne"]},
        "o",
        ended | {"stopString": "ne"},
        "generate.proto Stop.stop_strings: the first match",
    )
    forced(
        "string/at_the_start",
        {"stopStrings": ["one"]},
        "",
        ended | {"stopString": "one"},
        "generate.proto Stop.stop_strings: the text ends before the first match",
    )
    forced(
        "string/half_a_match_is_text",
        {"stopStrings": ["two four"]},
        text,
        ended,
        "generate.proto Finished.matched: unset if a grammar ended it",
    )
    forced(
        "string/of_the_output_spec",
        {"includeStop": True},
        "one ",
        ended | {"stopString": "two"},
        "generate.proto Stop.include_stop: strings that end the model's turn never appear in text",
        outputSpec={"stopStrings": ["two"]},
    )
    run = Run(oracle, "hello world", 8, eos={-1})
    third = run.output[3]
    assert third not in run.output[:3]
    request = {"prompt": "hello world", "sampling": GREEDY, "returnOptions": {"tokenIds": True}}
    stopped = Run(oracle, "hello world", 8, eos={third})
    area.add(
        "token_id",
        "generate",
        GENERATE,
        request | {"stop": {"stopTokenIds": [third], "maxNewTokens": 8}},
        stopped.events({"text": stopped.text(), "tokenIds": stopped.output}),
        f"{NAME}; generate.proto Stop.stop_token_ids: ids that end the output",
    )
    area.add(
        "token_id/included",
        "generate",
        GENERATE,
        request | {"stop": {"stopTokenIds": [third], "maxNewTokens": 8, "includeStop": True}},
        stopped.events({"text": oracle.decode(stopped.output, True), "tokenIds": stopped.output}),
        "generate.proto Stop.include_stop: if a stop id ends the output, include it as the end of the text",
    )
    area.add(
        "eos_of_the_output_spec",
        "generate",
        GENERATE,
        request | {"stop": {"maxNewTokens": 8, "includeStop": True}, "outputSpec": {"eosTokenIds": [third]}},
        stopped.events({"text": stopped.text(), "tokenIds": stopped.output}),
        "output_spec.proto OutputSpec.eos_token_ids: ids that end the turn never appear in text",
    )
    area.add(
        "min_new_tokens",
        "generate",
        GENERATE,
        request | {"stop": {"stopTokenIds": [third], "maxNewTokens": 6, "minNewTokens": 6}},
        minimum(oracle, 6, third).events(),
        f"{NAME}; generate.proto Stop.min_new_tokens: before an eos or stop id can be chosen",
    )
    eos = next(
        run
        for run in (Run(oracle, prompt, 40) for prompt in PROMPTS.values())
        if run.ended and len(run.output) > 2
    )
    area.add(
        "eos",
        "generate",
        GENERATE,
        {"tokenIds": {"ids": eos.ids}, "sampling": GREEDY, "stop": {"maxNewTokens": 40}},
        eos.events(),
        f"{NAME}; generate.proto FINISH_REASON_STOP: an eos id",
    )
    on = Run(oracle, eos.ids, len(eos.output) + 4, eos={-1})
    area.add(
        "ignore_eos",
        "generate",
        GENERATE,
        {
            "tokenIds": {"ids": eos.ids},
            "sampling": GREEDY,
            "stop": {"maxNewTokens": len(on.output), "ignoreEos": True},
        },
        on.events(),
        f"{NAME}; generate.proto Stop.ignore_eos: continue past the model's eos ids",
    )
    letters = {"prompt": "a", "sampling": {"temperature": 0, "logitBias": {"65": 100}}}
    ended = {"reason": "FINISH_REASON_STOP", "stopString": "AAA"}
    area.add(
        "string/before_min_new_tokens",
        "generate",
        GENERATE,
        letters | {"stop": {"stopStrings": ["AAA"], "minNewTokens": 10, "maxNewTokens": 12}},
        {
            "events": [
                {"accepted": {}},
                {"finished": ended},
                {"summary": {"usage": {"promptTokens": 1, "completionTokens": 3, "totalTokens": 4}}},
            ]
        },
        "generate.proto Stop.min_new_tokens: stop strings still end the output; logit_bias forces the letters",
    )
    area.add(
        "string/held_back_text_is_not_lost",
        "generate",
        GENERATE,
        letters | {"stop": {"stopStrings": ["A" * 8], "maxNewTokens": 5}},
        {
            "events": [
                {"accepted": {}},
                {"delta": {"text": "A" * 5}},
                {"finished": {"reason": "FINISH_REASON_LENGTH"}},
                {"summary": {}},
            ]
        },
        "generate.proto Delta: the concatenated deltas of an output are the complete output",
    )
    return area


def minimum(oracle, count, id):
    banned = [*oracle.eos, id]

    def change(logits, output):
        logits[banned] = -torch.inf
        return logits

    return Run(oracle, "hello world", count, change=change)


def returned(oracle: Oracle) -> Area:
    """What ReturnOptions ask for."""
    area = Area("returned")
    run = Run(oracle, "hello world", 5)
    steps = oracle.logits(run.ids + run.output[:-1])[len(run.ids) - 1 :]
    request = {"prompt": "hello world", "sampling": GREEDY, "stop": {"maxNewTokens": 5}}

    def token(logits, id):
        text = bytes([id]) if id < 256 else oracle.tokenizer.decode([id]).encode()
        return {"id": id, "bytes": base64.b64encode(text).decode(), "logprob": logprob(logits, id)}

    def info(logits, id, top):
        best = torch.topk(logits, top).indices.tolist() if top else []
        return token(logits, id) | {"topLogprobs": [token(logits, other) for other in best]}

    for top in (0, 1, 5):
        tokens = [info(logits, id, top) for logits, id in zip(steps, run.output)]
        area.add(
            f"logprobs/{top}",
            "generate",
            GENERATE,
            request | {"returnOptions": {"logprobs": top}},
            run.events({"text": run.text(), "tokens": tokens}),
            f"{NAME}; generate.proto ReturnOptions.logprobs",
        )
        prompt = oracle.logits(run.ids)
        before = [
            {"promptLogprobs": {"tokens": [info(logits, id, top) for logits, id in zip(prompt, run.ids[1:])]}}
        ]
        area.add(
            f"prompt_logprobs/{top}",
            "generate",
            GENERATE,
            request | {"returnOptions": {"promptLogprobs": top}},
            run.events(before=before),
            f"{NAME}; generate.proto ReturnOptions.prompt_logprobs: each prompt token except the first, before the output",
        )
    area.add(
        "nothing_more",
        "generate",
        GENERATE,
        request,
        run.events()
        | {
            "absent": [
                "events[1].delta.tokenIds",
                "events[1].delta.tokens",
                "events[1].delta.bytes",
                "events[2].finished.extractedText",
            ]
        },
        "generate.proto ReturnOptions: the values to return besides text",
    )
    accepted = {
        "sampling": {
            "temperature": 0,
            "topK": 0,
            "topP": 1,
            "minP": 0,
            "typicalP": 1,
            "repetitionPenalty": 1,
            "presencePenalty": 0,
            "frequencyPenalty": 0,
            "n": 1,
        },
        "stop": {"maxNewTokens": 5},
        "promptTokens": len(run.ids),
        "imageTokens": 0,
    }
    area.add(
        "accepted_has_the_defaults",
        "generate",
        GENERATE,
        request,
        {"events": [{"accepted": accepted}, {"delta": {}}, run.finished(), {"summary": {}}]},
        "generate.proto Accepted.sampling: all sampling parameters, with defaults applied; Sampling: the stated defaults",
    )
    area.add(
        "seed_is_returned",
        "generate",
        GENERATE,
        request | {"sampling": {"seed": "18446744073709551615", "temperature": 0}},
        {
            "events": [
                {"accepted": {"sampling": {"seed": "18446744073709551615"}}},
                {"delta": {}},
                run.finished(),
                {"summary": {"seed": "18446744073709551615"}},
            ]
        },
        "generate.proto Summary.seed: the seed that reproduces the outputs",
    )
    forced = {"choice": {"values": ["user\n one \ntwo"]}}
    extraction = {"extraction": {"cutHead": "user", "stripLines": ["two"]}}
    expected = [
        {"accepted": {}},
        {"delta": {"text": "user\n one \ntwo"}},
        {"finished": {"reason": "FINISH_REASON_STOP", "extractedText": "one"}},
        {"summary": {}},
    ]
    area.add(
        "extracted_text",
        "generate",
        GENERATE,
        {
            "prompt": "a",
            "sampling": GREEDY,
            "grammar": forced,
            "outputSpec": extraction,
            "returnOptions": {"extractedText": True},
        },
        {"events": expected},
        "output_spec.proto ExtractionRules: in the order of the fields; white space around the result is removed",
    )
    marked = "<think>why</think>so"
    spec = {"reasoning": {"startStrings": ["<think>"], "endStrings": ["</think>"]}}
    parts = [{"delta": {"text": "<think>why</think>", "reasoning": True}}, {"delta": {"text": "so"}}]
    area.add(
        "reasoning",
        "generate",
        GENERATE,
        {"prompt": "a", "sampling": GREEDY, "grammar": {"choice": {"values": [marked]}}, "outputSpec": spec},
        {
            "events": [
                {"accepted": {}},
                *parts,
                {"finished": {"reason": "FINISH_REASON_STOP"}},
                {"summary": {}},
            ]
        },
        "generate.proto Delta.reasoning: the text of a marker is part of the reasoning",
    )
    area.add(
        "reasoning_is_stripped",
        "generate",
        GENERATE,
        {
            "prompt": "a",
            "sampling": GREEDY,
            "grammar": {"choice": {"values": [marked]}},
            "outputSpec": spec | {"extraction": {"stripReasoning": True}},
            "returnOptions": {"extractedText": True},
        },
        {"events": [{"accepted": {}}, *parts, {"finished": {"extractedText": "so"}}, {"summary": {}}]},
        "output_spec.proto ExtractionRules.strip_reasoning: remove the reasoning, markers included",
    )
    start, end = oracle.tokenizer.convert_tokens_to_ids(["<think>", "</think>"])
    by_id, by_text = {"startTokenIds": [start], "endTokenIds": [end]}, {
        "startStrings": ["<think>"],
        "endStrings": ["</think>"],
    }
    for name, prompt, markers, reasoning in (
        ("open", "a<think>", by_id, True),
        ("open_text", "a<think>\n", by_text, True),
        ("closed", "<think>a</think>", by_id, False),
        ("before_a_control_token", "<think><|im_end|>a", by_id, False),
        ("none", "a", by_id, False),
    ):
        expected = [
            {"accepted": {}},
            {"delta": {"text": "bb", "reasoning": reasoning}},
            {"finished": {}},
            {"summary": {}},
        ]
        area.add(
            f"reasoning_of_the_prompt/{name}",
            "generate",
            GENERATE,
            {
                "prompt": prompt,
                "sampling": {"temperature": 0, "logitBias": {str(ord("b")): 100}},
                "stop": {"maxNewTokens": 2},
                "outputSpec": {"reasoning": markers},
            },
            {"events": expected},
            "output_spec.proto ReasoningMarkers: the last marker after the prompt's last control token decides whether an output starts inside reasoning",
        )
    sampling = {"temperature": 0.5, "presencePenalty": 0.25, "frequencyPenalty": -0.5, "logitBias": {"98": 100}}
    stop = {"maxNewTokens": 3, "stopStrings": ["q", "zz"], "includeStop": True, "minNewTokens": 2}
    area.add(
        "accepted_parameters",
        "generate",
        GENERATE,
        {"prompt": "a", "sampling": sampling, "stop": stop},
        {
            "events": [
                {"accepted": {"sampling": sampling, "stop": stop}},
                {"delta": {"text": "bbb"}},
                {"finished": {"reason": "FINISH_REASON_LENGTH"}},
                {"summary": {}},
            ]
        },
        "generate.proto GenerateResponse.accepted: the request with all parameters resolved",
    )
    special = oracle.tokenizer.convert_tokens_to_ids("<|media|>")
    both = {
        "prompt": "a",
        "sampling": {"temperature": 0, "n": 2, "logitBias": {str(special): 100}},
        "stop": {"maxNewTokens": 3},
    }
    ends = [{"finished": {"outputIndex": index, "reason": "FINISH_REASON_LENGTH"}} for index in range(2)]
    area.add(
        "two_outputs",
        "generate",
        GENERATE,
        both,
        {
            "events": [
                {"accepted": {"promptTokens": 1}},
                *ends,
                {"summary": {"usage": {"promptTokens": 1, "completionTokens": 6, "totalTokens": 7}}},
            ]
        },
        "generate.proto Generate: one `finished` per output; Usage.completion_tokens: tokens of all outputs",
    )
    for name, action, shown in (
        ("unspecified", "SPECIAL_TOKEN_ACTION_UNSPECIFIED", ""),
        ("drop", "SPECIAL_TOKEN_ACTION_DROP", ""),
        ("pass", "SPECIAL_TOKEN_ACTION_PASS", "<|media|>" * 3),
    ):
        given = {
            "prompt": "a",
            "sampling": {"temperature": 0, "logitBias": {str(special): 100}},
            "stop": {"maxNewTokens": 3},
            "outputSpec": {
                "specialTokenClasses": [{"name": "media", "tokenIds": [special], "action": action}]
            },
            "returnOptions": {"tokenIds": True},
        }
        area.add(
            f"special_token/{name}",
            "generate",
            GENERATE,
            given,
            {
                "events": [
                    {"accepted": {}},
                    {"delta": {"text": shown, "tokenIds": [special] * 3}},
                    {"finished": {"reason": "FINISH_REASON_LENGTH"}},
                    {"summary": {}},
                ]
            },
            f"output_spec.proto {action}",
        )
    area.add(
        "special_token/no_class",
        "generate",
        GENERATE,
        {
            "prompt": "a",
            "sampling": {"temperature": 0, "logitBias": {str(special): 100}},
            "stop": {"maxNewTokens": 3},
            "returnOptions": {"tokenIds": True},
        },
        {
            "events": [
                {"accepted": {}},
                {"delta": {"tokenIds": [special] * 3}},
                {"finished": {"reason": "FINISH_REASON_LENGTH"}},
                {"summary": {}},
            ]
        },
        "output_spec.proto OutputSpec.special_token_classes: a special token that is in no class is dropped",
    )
    return area


def whitespace(area: Area) -> None:
    """A space is likelier than any other token, wherever the grammar allows one."""
    for kind, grammar in (
        ("json_schema", {"jsonSchema": '{"const": [1, 2]}'}),
        ("lark", {"lark": 'start: %json {"const": [1, 2]}'}),
    ):
        for name, text, reason in (
            ("UNSPECIFIED", "[ 1 , 2 ]", "STOP"),
            ("BOUNDED", "[ 1 , 2 ]", "STOP"),
            ("NONE", "[1,2]", "STOP"),
            ("FREE", "[" + 11 * " ", "LENGTH"),
        ):
            events = [{"delta": {"text": text}}, {"finished": {"reason": f"FINISH_REASON_{reason}"}}]
            area.add(
                f"whitespace/{kind}/{name.lower()}",
                "generate",
                GENERATE,
                {
                    "prompt": "a",
                    "sampling": {"temperature": 0, "logitBias": {"32": 100}},
                    "stop": {"maxNewTokens": 12},
                    "grammar": grammar | {"whitespace": f"WHITESPACE_{name}"},
                },
                {"events": [{"accepted": {}}, *events, {"summary": {}}]},
                f"generate.proto WHITESPACE_{name}",
            )


def after_reasoning(area: Area) -> None:
    """A grammar that begins after reasoning. One letter is likelier than any other token where none is forced."""
    start, end, letter = 298, 299, ord("a")
    by_id = {"startTokenIds": [start], "endTokenIds": [end]}
    by_text = {"startStrings": ["<think>"], "endStrings": ["</t>"]}
    answer = [letter] * 3 + [end, *b"so"]

    def case(name, prompt, markers, events, because, bias=letter, most=3, stop=None, after=False, **more):
        limit = {} if most is None else {"maxReasoningTokens": most}
        area.add(
            f"after_reasoning/{name}",
            "generate",
            GENERATE,
            {
                **({} if "tokenIds" in more else {"prompt": prompt}),
                "sampling": {"temperature": 0, "logitBias": {str(bias): 100}} | more.pop("sampling", {}),
                "stop": {"maxNewTokens": 12} | limit | (stop or {}),
                "grammar": {"choice": {"values": ["so"]}} | ({"afterReasoning": True} if after else {}),
                "outputSpec": {"reasoning": markers},
                "returnOptions": {"tokenIds": True},
                **more,
            },
            {"events": [*events, {"summary": {}}]},
            f"generate.proto {because}",
        )

    def accepted(**stop):
        return {"accepted": {"stop": stop}}

    def reasoning(text, ids):
        return {"delta": {"text": text, "reasoning": True, "tokenIds": ids}}

    def so():
        return {"delta": {"text": "so", "tokenIds": [*b"so"]}}

    done = {"finished": {"reason": "FINISH_REASON_STOP"}}
    rule = "Grammar: the grammar begins with the token after the end marker"
    limit = "Stop.max_reasoning_tokens: then the end marker is chosen"
    aaa = reasoning("aaa</think>", answer[:4])
    case("begins", "a<think>", by_id, [accepted(maxReasoningTokens=3), aaa, so(), done], rule)
    case("at_once", "a<think>", by_id, [accepted(maxReasoningTokens=0), reasoning("</think>", [end]), so(), done], "Stop.max_reasoning_tokens: 0 ends reasoning at once", most=0)
    case("ended_by_the_model", "a<think>", by_id, [accepted(), reasoning("</think>", [end]), so(), done], rule, bias=end, most=None)
    case("text", "a<think>", by_text, [accepted(), reasoning("aaa</t>", [letter] * 3 + [*b"</t>"]), so(), done], "Stop.max_reasoning_tokens: else the tokens of the first of its end_strings")
    case(
        "default",
        "a<think>",
        by_id,
        [accepted(maxReasoningTokens=9), reasoning("aaaaaaaaa</think>", [letter] * 9 + [end]), so(), done],
        "Stop.max_reasoning_tokens: three quarters of max_new_tokens if a grammar follows the reasoning",
        most=None,
    )
    short = {"reason": "FINISH_REASON_LENGTH", "warnings": ["OUTPUT_WARNING_GRAMMAR_NOT_REACHED"]}
    case(
        "not_reached",
        "a<think>",
        by_id,
        [accepted(), reasoning("aaaa", [letter] * 4), {"finished": short}],
        "OUTPUT_WARNING_GRAMMAR_NOT_REACHED",
        most=100,
        stop={"maxNewTokens": 4},
    )
    case("no_end_of_turn", "a<think>", by_id, [accepted(), reasoning("aaa</think>", answer[:4]), so(), done], "Grammar: until then, eos ids are not chosen", sampling={"logitBias": {str(letter): 50, "296": 100}})
    case("outside", "a", by_id, [accepted(), so(), done], "Grammar: the grammar binds its first token", bias=start)
    case(
        "start_marker",
        "a",
        by_id,
        [accepted(), reasoning("<think>aaa</think>", [start, *answer[:4]]), so(), done],
        "Grammar.after_reasoning: its first token may be one of ReasoningMarkers.start_token_ids",
        after=True,
        sampling={"logitBias": {str(start): 50, str(letter): 100}},
    )
    case("no_start_marker", "a", by_id, [accepted(), so(), done], "Grammar.after_reasoning: where it need not", bias=ord("s"), after=True)
    for place in range(1, 5):
        before = [97, start, *answer[:place]]
        rest = [reasoning("aaa</think>"[place:] if place < 4 else "", answer[place:4])] if place < 4 else []
        case(
            f"resumed/{place}",
            None,
            by_id,
            [accepted(maxReasoningTokens=3), *rest, so(), done],
            "Stop.max_reasoning_tokens: tokens before a resume count",
            tokenIds={"ids": before},
            resume={"generatedTokens": place},
        )
    free = {"reason": "FINISH_REASON_LENGTH"}
    area.add(
        "after_reasoning/limit_without_grammar",
        "generate",
        GENERATE,
        {
            "prompt": "a<think>",
            "sampling": {"temperature": 0, "logitBias": {str(letter): 100}},
            "stop": {"maxNewTokens": 6, "maxReasoningTokens": 2},
            "outputSpec": {"reasoning": by_id},
        },
        {
            "events": [
                {"accepted": {"stop": {"maxReasoningTokens": 2}}},
                {"delta": {"text": "aa</think>", "reasoning": True}},
                {"delta": {"text": "aaa"}},
                {"finished": free},
                {"summary": {}},
            ]
        },
        f"generate.proto {limit}",
    )


def grammars(oracle: Oracle) -> Area:
    area = Area("grammars")
    done = {"finished": {"reason": "FINISH_REASON_STOP"}}

    def case(name, grammar, text, because):
        area.add(
            name,
            "generate",
            GENERATE,
            {"prompt": "hello world", "sampling": GREEDY, "grammar": grammar},
            {"events": [{"accepted": {}}, {"delta": {"text": text}}, done, {"summary": {}}]},
            because,
        )

    def bad(name, grammar, field, **more):
        area.add(
            name,
            "generate",
            GENERATE,
            {"prompt": "hello world", "grammar": grammar, **more},
            invalid(field),
            "generate.proto Grammar: an invalid grammar is INVALID_ARGUMENT with the path of its field",
        )

    case(
        "choice",
        {"choice": {"values": ["größer 漢字 😀"]}},
        "größer 漢字 😀",
        "generate.proto Choice.values: list of the possible outputs",
    )
    case("regex", {"regex": "ab{3}c"}, "abbbc", "generate.proto Grammar.regex: matches the complete output")
    case(
        "lark",
        {"lark": 'start: "x" "y" "z"'},
        "xyz",
        "generate.proto Grammar.lark: grammar with the start rule `start`",
    )
    case(
        "json_schema",
        {"jsonSchema": '{"const": 7}'},
        "7",
        "generate.proto Grammar.json_schema: the output is one JSON value",
    )
    after_reasoning(area)
    whitespace(area)
    bad("whitespace", {"regex": "a", "whitespace": 7}, "grammar.whitespace")
    bad("json_schema/rounded", {"jsonSchema": '{"const": 9007199254740993}'}, "grammar.json_schema")
    bad("no_kind", {}, "grammar")
    bad("choice/none", {"choice": {}}, "grammar.choice")
    bad("choice/empty_text", {"choice": {"values": ["a", ""]}}, "grammar.choice")
    bad("choice/too_many", {"choice": {"values": [str(i) for i in range(1025)]}}, "grammar.choice")
    bad("choice/too_long", {"choice": {"values": ["q" * 16385]}}, "grammar.choice")
    bad("regex/empty", {"regex": ""}, "grammar.regex")
    bad("regex/invalid", {"regex": "("}, "grammar.regex")
    bad("regex/look_around", {"regex": "(?=a)b"}, "grammar.regex")
    bad("regex/too_long", {"regex": "a" * 16385}, "grammar.regex")
    bad("json_schema/empty", {"jsonSchema": ""}, "grammar.json_schema")
    bad("json_schema/not_json", {"jsonSchema": "{"}, "grammar.json_schema")
    bad(
        "json_schema/unsupported_keyword",
        {"jsonSchema": '{"not": {"type": "string"}}'},
        "grammar.json_schema",
    )
    bad("lark/empty", {"lark": ""}, "grammar.lark")
    bad("lark/without_start", {"lark": 'a: "x"'}, "grammar.lark")
    bad("with_min_new_tokens", {"regex": "ab"}, "stop.min_new_tokens", stop={"minNewTokens": 1})
    bad("with_ignore_eos", {"regex": "ab"}, "stop.ignore_eos", stop={"ignoreEos": True})
    return area


def resumed(oracle: Oracle) -> Area:
    area = Area("resume")
    run = Run(oracle, "hello world", 10, eos={-1})
    request = {
        "sampling": GREEDY,
        "stop": {"maxNewTokens": 10, "ignoreEos": True},
        "returnOptions": {"tokenIds": True},
    }
    for done in (1, 4, 9):
        rest = run.output[done:]
        given = request | {
            "tokenIds": {"ids": run.ids + run.output[:done]},
            "resume": {"generatedTokens": done},
        }
        expected = [
            {"accepted": {"promptTokens": len(run.ids)}},
            {"delta": {"tokenIds": rest}},
            {"finished": {"reason": "FINISH_REASON_LENGTH"}},
            {"summary": {"usage": run.usage()}},
        ]
        area.add(
            f"after_{done}",
            "generate",
            GENERATE,
            given,
            {"events": expected},
            f"{NAME}; generate.proto Resume: the output continues as if it had never been interrupted; its earlier tokens apply to usage",
        )

    def bad(name, field, tokens=None, prompt=None, stop=None, sampling=None, **resume):
        given = {
            "resume": {"generatedTokens": 1} | resume,
            "sampling": sampling or GREEDY,
            "stop": stop or {"maxNewTokens": 10},
        }
        given |= (
            {"prompt": prompt}
            if prompt
            else {"tokenIds": {"ids": run.ids + run.output[:4] if tokens is None else tokens}}
        )
        area.add(
            name,
            "generate",
            GENERATE,
            given,
            invalid(field),
            "generate.proto Resume.generated_tokens and output_index: the stated ranges",
        )

    bad("none", "resume.generated_tokens", generatedTokens=0)
    bad("all", "resume.generated_tokens", generatedTokens=len(run.ids) + 4)
    bad("as_many_as_the_limit", "resume.generated_tokens", stop={"maxNewTokens": 4}, generatedTokens=4)
    bad("with_a_prompt", "resume", prompt="hello world")
    bad("output_index", "resume.output_index", outputIndex=16)
    bad("several_outputs", "sampling.n", sampling={"n": 2})
    return area


def refused() -> Area:
    area = Area("refused")

    def case(name, request, expect, because, **more):
        area.add(name, "generate", GENERATE, request, expect, because, **more)

    case(
        "no_input",
        {},
        invalid("input"),
        "generate.proto GenerateRequest.input: exactly one field must be set; proto/README.md: at the root, the name of the oneof",
    )
    case(
        "empty_prompt",
        {"prompt": ""},
        invalid("prompt"),
        "generate.proto GenerateRequest.input: a prompt has at least one token",
    )
    case("no_ids", {"tokenIds": {}}, invalid("token_ids.ids"), "generate.proto TokenIds.ids: at least one")
    case(
        "id_outside_the_vocabulary",
        {"tokenIds": {"ids": [1, VOCABULARY]}},
        invalid("token_ids.ids[1]"),
        "generate.proto TokenIds.ids: each below the vocabulary size",
    )
    case(
        "model_not_found",
        {"model": "none", "prompt": "a"},
        error("NOT_FOUND", "MODEL_NOT_FOUND", "model", resource=("model", "none")),
        "generate.proto Generate: MODEL_NOT_FOUND",
    )
    case(
        "tokenizer_mismatch",
        {"tokenIds": {"ids": [1]}, "expectedTokenizerSha256": "0" * 64},
        error("FAILED_PRECONDITION", "TOKENIZER_MISMATCH"),
        "generate.proto GenerateRequest.expected_tokenizer_sha256: TOKENIZER_MISMATCH",
    )
    case(
        "prompt_too_long",
        {"tokenIds": {"ids": [65] * CONTEXT}},
        error("INVALID_ARGUMENT", "PROMPT_TOO_LONG"),
        "generate.proto Generate: PROMPT_TOO_LONG",
    )
    case(
        "hf_messages",
        {"hfMessagesJson": '[{"role": "user", "content": "a"}]'},
        error("FAILED_PRECONDITION", "IMAGES_NOT_SUPPORTED"),
        "generate.proto GenerateRequest.hf_messages_json: IMAGES_NOT_SUPPORTED, even if the conversation has no images",
    )
    case(
        "media",
        {"prompt": "a", "media": [{"base64": "QUJD"}]},
        error("FAILED_PRECONDITION", "IMAGES_NOT_SUPPORTED"),
        "generate.proto Generate: IMAGES_NOT_SUPPORTED",
    )
    case(
        "media_without_source",
        {"prompt": "a", "media": [{}]},
        invalid("media[0]"),
        "generate.proto Media.source: exactly one field must be set",
    )
    for kind in ("AUDIO", "VIDEO"):
        case(
            f"media_kind_{kind.lower()}",
            {"prompt": "a", "media": [{"kind": f"MEDIA_KIND_{kind}", "base64": "QUJD"}]},
            invalid("media[0].kind"),
            "generate.proto Media.kind: any other kind is INVALID_ARGUMENT",
        )
    case(
        "hf_template_without_hf_messages",
        {"prompt": "a", "hfTemplate": {"toolsJson": "[]"}},
        invalid("hf_template"),
        "generate.proto GenerateRequest.hf_template: only with hf_messages_json",
    )
    unknown = bytes([18, 1]) + b"a"
    case(
        "unknown_special_token_action",
        {"prompt": "a"},
        invalid("output_spec.special_token_classes[0].action"),
        "output_spec.proto SpecialTokenClass.action: an undefined number is INVALID_ARGUMENT",
        binary=unknown + bytes([50, 4, 26, 2, 24, 9]),
    )
    case(
        "unknown_media_kind",
        {"prompt": "a"},
        invalid("media[0].kind"),
        "generate.proto Media.kind: any other kind is INVALID_ARGUMENT",
        binary=unknown + bytes([122, 5, 8, 9, 18, 1, 65]),
    )
    return area


def model() -> Area:
    area = Area("loaded_model")
    facts = {
        "id": "model",
        "architecture": "llama",
        "contextLength": CONTEXT,
        "vocabularySize": VOCABULARY,
        "dtype": "f32",
        "device": "cpu",
        "eosTokenIds": [CONFIG["bos_token_id"] + 1, CONFIG["eos_token_id"]],
    }
    facts["defaultSampling"] = {
        "temperature": 1,
        "topK": 0,
        "topP": 1,
        "minP": 0,
        "typicalP": 1,
        "repetitionPenalty": 1,
        "presencePenalty": 0,
        "frequencyPenalty": 0,
    }
    absent = [
        "model.mediaKinds",
        "model.mediaLimits",
        "model.defaultSampling.seed",
        "model.defaultSampling.n",
        "model.defaultSampling.logitBias",
    ]
    area.add(
        "facts",
        "generate",
        LOADED,
        {},
        {"response": {"model": facts}, "absent": absent},
        "generate.proto LoadedModel: the facts of the model's files; default_sampling: the neutral values, logit_bias, n and seed unset",
    )
    area.add(
        "by_id",
        "generate",
        LOADED,
        {"model": "model"},
        {"response": {"model": {"id": "model"}}},
        "generate.proto GetLoadedModelRequest.model",
    )
    area.add(
        "not_found",
        "generate",
        LOADED,
        {"model": "none"},
        error("NOT_FOUND", "MODEL_NOT_FOUND", "model", resource=("model", "none")),
        "generate.proto GetLoadedModel: MODEL_NOT_FOUND",
    )
    return area


def control(oracle: Oracle) -> Area:
    """A separate server, so that the cache depends on these vectors only."""
    area = Area("control")
    server = "control"
    facts = {
        "state": "SERVER_STATE_SERVING",
        "model": {"id": "model", "contextLength": CONTEXT},
        "maxQueue": 7,
        "maxRunning": 3,
        "prefillChunk": 64,
        "maxMessageBytes": "1048576",
    }
    area.add(
        "get_server",
        server,
        f"{CONTROL}/GetServer",
        {},
        {"response": facts},
        "control.proto GetServerResponse: state, model and limits",
    )
    area.add(
        "idle",
        server,
        f"{CONTROL}/GetLoad",
        {},
        {
            "response": {
                "queued": 0,
                "running": 0,
                "generatedTokens": "0",
                "preemptions": "0",
                "kvCache": {"blockSize": 16, "heldBlocks": 0, "keptBlocks": 0},
            }
        },
        "control.proto GetLoadResponse",
    )
    prompt = "the user is on a world " * 8
    run = Run(oracle, prompt, 2)
    request = {"prompt": prompt, "sampling": GREEDY, "stop": {"maxNewTokens": 2}}

    def cached(name, tokens, **more):
        area.add(
            name,
            server,
            GENERATE,
            request | more,
            {
                "events": [
                    {"accepted": {"cachedTokens": tokens}},
                    {"delta": {"text": run.text()}},
                    run.finished(),
                    {"summary": {"usage": {"cachedTokens": tokens}}},
                ]
            },
            "generate.proto Accepted.cached_tokens: prompt tokens reused from the prefix cache; GenerateRequest.cache_salt: only with the same salt",
        )

    whole = (len(run.ids) - 1) // 16 * 16
    cached("first_is_computed", 0)
    cached("second_is_cached", whole)
    cached("another_salt_is_computed", 0, cacheSalt="other")
    cached("the_same_salt_is_cached", whole, cacheSalt="other")
    area.add(
        "generated",
        server,
        f"{CONTROL}/GetLoad",
        {},
        {"response": {"running": 0, "generatedTokens": str(4 * len(run.output))}},
        "control.proto GetLoadResponse.generated_tokens: tokens generated since the server started",
        eventually=True,  # the last event may arrive before its step is counted
    )
    area.add(
        "flush",
        server,
        f"{CONTROL}/FlushPrefixCache",
        {},
        {"response": {}},
        "control.proto FlushPrefixCache: evicts all unreferenced blocks",
    )
    area.add(
        "nothing_is_kept",
        server,
        f"{CONTROL}/GetLoad",
        {},
        {"response": {"kvCache": {"heldBlocks": 0, "keptBlocks": 0}}},
        "control.proto FlushPrefixCache: evicts all unreferenced blocks",
    )
    area.add(
        "nothing_to_flush",
        server,
        f"{CONTROL}/FlushPrefixCache",
        {},
        {"response": {"flushedBlocks": 0}},
        "control.proto FlushPrefixCacheResponse.flushed_blocks: number of evicted blocks",
    )
    cached("computed_after_the_flush", 0)
    return area
