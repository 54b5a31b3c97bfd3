// Channels, credentials and retries.

import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import {
  type CallOptions as GrpcOptions,
  type ChannelOptions,
  Client,
  credentials,
  Metadata,
  status,
} from "@grpc/grpc-js";
import { type Finished, OutputWarning } from "./contract/tandem/generate/v1/generate_pb.js";
import { type ParseWarning, ParseWarningCode } from "./contract/tandem/render/v1/parse_pb.js";
import { type Warning, WarningCode } from "./contract/tandem/render/v1/render_pb.js";
import { type Notice, REQUEST_ID, StrictError, TandemError } from "./errors.js";

/** The largest response: 256 MiB of BatchRender's results, and their frames. gRPC's default is 4 MiB. */
export const MAX_MESSAGE_BYTES = 264 * 2 ** 20;

/** Milliseconds between the attempts to connect: they double from the first to the last. */
const [FIRST_BACKOFF, LAST_BACKOFF] = [200, 2000];

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
  /** The maximum number of retries of a call. 0 also disables those of refused connections. Default: 4. */
  retries?: number;
  /** Throw StrictError for a warning of the service, instead of writing it to `console.warn`. */
  strict?: boolean;
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
  /** Cancels the call. The iteration over an answer then ends; any other call fails with the code CANCELLED. */
  signal?: AbortSignal;
}

/** The channel of a client, which connects with the first call, and the state of its calls. */
export class Connection {
  readonly client: Client;
  /** True after the first response of the service. */
  hasAnswered = false;
  readonly #target: string;
  readonly #isSecured: boolean;
  readonly #logged = new Set<string>();
  #hasLoggedRetry = false;

