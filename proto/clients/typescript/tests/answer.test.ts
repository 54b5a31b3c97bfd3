// The message of an answer has no markers of reasoning, whether they are text or tokens.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { Tandem, type TaskFields } from "tandem-client";
import { ReasoningMarkersSchema } from "tandem-client/contract/generate/v1/output_spec";
import { TOKENS, withoutMarkers } from "../src/answer.js";
import { REPOSITORY, start } from "./services.js";

describe("the reasoning of a message", () => {
  let client: Tandem, first: number, last: number, text: number;

  before(async () => {
    const model = join(REPOSITORY, "tests/contract/model"); // has tokens for <think> and </think>
    const generation = await start("gen-svc", "--model", model, "--dtype", "f32");
    client = new Tandem(await start("render-svc", "--models", model, "--generate", `http://${generation}`));
    [first, last, text] = (await client.tokenize("<think></think>P")).tokenIds as [number, number, number];
  });
  after(() => client.close());

  /** Returns reasoning and content of an answer that starts with `<think>`, PPP, `</think>`: one token each. */
  async function parts(fields: TaskFields = {}, maxNewTokens = 20): Promise<(string | null | undefined)[]> {
    const answer = client.run([{ role: "user", content: "Hi" }], {
      grammar: { regex: "Yes\\.", afterReasoning: true },
      // The grammar has no P, so the start marker is the likeliest first token.
      sampling: { temperature: 0, logitBias: { [first]: 50, [text]: 100 } },
      stop: { maxReasoningTokens: 3, maxNewTokens },
      ...fields,
    });
    await answer.text();
    return [answer.message.reasoning_content, answer.message.content];
  }

  test("has no markers that are tokens", async () => {
    assert.deepEqual(await parts(), ["PPP", "Yes."]);
  });

  test("is complete where markers leave no text", async () => {
    const reasoning = { startTokenIds: [first], endTokenIds: [last] };
    const specialTokenClasses = [{ tokenIds: [first, last], action: "drop" as const }];
    assert.deepEqual(await parts({ outputSpec: { reasoning, specialTokenClasses } }), ["PPP", "Yes."]);
  });

  test("is complete where the output ends inside", async (context) => {
    context.mock.method(console, "warn", () => {}); // GRAMMAR_NOT_REACHED
    assert.deepEqual(await parts({}, 3), ["PP", ""]);
  });

  const ids = { startTokenIds: [1], endTokenIds: [2] };
  const texts = { startStrings: ["<a>", "<a>\n"], endStrings: ["</a>", "\n</a>"] };
  const cases: [MessageInitShape<typeof ReasoningMarkersSchema>, string, string][] = [
    [ids, "<think>a</think>", "a"],
    [ids, "a</think>", "a"],
    [ids, "<think>a", "a"],
    [ids, "<b>a</think>b</b>", "<b>a</think>b</b>"],
    [ids, "<think><think>a</think></think>", "<think>a</think>"],
    [ids, "[THINK]a</think>", "a"],
    [texts, "<a>\nb\n</a>", "b"],
    [texts, "<think>a</think>", "<think>a</think>"],
    [{}, "<think>a</think>", "<think>a</think>"],
  ];
  for (const [markers, section, expected] of cases)
    test(`keeps all other text: ${JSON.stringify([markers, section])}`, () => {
      assert.equal(withoutMarkers(section, create(ReasoningMarkersSchema, markers)), expected);
    });

  test("follows the markers of render-svc", () => {
    const source = readFileSync(join(REPOSITORY, "render-svc/src/output_spec/reasoning.rs"), "utf8");
    const pairs = [...source.matchAll(/^    \("(.+)", "(.+)"\),$/gm)].map(([, start, end]) => [start, end]);
    assert.deepEqual(pairs, TOKENS);
  });
});
