"""Vectors of further rules, in the order of the `.proto` files."""

import json
from pathlib import Path

from tokenizers import Tokenizer

from .contract import Area, error, invalid, repeated
from .generate import GENERATE, GREEDY, LOADED, Run, subtract
from .model import MARKUP_CONTROL, MARKUP_SPECIAL, MARKUP_TEXT
from .oracle import NAME, Oracle
from .render import RENDER, blocks, image_block, talk, text_block, user
from .rules import KEPT
from .task import TASK
from .texts import DETOKENIZE, REGISTRY, TOKENIZE, VALIDATE

GOLDEN = Path(__file__).parents[2] / "golden"
HERE = Path(__file__).parents[1]
EXPLAIN, MODEL = f"{REGISTRY}/ExplainResolution", f"{REGISTRY}/GetModel"


def extend(areas: dict[str, Area], oracle: Oracle) -> None:
    """Adds vectors to the areas of the other modules."""
    blocks_seen(areas["seen"], oracle)
    families(areas["tools"])
    shapes(areas["tools"])
    messages(areas["media"])
    prefixed(areas["options"], oracle)
    literal(areas["options"], areas["tokenize"], oracle)
    ignored_parameters(areas["warnings"])
    left_out(areas["warnings"])
    arguments_form(areas["validate_template"])
    several_models(areas)
    registry(areas["registry"])
    unknown_methods(areas)
    generation_limits(areas["refused"], areas["returned"], oracle)
    defaults(areas["loaded_model"], areas["returned"])
    resumes(areas["resume"], oracle)
    matches(areas["stops"], areas["returned"])
    prompts_and_tokens(areas["returned"])
    progress(areas["unavailable"], areas["task"])


def blocks_seen(area: Area, oracle: Oracle) -> None:
    for kind in ("audio", "video"):
        conversation = talk(blocks(text_block("a"), {kind: {"base64": "QUJD", "mimeType": f"{kind}/x"}}))
        area.add(
            f"{kind}/base64",
            "render",
            RENDER,
            {"conversation": conversation, "options": KEPT},
            {"response": {"prompt": {"text": oracle.render(conversation)}}},
            f"{NAME}; chat.proto MediaBlock: templates see the kind, the source and mime_type",
        )


def golden(family: str, case: str) -> tuple[dict, str]:
    """Returns a request and the prompt of the official encoder."""
    at = GOLDEN / family / case
    return json.loads(at.with_suffix(".json").read_text()), at.with_suffix(".txt").read_text()


def families(area: Area) -> None:
    """What family adapters do with tools and arguments. The prompts are those of tests/golden."""
    request, prompt = golden("deepseek-v4", "tools_are_declared_by_the_first_system_message")
    function = request["tools"][0]["function"]
    flat = {("input_schema" if key == "parameters" else key): value for key, value in function.items()}
    conversation = {
        "messages": [{"role": given["role"], "text": given["content"]} for given in request["messages"]],
        "templateArgsJson": json.dumps(request["template_args"]),
    }
    oracle = "oracle: the official encoder of DeepSeek V4, by tests/golden/deepseek-v4"
    for name, tool in (("function", request["tools"][0]), ("input_schema", flat)):
        for normalization in ("CAPABILITY", "NONE"):
            area.add(
                f"family/{name}/{normalization.lower()}",
                "render",
                RENDER,
                {
                    "conversation": conversation | {"tools": [{"toolJson": json.dumps(tool)}]},
                    "options": {"adapter": "deepseek-v4", "normalization": f"NORMALIZATION_{normalization}"},
                },
                {"response": {"prompt": {"text": prompt}}},
                f"{oracle}; chat.proto Tool.tool_json: family adapters always get the rewritten tool",
            )
    called(area, oracle)


