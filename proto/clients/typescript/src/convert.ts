// Converts objects to messages of the contract, and names the field of a wrong value.

import {
  create,
  type DescEnum,
  type DescField,
  type DescMessage,
  isMessage,
  type Message,
  type MessageInitShape,
  ScalarType,
} from "@bufbuild/protobuf";
import { ChoiceSchema, GrammarSchema, StopSchema } from "./contract/tandem/generate/v1/generate_pb.js";
import { ToolChoiceModeSchema, ToolChoiceSchema } from "./contract/tandem/task/v1/task_pb.js";
import { InvalidRequest } from "./conversation.js";
import type { SchemaSource } from "./fields.js";
import { hint } from "./names.js";

type Dict = Record<string, unknown>;

const WHOLE: { [type: number]: readonly [lowest: bigint, highest: bigint] } = {
  [ScalarType.INT32]: [-(2n ** 31n), 2n ** 31n - 1n],
  [ScalarType.UINT32]: [0n, 2n ** 32n - 1n],
  [ScalarType.INT64]: [-(2n ** 63n), 2n ** 63n - 1n],
  [ScalarType.UINT64]: [0n, 2n ** 64n - 1n],
};
const LONG: readonly ScalarType[] = [ScalarType.INT64, ScalarType.UINT64];

/** Makes the message of a request. `parts` are the names that the call has besides the request's fields. */
export function message(root: DescMessage, fields: object, parts: readonly string[] = []): Message {
  return new Converter(root, parts).message(root, fields, "");
}

/** Converts the values of one request. */
class Converter {
  constructor(
    private readonly root: DescMessage,
    private readonly parts: readonly string[],
  ) {}

  message(schema: DescMessage, value: unknown, path: string): Message {
    if (isMessage(value, schema)) return value;
    const given = shaped(schema, value, path);
    if (typeof given !== "object" || given === null || Array.isArray(given) || isMessage(given))
      throw new InvalidRequest(path, `must be an object or ${schema.name}, not ${found(given)}${remark(schema)}`);
    const init: Dict = {};
    for (const [name, item] of Object.entries(given)) {
      const place = path ? `${path}.${name}` : name;
      const field = Object.hasOwn(schema.field, name) ? schema.field[name] : undefined;
      if (!field) throw new InvalidRequest(place, `${schema.name} has no such field${this.hint(name, schema)}`);
      if (item === undefined || item === null) continue;
      const converted = this.value(field, item, place);
      const { oneof } = field;
      if (!oneof) init[name] = converted;
      else if (init[oneof.localName] === undefined) init[oneof.localName] = { case: name, value: converted };
      else throw new InvalidRequest(place, `cannot be set beside ${(init[oneof.localName] as Dict).case}`);
    }
    return create(schema, init as MessageInitShape<DescMessage>);
  }

  private hint(name: string, schema: DescMessage): string {
    const isSchema = ["type", "properties", "anyOf", "$ref", "schema", "kind"].includes(name);
    if (schema === GrammarSchema && isSchema) return "; in Tandem: grammar: { jsonSchema: schema }";
    return hint(name, schema, this.root, this.parts);
  }

  private value(field: DescField, value: unknown, path: string): unknown {
    if (field.fieldKind === "message") return this.message(field.message, value, path);
    if (field.fieldKind === "scalar") return scalar(field.scalar, value, path);
    if (field.fieldKind === "enum") return number(field.enum, value, path);
    if (field.fieldKind === "map") return this.map(field, value, path);
    const isList = typeof value === "object" && value !== null && Symbol.iterator in value;
    if (!isList) throw new InvalidRequest(path, `must be a list, not ${found(value)}`);
    return [...(value as Iterable<unknown>)].map((item, i) => this.item(field, item, `${path}[${i}]`));
  }

  private item(field: DescField & { fieldKind: "list" | "map" }, value: unknown, path: string): unknown {
    const kind = field.fieldKind === "list" ? field.listKind : field.mapKind;
    if (kind === "message") return this.message(field.message!, value, path);
    return kind === "enum" ? number(field.enum!, value, path) : scalar(field.scalar!, value, path);
  }

  private map(field: DescField & { fieldKind: "map" }, value: unknown, path: string): Dict {
    if (typeof value !== "object" || value === null)
      throw new InvalidRequest(path, `must be an object, not ${found(value)}`);
    const entries = Object.entries(value).map(([key, item]) => {
      const place = `${path}[${key}]`;
      if (field.mapKey !== ScalarType.STRING) scalar(field.mapKey, /^-?\d+$/.test(key) ? Number(key) : key, place);
      return [key, this.item(field, item, place)];
    });
    return Object.fromEntries(entries) as Dict;
  }
}

/** Returns the fields of a message whose callers give it in another shape. */
function shaped(schema: DescMessage, value: unknown, path: string): unknown {
  if (schema === GrammarSchema) return grammar(value, path);
  return schema === ToolChoiceSchema ? toolChoice(value, path) : value;
}

