"""Vectors of Tokenize, Detokenize, ValidateTemplate, RegistryService and health."""

import hashlib

import jinja2

from .contract import Area, error, invalid
from .model import CONFIG, CONTEXT, SPECIAL, TEMPLATE
from .oracle import Oracle
from .render import TEXTS

TOKENIZE = "render.v1.RenderService/Tokenize"
DETOKENIZE = "render.v1.RenderService/Detokenize"
VALIDATE = "render.v1.RenderService/ValidateTemplate"
REGISTRY = "render.v1.RegistryService"
CHECK = "grpc.health.v1.Health/Check"


def make(oracle: Oracle) -> list[Area]:
    return [tokenize(oracle), detokenize(oracle), templates(), registry(oracle), health()]


def tokenize(oracle: Oracle) -> Area:
    area = Area("tokenize")
    name = "oracle: tokenizers 0.23"
    texts = TEXTS | {
        "merges": "the user is in the world 123 on a",
        "think_markers": "<think>a</think><tool_call>{}</tool_call>",
        "half_a_control_token": "<|im_end <|im_end| |>",
        "every_ascii_character": "".join(map(chr, range(128))),
    }
    for case, text in texts.items():
        area.add(
            case,
            "render",
            TOKENIZE,
            {"text": text},
            {"response": {"tokenIds": oracle.encode(text)}, "absent": ["offsets"]},
            name,
        )
    for case in (
        "letters_beyond_ascii",
        "emoji_sequence",
        "combining_marks",
        "merges",
        "control_token_is_the_token",
        "line_ends",
    ):
        text = texts[case]
        expected = {"tokenIds": oracle.encode(text), "offsets": oracle.offsets(text)}
        area.add(
            f"offsets/{case}",
            "render",
            TOKENIZE,
            {"text": text, "returnOffsets": True},
            {"response": expected},
            f"{name}; render.proto TokenOffset: bytes of UTF-8",
        )
    area.add(
        "special_tokens/added",
        "render",
        TOKENIZE,
        {"text": "hi", "addSpecialTokens": True},
        {"response": {"tokenIds": oracle.encode("hi", True)}},
        name,
    )
    area.add(
        "special_tokens/of_an_empty_text",
        "render",
        TOKENIZE,
        {"addSpecialTokens": True},
        {"response": {"tokenIds": oracle.encode("", True)}},
        name,
    )
    area.add(
        "special_tokens/bos_is_not_doubled",
        "render",
        TOKENIZE,
        {"text": "<s>hi", "addSpecialTokens": True},
        {"response": {"tokenIds": oracle.encode("<s>hi")}},
        "render.proto TokenizeRequest.add_special_tokens: a bos at the start of the text is not doubled",
    )
    for case in ("think_markers", "control_token_is_the_token", "merges"):
        area.add(
            f"literal/{case}",
            "render",
            TOKENIZE,
            {"text": texts[case], "controlTokens": "CONTROL_TOKENS_LITERAL"},
            {"response": {"tokenIds": oracle.encode_literally(texts[case])}},
            f"{name}, without added tokens; render.proto TokenizeRequest.control_tokens: with LITERAL, all of it is plain text",
        )
    area.add(
        "control_tokens_unknown",
        "render",
        TOKENIZE,
        {"text": "a"},
        invalid("control_tokens"),
        "proto/README.md: an enum number that the server does not define is INVALID_ARGUMENT",
        binary=bytes([18, 1]) + b"a" + bytes([40, 9]),
    )
    area.add(
        "model_not_found",
        "render",
        TOKENIZE,
        {"model": "none", "text": "a"},
        error("NOT_FOUND", "MODEL_NOT_FOUND", "model", resource=("model", "none")),
        "render.proto Tokenize: MODEL_NOT_FOUND",
    )
    area.add(
        "no_tokenizer",
        "many",
        TOKENIZE,
        {"model": "bare", "text": "a"},
        error("FAILED_PRECONDITION", "NO_TOKENIZER"),
        "render.proto Tokenize: NO_TOKENIZER",
    )
    area.add(
        "model_not_loaded",
        "many",
        TOKENIZE,
        {"model": "broken", "text": "a"},
        error("FAILED_PRECONDITION", "MODEL_NOT_LOADED"),
        "render.proto Tokenize: MODEL_NOT_LOADED",
    )
    area.add(
        "by_alias",
        "many",
        TOKENIZE,
        {"model": "small", "text": "the user"},
        {"response": {"tokenIds": oracle.encode("the user")}},
        f"{name}; registry.proto ModelInfo.aliases: other ids that requests may use",
    )
    return area


