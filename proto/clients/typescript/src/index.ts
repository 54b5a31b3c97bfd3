// A client of Tandem's gRPC services.
//
// The messages of the contract are in `tandem-client/contract/chat/v1/chat` and so on.

import { type DescMethodUnary, fromBinary, type MessageShape } from "@bufbuild/protobuf";
import { BinaryReader, BinaryWriter } from "@bufbuild/protobuf/wire";
import type { Metadata } from "@grpc/grpc-js";
import { Answer } from "./answer.js";
import { type Attempts, type CallOptions, cancelled, Connection, type Settings } from "./connection.js";
import {
  GenerateRequestSchema,
  GenerateResponseSchema,
  GenerateService,
  type GenerateResponse,
  type LoadedModel,
} from "./contract/tandem/generate/v1/generate_pb.js";
import { type ModelInfo, RegistryService } from "./contract/tandem/render/v1/registry_pb.js";
import {
  RenderRequestSchema,
  type RenderResponse,
  RenderService,
  type TokenizeResponse,
} from "./contract/tandem/render/v1/render_pb.js";
import {
  RunTaskRequestSchema,
  type RunTaskResponse,
  RunTaskResponseSchema,
  TaskService,
} from "./contract/tandem/task/v1/task_pb.js";
import { InvalidRequest } from "./conversation.js";
import { StrictError, TandemError } from "./errors.js";
import type {
  DetokenizeFields,
  GenerateFields,
  ParseFields,
  RenderFields,
  TaskFields,
  TokenizeFields,
} from "./fields.js";
import { type ParseResult, parseResult } from "./parsed.js";
import * as requests from "./requests.js";
import type { Messages, Output, Prompt } from "./requests.js";

export { Answer, type Event, type Totals } from "./answer.js";
export type { CallOptions, Settings } from "./connection.js";
export {
  type BlockInit,
  conversation,
  type ConversationParts,
  image,
  InvalidRequest,
  type Json,
  type MessageInit,
  type ToolCallInit,
  type ToolInit,
} from "./conversation.js";
export { StrictError, TandemError } from "./errors.js";
export type * from "./fields.js";
export type { AssistantMessage, ParsedOutput, ParseResult, Part, ToolCall, ToolCallDelta } from "./parsed.js";
export type { Messages, Output, Prompt } from "./requests.js";

const HEALTH = ["UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"];

/**
 * A client of one service: render-svc, or gen-svc for `generate` and `generationModel`.
 *
 * Every method throws TandemError if its call fails, and InvalidRequest if the contract cannot express its
 * arguments. The last argument of each has the deadline, the request id and the signal of the call.
 */
export class Tandem {
  readonly #connection: Connection;

  constructor(address: string, settings: Settings = {}) {
    this.#connection = new Connection(address, settings);
  }

