package tandem.contract;

import com.google.gson.Gson;
import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
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
import java.util.List;
import java.util.Map;
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
    @SerializedName("request_binary") String requestBinary;
    @SerializedName("binary_only") boolean binaryOnly;

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
        return decoded(requestBinary);
      }
      Message.Builder builder = empty().newBuilderForType();
      JsonFormat.parser().usingTypeRegistry(TYPES).merge(request.toString(), builder);
      return builder.build();
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
        all.addAll(List.of(new Gson().fromJson(Files.readString(file), Vector[].class)));
      }
    }
    return all;
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
