// Channels, credentials and retries.

import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { type CallOptions as GrpcOptions, type ChannelOptions, Client, credentials, Metadata } from "@grpc/grpc-js";
import { REQUEST_ID, type TandemError } from "./errors.js";

/** The largest response: 256 MiB of BatchRender's results, and their frames. gRPC's default is 4 MiB. */
export const MAX_MESSAGE_BYTES = 264 * 2 ** 20;

/** The settings of a client. */
export interface Settings {
  /** TLS with the system's authorities. Implied by `https://` in the address and by the files below. */
  tls?: boolean;
  /** PEM of the authorities of the service's certificate: the path of a file, or its content. */
  ca?: string | Uint8Array;
  /** PEM of the client's certificate. */
  cert?: string | Uint8Array;
  /** PEM of the key of the client's certificate. */
  key?: string | Uint8Array;
  /** A bearer token, or a function that returns the current one. */
  token?: string | (() => string);
  /** The deadline of calls in milliseconds, retries included. Default: none. */
  timeoutMs?: number;
  /** The maximum number of retries of a call. Default: 4. */
  retries?: number;
  /** The maximum size of a response. */
  maxMessageBytes?: number;
  /** Further channel options of @grpc/grpc-js. */
  channelOptions?: ChannelOptions;
}

/** The options of every call. */
export interface CallOptions {
  /** The deadline in milliseconds, retries included. Default: the client's. */
  timeoutMs?: number;
  /** The id of the call in the service's log. Default: the service chooses one. */
  requestId?: string;
  /** Cancels the call. */
  signal?: AbortSignal;
}

/** Opens the channel of a client. It connects with the first call. */
export function channel(address: string, settings: Settings): Client {
  const [, scheme, target] = /^(?:(https?):\/\/)?([^/]+)\/?$/.exec(address) ?? [];
  if (target === undefined)
    throw new TypeError(`address ${address} must be HOST:PORT, http://HOST:PORT or https://HOST:PORT`);
  const { ca, cert, key } = settings;
  const isSecured = settings.tls || scheme === "https" || ca || cert || key;
  const secured = () => credentials.createSsl(pem(ca), pem(key), pem(cert));
  return new Client(target, isSecured ? secured() : credentials.createInsecure(), {
    "grpc.max_receive_message_length": settings.maxMessageBytes ?? MAX_MESSAGE_BYTES,
    "grpc.max_send_message_length": -1, // the service has the limit, and a typed error
    // The services accept any rate of pings, and ping every 30 seconds too.
    "grpc.keepalive_time_ms": 30_000,
    "grpc.keepalive_timeout_ms": 20_000,
    "grpc.service_config_disable_resolution": 1,
    "grpc.primary_user_agent": "tandem-client",
    ...settings.channelOptions,
  });
}

/** The bounded attempts of one call, within its deadline. */
export class Attempts {
  readonly #deadline: number;
  readonly #signal: AbortSignal | undefined;
  readonly #requestId: string | undefined;
  #left: number;

  constructor(
    readonly settings: Settings,
    options: CallOptions,
  ) {
    this.#deadline = Date.now() + (options.timeoutMs ?? settings.timeoutMs ?? Infinity);
    this.#signal = options.signal;
    this.#requestId = options.requestId;
    this.#left = settings.retries ?? 4;
  }

  /** Returns the metadata and the options of the next attempt. */
  next(): [Metadata, GrpcOptions] {
    this.#signal?.throwIfAborted();
    const metadata = new Metadata();
    const { token } = this.settings;
    if (token !== undefined) metadata.set("authorization", `Bearer ${typeof token === "string" ? token : token()}`);
    if (this.#requestId !== undefined) metadata.set(REQUEST_ID, this.#requestId);
    return [metadata, { deadline: this.#deadline }];
  }

  /** Cancels a running attempt when the caller's signal is aborted. Returns a function that ends this. */
  watch(call: { cancel(): void }): () => void {
    const cancel = () => call.cancel();
    this.#signal?.addEventListener("abort", cancel, { once: true });
    return () => this.#signal?.removeEventListener("abort", cancel);
  }

  /**
   * Waits until the next attempt, or throws the error. A call is repeated only if the service asks for
   * it, before any output, and within the deadline.
   */
  async wait(error: TandemError, hasOutput = false): Promise<void> {
    this.#signal?.throwIfAborted();
    if (error.retryDelayMs === undefined || hasOutput || this.#left-- <= 0) throw error;
    const delay = error.retryDelayMs * (1 + Math.random() / 4); // so that clients do not return all at once
    if (Date.now() + delay >= this.#deadline) throw error;
    await sleep(delay, undefined, this.#signal ? { signal: this.#signal } : {});
  }
}

function pem(value: string | Uint8Array | undefined): Buffer | null {
  if (value === undefined) return null;
  if (typeof value !== "string") return Buffer.from(value);
  return value.includes("-----BEGIN") ? Buffer.from(value) : readFileSync(value);
}
