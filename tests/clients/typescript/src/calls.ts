// The same call with each of the two libraries.

import { type DescMessage, type DescMethod, type DescMethodServerStreaming, fromBinary, type Message, toBinary } from "@bufbuild/protobuf";
import { anyUnpack } from "@bufbuild/protobuf/wkt";
import { type CallOptions, Code, ConnectError, createClient, type Transport } from "@connectrpc/connect";
import { compressionGzip, createGrpcTransport } from "@connectrpc/connect-node";
import * as grpc from "@grpc/grpc-js";
import {
  BadRequestSchema,
  ErrorInfoSchema,
  ResourceInfoSchema,
  RetryInfoSchema,
} from "./contract/google/rpc/error_details_pb.js";
import { StatusSchema } from "./contract/google/rpc/status_pb.js";
import { Health } from "./contract/grpc/health/v1/health_pb.js";
import type { Server } from "./servers.js";
import { messageOf, methodOf, type Request } from "./vectors.js";

const CONTROL = "tandem.generate.v1.ControlService";

/** A failed call, as vectors write it. */
export interface Failure {
  [key: string]: string | boolean | { [key: string]: string };
  code: string;
  message: string;
  reason: string;
}

/** A running call. Reading `messages` to the end sets `error`, and adds to `metadata`. */
export interface Call {
  messages: AsyncIterable<Message>;
  metadata: Map<string, string>;
  error?: Failure;
  cancel(): void;
}

/** Opens a call of a server. */
export type Library = (server: Server, request: Request) => Call;

export const LIBRARIES: Record<string, Library> = { "grpc-js": grpcJs, connect };

function grpcJs(server: Server, request: Request): Call {
  const method = methodOf(request);
  const secured = server.authority && grpc.credentials.createSsl(server.authority);
  const options = {
    "grpc.max_receive_message_length": -1,
    "grpc.max_send_message_length": -1,
    "grpc.default_compression_algorithm": request.compression
      ? grpc.compressionAlgorithms.gzip
      : grpc.compressionAlgorithms.identity,
  };
  const { beforeMessage } = request;
  const Service = grpc.makeClientConstructor(definitions(method, !!beforeMessage), method.parent.typeName);
  const client: any = new Service(address(server, method), secured ?? grpc.credentials.createInsecure(), options);
  const metadata = new grpc.Metadata();
  for (const [name, value] of Object.entries(request.metadata ?? {})) metadata.set(name, value);
  const deadline = Date.now() + (request.deadline_ms ?? 60_000);
  const running = beforeMessage
    ? client[method.name](metadata, { deadline })
    : client[method.name](messageOf(request), metadata, { deadline });
  if (beforeMessage) {
    const write = () => running.end(messageOf(request));
    void checked(client).then(beforeMessage).then(write, (error) => running.destroy(error));
  }
  const call: Call = { messages: read(), metadata: new Map(), cancel: () => running.cancel() };
  running.on("metadata", (headers: grpc.Metadata) => addGrpc(call, headers));
  running.on("status", (status: grpc.StatusObject) => addGrpc(call, status.metadata));
  async function* read(): AsyncGenerator<Message> {
    try {
      for await (const message of running) yield message;
    } catch (error) {
      call.error = grpcFailure(error as grpc.ServiceError);
    } finally {
      client.close();
    }
  }
  return call;
}

/** Asks for the health on a client's connection. The server then has the calls that were opened before. */
function checked(client: grpc.Client): Promise<void> {
  const empty = () => Buffer.alloc(0);
  return new Promise((resolve) => {
    client.makeUnaryRequest("/grpc.health.v1.Health/Check", empty, () => undefined, {}, () => resolve());
  });
}

/**
 * Returns the definition of one method. A unary method is read as a stream of one message. The message of a
 * late request is a stream of one message, too.
 */