  constructor(
    address: string,
    readonly settings: Settings,
  ) {
    const [, scheme, target] = /^(?:(https?):\/\/)?([^/]+)\/?$/.exec(address) ?? [];
    if (target === undefined)
      throw new TypeError(`address ${address} must be HOST:PORT, http://HOST:PORT or https://HOST:PORT`);
    const { ca, cert, key } = settings;
    this.#target = target;
    this.#isSecured = Boolean(settings.tls || scheme === "https" || ca || cert || key);
    const secured = () => credentials.createSsl(pem(ca), pem(key), pem(cert));
    this.client = new Client(target, this.#isSecured ? secured() : credentials.createInsecure(), {
      "grpc.max_receive_message_length": settings.maxMessageBytes ?? MAX_MESSAGE_BYTES,
      "grpc.max_send_message_length": -1, // the service has the limit, and a typed error
      // The services accept any rate of pings, and ping every 30 seconds too.
      "grpc.keepalive_time_ms": 30_000,
      "grpc.keepalive_timeout_ms": 20_000,
      "grpc.initial_reconnect_backoff_ms": FIRST_BACKOFF,
      "grpc.max_reconnect_backoff_ms": LAST_BACKOFF,
      "grpc.service_config_disable_resolution": 1,
      "grpc.primary_user_agent": "tandem-client",
      ...settings.channelOptions,
    });
  }

  /** Starts the time of a call. */
  attempts(options: CallOptions): Attempts {
    return new Attempts(this, options);
  }

  /** Writes the warnings of rendering to `console.warn`, each code once, or throws StrictError for them. */
  report(warnings: readonly Warning[], requestId?: string): void {
    const notices = warnings.map(({ code, path, text }) => ({ code: WarningCode[code] ?? String(code), path, text }));
    this.#report(notices, warnings, requestId);
  }

  /** Reports the warnings of the end of an output, and of its parts. */
  reportEnd(finished: Finished, parsed: readonly ParseWarning[], requestId?: string): void {
    const codes = finished.warnings.map((code) => OutputWarning[code] ?? String(code));
    const notices = [...codes.map((code) => ({ code, path: "", text: "" })), ...parsed.map(parseNotice)];
    this.#report(notices, [], requestId, parsed);
  }

  /** Reports the warnings of an output that was read for its parts. */
  reportParsed(warnings: readonly ParseWarning[]): void {
    this.#report(warnings.map(parseNotice), [], undefined, warnings);
  }

  #report(
    notices: readonly Notice[],
    warnings: readonly Warning[],
    requestId?: string,
    parsed: readonly ParseWarning[] = [],
  ): void {
    const [first] = notices;
    if (first && this.settings.strict) throw new StrictError(warnings, first, requestId, parsed);
    for (const { code, path, text } of notices) {
      if (this.#logged.has(code)) continue;
      this.#logged.add(code);
      console.warn(["tandem", code, path, text].filter(Boolean).join(": "));
    }
  }

  /** Writes to `console.warn` that calls wait for a service, once. */
  logRetry(error: TandemError): void {
    if (!this.#hasLoggedRetry)
      console.warn(`tandem: no service answers at ${this.#target}, retrying: ${error.message}`);
    this.#hasLoggedRetry = true;
  }

  /** Returns the remedy if one side of the connection has TLS and the other has not. */
  hint(error: TandemError): string | undefined {
    if (!error.isUnreachable || this.hasAnswered) return undefined;
    if (this.#isSecured && /wrong version number|packet length too long/i.test(error.message))
      return `the service has no TLS: use http://${this.#target}, without certificates`;
    const isClosed = /Failed to connect|connection dropped|ECONNRESET/i.test(error.message);
    return !this.#isSecured && isClosed ? `if the service has TLS, use https://${this.#target}` : undefined;
  }
}

/** The bounded attempts of one call, within its deadline. */
export class Attempts {
  readonly #deadline: number;
  readonly #stop = new AbortController();
  readonly #outer: AbortSignal | undefined;
  readonly #requestId: string | undefined;
  readonly #cancel = () => this.#stop.abort();
  #left: number;
  #backoff = FIRST_BACKOFF;
  #hints = 0;

  constructor(
    readonly connection: Connection,
    options: CallOptions,
  ) {
    const { settings } = connection;
    this.#deadline = Date.now() + (options.timeoutMs ?? settings.timeoutMs ?? Infinity);
    this.#requestId = options.requestId;
    this.#left = settings.retries ?? 4;
    this.#outer = options.signal;
    if (this.#outer?.aborted) this.cancel();
    this.#outer?.addEventListener("abort", this.#cancel, { once: true });
  }

  /** Cancels the running attempt, or the wait for the next. */
  cancel(): void {
    this.#cancel();
  }

  get isCancelled(): boolean {
    return this.#stop.signal.aborted;
  }

  /** Ends the use of the caller's signal, after the call. */
  end(): void {
    this.#outer?.removeEventListener("abort", this.#cancel);
  }

  /** Returns the metadata and the options of the next attempt. */
  next(): [Metadata, GrpcOptions] {
    const metadata = new Metadata();
    const { token } = this.connection.settings;
    if (token !== undefined) metadata.set("authorization", `Bearer ${typeof token === "string" ? token : token()}`);
    if (this.#requestId !== undefined) metadata.set(REQUEST_ID, this.#requestId);
    return [metadata, { deadline: this.#deadline }];
  }

  /** Cancels a running attempt with the call. Returns a function that ends this. */
  watch(attempt: { cancel(): void }): () => void {
    const cancel = () => attempt.cancel();
    const { signal } = this.#stop;
    if (signal.aborted) cancel();
    signal.addEventListener("abort", cancel, { once: true });
    return () => signal.removeEventListener("abort", cancel);
  }

  /**
   * Waits until the next attempt, or throws the error. A call is repeated if the service asks for it or no
   * service answered, before any output, and within the deadline. Without a deadline, the number of retries
   * bounds both.
   */
  async wait(error: TandemError, hasOutput = false): Promise<void> {
    this.connection.hasAnswered ||= error.reason !== "";
    const hint = this.connection.hint(error);
    if (hint !== undefined) error.message += ` (${hint})`;
    let delay = hasOutput ? undefined : this.#delay(error, hint !== undefined);
    const remaining = this.#deadline - Date.now();
    if (delay !== undefined && delay >= remaining) {
      // An attempt to connect needs little time: one more is made before the deadline.
      const isWorthwhile = error.retryDelayMs === undefined && remaining > 2 * FIRST_BACKOFF;
      delay = isWorthwhile ? remaining / 2 : undefined;
    }
    if (delay === undefined) throw error;
    if (error.retryDelayMs === undefined) this.connection.logRetry(error);
    await sleep(delay, undefined, { signal: this.#stop.signal }).catch(() => {}); // a cancellation ends the wait
  }

  #delay(error: TandemError, hasHint: boolean): number | undefined {
    if ((this.connection.settings.retries ?? 4) <= 0) return undefined;
    const jitter = 1 + Math.random() / 4; // so that clients do not return all at once
    if (error.retryDelayMs !== undefined) return this.#take() ? error.retryDelayMs * jitter : undefined;
    if (!error.isUnreachable || (this.#deadline === Infinity && !this.#take())) return undefined;
    if (hasHint) this.#hints++;
    const isHandshake = /certificate|wrong version number|SSL routines|altnames/i.test(error.message);
    if (isHandshake || this.#hints > 1) return undefined; // another attempt meets the same certificates
    const delay = this.#backoff;
    this.#backoff = Math.min(2 * delay, LAST_BACKOFF);
    return delay * jitter;
  }

  #take(): boolean {
    return this.#left-- > 0;
  }
}

/** Returns the error of a call that its caller has cancelled. */
export function cancelled(): TandemError {
  return TandemError.ofClient(status.CANCELLED, "cancelled by the caller");
}

function parseNotice({ code, text }: ParseWarning): Notice {
  return { code: ParseWarningCode[code] ?? String(code), path: "", text };
}

function pem(value: string | Uint8Array | undefined): Buffer | null {
  if (value === undefined) return null;
  if (typeof value !== "string") return Buffer.from(value);
  return value.includes("-----BEGIN") ? Buffer.from(value) : readFileSync(value);
}
