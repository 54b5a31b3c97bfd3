// Calls as an editor checks them. The compiler fails for a line with `@ts-expect-error` that has no mistake.

import assert from "node:assert/strict";
import { test } from "node:test";
import { type AnyDesc, type DescMessage } from "@bufbuild/protobuf";
import {
  image,
  type MessageInit,
  type ParseResult,
  type Part,
  Tandem,
  type ToolCall,
  type ToolChoiceInit,
  type ToolInit,
} from "tandem-client";
import { GenerateRequestSchema, GrammarSchema } from "tandem-client/contract/generate/v1/generate";
import { ParseOutputRequestSchema } from "tandem-client/contract/render/v1/parse";
import {
  DetokenizeRequestSchema,
  RenderRequestSchema,
  TokenizeRequestSchema,
} from "tandem-client/contract/render/v1/render";
import { RunTaskRequestSchema, ToolChoiceSchema } from "tandem-client/contract/task/v1/task";
import { create } from "@bufbuild/protobuf";
import { ENUMS } from "../src/fields.js";

/** Never executed. */
export async function good(client: Tandem): Promise<void> {
  const messages: MessageInit[] = [{ role: "system", content: "Be brief." }];
  messages.push({ role: "user", content: [image("cat.png"), { type: "text", text: "Hi" }] });
  messages.push({ role: "user", content: [{ type: "image_url", image_url: { url: "data:," } }] });
  const parameters = { type: "object", properties: { city: { type: "string" } } };
  const tools: ToolInit[] = [{ type: "function", function: { name: "weather", parameters } }];
  const answer = client.run(
    messages,
    {
      tools,
      documents: [{ text: "d" }, "{}"],
      templateArgs: { enable_thinking: false },
      model: "m",
      options: {
        controlTokens: "literal",
        normalization: "none",
        capabilities: { capabilities: ["supports_reasoning"] },
      },
      sampling: { temperature: 0, seed: 1, logitBias: { 5: 1 } },
      stop: { maxNewTokens: 20, stopStrings: ["\n"], stopTokenIds: [1], ignoreEos: true },
      returnOptions: { logprobs: 2, bytes: true },
      grammar: { jsonSchema: { type: "object" } },
      outputSpec: { specialTokenClasses: [{ tokenIds: [1], action: "pass" }] },
      priority: 1,
    },
    { timeoutMs: 2500, requestId: "mine" },
  );
  for await (const text of answer) console.log(text.toUpperCase());
  const tokens: number | undefined = answer.totals?.usage?.promptTokens;
  console.log(tokens, answer.totals?.timings?.decodeMs, answer.totals?.seed, answer.warnings[0]?.path);
  messages.push(answer.message);
  messages.push({ role: "assistant", tool_calls: [{ id: "1", function: { name: "weather", arguments: "{}" } }] });
  messages.push({ role: "tool", tool_call_id: "1", name: "weather", content: "sunny" });
  const parsed = client.run(messages, { tools, parseOutput: true });
  for await (const part of parsed.parts()) {
    if (part.kind === "toolCall") console.log(part.index + 1, part.call.id, part.call.function.arguments.toUpperCase());
    else console.log(part.text.toUpperCase());
    const copy: Part = part;
    console.log(copy.kind);
  }
  client.run(messages, { tools, toolChoice: "required", parallelToolCalls: false });
  client.run(messages, { tools, toolChoice: { type: "function", function: { name: "weather" } } });
  const choices: ToolChoiceInit[] = ["auto", "none", create(ToolChoiceSchema)];
  client.run(messages, { tools, toolChoice: choices[0] });
  const calls: ToolCall[] = parsed.toolCalls;
  console.log(calls[0]?.id.toUpperCase(), parsed.content.length, parsed.reasoning.length);
  console.log(parsed.parseWarnings[0]?.code);
  messages.push(parsed.message);
  messages.push({ role: "assistant", content: parsed.content, tool_calls: calls });
  const read: ParseResult = await client.parseOutput("text", { prompt: "p", tools, rules: "text", model: "m" });
  await client.parseOutput([1, 2], {}, { timeoutMs: 2500 });
  messages.push(read.message);
  console.log(read.toolCalls[0]?.function.name, read.content, read.reasoning, read.rules, read.warnings[0]?.offset);
  const schema = { toJSONSchema: () => ({ type: "object" }) };
  client.run(messages, { grammar: schema });
  client.run(messages, { grammar: { regex: "a", whitespace: "none", afterReasoning: true } });
  client.run(messages, { grammar: { jsonSchema: schema } });
  client.run(messages, { grammar: { choice: { values: ["yes", "no"] } }, sampling: { seed: 2n ** 63n } });
  client.run(messages, { grammar: create(GrammarSchema, { kind: { case: "regex", value: "a" } }) });
  client.generate([1, 2], {
    media: [{ kind: "image", url: "https://localhost/a.png", offset: 0 }],
    resume: { tokenIds: [1] },
  });
  await client.tokenize("text", { controlTokens: "literal" });
  await client.batchRender([{ messages, model: "m" }]);
}

