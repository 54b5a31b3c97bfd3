package tandem.contract;

// [start]
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import java.util.concurrent.TimeUnit;
import tandem.chat.v1.ChatMessage;
import tandem.chat.v1.Conversation;
import tandem.generate.v1.*;
import tandem.render.v1.*;
import tandem.task.v1.RunTaskRequest;
import tandem.task.v1.TaskServiceGrpc;

// [end]

/** The Java examples of {@code proto/docs}: a method for each method of the services, of the same name. */
final class Examples {
  // [start]
  static ManagedChannel connect(String address) {
    return Grpc.newChannelBuilder(address, InsecureChannelCredentials.create())
        .maxInboundMessageSize(264 << 20) // the default is 4 MB
        .build();
  }

  // [end]

  private Examples() {}

  static void render(ManagedChannel channel) {
    // [RenderService.Render]
    var message = ChatMessage.newBuilder().setRole("user").setText("Hi");
    var request = RenderRequest.newBuilder()
        .setConversation(Conversation.newBuilder().addMessages(message))
        .setReturnTokenIds(true)
        .build();
    var prompt = RenderServiceGrpc.newBlockingStub(channel).render(request).getPrompt();
    System.out.println(prompt.getText());
    System.out.println(prompt.getTokenIdsCount() + " tokens");
    // [end]
  }

  static void batchRender(ManagedChannel channel) {
    // [RenderService.BatchRender]
    var message = ChatMessage.newBuilder().setRole("user").setText("Hi");
    var conversation = Conversation.newBuilder().addMessages(message);
    var batch = BatchRenderRequest.newBuilder();
    for (String model : new String[] {"", "unknown"}) {
      batch.addRequests(RenderRequest.newBuilder().setModel(model).setConversation(conversation));
    }
    for (var result : RenderServiceGrpc.newBlockingStub(channel).batchRender(batch.build()).getResultsList()) {
      if (result.hasResponse()) {
        System.out.println(result.getResponse().getPrompt().getText());
      } else {
        System.out.println("failed with code " + result.getFailure().getCode());
      }
    }
    // [end]
  }

  static void validateTemplate(ManagedChannel channel) {
    // [RenderService.ValidateTemplate]
    var request = ValidateTemplateRequest.newBuilder().setTemplate("{{ messages }}\n{% if %}").build();
    var response = RenderServiceGrpc.newBlockingStub(channel).validateTemplate(request);
    if (response.hasProblem()) {
      System.out.println("problem in line " + response.getProblem().getLine());
    }
    // [end]
  }

  static void tokenize(ManagedChannel channel) {
    // [RenderService.Tokenize]
    var request = TokenizeRequest.newBuilder().setText("Hello world").build();
    var response = RenderServiceGrpc.newBlockingStub(channel).tokenize(request);
    System.out.println(response.getTokenIdsCount() + " tokens");
    // [end]
  }

  static void detokenize(ManagedChannel channel) {
    // [RenderService.Detokenize]
    var request = DetokenizeRequest.newBuilder().addTokenIds(72).addTokenIds(105).build();
    System.out.println(RenderServiceGrpc.newBlockingStub(channel).detokenize(request).getText());
    // [end]
  }

  static void parseOutput(ManagedChannel channel) {
    // [RenderService.ParseOutput]
    String text =
        "Let me see.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>";
    var request = ParseOutputRequest.newBuilder().setText(text).build();
    var message = RenderServiceGrpc.newBlockingStub(channel).parseOutput(request).getOutput().getMessage();
    System.out.println(message.getText());
    message.getToolCallsList().forEach(call -> System.out.println(call.getName() + " " + call.getArgumentsJson()));
    // [end]
  }

  static void streamParseOutput(ManagedChannel channel) throws Exception {
    // [RenderService.StreamParseOutput]
    var stream = RenderServiceGrpc.newBlockingV2Stub(channel).streamParseOutput();
    stream.write(StreamParseOutputRequest.newBuilder().setStart(ParseOutputStart.getDefaultInstance()).build());
    for (var text : new String[] {"Let me see.\n<tool", "_call>\n{\"name\": \"get_weather\", ", "\"arguments\": {}}\n</tool_call>"}) {
      stream.write(StreamParseOutputRequest.newBuilder().setText(text).build());
    }
    stream.halfClose();
    while (stream.hasNext()) {
      var event = stream.read();
      event.getParsed().getDeltasList().forEach(delta -> System.out.print(delta.getContent()));
      var calls = event.getFinished().getOutput().getMessage().getToolCallsList();
      calls.forEach(call -> System.out.println("\n" + call.getName()));
    }
    // [end]
  }

