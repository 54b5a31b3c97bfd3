package tandem.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;

import com.google.gson.Gson;
import io.grpc.ManagedChannel;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import tandem.contract.Servers.Server;

/** Runs the examples of {@code proto/docs}, and compares their output with {@code examples.json}. */
class ExamplesTest {
  /** An entry of {@code examples.json}. */
  private static final class Example {
    String method;
    String server;
    List<String> prints;
  }

  @Test
  void everyExamplePrintsTheExpectedLines(@TempDir Path folder) throws Exception {
    Example[] examples = new Gson().fromJson(Files.readString(Path.of("../examples.json")), Example[].class);
    int good = 0;
    try (Servers servers = new Servers(folder)) {
      for (Example example : examples) {
        List<String> found = printed(example.method, servers.get(example.server));
        if (found.equals(example.prints)) {
          good += 1;
        } else {
          System.out.println(example.method + ": expected " + example.prints + ", got " + found);
        }
      }
    }
    System.out.printf("examples: %d of %d%n", good, examples.length);
    assertEquals(examples.length, good);
  }

  /** Returns the lines that the example of a method prints. */
  private static List<String> printed(String method, Server server) throws Exception {
    String name = method.substring(method.indexOf('.') + 1);
    name = Character.toLowerCase(name.charAt(0)) + name.substring(1);
    ManagedChannel channel =
        Examples.connect(method.startsWith("ControlService.") ? server.controlAddress() : server.address());
    ByteArrayOutputStream output = new ByteArrayOutputStream();
    PrintStream before = System.out;
    try {
      System.setOut(new PrintStream(output, true, StandardCharsets.UTF_8));
      Examples.class.getDeclaredMethod(name, ManagedChannel.class).invoke(null, channel);
    } finally {
      System.setOut(before);
      channel.shutdownNow();
    }
    return output.toString(StandardCharsets.UTF_8).lines().toList();
  }
}
