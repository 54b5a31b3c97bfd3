// The requests of the client: contract messages from the caller's values.

import { create, type DescMessage, toBinary } from "@bufbuild/protobuf";
import {
  type GenerateRequest,
  GenerateRequestSchema,
  HfTemplateSchema,
  type Media,
} from "./contract/tandem/generate/v1/generate_pb.js";
import { MediaKind } from "./contract/tandem/generate/v1/media_kind_pb.js";
import type { Conversation } from "./contract/tandem/chat/v1/chat_pb.js";
import { type ParseOutputRequest, ParseOutputRequestSchema } from "./contract/tandem/render/v1/parse_pb.js";
import { type Attachment, ControlTokens, type RenderResponse } from "./contract/tandem/render/v1/render_pb.js";
import { type ConversationParts, conversation, InvalidRequest, type MessageInit, toolList } from "./conversation.js";
import { message } from "./convert.js";
import type { Fields, GenerateFields, ParseFields } from "./fields.js";

/** A conversation: messages in the shape of OpenAI and Hugging Face, or the contract's own. */
export type Messages = Conversation | Iterable<MessageInit>;

/** A prompt: its text, its token ids, or the response of `render`. */
export type Prompt = string | readonly number[] | RenderResponse;

/** An output of a model: its text, or its token ids. */
export type Output = string | readonly number[];

type Dict = Record<string, unknown>;

/** Returns the bytes of a request with a conversation. */
export function withConversation(schema: DescMessage, messages: Messages, fields: object): Uint8Array {
  const { tools, documents, templateArgs, ...rest } = fields as ConversationParts & Dict;
  const parts = { ...(tools && { tools }), ...(documents && { documents }), ...(templateArgs && { templateArgs }) };
  return encoded(schema, { conversation: conversation(messages, parts), ...rest }, [
    "tools",
    "documents",
    "templateArgs",
  ]);
}

/** Returns the bytes of a message of the contract. An unknown name is an error, also without TypeScript. */
export function encoded(schema: DescMessage, fields: object, parts: readonly string[] = []): Uint8Array {
  return toBinary(schema, message(schema, fields, parts));
}

/** Returns the bytes of a GenerateRequest. */
export function generateRequest(prompt: Prompt, fields: GenerateFields): Uint8Array {
  const isText = typeof prompt === "string" || Array.isArray(prompt);
  const init = isText ? input(prompt) : rendered(prompt as RenderResponse);
  return encoded(GenerateRequestSchema, { ...init, ...fields });
}

/** Returns the bytes of a ParseOutputRequest. */
export function parseRequest(output: Output, { tools, ...fields }: ParseFields): Uint8Array {
  const isText = typeof output === "string";
  const init: Fields<ParseOutputRequest> = isText ? { text: output } : { tokens: { tokenIds: output } };
  return encoded(ParseOutputRequestSchema, { ...init, ...fields, ...(tools && { tools: toolList(tools) }) });
}

function input(prompt: string | readonly number[]): Fields<GenerateRequest> {
  return typeof prompt === "string" ? { prompt } : { tokenIds: { ids: prompt } };
}

function rendered(response: RenderResponse): Fields<GenerateRequest> {
  const spec = response.outputSpec ? { outputSpec: response.outputSpec } : {};
  if (response.output.case === "hfMessages") {
    const { messagesJson, controlTokens, $typeName, $unknown, ...template } = response.output.value;
    const literalControlTokens = controlTokens === ControlTokens.LITERAL;
    const hfTemplate = create(HfTemplateSchema, { ...template, literalControlTokens });
    return { ...spec, hfMessagesJson: messagesJson, hfTemplate };
  }
  if (response.output.case !== "prompt") throw new InvalidRequest("prompt", "the response has no output");
  const { text, tokenIds, attachments } = response.output.value;
  if (attachments.length > 0 && tokenIds.length > 0)
    throw new InvalidRequest("prompt", "has media and token ids: render it without token ids");
  const hash = response.fingerprint?.tokenizerSha256;
  const expected = hash ? { expectedTokenizerSha256: hash } : {};
  const prompt = input(tokenIds.length > 0 ? tokenIds : text);
  return { ...spec, ...expected, ...prompt, media: attachments.map(media) };
}

function media({ kind, path, source, mimeType, offset }: Attachment): Fields<Media> {
  if (kind !== MediaKind.IMAGE || source.case !== "base64")
    throw new InvalidRequest(path, "must be an image whose data is in the request");
  return { kind: "image", base64: source.value, mimeType, offset };
}