/** Returns the fields of a choice in the shape of OpenAI. */
function toolChoice(given: unknown, path: string): Dict {
  const modes = labels(ToolChoiceModeSchema);
  const listed = [...modes.keys()].map((mode) => `"${mode}"`).join(", ");
  const choices = `${listed} or { type: "function", function: { name: "…" } }`;
  if (typeof given === "string" && modes.has(given)) return { mode: given };
  if (isDict(given) && given.type === "function" && isDict(given.function)) {
    const { type, function: chosen, ...rest } = given;
    const { name, ...others } = given.function;
    const [other] = [...Object.keys(rest), ...Object.keys(others).map((key) => `function.${key}`)];
    if (other) throw new InvalidRequest(`${path}.${other}`, `ToolChoice has no such key; it must be ${choices}`);
    if (typeof name === "string") return { name };
  }
  throw new InvalidRequest(path, `must be ${choices}, not ${quoted(given)}`);
}

function isDict(value: unknown): value is Dict {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Returns the fields of a grammar, with a JSON schema as text. */
function grammar(given: unknown, path: string): unknown {
  if (isSource(given)) return { jsonSchema: schemaText(given, path) };
  const schema =
    typeof given === "object" && given !== null && !("type" in given) ? (given as Dict).jsonSchema : undefined;
  if (schema === undefined || schema === null || isMessage(given)) return given;
  return { ...(given as Dict), jsonSchema: schemaText(schema, `${path}.jsonSchema`) };
}

function schemaText(given: unknown, path: string): string {
  if (typeof given === "string") return given;
  const schema = isSource(given) ? given.toJSONSchema() : given;
  if (typeof schema !== "object" || schema === null || Array.isArray(schema))
    throw new InvalidRequest(path, `must be an object, JSON text, or have toJSONSchema(), not ${found(schema)}`);
  return JSON.stringify(schema);
}

function isSource(given: unknown): given is SchemaSource {
  const kind = typeof given;
  return (
    given !== null && (kind === "object" || kind === "function") && typeof (given as Dict).toJSONSchema === "function"
  );
}

function remark(schema: DescMessage): string {
  if (schema === StopSchema) return '; in Tandem: stop: { stopStrings: ["…"] }';
  if (schema === GrammarSchema) return "; in Tandem: grammar: { jsonSchema: schema }, or a schema with toJSONSchema()";
  return schema === ChoiceSchema ? '; in Tandem: grammar: { choice: { values: ["…"] } }' : "";
}

function scalar(type: ScalarType, value: unknown, path: string): unknown {
  const range = WHOLE[type];
  if (range) return whole(type, range, value, path);
  const isFraction = type === ScalarType.FLOAT || type === ScalarType.DOUBLE;
  if (isFraction && typeof value === "number") return value;
  if (type === ScalarType.BOOL && typeof value === "boolean") return value;
  if (type === ScalarType.STRING && typeof value === "string") return value;
  if (type === ScalarType.BYTES && value instanceof Uint8Array) return value;
  const wanted = isFraction
    ? "a number"
    : { [ScalarType.BOOL]: "true or false", [ScalarType.BYTES]: "bytes" }[type as number];
  throw new InvalidRequest(path, `must be ${wanted ?? "text"}, not ${found(value)}`);
}

function whole(type: ScalarType, [lowest, highest]: readonly [bigint, bigint], value: unknown, path: string): unknown {
  const isWhole = typeof value === "bigint" || Number.isInteger(value);
  if (!isWhole)
    throw new InvalidRequest(path, `must be an integer, not ${typeof value === "number" ? value : found(value)}`);
  if (typeof value === "number" && !Number.isSafeInteger(value))
    throw new InvalidRequest(path, "must be a bigint, because it is above 2^53");
  const exact = BigInt(value as number | bigint);
  if (exact < lowest || exact > highest)
    throw new InvalidRequest(path, `must be an integer from ${lowest} to ${highest}, not ${exact}`);
  return LONG.includes(type) ? exact : Number(exact);
}

/** Returns the number of an enum's label, such as "literal". Numbers and full names pass too. */
function number(schema: DescEnum, value: unknown, path: string): number {
  if (typeof value === "number") return value;
  const known = labels(schema);
  if (typeof value === "string") {
    const name = value.toLowerCase().replaceAll("-", "_");
    const prefix = schema.sharedPrefix ?? "";
    const found = known.get(name) ?? (name.startsWith(prefix) ? known.get(name.slice(prefix.length)) : undefined);
    if (found !== undefined) return found;
  }
  const choices = [...known.keys()].map((label) => `"${label}"`).join(" or ");
  throw new InvalidRequest(path, `must be ${choices}, not ${quoted(value)}`);
}

/** Returns the labels of an enum in lower case, without the unspecified one, and their numbers. */
export function labels(schema: DescEnum): Map<string, number> {
  const values = schema.values.filter(({ number }) => number !== 0);
  return new Map(values.map(({ localName, number }) => [localName.toLowerCase(), number]));
}

function quoted(value: unknown): string {
  return typeof value === "string" ? `"${value}"` : found(value);
}

function found(value: unknown): string {
  if (value === null) return "null";
  return Array.isArray(value) ? "a list" : typeof value;
}
