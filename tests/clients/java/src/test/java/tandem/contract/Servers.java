package tandem.contract;

import com.google.gson.Gson;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.reflect.TypeToken;
import io.grpc.ChannelCredentials;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.StatusRuntimeException;
import io.grpc.TlsChannelCredentials;
import io.grpc.health.v1.HealthCheckRequest;
import io.grpc.health.v1.HealthCheckResponse.ServingStatus;
import io.grpc.health.v1.HealthGrpc;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.stream.Stream;
import tandem.contract.Vectors.Request;

/** Starts and stops the servers of {@code servers.json}. */
final class Servers implements AutoCloseable {
  private static final int START_SECONDS = 120;

  /** An entry of {@code servers.json}. */
  static final class Spec {
    String service;
    List<String> args = List.of();
    List<String> replicas = List.of();
    Map<String, String> environment = Map.of();
    Map<String, JsonElement> files = Map.of();
    boolean ready = true;
    String tls;
    Request hold;
    Request queued;
    String signal;
  }

  private final Map<String, Spec> specs;
  private final Map<String, Server> running = new LinkedHashMap<>();
  private final Path folder;

  /** {@code folder} gets the servers' files and logs. */
  Servers(Path folder) throws IOException {
    this.folder = folder;
    JsonElement json = Vectors.json(Vectors.CONTRACT.resolve("servers.json"));
    specs = new Gson().fromJson(json, new TypeToken<Map<String, Spec>>() {});
  }

  Server get(String key) throws IOException, InterruptedException {
    if (!running.containsKey(key)) {
      Spec spec = specs.get(key);
      if (spec == null) {
        throw new IllegalArgumentException("servers.json has no " + key);
      }
      String generate = "";
      for (String replica : spec.replicas) {
        Server other = get(replica);
        generate = generate.isEmpty() ? "http://" + other.address : generate;
      }
      Server server = new Server(key, spec, Files.createDirectories(folder.resolve(key)));
      running.put(key, server);
      server.start(generate);
    }
    return running.get(key);
  }

  /** Stops a server, unless others use it. */
  void release(String key) throws InterruptedException {
    if (specs.values().stream().noneMatch(spec -> spec.replicas.contains(key))) {
      running.remove(key).stop();
    }
  }

  @Override
  public void close() throws InterruptedException {
    Deque<Server> reversed = new ArrayDeque<>();
    running.values().forEach(reversed::push);
    for (Server server : reversed) {
      server.stop();
    }
  }

  /** One process, and the channels to its ports. */
  static final class Server {
    final Spec spec;
    private final String key;
    private final Path folder;
    private final String address = freeAddress();
    private final String controlAddress = freeAddress();
    private Process process;
    private ManagedChannel channel;
    private ManagedChannel control;

    Server(String key, Spec spec, Path folder) throws IOException {
      this.key = key;
      this.spec = spec;
      this.folder = folder;
    }

    String address() {
      return address;
    }

    String controlAddress() {
      return controlAddress;
    }

    ManagedChannel channel(Request request) {
      return request.method.startsWith("tandem.generate.v1.ControlService/") ? control : channel;
    }

    void start(String generate) throws IOException, InterruptedException {
      for (var file : spec.files.entrySet()) {
        write(folder.resolve(file.getKey()), file.getValue());
      }
      Map<String, String> values = Map.of(
          "{model}", Vectors.CONTRACT.resolve("model").toString(),
          "{folder}", folder.toString(),
          "{control}", controlAddress,
          "{generate}", generate);
      List<String> command = new ArrayList<>();
      command.addAll(List.of(Vectors.PROGRAMS.resolve(spec.service).toString(), "serve", "--listen", address));
      spec.args.forEach(argument -> command.add(filled(argument, values)));
      ProcessBuilder builder = new ProcessBuilder(command).redirectErrorStream(true);
      spec.environment.forEach((name, value) -> builder.environment().put(name, filled(value, values)));
      process = builder.redirectOutput(folder.resolve("log").toFile()).start();
      channel = open(address);
      control = open(controlAddress);
      await("connections", this::accepts);
      if (spec.ready) {
        await("health SERVING", this::isServing);
      }
    }

