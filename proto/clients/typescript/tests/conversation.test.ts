// The template gets the caller's values as they are.

import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { type BlockInit, conversation, image, InvalidRequest, type MessageInit, Tandem } from "tandem-client";
import { FOLDER, startEcho } from "./services.js";

const PNG = Buffer.from(
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC",
  "base64",
);
const CALL = { id: "call_1", type: "function" as const, function: { name: "add", arguments: { z: 1.5, a: 1 } } };
const TOOL = { type: "function" as const, function: { name: "add", parameters: { b: 1, a: "x" } }, strict: true };

describe("a template", () => {
  let client: Tandem;
  before(async () => {
    client = new Tandem(await startEcho());
  });
  after(() => client.close());

  test("gets messages as transformers passes them", async () => {
    const messages = [
      { role: "system", content: "Söz\u2028" },
      { role: "user", content: [{ type: "text", text: "Hi" }], cache: { b: 1.5, a: null } },
      { role: "assistant", content: null, tool_calls: [CALL], refusal: null },
      { role: "tool", content: "", tool_call_id: "call_1", name: "add" },
      { role: "user", content: [{ type: "text", text: "x", cache_control: { type: "ephemeral" } }] },
      { role: "user", content: [{ type: "tool_result", tool_use_id: "1", content: "3", is_error: false }] },
      { role: "assistant", content: [{ type: "tool_use", id: "1", name: "add", input: { a: 1e30 } }] },
    ];
    const rendered = await client.render(messages as MessageInit[], {
      tools: [TOOL],
      documents: [{ text: "d" }],
      templateArgs: { enable_thinking: false },
      options: { normalization: "none" },
    });
    assert(rendered.output.case === "prompt");
    const seen = rendered.output.value.text;
    const isSet = ([, value]: [string, unknown]) => value !== null;
    const shown = messages.map((message) => Object.fromEntries(Object.entries(message).filter(isSet)));
    assert.deepEqual(JSON.parse(seen), [shown, [TOOL], [{ text: "d" }], false]); // templates get no null keys
    assert(seen.includes('"arguments": {"z": 1.5, "a": 1}'), seen);
  });

  test("gets JSON text unchanged", async () => {
    const text = '{"z": 1.0, "10": 1, "2": 3, "big": 123456789012345678901234567890}';
    const call = { function: { name: "add", arguments: text } };
    const block = { type: "tool_use" as const, name: "add", input: text };
    const messages = [{ role: "assistant", content: [block], tool_calls: [call] }];
    const parts = { tools: [text], documents: [text], templateArgs: '{"enable_thinking": 1}' };
    const rendered = await client.render(messages, parts);
    assert(rendered.output.case === "prompt");
    assert.equal(rendered.output.value.text.split(text).length, 5, rendered.output.value.text);
  });

  test("gets an image in every form", async () => {
    const data = PNG.toString("base64");
    const forms: BlockInit[] = [
      image(PNG, "image/png"),
      { type: "image", base64: data },
      { type: "image_url", image_url: { url: `data:image/png;base64,${data}` } },
      JSON.stringify({ type: "image", base64: data }),
      { ...image(PNG), alt: "dot" } as BlockInit,
    ];
    const rendered = await client.render(forms.map((form) => ({ role: "user", content: [form] })));
    assert(rendered.output.case === "hfMessages");
    const shown = JSON.parse(rendered.output.value.messagesJson);
    for (const message of shown) assert.equal(message.content[0].base64, data);
    assert.equal(shown[0].content[0].mime_type, "image/png");
    assert.equal(shown[4].content[0].alt, "dot");
  });

  test("gets an image of a file", () => {
    const path = join(FOLDER, "dot.PNG");
    writeFileSync(path, PNG);
    assert.deepEqual(image(path), { type: "image", data: PNG, mime_type: "image/png" });
  });
});

describe("a value without a place", () => {
  const user = { role: "user", content: "Hi" };
  const cases: [string, unknown, object?][] = [
    ["messages[1]", [user, "Hi"]],
    ["messages[0].role", [{ role: 1 }]],
    ["messages[0].content", [{ role: "user", content: 1 }]],
    ["messages[0].content[0]", [{ role: "user", content: [1] }]],
    ["messages[0].content[0]", [{ role: "user", content: [{ type: "x", y: PNG }] }]],
    ["messages[0]", [{ role: "user", x: 1n }]],
    ["messages[0].tool_calls[0]", [{ role: "a", tool_calls: [{ ...CALL, index: 0 }] }]],
    ["messages[0].tool_calls[0].function", [{ role: "a", tool_calls: [{ name: "f" }] }]],
    ["messages[0].tool_calls", [{ role: "a", tool_calls: 1 }]],
    ["messages[0].tool_calls[0].function.name", [{ role: "a", tool_calls: [{ function: {} }] }]],
    ["messages[0].tool_calls[0].id", [{ role: "a", tool_calls: [{ ...CALL, id: 1 }] }]],
    ["messages[0].content[0].tool_use_id", [{ role: "user", content: [{ type: "tool_result", tool_use_id: 1 }] }]],
    ["messages[0].content[0].is_error", [{ role: "user", content: [{ type: "tool_result", is_error: 1 }] }]],
    ["messages", "Hi"],
    ["messages", user],
    ["tools", [user], { tools: TOOL }],
    ["documents", [user], { documents: "{}" }],
    ["tools[0]", [user], { tools: [1] }],
    ["documents[0]", [user], { documents: [[]] }],
    ["templateArgs", [user], { templateArgs: { x: NaN } }],
  ];
  for (const [field, messages, parts] of cases)
    test(`is named ${field}`, () => {
      const made = () => conversation(messages as [], parts);
      assert.throws(made, (error) => error instanceof InvalidRequest && error.field === field);
    });
});
