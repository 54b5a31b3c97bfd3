package tandem.contract;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonPrimitive;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import java.util.SortedMap;
import java.util.TreeMap;
import java.util.stream.Stream;

/** Compares a server's answer with the expectation of a vector. README.md of tests/contract has the rules. */
final class Comparison {
  private Comparison() {}

  /** Returns a line for each value of {@code expected} that {@code actual}, proto3 JSON, does not have. */
  static List<String> differences(JsonElement expected, JsonElement actual, String path) {
    List<String> lines = new ArrayList<>();
    boolean isUnset = actual == null;
    if (expected.isJsonObject() && (isUnset || actual.isJsonObject())) {
      JsonObject object = isUnset ? new JsonObject() : actual.getAsJsonObject();
      for (String key : expected.getAsJsonObject().keySet()) {
        String below = path.isEmpty() ? key : path + "." + key;
        lines.addAll(differences(expected.getAsJsonObject().get(key), object.get(key), below));
      }
    } else if (isSameLength(expected, actual)) {
      for (int i = 0; i < expected.getAsJsonArray().size(); i++) {
        JsonElement value = expected.getAsJsonArray().get(i);
        lines.addAll(differences(value, actual.getAsJsonArray().get(i), path + "[" + i + "]"));
      }
    } else if (!isEqual(expected, actual) && !(isUnset && isDefault(expected))) {
      lines.add(path + ": expected " + expected + ", got " + actual);
    }
    return lines;
  }

  private static boolean isSameLength(JsonElement expected, JsonElement actual) {
    return expected.isJsonArray()
        && actual != null
        && actual.isJsonArray()
        && expected.getAsJsonArray().size() == actual.getAsJsonArray().size();
  }

  /** Floats have 7 digits, and log probabilities depend on the processor. Integers are exact. */
  private static boolean isEqual(JsonElement expected, JsonElement actual) {
    if (!isNumber(expected) || !isNumber(actual)) {
      return expected.equals(actual);
    }
    double a = expected.getAsDouble();
    double b = actual.getAsDouble();
    boolean isInteger = a == Math.rint(a) && b == Math.rint(b);
    return isInteger ? a == b : Math.abs(a - b) <= 1e-4 * Math.max(1, Math.abs(a));
  }

  private static boolean isNumber(JsonElement value) {
    return value instanceof JsonPrimitive primitive && primitive.isNumber();
  }

  private static boolean isDefault(JsonElement value) {
    if (value instanceof JsonPrimitive primitive && primitive.isString()) {
      String text = primitive.getAsString();
      return text.isEmpty() || text.equals("0") || text.endsWith("_UNSPECIFIED");
    }
    boolean isZero = isNumber(value) && value.getAsDouble() == 0;
    return isZero || value.equals(new JsonPrimitive(false)) || value.equals(new JsonArray());
  }

  /** Returns a line for each path, such as {@code events[0].delta.text}, that {@code actual} has. */
  static List<String> present(List<String> paths, JsonElement actual) {
    List<String> lines = new ArrayList<>();
    for (String path : paths) {
      JsonElement value = actual;
      for (String part : path.split("[.\\[\\]]+")) {
        value = child(value, part);
      }
      if (value != null) {
        lines.add(path + ": expected to be unset, got " + value);
      }
    }
    return lines;
  }

  private static JsonElement child(JsonElement value, String part) {
    if (value instanceof JsonArray list) {
      int index = Integer.parseInt(part);
      return index < list.size() ? list.get(index) : null;
    }
    return value instanceof JsonObject object ? object.get(part) : null;
  }

  /**
   * Joins consecutive deltas of an output, whose sizes depend on the timing, and drops {@code progress} and
   * {@code parsed}: the last event has the whole.
   */
  static JsonArray joined(List<JsonObject> events, boolean keepsProgress) {
    JsonArray result = new JsonArray();
    SortedMap<Integer, List<JsonObject>> run = new TreeMap<>();
    for (JsonObject event : events) {
      JsonObject last = result.isEmpty() ? new JsonObject() : result.get(result.size() - 1).getAsJsonObject();
      if (event.isEmpty() || event.has("parsed") || (event.has("progress") && !keepsProgress)) {
        continue; // an event of a newer server is empty
      }
      if (event.has("delta")) {
        JsonObject delta = event.getAsJsonObject("delta");
        int output = delta.has("outputIndex") ? delta.get("outputIndex").getAsInt() : 0;
        add(run.computeIfAbsent(output, index -> new ArrayList<>()), delta);
      } else if (event.has("promptLogprobs") && last.has("promptLogprobs")) {
        append(last.getAsJsonObject("promptLogprobs"), event.getAsJsonObject("promptLogprobs"), "tokens");
      } else {
        end(run, result);
        result.add(event);
      }
    }
    end(run, result);
    return result;
  }

  private static void end(SortedMap<Integer, List<JsonObject>> run, JsonArray result) {
    for (JsonObject delta : run.values().stream().flatMap(List::stream).toList()) {
      JsonObject event = new JsonObject();
      event.add("delta", delta);
      result.add(event);
    }
    run.clear();
  }

  private static void add(List<JsonObject> deltas, JsonObject delta) {
    if (Stream.of("text", "bytes", "tokenIds", "tokens").noneMatch(delta::has)) {
      return;
    }
    JsonObject last = deltas.isEmpty() ? null : deltas.get(deltas.size() - 1);
    if (last == null || last.has("reasoning") != delta.has("reasoning")) {
      deltas.add(delta.deepCopy());
      return;
    }
    if (delta.has("text")) {
      last.addProperty("text", text(last, "text") + text(delta, "text"));
    }
    if (delta.has("bytes")) {
      last.addProperty("bytes", joinedBytes(text(last, "bytes"), text(delta, "bytes")));
    }
    append(last, delta, "tokenIds");
    append(last, delta, "tokens");
  }

  private static void append(JsonObject last, JsonObject next, String key) {
    if (next.has(key)) {
      JsonArray list = last.has(key) ? last.getAsJsonArray(key) : new JsonArray();
      list.addAll(next.getAsJsonArray(key));
      last.add(key, list);
    }
  }

  private static String text(JsonObject object, String key) {
    return object.has(key) ? object.get(key).getAsString() : "";
  }

  private static String joinedBytes(String first, String second) {
    byte[] head = Base64.getDecoder().decode(first);
    byte[] tail = Base64.getDecoder().decode(second);
    byte[] all = Arrays.copyOf(head, head.length + tail.length);
    System.arraycopy(tail, 0, all, head.length, tail.length);
    return Base64.getEncoder().encodeToString(all);
  }
}
