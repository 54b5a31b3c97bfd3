// Answers with reasoning, content and tool calls apart, whole and streamed.

import assert from "node:assert/strict";
import { join } from "node:path";
import type { Writable } from "node:stream";
import { after, before, describe, test } from "node:test";
import { create, toBinary } from "@bufbuild/protobuf";
import { Server, ServerCredentials } from "@grpc/grpc-js";
import {
  InvalidRequest,
  type ParsedOutput,
  type Part,
  StrictError,
  Tandem,
  TandemError,
  type TaskFields,
  type ToolInit,
} from "tandem-client";
import {
  ParsedDeltaSchema,
  ParsedOutputSchema,
  ParseWarningCode,
  ToolCallDeltaSchema,
} from "tandem-client/contract/render/v1/parse";
import { RunTaskResponseSchema } from "tandem-client/contract/task/v1/task";
import { outputSoFar, parsedOutput, parts } from "../src/parsed.js";
import { REPOSITORY, start } from "./services.js";

const USER = [{ role: "user", content: "Hi" }];
const TOOLS = ["add", "sub"].map((name): ToolInit => {
  return { type: "function", function: { name, parameters: { type: "object" } } };
});
const CALLS = [
  ["add", '{"a": 1.0}'],
  ["sub", '{"b": "x"}'],
];
const WRITTEN = CALLS.map(([name, made]) => {
  return `<tool_call>\n{"name": "${name}", "arguments": ${made}}\n</tool_call>`;
}).join("\n");
const TEXT = `<think>So be it.</think>Yes.\n${WRITTEN}`;
const BROKEN = "Yes.<tool_call>\nno JSON\n</tool_call>";

/** Returns the fields of a run whose answer is a text. */
function written(text: string, fields: TaskFields = {}): TaskFields {
  const greedy = { sampling: { temperature: 0 }, stop: { maxNewTokens: 200 } };
  return { grammar: { choice: { values: [text] } }, parseOutput: true, ...greedy, ...fields };
}

/** Checks the parts of the whole TEXT. */
function checkWhole(answer: Omit<ParsedOutput, "warnings">): void {
  const { content, message, reasoning, toolCalls } = answer;
  assert.deepEqual(
    toolCalls.map(({ function: { name, arguments: made } }) => [name, made]),
    CALLS,
  );
  assert(toolCalls.every(({ id, type }) => id && type === "function"));
  assert.equal(new Set(toolCalls.map(({ id }) => id)).size, 2);
  assert.deepEqual([content, reasoning], ["Yes.", "So be it."]);
  const expected = { role: "assistant", content, reasoning_content: reasoning, tool_calls: toolCalls };
  assert.deepEqual(message, expected);
}

