// Runs the examples of proto/docs, and compares their output with `examples.json`.
//
// Prints each difference, and the number of examples without one. The exit status is 0 if there is no
// difference. The environment variables are those of the Python suite.

import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { isDeepStrictEqual } from "node:util";
import { connect, EXAMPLES } from "./examples.js";
import { Servers } from "./servers.js";
import { REPOSITORY } from "./vectors.js";

interface Example {
  method: string;
  server: string;
  prints: string[];
}

/** Returns the lines that a function writes to stdout. */
async function printed(run: () => Promise<void>): Promise<string[]> {
  const write = process.stdout.write;
  let text = "";
  process.stdout.write = (part: string | Uint8Array) => {
    text += part;
    return true;
  };
  try {
    await run();
  } finally {
    process.stdout.write = write;
  }
  return text.replace(/\n$/, "").split("\n");
}

async function main(): Promise<boolean> {
  const text = readFileSync(join(REPOSITORY, "tests/clients/examples.json"), "utf8");
  const all = JSON.parse(text) as Example[];
  const servers = new Servers(mkdtempSync(join(tmpdir(), "tandem-examples-")));
  let good = 0;
  try {
    for (const { method, server, prints } of all) {
      const { address, control } = await servers.get(server);
      const transport = connect(method.startsWith("ControlService.") ? control : address);
      const found = await printed(() => EXAMPLES[method]!(transport));
      if (isDeepStrictEqual(found, prints)) good += 1;
      else console.log(`${method}: expected ${prints}, got ${found}`);
    }
  } finally {
    await servers.stop();
    rmSync(servers.folder, { recursive: true });
  }
  console.log(`examples: ${good} of ${all.length}`);
  return good === all.length;
}

process.exit((await main()) ? 0 : 1);
