// Converts a conversation in the shape of OpenAI and Hugging Face to the contract's messages.
//
// The chat template gets every key and value as the caller gives it. A key for which the contract has
// no field is sent in the message's `extra_json`, or as part of a block's JSON, or is an error.

import { readFileSync } from "node:fs";
import { extname } from "node:path";
import { create, isMessage, type MessageInitShape } from "@bufbuild/protobuf";
import {
  type Block,
  BlockSchema,
  type ChatMessage,
  ChatMessageSchema,
  type Conversation,
  ConversationSchema,
  type Tool,
  type ToolCall,
  ToolCallSchema,
  ToolSchema,
} from "./contract/tandem/chat/v1/chat_pb.js";

/**
 * A JSON object, or JSON text.
 *
 * Prompts depend on the order of keys and on the spelling of numbers. `JSON.stringify` CHANGES BOTH: 1.0
 * becomes 1, integers above 2^53 lose digits, and keys such as "10" are sorted before others. Text is
 * sent unchanged. So pass JSON text on as it is, and never parse it first.
 */
export type Json = string | { readonly [key: string]: unknown };

/** An image, an audio recording or a video, with one source. `image()` makes it from a file. */
export interface MediaInit {
  readonly type: "image" | "audio" | "video";
  /** The content of the file. */
  readonly data?: Uint8Array;
  readonly base64?: string;
  readonly url?: string;
  readonly path?: string;
  /** The id of an entry of `templateArgs.attachments`. */
  readonly attachment_id?: string;
  readonly mime_type?: string;
}

/** A block of content, such as `{ type: "text", text: "Hi" }`. A block of any other type is its JSON text. */
export type BlockInit =
  | Block
  | string
  | MediaInit
  | { readonly type: "text"; readonly text: string }
  | { readonly type: "image_url"; readonly image_url: { readonly url: string; readonly detail?: string } }
  | { readonly type: "tool_use"; readonly id?: string; readonly name: string; readonly input?: Json }
  | {
      readonly type: "tool_result";
      readonly tool_use_id?: string;
      readonly content?: string | null | readonly BlockInit[];
      readonly is_error?: boolean;
    };

/** A tool call. `arguments` is JSON text, as models write it, or an object. */
export type ToolCallInit = ToolCall | { id?: string; type?: "function"; function: { name: string; arguments?: Json } };

/** A message, such as `{ role: "user", content: "Hi" }`. */
export type MessageInit =
  | ChatMessage
  | {
      readonly role: string;
      readonly content?: string | null | readonly BlockInit[];
      /** The reasoning before the assistant's answer. */
      readonly reasoning_content?: string | null;
      readonly tool_calls?: readonly ToolCallInit[] | null;
      /** The id of the answered call, in a tool's message. */
      readonly tool_call_id?: string | null;
      /** The name of the speaker or of the tool. */
      readonly name?: string | null;
    };

/** A tool that the model may call. A tool of any other shape is its JSON text. */
export type ToolInit =
  | string
  | {
      readonly type: "function";
      readonly function: {
        readonly name: string;
        readonly description?: string;
        /** A JSON schema. */
        readonly parameters?: { readonly [key: string]: unknown };
        readonly strict?: boolean;
      };
    }
  | {
      readonly name: string;
      readonly description?: string;
      readonly input_schema: { readonly [key: string]: unknown };
    };

/** The parts of a conversation besides its messages. */
export interface ConversationParts {
  tools?: readonly ToolInit[];
  documents?: readonly Json[];
  templateArgs?: Json;
}

/** A request that the contract cannot express. It was not sent. */
export class InvalidRequest extends Error {
  override readonly name = "InvalidRequest";

  /** `field` is the place in the caller's value, such as `messages[2].content[0]`. */
  constructor(
    readonly field: string,
    readonly problem: string,
  ) {
    super(field ? `${field}: ${problem}` : problem);
  }

  /** Returns the same error for a value inside another one. */
  inside(place: string): InvalidRequest {
    return new InvalidRequest(this.field ? `${place}.${this.field}` : place, this.problem);
  }
}