def called(area: Area, oracle: str) -> None:
    request, prompt = golden("deepseek-v4", "results_join_the_users_turn_in_the_order_of_the_calls")

    def message(given, as_text):
        result = {"role": given["role"]}
        content = given["content"]
        if isinstance(content, str):
            result["text"] = content
        else:
            result["blocks"] = {"blocks": [text_block(part["text"]) if part["type"] == "text" else {"otherJson": '{"type": "image"}'} for part in content]}
        result |= {"reasoningContent": given["reasoning_content"]} if "reasoning_content" in given else {}
        result |= {"toolCallId": given["tool_call_id"]} if "tool_call_id" in given else {}
        calls = [
            {
                "id": call["id"],
                "name": call["function"]["name"],
                "argumentsJson": json.dumps(call["function"]["arguments"]) if as_text else call["function"]["arguments"],
            }
            for call in given.get("tool_calls", [])
        ]
        return result | ({"toolCalls": calls} if calls else {})

    for name, as_text in (("text", True), ("object", False)):
        conversation = {
            "messages": [message(given, as_text) for given in request["messages"]],
            "templateArgsJson": json.dumps(request["template_args"]),
        }
        area.add(
            f"family/arguments/{name}",
            "render",
            RENDER,
            {"conversation": conversation, "options": {"adapter": "deepseek-v4"}},
            {"response": {"prompt": {"text": prompt}}},
            f"{oracle}; chat.proto ToolCall.arguments_json: family encoders accept either",
        )


def shapes(area: Area) -> None:
    tool = {"toolJson": '{"name": "f", "input_schema": {"type": "object", "z": 1.0}}'}
    area.add(
        "input_schema/template_reads_it",
        "odd",
        RENDER,
        {"model": "schema", "conversation": talk(user("a"), tools=[tool])},
        {"response": {"prompt": {"text": '{"type": "object", "z": 1.0}'}}},
        "chat.proto Tool.tool_json: a template that reads `input_schema` disables the rewriting",
    )


def messages(area: Area) -> None:
    """Messages for the processor of a vision-language model."""
    rule = "render.proto HfMessages"

    def case(name, conversation, expected, because, **options):
        request = {"conversation": conversation, "options": options}
        area.add(f"hf/{name}", "render", RENDER, request, {"response": {"hfMessages": expected}}, because)

    def listed(*items, **more):
        return json.dumps([{"role": "user", "content": list(items), **more}], separators=(",", ":"))

    path = {"otherJson": '{"type": "image", "path": "/data/a.png"}'}
    case("path", talk(blocks(path)), {"messagesJson": listed({"type": "image", "path": "/data/a.png"})}, f"{rule}.messages_json: or have url or path")
    location = image_block(location="/data/a.png")
    case("location", talk(blocks(location)), {"messagesJson": listed({"type": "image", "url": "/data/a.png"})}, "chat.proto MediaBlock.location: URL or path")
    other = {"otherJson": '{"type": "image", "base64": "QUJD", "detail": "high"}'}
    case(
        "other_keys",
        talk(blocks(other) | {"extraJson": '{"mood": 1.0}'}),
        {"messagesJson": listed({"type": "image", "base64": "QUJD", "detail": "high"}, mood=1.0)},
        f"{rule}.messages_json: keys of messages and blocks that do not describe the data are kept",
    )
    image = blocks(image_block(base64="QUJD"))
    case(
        "continue_final_message",
        talk(image, {"role": "assistant", "text": "a"}),
        {"addGenerationPrompt": False, "continueFinalMessage": True},
        f"{rule}.continue_final_message: true if the prompt ends inside the last message",
        continueFinalMessage=True,
    )
    case(
        "control_tokens",
        talk(image),
        {"controlTokens": "CONTROL_TOKENS_LITERAL"},
        f"{rule}.control_tokens: as requested",
        controlTokens="CONTROL_TOKENS_LITERAL",
    )
    markers(area)


def markers(area: Area) -> None:
    """The prompt of Gemma 4 with an image, after text that spells its marker in characters of two bytes."""
    area.add(
        "attachments/offset",
        "render",
        RENDER,
        {
            "conversation": talk(blocks(text_block("é<|image|>é"), image_block(base64="QUJD"))),
            "options": {"adapter": "gemma-4", "addGenerationPrompt": False},
        },
        {
            "response": {
                "prompt": {
                    "text": "<s><|turn>user\né<|image|>é<|image|><turn|>\n",
                    "attachments": [{"path": "conversation.messages[0].blocks.blocks[1].image", "base64": "QUJD", "offset": 28}],
                }
            }
        },
        "render.proto Attachment.offset: start of the marker, in bytes of UTF-8. A marker spelled by the caller's text has no attachment",
    )


