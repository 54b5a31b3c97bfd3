"""The Python examples of proto/docs: a call of each method, with the modules that grpcio-tools generates."""

# [start]
import grpc
from tandem.chat.v1 import chat_pb2
from tandem.generate.v1 import control_pb2, control_pb2_grpc, generate_pb2, generate_pb2_grpc
from tandem.render.v1 import parse_pb2, registry_pb2, registry_pb2_grpc, render_pb2, render_pb2_grpc
from tandem.task.v1 import task_pb2, task_pb2_grpc


def connect(address):
    return grpc.insecure_channel(address, [("grpc.max_receive_message_length", 264 << 20)])  # the default is 4 MB


# [end]


def render(channel):
    # [RenderService.Render]
    message = chat_pb2.ChatMessage(role="user", text="Hi")
    conversation = chat_pb2.Conversation(messages=[message])
    request = render_pb2.RenderRequest(conversation=conversation, return_token_ids=True)
    prompt = render_pb2_grpc.RenderServiceStub(channel).Render(request).prompt
    print(prompt.text)
    print(len(prompt.token_ids), "tokens")
    # [end]


def batch_render(channel):
    # [RenderService.BatchRender]
    message = chat_pb2.ChatMessage(role="user", text="Hi")
    conversation = chat_pb2.Conversation(messages=[message])
    requests = [render_pb2.RenderRequest(model=model, conversation=conversation) for model in ("", "unknown")]
    batch = render_pb2.BatchRenderRequest(requests=requests)
    for result in render_pb2_grpc.RenderServiceStub(channel).BatchRender(batch).results:
        if result.HasField("response"):
            print(result.response.prompt.text)
        else:
            print("failed with code", result.failure.code)
    # [end]


def validate_template(channel):
    # [RenderService.ValidateTemplate]
    request = render_pb2.ValidateTemplateRequest(template="{{ messages }}\n{% if %}")
    response = render_pb2_grpc.RenderServiceStub(channel).ValidateTemplate(request)
    if response.HasField("problem"):
        print("problem in line", response.problem.line)
    # [end]


def tokenize(channel):
    # [RenderService.Tokenize]
    request = render_pb2.TokenizeRequest(text="Hello world")
    response = render_pb2_grpc.RenderServiceStub(channel).Tokenize(request)
    print(len(response.token_ids), "tokens")
    # [end]


def detokenize(channel):
    # [RenderService.Detokenize]
    request = render_pb2.DetokenizeRequest(token_ids=[72, 105])
    print(render_pb2_grpc.RenderServiceStub(channel).Detokenize(request).text)
    # [end]


def parse_output(channel):
    # [RenderService.ParseOutput]
    text = 'Let me see.\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
    request = parse_pb2.ParseOutputRequest(text=text)
    message = render_pb2_grpc.RenderServiceStub(channel).ParseOutput(request).output.message
    print(message.text)
    for call in message.tool_calls:
        print(call.name, call.arguments_json)
    # [end]


def stream_parse_output(channel):
    # [RenderService.StreamParseOutput]
    def messages():
        yield parse_pb2.StreamParseOutputRequest(start=parse_pb2.ParseOutputStart())
        for text in ["Let me see.\n<tool", '_call>\n{"name": "get_weather", ', '"arguments": {}}\n</tool_call>']:
            yield parse_pb2.StreamParseOutputRequest(text=text)

    for event in render_pb2_grpc.RenderServiceStub(channel).StreamParseOutput(messages()):
        for delta in event.parsed.deltas:
            print(delta.content, end="")
        for call in event.finished.output.message.tool_calls:
            print("\n" + call.name)
    # [end]


def list_models(channel):
    # [RegistryService.ListModels]
    stub = registry_pb2_grpc.RegistryServiceStub(channel)
    for model in stub.ListModels(registry_pb2.ListModelsRequest()).models:
        print(model.id, model.adapter)
    # [end]


def get_model(channel):
    # [RegistryService.GetModel]
    stub = registry_pb2_grpc.RegistryServiceStub(channel)
    model = stub.GetModel(registry_pb2.GetModelRequest()).model
    print(model.architecture, model.context_length)
    # [end]


def list_adapters(channel):
    # [RegistryService.ListAdapters]
    stub = registry_pb2_grpc.RegistryServiceStub(channel)
    for adapter in stub.ListAdapters(registry_pb2.ListAdaptersRequest()).adapters:
        print(adapter.name)
    # [end]


def explain_resolution(channel):
    # [RegistryService.ExplainResolution]
    request = registry_pb2.ExplainResolutionRequest()
    resolution = registry_pb2_grpc.RegistryServiceStub(channel).ExplainResolution(request).resolution
    for rejected in resolution.rejected:
        print("not", rejected.adapter)
    print(resolution.adapter)
    # [end]


def generate(channel):
    # [GenerateService.Generate]
    request = generate_pb2.GenerateRequest(
        prompt="Once upon a time",
        sampling=generate_pb2.Sampling(temperature=0),
        stop=generate_pb2.Stop(max_new_tokens=8),
    )
    for event in generate_pb2_grpc.GenerateServiceStub(channel).Generate(request, timeout=60):
        print(event.delta.text, end="", flush=True)  # empty for other events
        if event.HasField("summary"):
            print(f"\n{event.summary.usage.completion_tokens} tokens")
    # [end]


def get_loaded_model(channel):
    # [GenerateService.GetLoadedModel]
    stub = generate_pb2_grpc.GenerateServiceStub(channel)
    model = stub.GetLoadedModel(generate_pb2.GetLoadedModelRequest()).model
    print(model.architecture, model.context_length)
    # [end]


def get_server(channel):
    # [ControlService.GetServer]
    server = control_pb2_grpc.ControlServiceStub(channel).GetServer(control_pb2.GetServerRequest())
    print(server.model.architecture, server.max_running)
    # [end]


def get_load(channel):
    # [ControlService.GetLoad]
    load = control_pb2_grpc.ControlServiceStub(channel).GetLoad(control_pb2.GetLoadRequest())
    print(load.running, "running,", load.queued, "queued")
    # [end]


def flush_prefix_cache(channel):
    # [ControlService.FlushPrefixCache]
    stub = control_pb2_grpc.ControlServiceStub(channel)
    print(stub.FlushPrefixCache(control_pb2.FlushPrefixCacheRequest()).flushed_blocks, "blocks")
    # [end]


def drain(channel):
    # [ControlService.Drain]
    control_pb2_grpc.ControlServiceStub(channel).Drain(control_pb2.DrainRequest())
    print("draining")
    # [end]


def run_task(channel):
    # [TaskService.RunTask]
    message = chat_pb2.ChatMessage(role="user", text="Why is the sky blue?")
    request = task_pb2.RunTaskRequest(
        conversation=chat_pb2.Conversation(messages=[message]),
        sampling=generate_pb2.Sampling(temperature=0),
        stop=generate_pb2.Stop(max_new_tokens=8),
    )
    for event in task_pb2_grpc.TaskServiceStub(channel).RunTask(request, timeout=60):
        print(event.delta.text, end="", flush=True)  # empty for other events
        if event.HasField("finished"):
            print(f"\n{event.finished.usage.completion_tokens} tokens")
    # [end]
