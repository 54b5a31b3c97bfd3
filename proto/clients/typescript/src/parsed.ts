// The parts of an answer: reasoning, content and tool calls.

import { create } from "@bufbuild/protobuf";
import { type ChatMessage, ChatMessageSchema, ToolCallSchema } from "./contract/tandem/chat/v1/chat_pb.js";
import {
  type ParsedDelta,
  type ParsedOutput as ContractOutput,
  ParsedOutputSchema,
  type ParseOutputResponse,
  type ParseWarning,
} from "./contract/tandem/render/v1/parse_pb.js";

/** A tool call of an answer, in OpenAI's shape. */
export interface ToolCall {
  id: string;
  type: "function";
  /** `arguments` is JSON text. Pass that text on, and parse it only to run the tool. */
  function: { name: string; arguments: string };
}

/** A tool call, or more of it, in the shape of OpenAI's chunks. */
export interface ToolCallDelta {
  /** In the first part of the call. */
  id?: string;
  type: "function";
  /** `name` is in the first part of the call. `arguments` is more of the JSON text. */
  function: { name?: string; arguments: string };
}

/** A part of an answer. The texts of one kind together are the answer's. */
export type Part =
  | { kind: "reasoning"; text: string }
  | { kind: "content"; text: string }
  /** `index` is that of the call in the answer, counted from 0. */
  | { kind: "toolCall"; index: number; call: ToolCallDelta };

/** The assistant's message, for the next turn. */
export interface AssistantMessage {
  role: "assistant";
  /** null if there are tool calls and no content. */
  content: string | null;
  reasoning_content?: string;
  tool_calls?: ToolCall[];
}

/** An output of a model with its parts apart. */
export interface ParsedOutput {
  /** The assistant's message for the next turn. */
  message: AssistantMessage;
  /** The content, without white space around it. */
  content: string;
  /** The reasoning, without white space around it. */
  reasoning: string;
  /** The calls, in order. */
  toolCalls: ToolCall[];
  /** The parts that the rules could not read. Their text is content. */
  warnings: ParseWarning[];
}

/** The result of `parseOutput`. */
export interface ParseResult extends ParsedOutput {
  /** The name of the rules that read the output. */
  rules: string;
}

/** Returns the result of a response of ParseOutput. */
export function parseResult({ output, rules }: ParseOutputResponse): ParseResult {
  return { ...parsedOutput(output ?? create(ParsedOutputSchema)), rules };
}

/** Returns the parts of deltas. A kind of a later version is left out. */
export function parts(deltas: readonly ParsedDelta[]): Part[] {
  return deltas.flatMap(({ part }): Part[] => {
    if (part.case === "reasoning" || part.case === "content") return [{ kind: part.case, text: part.value }];
    if (part.case !== "toolCall") return [];
    const { index, id, name, argumentsJson } = part.value;
    const made = { ...(name && { name }), arguments: argumentsJson };
    return [{ kind: "toolCall", index, call: { ...(id && { id }), type: "function", function: made } }];
  });
}

/** Returns an output of the contract as plain objects. */
export function parsedOutput({ message, warnings }: ContractOutput): ParsedOutput {
  const { content: given, reasoningContent: reasoning = "", toolCalls: calls, extraJson } = message ?? emptyMessage();
  const content = given.case === "text" ? given.value : "";
  const toolCalls = calls.map(({ id = "", name, argumentsJson }): ToolCall => {
    return { id, type: "function", function: { name, arguments: argumentsJson } };
  });
  const extra = extraJson ? (JSON.parse(extraJson) as object) : {};
  const made: AssistantMessage = { ...extra, role: "assistant", content };
  if (reasoning) made.reasoning_content = reasoning;
  if (toolCalls.length > 0) {
    made.content ||= null;
    made.tool_calls = toolCalls;
  }
  return { message: made, content, reasoning, toolCalls, warnings };
}

/** Returns the output whose parts have arrived so far. A call whose arguments are not complete is left out. */
export function outputSoFar(given: readonly Part[]): ParsedOutput {
  const message = emptyMessage();
  let [content, reasoning] = ["", ""];
  for (const part of given) {
    if (part.kind === "content") content += part.text;
    else if (part.kind === "reasoning") reasoning += part.text;
    else {
      const { id, function: made } = part.call;
      const call = (message.toolCalls[part.index] ??= create(ToolCallSchema));
      call.id ||= id ?? "";
      call.name ||= made.name ?? "";
      call.argumentsJson += made.arguments;
    }
  }
  message.content = { case: "text", value: content.trim() };
  message.reasoningContent = reasoning.trim();
  message.toolCalls = message.toolCalls.filter(({ argumentsJson }) => isJson(argumentsJson));
  return parsedOutput(create(ParsedOutputSchema, { message }));
}

function emptyMessage(): ChatMessage {
  return create(ChatMessageSchema, { role: "assistant" });
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}