def prefixed(area: Area, oracle: Oracle) -> None:
    rule = "render.proto Prompt.token_ids: with the adapter `plain`, the ids begin with the tokens that the tokenizer puts before a text"
    for name, text, ids in (
        ("bos_is_added", "hi", oracle.encode("hi", True)),
        ("bos_is_not_doubled", "<s>hi", oracle.encode("<s>hi")),
    ):
        offsets = oracle.offsets("hi")
        first = {"start": 0, "end": 0 if name == "bos_is_added" else 3}
        shift = first["end"]
        offsets = [first, *({"start": at["start"] + shift, "end": at["end"] + shift} for at in offsets)]
        area.add(
            f"adapter/plain/{name}",
            "render",
            RENDER,
            {"conversation": talk(user(text)), "options": {"adapter": "plain"}, "returnOffsets": True},
            {"response": {"prompt": {"text": text, "tokenIds": ids, "offsets": offsets}}},
            f"oracle: tokenizers; {rule}",
        )


def literal(options: Area, tokenize: Area, oracle: Oracle) -> None:
    """The model `markup` of the server `odd`: added tokens that are control tokens, and some that are text."""
    text = "".join(f"a{token}" for token in [*MARKUP_SPECIAL, *MARKUP_CONTROL, *MARKUP_TEXT])
    whole = Tokenizer.from_file(str(HERE / "markup/tokenizer.json"))
    of_text = without_control_tokens(whole)
    for name, ids, because in (
        ("tokens", whole.encode(text, add_special_tokens=False).ids, "CONTROL_TOKENS_TOKENS: the control token itself"),
        ("literal", oracle.encode_literally(text), "TokenizeRequest.control_tokens: with LITERAL, all of it is plain text"),
    ):
        request = {"model": "markup", "text": text, "controlTokens": f"CONTROL_TOKENS_{name.upper()}"}
        because = f"oracle: tokenizers; render.proto {because}"
        tokenize.add(f"added_tokens/{name}", "odd", TOKENIZE, request, {"response": {"tokenIds": ids}}, because)
    rule = "render.proto CONTROL_TOKENS_LITERAL: "
    added = "every other added token that contains a bracket or a bar is a control token; others of words, and HTML tags, are text"
    roles = "trained roles may be part of a control token that the format writes, no other text may"
    for name, said, because in (
        ("roles_in_control_tokens", "hello", roles),
        ("added_tokens", "".join(f"a{token}" for token in [*MARKUP_CONTROL, *MARKUP_TEXT]), added),
    ):
        prompt = f"<|user|>{said}<|{said}|>"
        ids = [whole.token_to_id("<|user|>"), *of_text(said), *of_text(f"<|{said}|>")]
        options.add(
            f"control_tokens/literal/{name}",
            "odd",
            RENDER,
            {"model": "markup", "conversation": talk(user(said)), "options": {"controlTokens": "CONTROL_TOKENS_LITERAL"}},
            {"response": {"prompt": {"text": prompt, "tokenIds": ids}}},
            f"oracle: tokenizers, without the added tokens that are control tokens; {rule}{because}",
        )


def without_control_tokens(whole: Tokenizer):
    """Returns a function from a text to its ids. It recognizes the added tokens of MARKUP_TEXT only."""
    given = json.loads(whole.to_str())
    given["added_tokens"] = [token for token in given["added_tokens"] if token["content"] in MARKUP_TEXT]
    given["post_processor"] = None
    assert len(given["added_tokens"]) == len(MARKUP_TEXT)
    plain = Tokenizer.from_str(json.dumps(given))

    def ids(text):
        return [whole.token_to_id(token) for token in plain.encode(text, add_special_tokens=False).tokens]

    return ids


def ignored_parameters(area: Area) -> None:
    rule = "render.proto WARNING_CODE_TOOL_PARAMETERS_IGNORED"
    second = '{"name": "f", "parameters": {"type": "object"}, "input_schema": {"type": "object"}}'
    for name, tool, adapter, path, because in (
        ("second_schema", {"toolJson": second}, "tokenizer-template", "conversation.tools[0].tool_json", "a second schema beside `parameters`"),
        (
            "no_schema",
            {"function": {"name": "f", "parametersJson": '{"a": 1}'}},
            "tagged",
            "conversation.tools[0].function.parameters_json",
            "the adapter cannot render a tool's parameters",
        ),
    ):
        area.add(
            f"tool_parameters_ignored/{name}",
            "render",
            RENDER,
            {"conversation": talk(user("a"), tools=[tool]), "options": {"adapter": adapter}},
            {"response": {"warnings": [{"code": "WARNING_CODE_TOOL_PARAMETERS_IGNORED", "path": path}]}},
            f"{rule}: {because}",
        )


