"""Vectors of images, with the tiny model and transformers' tokens of tests/golden."""

import importlib
import json
import sys
from pathlib import Path

from .contract import Area, error, invalid
from .generate import GENERATE, GREEDY, LOADED
from .render import RENDER
from .task import TASK

REPOSITORY = Path(__file__).parents[3]
ORACLE = "oracle: transformers, by tests/golden/make_image_architectures.py"
LIMIT = 12
MARKED = "gemma4_both_ways"


def helper():
    """Returns the module that writes the model."""
    sys.path.insert(0, str(REPOSITORY / "proto/clients/python/tests"))
    return importlib.import_module("vision")


def make_models(folder: Path, marked: Path) -> None:
    """Writes the two models. The expansion of an image consists of special tokens in the second only."""
    for name, to in ((None, folder), (MARKED, marked)):
        to.mkdir(exist_ok=True)
        helper().write_model(to, *([name] if name else []))


def make() -> Area:
    area = Area("images")
    (conversation,) = helper().conversations()
    messages, ids = conversation["messages"], conversation["greedy"][:LIMIT]
    limits = {"sampling": GREEDY, "stop": {"maxNewTokens": LIMIT}, "returnOptions": {"tokenIds": True}}
    answer = [
        {"accepted": {}},
        {"delta": {"tokenIds": ids}},
        {"finished": {"reason": "FINISH_REASON_LENGTH"}},
        {"summary": {"usage": {"completionTokens": LIMIT}}},
    ]
    add_generation(area, messages, limits, answer)
    add_task(area, messages, limits, ids)
    area.add(
        "loaded_model",
        "vision",
        LOADED,
        {},
        {"response": {"model": {"mediaKinds": ["MEDIA_KIND_IMAGE"], "mediaLimits": {}}}},
        "generate.proto LoadedModel.media_kinds: kinds of media that the model takes",
    )
    return area


def add_generation(area: Area, messages: list, limits: dict, answer: list) -> None:
    def with_image(**source):
        blocks = [
            {"type": "image", **source} if block["type"] == "image" else block
            for block in messages[0]["content"]
        ]
        return limits | {"hfMessagesJson": json.dumps([messages[0] | {"content": blocks}])}

    data = next(block["base64"] for block in messages[0]["content"] if block["type"] == "image")
    for name, source in {"base64": {"base64": data}, "data_url": {"url": f"data:image/webp;base64,{data}"}}.items():
        area.add(name, "vision", GENERATE, with_image(**source), {"events": answer}, ORACLE)
    area.add(
        "not_an_image",
        "vision",
        GENERATE,
        with_image(base64="QUJD"),
        invalid("hf_messages_json[0].content[1].base64", "INVALID_IMAGE"),
        "generate.proto GenerateRequest.hf_messages_json: errors name a block by its place in this list",
    )
    area.add(
        "host_not_allowed",
        "vision",
        GENERATE,
        with_image(url="https://other.example.com/a.png"),
        invalid("hf_messages_json[0].content[1].url", "IMAGE_NOT_FETCHED"),
        "proto/ERRORS.md IMAGE_NOT_FETCHED: the host of an image's URL is not allowed",
    )
    area.add(
        "text_model",
        "generate",
        GENERATE,
        with_image(base64=data),
        error("FAILED_PRECONDITION", "IMAGES_NOT_SUPPORTED"),
        "generate.proto GenerateRequest.hf_messages_json: only for vision models",
    )


def add_task(area: Area, messages: list, limits: dict, ids: list) -> None:
    def block(given: dict) -> dict:
        return {"text": {"text": given["text"]}} if "text" in given else {"image": {"base64": given["base64"]}}

    blocks = [block(given) for given in messages[0]["content"]]
    conversation = {"messages": [{"role": "user", "blocks": {"blocks": blocks}}]}
    answer = [
        {"rendered": {}},
        {"accepted": {}},
        {"delta": {"tokenIds": ids}},
        {"finished": {"finish": {"reason": "FINISH_REASON_LENGTH"}}},
    ]
    area.add("task", "vision_task", TASK, {"conversation": conversation} | limits, {"events": answer}, ORACLE)
    area.add(
        "rendered",
        "vision_task",
        RENDER,
        {"conversation": conversation, "omitMedia": True},
        {"response": {"hfMessages": {"addGenerationPrompt": True}}},
        "render.proto RenderResponse.hf_messages: messages for the processor of a vision-language model",
    )
