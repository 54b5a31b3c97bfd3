"""The requests of both clients: method, message and options of each call."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypedDict, TypeVar, Union

from grpc_health.v1 import health_pb2

from tandem.chat.v1 import chat_pb2
from tandem.conversation import InvalidRequest, Json, Message, conversation
from tandem.errors import TandemError, error_of_status
from tandem.generate.v1 import generate_pb2, media_kind_pb2, output_spec_pb2
from tandem.render.v1 import registry_pb2, render_pb2
from tandem.task.v1 import task_pb2

T = TypeVar("T")
Messages = Union[chat_pb2.Conversation, Iterable[Message]]
Fields = Mapping[str, Any]
"""The fields of a message of the contract, with its names, such as `{"temperature": 0}`."""


class Options(TypedDict, total=False):
    """The options of every call."""

    timeout: float
    """The deadline in seconds, retries included. Default: the client's."""
    request_id: str
    """The id of the call in the service's log. Default: the service chooses one."""


class ConversationFields(Options, total=False):
    """The parts of a conversation besides its messages."""

    tools: Iterable[Json]
    documents: Iterable[Json]
    template_args: Json
    model: str
    options: Union[render_pb2.RenderOptions, Fields]


class RenderFields(ConversationFields, total=False):
    """The fields of RenderRequest."""

    return_token_ids: bool
    return_offsets: bool
    omit_media: bool


class GenerationFields(TypedDict, total=False):
    """The fields that RunTaskRequest and GenerateRequest share."""

    sampling: Union[generate_pb2.Sampling, Fields]
    stop: Union[generate_pb2.Stop, Fields]
    return_options: Union[generate_pb2.ReturnOptions, Fields]
    priority: int
    cache_salt: str
    grammar: Union[generate_pb2.Grammar, Fields]
    output_spec: Union[output_spec_pb2.OutputSpec, Fields]


class TaskFields(ConversationFields, GenerationFields, total=False):
    """The fields of RunTaskRequest."""


class GenerateFields(Options, GenerationFields, total=False):
    """The fields of GenerateRequest, without the prompt."""

    model: str
    expected_tokenizer_sha256: str
    resume: Union[generate_pb2.Resume, Fields]
    media: Iterable[Union[generate_pb2.Media, Fields]]


class TokenizeFields(Options, total=False):
    """The fields of TokenizeRequest and DetokenizeRequest."""

    model: str
    add_special_tokens: bool
    return_offsets: bool
    control_tokens: Union[str, int]
    skip_special_tokens: bool


@dataclass(frozen=True)
class Call(Generic[T]):
    """One call: the path of its method, its request, and the part of the response that callers get."""

    path: str
    request: Any
    response: Any
    result: Callable[[Any], T]
    timeout: float | None = None
    request_id: str | None = None


def run(messages: Messages, fields: Any) -> Call[Any]:
    request = _with_conversation(task_pb2.RunTaskRequest, messages, fields)
    return _call("task.v1.TaskService/RunTask", request, task_pb2.RunTaskResponse, fields)


def generate(prompt: Any, fields: Any) -> Call[Any]:
    rendered = _rendered(prompt) if isinstance(prompt, render_pb2.RenderResponse) else _prompt(prompt)
    request = _message(generate_pb2.GenerateRequest, {**rendered, **fields})
    return _call("generate.v1.GenerateService/Generate", request, generate_pb2.GenerateResponse, fields)


def render(messages: Messages, fields: Any) -> Call[render_pb2.RenderResponse]:
    request = _with_conversation(render_pb2.RenderRequest, messages, fields)
    return _call("render.v1.RenderService/Render", request, render_pb2.RenderResponse, fields)


def batch_render(
    requests: Iterable[Any], options: Any
) -> Call[list[Union[render_pb2.RenderResponse, TandemError]]]:
    batch = render_pb2.BatchRenderRequest()
    for i, given in enumerate(requests):
        fields = dict(given)
        try:
            batch.requests.append(_with_conversation(render_pb2.RenderRequest, fields.pop("messages", ()), fields))
        except InvalidRequest as error:
            raise InvalidRequest(f"requests[{i}]", str(error)) from error
    response = render_pb2.BatchRenderResponse
    return _call("render.v1.RenderService/BatchRender", batch, response, options, _outcomes)


def tokenize(text: str, fields: Any) -> Call[render_pb2.TokenizeResponse]:
    request = _message(render_pb2.TokenizeRequest, {"text": text, **fields})
    return _call("render.v1.RenderService/Tokenize", request, render_pb2.TokenizeResponse, fields)