def left_out(area: Area) -> None:
    """The model `brief`: its template shows the texts of users and answers, and nothing else."""
    call = {"id": "1", "name": "f", "argumentsJson": '{"city": "Paris"}'}
    answer = {"role": "assistant", "text": "b"}
    for code, messages, text, path in (
        ("MESSAGE", [{"role": "developer", "text": "Speak Danish."}, user("a")], "[a]", "messages[0]"),
        ("TOOL_CALLS", [user("a"), answer | {"toolCalls": [call]}], "[a](b)", "messages[1].tool_calls[0]"),
        ("REASONING", [user("a"), answer | {"reasoningContent": "Because."}], "[a](b)", "messages[1].reasoning_content"),
    ):
        area.add(
            f"{code.lower()}_ignored",
            "odd",
            RENDER,
            {"model": "brief", "conversation": talk(*messages), "options": {"addGenerationPrompt": False}},
            {"response": {"prompt": {"text": text}, "warnings": [{"code": f"WARNING_CODE_{code}_IGNORED", "path": f"conversation.{path}"}]}},
            f"render.proto WARNING_CODE_{code}_IGNORED",
        )
    tool = {"function": {"name": "f", "description": "Adds two numbers."}}
    area.add(
        "tools_ignored/named_by_a_call",
        "odd",
        RENDER,
        {"model": "naming", "conversation": talk(user("f"), answer | {"toolCalls": [call]}, tools=[tool])},
        {"response": {"prompt": {"text": "[f](b)f(Paris)"}, "warnings": [{"code": "WARNING_CODE_TOOLS_IGNORED", "path": "conversation.tools"}]}},
        "render.proto WARNING_CODE_TOOLS_IGNORED: not in the prompt, whose calls have the same name",
    )


def arguments_form(area: Area) -> None:
    loop = "{% for m in messages %}{% for c in m.tool_calls %}BODY{% endfor %}{% endfor %}"
    for name, body in (
        ("text", "{{ '<call>' + c.function.arguments }}"),
        ("either", "{% if c.function.arguments is string %}{{ c.function.arguments }}{% else %}{{ c.function.arguments | tojson }}{% endif %}"),
    ):
        area.add(
            f"tool_arguments/{name}",
            "render",
            VALIDATE,
            {"template": loop.replace("BODY", body)},
            {"response": {"template": {"toolArguments": f"TOOL_ARGUMENTS_{name.upper()}"}}},
            f"render.proto TOOL_ARGUMENTS_{name.upper()}",
        )


def several_models(areas: dict[str, Area]) -> None:
    rule = "render.proto RenderRequest.model: with several models, an empty id is INVALID_ARGUMENT"
    for area, name, method, request in (
        ("tokenize", "several_models", TOKENIZE, {"text": "a"}),
        ("detokenize", "several_models", DETOKENIZE, {"tokenIds": [1]}),
        ("registry", "explain/several_models", EXPLAIN, {}),
    ):
        areas[area].add(name, "many", method, request, invalid("model"), rule)


def registry(area: Area) -> None:
    area.add(
        "explain/invalid_conversation",
        "render",
        EXPLAIN,
        {"conversation": talk({"text": "a"})},
        invalid("conversation.messages[0].role"),
        "registry.proto ExplainResolution: INVALID_REQUEST",
    )
    area.add(
        "get_model/special_token_without_tokenizer",
        "odd",
        MODEL,
        {"model": "no_ids"},
        {
            "response": {"model": {"specialTokens": [{"name": "bos_token", "text": "<s>"}]}},
            "absent": ["model.specialTokens[0].id", "model.tokenizerSha256", "model.tokenizerProblem"],
        },
        "registry.proto SpecialToken.id: unset without a tokenizer; ModelInfo.tokenizer_problem: empty if the model has none",
    )
    area.add(
        "get_model/strict_turns",
        "odd",
        MODEL,
        {"model": "strict"},
        {"response": {"model": {"capabilities": ["CAPABILITY_REQUIRES_STRICT_TURNS"]}}},
        "registry.proto CAPABILITY_REQUIRES_STRICT_TURNS: user and assistant messages must alternate",
    )
    area.add(
        "damaged_tokenizer/renders",
        "odd",
        RENDER,
        {"model": "damaged", "conversation": talk(user("a"))},
        {"response": {"prompt": {"text": "a"}}},
        "registry.proto ModelInfo.tokenizer_problem: rendering needs no tokenizer",
    )
    area.add(
        "damaged_tokenizer/tokenize",
        "odd",
        TOKENIZE,
        {"model": "damaged", "text": "a"},
        error("FAILED_PRECONDITION", "NO_TOKENIZER"),
        "registry.proto ModelInfo.tokenizer_problem: reason why the model's tokenizer cannot be used",
    )
    area.add(
        "get_model/images",
        "vision_task",
        MODEL,
        {},
        {
            "response": {
                "model": {
                    "mediaKinds": ["MEDIA_KIND_IMAGE"],
                    "imageLimits": {"maxImages": 256, "maxImagePixels": "134217728"},
                }
            }
        },
        "registry.proto ModelInfo.media_kinds and image_limits",
    )
    area.add(
        "get_model/text_only",
        "small",
        MODEL,
        {},
        {"response": {"model": {"id": "model"}}, "absent": ["model.mediaKinds", "model.imageLimits"]},
        "registry.proto ModelInfo.image_limits: unset for a model that takes text only",
    )