describe("the parts", () => {
  let address: string, client: Tandem;

  before(async () => {
    const model = join(REPOSITORY, "tests/contract/model"); // has tokens for <think> and </think>
    const generation = await start("gen-svc", "--model", model, "--dtype", "f32");
    address = await start("render-svc", "--models", model, "--generate", `http://${generation}`);
    client = new Tandem(address);
  });
  after(() => client.close());

  test("of a whole answer are apart", async () => {
    const answer = client.run(USER, written(TEXT));
    let text = "";
    for await (const delta of answer.deltas()) text += delta.text;
    assert.equal(text, TEXT);
    checkWhole(answer);
    assert.deepEqual(answer.parseWarnings, []);
  });

  test("of an answer arrive while it is written", async () => {
    const answer = client.run(USER, written(TEXT));
    const read: Part[] = [];
    const seen: [string, number][] = [];
    for await (const part of answer.parts()) {
      read.push(part);
      seen.push([answer.content, answer.toolCalls.length]);
    }
    checkWhole(answer);
    const texts = (kind: string) => read.flatMap((part) => (part.kind === kind && "text" in part ? [part.text] : []));
    assert.deepEqual([texts("reasoning").join(""), texts("content").join("")], ["So be it.", "Yes."]);
    assert(texts("content").length > 1);
    const calls = read.flatMap((part) => (part.kind === "toolCall" ? [part] : []));
    assert.deepEqual(
      calls,
      answer.toolCalls.map((call, index) => ({ kind: "toolCall", index, call })),
    );
    assert.deepEqual(seen.at(-1), ["Yes.", 2]);
    assert.notDeepEqual(seen[0], seen.at(-1));
  });

  test("leave the text of an answer as it is", async () => {
    const answer = client.run(USER, written(WRITTEN));
    let text = "";
    for await (const part of answer) text += part;
    assert.equal(text, WRITTEN);
  });

  test("of an answer are the next turn of its conversation", async () => {
    const answer = client.run(USER, written(WRITTEN));
    await answer.text();
    assert.deepEqual([answer.message.content, answer.content, answer.toolCalls.length], [null, "", 2]);
    const results = answer.toolCalls.map(({ id }) => ({ role: "tool", tool_call_id: id, content: "3" }));
    const { output } = await client.render([...USER, answer.message, ...results], { tools: TOOLS });
    assert(output.case === "prompt");
    for (const { id, function: made } of answer.toolCalls) {
      assert(output.value.text.includes(`<tool_call>${JSON.stringify(id)}${made.name}`), output.value.text);
      assert(output.value.text.includes(`3 for ${id}<|im_end|>`), output.value.text);
    }
    assert(output.value.text.includes("1.0"));
  });

  test("of an answer without calls have an empty list", async () => {
    const answer = client.run(USER, written("Yes."));
    await answer.text();
    assert.deepEqual([answer.toolCalls, answer.reasoning], [[], ""]);
    assert.deepEqual(answer.message, { role: "assistant", content: "Yes." });
  });

  test("are kept after a cancellation", async () => {
    const answer = client.run(USER, written(TEXT));
    for await (const part of answer.parts()) if (part.kind === "toolCall") answer.cancel();
    assert.deepEqual([answer.finishReason, answer.toolCalls.length], ["CANCELLED", 1]);
    const never = client.run(USER, written(TEXT));
    never.cancel();
    assert.deepEqual([await never.text(), never.toolCalls], ["", []]);
  });

  test("are an error without parseOutput", async () => {
    const answers = [{ parseOutput: false }, {}].map((fields) => {
      return client.run(USER, { ...written(TEXT), parseOutput: undefined, ...fields });
    });
    for (const answer of answers) {
      await answer.text();
      const reads = [() => answer.toolCalls, () => answer.reasoning, () => answer.content, () => answer.parts()];
      for (const read of reads) assert.throws(read, /pass parseOutput: true to run/);
      assert.deepEqual([answer.message, answer.parseWarnings], [{ role: "assistant", content: TEXT }, []]);
    }
    const wrong = () => client.generate("Hi", { parseOutput: true } as object);
    assert.throws(wrong, (error) => error instanceof InvalidRequest && error.message.includes("an argument of run"));
  });

  test("are an error before the answer is read", () => {
    const answer = client.run(USER, written(TEXT));
    assert.throws(() => answer.toolCalls, /read it first/);
    assert.throws(() => answer.message, /read it first/);
  });

  test("are an error with a service of an earlier version", async () => {
    const server = new Server();
    const event = { case: "finished" as const, value: {} };
    const response = Buffer.from(toBinary(RunTaskResponseSchema, create(RunTaskResponseSchema, { event })));
    const bytes = (value: Buffer) => value;
    const path = "/tandem.task.v1.TaskService/RunTask";
    const answered = (call: Writable) => {
      call.write(response);
      call.end();
    };
    server.register(path, answered, bytes, bytes, "serverStream");
    const credentials = ServerCredentials.createInsecure();
    const port = await new Promise<number>((resolve, reject) => {
      server.bindAsync("127.0.0.1:0", credentials, (error, port) => (error ? reject(error) : resolve(port)));
    });
    const other = new Tandem(`127.0.0.1:${port}`);
    const answer = other.run(USER, written(TEXT));
    assert.equal(await answer.text(), "");
    for (const read of [() => answer.toolCalls, () => answer.message])
      assert.throws(read, /the service has no parseOutput/);
    other.close();
    server.forceShutdown();
  });

  test("that are not read have a warning, once per code and client", async (context) => {
    const warn = context.mock.method(console, "warn", () => {});
    const other = new Tandem(address);
    for (let i = 0; i < 2; i++) {
      const answer = other.run(USER, written(BROKEN));
      await answer.text();
      assert.deepEqual([answer.content, answer.toolCalls], [BROKEN, []]);
      const [warning] = answer.parseWarnings;
      assert.deepEqual([warning!.code, warning!.offset], [ParseWarningCode.MALFORMED, 4]);
      assert.deepEqual(
        warn.mock.calls.map((call) => call.arguments),
        [[`tandem: MALFORMED: ${warning!.text}`]],
      );
    }
    other.close();
  });

  test("that are not read are an error of a strict client", async () => {
    const strict = new Tandem(address, { strict: true });
    const answer = strict.run(USER, written(BROKEN));
    const isMalformed = (error: unknown) => {
      assert(error instanceof StrictError);
      assert.deepEqual([error.reason, error.field, error.parseWarnings.length], ["MALFORMED", undefined, 1]);
      return true;
    };
    await assert.rejects(answer.text(), isMalformed);
    assert.equal(answer.content, BROKEN);
    await assert.rejects(strict.parseOutput(BROKEN), isMalformed);
    strict.close();
  });

  test("of an output are read from text or ids", async () => {
    const { tokenIds } = await client.tokenize(TEXT, { addSpecialTokens: false });
    for (const output of [TEXT, tokenIds]) {
      const read = await client.parseOutput(output, { tools: TOOLS });
      checkWhole(read);
      assert.deepEqual([read.warnings, read.rules], [[], "json-in-tool-call"]);
    }
  });

  test("of an output begin where the prompt ends", async () => {
    const read = await client.parseOutput("Hm.</think>Yes.", { prompt: "<|im_start|>assistant\n<think>" });
    assert.deepEqual([read.reasoning, read.content], ["Hm.", "Yes."]);
  });

  test("of an output are read by the rules of a name", async () => {
    const read = await client.parseOutput(WRITTEN, { rules: "text" });
    assert.deepEqual([read.toolCalls, read.content, read.rules], [[], WRITTEN, "text"]);
  });

  test("of an output have a warning for an unknown tool", async (context) => {
    const warn = context.mock.method(console, "warn", () => {});
    const { warnings, toolCalls } = await client.parseOutput(WRITTEN, { tools: TOOLS.slice(0, 1) });
    assert.deepEqual([warnings[0]?.code, toolCalls.length], [ParseWarningCode.UNKNOWN_TOOL, 2]);
    assert.match(String(warn.mock.calls[0]?.arguments[0]), /^tandem: UNKNOWN_TOOL: ./);
  });

  test("of a wrong request are a typed error", async () => {
    await assert.rejects(client.parseOutput("a", { rules: "none" }), (error) => {
      return error instanceof TandemError && error.reason === "INVALID_REQUEST" && error.field === "rules";
    });
    const cases: [string, unknown, object?][] = [
      ["tokens.tokenIds", 1],
      ["tokens.tokenIds[0]", [-1]],
      ["tools[0]", "a", { tools: [1] }],
      ["prompt", "a", { prompt: 1 }],
      ["rule", "a", { rule: "text" }],
      ["tokens", "a", { tokens: { tokenIds: [1] } }],
    ];
    for (const [field, output, fields] of cases)
      await assert.rejects(client.parseOutput(output as string, fields), (error) => {
        return error instanceof InvalidRequest && error.field === field;
      });
  });

  test("of a call are joined, and a cut call is left out", () => {
    const deltas: [number, string, string, string][] = [
      [0, "1", "add", '{"a"'],
      [0, "", "", ": 1}"],
      [1, "2", "add", '{"a": '],
    ];
    const read = parts([
      create(ParsedDeltaSchema, { part: { case: "content", value: "a" } }),
      ...deltas.map(([index, id, name, argumentsJson]) => {
        const value = create(ToolCallDeltaSchema, { index, id, name, argumentsJson });
        return create(ParsedDeltaSchema, { part: { case: "toolCall", value } });
      }),
      create(ParsedDeltaSchema), // a kind of a later version
    ]);
    const more = { kind: "toolCall", index: 0, call: { type: "function", function: { arguments: ": 1}" } } };
    assert.deepEqual([read.length, read[2]], [4, more]);
    const { content, toolCalls } = outputSoFar(read);
    const made = { name: "add", arguments: '{"a": 1}' };
    assert.deepEqual([content, toolCalls], ["a", [{ id: "1", type: "function", function: made }]]);
  });

  test("have the further fields of the model", () => {
    const content = { case: "text" as const, value: "a" };
    const read = parsedOutput(create(ParsedOutputSchema, { message: { content, extraJson: '{"mood": "good"}' } }));
    assert.deepEqual(read.message, { role: "assistant", content: "a", mood: "good" });
  });
});