/** Never executed. */
export function mistakes(client: Tandem): void {
  const user: MessageInit[] = [{ role: "user", content: "Hi" }];
  // @ts-expect-error
  client.run(user, { maxTokens: 2 });
  // @ts-expect-error
  client.run(user, { temperature: 0 });
  // @ts-expect-error
  client.run(user, { sampling: { temperture: 1 } });
  // @ts-expect-error
  client.run(user, { sampling: { temperature: "hot" } });
  // @ts-expect-error
  client.run(user, { sampling: { logitBias: { 5: "a" } } });
  // @ts-expect-error
  client.run(user, { stop: { maxNewTokens: "x" } });
  // @ts-expect-error
  client.run(user, { stop: { max_new_tokens: 2 } });
  // @ts-expect-error
  client.run(user, { stop: ["\n"] });
  // @ts-expect-error
  client.run(user, { returnOptions: { logprob: 2 } });
  // @ts-expect-error
  client.run(user, { grammar: { foo: 1 } });
  // @ts-expect-error
  client.run(user, { grammar: { regex: 1 } });
  // @ts-expect-error
  client.run(user, { grammar: { regex: "a", whitespace: "many" } });
  // @ts-expect-error
  client.run(user, { grammar: { choice: ["yes", "no"] } });
  // @ts-expect-error
  client.run(user, { grammar: { kind: { case: "regex", value: "a" } } });
  // @ts-expect-error
  client.run(user, { options: { controlTokens: "lit" } });
  // @ts-expect-error
  client.run(user, { options: { controlTokens: "unspecified" } });
  // @ts-expect-error
  client.run(user, { options: { capabilities: { capabilities: ["x"] } } });
  // @ts-expect-error
  client.run(user, { outputSpec: { specialTokenClasses: [{ action: "x" }] } });
  // @ts-expect-error
  client.run(user, { outputSpec: { reasoning: { start: [] } } });
  // @ts-expect-error
  client.run(user, { tools: [{ type: "function", function: { nam: "a" } }] });
  // @ts-expect-error
  client.run([{ role: "user", contnet: "Hi" }]);
  // @ts-expect-error
  client.run([{ role: "user", content: [{ type: "text", txt: "Hi" }] }]);
  // @ts-expect-error
  client.run(user, { priority: "high" });
  // @ts-expect-error
  client.run(user, {}, { timeoutMs: "1s" });
  // @ts-expect-error
  void client.tokenize("text", { controlTokens: "text" });
  // @ts-expect-error
  client.generate("text", { resume: { tokens: 1 } });
  // @ts-expect-error
  client.generate("text", { conversation: {} });
  // @ts-expect-error
  void client.batchRender([{ mesages: user }]);
  // @ts-expect-error
  client.run(user, { parseOutput: "yes" });
  // @ts-expect-error
  client.run(user, { parseOutputs: true });
  // @ts-expect-error
  client.generate("text", { parseOutput: true });
  // @ts-expect-error
  client.run(user, { toolChoice: "always" });
  // @ts-expect-error
  client.run(user, { toolChoice: { name: "weather" } });
  // @ts-expect-error
  client.run(user, { toolChoice: { mode: "auto" } });
  // @ts-expect-error
  client.run(user, { toolChoice: { type: "function", function: { nam: "weather" } } });
  // @ts-expect-error
  client.run(user, { toolChoice: { type: "function", function: { name: "a" }, mode: "auto" } });
  // @ts-expect-error
  client.run(user, { parallelToolCalls: "no" });
  // @ts-expect-error
  client.generate("text", { toolChoice: "required" });
  // @ts-expect-error
  void client.parseOutput({ text: "a" });
  // @ts-expect-error
  void client.parseOutput("text", { rule: "text" });
  // @ts-expect-error
  void client.parseOutput("text", { tokens: { tokenIds: [1] } });
  // @ts-expect-error
  void client.parseOutput("text", { tools: [{ type: "function", function: { nam: "a" } }] });
  // @ts-expect-error
  console.log(client.parseOutput("text").message);
  // @ts-expect-error
  console.log(client.run(user).toolCalls[0]?.name);
  // @ts-expect-error
  console.log(client.run(user).toolCalls());
  // @ts-expect-error
  client.run(user).content = "";
  // @ts-expect-error
  client.run(user).parts().next().then(({ value }) => value?.text);
  // @ts-expect-error
  console.log(client.run(user).totals.usage);
  // @ts-expect-error
  console.log(client.run(user).finish);
  // @ts-expect-error
  console.log(new Tandem("127.0.0.1:50051", { strikt: true }));
}

test("every enum of the requests has its labels in the types", () => {
  const found = new Set<string>();
  const seen = new Set<AnyDesc>();
  const walk = (schema: DescMessage) => {
    if (seen.has(schema) || schema.file.proto.package === "tandem.chat.v1") return;
    seen.add(schema);
    for (const field of schema.fields) {
      if (field.enum) found.add(field.enum.typeName);
      if (field.message) walk(field.message);
    }
  };
  [
    RunTaskRequestSchema,
    RenderRequestSchema,
    GenerateRequestSchema,
    TokenizeRequestSchema,
    DetokenizeRequestSchema,
    ParseOutputRequestSchema,
  ].forEach(walk);
  assert.deepEqual([...found].sort(), Object.keys(ENUMS).sort());
});
