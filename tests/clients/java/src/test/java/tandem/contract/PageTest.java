package tandem.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.tools.ToolProvider;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import tandem.contract.Vectors.Vector;

/** Runs the program of {@code proto/clients/java.md}. */
class PageTest {
  private static final Pattern PROGRAM = Pattern.compile("```java\n(.*?)```", Pattern.DOTALL);

  private static final String TOOL = """
      {"type": "function", "function": {"name": "weather", "parameters":
        {"type": "object", "properties": {"city": {"const": "Paris"}}, "required": ["city"]}}}""";

  @Test
  void theProgramOfThePageAnswers(@TempDir Path folder) throws Exception {
    Matcher program = PROGRAM.matcher(Files.readString(Path.of("../../../proto/clients/java.md")));
    assertTrue(program.find(), "java.md has no program");
    Path source = Files.writeString(folder.resolve("Ask.java"), program.group(1));
    int failures = ToolProvider.getSystemJavaCompiler().run(null, null, null, "-d", folder.toString(), source.toString());
    assertEquals(0, failures);
    try (Servers servers = new Servers(Files.createDirectory(folder.resolve("servers")))) {
      String address = servers.get(taskServer()).address();
      String answer = run(folder, address, "Hi");
      assertFalse(answer.isEmpty());
      assertFalse(answer.contains("Status{"), answer);
      String json = run(folder, address, "<|im_end|>", "{\"type\": \"boolean\"}").strip();
      assertTrue(json.equals("true") || json.equals("false"), json);
      System.setProperty("tool", TOOL);
      String called = run(folder, servers.get("calling").address(), "hi");
      assertTrue(called.contains("\ncalls weather {\"city\": \"Paris\"}\n"), called);
    } finally {
      System.clearProperty("tool");
    }
  }

  /** Runs the class Ask of a folder, and returns its output. */
  private static String run(Path folder, String... arguments) throws Exception {
    ByteArrayOutputStream output = new ByteArrayOutputStream();
    PrintStream before = System.out;
    try (URLClassLoader loader = new URLClassLoader(new URL[] {folder.toUri().toURL()})) {
      System.setOut(new PrintStream(output, true, StandardCharsets.UTF_8));
      loader.loadClass("Ask").getMethod("main", String[].class).invoke(null, (Object) arguments);
    } finally {
      System.setOut(before);
    }
    return output.toString(StandardCharsets.UTF_8);
  }

  /** Returns the key of a server that answers tasks without credentials. */
  private static String taskServer() throws Exception {
    for (Vector vector : Vectors.all()) {
      boolean isTask = vector.method.equals("tandem.task.v1.TaskService/RunTask");
      if (isTask && vector.metadata.isEmpty() && vector.expect.error == null && vector.cancelAfter == 0) {
        return vector.server;
      }
    }
    throw new IllegalStateException("no vector expects an answer to a task");
  }
}