function definitions(method: DescMethod, isLate: boolean): grpc.ServiceDefinition {
  const serialize = (type: DescMessage) => (message: Message) => Buffer.from(toBinary(type, message));
  const deserialize = (type: DescMessage) => (bytes: Buffer) => fromBinary(type, bytes);
  return {
    [method.name]: {
      path: `/${method.parent.typeName}/${method.name}`,
      requestStream: isLate,
      responseStream: true,
      requestSerialize: serialize(method.input),
      requestDeserialize: deserialize(method.input),
      responseSerialize: serialize(method.output),
      responseDeserialize: deserialize(method.output),
    },
  };
}

function addGrpc(call: Call, metadata: grpc.Metadata): void {
  for (const [name, value] of Object.entries(metadata.getMap())) call.metadata.set(name, String(value));
}

function grpcFailure(error: grpc.ServiceError): Failure {
  const [trailer] = error.metadata?.get("grpc-status-details-bin") ?? [];
  const { details } = trailer instanceof Buffer ? fromBinary(StatusSchema, trailer) : { details: [] };
  return failure(grpc.status[error.code], error.details, (type) => {
    return details.map((any) => anyUnpack(any, type)).find((detail) => detail !== undefined);
  });
}

function connect(server: Server, request: Request): Call {
  const method = methodOf(request);
  const baseUrl = `${server.authority ? "https" : "http"}://${address(server, method)}`;
  const nodeOptions = server.authority ? { ca: server.authority } : {};
  const compression = request.compression && { sendCompression: compressionGzip, compressMinBytes: 0 };
  const transport = createGrpcTransport({ baseUrl, nodeOptions, ...compression });
  const client: any = createClient(method.parent, transport);
  const abort = new AbortController();
  const call: Call = { messages: read(), metadata: new Map(), cancel: () => abort.abort() };
  const add = (headers: Headers) => headers.forEach((value, name) => call.metadata.set(name, value));
  async function* read(): AsyncGenerator<Message> {
    const options: CallOptions = {
      headers: request.metadata ?? {},
      timeoutMs: request.deadline_ms ?? 60_000,
      signal: abort.signal,
      onHeader: add,
      onTrailer: add,
    };
    try {
      if (request.beforeMessage) yield* late(transport, method, request, options);
      else if (method.methodKind === "unary") yield await client[method.localName](messageOf(request), options);
      else yield* client[method.localName](messageOf(request), options);
    } catch (error) {
      const known = ConnectError.from(error);
      add(known.metadata);
      call.error = failure(codeName(known.code), known.rawMessage, (type) => known.findDetails(type)[0]);
    }
  }
  return call;
}

/** Calls a method with a stream of one message, which follows the headers later. */
async function* late(
  transport: Transport,
  method: DescMethod,
  request: Request,
  { signal, timeoutMs, headers }: CallOptions,
): AsyncGenerator<Message> {
  async function* messages() {
    await createClient(Health, transport).check({}); // on the same connection: the server has the call before
    await request.beforeMessage!();
    yield messageOf(request);
  }
  const type = method as DescMethodServerStreaming;
  const answer = await transport.stream(type, signal, timeoutMs, headers, messages());
  yield* answer.message;
}

/** Returns gRPC's name of a code, such as INVALID_ARGUMENT for InvalidArgument. */
function codeName(code: Code): string {
  if (code === Code.Canceled) return "CANCELLED";
  return Code[code].replace(/(?<=[a-z])(?=[A-Z])/g, "_").toUpperCase();
}

function address(server: Server, method: DescMethod): string {
  return method.parent.typeName === CONTROL ? server.control : server.address;
}

function failure(code: string | undefined, message: string, find: (type: any) => any): Failure {
  const [info, bad] = [find(ErrorInfoSchema), find(BadRequestSchema)];
  const [retry, missing] = [find(RetryInfoSchema)?.retryDelay, find(ResourceInfoSchema)];
  return {
    code: code ?? "",
    message,
    reason: info?.reason ?? "",
    ...(info && { metadata: info.metadata }),
    ...(bad && { field: bad.fieldViolations[0].field }),
    ...(retry && { retry: retry.seconds > 0n || retry.nanos > 0 }),
    ...(missing && { resource: { type: missing.resourceType, name: missing.resourceName } }),
  };
}
