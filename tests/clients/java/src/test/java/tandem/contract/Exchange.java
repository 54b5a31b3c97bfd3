package tandem.contract;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import tandem.contract.Vectors.Vector;

/** The requests that the suites of all languages send, as files of their bytes. */
final class Exchange {
  private Exchange() {}

  /** Returns the folder of the files, or null. */
  static Path folder() {
    String folder = System.getenv("TANDEM_EXCHANGE");
    return folder == null ? null : Path.of(folder);
  }

  /** Writes the bytes of every request of this suite. */
  static void write() throws IOException {
    if (folder() == null) {
      return;
    }
    List<String> lines = new ArrayList<>();
    for (Vector vector : Vectors.all()) {
      lines.add(vector.name + "\t" + Base64.getEncoder().encodeToString(vector.message().toByteArray()));
    }
    Files.write(folder().resolve("java.txt"), lines);
  }

  /** Returns a line for each request of a file that differs from its vector's. Prints the number of equal requests. */
  static List<String> differences(Path file) throws IOException {
    Map<String, String> sent = new HashMap<>();
    for (String line : Files.readAllLines(file)) {
      String[] parts = line.split("\t", -1);
      sent.put(parts[0], parts[1]);
    }
    List<Vector> vectors = Vectors.all();
    List<String> lines = new ArrayList<>();
    for (Vector vector : vectors) {
      String bytes = sent.get(vector.name);
      if (bytes == null || !vector.decoded(bytes).equals(vector.own())) {
        lines.add(vector.name + ": differs in " + file.getFileName());
      }
    }
    String language = file.getFileName().toString().replace(".txt", "");
    System.out.printf("requests of %s: %d of %d%n", language, vectors.size() - lines.size(), vectors.size());
    return lines;
  }

  static List<Path> files() throws IOException {
    try (Stream<Path> files = Files.list(folder())) {
      return files.sorted().toList();
    }
  }
}
