"""Vectors of images with a place in the prompt, of their limits, and of the model's own chat template."""

import base64
import json
from pathlib import Path

import transformers

from .contract import Area, error, invalid
from .generate import GENERATE, GREEDY, LOADED
from .images import LIMIT, MARKED, ORACLE, helper
from .oracle import NAME
from .rules import png

MARKER, MARKER_ID, START_ID = "<|image|>", 264, 262
LIMITS = {"sampling": GREEDY, "stop": {"maxNewTokens": LIMIT}, "returnOptions": {"tokenIds": True}}
OFFSET = "generate.proto Media.offset: start of the marker, in bytes of UTF-8 in `prompt`, or an index in `token_ids`"
MEDIA = "generate.proto GenerateRequest.media: media files of `prompt` or `token_ids`, in the order of their offsets"


def extend(area: Area, vision: Path) -> None:
    """Adds vectors. The server `marked` has the model whose expansion of an image is special tokens."""
    placed(area)
    refused(area)
    limited(area)
    own_template(area, transformers.AutoTokenizer.from_pretrained(vision))
    resumed(area)
    template_failures(area)


def conversation() -> dict:
    (found,) = helper().conversations(MARKED)
    return found


def image() -> str:
    (block,) = (block for block in conversation()["messages"][0]["content"] if block["type"] == "image")
    return block["base64"]


def placed(area: Area) -> None:
    """Prompts with a marker. The ids of the prompt and of the answer are transformers'."""
    ids, greedy = conversation()["prompt"], conversation()["greedy"][:LIMIT]
    golden = helper().GOLDEN / "image_families/gemma4.json"
    tokens = json.loads(golden.read_text(encoding="utf8"))["tokens"]
    at = ids.index(START_ID)
    (_, count), before, after = ids[at + 1], ids[:at], ids[at + 3 :]

    def text(part):
        special = helper().SPECIAL
        return "".join("\n\n" if id == 256 else tokens[id - special] if id >= special else chr(id) for id in part)

    total = len(before) + count + 2 + len(after)
    events = [
        {"accepted": {"promptTokens": total, "imageTokens": count}},
        {"delta": {"tokenIds": greedy}},
        {"finished": {"reason": "FINISH_REASON_LENGTH"}},
        {"summary": {"usage": {"promptTokens": total, "completionTokens": LIMIT, "totalTokens": total + LIMIT, "imageTokens": count}}},
    ]
    prompt = {"prompt": text(before) + MARKER + text(after)}
    with_ids = {"tokenIds": {"ids": [*before, MARKER_ID, *after]}}
    offset = len(text(before).encode())
    for name, given, media in (
        ("prompt", prompt, {"data": image(), "offset": offset}),
        ("prompt/base64", prompt, {"base64": image(), "mimeType": "image/png", "offset": offset}),
        ("token_ids", with_ids, {"data": image(), "offset": len(before)}),
    ):
        area.add(f"media/{name}", "marked", GENERATE, LIMITS | given | {"media": [media]}, {"events": events}, f"{ORACLE}; {OFFSET}")


def refused(area: Area) -> None:
    def case(name, expect, because, media, server="marked", **given):
        area.add(f"media/{name}", server, GENERATE, LIMITS | given | {"media": media}, expect, because)

    def file(offset, **more):
        return {"data": image(), "offset": offset} | more

    two = f"a{MARKER}b{MARKER}"
    second = two.rindex(MARKER)
    for name, offset, given in (
        ("before_the_marker", 0, {"prompt": f"a{MARKER}"}),
        ("within_the_marker", 2, {"prompt": f"a{MARKER}"}),
        ("within_a_character", 1, {"prompt": f"é{MARKER}"}),
        ("beyond_the_prompt", 4294967295, {"prompt": f"a{MARKER}"}),
        ("no_marker_among_the_ids", 0, {"tokenIds": {"ids": [97, MARKER_ID]}}),
        ("beyond_the_ids", 2, {"tokenIds": {"ids": [97, MARKER_ID]}}),
    ):
        case(f"offset/{name}", invalid("media[0].offset"), OFFSET, [file(offset)], **given)
    case("offset/twice", invalid("media[1].offset"), MEDIA, [file(1), file(1)], prompt=two)
    case("offset/not_in_order", invalid("media[1].offset"), MEDIA, [file(second), file(1)], prompt=two)
    because = "proto/ERRORS.md INVALID_IMAGE: an image cannot be decoded"
    case("not_an_image", invalid("media[0]", "INVALID_IMAGE"), because, [{"data": "QUJD", "offset": 1}], prompt=f"a{MARKER}")
    because = "generate.proto Media.base64: the file as base64 text"
    case("not_base64", invalid("media[0].base64"), because, [{"base64": "*", "offset": 1}], prompt=f"a{MARKER}")
    because = "generate.proto Media.url: the service fetches it if its operator allows the host"
    url = {"url": "https://other.example.com/a.png", "offset": 1}
    case("host_not_allowed", invalid("media[0].url", "IMAGE_NOT_FETCHED"), because, [url], prompt=f"a{MARKER}")
    because = "generate.proto GenerateRequest.media: only for models whose expansion of a placeholder consists of special tokens"
    case("expansion_with_text", invalid("media"), because, [file(1)], server="vision", prompt="a<start_of_image>")
    messages = json.dumps([{"role": "user", "content": "a"}])
    case("with_hf_messages", invalid("media"), MEDIA, [file(0)], hfMessagesJson=messages)