type Dict = Readonly<Record<string, unknown>>;

const MEDIA = ["image", "audio", "video"];
const MIME_TYPES: Readonly<Record<string, string>> = {
  ".png": "image/png",
  ".jpg": "image/jpeg",
  ".jpeg": "image/jpeg",
  ".gif": "image/gif",
  ".webp": "image/webp",
  ".bmp": "image/bmp",
};

/** Returns the contract's conversation. Throws InvalidRequest for a value that has no place in it. */
export function conversation(messages: Conversation | Iterable<MessageInit>, parts: ConversationParts = {}) {
  if (isMessage(messages, ConversationSchema)) return messages;
  const { tools = [], documents = [], templateArgs } = parts;
  return create(ConversationSchema, {
    messages: list(messages, "messages").map((given, i) => message(given, `messages[${i}]`)),
    tools: toolList(tools),
    documents: list(documents, "documents").map((document, i) => ({ documentJson: json(document, `documents[${i}]`) })),
    ...(templateArgs === undefined ? {} : { templateArgsJson: json(templateArgs, "templateArgs") }),
  });
}

/** Returns the contract's tools. */
export function toolList(tools: Iterable<ToolInit>): Tool[] {
  return list(tools, "tools").map((tool, i) =>
    create(ToolSchema, { kind: { case: "toolJson", value: json(tool, `tools[${i}]`) } }),
  );
}

/** Returns the block of an image: a file's path, or the bytes of an encoded image. */
export function image(source: string | Uint8Array, mimeType?: string): MediaInit {
  const mime = mimeType ?? (typeof source === "string" ? MIME_TYPES[extname(source).toLowerCase()] : undefined);
  const data = typeof source === "string" ? readFileSync(source) : source;
  return { type: "image", data, ...(mime ? { mime_type: mime } : {}) };
}

function message(given: unknown, field: string): ChatMessage {
  if (isMessage(given, ChatMessageSchema)) return given;
  const init: MessageInitShape<typeof ChatMessageSchema> = {};
  const extra: Record<string, unknown> = {};
  for (const [key, value] of Object.entries(object(given, field, "an object with a role and content"))) {
    if (key === "role") init.role = text(value, `${field}.role`);
    else if (key === "content") init.content = content(value, `${field}.content`);
    else if (key === "tool_calls" && value)
      init.toolCalls = list(value, `${field}.tool_calls`).map((call, i) => toolCall(call, `${field}.tool_calls[${i}]`));
    else if (key === "reasoning_content" && typeof value === "string") init.reasoningContent = value;
    else if (key === "tool_call_id" && typeof value === "string") init.toolCallId = value;
    else if (key === "name" && typeof value === "string") init.name = value;
    else if (value !== undefined) extra[key] = value;
  }
  if (Object.keys(extra).length > 0) init.extraJson = json(extra, field);
  return create(ChatMessageSchema, init);
}

function content(value: unknown, field: string) {
  if (value === null || value === undefined) return { case: undefined };
  if (typeof value === "string") return { case: "text" as const, value };
  if (!Array.isArray(value)) throw new InvalidRequest(field, "must be text, null or a list of blocks");
  return { case: "blocks" as const, value: { blocks: value.map((item, i) => block(item, `${field}[${i}]`)) } };
}

function block(value: unknown, field: string): Block {
  if (isMessage(value, BlockSchema)) return value;
  if (typeof value === "string") return other(value);
  const given = object(value, field, "an object with a type, or its JSON text");
  const { type } = given;
  if (type === "text" && typeof given.text === "string" && has(given, ["type", "text"]))
    return create(BlockSchema, { kind: { case: "text", value: { text: given.text } } });
  if (MEDIA.includes(type as string) && given.data instanceof Uint8Array) return media(given, given.data, field);
  if (type === "tool_use" && typeof given.input === "string") {
    only(given, ["type", "id", "name", "input"], field);
    const name = text(given.name, `${field}.name`);
    const value = { name, inputJson: given.input, ...optional("id", given.id, `${field}.id`) };
    return create(BlockSchema, { kind: { case: "toolUse", value } });
  }
  if (type === "tool_result" && has(given, ["type", "tool_use_id", "content", "is_error"])) {
    const id = optional("toolUseId", given.tool_use_id, `${field}.tool_use_id`);
    if (typeof (given.is_error ?? false) !== "boolean")
      throw new InvalidRequest(`${field}.is_error`, "must be true or false");
    const isError = typeof given.is_error === "boolean" ? { isError: given.is_error } : {};
    const value = { content: content(given.content, `${field}.content`), ...id, ...isError };
    return create(BlockSchema, { kind: { case: "toolResult", value } });
  }
  return other(json(given, field));
}

