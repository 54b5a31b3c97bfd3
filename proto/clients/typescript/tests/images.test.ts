// Images in tasks and in generation. A tiny model answers with the tokens of transformers.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { type Answer, type BlockInit, image, Tandem, TandemError } from "tandem-client";
import { type ImageCase, MODEL, start, visionModel } from "./services.js";

const GREEDY = { sampling: { temperature: 0 }, stop: { maxNewTokens: 32 }, returnOptions: { tokenIds: true } };

const FORMS: Record<string, (base64: string) => BlockInit> = {
  base64: (base64) => ({ type: "image", base64 }),
  bytes: (base64) => image(Buffer.from(base64, "base64"), "image/jpeg"),
  "data URL": (base64) => ({ type: "image_url", image_url: { url: `data:image/jpeg;base64,${base64}` } }),
};

describe("an image", () => {
  let conversation: ImageCase, render: Tandem, generate: Tandem, textRender: Tandem, textGenerate: Tandem;

  before(async () => {
    const [folder, first] = visionModel();
    conversation = first;
    [render, generate] = await clients(folder);
    [textRender, textGenerate] = await clients(MODEL);
  });
  after(() => [render, generate, textRender, textGenerate].forEach((client) => client.close()));

  /** Returns the conversation with its images in another form, made from the base64 text. */
  const withImages = (form: (base64: string) => BlockInit) =>
    conversation.messages.map((message) => ({
      ...message,
      content: message.content.map((block) => (block.base64 === undefined ? (block as BlockInit) : form(block.base64))),
    }));

  for (const [name, form] of Object.entries(FORMS))
    test(`as ${name} is part of a task and of a rendered prompt`, async () => {
      const messages = withImages(form);
      assert.deepEqual(await ids(render.run(messages, GREEDY)), conversation.greedy);
      assert.deepEqual(await ids(generate.generate(await render.render(messages), GREEDY)), conversation.greedy);
    });

  test("that is no image is named", async () => {
    const rendered = await render.render(withImages(() => ({ type: "image", base64: "AAAA" })));
    const error = await failure(generate.generate(rendered, GREEDY).text());
    assert.deepEqual([error.reason, error.field], ["INVALID_IMAGE", "hf_messages_json[0].content[1].base64"]);
  });

  test("is refused for a text model", async () => {
    const messages = withImages(FORMS.bytes!);
    const rendered = await textRender.render(messages);
    for (const answer of [textRender.run(messages), textGenerate.generate(rendered)]) {
      const error = await failure(answer.text());
      assert.deepEqual([error.code, error.reason], ["FAILED_PRECONDITION", "IMAGES_NOT_SUPPORTED"]);
    }
  });
});

/** Starts both services, and returns their clients. */
async function clients(model: string): Promise<[render: Tandem, generate: Tandem]> {
  const generation = await start("gen-svc", "--model", model, "--dtype", "f32");
  const rendering = await start("render-svc", "--models", model, "--generate", `http://${generation}`);
  return [new Tandem(rendering), new Tandem(generation)];
}

async function ids(answer: Answer<any>): Promise<number[]> {
  const all: number[] = [];
  for await (const delta of answer.deltas()) all.push(...delta.tokenIds);
  return all;
}

async function failure(call: Promise<unknown>): Promise<TandemError> {
  const error = await call.then(
    () => undefined,
    (error: unknown) => error,
  );
  assert(error instanceof TandemError, String(error));
  return error;
}
