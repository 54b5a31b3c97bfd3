// Arguments become the fields of a request. A wrong one is named, and so is Tandem's name for it.

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { create, fromBinary } from "@bufbuild/protobuf";
import { InvalidRequest, Tandem, type TaskFields } from "tandem-client";
import { GrammarSchema } from "tandem-client/contract/generate/v1/generate";
import { ControlTokens } from "tandem-client/contract/render/v1/render";
import {
  type RunTaskRequest,
  RunTaskRequestSchema,
  ToolChoiceMode,
  ToolChoiceSchema,
} from "tandem-client/contract/task/v1/task";
import { generateRequest, withConversation } from "../src/requests.js";

const USER = [{ role: "user", content: "Hi" }];

function request(fields: TaskFields): RunTaskRequest {
  return fromBinary(RunTaskRequestSchema, withConversation(RunTaskRequestSchema, USER, fields));
}

function refusal(fields: object): InvalidRequest {
  try {
    request(fields);
  } catch (error) {
    if (error instanceof InvalidRequest) return error;
    throw error;
  }
  throw new Error(`${JSON.stringify(fields)} is accepted`);
}

describe("a request", () => {
  test("has the values of its arguments", () => {
    const made = request({
      model: "m",
      priority: 2,
      sampling: { temperature: 1, seed: 2n ** 64n - 1n, logitBias: { 5: 1.5 }, topK: undefined },
      stop: { stopStrings: ["a"], maxNewTokens: 3 },
      outputSpec: { specialTokenClasses: [{ tokenIds: [1], action: "pass" }], reasoning: {} },
    });
    assert.deepEqual([made.model, made.priority, made.sampling?.seed], ["m", 2, 2n ** 64n - 1n]);
    assert.deepEqual(
      [made.sampling?.temperature, made.sampling?.topK, made.sampling?.logitBias[5]],
      [1, undefined, 1.5],
    );
    assert.deepEqual([made.stop?.stopStrings, made.stop?.maxNewTokens], [["a"], 3]);
    assert.deepEqual(
      [made.outputSpec?.specialTokenClasses[0]?.action, made.outputSpec?.reasoning?.startStrings],
      [2, []],
    );
  });

  test("takes the labels of an enum", () => {
    for (const controlTokens of ["literal", "LITERAL", "CONTROL_TOKENS_LITERAL", ControlTokens.LITERAL])
      assert.equal(request({ options: { controlTokens: controlTokens as "literal" } }).options?.controlTokens, 2);
    const capabilities = { capabilities: ["supports_tool_calls", "supports_reasoning"] as const };
    assert.deepEqual(request({ options: { capabilities } }).options?.capabilities?.capabilities, [3, 4]);
    const error = refusal({ options: { controlTokens: "lit" } });
    assert.equal(error.field, "options.controlTokens");
    assert.match(error.message, /must be "tokens" or "literal", not "lit"/);
  });

  test("takes the choice of a tool in the shape of OpenAI", () => {
    const modes = { auto: ToolChoiceMode.AUTO, none: ToolChoiceMode.NONE, required: ToolChoiceMode.REQUIRED };
    for (const [label, value] of Object.entries(modes))
      assert.deepEqual(request({ toolChoice: label as "auto" }).toolChoice?.choice, { case: "mode", value });
    const named = create(ToolChoiceSchema, { choice: { case: "name", value: "f" } });
    for (const toolChoice of [{ type: "function", function: { name: "f" } } as const, named])
      assert.deepEqual(request({ toolChoice }).toolChoice, named);
    assert.equal(request({ toolChoice: undefined }).toolChoice, undefined);
  });

  test("names the accepted choices of a tool", () => {
    const choices = '"auto", "none", "required" or { type: "function", function: { name: "…" } }';
    const names = [
      { name: "f" },
      { mode: "auto" },
      { type: "function", name: "f" },
      { type: "function", function: "f" },
    ];
    const wrong: [unknown, string][] = [
      ["always", '"always"'],
      ["REQUIRED", '"REQUIRED"'],
      [3n, "bigint"],
      [["auto"], "a list"],
    ];
    for (const [toolChoice, found] of [...wrong, ...names.map((name) => [name, "object"])])
      assert.equal(refusal({ toolChoice }).message, `toolChoice: must be ${choices}, not ${found}`);
    const { message } = refusal({ toolChoice: { type: "function", function: { name: "f" }, tools: [] } });
    assert.equal(message, `toolChoice.tools: ToolChoice has no such key; it must be ${choices}`);
  });

  test("has parallelToolCalls only if it is given", () => {
    for (const parallelToolCalls of [true, false, undefined])
      assert.equal(request({ parallelToolCalls }).parallelToolCalls, parallelToolCalls);
  });

  test("of generate has no choice of a tool", () => {
    for (const name of ["toolChoice", "parallelToolCalls"])
      assert.throws(() => generateRequest("Hi", { [name]: true }), { field: name, message: /an argument of run/ });
  });

  const wrong: [string, object][] = [
    ["sampling.temperature", { sampling: { temperature: "hot" } }],
    ["sampling.temperature", { sampling: { temperature: true } }],
    ["sampling.topK", { sampling: { topK: -1 } }],
    ["sampling.topK", { sampling: { topK: 1.5 } }],
    ["sampling.seed", { sampling: { seed: 2 ** 60 } }],
    ["sampling.logitBias[a]", { sampling: { logitBias: { a: 1 } } }],
    ["sampling", { sampling: 1 }],
    ["stop.max_new_tokens", { stop: { max_new_tokens: 2 } }],
    ["stop.maxNewTokens", { stop: { maxNewTokens: "x" } }],
    ["stop.stopStrings", { stop: { stopStrings: "a" } }],
    ["stop.stopStrings[1]", { stop: { stopStrings: ["a", 1] } }],
    ["returnOptions.bytes", { returnOptions: { bytes: 1 } }],
    ["outputSpec.specialTokenClasses[0].action", { outputSpec: { specialTokenClasses: [{ action: "x" }] } }],
    ["priority", { priority: 1.5 }],
    ["parseOutput", { parseOutput: "yes" }],
    ["parallelToolCalls", { parallelToolCalls: 0 }],
    ["toolChoice", { toolChoice: "always" }],
    ["toolChoice.function.strict", { toolChoice: { type: "function", function: { name: "f", strict: true } } }],
    ["toolChoice.mode", { toolChoice: { type: "function", function: { name: "f" }, mode: "auto" } }],
    ["model", { model: 1 }],
    ["temperature", { temperature: 0 }],
    ["constructor", { constructor: 0 }],
    ["grammar.kind", { grammar: { kind: { case: "regex", value: "a" } } }],
    ["grammar.lark", { grammar: { regex: "a", lark: "b" } }],
    ["grammar.jsonSchema", { grammar: { jsonSchema: 1 } }],
  ];
  for (const [field, fields] of wrong)
    test(`names the field of a wrong value: ${field}`, () => assert.equal(refusal(fields).field, field));

  const hints: [string, string, unknown?][] = [
    ["max_tokens", "stop: { maxNewTokens: … }"],
    ["maxTokens", "stop: { maxNewTokens: … }"],
    ["max_completion_tokens", "stop: { maxNewTokens: … }"],
    ["temperature", "sampling: { temperature: … }"],
    ["top_p", "sampling: { topP: … }"],
    ["seed", "sampling: { seed: … }"],
    ["n", "sampling: { n: … }"],
    ["presence_penalty", "sampling: { presencePenalty: … }"],
    ["logprobs", "returnOptions: { logprobs: … }"],
    ["top_logprobs", "returnOptions: { logprobs: … }"],
    ["response_format", "grammar: { jsonSchema: … }"],
    ["tool_choice", "did you mean toolChoice?"],
    ["parallel_tool_calls", "did you mean parallelToolCalls?"],
    ["function_call", "toolChoice: …"],
    ["separate_reasoning", "parseOutput: …"],
    ["parse_output", "did you mean parseOutput?"],
    ["stream", "every answer is streamed"],
    ["controlTokens", "options: { controlTokens: … }"],
    ["chat_template_kwargs", "templateArgs: …"],
    ["service_tier", "priority: …"],
    ["metadata", "requestId, in the last argument"],
    ["user", "the client's token names the caller"],
    ["safety_identifier", "the client's token names the caller"],
    ["store", "in Tandem: no answer is stored"],
    ["modalities", "every answer is text"],
    ["audio", "every answer is text"],
    ["verbosity", "a request in a message"],
    ["prediction", "no prediction"],
    ["web_search_options", "a tool that your program runs"],
    ["extra_body", "each field beside the others"],
    ["extra_headers", "requestId, and the client's token"],
    ["timeoutMs", "a key of the last argument"],
    ["return_options", "did you mean returnOptions?"],
    ["tool", "did you mean tools?"],
    ["stop", 'stop: { stopStrings: ["…"] }', ["\n"]],
    ["stop", "did you mean maxNewTokens?", { max_tokens: 1 }],
    ["stop", "did you mean maxNewTokens?", { max_new_tokens: 1 }],
    ["sampling", "did you mean temperature?", { temperture: 1 }],
    ["grammar", "grammar: { jsonSchema: schema }", { type: "json_schema", json_schema: {} }],
    ["grammar", "grammar: { jsonSchema: schema }", "{}"],
    ["grammar", 'choice: { values: ["…"] }', { choice: ["a"] }],
  ];
  for (const [name, hint, value = 1] of hints)
    test(`names the argument of Tandem for ${name} ${JSON.stringify(value)}`, () => {
      const { message } = refusal({ [name]: value });
      assert(message.includes(hint), message);
    });

  test("takes a schema as object, text or schema of a library", () => {
    const schema = { type: "object", properties: { z: {}, a: {} } };
    const library = { toJSONSchema: () => schema };
    const text = JSON.stringify(schema);
    for (const grammar of [{ jsonSchema: schema }, { jsonSchema: text }, { jsonSchema: library }, library])
      assert.deepEqual(request({ grammar }).grammar?.kind, { case: "jsonSchema", value: text });
    const grammar = create(GrammarSchema, { kind: { case: "regex", value: "a" } });
    assert.deepEqual(request({ grammar }).grammar?.kind, grammar.kind);
  });

  test("of a batch is named", async () => {
    const client = new Tandem("127.0.0.1:1");
    const wrong = client.batchRender([{ messages: USER }, { messages: USER, options: { adaptor: "a" } as object }]);
    await assert.rejects(wrong, (error) => (error as InvalidRequest).field === "requests[1].options.adaptor");
    client.close();
  });
});
