// Replays the contract's vectors with generated code, through grpc-js and through Connect.
//
// Usage: replay.js [--read FOLDER]
//
// Starts the services and compares every answer with its vector. Prints each difference, and the number of
// vectors without one. The exit status is 0 if there is no difference. The environment variables are
// those of the Python suite. With --read, calls nothing: reads the requests that all suites wrote.

import assert from "node:assert/strict";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { type DescMessage, type JsonObject, type Message, toBinary, toJson } from "@bufbuild/protobuf";
import { type Call, LIBRARIES, type Library } from "./calls.js";
import { check, differences, joined, present } from "./compare.js";
import { type Server, Servers } from "./servers.js";
import { decoded, messageOf, methodOf, ownMessageOf, type Request, TYPES, type Vector, vectors } from "./vectors.js";

const EVENTUALLY_SECONDS = 10;

/** Replays all vectors through one library. Returns true if no answer differs. */
async function replay(library: Library, name: string): Promise<boolean> {
  const servers = new Servers(mkdtempSync(join(tmpdir(), "tandem-contract-")));
  const chosen = process.env.TANDEM_SERVERS?.split(",");
  const all = vectors().filter(({ server }) => chosen?.includes(server) ?? true);
  let [good, total] = [0, 0];
  try {
    for (const key of new Set(all.map((vector) => vector.server))) {
      const server = await servers.get(key);
      const held = await prepare(library, server);
      for (const vector of all.filter((vector) => vector.server === key)) {
        const lines = await compared(library, server, vector);
        for (const line of lines) console.log(`${vector.name}: ${line}`);
        total += 1;
        if (lines.length === 0) good += 1;
      }
      for (const call of held) call.cancel();
      await servers.release(key);
    }
  } finally {
    await servers.stop();
    rmSync(servers.folder, { recursive: true });
  }
  console.log(`vectors: ${good} of ${total} (${name})`);
  return good === total && total > 0;
}

/** Opens the calls that a server is busy with during its vectors, and sends the server's signal. */
async function prepare(library: Library, server: Server): Promise<Call[]> {
  const { hold, queued, signal } = server.spec;
  const held = [];
  if (hold) held.push(await opened(library, server, hold, (kind) => kind !== "progress"));
  if (queued) held.push(await opened(library, server, queued, (kind) => kind === "progress"));
  if (signal) await server.terminate();
  return held;
}

/** Opens a call, and reads its events until the first one of a wanted kind. */
async function opened(
  library: Library,
  server: Server,
  request: Request,
  isWanted: (kind: string) => boolean,
): Promise<Call> {
  const call = library(server, { deadline_ms: 600_000, ...request });
  const events: AsyncIterator<any> = call.messages[Symbol.asyncIterator](); // a loop would close it at its end
  for (let next = await events.next(); !next.done; next = await events.next()) {
    if (isWanted(next.value.event.case)) return call;
  }
  throw new Error(`the call has ended: ${JSON.stringify(call.error)}`);
}

/** Returns a line for each difference between a vector and the answer to it. */
async function compared(library: Library, server: Server, vector: Vector): Promise<string[]> {
  const { input } = methodOf(vector);
  const isSame = isEqual(input, messageOf(vector), ownMessageOf(vector));
  const lines = isSame || vector.binary_only ? [] : ["request_binary: differs from request"];
  for (let left = EVENTUALLY_SECONDS * 20; ; left--) {
    const found = await answered(library, server, vector);
    if (found.length === 0 || !vector.eventually || left === 0) return [...lines, ...found];
    await sleep(50);
  }
}

/** Compares the bytes: a float of JSON has the digits of a double until it is written, and NaN differs from itself. */
function isEqual(type: DescMessage, a: Message, b: Message): boolean {
  return Buffer.from(toBinary(type, a)).equals(toBinary(type, b));
}