def limited(area: Area) -> None:
    """The limits of the server `marked`: 2 images and 10,000 pixels."""
    rule = "generate.proto Generate: IMAGE_OVER_LIMIT, with the path of the image; MediaLimits"
    files = [{"data": image(), "offset": at} for at in range(3)]
    wide = {"data": base64.b64encode(png(101, 100)).decode(), "offset": 0}
    for name, media, path in (("too_many", files, "media[2]"), ("pixels", [wide], "media[0]")):
        request = LIMITS | {"prompt": MARKER, "media": media}
        area.add(f"limits/{name}", "marked", GENERATE, request, invalid(path, "IMAGE_OVER_LIMIT"), rule)
    area.add(
        "limits/loaded_model",
        "marked",
        LOADED,
        {},
        {"response": {"model": {"mediaLimits": {"maxImages": 2, "maxImageBytes": "33554432", "maxImagePixels": "10000"}}}},
        "generate.proto LoadedModel.media_limits: limits of media",
    )


def own_template(area: Area, tokenizer) -> None:
    """The inputs of the model's chat template. The ids of the prompt are in `prompt_logprobs`."""
    question = {"role": "user", "content": [{"type": "text", "text": "hi"}]}
    answer = {"role": "assistant", "content": [{"type": "text", "text": "one"}]}

    def case(name, messages, ids, because, **template):
        request = {
            "hfMessagesJson": json.dumps(messages),
            "hfTemplate": template,
            "sampling": GREEDY,
            "stop": {"maxNewTokens": 1, "ignoreEos": True},
            "returnOptions": {"promptLogprobs": 0},
        }
        events = [
            {"accepted": {"promptTokens": len(ids)}},
            {"promptLogprobs": {"tokens": [{"id": id} for id in ids[1:]]}},
            {"delta": {}},
            {"finished": {}},
            {"summary": {}},
        ]
        area.add(f"hf_template/{name}", "vision", GENERATE, request, {"events": events}, f"{NAME}; generate.proto HfTemplate.{because}")

    def applied(*messages, **options):
        return tokenizer.encode(tokenizer.apply_chat_template(messages, tokenize=False, **options), add_special_tokens=False)

    rule = "add_generation_prompt: end the prompt with the start of the assistant's turn. Default: true"
    case("add_generation_prompt/default", [question], applied(question, add_generation_prompt=True), rule)
    case("add_generation_prompt/false", [question], applied(question), rule, addGenerationPrompt=False)
    rule = "continue_final_message: end the prompt inside the last message"
    ids = applied(question, answer, continue_final_message=True)
    case("continue_final_message", [question, answer], ids, rule, continueFinalMessage=True, addGenerationPrompt=False)
    spelled = "a<end_of_turn>b"
    before, after = applied({"role": "user", "content": [{"type": "text", "text": "\0"}]}, add_generation_prompt=True), list(spelled.encode())
    at = before.index(0)
    message = {"role": "user", "content": [{"type": "text", "text": spelled}]}
    rule = "literal_control_tokens: text of the messages that spells a control token stays text"
    case("literal_control_tokens/false", [message], applied(message, add_generation_prompt=True), rule)
    case("literal_control_tokens/true", [message], [*before[:at], *after, *before[at + 1 :]], rule, literalControlTokens=True)


def resumed(area: Area) -> None:
    (found,) = helper().conversations()
    request = LIMITS | {"hfMessagesJson": json.dumps(found["messages"])}
    greedy = found["greedy"][:LIMIT]
    rule = "generate.proto Resume.token_ids: the generated ids, with `hf_messages_json`: exactly generated_tokens of them"
    events = [
        {"accepted": {}},
        {"delta": {"tokenIds": greedy[4:]}},
        {"finished": {"reason": "FINISH_REASON_LENGTH"}},
        {"summary": {"usage": {"completionTokens": LIMIT}}},
    ]
    for name, ids, expect in (
        ("resume", greedy[:4], {"events": events}),
        ("resume/one_id_is_missing", greedy[:3], invalid("resume.token_ids")),
        ("resume/one_id_too_many", greedy[:5], invalid("resume.token_ids")),
        ("resume/no_ids", [], invalid("resume.token_ids")),
    ):
        given = request | {"resume": {"generatedTokens": 4, "tokenIds": ids}}
        area.add(name, "vision", GENERATE, given, expect, rule)


def template_failures(area: Area) -> None:
    """The server `raising`: a chat template that fails as the first message's role asks for."""
    for name, role in (("raised", "forbidden"), ("failed", "broken"), ("limit", "endless")):
        reason = f"TEMPLATE_{name.upper()}"
        messages = json.dumps([{"role": role, "content": "a"}])
        area.add(
            f"template/{name}",
            "raising",
            GENERATE,
            {"hfMessagesJson": messages},
            error("INVALID_ARGUMENT", reason),
            f"generate.proto Generate: {reason}",
        )