def detokenize(token_ids: Iterable[int], fields: Any) -> Call[str]:
    request = _message(render_pb2.DetokenizeRequest, {"token_ids": token_ids, **fields})
    response = render_pb2.DetokenizeResponse
    return _call("render.v1.RenderService/Detokenize", request, response, fields, lambda answer: answer.text)


def models(options: Any) -> Call[list[registry_pb2.ModelInfo]]:
    request, response = registry_pb2.ListModelsRequest(), registry_pb2.ListModelsResponse
    path = "render.v1.RegistryService/ListModels"
    return _call(path, request, response, options, lambda answer: list(answer.models))


def model(name: str, options: Any) -> Call[registry_pb2.ModelInfo]:
    request, response = registry_pb2.GetModelRequest(model=name), registry_pb2.GetModelResponse
    return _call("render.v1.RegistryService/GetModel", request, response, options, lambda answer: answer.model)


def generation_model(options: Any) -> Call[generate_pb2.LoadedModel]:
    request, response = generate_pb2.GetLoadedModelRequest(), generate_pb2.GetLoadedModelResponse
    path = "generate.v1.GenerateService/GetLoadedModel"
    return _call(path, request, response, options, lambda answer: answer.model)


def health(service: str, options: Any) -> Call[str]:
    request, response = health_pb2.HealthCheckRequest(service=service), health_pb2.HealthCheckResponse
    name = response.ServingStatus.Name
    return Call("/grpc.health.v1.Health/Check", request, response, lambda answer: name(answer.status), **options)


def _call(path: str, request: Any, response: Any, fields: Any, result: Callable[[Any], Any] = lambda r: r) -> Call[Any]:
    options = {key: fields[key] for key in Options.__annotations__ if key in fields}
    return Call(f"/tandem.{path}", request, response, result, **options)


def _with_conversation(kind: Any, messages: Messages, given: Any) -> Any:
    fields = dict(given)
    parts = {key: fields.pop(key, None) for key in ("tools", "documents", "template_args")}
    return _message(kind, {"conversation": conversation(messages, **parts), **fields})


def _message(kind: Any, given: Any) -> Any:
    """Makes a message of the contract. An unknown name is an error."""
    fields = {key: value for key, value in given.items() if key not in Options.__annotations__}
    grammar = fields.get("grammar")
    if isinstance(grammar, Mapping) and isinstance(grammar.get("json_schema"), Mapping):
        fields["grammar"] = {**grammar, "json_schema": json.dumps(grammar["json_schema"], ensure_ascii=False)}
    try:
        return kind(**fields)
    except (TypeError, ValueError) as error:
        raise InvalidRequest("", f"{kind.DESCRIPTOR.name}: {error}") from error


def _prompt(prompt: Any) -> dict[str, Any]:
    return {"prompt": prompt} if isinstance(prompt, str) else {"token_ids": {"ids": prompt}}


def _rendered(response: render_pb2.RenderResponse) -> dict[str, Any]:
    """Returns the fields of GenerateRequest for a rendered conversation."""
    fields: dict[str, Any] = {"output_spec": response.output_spec}
    if response.HasField("hf_messages"):
        hf = response.hf_messages
        keys = set(generate_pb2.HfTemplate.DESCRIPTOR.fields_by_name) & set(hf.DESCRIPTOR.fields_by_name)
        template: dict[str, Any] = {key: getattr(hf, key) for key in keys}
        template["literal_control_tokens"] = hf.control_tokens == render_pb2.CONTROL_TOKENS_LITERAL
        return {**fields, "hf_messages_json": hf.messages_json, "hf_template": template}
    prompt = response.prompt
    if response.fingerprint.tokenizer_sha256:
        fields["expected_tokenizer_sha256"] = response.fingerprint.tokenizer_sha256
    if prompt.attachments:
        if prompt.token_ids:
            raise InvalidRequest("prompt", "has media and token ids: render it without token ids")
        fields["media"] = [_media(attachment) for attachment in prompt.attachments]
    return {**fields, **_prompt(list(prompt.token_ids) or prompt.text)}


def _media(attachment: render_pb2.Attachment) -> dict[str, Any]:
    if attachment.kind != media_kind_pb2.MEDIA_KIND_IMAGE or not attachment.base64:
        raise InvalidRequest(attachment.path, "must be an image whose data is in the request")
    kept = {"base64": attachment.base64, "mime_type": attachment.mime_type, "offset": attachment.offset}
    return {"kind": "MEDIA_KIND_IMAGE", **kept}


def _outcomes(response: render_pb2.BatchRenderResponse) -> list[Union[render_pb2.RenderResponse, TandemError]]:
    results = response.results
    return [error_of_status(item.failure) if item.HasField("failure") else item.response for item in results]
