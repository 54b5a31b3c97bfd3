// The vectors, and the messages of their methods.

import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import {
  createRegistry,
  type DescMessage,
  type DescMethod,
  fromBinary,
  fromJson,
  type JsonObject,
  type JsonValue,
  type Message,
} from "@bufbuild/protobuf";
import { file_google_rpc_error_details } from "./contract/google/rpc/error_details_pb.js";
import { file_grpc_health_v1_health } from "./contract/grpc/health/v1/health_pb.js";
import { file_tandem_generate_v1_control } from "./contract/tandem/generate/v1/control_pb.js";
import { file_tandem_generate_v1_generate } from "./contract/tandem/generate/v1/generate_pb.js";
import { file_tandem_render_v1_registry } from "./contract/tandem/render/v1/registry_pb.js";
import { file_tandem_render_v1_render } from "./contract/tandem/render/v1/render_pb.js";
import { file_tandem_task_v1_task } from "./contract/tandem/task/v1/task_pb.js";

export const REPOSITORY = join(import.meta.dirname, "../../../../..");
export const CONTRACT = resolve(process.env.TANDEM_CONTRACT ?? join(REPOSITORY, "tests/contract"));

/** The expected answer: a message, or the events of a stream, or an error, or events and an error. */
export interface Expectation {
  response?: JsonObject;
  events?: JsonObject[];
  error?: JsonObject;
  headers?: Record<string, string>;
  absent?: string[];
}

/** A call and its parameters. */
export interface Request {
  method: string;
  metadata?: Record<string, string>;
  deadline_ms?: number;
  request?: JsonValue;
  /** Unset if the JSON has a part in short. */
  request_binary?: string;
  binary_only?: boolean;
  /** Send the message compressed. */
  compression?: "gzip";
  /** Called between the headers of the request and its message. */
  beforeMessage?: () => Promise<void>;
}

export interface Vector extends Request {
  name: string;
  server: string;
  cancel_after?: number;
  /** Let the server drain after this number of events. 0: after the headers of the request, before its message. */
  signal_after?: number;
  /** The call is repeated until its answer is the expected one. */
  eventually?: boolean;
  expect: Expectation;
}

export const TYPES = createRegistry(
  file_google_rpc_error_details,
  file_grpc_health_v1_health,
  file_tandem_generate_v1_control,
  file_tandem_generate_v1_generate,
  file_tandem_render_v1_registry,
  file_tandem_render_v1_render,
  file_tandem_task_v1_task,
);

export function vectors(): Vector[] {
  const folder = join(CONTRACT, "vectors");
  if (!existsSync(folder)) throw new Error(`no vectors in ${folder}`);
  const files = readdirSync(folder).filter((name) => name.endsWith(".json"));
  return files.sort().flatMap((name) => readJson(join(folder, name)) as Vector[]);
}

/** Reads a file of the contract. */
export function readJson(file: string): unknown {
  return JSON.parse(readFileSync(file, "utf8"), (_, value) => expanded(value));
}

/** Returns the text or list that `{"before", "repeat", "count", "after"}` means, or any other value unchanged. */
function expanded(value: any): unknown {
  if (typeof value !== "object" || value === null || !("repeat" in value)) return value;
  const { before, repeat, count, after } = value;
  if (typeof repeat === "string") return (before ?? "") + repeat.repeat(count) + (after ?? "");
  return [...(before ?? []), ...Array(count).fill(repeat).flat(), ...(after ?? [])];
}

/** Returns the descriptor of a method, such as `tandem.task.v1.TaskService/RunTask`. */
export function methodOf({ method }: Request): DescMethod {
  const [service, name] = method.split("/") as [string, string];
  const found = TYPES.getService(service)?.methods.find((candidate) => candidate.name === name);
  if (!found) throw new Error(`no method ${method}`);
  return found;
}

/** Returns the message of a request's JSON, or of its bytes if only these have it. */
export function messageOf(request: Request): Message {
  const { input } = methodOf(request);
  if (request.binary_only) return decoded(input, request.request_binary!);
  return fromJson(input, request.request ?? {}, { registry: TYPES });
}

/** Returns the message of a request's bytes, or of its JSON if it has no bytes. */
export function ownMessageOf(request: Request): Message {
  const { request_binary } = request;
  return request_binary === undefined ? messageOf(request) : decoded(methodOf(request).input, request_binary);
}

export function decoded(type: DescMessage, base64: string): Message {
  return fromBinary(type, Buffer.from(base64, "base64"));
}
