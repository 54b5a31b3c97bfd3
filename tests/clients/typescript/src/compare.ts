// Compares a server's answer with the expectation of a vector. README.md of tests/contract has the rules.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { JsonObject, JsonValue } from "@bufbuild/protobuf";

type Value = JsonValue | undefined;

/** Returns a line for each value of `expected` that `actual`, proto3 JSON, does not have. */
export function differences(expected: Value, actual: Value, path = ""): string[] {
  if (isObject(expected) && (isObject(actual) || actual === undefined))
    return Object.entries(expected).flatMap(([key, value]) =>
      differences(value, (actual as JsonObject | undefined)?.[key], path ? `${path}.${key}` : key),
    );
  if (Array.isArray(expected) && Array.isArray(actual) && expected.length === actual.length)
    return expected.flatMap((value, i) => differences(value, actual[i], `${path}[${i}]`));
  if (isEqual(expected, actual) || (actual === undefined && isDefault(expected))) return [];
  return [`${path}: expected ${JSON.stringify(expected)}, got ${JSON.stringify(actual)}`];
}

function isObject(value: Value): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Float fields have 7 digits, and log probabilities depend on the processor. Integers are exact. */
function isEqual(expected: Value, actual: Value): boolean {
  if (typeof expected !== "number" || typeof actual !== "number") return expected === actual;
  const isInteger = Number.isInteger(expected) && Number.isInteger(actual);
  return isInteger ? expected === actual : Math.abs(expected - actual) <= 1e-4 * Math.max(1, Math.abs(expected));
}

function isDefault(value: Value): boolean {
  if (typeof value === "string") return value === "" || value === "0" || value.endsWith("_UNSPECIFIED");
  return value === 0 || value === false || (Array.isArray(value) && value.length === 0);
}

/** Returns a line for each path, such as `events[0].delta.text`, that `actual` has. */
export function present(paths: readonly string[], actual: JsonObject): string[] {
  return paths.flatMap((path) => {
    let value: any = actual;
    for (const part of path.split(/[.[\]]+/).filter(Boolean)) value = value?.[part];
    return value === undefined ? [] : [`${path}: expected to be unset, got ${JSON.stringify(value)}`];
  });
}

/** Joins consecutive deltas of an output, whose sizes depend on the timing, and drops `progress`. */
export function joined(events: readonly JsonObject[], keepsProgress: boolean): JsonObject[] {
  const result: JsonObject[] = [];
  let run = new Map<number, JsonObject[]>();
  const end = () => {
    const outputs = [...run.entries()].sort(([a], [b]) => a - b);
    result.push(...outputs.flatMap(([, deltas]) => deltas.map((delta) => ({ delta }))));
    run = new Map();
  };
  for (const event of events) {
    const isUnknown = Object.keys(event).length === 0; // of a newer server
    const isParsed = "parsed" in event; // the last event has the whole
    if (isUnknown || isParsed || ("progress" in event && !keepsProgress)) continue;
    const delta = event.delta as JsonObject | undefined;
    const last = result.at(-1)?.promptLogprobs;
    if (delta) {
      const output = (delta.outputIndex ?? 0) as number;
      run.set(output, added(run.get(output) ?? [], delta));
    } else if (isObject(event.promptLogprobs) && isObject(last)) {
      last.tokens = [...list(last.tokens), ...list(event.promptLogprobs.tokens)];
    } else {
      end();
      result.push(event);
    }
  }
  end();
  return result;
}

function added(deltas: JsonObject[], delta: JsonObject): JsonObject[] {
  if (!["text", "bytes", "tokenIds", "tokens"].some((key) => key in delta)) return deltas;
  const last = deltas.at(-1);
  if (!last || last.reasoning !== delta.reasoning) return [...deltas, { ...delta }];
  if (delta.text !== undefined) last.text = `${last.text ?? ""}${delta.text}`;
  for (const key of ["tokenIds", "tokens"]) if (delta[key]) last[key] = [...list(last[key]), ...list(delta[key])];
  if (delta.bytes !== undefined)
    last.bytes = Buffer.concat([bytes(last.bytes), bytes(delta.bytes)]).toString("base64");
  return deltas;
}

function list(value: Value): JsonValue[] {
  return Array.isArray(value) ? value : [];
}

function bytes(value: Value): Buffer {
  return Buffer.from(typeof value === "string" ? value : "", "base64");
}

/** Applies the comparison to the cases that all suites share. */
export function check(): void {
  const cases = JSON.parse(readFileSync(join(import.meta.dirname, "../../../comparison.json"), "utf8"));
  const paths = (lines: string[]) => lines.map((line) => line.split(":")[0]);
  for (const { expected, actual, at } of cases.differences) assert.deepEqual(paths(differences(expected, actual)), at);
  for (const { paths: given, actual, at } of cases.present) assert.deepEqual(paths(present(given, actual)), at);
  for (const { events, progress, joined: expected } of cases.joined)
    assert.deepEqual(joined(structuredClone(events), progress ?? false), expected);
}
