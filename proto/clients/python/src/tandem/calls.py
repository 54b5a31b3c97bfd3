"""The requests of both clients: method, message and options of each call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Generic, TypeVar, Union

from grpc_health.v1 import health_pb2  # type: ignore[import-untyped,unused-ignore]

from tandem.conversation import conversation, converted_tools
from tandem.convert import message
from tandem.errors import InvalidRequest, TandemError, error_of_status
from tandem.fields import Messages, Options
from tandem.generate.v1 import generate_pb2, media_kind_pb2
from tandem.parsed import ParsedOutput, parsed_output
from tandem.render.v1 import parse_pb2, registry_pb2, render_pb2
from tandem.task.v1 import task_pb2

T = TypeVar("T")

Prompt = Union[str, Sequence[int], render_pb2.RenderResponse]
"""A prompt: its text, its token ids, or the response of `render`."""

Output = Union[str, Sequence[int]]
"""The output of a model: its text, or its token ids."""

Warning = Union[render_pb2.Warning, parse_pb2.ParseWarning]
"""A warning of rendering, or of an answer that was read."""

_PARTS = ("tools", "documents", "template_args")


@dataclass(frozen=True)
class Call(Generic[T]):
    """One call: the path of its method, its request, and the part of the response that callers get."""

    path: str
    request: Any
    response: Any
    result: Callable[[Any], T]
    warnings: Callable[[T], Iterable[Warning]] = lambda _: ()
    timeout: float | None = None
    request_id: str | None = None


def run(messages: Messages, fields: Any) -> Call[task_pb2.RunTaskResponse]:
    request = _with_conversation(task_pb2.RunTaskRequest, messages, fields)
    return _call("task.v1.TaskService/RunTask", request, task_pb2.RunTaskResponse, fields)


def generate(prompt: Prompt, fields: Any) -> Call[generate_pb2.GenerateResponse]:
    rendered = _rendered(prompt) if isinstance(prompt, render_pb2.RenderResponse) else _prompt(prompt)
    request = _request(generate_pb2.GenerateRequest, {**rendered, **fields}, ("prompt",))
    return _call("generate.v1.GenerateService/Generate", request, generate_pb2.GenerateResponse, fields)


def render(messages: Messages, fields: Any) -> Call[render_pb2.RenderResponse]:
    request = _with_conversation(render_pb2.RenderRequest, messages, fields)
    response = render_pb2.RenderResponse
    return _call("render.v1.RenderService/Render", request, response, fields, warnings=lambda answer: answer.warnings)


def batch_render(requests: Iterable[Any], options: Any) -> Call[list[Union[render_pb2.RenderResponse, TandemError]]]:
    batch = render_pb2.BatchRenderRequest()
    for i, given in enumerate(requests):
        fields = dict(given)
        try:
            batch.requests.append(_with_conversation(render_pb2.RenderRequest, fields.pop("messages", ()), fields))
        except InvalidRequest as error:
            place = f"requests[{i}].{error.field}" if error.field else f"requests[{i}]"
            raise InvalidRequest(place, error.problem) from error
    response = render_pb2.BatchRenderResponse
    return _call("render.v1.RenderService/BatchRender", batch, response, options, _outcomes)


def tokenize(text: str, fields: Any) -> Call[render_pb2.TokenizeResponse]:
    request = _request(render_pb2.TokenizeRequest, {"text": text, **fields})
    return _call("render.v1.RenderService/Tokenize", request, render_pb2.TokenizeResponse, fields)


def detokenize(token_ids: Iterable[int], fields: Any) -> Call[str]:
    request = _request(render_pb2.DetokenizeRequest, {"token_ids": token_ids, **fields})
    response = render_pb2.DetokenizeResponse
    return _call("render.v1.RenderService/Detokenize", request, response, fields, lambda answer: answer.text)


def parse_output(output: Output, fields: Any) -> Call[ParsedOutput]:
    given = {**fields, **({"text": output} if isinstance(output, str) else {"tokens": {"token_ids": output}})}
    given["tools"] = converted_tools(given.get("tools"))
    request, response = _request(parse_pb2.ParseOutputRequest, given), parse_pb2.ParseOutputResponse
    path = "render.v1.RenderService/ParseOutput"
    return _call(path, request, response, fields, _parsed, lambda answer: answer.warnings)


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
    return Call("/grpc.health.v1.Health/Check", request, response, lambda answer: name(answer.status), **_options(options))


def _call(
    path: str,
    request: Any,
    response: Any,
    fields: Any,
    result: Callable[[Any], Any] = lambda response: response,
    warnings: Callable[[Any], Iterable[Warning]] = lambda _: (),
) -> Call[Any]:
    return Call(f"/tandem.{path}", request, response, result, warnings, **_options(fields))


def _options(fields: Any) -> dict[str, Any]:
    """Returns the options of a call, which are no fields of its request."""
    timeout, request_id = fields.get("timeout"), fields.get("request_id")
    if timeout is not None and not is_seconds(timeout):
        raise InvalidRequest("timeout", f"must be seconds, such as 30, not {timeout!r}")
    if request_id is not None and not isinstance(request_id, str):
        raise InvalidRequest("request_id", f"must be text, not {type(request_id).__name__}")
    return {"timeout": timeout, "request_id": request_id}


def is_seconds(value: Any) -> bool:
    """Returns true for a number from 0."""
    return isinstance(value, Real) and not isinstance(value, bool) and value >= 0


def _with_conversation(kind: Any, messages: Messages, given: Any) -> Any:
    fields = dict(given)
    parts = {key: fields.pop(key, None) for key in _PARTS}
    return _request(kind, {"conversation": conversation(messages, **parts), **fields}, ("messages", *_PARTS))


def _request(kind: Any, given: Any, arguments: tuple[str, ...] = ()) -> Any:
    fields = {key: value for key, value in given.items() if key not in Options.__annotations__}
    return message(kind, fields, (*arguments, *Options.__annotations__))


def _prompt(prompt: str | Sequence[int]) -> dict[str, Any]:
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
    return {"kind": "image", **kept}


def _parsed(response: parse_pb2.ParseOutputResponse) -> ParsedOutput:
    return parsed_output(response.output, response.rules)


def _outcomes(response: render_pb2.BatchRenderResponse) -> list[Union[render_pb2.RenderResponse, TandemError]]:
    results = response.results
    return [error_of_status(item.failure) if item.HasField("failure") else item.response for item in results]
