package tandem.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;

/** Reads the requests that the suites of all languages wrote into the folder TANDEM_EXCHANGE. */
@EnabledIfEnvironmentVariable(named = "TANDEM_EXCHANGE", matches = ".+")
class ReadTest {
  @Test
  void everyLanguageSendsTheRequestOfTheVector() throws Exception {
    List<String> lines = new ArrayList<>();
    for (Path file : Exchange.files()) {
      lines.addAll(Exchange.differences(file));
    }
    assertEquals(List.of(), lines);
  }
}