def detokenize(oracle: Oracle) -> Area:
    area = Area("detokenize")
    name = "oracle: tokenizers 0.23"
    prompt = oracle.encode("<s><|im_start|>user\nhello world<|im_end|>\n<think>a</think>")
    lists = {
        "none": [],
        "prompt": prompt,
        "first_and_last_id": [0, CONFIG["vocab_size"] - 1],
        "letters": oracle.encode("größer 漢字 😀"),
        "half_a_character": oracle.encode("ä")[:1] + [65],
        "bytes_that_are_no_text": [255, 254, 128, 65, 192],
        "three_of_four_bytes": [0xF0, 0x9F, 0x98],
        "truncated_then_text": [0xE6, 0xBC, 65],
        "white_space": oracle.encode("  a \n\n b "),
        "overlong_and_surrogates": [0xC0, 0x80, 0xED, 0xA0, 0x80, 0xF4, 0x90, 0x80, 0x80],
    }
    for case, ids in lists.items():
        because = f"{name}; render.proto DetokenizeResponse.text: bytes that are not a complete character become U+FFFD"
        area.add(
            case, "render", DETOKENIZE, {"tokenIds": ids}, {"response": {"text": oracle.decode(ids)}}, because
        )
    area.add(
        "special_tokens/skipped",
        "render",
        DETOKENIZE,
        {"tokenIds": prompt, "skipSpecialTokens": True},
        {"response": {"text": oracle.decode(prompt, True)}},
        name,
    )
    for case, id in (("vocabulary_size", CONFIG["vocab_size"]), ("largest_number", 4294967295)):
        area.add(
            f"outside/{case}",
            "render",
            DETOKENIZE,
            {"tokenIds": [0, id]},
            invalid("token_ids[1]"),
            "render.proto Detokenize: INVALID_REQUEST for an id outside the vocabulary",
        )
    area.add(
        "model_not_found",
        "render",
        DETOKENIZE,
        {"model": "none"},
        error("NOT_FOUND", "MODEL_NOT_FOUND", "model", resource=("model", "none")),
        "render.proto Detokenize: MODEL_NOT_FOUND",
    )
    area.add(
        "no_tokenizer",
        "many",
        DETOKENIZE,
        {"model": "bare", "tokenIds": [1]},
        error("FAILED_PRECONDITION", "NO_TOKENIZER"),
        "render.proto Detokenize: NO_TOKENIZER",
    )
    return area


def templates() -> Area:
    area = Area("validate_template")

    def good(name, template, because, **expected):
        digest = hashlib.sha256(template.encode()).hexdigest()
        area.add(
            name,
            "render",
            VALIDATE,
            {"template": template},
            {"response": {"template": {"sha256": digest, **expected}}, "absent": ["problem"]},
            because,
        )

    def bad(name, template):
        problem = {"kind": "TEMPLATE_PROBLEM_KIND_SYNTAX", "line": rejected_line(template)}
        area.add(
            name,
            "render",
            VALIDATE,
            {"template": template},
            {"response": {"problem": problem}, "absent": ["template"]},
            "oracle: jinja2 3.1.6 rejects the template at this line; render.proto TEMPLATE_PROBLEM_KIND_SYNTAX: Jinja2 rejects the template too",
        )

    inferred = "render.proto TemplateInfo: the description of a template that compiles"
    good("empty", "", inferred)
    good(
        "own_model",
        TEMPLATE,
        inferred,
        readsTools=True,
        readsDocuments=True,
        toolArguments="TOOL_ARGUMENTS_OBJECT",
    )
    good(
        "text_only",
        "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}",
        inferred,
        readsTools=False,
        readsDocuments=False,
        toolArguments="TOOL_ARGUMENTS_UNREAD",
    )
    good("tools", "{% for t in tools %}{{ t | tojson }}{% endfor %}", inferred, readsTools=True)
    good("documents", "{% for d in documents %}{{ d.text }}{% endfor %}", inferred, readsDocuments=True)
    good("letters", "größer 漢字", "render.proto TemplateInfo.sha256: SHA-256 of the source")
    bad("unclosed_block", "{% if x %}a")
    bad("unknown_tag", "\n\n{% frobnicate %}")
    bad("unclosed_expression", "{{ a ")
    bad("unknown_filter_argument", "{{ a | }}")
    bad("unbalanced_end", "{% endfor %}")
    bad("empty_expression", "a\n{{ }}")
    return area


