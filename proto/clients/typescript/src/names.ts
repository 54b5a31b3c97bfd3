// Names of other APIs, and the arguments of Tandem for them.

import type { DescMessage } from "@bufbuild/protobuf";

const SCHEMA = "grammar.jsonSchema";
const STREAM = "every answer is streamed: iterate over it, or call its text()";
const RUN = "an argument of run";
const CALLER = "requestId, and the client's token names the caller";
const TEXT = "every answer is text";
const OPTION = "a key of the last argument, beside the request's fields";

/** OpenAI's, vLLM's and Hugging Face's names that differ, each with a path of Tandem or a sentence. */
export const OTHERS: Readonly<Record<string, string>> = {
  maxTokens: "stop.maxNewTokens",
  maxCompletionTokens: "stop.maxNewTokens",
  maxOutputTokens: "stop.maxNewTokens",
  minTokens: "stop.minNewTokens",
  stopSequences: "stop.stopStrings",
  includeStopStrInOutput: "stop.includeStop",
  topLogprobs: "returnOptions.logprobs",
  returnLogprob: "returnOptions.logprobs",
  echo: "returnOptions.promptLogprobs",
  returnTokenIds: "returnOptions.tokenIds",
  responseFormat: SCHEMA,
  textFormat: SCHEMA,
  guidedJson: SCHEMA,
  guidedRegex: "grammar.regex",
  guidedGrammar: "grammar.lark",
  guidedChoice: "grammar.choice",
  structuredOutputs: "grammar",
  toolChoice: RUN,
  functionCall: "toolChoice",
  parallelToolCalls: RUN,
  functions: "tools",
  input: "the first argument, messages",
  messages: "the first argument",
  instructions: 'a message with the role "system"',
  chatTemplateKwargs: "templateArgs",
  reasoningEffort: "templateArgs.reasoning_effort",
  enableThinking: "templateArgs.enable_thinking",
  chatTemplate: "options.template",
  serviceTier: "priority",
  promptCacheKey: "cacheSalt",
  stream: STREAM,
  streamOptions: "answer.totals has the usage",
  extraHeaders: "requestId, and the client's token",
  extraBody: "each field beside the others",
  metadata: "requestId, in the last argument",
  user: CALLER,
  safetyIdentifier: CALLER,
  includeReasoning: "parseOutput",
  separateReasoning: "parseOutput",
  parseOutput: `${RUN}; client.parseOutput(text) reads any other output`,
  store: "no answer is stored",
  modalities: TEXT,
  audio: TEXT,
  verbosity: "a request in a message, such as: answer in one sentence",
  prediction: "no prediction: leave it out",
  webSearchOptions: "a tool that your program runs: see the agent of the README",
  timeout: `timeoutMs, ${OPTION}`,
  timeoutMs: OPTION,
  requestId: OPTION,
  signal: OPTION,
};

/** Returns the end of the message about an unknown name: Tandem's name for it, or the nearest one. */
export function hint(name: string, schema: DescMessage, root: DescMessage, parts: readonly string[]): string {
  const isRoot = schema === root;
  const known = [...Object.keys(schema.field).filter((key) => key !== "conversation"), ...(isRoot ? parts : [])];
  const camel = name.replace(/_([a-z0-9])/g, (_, letter: string) => letter.toUpperCase());
  if (camel !== name && known.includes(camel)) return `; did you mean ${camel}?`;
  const other = Object.hasOwn(OTHERS, camel) ? OTHERS[camel] : undefined;
  const last = other?.split(".").at(-1);
  if (!isRoot && last !== undefined && known.includes(last)) return `; did you mean ${last}?`;
  const path = other ?? pathOf(camel, root);
  if (path !== undefined) return `; in Tandem: ${spelled(path)}`;
  const [distance, nearest] = known.map((key) => [edits(camel, key), key] as const).sort(([a], [b]) => a - b)[0]!;
  if (distance <= Math.max(2, camel.length / 3)) return `; did you mean ${nearest}?`;
  return `; the fields are ${known.sort().join(", ")}`;
}

/** Returns a path as the argument of a call: `stop: { maxNewTokens: … }`. */
function spelled(path: string): string {
  if (path.includes(" ")) return path;
  const [outer, inner] = path.split(".");
  return inner === undefined ? `${outer}: …` : `${outer}: { ${inner}: … }`;
}

/** Returns the path of a field of this name one level below the request. */
function pathOf(name: string, root: DescMessage): string | undefined {
  for (const outer of root.fields)
    if (outer.fieldKind === "message" && outer.name !== "conversation" && outer.message.field[name])
      return `${outer.localName}.${name}`;
  return undefined;
}

/** Returns the number of edits between two names. */
function edits(one: string, other: string): number {
  let row = [...Array(other.length + 1).keys()];
  for (let i = 1; i <= one.length; i++) {
    const next = [i];
    for (let j = 1; j <= other.length; j++) {
      const replaced = row[j - 1]! + (one[i - 1] === other[j - 1] ? 0 : 1);
      next.push(Math.min(replaced, row[j]! + 1, next[j - 1]! + 1));
    }
    row = next;
  }
  return row[other.length]!;
}
