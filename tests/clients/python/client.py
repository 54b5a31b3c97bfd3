"""Checks both services with a Python client. It uses stubs generated from proto/ and no Rust code.

Usage: client.py PROTO_FOLDER RENDER_ADDRESS GENERATE_ADDRESS CASE.json

CASE.json has {"messages", "prompt", "prompt_ids", "greedy_ids"}, as transformers computes them with
the same model. The exit status is 0 if every check passes. A failed check exits with a traceback.
"""

import importlib
import json
import pathlib
import sys

import grpc
import stubs
from google.protobuf import descriptor_pool
from google.protobuf import any_pb2  # noqa: F401  (registers the type of error details)
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase


def module(area, kind="pb2", name=None):
    return importlib.import_module(f"tandem.{area}.v1.{name or area}_{kind}")


def conversation(messages):
    chat = module("chat")
    return chat.Conversation(messages=[chat.ChatMessage(role=m["role"], text=m["content"]) for m in messages])


def check_render(channel, case):
    render, stub = module("render"), module("render", "pb2_grpc").RenderServiceStub(channel)
    response = stub.Render(render.RenderRequest(conversation=conversation(case["messages"]), return_token_ids=True))
    assert response.prompt.text == case["prompt"], response.prompt.text
    assert list(response.prompt.token_ids) == case["prompt_ids"]
    assert response.resolution.adapter == "tokenizer-template", response.resolution
    assert response.output_spec.eos_token_ids, "output spec has no eos ids"
    ids = stub.Tokenize(render.TokenizeRequest(text=case["prompt"])).token_ids
    assert list(ids) == case["prompt_ids"]
    assert stub.Detokenize(render.DetokenizeRequest(token_ids=ids)).text == case["prompt"]
    return response


def check_models(render_channel, generate_channel):
    registry = module("render", name="registry")
    models = module("render", "pb2_grpc", "registry").RegistryServiceStub(render_channel)
    listed = models.ListModels(registry.ListModelsRequest()).models
    assert len(listed) == 1, listed
    assert models.GetModel(registry.GetModelRequest(model=listed[0].id)).model == listed[0]
    generate = module("generate")
    held = module("generate", "pb2_grpc").GenerateServiceStub(generate_channel).GetLoadedModel(generate.GetLoadedModelRequest()).model
    assert (held.id, held.tokenizer_sha256) == (listed[0].id, listed[0].tokenizer_sha256)


def without_progress(events):
    return [event for event in events if event.WhichOneof("event") != "progress"]


def check_generate(channel, case, output_spec):
    generate, stub = module("generate"), module("generate", "pb2_grpc").GenerateServiceStub(channel)
    wanted = case["greedy_ids"][:16]
    request = generate.GenerateRequest(
        prompt=case["prompt"],
        sampling=generate.Sampling(temperature=0),
        stop=generate.Stop(max_new_tokens=len(wanted)),
        output_spec=output_spec,
        return_options=generate.ReturnOptions(token_ids=True),
    )
    events = without_progress(stub.Generate(request, timeout=120))
    kinds = [event.WhichOneof("event") for event in events]
    assert kinds[0] == "accepted" and kinds[-2:] == ["finished", "summary"], kinds
    assert set(kinds[1:-2]) == {"delta"}, kinds
    ids = [i for event in events for i in event.delta.token_ids]
    assert ids == wanted, (ids, wanted)
    usage = events[-1].summary.usage
    assert usage.prompt_tokens == len(case["prompt_ids"]) and usage.completion_tokens == len(wanted), usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens, usage


def check_task(channel, case):
    task, generate = module("task"), module("generate")
    stub = module("task", "pb2_grpc").TaskServiceStub(channel)
    request = task.RunTaskRequest(
        conversation=conversation(case["messages"]),
        sampling=generate.Sampling(temperature=0),
        stop=generate.Stop(max_new_tokens=16),
    )
    events = without_progress(stub.RunTask(request, timeout=120))
    kinds = [event.WhichOneof("event") for event in events]
    assert kinds[:2] == ["rendered", "accepted"] and kinds[-1] == "finished", kinds
    finished = events[-1].finished
    assert finished.message.role == "assistant"
    assert finished.message.text == "".join(event.delta.text for event in events)
    assert finished.message.text, "answer is empty"
    assert finished.usage.prompt_tokens == len(case["prompt_ids"])


