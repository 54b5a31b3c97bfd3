package tandem.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;

import com.google.gson.Gson;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import com.google.protobuf.Any;
import com.google.protobuf.Message;
import com.google.rpc.BadRequest;
import com.google.rpc.ErrorInfo;
import com.google.rpc.ResourceInfo;
import com.google.rpc.RetryInfo;
import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientInterceptors;
import io.grpc.Context;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.StatusException;
import io.grpc.StatusRuntimeException;
import io.grpc.protobuf.StatusProto;
import io.grpc.stub.BlockingClientCall;
import io.grpc.stub.ClientCalls;
import io.grpc.stub.MetadataUtils;
import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Predicate;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import tandem.contract.Servers.Server;
import tandem.contract.Vectors.Request;
import tandem.contract.Vectors.Vector;

/**
 * Replays the contract's vectors with generated code and grpc-java.
 *
 * <p>Starts the services and compares every answer with its vector. The environment variables are those of the
 * Python suite.
 */
class ReplayTest {
  private static final int EVENTUALLY_SECONDS = 10;

  /** The result of a call: its messages as proto3 JSON, and its status. */
  private static final class Answer {
    final List<JsonObject> messages = new ArrayList<>();
    final AtomicReference<Metadata> headers = new AtomicReference<>();
    final AtomicReference<Metadata> trailers = new AtomicReference<>();
    JsonObject error;

    String header(String name) {
      Metadata.Key<String> key = Metadata.Key.of(name, Metadata.ASCII_STRING_MARSHALLER);
      for (Metadata metadata : List.of(or(trailers.get()), or(headers.get()))) {
        if (metadata.containsKey(key)) {
          return metadata.get(key);
        }
      }
      return null;
    }

    private static Metadata or(Metadata metadata) {
      return metadata == null ? new Metadata() : metadata;
    }
  }

  @Test
  void everyAnswerIsAsItsVectorSays(@TempDir Path folder) throws Exception {
    Exchange.write();
    String chosen = System.getenv("TANDEM_SERVERS");
    List<Vector> vectors = Vectors.all().stream()
        .filter(vector -> chosen == null || List.of(chosen.split(",")).contains(vector.server))
        .toList();
    int good = 0;
    try (Servers servers = new Servers(folder)) {
      for (String key : vectors.stream().map(vector -> vector.server).distinct().toList()) {
        Server server = servers.get(key);
        try (Context.CancellableContext held = hold(server)) {
          for (Vector vector : vectors.stream().filter(vector -> vector.server.equals(key)).toList()) {
            List<String> lines = differences(server, vector);
            lines.forEach(line -> System.out.println(vector.name + ": " + line));
            good += lines.isEmpty() ? 1 : 0;
          }
        }
        servers.release(key);
      }
    }
    System.out.printf("vectors: %d of %d%n", good, vectors.size());
    assertEquals(vectors.size(), good);
  }

  /** Opens the calls that a server is busy with during its vectors, and sends the server's signal. */
  private static Context.CancellableContext hold(Server server) throws Exception {
    Context.CancellableContext context = Context.current().withCancellation();
    openUntil(context, server, server.spec.hold, event -> !event.has("progress"));
    openUntil(context, server, server.spec.queued, event -> event.has("progress"));
    if (server.spec.signal != null) {
      server.terminate();
    }
    return context;
  }

  /** Opens a call, if the server has one, and reads its events until the first one that is wanted. */
  private static void openUntil(Context context, Server server, Request request, Predicate<JsonObject> isWanted)
      throws Exception {
    if (request == null) {
      return;
    }
    request.deadlineMs = 600_000;
    Iterator<Message> events = context.call(() -> open(server, request, new Answer()));
    while (!isWanted.test(json(events.next()))) {}
  }

  /** Returns a line for each difference between a vector and the answer to it. */
  private static List<String> differences(Server server, Vector vector) throws Exception {
    List<String> lines = new ArrayList<>();
    if (!vector.binaryOnly && !vector.message().equals(vector.own())) {
      lines.add("request_binary: differs from request");
    }
    List<String> found = answered(server, vector);
    for (int left = EVENTUALLY_SECONDS * 20; vector.eventually && !found.isEmpty() && left > 0; left--) {
      Thread.sleep(50);
      found = answered(server, vector);
    }
    lines.addAll(found);
    return lines;
  }

  /** Calls the method, and returns a line for each difference. */
  private static List<String> answered(Server server, Vector vector) throws Exception {
    Answer answer = call(server, vector);
    List<String> lines = statusDifferences(vector, answer);
    lines.addAll(contentDifferences(vector, answer));
    return lines;
  }

  private static Answer call(Server server, Vector vector) throws Exception {
    Answer answer = new Answer();
    try (Context.CancellableContext context = Context.current().withCancellation()) {
      if (vector.signalAfter == 0) {
        callLate(server, vector, answer);
        return answer;
      }
      Iterator<Message> messages = context.call(() -> open(server, vector, answer));
      int count = 0;
      while (messages.hasNext()) {
        JsonObject message = json(messages.next());
        if (context.isCancelled()) {
          continue;
        }
        answer.messages.add(message);
        if (message.has("progress") && !vector.keepsProgress()) {
          continue;
        }
        count += 1;
        if (count == vector.cancelAfter) {
          context.cancel(null);
        } else if (count == vector.signalAfter) {
          server.terminate();
        }
      }
    } catch (StatusRuntimeException failed) {
      answer.error = error(failed);
    }
    return answer;
  }