    /** Sends SIGTERM, and waits until health is not SERVING. */
    void terminate() throws InterruptedException {
      process.destroy();
      while (isServing()) {
        Thread.sleep(50);
      }
    }

    void stop() throws InterruptedException {
      for (ManagedChannel open : Stream.of(channel, control).filter(open -> open != null).toList()) {
        open.shutdownNow().awaitTermination(5, TimeUnit.SECONDS);
      }
      if (process == null) {
        return;
      }
      if (!spec.ready) {
        process.destroyForcibly(); // its load may not end
      }
      process.destroy();
      if (!process.waitFor(10, TimeUnit.SECONDS)) {
        process.destroyForcibly().waitFor();
      }
    }

    private ManagedChannel open(String target) throws IOException {
      ChannelCredentials credentials = InsecureChannelCredentials.create();
      if (spec.tls != null) {
        Path authority = Vectors.CONTRACT.resolve(spec.tls);
        credentials = TlsChannelCredentials.newBuilder().trustManager(authority.toFile()).build();
      }
      return Grpc.newChannelBuilder(target, credentials).maxInboundMessageSize(Integer.MAX_VALUE).build();
    }

    private void await(String what, BooleanSupplier condition) throws IOException, InterruptedException {
      for (int left = START_SECONDS * 20; left > 0 && process.isAlive(); left--) {
        if (condition.getAsBoolean()) {
          return;
        }
        Thread.sleep(50);
      }
      String log = Files.readString(folder.resolve("log"));
      throw new IllegalStateException("server " + key + " has no " + what + ":\n" + log);
    }

    private boolean accepts() {
      String[] parts = address.split(":");
      try (Socket socket = new Socket()) {
        socket.connect(new InetSocketAddress(parts[0], Integer.parseInt(parts[1])));
        return true;
      } catch (IOException refused) {
        return false;
      }
    }

    boolean isServing() {
      try {
        var health = HealthGrpc.newBlockingStub(channel).withDeadlineAfter(5, TimeUnit.SECONDS);
        return health.check(HealthCheckRequest.getDefaultInstance()).getStatus() == ServingStatus.SERVING;
      } catch (StatusRuntimeException failed) {
        return false;
      }
    }
  }

  private static String filled(String text, Map<String, String> values) {
    for (var value : values.entrySet()) {
      text = text.replace(value.getKey(), value.getValue());
    }
    return text;
  }

  /**
   * Writes a file of a server: text, a named pipe, or a copy of a file or folder of the contract. Zeros extend a
   * copy with a size.
   */
  private static void write(Path path, JsonElement content) throws IOException, InterruptedException {
    Files.createDirectories(path.getParent());
    if (content.isJsonPrimitive()) {
      Files.writeString(path, content.getAsString());
      return;
    }
    JsonObject values = content.getAsJsonObject();
    if (values.has("pipe")) {
      new ProcessBuilder("mkfifo", path.toString()).inheritIO().start().waitFor();
      return;
    }
    Path source = Vectors.CONTRACT.resolve(values.get("copy").getAsString());
    try (Stream<Path> files = Files.walk(source)) {
      for (Path file : files.toList()) { // a folder comes before its files
        Files.copy(file, path.resolve(source.relativize(file).toString()), StandardCopyOption.REPLACE_EXISTING);
      }
    }
    if (values.has("size")) {
      try (RandomAccessFile file = new RandomAccessFile(path.toFile(), "rw")) {
        file.setLength(values.get("size").getAsLong());
      }
    }
  }

  /** Returns an address whose port was free a moment ago. */
  private static String freeAddress() throws IOException {
    try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
      return "127.0.0.1:" + socket.getLocalPort();
    }
  }
}