function other(text: string): Block {
  return create(BlockSchema, { kind: { case: "otherJson", value: text } });
}

/** Returns the block of a media file's bytes. Only JSON has a place for further keys. */
function media(given: Dict, data: Uint8Array, field: string): Block {
  if (!has(given, ["type", "data", "mime_type"])) {
    const keys = Object.entries(given).filter(([key]) => key !== "data");
    return other(json({ ...Object.fromEntries(keys), base64: Buffer.from(data).toString("base64") }, field));
  }
  const mimeType = given.mime_type === undefined ? "" : text(given.mime_type, `${field}.mime_type`);
  const source = { case: "data" as const, value: data };
  return create(BlockSchema, { kind: { case: given.type as "image", value: { source, mimeType } } });
}

function toolCall(given: unknown, field: string): ToolCall {
  if (isMessage(given, ToolCallSchema)) return given;
  const call = object(given, field, "an object { id, type, function: { name, arguments } }");
  const made = object(call.function, `${field}.function`, "an object { name, arguments }");
  only(call, ["id", "type", "function"], field);
  only(made, ["name", "arguments"], `${field}.function`);
  if ((call.type ?? "function") !== "function") throw new InvalidRequest(`${field}.type`, 'must be "function"');
  return create(ToolCallSchema, {
    ...optional("id", call.id, `${field}.id`),
    name: text(made.name, `${field}.function.name`),
    argumentsJson: json(made.arguments ?? "{}", `${field}.function.arguments`),
  });
}

/** Returns the JSON text of an object. Text is returned unchanged; the service parses it. */
export function json(value: unknown, field: string): string {
  if (typeof value === "string") return value;
  function check(this: Dict, key: string, converted: unknown): unknown {
    const item = this[key]; // before toJSON, which a Buffer has
    const isLost = ["function", "symbol", "bigint"].includes(typeof item) || ArrayBuffer.isView(item);
    if (isLost || (typeof item === "number" && !Number.isFinite(item)))
      throw new InvalidRequest(field, `cannot be JSON at the key ${JSON.stringify(key)}: pass JSON text`);
    return converted;
  }
  return JSON.stringify(object(value, field, "an object, or JSON text"), check);
}

function object(value: unknown, field: string, wanted: string): Dict {
  if (typeof value === "object" && value !== null && !Array.isArray(value)) return value as Dict;
  throw new InvalidRequest(field, `must be ${wanted}`);
}

function text(value: unknown, field: string): string {
  if (typeof value === "string") return value;
  throw new InvalidRequest(field, "must be text");
}

function optional<K extends string>(key: K, value: unknown, field: string): { [key in K]?: string } {
  const isSet = value !== undefined && value !== null;
  return (isSet ? { [key]: text(value, field) } : {}) as { [key in K]?: string };
}

/** Returns the items of a list, which an object or a text is not. */
function list(values: unknown, field: string): unknown[] {
  if (typeof values === "object" && values !== null && Symbol.iterator in values)
    return [...(values as Iterable<unknown>)];
  throw new InvalidRequest(field, "must be a list");
}

function has(given: Dict, known: readonly string[]): boolean {
  return Object.keys(given).every((key) => known.includes(key));
}

function only(given: Dict, known: readonly string[], field: string): void {
  const key = Object.keys(given).find((key) => !known.includes(key));
  if (key === undefined) return;
  throw new InvalidRequest(field, `the contract has no place for the key ${JSON.stringify(key)}`);
}
