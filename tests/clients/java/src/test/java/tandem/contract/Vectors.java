package tandem.contract;

import com.google.gson.Gson;
import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import com.google.gson.JsonPrimitive;
import com.google.gson.annotations.SerializedName;
import com.google.protobuf.Descriptors.FileDescriptor;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.protobuf.Message;
import com.google.protobuf.util.JsonFormat;
import com.google.protobuf.util.JsonFormat.TypeRegistry;
import com.google.rpc.ErrorDetailsProto;
import io.grpc.MethodDescriptor;
import io.grpc.MethodDescriptor.PrototypeMarshaller;
import io.grpc.ServiceDescriptor;
import io.grpc.health.v1.HealthGrpc;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import tandem.generate.v1.ControlServiceGrpc;
import tandem.generate.v1.GenerateServiceGrpc;
import tandem.render.v1.RegistryServiceGrpc;
import tandem.render.v1.RenderServiceGrpc;
import tandem.task.v1.TaskServiceGrpc;

/** The vectors, and the messages of their methods. */
final class Vectors {
  private static final Path REPOSITORY = Path.of("").toAbsolutePath().resolve("../../..").normalize();
  static final Path CONTRACT = folder("TANDEM_CONTRACT", "tests/contract");
  static final Path PROGRAMS = folder("TANDEM_PROGRAMS", "target/debug");
  private static final FileDescriptor DETAILS = ErrorDetailsProto.getDescriptor();
  private static final TypeRegistry TYPES = TypeRegistry.newBuilder().add(DETAILS.getMessageTypes()).build();
  private static final List<ServiceDescriptor> SERVICES = List.of(
      HealthGrpc.getServiceDescriptor(),
      ControlServiceGrpc.getServiceDescriptor(),
      GenerateServiceGrpc.getServiceDescriptor(),
      RegistryServiceGrpc.getServiceDescriptor(),
      RenderServiceGrpc.getServiceDescriptor(),
      TaskServiceGrpc.getServiceDescriptor());

  /** A call and its parameters. */
  static class Request {
    String method;
    Map<String, String> metadata = Map.of();
    @SerializedName("deadline_ms") long deadlineMs = 60_000;
    JsonObject request = new JsonObject();
    @SerializedName("request_binary") String requestBinary; // unset if the JSON has a part in short
    @SerializedName("binary_only") boolean binaryOnly;
    String compression;

    @SuppressWarnings("unchecked") // all methods have generated messages
    MethodDescriptor<Message, Message> descriptor() {
      return (MethodDescriptor<Message, Message>) SERVICES.stream()
          .flatMap(service -> service.getMethods().stream())
          .filter(candidate -> candidate.getFullMethodName().equals(method))
          .findAny()
          .orElseThrow(() -> new IllegalArgumentException("no method " + method));
    }

    /** Returns the message of the request's JSON, or of its bytes if only these have it. */
    Message message() throws InvalidProtocolBufferException {
      if (binaryOnly) {
        return own();
      }
      Message.Builder builder = empty().newBuilderForType();
      JsonFormat.parser().usingTypeRegistry(TYPES).merge(request.toString(), builder);
      return builder.build();
    }

    /** Returns the message of the request's bytes, or of its JSON if it has no bytes. */
    Message own() throws InvalidProtocolBufferException {
      return requestBinary == null ? message() : decoded(requestBinary);
    }

    /** Returns the message of other bytes, in base64. */
    Message decoded(String bytes) throws InvalidProtocolBufferException {
      return empty().getParserForType().parseFrom(Base64.getDecoder().decode(bytes));
    }

    private Message empty() {
      return ((PrototypeMarshaller<Message>) descriptor().getRequestMarshaller()).getMessagePrototype();
    }
  }

  /** A request and the answer to it. */
  static final class Vector extends Request {
    String name;
    String server;
    @SerializedName("cancel_after") int cancelAfter;
    @SerializedName("signal_after") int signalAfter = -1; // 0: after the headers of the request, before its message
    boolean eventually; // the call is repeated until its answer is the expected one
    Expectation expect;

    /** Returns true if the vector expects {@code progress} events. Otherwise they are skipped. */
    boolean keepsProgress() {
      return expect.events != null
          && expect.events.asList().stream().anyMatch(event -> event.getAsJsonObject().has("progress"));
    }
  }

  /** A message, or the events of a stream, or an error, or events and an error. */
  static final class Expectation {
    JsonObject response;
    JsonArray events;
    JsonObject error;
    Map<String, String> headers = Map.of();
    List<String> absent = List.of();
  }

  private Vectors() {}

  static List<Vector> all() throws IOException {
    List<Vector> all = new ArrayList<>();
    try (Stream<Path> files = Files.list(CONTRACT.resolve("vectors"))) {
      for (Path file : files.filter(path -> path.toString().endsWith(".json")).sorted().toList()) {
        all.addAll(List.of(new Gson().fromJson(json(file), Vector[].class)));
      }
    }
    return all;
  }

  /** Reads a file of the contract. */
  static JsonElement json(Path file) throws IOException {
    return expanded(JsonParser.parseString(Files.readString(file)));
  }

  /** Returns JSON with the text or list that each {@code {"before", "repeat", "count", "after"}} means. */
  private static JsonElement expanded(JsonElement value) {
    if (value instanceof JsonArray items) {
      JsonArray list = new JsonArray();
      items.forEach(item -> list.add(expanded(item)));
      return list;
    }
    if (!(value instanceof JsonObject found)) {
      return value;
    }
    if (found.has("repeat")) {
      return repeated(found, found.get("repeat"), found.get("count").getAsInt());
    }
    JsonObject object = new JsonObject();
    found.asMap().forEach((key, item) -> object.add(key, expanded(item)));
    return object;
  }

  private static JsonElement repeated(JsonObject found, JsonElement part, int count) {
    List<JsonElement> parts = new ArrayList<>(Collections.nCopies(count, part));
    if (found.has("before")) {
      parts.add(0, found.get("before"));
    }
    if (found.has("after")) {
      parts.add(found.get("after"));
    }
    if (part instanceof JsonPrimitive) {
      return new JsonPrimitive(parts.stream().map(JsonElement::getAsString).collect(Collectors.joining()));
    }
    JsonArray list = new JsonArray();
    parts.forEach(items -> list.addAll(items.getAsJsonArray()));
    return list;
  }

  /** Returns a message as proto3 JSON, without defaults. */
  static String json(Message message) throws InvalidProtocolBufferException {
    return JsonFormat.printer().usingTypeRegistry(TYPES).print(message);
  }

  /** Returns an answer's bytes, in base64, as proto3 JSON. */
  static String newer(String method, String bytes) throws InvalidProtocolBufferException {
    Request request = new Request();
    request.method = method;
    var marshaller = (PrototypeMarshaller<Message>) request.descriptor().getResponseMarshaller();
    return json(marshaller.getMessagePrototype().getParserForType().parseFrom(Base64.getDecoder().decode(bytes)));
  }

  private static Path folder(String variable, String otherwise) {
    String given = System.getenv(variable);
    return given == null ? REPOSITORY.resolve(otherwise) : Path.of(given).toAbsolutePath();
  }
}
