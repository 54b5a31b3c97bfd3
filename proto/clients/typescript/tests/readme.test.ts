// The first program of the README answers.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { MODEL, start } from "./services.js";

const PACKAGE = join(import.meta.dirname, "../..");

test("the README starts with a program that answers", async () => {
  const generation = await start("gen-svc", "--model", MODEL, "--default-output-tokens", "8");
  const address = await start("render-svc", "--models", MODEL, "--generate", `http://${generation}`);
  const [, program] = /```js\n(.*?)```/s.exec(readFileSync(join(PACKAGE, "README.md"), "utf8"))!;
  assert(program!.includes("127.0.0.1:50051"));
  const source = program!.replace("127.0.0.1:50051", address);
  const command = ["--input-type=module", "--eval", source];
  assert(execFileSync(process.execPath, command, { cwd: PACKAGE, encoding: "utf8" }));
});
