// The requests of the client: contract messages from the caller's values.

import { create, type DescMessage, isMessage, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { type ConversationParts, conversation, InvalidRequest, type MessageInit } from "./conversation.js";
import type { Conversation } from "./contract/tandem/chat/v1/chat_pb.js";
import {
  type GenerateRequest,
  GenerateRequestSchema,
  type GrammarSchema,
  HfTemplateSchema,
  type MediaSchema,
  type ResumeSchema,
  type ReturnOptionsSchema,
  type SamplingSchema,
  type StopSchema,
} from "./contract/tandem/generate/v1/generate_pb.js";
import { MediaKind } from "./contract/tandem/generate/v1/media_kind_pb.js";
import type { OutputSpecSchema } from "./contract/tandem/generate/v1/output_spec_pb.js";
import { ControlTokens } from "./contract/tandem/render/v1/render_pb.js";
import type {
  Attachment,
  RenderOptionsSchema,
  RenderResponse,
} from "./contract/tandem/render/v1/render_pb.js";

/** A conversation: messages in the shape of OpenAI and Hugging Face, or the contract's own. */
export type Messages = Conversation | Iterable<MessageInit>;

/** The parts of a conversation besides its messages, the model, and the options of rendering. */
export interface ConversationFields extends ConversationParts {
  model?: string;
  options?: MessageInitShape<typeof RenderOptionsSchema>;
}

/** The fields of RenderRequest. */
export interface RenderFields extends ConversationFields {
  returnTokenIds?: boolean;
  returnOffsets?: boolean;
  omitMedia?: boolean;
}

/** The fields that RunTaskRequest and GenerateRequest share. */
export interface GenerationFields {
  sampling?: MessageInitShape<typeof SamplingSchema>;
  stop?: MessageInitShape<typeof StopSchema>;
  returnOptions?: MessageInitShape<typeof ReturnOptionsSchema>;
  priority?: number;
  cacheSalt?: string;
  grammar?: MessageInitShape<typeof GrammarSchema>;
  outputSpec?: MessageInitShape<typeof OutputSpecSchema>;
}

/** The fields of RunTaskRequest. */
export interface TaskFields extends ConversationFields, GenerationFields {}

/** The fields of GenerateRequest, without the prompt. */
export interface GenerateFields extends GenerationFields {
  model?: string;
  expectedTokenizerSha256?: string;
  resume?: MessageInitShape<typeof ResumeSchema>;
  media?: MessageInitShape<typeof MediaSchema>[];
}

/** The fields of TokenizeRequest, without the text. */
export interface TokenizeFields {
  model?: string;
  addSpecialTokens?: boolean;
  returnOffsets?: boolean;
  controlTokens?: ControlTokens;
}

/** The fields of DetokenizeRequest, without the ids. */
export interface DetokenizeFields {
  model?: string;
  skipSpecialTokens?: boolean;
}

/** A prompt: its text, its token ids, or the response of `render`. */
export type Prompt = string | readonly number[] | RenderResponse;

type Dict = Record<string, unknown>;

/** Returns the bytes of a request with a conversation. */
export function withConversation(schema: DescMessage, messages: Messages, fields: object): Uint8Array {
  const { tools, documents, templateArgs, ...rest } = fields as ConversationParts & Dict;
  const parts = { ...(tools && { tools }), ...(documents && { documents }), ...(templateArgs && { templateArgs }) };
  return encoded(schema, { conversation: conversation(messages, parts), ...rest });
}

/** Returns the bytes of a message of the contract. An unknown name is an error, also without TypeScript. */
export function encoded(schema: DescMessage, fields: object): Uint8Array {
  checkNames(schema, fields, "");
  try {
    return toBinary(schema, create(schema, fields as MessageInitShape<DescMessage>));
  } catch (error) {
    throw new InvalidRequest("", (error as Error).message);
  }
}

function checkNames(schema: DescMessage, fields: object, path: string): void {
  if (isMessage(fields)) return;
  for (const [name, value] of Object.entries(fields)) {
    const place = path ? `${path}.${name}` : name;
    const oneof = schema.oneofs.find((oneof) => oneof.localName === name);
    const chosen = oneof ? (value as Dict).case : undefined;
    const field = oneof ? schema.field[String(chosen)] : schema.field[name];
    const isKnown = oneof ? chosen === undefined || field?.oneof === oneof : field && !field.oneof;
    if (!isKnown) throw new InvalidRequest(place, `${schema.name} has no such field`);
    if (!field?.message || field.fieldKind === "map") continue;
    const inner = oneof ? (value as Dict).value : value;
    const items = (field.fieldKind === "list" ? inner : [inner]) as unknown[];
    for (const item of items) if (typeof item === "object" && item !== null) checkNames(field.message, item, place);
  }
}

/** Returns the bytes of a GenerateRequest. */
export function generateRequest(prompt: Prompt, fields: GenerateFields): Uint8Array {
  const isText = typeof prompt === "string" || Array.isArray(prompt);
  const init = isText ? { input: input(prompt) } : rendered(prompt as RenderResponse);
  return encoded(GenerateRequestSchema, { ...init, ...fields });
}

function input(prompt: string | readonly number[]): GenerateRequest["input"] {
  if (typeof prompt === "string") return { case: "prompt", value: prompt };
  return { case: "tokenIds", value: { ids: [...prompt] } as never };
}

function rendered(response: RenderResponse): MessageInitShape<typeof GenerateRequestSchema> {
  const spec = response.outputSpec ? { outputSpec: response.outputSpec } : {};
  if (response.output.case === "hfMessages") {
    const { messagesJson, controlTokens, $typeName, $unknown, ...template } = response.output.value;
    const literalControlTokens = controlTokens === ControlTokens.LITERAL;
    const hfTemplate = create(HfTemplateSchema, { ...template, literalControlTokens });
    return { ...spec, input: { case: "hfMessagesJson", value: messagesJson }, hfTemplate };
  }
  if (response.output.case !== "prompt") throw new InvalidRequest("prompt", "the response has no output");
  const { text, tokenIds, attachments } = response.output.value;
  if (attachments.length > 0 && tokenIds.length > 0)
    throw new InvalidRequest("prompt", "has media and token ids: render it without token ids");
  const hash = response.fingerprint?.tokenizerSha256;
  const expected = hash ? { expectedTokenizerSha256: hash } : {};
  const prompt = input(tokenIds.length > 0 ? tokenIds : text);
  return { ...spec, ...expected, input: prompt, media: attachments.map(media) };
}

function media({ kind, path, source, mimeType, offset }: Attachment): MessageInitShape<typeof MediaSchema> {
  if (kind !== MediaKind.IMAGE || source.case !== "base64")
    throw new InvalidRequest(path, "must be an image whose data is in the request");
  return { kind: MediaKind.IMAGE, source: { case: "base64", value: source.value }, mimeType, offset };
}