  static void listModels(ManagedChannel channel) {
    // [RegistryService.ListModels]
    var stub = RegistryServiceGrpc.newBlockingStub(channel);
    for (var model : stub.listModels(ListModelsRequest.getDefaultInstance()).getModelsList()) {
      System.out.println(model.getId() + " " + model.getAdapter());
    }
    // [end]
  }

  static void getModel(ManagedChannel channel) {
    // [RegistryService.GetModel]
    var stub = RegistryServiceGrpc.newBlockingStub(channel);
    var model = stub.getModel(GetModelRequest.getDefaultInstance()).getModel();
    System.out.println(model.getArchitecture() + " " + model.getContextLength());
    // [end]
  }

  static void listAdapters(ManagedChannel channel) {
    // [RegistryService.ListAdapters]
    var stub = RegistryServiceGrpc.newBlockingStub(channel);
    for (var adapter : stub.listAdapters(ListAdaptersRequest.getDefaultInstance()).getAdaptersList()) {
      System.out.println(adapter.getName());
    }
    // [end]
  }

  static void explainResolution(ManagedChannel channel) {
    // [RegistryService.ExplainResolution]
    var stub = RegistryServiceGrpc.newBlockingStub(channel);
    var resolution = stub.explainResolution(ExplainResolutionRequest.getDefaultInstance()).getResolution();
    for (var rejected : resolution.getRejectedList()) {
      System.out.println("not " + rejected.getAdapter());
    }
    System.out.println(resolution.getAdapter());
    // [end]
  }

  static void generate(ManagedChannel channel) {
    // [GenerateService.Generate]
    var request = GenerateRequest.newBuilder()
        .setPrompt("Once upon a time")
        .setSampling(Sampling.newBuilder().setTemperature(0))
        .setStop(Stop.newBuilder().setMaxNewTokens(8))
        .build();
    GenerateServiceGrpc.newBlockingStub(channel)
        .withDeadlineAfter(1, TimeUnit.MINUTES)
        .generate(request)
        .forEachRemaining(event -> {
          System.out.print(event.getDelta().getText()); // empty for other events
          if (event.hasSummary()) {
            System.out.println("\n" + event.getSummary().getUsage().getCompletionTokens() + " tokens");
          }
        });
    // [end]
  }

  static void getLoadedModel(ManagedChannel channel) {
    // [GenerateService.GetLoadedModel]
    var stub = GenerateServiceGrpc.newBlockingStub(channel);
    var model = stub.getLoadedModel(GetLoadedModelRequest.getDefaultInstance()).getModel();
    System.out.println(model.getArchitecture() + " " + model.getContextLength());
    // [end]
  }

  static void getServer(ManagedChannel channel) {
    // [ControlService.GetServer]
    var stub = ControlServiceGrpc.newBlockingStub(channel);
    var server = stub.getServer(GetServerRequest.getDefaultInstance());
    System.out.println(server.getModel().getArchitecture() + " " + server.getMaxRunning());
    // [end]
  }

  static void getLoad(ManagedChannel channel) {
    // [ControlService.GetLoad]
    var load = ControlServiceGrpc.newBlockingStub(channel).getLoad(GetLoadRequest.getDefaultInstance());
    System.out.println(load.getRunning() + " running, " + load.getQueued() + " queued");
    // [end]
  }

  static void flushPrefixCache(ManagedChannel channel) {
    // [ControlService.FlushPrefixCache]
    var stub = ControlServiceGrpc.newBlockingStub(channel);
    var response = stub.flushPrefixCache(FlushPrefixCacheRequest.getDefaultInstance());
    System.out.println(response.getFlushedBlocks() + " blocks");
    // [end]
  }

  static void drain(ManagedChannel channel) {
    // [ControlService.Drain]
    ControlServiceGrpc.newBlockingStub(channel).drain(DrainRequest.getDefaultInstance());
    System.out.println("draining");
    // [end]
  }

  static void runTask(ManagedChannel channel) {
    // [TaskService.RunTask]
    var message = ChatMessage.newBuilder().setRole("user").setText("Why is the sky blue?");
    var request = RunTaskRequest.newBuilder()
        .setConversation(Conversation.newBuilder().addMessages(message))
        .setSampling(Sampling.newBuilder().setTemperature(0))
        .setStop(Stop.newBuilder().setMaxNewTokens(8))
        .build();
    TaskServiceGrpc.newBlockingStub(channel)
        .withDeadlineAfter(1, TimeUnit.MINUTES)
        .runTask(request)
        .forEachRemaining(event -> {
          System.out.print(event.getDelta().getText()); // empty for other events
          if (event.hasFinished()) {
            System.out.println("\n" + event.getFinished().getUsage().getCompletionTokens() + " tokens");
          }
        });
    // [end]
  }
}