def unknown_methods(areas: dict[str, Area]) -> None:
    rule = "proto/ERRORS.md UNKNOWN_METHOD: the server does not have this method"
    unknown = error("UNIMPLEMENTED", "UNKNOWN_METHOD")
    areas["refused"].add("unknown_method", "generate", TOKENIZE, {"text": "a"}, unknown, rule)
    areas["refused"].add("unknown_method/stream", "generate", TASK, {"conversation": talk(user("a"))}, unknown, rule)
    areas["invalid"].add("unknown_method", "render", LOADED, {}, unknown, rule)
    areas["invalid"].add("unknown_method/stream", "render", GENERATE, {"prompt": "a"}, unknown, rule)


def generation_limits(refused: Area, returned: Area, oracle: Oracle) -> None:
    """The limits of the server `limited`: 4 tokens of a prompt, 3 of an output."""
    ids = oracle.encode("abcde")
    assert len(ids) == 5
    refused.add(
        "prompt_over_limit",
        "limited",
        GENERATE,
        {"tokenIds": {"ids": ids}},
        error("INVALID_ARGUMENT", "PROMPT_OVER_LIMIT"),
        "generate.proto Generate: PROMPT_OVER_LIMIT",
    )
    rule = "generate.proto Stop.max_new_tokens: a value above the server's limit counts as that limit"
    for name, stop, count in (("default", {}, 3), ("above_the_limit", {"maxNewTokens": 100}, 3), ("below_the_limit", {"maxNewTokens": 1}, 1)):
        run = Run(oracle, ids[:4], count, eos={-1})
        events = run.events()
        events["events"][0]["accepted"] |= {"stop": {"maxNewTokens": count, "ignoreEos": True}}
        request = {"tokenIds": {"ids": ids[:4]}, "sampling": GREEDY, "stop": stop | {"ignoreEos": True}}
        returned.add(f"max_new_tokens/{name}", "limited", GENERATE, request, events, f"{NAME}; {rule}")


def defaults(loaded: Area, returned: Area) -> None:
    """The server `defaults`, whose model's generation_config.json has sampling parameters."""
    given = {"temperature": 0.5, "topK": 7, "topP": 0.75, "minP": 0.25, "typicalP": 0.5, "repetitionPenalty": 1.5}
    neutral = {"presencePenalty": 0, "frequencyPenalty": 0}
    unset = [f"model.defaultSampling.{name}" for name in ("logitBias", "n", "seed")]
    loaded.add(
        "defaults_of_the_files",
        "defaults",
        LOADED,
        {},
        {"response": {"model": {"defaultSampling": given | neutral}}, "absent": unset},
        "generate.proto LoadedModel.default_sampling: the defaults in the model's files, else the neutral values",
    )
    rule = "generate.proto Sampling: the model's generation config supplies unset parameters"
    for name, sampling in (("all", {}), ("some", {"temperature": 0, "topK": 0, "repetitionPenalty": 1})):
        expected = given | neutral | sampling
        events = [{"accepted": {"sampling": expected}}, {"delta": {}}, {"finished": {}}, {"summary": {}}]
        forced = sampling | {"logitBias": {"97": 100}}
        request = {"prompt": "a", "sampling": forced, "stop": {"maxNewTokens": 1, "ignoreEos": True}}
        returned.add(f"defaults_of_the_files/{name}", "defaults", GENERATE, request, {"events": events}, rule)


