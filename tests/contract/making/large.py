"""Vectors of limits that need large messages. Their requests have a part in short."""

from .contract import Area, error, invalid, repeated
from .generate import GENERATE, GREEDY, VOCABULARY, Run
from .oracle import Oracle
from .render import RENDER, talk, user
from .texts import DETOKENIZE, TOKENIZE

BATCH = "render.v1.RenderService/BatchRender"
MIB = 1 << 20
MAX_IDS = MIB
MAX_GRAMMAR = 256 << 10
MAX_CHOICE = 16 << 10
TOO_LONG = "INVALID_ARGUMENT", "TEXT_TOO_LONG"


def extend(areas: dict[str, Area], oracle: Oracle) -> None:
    """Adds vectors to the areas of the other modules."""
    tokenized(areas["tokenize"], oracle)
    detokenized(areas["detokenize"], oracle)
    elements(areas["limits"])
    results(areas["batch"], areas["invalid"])
    compressed(areas["invalid"], areas["refused"])
    grammars(areas["grammars"])
    output_specs(areas["ranges"], oracle)
    message_bytes(areas["unavailable"], oracle)
    areas["refused"].add(
        "text_too_long",
        "longest",
        GENERATE,
        {"prompt": repeated("a", 10 * MIB + 1)},
        error(*TOO_LONG, "prompt"),
        "generate.proto Generate: TEXT_TOO_LONG; render.proto Tokenize: the limit is 10 MiB of text",
    )


