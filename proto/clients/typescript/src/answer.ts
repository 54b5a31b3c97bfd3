// A streamed answer.

import type { GenMessage } from "@bufbuild/protobuf/codegenv2";
import { fromBinary } from "@bufbuild/protobuf";
import type { ServiceError } from "@grpc/grpc-js";
import type { Attempts, CallOptions, Connection } from "./connection.js";
import {
  type Accepted,
  type Delta,
  type Finished,
  FinishReason,
  type GenerateResponse,
  type Summary,
} from "./contract/tandem/generate/v1/generate_pb.js";
import type { OutputSpec, ReasoningMarkers } from "./contract/tandem/generate/v1/output_spec_pb.js";
import type { ParseWarning } from "./contract/tandem/render/v1/parse_pb.js";
import type { Warning } from "./contract/tandem/render/v1/render_pb.js";
import type { Rendered, RunTaskResponse, TaskFinished } from "./contract/tandem/task/v1/task_pb.js";
import { one, REQUEST_ID, StrictError, TandemError } from "./errors.js";
import {
  type AssistantMessage,
  outputSoFar,
  type ParsedOutput,
  parsedOutput,
  type Part,
  parts,
  type ToolCall,
} from "./parsed.js";

/** A response of RunTask or of Generate. */
export type Event = RunTaskResponse | GenerateResponse;

/** The totals of an answer: TaskFinished of RunTask, or Summary of Generate. */
export type Totals = TaskFinished | Summary;

/** The texts of reasoning markers that are tokens, as in render-svc. An output spec has only their ids. */
export const TOKENS = [
  ["<think>", "</think>"],
  ["[THINK]", "[/THINK]"],
  ["<|START_THINKING|>", "<|END_THINKING|>"],
  ["<seed:think>", "</seed:think>"],
  ["<|channel>", "<channel|>"],
  ["<reasoning>", "</reasoning>"],
  ["<mm:think>", "</mm:think>"],
] as const;

