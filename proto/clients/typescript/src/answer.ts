// A streamed answer.

import type { GenMessage } from "@bufbuild/protobuf/codegenv2";
import { fromBinary } from "@bufbuild/protobuf";
import type { Client, ServiceError } from "@grpc/grpc-js";
import { type Attempts } from "./connection.js";
import {
  type Accepted,
  type Delta,
  type Finished,
  FinishReason,
  type GenerateResponse,
  type Summary,
} from "./contract/tandem/generate/v1/generate_pb.js";
import type { Warning } from "./contract/tandem/render/v1/render_pb.js";
import type { Rendered, RunTaskResponse, TaskFinished } from "./contract/tandem/task/v1/task_pb.js";
import { one, REQUEST_ID, TandemError } from "./errors.js";

/** A response of RunTask or of Generate. */
export type Event = RunTaskResponse | GenerateResponse;

/**
 * An answer that is streamed. Iterating yields its text, without reasoning, as it arrives. Leaving a loop
 * over it cancels the call, and so does `await using`.
 *
 * The call starts when the answer is first read. After the last text, `finishReason`, `message`, `totals`
 * and `warnings` are set.
 */
export class Answer<E extends Event> implements AsyncIterable<string>, AsyncDisposable {
  /** The event `rendered` of RunTask: adapter, warnings, fingerprint, output spec. */
  rendered?: Rendered;
  /** The event `accepted`: all parameters with their defaults. */
  accepted?: Accepted;
  /** The end of each output, by its index. */
  readonly finishes = new Map<number, Finished>();
  /** `usage`, `timings` and `seed`. Unset until the answer is complete. */
  totals?: TaskFinished | Summary;
  /** The id of the call in the service's log. Unset before the first event. */
  requestId?: string;
  readonly #events: AsyncGenerator<E, void>;
  #cancel?: () => void;
  #hasOutput = false;

  constructor(
    private readonly client: Client,
    private readonly path: string,
    private readonly request: Uint8Array,
    private readonly response: GenMessage<E>,
    private readonly start: () => Attempts,
  ) {
    this.#events = this.#read();
  }

  /**
   * Why the first output ended: STOP, LENGTH, CANCELLED, DEADLINE, ERROR or GRAMMAR_LIMIT. After any other
   * reason than STOP, the answer is not complete. Undefined until the output has ended.
   */
  get finishReason(): string | undefined {
    const reason = this.finishes.get(0)?.reason;
    return reason === undefined ? undefined : (FinishReason[reason] ?? String(reason));
  }

  /** The assistant's message of a task, for the next turn. It contains the reasoning too. */
  get message(): { role: string; content: string } | undefined {
    const message = this.totals && "message" in this.totals ? this.totals.message : undefined;
    return message?.content.case === "text" ? { role: message.role, content: message.content.value } : undefined;
  }

  /** The warnings of rendering. */
  get warnings(): Warning[] {
    return this.rendered?.warnings ?? [];
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<string, void> {
    for await (const delta of this.deltas()) if (!delta.reasoning && !delta.outputIndex && delta.text) yield delta.text;
  }

  /** Yields all deltas: of every output, with reasoning, and with token ids if requested. */
  async *deltas(): AsyncGenerator<Delta, void> {
    for await (const { event } of this.events()) if (event.case === "delta") yield event.value;
  }

  /** Yields every event of the contract. A retry repeats the events before the first output. */
  events(): AsyncGenerator<E, void> {
    return this.#events;
  }

  /** Reads the rest of the answer, and returns its text without reasoning. */
  async text(): Promise<string> {
    let text = "";
    for await (const part of this) text += part;
    return text;
  }

  /** Cancels the call. The service ends the generation. */
  cancel(): void {
    this.#cancel?.();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.cancel();
    await this.#events.return();
  }

  async *#read(): AsyncGenerator<E, void> {
    const attempts = this.start();
    for (;;) {
      const parse = (bytes: Buffer) => fromBinary(this.response, bytes);
      const bytes = (request: Uint8Array) => Buffer.from(request);
      const stream = this.client.makeServerStreamRequest(this.path, bytes, parse, this.request, ...attempts.next());
      const unwatch = attempts.watch(stream);
      let headers: Parameters<typeof one>[0];
      stream.on("metadata", (metadata) => (headers = metadata));
      stream.on("error", () => {}); // After a cancellation, no reader gets the error.
      this.#cancel = () => stream.cancel();
      try {
        for await (const event of stream as AsyncIterable<E>) {
          const id = one(headers, REQUEST_ID);
          if (id !== undefined) this.requestId = String(id);
          this.#add(event);
          yield event;
        }
        return;
      } catch (error) {
        await attempts.wait(new TandemError(error as ServiceError, headers), this.#hasOutput);
      } finally {
        unwatch();
        stream.cancel();
      }
    }
  }

  #add({ event }: Event): void {
    this.#hasOutput ||= !["rendered", "accepted", "progress", undefined].includes(event.case);
    if (event.case === "rendered") this.rendered = event.value;
    else if (event.case === "accepted") this.accepted = event.value;
    else if (event.case === "summary") this.totals = event.value;
    else if (event.case === "finished" && "outputIndex" in event.value)
      this.finishes.set(event.value.outputIndex, event.value);
    else if (event.case === "finished") {
      this.totals = event.value as TaskFinished;
      if (this.totals.finish) this.finishes.set(0, this.totals.finish);
    }
  }
}