def before_deadline(call):
    """Returns the events of a call that ends before the client's timer. The services end 0.1 s before it.
    A busy machine may need longer to deliver the end, so the call is made up to five times."""
    for _ in range(4):
        try:
            return list(call())
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.DEADLINE_EXCEEDED, error
    return list(call())


def check_deadlines(render_channel, generate_channel, case):
    """An answer that the client's own deadline cuts still ends with its finish reason."""
    generate, task = module("generate"), module("task")
    stop = generate.Stop(max_new_tokens=8000, ignore_eos=True)
    stub = module("generate", "pb2_grpc").GenerateServiceStub(generate_channel)
    events = before_deadline(lambda: stub.Generate(generate.GenerateRequest(prompt="Once", stop=stop), timeout=3))
    finished = next(event.finished for event in events if event.WhichOneof("event") == "finished")
    assert finished.reason == generate.FINISH_REASON_DEADLINE, finished
    stub = module("task", "pb2_grpc").TaskServiceStub(render_channel)
    request = task.RunTaskRequest(conversation=conversation(case["messages"]), stop=stop)
    events = before_deadline(lambda: stub.RunTask(request, timeout=3))
    assert events[-1].finished.finish.reason == generate.FINISH_REASON_DEADLINE, events[-1]


def details(error):
    trailers = dict(error.trailing_metadata())
    status = status_pb2.Status.FromString(trailers["grpc-status-details-bin"])
    info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    for detail in status.details:
        detail.Unpack(info)
        detail.Unpack(bad)
    return info, [violation.field for violation in bad.field_violations]


def check_error(call, code, reason, field):
    try:
        call()
    except grpc.RpcError as error:
        info, fields = details(error)
        assert (error.code(), info.reason, info.domain) == (code, reason, "tandem"), (error, info)
        assert fields == ([field] if field else []), fields
        return
    raise AssertionError(f"call succeeded, expected {reason}")


def check_errors(render_channel, generate_channel):
    render, generate = module("render"), module("generate")
    render_stub = module("render", "pb2_grpc").RenderServiceStub(render_channel)
    generate_stub = module("generate", "pb2_grpc").GenerateServiceStub(generate_channel)
    unknown = render.RenderRequest(model="no-such-model")
    check_error(lambda: render_stub.Render(unknown), grpc.StatusCode.NOT_FOUND, "MODEL_NOT_FOUND", "model")
    empty = render.RenderRequest()
    check_error(lambda: render_stub.Render(empty), grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST", "conversation.messages")
    cold = generate.GenerateRequest(prompt="Hi", sampling=generate.Sampling(temperature=-1))
    check_error(
        lambda: list(generate_stub.Generate(cold)),
        grpc.StatusCode.INVALID_ARGUMENT,
        "INVALID_REQUEST",
        "sampling.temperature",
    )


def shape(message):
    fields = {(field.name, field.number, field.type) for field in message.fields}
    return fields, {nested.name: shape(nested) for nested in message.nested_types}


def check_discovery(channel, services):
    database = ProtoReflectionDescriptorDatabase(channel)
    listed = set(database.get_services())
    assert services <= listed, listed
    served = descriptor_pool.DescriptorPool(database)
    for name in ("ErrorInfo", "BadRequest", "RetryInfo", "ResourceInfo"):
        known = error_details_pb2.DESCRIPTOR.message_types_by_name[name]
        assert shape(served.FindMessageTypeByName(known.full_name)) == shape(known), name
    assert shape(served.FindMessageTypeByName("google.rpc.Status")) == shape(status_pb2.Status.DESCRIPTOR)
    health = health_pb2_grpc.HealthStub(channel)
    for service in ["", *services]:
        status = health.Check(health_pb2.HealthCheckRequest(service=service)).status
        assert status == health_pb2.HealthCheckResponse.SERVING, (service, status)


def main(proto, render_address, generate_address, case_file):
    stubs.generate(proto)
    case = json.loads(pathlib.Path(case_file).read_text(encoding="utf8"))
    with grpc.insecure_channel(render_address) as render, grpc.insecure_channel(generate_address) as generate:
        check_discovery(
            render,
            {"tandem.render.v1.RenderService", "tandem.render.v1.RegistryService", "tandem.task.v1.TaskService"},
        )
        check_discovery(generate, {"tandem.generate.v1.GenerateService"})
        check_models(render, generate)
        output_spec = check_render(render, case).output_spec
        check_generate(generate, case, output_spec)
        check_task(render, case)
        check_deadlines(render, generate, case)
        check_errors(render, generate)
    print("all checks passed")


if __name__ == "__main__":
    main(*sys.argv[1:])