def tokenized(area: Area, oracle: Oracle) -> None:
    rule = "render.proto Tokenize: TEXT_TOO_LONG. The limit is 10 MiB of text, with return_offsets 1 MiB"
    for name, length, options in (
        ("text_too_long", 10 * MIB + 1, {}),
        ("text_too_long/offsets", MIB + 1, {"returnOffsets": True}),
    ):
        request = {"text": repeated("a", length)} | options
        area.add(name, "render", TOKENIZE, request, error(*TOO_LONG, "text"), rule)
    ids = oracle.encode(" the")
    assert oracle.encode(" the the") == ids * 2
    area.add(
        "longest_text/offsets",
        "render",
        TOKENIZE,
        {"text": repeated(" the", MIB // 4), "returnOffsets": True},
        {"response": {"tokenIds": repeated(ids, MIB // 4)}},
        rule,
    )


def detokenized(area: Area, oracle: Oracle) -> None:
    rule = "render.proto DetokenizeRequest.token_ids: at most 1,048,576"
    (letter,), (longest,) = oracle.encode("a"), oracle.encode("<tool_call>")
    for name, ids, expect, because in (
        ("most_ids", repeated([letter], MAX_IDS), {"response": {"text": repeated("a", MAX_IDS)}}, rule),
        ("too_many_ids", repeated([letter], MAX_IDS + 1), invalid("token_ids"), rule),
        (
            "text_too_long",
            repeated([longest], MAX_IDS),
            error(*TOO_LONG, "token_ids"),
            "render.proto Detokenize: TEXT_TOO_LONG for more than 10 MiB of text",
        ),
    ):
        area.add(name, "render", DETOKENIZE, {"tokenIds": ids}, expect, because)


def elements(area: Area) -> None:
    """The conversation and its messages are nested messages."""
    rule = "proto/ERRORS.md MESSAGE_TOO_LARGE: more than 65,536 nested messages and repeated strings"
    plain = {"options": {"adapter": "plain"}}
    for name, count, expect in (
        ("most_elements", 65534, {"response": {"prompt": {"text": repeated("a\n", 65533, after="a")}}}),
        ("too_many_elements", 65536, error("RESOURCE_EXHAUSTED", "MESSAGE_TOO_LARGE", "conversation.messages")),
    ):
        conversation = {"messages": repeated([user("a")], count)}
        area.add(name, "render", RENDER, {"conversation": conversation} | plain, expect, rule)


def results(batch: Area, invalid_requests: Area) -> None:
    """The server `amplifying`: its chat template repeats 16 letters as often as the message asks for."""
    info = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "domain": "tandem"}
    failure = {"code": 8, "details": [info | {"reason": "BATCH_RESULTS_TOO_LARGE"}]}
    batch.add(
        "results_too_large",
        "amplifying",
        BATCH,
        {"requests": [{"conversation": talk(user(str(16 * MIB + 1)))}]},
        {"response": {"results": [{"failure": failure}]}},
        "render.proto BatchRender: a result beyond 256 MiB is a failure with RESOURCE_EXHAUSTED (BATCH_RESULTS_TOO_LARGE); code 8",
    )
    invalid_requests.add(
        "text_too_long",
        "amplifying",
        RENDER,
        {"conversation": talk(user(str(10 * MIB // 16 + 1))), "returnTokenIds": True},
        error(*TOO_LONG),
        "render.proto Render: TEXT_TOO_LONG",
    )


def compressed(rendering: Area, generation: Area) -> None:
    """Requests that become smaller, because some libraries do not compress others."""
    rule = "proto/ERRORS.md UNSUPPORTED_ENCODING: the request message is compressed"
    unsupported = error("UNIMPLEMENTED", "UNSUPPORTED_ENCODING")
    text = repeated("a", 10_000)
    rendering.add("compressed", "render", TOKENIZE, {"text": text}, unsupported, rule, compression="gzip")
    request = {"prompt": text}
    generation.add("compressed", "generate", GENERATE, request, unsupported, rule, compression="gzip")


def grammars(area: Area) -> None:
    def bad(name, grammar, field, because):
        request = {"prompt": "a", "grammar": grammar}
        area.add(name, "generate", GENERATE, request, invalid(field), f"generate.proto {because}")

    def good(name, grammar, text, reason, because):
        request = {"prompt": "a", "sampling": GREEDY, "stop": {"maxNewTokens": 3}, "grammar": grammar}
        events = [{"accepted": {}}, {"delta": {"text": text}}, {"finished": {"reason": reason}}, {"summary": {}}]
        area.add(name, "generate", GENERATE, request, {"events": events}, f"generate.proto {because}")

    ended, cut = "FINISH_REASON_STOP", "FINISH_REASON_LENGTH"
    before, after = '{"description": "', '", "const": 7}'
    room = MAX_GRAMMAR - len(before + after)
    rule = "Grammar.json_schema: 1 byte to 256 KiB"
    good("json_schema/longest", {"jsonSchema": repeated("a", room, before, after)}, "7", ended, rule)
    bad("json_schema/too_long", {"jsonSchema": repeated("a", room + 1, before, after)}, "grammar.json_schema", rule)
    start = 'start: "x"\n//'
    room, rule = MAX_GRAMMAR - len(start), "Grammar.lark: 1 byte to 256 KiB"
    good("lark/longest", {"lark": repeated("a", room, start)}, "x", ended, rule)
    bad("lark/too_long", {"lark": repeated("a", room + 1, start)}, "grammar.lark", rule)
    good("regex/longest", {"regex": repeated("a", MAX_CHOICE)}, "aaa", cut, "Grammar.regex: 1 byte to 16 KiB")
    rule = "Choice.values: 1 to 1,024 texts, each 1 byte to 16 KiB, in total at most 256 KiB"
    good("choice/most", {"choice": {"values": repeated(["ab"], 1024)}}, "ab", ended, rule)
    texts = [repeated("b", MAX_CHOICE - 2, f"a{index:x}") for index in range(MAX_GRAMMAR // MAX_CHOICE)]
    bad("choice/too_long_in_total", {"choice": {"values": [*texts, "a"]}}, "grammar.choice", rule)
    bad(
        "json_schema/too_many_symbols",
        {"jsonSchema": repeated("{},", 20_000, '{"prefixItems": [', "{}]}")},
        "grammar.json_schema",
        "Grammar.json_schema: at most 32,000 symbols",
    )
    bad(
        "lark/too_many_symbols",
        {"lark": repeated(' "a"', 8001, "start:")},
        "grammar.lark",
        "Grammar.lark: at most 8,000 symbols",
    )
    grows_costly(area)


def grows_costly(area: Area) -> None:
    """After some letters, the derivations of the text exceed the limit of the parser's state."""
    sums = " | ".join("s " * count for count in range(2, 40))
    area.add(
        "grows_too_costly",
        "generate",
        GENERATE,
        {
            "prompt": "a",
            "sampling": GREEDY | {"logitBias": {"97": 50}},
            "stop": {"maxNewTokens": 200},
            "grammar": {"lark": f'start: s\ns: "a" | {sums}'},
        },
        {"events": [{"accepted": {}}, {"delta": {}}, {"finished": {"reason": "FINISH_REASON_GRAMMAR_LIMIT"}}, {"summary": {}}]},
        "generate.proto FINISH_REASON_GRAMMAR_LIMIT: the grammar needs more memory or time than a step may cost",
    )


def output_specs(area: Area, oracle: Oracle) -> None:
    rule = "output_spec.proto OutputSpec.special_token_classes: at most 16,384 ids in total, each below the vocabulary size"
    run = Run(oracle, "hello world", 2)
    for name, count, expect in (
        ("most", 16384, run.events()),
        ("too_many", 16385, invalid("output_spec.special_token_classes")),
    ):
        spec = {"specialTokenClasses": [{"tokenIds": repeated([VOCABULARY - 1], count)}]}
        request = {"prompt": "hello world", "sampling": GREEDY, "stop": {"maxNewTokens": 2}, "outputSpec": spec}
        area.add(f"output_spec.special_token_classes/{name}", "generate", GENERATE, request, expect, rule)


def message_bytes(area: Area, oracle: Oracle) -> None:
    """The server `bytes`: one caller may have 3 MiB, three times `--max-message-bytes`. The held request counts
    as 3.1 MB: 12,000 nested messages of 5 bytes count 256 more each."""

    def request(length):
        name = {"name": repeated("a", length)}
        return {"prompt": "a", "sampling": GREEDY, "stop": {"maxNewTokens": 1}, "outputSpec": {"specialTokenClasses": [name]}}

    rule = "proto/ERRORS.md TOTAL_MESSAGE_BYTES"
    refused = error("RESOURCE_EXHAUSTED", "TOTAL_MESSAGE_BYTES", retry=True) | {"headers": {"grpc-retry-pushback-ms": "*"}}
    area.add("total_message_bytes", "bytes", GENERATE, request(400_000), refused, rule)
    area.add(
        "total_message_bytes/small_message",
        "bytes",
        GENERATE,
        request(60_000),
        Run(oracle, "a", 1).events(),
        f"{rule}; --max-message-bytes: the first 64 KiB of each message are not counted",
    )
