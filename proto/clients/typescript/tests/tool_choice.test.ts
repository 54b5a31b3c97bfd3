// The choice of the tools that an answer calls.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { Tandem, TandemError, type TaskFields, type ToolChoiceInit, type ToolInit } from "tandem-client";
import { MODEL, modelWithTools, start } from "./services.js";

const USER = [{ role: "user", content: "Give the weather in Paris, and add 2 and 3." }];
const DIGIT = { type: "integer", minimum: 0, maximum: 9 };
const PARAMETERS = { weather: { city: { enum: ["Paris", "Rome"] } }, add: { a: DIGIT, b: DIGIT } };
const TOOLS = Object.entries(PARAMETERS).map(([name, properties]): ToolInit => {
  const required = Object.keys(properties);
  return {
    type: "function",
    function: { name, parameters: { type: "object", properties, required, additionalProperties: false } },
  };
});

function choice(name: string): ToolChoiceInit {
  return { type: "function", function: { name } };
}

/** Returns the fields of a short answer with tools. */
function withTools(fields: TaskFields): TaskFields {
  return { tools: TOOLS, parseOutput: true, sampling: { temperature: 0 }, stop: { maxNewTokens: 60 }, ...fields };
}

describe("a choice of tools", () => {
  let client: Tandem, plain: Tandem;

  before(async () => {
    const generation = await start("gen-svc", "--model", MODEL, "--dtype", "f32");
    const options = ["--generate", `http://${generation}`];
    client = new Tandem(await start("render-svc", "--models", modelWithTools(), ...options));
    plain = new Tandem(await start("render-svc", "--models", MODEL, ...options));
  });
  after(() => {
    client.close();
    plain.close();
  });

  /** Returns the names of the tools that an answer calls, whose arguments follow their schemas. */
  async function called(fields: TaskFields): Promise<string[]> {
    const answer = client.run(USER, withTools(fields));
    await answer.text();
    for (const { function: made } of answer.toolCalls) {
      const given = JSON.parse(made.arguments) as Record<string, unknown>;
      const numbers = [given.a, given.b].filter((value) => Number.isInteger(value));
      if (made.name === "add") assert.deepEqual([Object.keys(given).sort(), numbers.length], [["a", "b"], 2]);
      else assert(["Paris", "Rome"].includes(given.city as string) && Object.keys(given).length === 1, made.arguments);
    }
    return answer.toolCalls.map(({ function: { name } }) => name);
  }

  test("of required calls a tool", async () => {
    const names = await called({ toolChoice: "required" });
    assert(names.length > 0 && names.every((name) => name in PARAMETERS), names.join());
  });

  test("of required has no content", async () => {
    const answer = client.run(USER, withTools({ toolChoice: "required", parallelToolCalls: false }));
    const kinds = new Set<string>();
    for await (const { kind } of answer.parts()) kinds.add(kind);
    assert.deepEqual([...kinds], ["toolCall"]);
    assert.deepEqual([answer.content, answer.message.content, answer.finishReason], ["", null, "STOP"]);
  });

  test("of a name calls this tool once", async () => {
    for (const name of Object.keys(PARAMETERS)) assert.deepEqual(await called({ toolChoice: choice(name) }), [name]);
  });

  test("of none calls no tool", async () => {
    assert.deepEqual(await called({ toolChoice: "none" }), []);
  });

  test("of auto leaves it to the model", async () => {
    const answers = [{}, { toolChoice: "auto" as const }].map((fields) => client.run(USER, withTools(fields)).text());
    const [first, second] = await Promise.all(answers);
    assert.equal(first, second);
  });

  test("without parallel calls calls one tool at most", async () => {
    assert.equal((await called({ toolChoice: "required", parallelToolCalls: false })).length, 1);
    assert((await called({ parallelToolCalls: false })).length <= 1);
  });

  test("that cannot be kept is a typed error", async () => {
    const cases: [Tandem, TaskFields, reason: string, field: string][] = [
      [client, { toolChoice: choice("music") }, "INVALID_REQUEST", "tool_choice.name"],
      [client, { toolChoice: "required", tools: [] }, "INVALID_REQUEST", "tool_choice"],
      [plain, { toolChoice: "required" }, "TOOL_CHOICE_NOT_SUPPORTED", "tool_choice"],
    ];
    for (const [other, fields, reason, field] of cases)
      await assert.rejects(other.run(USER, withTools(fields)).text(), (error) => {
        assert(error instanceof TandemError);
        assert.deepEqual([error.reason, error.field], [reason, field]);
        return true;
      });
  });
});