  /** Opens a call, lets the server drain, and then sends the call's message. */
  private static void callLate(Server server, Vector vector, Answer answer) throws Exception {
    MethodDescriptor<Message, Message> method =
        vector.descriptor().toBuilder().setType(MethodDescriptor.MethodType.BIDI_STREAMING).build();
    BlockingClientCall<Message, Message> call =
        ClientCalls.blockingBidiStreamingCall(channel(server, vector, answer), method, options(vector));
    server.isServing(); // on the same connection, so that the server has the call before its answer
    server.terminate();
    call.write(vector.message());
    call.halfClose();
    try {
      for (Message message = call.read(); message != null; message = call.read()) {
        answer.messages.add(json(message));
      }
    } catch (StatusException failed) {
      answer.error = error(new StatusRuntimeException(failed.getStatus(), failed.getTrailers()));
    }
  }

  /** Calls a method. A unary method is read as a stream of one message. */
  private static Iterator<Message> open(Server server, Request request, Answer answer) throws IOException {
    Channel channel = channel(server, request, answer);
    return ClientCalls.blockingServerStreamingCall(channel, request.descriptor(), options(request), request.message());
  }

  /** Returns the server's channel, with the metadata of the request and of its answer. */
  private static Channel channel(Server server, Request request, Answer answer) {
    Metadata metadata = new Metadata();
    request.metadata.forEach(
        (name, value) -> metadata.put(Metadata.Key.of(name, Metadata.ASCII_STRING_MARSHALLER), value));
    return ClientInterceptors.intercept(
        server.channel(request),
        MetadataUtils.newAttachHeadersInterceptor(metadata),
        MetadataUtils.newCaptureMetadataInterceptor(answer.headers, answer.trailers));
  }

  private static CallOptions options(Request request) {
    return CallOptions.DEFAULT
        .withDeadlineAfter(request.deadlineMs, TimeUnit.MILLISECONDS)
        .withCompression(request.compression);
  }

  private static JsonObject json(Message message) throws IOException {
    return JsonParser.parseString(Vectors.json(message)).getAsJsonObject();
  }

  /** Returns an error as vectors write it. */
  private static JsonObject error(StatusRuntimeException failed) throws IOException {
    JsonObject error = new JsonObject();
    error.addProperty("code", failed.getStatus().getCode().name());
    error.addProperty("message", failed.getStatus().getDescription());
    error.addProperty("reason", "");
    com.google.rpc.Status status = StatusProto.fromThrowable(failed);
    for (Any detail : status == null ? List.<Any>of() : status.getDetailsList()) {
      if (detail.is(ErrorInfo.class)) {
        ErrorInfo info = detail.unpack(ErrorInfo.class);
        error.addProperty("reason", info.getReason());
        error.add("metadata", new Gson().toJsonTree(info.getMetadataMap()));
      } else if (detail.is(BadRequest.class)) {
        error.addProperty("field", detail.unpack(BadRequest.class).getFieldViolations(0).getField());
      } else if (detail.is(RetryInfo.class)) {
        var delay = detail.unpack(RetryInfo.class).getRetryDelay();
        error.addProperty("retry", delay.getSeconds() > 0 || delay.getNanos() > 0);
      } else if (detail.is(ResourceInfo.class)) {
        ResourceInfo missing = detail.unpack(ResourceInfo.class);
        JsonObject resource = new JsonObject();
        resource.addProperty("type", missing.getResourceType());
        resource.addProperty("name", missing.getResourceName());
        error.add("resource", resource);
      }
    }
    return error;
  }

  private static List<String> statusDifferences(Vector vector, Answer answer) {
    List<String> lines = new ArrayList<>();
    vector.expect.headers.forEach((name, value) -> {
      String got = answer.header(name);
      if (got == null || !(value.equals("*") || value.equals(got))) {
        lines.add("headers." + name + ": expected " + value + ", got " + got);
      }
    });
    JsonObject wanted = vector.expect.error;
    if (vector.cancelAfter > 0) {
      wanted = new JsonObject();
      wanted.addProperty("code", "CANCELLED");
    }
    if (wanted != null && answer.error != null) {
      lines.addAll(Comparison.differences(wanted, answer.error, "error"));
    } else if (wanted != null || answer.error != null) {
      lines.add("status: expected " + wanted + ", got " + answer.error);
    }
    return lines;
  }

  private static List<String> contentDifferences(Vector vector, Answer answer) {
    JsonObject expected = new JsonObject();
    JsonObject actual = new JsonObject();
    if (vector.expect.response != null) {
      expected = vector.expect.response;
      actual = answer.messages.isEmpty() ? actual : answer.messages.get(0);
    } else if (vector.expect.events != null) {
      expected.add("events", vector.expect.events);
      actual.add("events", Comparison.joined(answer.messages, vector.keepsProgress()));
    }
    List<String> lines = new ArrayList<>(Comparison.differences(expected, actual, ""));
    lines.addAll(Comparison.present(vector.expect.absent, actual));
    return lines;
  }
}
