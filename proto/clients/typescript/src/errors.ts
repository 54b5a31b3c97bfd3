// Failed calls as errors.

import { fromBinary, toBinary } from "@bufbuild/protobuf";
import { anyUnpack } from "@bufbuild/protobuf/wkt";
import { Metadata, type ServiceError, status } from "@grpc/grpc-js";
import type { ParseWarning } from "./contract/tandem/render/v1/parse_pb.js";
import type { Warning } from "./contract/tandem/render/v1/render_pb.js";
import {
  BadRequestSchema,
  ErrorInfoSchema,
  ResourceInfoSchema,
  RetryInfoSchema,
} from "./contract/google/rpc/error_details_pb.js";
import { type Status, StatusSchema } from "./contract/google/rpc/status_pb.js";

export const REQUEST_ID = "x-request-id";
const DETAILS = "grpc-status-details-bin";

/** A call that failed. */
export class TandemError extends Error {
  override readonly name: string = "TandemError";
  /** The gRPC code, such as "INVALID_ARGUMENT". */
  readonly code: string;
  /** The stable name of ERRORS.md. Empty if the failure is not the service's, such as a refused connection. */
  readonly reason: string = "";
  /** The path of the invalid field, such as `conversation.messages[2].role`. */
  readonly field?: string;
  /** Milliseconds to wait before a retry. Unset if a retry is not expected to help. */
  readonly retryDelayMs?: number;
  /** Type and name of a missing model, adapter or template. */
  readonly resource?: { type: string; name: string };
  /** `line`: the line of the chat template that failed. */
  readonly metadata: Readonly<Record<string, string>> = {};
  /** The id of the call in the service's log. */
  readonly requestId?: string;

  constructor(error: ServiceError, headers?: Metadata) {
    super(error.details, { cause: error });
    this.code = status[error.code] ?? String(error.code);
    const requestId = one(error.metadata, REQUEST_ID) ?? one(headers, REQUEST_ID);
    if (requestId !== undefined) this.requestId = String(requestId);
    for (const any of details(one(error.metadata, DETAILS))) {
      const info = anyUnpack(any, ErrorInfoSchema);
      if (info) [this.reason, this.metadata] = [info.reason, info.metadata];
      const field = anyUnpack(any, BadRequestSchema)?.fieldViolations[0]?.field;
      if (field !== undefined) this.field = field;
      const delay = anyUnpack(any, RetryInfoSchema)?.retryDelay;
      if (delay) this.retryDelayMs = Number(delay.seconds) * 1000 + delay.nanos / 1e6;
      const resource = anyUnpack(any, ResourceInfoSchema);
      if (resource) this.resource = { type: resource.resourceType, name: resource.resourceName };
    }
  }

  /** True if no service answered, such as after a refused connection. */
  get isUnreachable(): boolean {
    return this.code === "UNAVAILABLE" && this.reason === "";
  }

  /** Returns an error of the client, which no service sent. */
  static ofClient(code: status, details: string): TandemError {
    return new TandemError(Object.assign(new Error(details), { code, details, metadata: new Metadata() }));
  }

  /** Returns the error of a google.rpc.Status, such as the failure of one request of a batch. */
  static ofStatus(failure: Status): TandemError {
    const metadata = new Metadata();
    metadata.set(DETAILS, Buffer.from(toBinary(StatusSchema, failure)));
    const { code, message } = failure;
    return new TandemError(Object.assign(new Error(message), { code, details: message, metadata }));
  }
}

/** A warning of the service, as far as its code, its path and its text are set. */
export interface Notice {
  code: string;
  path: string;
  text: string;
}

/**
 * A warning of the service, which a client with `strict: true` throws. `reason` is the code of the first
 * warning, such as TOOLS_IGNORED, and `field` its path.
 */
export class StrictError extends TandemError {
  override readonly name = "StrictError";
  declare readonly reason: string;
  declare readonly field?: string;
  declare readonly requestId?: string;

  constructor(
    /** All warnings of rendering. Empty for those of an output. */
    readonly warnings: readonly Warning[],
    { code, path, text }: Notice,
    requestId?: string,
    /** All warnings of the parts of an output. */
    readonly parseWarnings: readonly ParseWarning[] = [],
  ) {
    const details = text || `the service warns of ${code}`;
    super(Object.assign(new Error(details), { code: status.FAILED_PRECONDITION, details, metadata: new Metadata() }));
    this.reason = code;
    if (path) this.field = path;
    if (requestId !== undefined) this.requestId = requestId;
  }
}

export function one(metadata: Metadata | undefined, key: string): string | Buffer | undefined {
  return metadata?.get(key)[0];
}

function details(trailer: string | Buffer | undefined): Status["details"] {
  try {
    return trailer instanceof Uint8Array ? fromBinary(StatusSchema, trailer).details : [];
  } catch {
    return []; // A proxy may have cut the trailer. The code and the message remain.
  }
}