/** How the client reads an answer. */
export interface Reading {
  /** The output spec of the request, for an answer without the event `rendered`. */
  spec?: Pick<OutputSpec, "reasoning"> | undefined;
  /** True if the request has `parseOutput`. */
  isParsed?: boolean;
}

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
  totals?: Totals;
  /** The id of the call in the service's log. Unset before the first event. */
  requestId?: string;
  readonly #events: AsyncGenerator<E, void>;
  readonly #content: string[] = [];
  readonly #reasoning: string[] = [];
  readonly #parts: Part[] = [];
  #parsed?: ParsedOutput;
  #wasReasoning = false;
  #attempts?: Attempts;
  #isCancelled = false;
  #hasEnded = false;
  #hasOutput = false;

  constructor(
    private readonly connection: Connection,
    private readonly path: string,
    private readonly request: Uint8Array,
    private readonly response: GenMessage<E>,
    private readonly options: CallOptions,
    private readonly reading: Reading = {},
  ) {
    this.#events = this.#read();
  }

  /**
   * Why the first output ended: STOP, LENGTH, CANCELLED, DEADLINE, ERROR or GRAMMAR_LIMIT. After any other
   * reason than STOP, the answer is not complete. CANCELLED is also the reason after `cancel()`, an aborted
   * signal, and a loop that was left. Undefined until the output has ended.
   */
  get finishReason(): string | undefined {
    const reason = this.finishes.get(0)?.reason;
    if (reason === undefined) return this.#isCancelled ? "CANCELLED" : undefined;
    return FinishReason[reason] ?? String(reason);
  }

  /**
   * The assistant's message for the next turn: the first output's text so far, also after a cancellation. Its
   * reasoning is in `reasoning_content`, without the markers, and not in `content`. A request whose own
   * `outputSpec` has unusual markers gives their strings beside their ids.
   *
   * With `parseOutput: true` it has `content`, `reasoning_content` and `tool_calls` apart, by the rules of the
   * model.
   */
  get message(): AssistantMessage {
    if (this.reading.isParsed) return this.#output().message;
    const content = this.#content.join("");
    if (this.#reasoning.length === 0) return { role: "assistant", content };
    const markers = (this.rendered?.outputSpec ?? this.reading.spec)?.reasoning;
    const sections = this.#reasoning.map((section) => withoutMarkers(section, markers).replace(/^\n+|\n+$/g, ""));
    const reasoning = sections.filter(Boolean).join("\n");
    return { role: "assistant", content: content.replace(/^\n+/, ""), reasoning_content: reasoning };
  }

  /** The content so far, without white space around it. Needs `parseOutput: true`. */
  get content(): string {
    return this.#output().content;
  }

  /** The reasoning so far, without white space around it. Needs `parseOutput: true`. */
  get reasoning(): string {
    return this.#output().reasoning;
  }

  /** The complete tool calls so far, in order. Needs `parseOutput: true`. */
  get toolCalls(): ToolCall[] {
    return this.#output().toolCalls;
  }

  /** The warnings of the parts that could not be read, after the last event. Their text is content. */
  get parseWarnings(): ParseWarning[] {
    return this.#parsed?.warnings ?? [];
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

  /** Yields reasoning, content and tool calls as they arrive. Needs `parseOutput: true`. */
  parts(): AsyncGenerator<Part, void> {
    this.#checkParsed();
    return this.#readParts();
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

  /** Cancels the call. The iteration ends, and the service ends the generation. */
  cancel(): void {
    this.#isCancelled ||= !this.#hasEnded;
    this.#attempts?.cancel();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.cancel();
    await this.#events.return();
  }

  #checkParsed(): void {
    if (!this.reading.isParsed)
      throw new Error("the answer was not read for its parts: pass parseOutput: true to run");
  }

  /** Returns the parts so far. Throws if there can be none, so that no call is missed. */
  #output(): ParsedOutput {
    this.#checkParsed();
    if (this.#parsed) return this.#parsed;
    if (this.totals) throw new Error("the service has no parseOutput: it needs the version of the client");
    if (!this.rendered && !this.#isCancelled)
      throw new Error("the answer has not arrived: read it first, such as with its text()");
    return outputSoFar(this.#parts);
  }

  async *#readParts(): AsyncGenerator<Part, void> {
    for await (const { event } of this.events()) if (event.case === "parsed") yield* parts(event.value.deltas);
  }

  async *#read(): AsyncGenerator<E, void> {
    const attempts = (this.#attempts = this.connection.attempts(this.options));
    if (this.#isCancelled) attempts.cancel();
    try {
      while (!attempts.isCancelled) {
        const failure = yield* this.#attempt(attempts);
        if (attempts.isCancelled) break;
        this.#hasEnded = true; // unless the next line finds another attempt
        if (failure === undefined) return;
        await attempts.wait(failure, this.#hasOutput);
        this.#hasEnded = false;
      }
    } finally {
      attempts.end();
      this.cancel(); // unless the answer is complete or has failed
    }
  }

  /** Yields the events of one attempt. Returns its error. */
  async *#attempt(attempts: Attempts): AsyncGenerator<E, TandemError | undefined> {
    const parse = (bytes: Buffer) => fromBinary(this.response, bytes);
    const bytes = (request: Uint8Array) => Buffer.from(request);
    const { client } = this.connection;
    const stream = client.makeServerStreamRequest(this.path, bytes, parse, this.request, ...attempts.next());
    const unwatch = attempts.watch(stream);
    let headers: Parameters<typeof one>[0];
    stream.on("metadata", (metadata) => (headers = metadata));
    stream.on("error", () => {}); // After a cancellation, no reader gets the error.
    try {
      for await (const event of stream as AsyncIterable<E>) {
        if (attempts.isCancelled) return undefined;
        const id = one(headers, REQUEST_ID);
        if (id !== undefined) this.requestId = String(id);
        this.#add(event);
        yield event;
      }
      return undefined;
    } catch (error) {
      if (error instanceof StrictError) {
        this.#hasEnded = true;
        throw error;
      }
      return new TandemError(error as ServiceError, headers);
    } finally {
      unwatch();
      stream.cancel();
    }
  }

  #add({ event }: Event): void {
    this.connection.hasAnswered = true;
    this.#hasOutput ||= !["rendered", "accepted", "progress", undefined].includes(event.case);
    if (event.case === "delta") this.#addDelta(event.value);
    else if (event.case === "parsed") this.#parts.push(...parts(event.value.deltas));
    else if (event.case === "rendered") {
      this.rendered = event.value;
      this.connection.report(event.value.warnings, this.requestId);
    } else if (event.case === "accepted") this.accepted = event.value;
    else if (event.case === "summary") this.totals = event.value;
    else if (event.case === "finished" && "outputIndex" in event.value) this.#addFinished(event.value);
    else if (event.case === "finished") {
      const finished = event.value as TaskFinished;
      this.totals = finished;
      if (finished.parsed) this.#parsed = parsedOutput(finished.parsed);
      if (finished.finish) this.#addFinished(finished.finish);
    }
  }

  #addFinished(finished: Finished): void {
    this.finishes.set(finished.outputIndex, finished);
    this.connection.reportEnd(finished, this.parseWarnings, this.requestId);
  }

  #addDelta({ outputIndex, reasoning, text }: Delta): void {
    if (outputIndex || !text) return;
    if (!reasoning) this.#content.push(text);
    else if (this.#wasReasoning) this.#reasoning[this.#reasoning.length - 1] += text;
    else this.#reasoning.push(text);
    this.#wasReasoning = reasoning;
  }
}

/** Returns the text of one section of reasoning without its first and its last marker. */
export function withoutMarkers(section: string, markers: ReasoningMarkers | undefined): string {
  const { startStrings = [], endStrings = [], startTokenIds = [], endTokenIds = [] } = markers ?? {};
  const starts = [...startStrings, ...(startTokenIds.length > 0 ? TOKENS.map(([start]) => start) : [])];
  const ends = [...endStrings, ...(endTokenIds.length > 0 ? TOKENS.map(([, end]) => end) : [])];
  const text = section.slice(longest(starts, (start) => section.startsWith(start)));
  return text.slice(0, text.length - longest(ends, (end) => text.endsWith(end)));
}

/** Returns the length of the longest text that fits, or 0. */
function longest(texts: readonly string[], fits: (text: string) => boolean): number {
  return Math.max(0, ...texts.filter(fits).map((text) => text.length));
}
