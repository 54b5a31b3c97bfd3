package tandem.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;

import com.google.gson.Gson;
import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import com.google.gson.reflect.TypeToken;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.stream.StreamSupport;
import org.junit.jupiter.api.Test;

/** Applies the comparison to the cases that all suites share. */
class ComparisonTest {
  private final JsonObject cases;

  ComparisonTest() throws IOException {
    cases = JsonParser.parseString(Files.readString(Path.of("../comparison.json"))).getAsJsonObject();
  }

  @Test
  void differencesAreFound() {
    for (JsonObject given : cases("differences")) {
      assertPaths(given, Comparison.differences(given.get("expected"), given.get("actual"), ""));
    }
  }

  @Test
  void presentFieldsAreFound() {
    for (JsonObject given : cases("present")) {
      List<String> paths = new Gson().fromJson(given.get("paths"), new TypeToken<>() {});
      assertPaths(given, Comparison.present(paths, given.get("actual")));
    }
  }

  @Test
  void deltasAreJoined() {
    for (JsonObject given : cases("joined")) {
      List<JsonObject> events = objects(given.getAsJsonArray("events"));
      assertEquals(given.get("joined"), Comparison.joined(events, given.has("progress")));
    }
  }

  /** Reads messages with fields and enum numbers of a later version. */
  @Test
  void newerMessagesAreRead() throws IOException {
    for (JsonObject given : cases("newer")) {
      String json = Vectors.newer(given.get("method").getAsString(), given.get("binary").getAsString());
      assertEquals(given.get("json"), JsonParser.parseString(json));
    }
  }

  private List<JsonObject> cases(String name) {
    return objects(cases.getAsJsonArray(name));
  }

  private static List<JsonObject> objects(JsonArray array) {
    return StreamSupport.stream(array.spliterator(), false).map(element -> element.getAsJsonObject()).toList();
  }

  private static void assertPaths(JsonObject given, List<String> lines) {
    List<String> expected = new Gson().fromJson(given.get("at"), new TypeToken<>() {});
    assertEquals(expected, lines.stream().map(line -> line.split(":")[0]).toList(), given.toString());
  }
}