def resumes(area: Area, oracle: Oracle) -> None:
    def case(name, given, events, because):
        request = {"sampling": GREEDY, "returnOptions": {"tokenIds": True}} | given
        area.add(name, "generate", GENERATE, request, {"events": events}, because)

    rule = "generate.proto Resume: its earlier tokens apply to penalties, limits, grammar, stop strings and usage"
    run = Run(oracle, "hello world", 10, eos={-1}, change=lambda logits, output: subtract(logits, output, 1.5, 0.25))
    case(
        "penalties",
        {
            "tokenIds": {"ids": run.ids + run.output[:4]},
            "resume": {"generatedTokens": 4},
            "sampling": GREEDY | {"presencePenalty": 1.5, "frequencyPenalty": 0.25},
            "stop": {"maxNewTokens": 10, "ignoreEos": True},
        },
        [{"accepted": {}}, {"delta": {"tokenIds": run.output[4:]}}, {"finished": {"reason": "FINISH_REASON_LENGTH"}}, {"summary": {}}],
        f"{NAME}; {rule}",
    )
    prompt = oracle.encode("hello world")
    case(
        "grammar",
        {"tokenIds": {"ids": [*prompt, 97, 98]}, "resume": {"generatedTokens": 2}, "grammar": {"regex": "abcd"}},
        [
            {"accepted": {"promptTokens": len(prompt)}},
            {"delta": {"text": "cd", "tokenIds": [99, 100]}},
            {"finished": {"reason": "FINISH_REASON_STOP"}},
            {"summary": {"usage": {"completionTokens": 4}}},
        ],
        rule,
    )
    forced = {"temperature": 0, "logitBias": {"98": 100}}
    case(
        "stop_string",
        {
            "tokenIds": {"ids": [*prompt, 97]},
            "resume": {"generatedTokens": 1},
            "sampling": forced,
            "stop": {"stopStrings": ["ab"], "maxNewTokens": 9},
            "returnOptions": {},
        },
        [
            {"accepted": {}},
            {"finished": {"reason": "FINISH_REASON_STOP", "stopString": "ab"}},
            {"summary": {"usage": {"completionTokens": 2}}},
        ],
        rule,
    )
    area.add(
        "outside_the_vocabulary",
        "generate",
        GENERATE,
        {"tokenIds": {"ids": [*prompt, 302]}, "resume": {"generatedTokens": 1}, "sampling": GREEDY},
        invalid(f"token_ids.ids[{len(prompt)}]"),
        "generate.proto TokenIds.ids: each below the vocabulary size",
    )


def matches(stops: Area, returned: Area) -> None:
    """Which of several matches wins. The grammar forces the output."""

    def case(area, name, text, events, because, prompt="a", stop=(), start="<t>", end="</t>"):
        spec = {"reasoning": {"startStrings": [start], "endStrings": [end]}}
        request = {
            "prompt": prompt,
            "sampling": GREEDY,
            "grammar": {"choice": {"values": [text]}},
            "stop": {"stopStrings": list(stop)},
            "outputSpec": spec,
        }
        expected = {"events": [{"accepted": {}}, *events, {"summary": {}}]}
        area.add(name, "generate", GENERATE, request, expected, f"output_spec.proto ReasoningMarkers: {because}")

    def delta(text, reasoning=False):
        return {"delta": {"text": text} | ({"reasoning": True} if reasoning else {})}

    ended = {"finished": {"reason": "FINISH_REASON_STOP"}}

    def stopped(string):
        return {"finished": {"reason": "FINISH_REASON_STOP", "stopString": string}}

    case(stops, "first_end_wins", "xabcdy", [delta("xa"), stopped("bc")], "the match that ends first wins", stop=["abcd", "bc"])
    case(stops, "longest_wins", "xabcy", [delta("x"), stopped("abc")], "if several end together, the longest string wins", stop=["bc", "abc", "c"])
    case(
        stops,
        "stop_string_wins_over_a_marker",
        "<t>a</t>b",
        [delta("<t>a", True), stopped("</t>")],
        "if several end together, a stop string wins over a marker",
        stop=["</t>"],
    )
    case(
        stops,
        "no_match_across_a_marker",
        "x<t>yz",
        [delta("x"), delta("<t>yz", True), ended],
        "no match extends across a marker",
        stop=[">y"],
    )
    case(
        returned,
        "reasoning/markers_have_an_effect_once",
        "a</t>b<t>c<t>d</t>e",
        [delta("a</t>b"), delta("<t>c<t>d</t>", True), delta("e"), ended],
        "outside reasoning, only a start marker has an effect; inside reasoning, only an end marker",
    )
    case(
        returned,
        "reasoning/marker_begun_by_the_prompt",
        ">b",
        [delta(">b", True), ended],
        "if the prompt ends with the first bytes of a marker, the output may complete that marker",
        prompt="a<t",
    )