def rejected_line(template: str) -> int:
    """Returns the line at which Jinja2 rejects a template."""
    try:
        jinja2.Environment().parse(template)
    except jinja2.TemplateSyntaxError as error:
        return error.lineno
    raise AssertionError(f"jinja2 accepts {template!r}")


def registry(oracle: Oracle) -> Area:
    area = Area("registry")
    template = hashlib.sha256(TEMPLATE.encode()).hexdigest()
    ids = dict(zip(SPECIAL, oracle.tokenizer.convert_tokens_to_ids(SPECIAL)))
    model = {
        "id": "model",
        "architecture": "llama",
        "contextLength": CONTEXT,
        "adapter": "tokenizer-template",
        "specialTokens": [
            {"name": "bos_token", "text": "<s>", "id": ids["<s>"]},
            {"name": "eos_token", "text": "<|im_end|>", "id": ids["<|im_end|>"]},
        ],
        "templateSha256": template,
        "templates": ["default", "rag"],
        "capabilities": [
            "CAPABILITY_SUPPORTS_SYSTEM_ROLE",
            "CAPABILITY_SUPPORTS_TOOL_CALLS",
            "CAPABILITY_SUPPORTS_REASONING",
        ],
    }
    because = "registry.proto ModelInfo: the facts of the model's files"
    known = ["problem", "tokenizerProblem", "aliases"]
    area.add(
        "list_models", "render", f"{REGISTRY}/ListModels", {}, {"response": {"models": [model]}}, because
    )
    area.add(
        "get_model",
        "render",
        f"{REGISTRY}/GetModel",
        {"model": "model"},
        {"response": {"model": model}, "absent": [f"model.{name}" for name in known]},
        because,
    )
    area.add(
        "get_model/the_only_one",
        "render",
        f"{REGISTRY}/GetModel",
        {},
        {"response": {"model": model}},
        "registry.proto GetModelRequest.model: empty means the only model",
    )
    area.add(
        "get_model/none",
        "render",
        f"{REGISTRY}/GetModel",
        {"model": "none"},
        error("NOT_FOUND", "MODEL_NOT_FOUND", "model", resource=("model", "none")),
        "registry.proto GetModel: MODEL_NOT_FOUND",
    )
    many = [
        {"id": "bare"},
        {"id": "broken"},
        {"id": "nameless"},
        {"id": "plain"},
        {"id": "tiny", "aliases": ["small"]},
    ]
    area.add(
        "list_models/by_id",
        "many",
        f"{REGISTRY}/ListModels",
        {},
        {"response": {"models": many}},
        "registry.proto ListModels: by id",
    )
    area.add(
        "get_model/alias",
        "many",
        f"{REGISTRY}/GetModel",
        {"model": "small"},
        {"response": {"model": {"id": "tiny", "aliases": ["small"], "templateSha256": template}}},
        "registry.proto ModelInfo.aliases: other ids that requests may use",
    )
    area.add(
        "get_model/without_tokenizer",
        "many",
        f"{REGISTRY}/GetModel",
        {"model": "bare"},
        {
            "response": {"model": {"id": "bare"}},
            "absent": ["model.tokenizerSha256", "model.architecture", "model.contextLength", "model.problem"],
        },
        "registry.proto ModelInfo: empty or 0 if unknown",
    )
    area.add(
        "get_model/not_loaded",
        "many",
        f"{REGISTRY}/GetModel",
        {"model": "broken"},
        {
            "response": {"model": {"id": "broken"}},
            "absent": ["model.adapter", "model.templateSha256", "model.templates"],
        },
        "registry.proto ModelInfo.problem: only id and aliases are set",
    )
    area.add(
        "get_model/several",
        "many",
        f"{REGISTRY}/GetModel",
        {},
        invalid("model"),
        "render.proto RenderRequest.model: with several models, an empty id is INVALID_ARGUMENT",
    )
    kinds = {
        "deepseek-v3.2": "FAMILY",
        "deepseek-v4": "FAMILY",
        "gemma-4": "FAMILY",
        "tokenizer-template": "TEMPLATE",
        "chatml": "FORMAT",
        "llama3": "FORMAT",
        "tagged": "FORMAT",
        "plain": "FORMAT",
    }
    area.add(
        "list_adapters",
        "render",
        f"{REGISTRY}/ListAdapters",
        {},
        {
            "response": {
                "adapters": [{"name": name, "kind": f"ADAPTER_KIND_{kind}"} for name, kind in kinds.items()]
            }
        },
        "registry.proto ListAdapters: in order of precedence; families, then the model's own template, then formats",
    )
    explain = f"{REGISTRY}/ExplainResolution"
    rejected = [{"adapter": name} for name in kinds]
    area.add(
        "explain",
        "render",
        explain,
        {},
        {"response": {"resolution": {"adapter": "tokenizer-template", "rejected": rejected[:3]}}},
        "registry.proto Resolution.rejected: adapters that precede it, in order",
    )
    area.add(
        "explain/pinned",
        "render",
        explain,
        {"adapter": "plain"},
        {"response": {"resolution": {"adapter": "plain"}}, "absent": ["resolution.rejected"]},
        "registry.proto Resolution.rejected: empty if an adapter was pinned",
    )
    image = {"messages": [{"role": "user", "blocks": {"blocks": [{"image": {"base64": "QUJD"}}]}}]}
    area.add(
        "explain/images",
        "render",
        explain,
        {"conversation": image},
        {"response": {"resolution": {"adapter": ""}}},
        "registry.proto Resolution.adapter: empty if no adapter ran, because images make the result HF messages",
    )
    area.add(
        "explain/last_resort",
        "many",
        explain,
        {"model": "plain"},
        {"response": {"resolution": {"adapter": "plain", "rejected": rejected[:-1]}}},
        "registry.proto ListAdapters: the first adapter that serves a model renders",
    )
    area.add(
        "explain/no_adapter",
        "render",
        explain,
        {"adapter": "none"},
        error("NOT_FOUND", "ADAPTER_NOT_FOUND", "adapter", resource=("adapter", "none")),
        "registry.proto ExplainResolution: ADAPTER_NOT_FOUND",
    )
    area.add(
        "explain/no_model",
        "render",
        explain,
        {"model": "none"},
        error("NOT_FOUND", "MODEL_NOT_FOUND", "model", resource=("model", "none")),
        "registry.proto ExplainResolution: MODEL_NOT_FOUND",
    )
    area.add(
        "explain/not_applicable",
        "many",
        explain,
        {"model": "plain", "adapter": "tokenizer-template"},
        error("FAILED_PRECONDITION", "ADAPTER_NOT_APPLICABLE"),
        "registry.proto ExplainResolution: ADAPTER_NOT_APPLICABLE",
    )
    area.add(
        "explain/not_loaded",
        "many",
        explain,
        {"model": "broken"},
        error("FAILED_PRECONDITION", "MODEL_NOT_LOADED"),
        "registry.proto ExplainResolution: MODEL_NOT_LOADED",
    )
    return area


def health() -> Area:
    area = Area("health")
    serving = {"response": {"status": "SERVING"}}
    for server, services in (
        ("render", ["", "tandem.render.v1.RenderService", "tandem.render.v1.RegistryService"]),
        ("generate", ["", "tandem.generate.v1.GenerateService"]),
        ("task", ["", "tandem.task.v1.TaskService"]),
    ):
        for service in services:
            # It depends on the replicas, which are checked each second.
            options = {"eventually": True} if service.endswith("TaskService") else {}
            area.add(
                f"{server}/{service.rpartition('.')[2] or 'server'}",
                server,
                CHECK,
                {"service": service},
                serving,
                "proto/README.md: both services serve grpc.health.v1",
                **options,
            )
    area.add(
        "no_task_can_run",
        "render",
        CHECK,
        {"service": "tandem.task.v1.TaskService"},
        {"response": {"status": "NOT_SERVING"}},
        "proto/README.md: health is NOT_SERVING for TaskService while no task can run",
    )
    area.add(
        "unknown_service",
        "render",
        CHECK,
        {"service": "none"},
        {"error": {"code": "NOT_FOUND"}},
        "grpc.health.v1: an unknown service is NOT_FOUND",
    )
    return area
