"""Vectors of servers that load their model or drain. `signal_after` and servers.json bring them there."""

import json
from pathlib import Path

from .contract import Area, error
from .generate import CONTROL, GENERATE, LOADED
from .model import CONFIG
from .oracle import Oracle
from .render import RENDER, talk, user
from .task import TASK
from .texts import CHECK, REGISTRY, TOKENIZE

# A control token, which leaves no text.
SILENT = {"temperature": 0, "logitBias": {"297": 100}}
PUSHBACK = {"headers": {"grpc-retry-pushback-ms": "*"}}
LAYERS, HIDDEN, INTERMEDIATE = 24, 4096, 8192


def make(oracle: Oracle) -> list[Area]:
    return [loading(), draining()]


def loading() -> Area:
    """A model of zeros whose load takes many times longer than these calls."""
    area = Area("loading")
    refused = error("UNAVAILABLE", "LOADING", retry=True) | PUSHBACK
    rule = "proto/ERRORS.md LOADING: the server is still loading; proto/README.md: an error with RetryInfo also has grpc-retry-pushback-ms"
    health = "proto/README.md: health is NOT_SERVING while a service loads or drains"
    not_serving = {"response": {"status": "NOT_SERVING"}}
    for service in ("", "tandem.generate.v1.GenerateService"):
        name = f"health/{service.rpartition('.')[2] or 'server'}"
        area.add(name, "loading", CHECK, {"service": service}, not_serving, health)
    area.add("generate", "loading", GENERATE, {"prompt": "a"}, refused, rule)
    area.add("loaded_model", "loading", LOADED, {}, refused, rule)
    area.add(
        "state",
        "loading",
        f"{CONTROL}/GetServer",
        {},
        {
            "response": {
                "state": "SERVER_STATE_LOADING",
                "maxQueue": 0,
                "maxRunning": 0,
                "prefillChunk": 0,
                "maxMessageBytes": "1048576",
            },
            "absent": ["model"],
        },
        "control.proto SERVER_STATE_LOADING: the response has neither model nor engine limits",
    )
    rule = "control.proto UNAVAILABLE: LOADING"
    area.add("load", "loading", f"{CONTROL}/GetLoad", {}, refused, rule)
    area.add("flush", "loading", f"{CONTROL}/FlushPrefixCache", {}, refused, rule)
    area.add(
        "drain",
        "loading",
        f"{CONTROL}/Drain",
        {},
        {"response": {}},
        "control.proto Drain: returns at once; a model load in progress is cancelled",
    )
    rendering(area, refused, not_serving, health)
    return area


def rendering(area: Area, refused: dict, not_serving: dict, health: str) -> None:
    """render-svc, which reads its configuration from a pipe without a writer."""
    hi = {"conversation": talk(user("hi"))}
    rule = "proto/ERRORS.md LOADING: any method"
    for name, method, request in (
        ("render", RENDER, hi),
        ("batch_render", "render.v1.RenderService/BatchRender", {"requests": [hi]}),
        ("tokenize", TOKENIZE, {"text": "a"}),
        ("list_models", f"{REGISTRY}/ListModels", {}),
        ("task", TASK, hi),
    ):
        area.add(name, "loading_render", method, request, refused, rule)
    for service in ("", "tandem.render.v1.RenderService", "tandem.task.v1.TaskService"):
        name = f"health/render/{service.rpartition('.')[2] or 'server'}"
        area.add(name, "loading_render", CHECK, {"service": service}, not_serving, health)


def draining() -> Area:
    area = Area("draining")
    request = {"prompt": "a", "sampling": SILENT, "stop": {"maxNewTokens": 3000, "ignoreEos": True}}
    area.add(
        "new_request",
        "closing",
        GENERATE,
        request,
        error("UNAVAILABLE", "DRAINING", retry=True) | PUSHBACK,
        "generate.proto Generate: UNAVAILABLE: DRAINING; control.proto Drain: new requests are rejected",
        signal_after=0,
    )
    area.add(
        "running_request",
        "finishing",
        GENERATE,
        request,
        {
            "events": [
                {"accepted": {}},
                {"finished": {"reason": "FINISH_REASON_LENGTH"}},
                {"summary": {"usage": {"completionTokens": 3000}}},
            ]
        },
        "control.proto Drain: running requests may finish within the drain time; SIGTERM does the same",
        signal_after=1,
    )
    area.add(
        "request_that_is_cut",
        "cutting",
        GENERATE,
        request | {"stop": {"maxNewTokens": 60000, "ignoreEos": True}},
        {
            "events": [
                {"accepted": {}},
                {"finished": {"reason": "FINISH_REASON_CANCELLED"}},
                {"summary": {}},
            ]
        },
        "generate.proto FINISH_REASON_CANCELLED: the server cancelled the request, for example during a drain",
        signal_after=1,
    )
    return area


def make_large(folder: Path) -> None:
    """Writes the config, and the header of the weights, of a model with 4 billion weights."""
    folder.mkdir(exist_ok=True)
    config = CONFIG | {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HIDDEN // 128,
        "num_key_value_heads": HIDDEN // 128,
        "head_dim": 128,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    header, end = {}, 0
    for name, shape in tensors():
        start, end = end, end + 4 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text)
    print("size of large/model.safetensors with its weights:", 8 + len(text) + end)


def tensors():
    yield "model.embed_tokens.weight", [CONFIG["vocab_size"], HIDDEN]
    for layer in range(LAYERS):
        at = f"model.layers.{layer}"
        yield f"{at}.input_layernorm.weight", [HIDDEN]
        for name in "qkvo":
            yield f"{at}.self_attn.{name}_proj.weight", [HIDDEN, HIDDEN]
        yield f"{at}.post_attention_layernorm.weight", [HIDDEN]
        for name in ("gate", "up"):
            yield f"{at}.mlp.{name}_proj.weight", [INTERMEDIATE, HIDDEN]
        yield f"{at}.mlp.down_proj.weight", [HIDDEN, INTERMEDIATE]
    yield "model.norm.weight", [HIDDEN]
    yield "lm_head.weight", [CONFIG["vocab_size"], HIDDEN]