/** Calls the method, and returns a line for each difference. */
async function answered(library: Library, server: Server, vector: Vector): Promise<string[]> {
  const { output } = methodOf(vector);
  const isLate = vector.signal_after === 0;
  const call = library(server, isLate ? { ...vector, beforeMessage: () => server.terminate() } : vector);
  const messages: JsonObject[] = [];
  let count = 0;
  for await (const message of call.messages) {
    if (count === vector.cancel_after) continue; // it came before the cancellation had an effect
    const event = toJson(output, message, { registry: TYPES }) as JsonObject;
    messages.push(event);
    if ("progress" in event && !keepsProgress(vector)) continue;
    count += 1;
    if (count === vector.cancel_after) call.cancel();
    if (count === vector.signal_after) await server.terminate();
  }
  return [...status(vector, call), ...content(vector, messages)];
}

function status({ cancel_after, expect }: Vector, { error, metadata }: Call): string[] {
  const wanted = cancel_after === undefined ? expect.error : { code: "CANCELLED" };
  const headers = Object.entries(expect.headers ?? {}).filter(
    ([name, value]) => metadata.get(name) !== value && !(value === "*" && metadata.has(name)),
  );
  const lines = headers.map(([name, value]) => `headers.${name}: expected ${value}, got ${metadata.get(name)}`);
  if (wanted && error) return [...lines, ...differences(wanted, error, "error")];
  if (!wanted && !error) return lines;
  return [...lines, `status: expected ${JSON.stringify(wanted ?? "OK")}, got ${JSON.stringify(error ?? "OK")}`];
}

/** Returns true if the vector expects `progress` events. Otherwise they are skipped. */
function keepsProgress({ expect }: Vector): boolean {
  return expect.events?.some((event) => "progress" in event) ?? false;
}

function content(vector: Vector, messages: JsonObject[]): string[] {
  const { expect } = vector;
  if (expect.response) {
    const result = messages[0] ?? {};
    return [...differences(expect.response, result), ...present(expect.absent ?? [], result)];
  }
  if (!expect.events) return [];
  const result = { events: joined(messages, keepsProgress(vector)) };
  return [...differences({ events: expect.events }, result), ...present(expect.absent ?? [], result)];
}

/** Writes the bytes of every request. */
function write(folder: string): void {
  const line = (vector: Vector) =>
    `${vector.name}\t${Buffer.from(toBinary(methodOf(vector).input, messageOf(vector))).toString("base64")}\n`;
  writeFileSync(join(folder, "typescript.txt"), vectors().map(line).join(""));
}

/** Compares the requests that each language wrote with the vectors' own. Returns true if all are equal. */
function read(folder: string): boolean {
  const known = vectors();
  const counts = readdirSync(folder).sort().map((file) => {
    const lines = readFileSync(join(folder, file), "utf8").trimEnd().split("\n");
    const sent = new Map(lines.map((line) => line.split("\t") as [string, string]));
    const isSent = (vector: Vector) => {
      const [{ input }, data] = [methodOf(vector), sent.get(vector.name)];
      return data !== undefined && isEqual(input, decoded(input, data), ownMessageOf(vector));
    };
    const wrong = known.filter((vector) => !isSent(vector));
    for (const vector of wrong) console.log(`${vector.name}: differs in ${file}`);
    console.log(`requests of ${file.replace(".txt", "")}: ${known.length - wrong.length} of ${known.length}`);
    return wrong.length;
  });
  return counts.every((wrong) => wrong === 0);
}

/** Reads messages with fields and enum numbers of a later version. */
function checkNewer(): void {
  const file = join(import.meta.dirname, "../../../comparison.json");
  for (const { method, binary, json } of JSON.parse(readFileSync(file, "utf8")).newer) {
    const { output } = methodOf({ method });
    assert.deepEqual(toJson(output, decoded(output, binary), { registry: TYPES }), json);
  }
}

async function main(): Promise<boolean> {
  const [, , option, folder] = process.argv;
  if (option === "--read" && folder) return read(folder);
  check();
  checkNewer();
  if (process.env.TANDEM_EXCHANGE) write(process.env.TANDEM_EXCHANGE);
  let isGood = true;
  for (const [name, library] of Object.entries(LIBRARIES)) isGood = (await replay(library, name)) && isGood;
  return isGood;
}

process.exit((await main()) ? 0 : 1);