def prompts_and_tokens(area: Area) -> None:
    """Markers far from the end of the prompt, and a marker in the middle of a token."""
    spec = {"reasoning": {"startStrings": ["<t>"], "endStrings": ["</t>"]}}
    rule = "output_spec.proto ReasoningMarkers: text markers are found in the last 4,096 of these tokens"
    for name, count, delta, absent in (
        ("within_4096_tokens", 4093, {"text": "b", "reasoning": True}, []),
        ("beyond_4096_tokens", 4094, {"text": "b"}, ["events[1].delta.reasoning"]),
    ):
        request = {
            "tokenIds": {"ids": repeated([97], count, list(b"<t>"))},
            "sampling": {"temperature": 0, "logitBias": {"98": 100}},
            "stop": {"maxNewTokens": 1},
            "outputSpec": spec,
        }
        events = [{"accepted": {}}, {"delta": delta}, {"finished": {"reason": "FINISH_REASON_LENGTH"}}, {"summary": {}}]
        area.add(f"reasoning_of_the_prompt/{name}", "slow", GENERATE, request, {"events": events, "absent": absent}, rule)
    area.add(
        "reasoning/starts_within_a_token",
        "generate",
        GENERATE,
        {
            "prompt": "a",
            "sampling": {"temperature": 0, "logitBias": {"279": 100}},
            "stop": {"maxNewTokens": 1},
            "returnOptions": {"tokenIds": True},
            "outputSpec": {"reasoning": {"startStrings": ["ell"]}},
        },
        {
            "events": [
                {"accepted": {}},
                {"delta": {"text": "h"}},
                {"delta": {"text": "ello", "reasoning": True, "tokenIds": [279]}},
                {"finished": {"reason": "FINISH_REASON_LENGTH"}},
                {"summary": {}},
            ],
            "absent": ["events[1].delta.tokenIds"],
        },
        "generate.proto Delta.token_ids: if reasoning starts in the middle of a token, the last of several deltas has the token's id",
    )


def progress(unavailable: Area, task: Area) -> None:
    unavailable.vectors.insert(
        next(at for at, vector in enumerate(unavailable.vectors) if vector["name"] == "unavailable/deadline_in_queue"),
        waiting(
            "unavailable",
            "progress_in_queue",
            "full",
            GENERATE,
            {"prompt": "a", "sampling": GREEDY, "stop": {"maxNewTokens": 1}},
            {"events": [{"progress": {"queuePlace": 1, "computedPromptTokens": 0}}]},
            "generate.proto Generate: it is `progress` if the server has no other event; Progress.queue_place: place in the queue",
            cancel_after=1,
        ),
    )
    task.add(
        "progress_without_a_replica",
        "waiting",
        TASK,
        {"conversation": talk(user("hi")), "sampling": GREEDY},
        {
            "events": [{"rendered": {}}, {"progress": {}}],
            "absent": [f"events[1].progress.{name}" for name in ("queuePlace", "computedPromptTokens", "lastStepAge")],
        },
        "task.proto RunTaskResponse.progress: empty while the task waits for a replica; RunTask: `rendered` comes at once if no replica accepts the task within a second",
        cancel_after=2,
    )
    task.add(
        "deadline_without_a_replica",
        "waiting",
        TASK,
        {"conversation": talk(user("hi")), "sampling": GREEDY},
        error("DEADLINE_EXCEEDED", "DEADLINE_EXCEEDED"),
        "task.proto RunTask: DEADLINE_EXCEEDED",
        deadline_ms=500,
        eventually=True,  # a busy machine may deliver the end later than the client's own deadline
    )


def waiting(area: str, *given, **options) -> dict:
    """Returns a vector for a place in its area that is not the end."""
    made = Area(area)
    made.add(*given, **options)
    return made.vectors[0]