  /** Closes the connection after the running calls. */
  close(): void {
    this.#connection.client.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  /**
   * Answers a conversation (RunTask). With `parseOutput: true`, the answer has `toolCalls`, `reasoning`, `content`
   * and `parts()`. `toolChoice: "required"` makes the answer call a tool, and `parallelToolCalls: false` one at most.
   */
  run(messages: Messages, fields: TaskFields = {}, options: CallOptions = {}): Answer<RunTaskResponse> {
    const request = requests.withConversation(RunTaskRequestSchema, messages, fields);
    const path = `/${TaskService.typeName}/RunTask`;
    const reading = { isParsed: fields.parseOutput === true };
    return new Answer(this.#connection, path, request, RunTaskResponseSchema, options, reading);
  }

  /** Continues a prompt: its text, its token ids, or the response of `render`. */
  generate(prompt: Prompt, fields: GenerateFields = {}, options: CallOptions = {}): Answer<GenerateResponse> {
    const path = `/${GenerateService.typeName}/Generate`;
    const request = requests.generateRequest(prompt, fields);
    const { outputSpec: spec } = fromBinary(GenerateRequestSchema, request);
    return new Answer(this.#connection, path, request, GenerateResponseSchema, options, { spec });
  }

  /** Renders a conversation. */
  async render(messages: Messages, fields: RenderFields = {}, options: CallOptions = {}): Promise<RenderResponse> {
    const request = requests.withConversation(RenderRequestSchema, messages, fields);
    const response = await this.#call(RenderService.method.render, request, options);
    this.#connection.report(response.warnings);
    return response;
  }

  /** Renders conversations. The failure of one is a result, not an error of the call. */
  async batchRender(
    given: Iterable<RenderFields & { messages: Messages }>,
    options: CallOptions = {},
  ): Promise<(RenderResponse | TandemError)[]> {
    // Concatenated messages with one field are one message with the field repeated.
    const parts = [...given].map(({ messages, ...fields }, i) => {
      try {
        const request = requests.withConversation(RenderRequestSchema, messages, fields);
        return new BinaryWriter().uint32(10).bytes(request).finish();
      } catch (error) {
        throw error instanceof InvalidRequest ? error.inside(`requests[${i}]`) : error;
      }
    });
    const response = await this.#call(RenderService.method.batchRender, Buffer.concat(parts), options);
    return response.results.map(({ outcome: { case: kind, value } }) => {
      return kind === "failure" ? TandemError.ofStatus(value) : this.#reported(value!);
    });
  }

  /** Reports the warnings of one result of a batch. An error for them is the result. */
  #reported(response: RenderResponse): RenderResponse | StrictError {
    try {
      this.#connection.report(response.warnings);
      return response;
    } catch (error) {
      if (error instanceof StrictError) return error;
      throw error;
    }
  }

  /** Returns the token ids of a text, and their offsets if requested. */
  tokenize(text: string, fields: TokenizeFields = {}, options: CallOptions = {}): Promise<TokenizeResponse> {
    const method = RenderService.method.tokenize;
    return this.#call(method, requests.encoded(method.input, { text, ...fields }), options);
  }

  /** Returns the text of token ids. */
  async detokenize(
    tokenIds: readonly number[],
    fields: DetokenizeFields = {},
    options: CallOptions = {},
  ): Promise<string> {
    const method = RenderService.method.detokenize;
    const request = requests.encoded(method.input, { tokenIds: [...tokenIds], ...fields });
    return (await this.#call(method, request, options)).text;
  }

  /** Reads an output of a model: its text, with the special tokens of calls and reasoning, or its token ids. */
  async parseOutput(output: Output, fields: ParseFields = {}, options: CallOptions = {}): Promise<ParseResult> {
    const request = requests.parseRequest(output, fields);
    const result = parseResult(await this.#call(RenderService.method.parseOutput, request, options));
    this.#connection.reportParsed(result.warnings);
    return result;
  }

  /** Lists the models of render-svc. */
  async models(options: CallOptions = {}): Promise<ModelInfo[]> {
    return (await this.#call(RegistryService.method.listModels, new Uint8Array(), options)).models;
  }

  /** Describes a model of render-svc. An empty name means the only one. */
  async model(name = "", options: CallOptions = {}): Promise<ModelInfo> {
    const method = RegistryService.method.getModel;
    return (await this.#call(method, requests.encoded(method.input, { model: name }), options)).model!;
  }

  /** Describes the model that gen-svc has loaded. */
  async generationModel(options: CallOptions = {}): Promise<LoadedModel> {
    return (await this.#call(GenerateService.method.getLoadedModel, new Uint8Array(), options)).model!;
  }

  /** Returns the health of a service, such as `tandem.task.v1.TaskService`: SERVING or NOT_SERVING. */
  async health(service = "", options: CallOptions = {}): Promise<string> {
    const request = new BinaryWriter().uint32(10).string(service).finish();
    const status = await this.#unary("/grpc.health.v1.Health/Check", request, readStatus, options);
    return HEALTH[status] ?? String(status);
  }

  #call<M extends DescMethodUnary>(
    method: M,
    request: Uint8Array,
    options: CallOptions,
  ): Promise<MessageShape<M["output"]>> {
    const parse = (bytes: Buffer) => fromBinary<M["output"]>(method.output, bytes);
    return this.#unary(`/${method.parent.typeName}/${method.name}`, request, parse, options);
  }

  async #unary<T>(path: string, request: Uint8Array, parse: (bytes: Buffer) => T, options: CallOptions): Promise<T> {
    const attempts = this.#connection.attempts(options);
    try {
      for (;;) {
        const outcome = await this.#attempt(path, request, parse, attempts);
        if (!(outcome instanceof TandemError)) {
          this.#connection.hasAnswered = true;
          return outcome;
        }
        if (!attempts.isCancelled) await attempts.wait(outcome);
        if (attempts.isCancelled) throw cancelled();
      }
    } finally {
      attempts.end();
    }
  }

  #attempt<T>(
    path: string,
    request: Uint8Array,
    parse: (bytes: Buffer) => T,
    attempts: Attempts,
  ): Promise<T | TandemError> {
    const [metadata, options] = attempts.next();
    return new Promise((resolve) => {
      let headers: Metadata | undefined;
      const bytes = (request: Uint8Array) => Buffer.from(request);
      const { client } = this.#connection;
      const call = client.makeUnaryRequest(path, bytes, parse, request, metadata, options, (error, value) => {
        unwatch();
        resolve(error ? new TandemError(error, headers) : (value as T));
      });
      call.on("metadata", (received) => (headers = received));
      const unwatch = attempts.watch(call);
    });
  }
}

/** Returns the number of the status in a HealthCheckResponse. */
function readStatus(bytes: Uint8Array): number {
  const reader = new BinaryReader(bytes);
  let status = 0;
  while (reader.pos < reader.len) {
    const [field, type] = reader.tag();
    if (field === 1) status = reader.int32();
    else reader.skip(type);
  }
  return status;
}
