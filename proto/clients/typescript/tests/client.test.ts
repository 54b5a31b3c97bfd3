// The client against running services.

import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { Client, credentials } from "@grpc/grpc-js";
import { type Answer, image, InvalidRequest, StrictError, Tandem, TandemError, type ToolInit } from "tandem-client";
import { GetLoadRequestSchema, GetLoadResponseSchema } from "tandem-client/contract/generate/v1/control";
import { CASES, certificates, freeAddress, MODEL, start, startAt } from "./services.js";

const CASE = CASES[0]!;
const GREEDY = { sampling: { temperature: 0 }, stop: { maxNewTokens: 16 } };
const LONG = { stop: { maxNewTokens: 8000, ignoreEos: true } };

const TOOL: ToolInit = {
  type: "function",
  function: { name: "add", parameters: { type: "object", properties: {} } },
};

/** Returns the error of a failed call. */
async function failure(call: Promise<unknown>): Promise<TandemError> {
  const error = await call.then(
    () => undefined,
    (error: unknown) => error,
  );
  assert(error instanceof TandemError, String(error));
  return error;
}

describe("a client", () => {
  let control: Client, generation: string, render: Tandem, generate: Tandem, rendering: string;

  before(async () => {
    const address = await freeAddress();
    generation = await start("gen-svc", "--model", MODEL, "--dtype", "f32", "--control-listen", address);
    rendering = await start("render-svc", "--models", MODEL, "--generate", `http://${generation}`);
    control = new Client(address, credentials.createInsecure());
    [render, generate] = [new Tandem(rendering), new Tandem(generation)];
  });
  after(() => [control, render, generate].forEach((client) => client.close()));

  /** Returns the number of outputs that gen-svc generates. */
  const running = () =>
    new Promise<number>((resolve, reject) => {
      const bytes = () => Buffer.from(toBinary(GetLoadRequestSchema, create(GetLoadRequestSchema)));
      const parse = (bytes: Buffer) => fromBinary(GetLoadResponseSchema, bytes).running;
      const path = "/tandem.generate.v1.ControlService/GetLoad";
      control.makeUnaryRequest(path, bytes, parse, null, (error, value) => (error ? reject(error) : resolve(value!)));
    });
  const untilRunning = async (count: number) => {
    while ((await running()) !== count) await sleep(10);
  };

  test("renders as transformers", async () => {
    for (const { messages, prompt, prompt_ids } of CASES) {
      const { output } = await render.render(messages, { returnTokenIds: true });
      assert(output.case === "prompt");
      assert.equal(output.value.text, prompt);
      assert.deepEqual(output.value.tokenIds, prompt_ids);
    }
  });

  test("renders a batch with a failure", async () => {
    const requests = [{ messages: CASE.messages }, { messages: [], model: "none" }];
    const [good, bad] = await render.batchRender(requests);
    assert(good && "output" in good && good.output.case === "prompt" && bad && "reason" in bad);
    assert.equal(good.output.value.text, CASE.prompt);
    assert.deepEqual([bad.reason, bad.field], ["MODEL_NOT_FOUND", "requests[1].model"]);
    const wrong = render.batchRender([{ messages: [] }, { messages: [1] as never }]);
    await assert.rejects(
      wrong,
      (error) => error instanceof InvalidRequest && error.field === "requests[1].messages[0]",
    );
  });

  test("tokenizes", async () => {
    const { tokenIds } = await render.tokenize(CASE.prompt);
    assert.deepEqual(tokenIds, CASE.prompt_ids);
    assert.equal(await render.detokenize(tokenIds), CASE.prompt);
  });

  test("describes models and health", async () => {
    const [listed] = await render.models();
    assert.deepEqual(await render.model(listed!.id), listed);
    assert.equal((await generate.generationModel()).tokenizerSha256, listed!.tokenizerSha256);
    assert.equal(await render.health("tandem.task.v1.TaskService"), "SERVING");
    assert.equal(await generate.health(), "SERVING");
  });

  test("streams the tokens of transformers", async () => {
    const answer = render.run(CASE.messages, { ...GREEDY, returnOptions: { tokenIds: true } });
    const [ids, text]: [number[], string[]] = [[], []];
    for await (const delta of answer.deltas()) {
      ids.push(...delta.tokenIds);
      text.push(delta.text);
    }
    assert.deepEqual(ids, CASE.greedy_ids.slice(0, 16));
    assert.deepEqual(answer.message, { role: "assistant", content: text.join("") });
    assert.equal(answer.finishReason, "LENGTH");
    assert.equal(answer.totals?.usage?.promptTokens, CASE.prompt_ids.length);
    assert.match(answer.requestId!, /^[0-9a-f]{32}$/);
  });

  test("generates from text, ids and a rendered conversation", async () => {
    const rendered = await render.render(CASE.messages);
    const withIds = await render.render(CASE.messages, { returnTokenIds: true });
    const expected = await render.run(CASE.messages, GREEDY).text();
    assert(CASE.greedy_text.startsWith(expected) && expected);
    for (const prompt of [CASE.prompt, CASE.prompt_ids, rendered, withIds])
      assert.equal(await generate.generate(prompt, GREEDY).text(), expected);
  });

  test("generates several outputs", async () => {
    const answer = generate.generate("Once", { sampling: { n: 2, seed: 1n }, stop: { maxNewTokens: 4 } });
    const indices = new Set<number>();
    for await (const delta of answer.deltas()) indices.add(delta.outputIndex);
    assert.deepEqual([[...indices].sort(), answer.finishes.size, answer.totals?.seed], [[0, 1], 2, 1n]);
  });

  test("cancels when a loop is left, at the end of a block, and by a signal", async () => {
    for await (const text of render.run(CASE.messages, LONG)) {
      assert(text);
      await untilRunning(1);
      break;
    }
    await untilRunning(0);
    {
      await using answer = render.run(CASE.messages, LONG);
      await answer.events().next();
    }
    await untilRunning(0);
    const stop = new AbortController();
    for await (const _ of render.run(CASE.messages, LONG, { signal: stop.signal })) stop.abort();
    await untilRunning(0);
  });

  test("ends the iteration of a cancelled answer, and keeps its text", async () => {
    const stop = new AbortController();
    const cancellations = [(answer: Answer<any>) => answer.cancel(), () => stop.abort()];
    for (const cancel of cancellations) {
      const answer = render.run(CASE.messages, LONG, { signal: stop.signal });
      const read: string[] = [];
      for await (const text of answer) if (read.push(text) === 3) cancel(answer);
      assert.deepEqual([answer.finishReason, await answer.text(), answer.totals], ["CANCELLED", "", undefined]);
      assert.deepEqual(answer.message, { role: "assistant", content: read.join("") });
      await untilRunning(0);
    }
    const [left, disposed, never, complete] = [LONG, LONG, LONG, GREEDY].map((how) => render.run(CASE.messages, how));
    for await (const _ of left!) break;
    {
      await using answer = disposed!;
      await answer.events().next();
    }
    never!.cancel();
    assert.equal(await never!.text(), "");
    {
      await using answer = complete!;
      assert(await answer.text());
    }
    const reasons = [left, disposed, never, complete].map((answer) => answer!.finishReason);
    assert.deepEqual(reasons, ["CANCELLED", "CANCELLED", "CANCELLED", "LENGTH"]);
    assert.equal((await failure(render.models({ signal: AbortSignal.abort() }))).code, "CANCELLED");
    await untilRunning(0);
  });

  test("has reasoning and content apart", async () => {
    const reasoning = { startStrings: ["<think>"], endStrings: ["</think>"] };
    const grammar = { regex: "<think>\nSo be it\\.\n</think>\n\nYes\\." };
    const answer = render.run(CASE.messages, { grammar, outputSpec: { reasoning } });
    assert.equal(await answer.text(), "\n\nYes.");
    assert.deepEqual(answer.message, { role: "assistant", content: "Yes.", reasoning_content: "So be it." });
  });

  test("writes warnings once per code and client", async (context) => {
    const warn = context.mock.method(console, "warn", () => {});
    const client = new Tandem(rendering);
    await client.render(CASE.messages, { tools: [TOOL] });
    await client.batchRender([{ messages: CASE.messages, tools: [TOOL] }]);
    const answer = client.run(CASE.messages, { tools: [TOOL], ...GREEDY });
    assert(await answer.text());
    assert.equal(answer.warnings[0]?.path, "conversation.tools");
    const lines = warn.mock.calls.map((call) => String(call.arguments[0]));
    assert.equal(lines.length, 1);
    assert.match(lines[0]!, /^tandem: TOOLS_IGNORED: conversation\.tools: ./);
    client.close();
  });

  test("writes or throws the warnings of an output", async (context) => {
    const reasoning = { startStrings: ["<think>"], endStrings: ["</think>"] };
    const inside = { outputSpec: { reasoning }, grammar: { regex: "a" }, stop: { maxNewTokens: 2 } };
    const warn = context.mock.method(console, "warn", () => {});
    for (let i = 0; i < 2; i++) assert.equal(await generate.generate("Hi<think>", inside).text(), "");
    assert.deepEqual(
      warn.mock.calls.map((call) => call.arguments),
      [["tandem: GRAMMAR_NOT_REACHED"]],
    );
    const strict = new Tandem(generation, { strict: true });
    const error = await failure(strict.generate("Hi<think>", inside).text());
    assert(error instanceof StrictError);
    assert.deepEqual([error.reason, error.field], ["GRAMMAR_NOT_REACHED", undefined]);
    strict.close();
  });

  test("follows a JSON schema without white space", async () => {
    const schema = {
      type: "object",
      properties: { a: { type: "boolean" } },
      required: ["a"],
      additionalProperties: false,
    };
    const grammar = { jsonSchema: schema, whitespace: "none" as const };
    assert.match(await render.run(CASE.messages, { grammar }).text(), /^{"a":(true|false)}$/);
  });

  test("throws warnings if it is strict", async () => {
    const client = new Tandem(rendering, { strict: true });
    const calls = [
      () => client.render(CASE.messages, { tools: [TOOL] }),
      () => client.run(CASE.messages, { tools: [TOOL], ...LONG }).text(),
    ];
    for (const call of calls) {
      const error = await failure(call());
      assert(error instanceof StrictError);
      assert.deepEqual(
        [error.reason, error.field, error.warnings[0]?.path],
        ["TOOLS_IGNORED", ...Array(2).fill("conversation.tools")],
      );
    }
    const [good, bad] = await client.batchRender([
      { messages: CASE.messages },
      { messages: CASE.messages, tools: [TOOL] },
    ]);
    assert(good && "output" in good && bad instanceof StrictError);
    assert(await client.run(CASE.messages, GREEDY).text());
    await untilRunning(0);
    client.close();
  });

  test("waits for a service that starts later, or again", async () => {
    const calls = [(client: Tandem) => client.models(), (client: Tandem) => client.run(CASE.messages, GREEDY).text()];
    for (const call of calls) {
      const address = await freeAddress();
      const client = new Tandem(address, { timeoutMs: 60_000 });
      const answer = call(client);
      await sleep(1500);
      const stop = await startAt(address, "render-svc", "--models", MODEL, "--generate", `http://${generation}`);
      assert((await answer).length > 0);
      await stop();
      const again = call(client);
      await sleep(500);
      await startAt(address, "render-svc", "--models", MODEL, "--generate", `http://${generation}`);
      assert((await again).length > 0);
      client.close();
    }
  });

  test("waits for a connection until the deadline, or a number of times", async () => {
    const address = await freeAddress();
    const nowhere = new Tandem(address);
    const calls = [
      () => nowhere.models({ timeoutMs: 2000 }),
      () => nowhere.run(CASE.messages, {}, { timeoutMs: 2000 }).text(),
    ];
    for (const call of calls) {
      const started = Date.now();
      const { code, reason } = await failure(call());
      assert.deepEqual([code, reason], ["UNAVAILABLE", ""]);
      assert(Date.now() - started < 3000);
    }
    const stop = new AbortController();
    const waiting = nowhere.run(CASE.messages, {}, { timeoutMs: 60_000, signal: stop.signal });
    setTimeout(() => stop.abort(), 500);
    assert.deepEqual([await waiting.text(), waiting.finishReason], ["", "CANCELLED"]);
    nowhere.close();
    for (const [retries, least, most] of [
      [0, 0, 300],
      [2, 600, 3000],
    ] as const) {
      const client = new Tandem(address, { retries });
      const started = Date.now();
      assert.equal((await failure(client.models())).code, "UNAVAILABLE");
      const elapsed = Date.now() - started;
      assert(elapsed >= least && elapsed < most, String(elapsed));
      client.close();
    }
  });

  test("gets the end that a deadline causes", async () => {
    let reason: string | undefined;
    // A busy machine may deliver the end later than the client's own deadline.
    for (let attempt = 0; attempt < 5 && reason === undefined; attempt++) {
      const answer = render.run(CASE.messages, LONG, { timeoutMs: 3000 });
      const late = await answer.text().then(
        () => undefined,
        (error: TandemError) => error.code,
      );
      assert(late === undefined || late === "DEADLINE_EXCEEDED", late);
      reason = answer.finishReason;
    }
    assert.equal(reason, "DEADLINE");
  });

  test("receives more than four megabytes", async () => {
    const picture = image(new Uint8Array(6 << 20));
    const { output } = await render.render([{ role: "user", content: [picture] }]);
    assert(output.case === "hfMessages" && output.value.messagesJson.length > 8 << 20);
  });

  test("has errors with reason, field and request id", async () => {
    const error = await failure(render.render([{ role: "" }], {}, { requestId: "my-request" }));
    assert.deepEqual([error.code, error.reason], ["INVALID_ARGUMENT", "INVALID_REQUEST"]);
    assert.deepEqual([error.field, error.requestId], ["conversation.messages[0].role", "my-request"]);
    assert.equal(error.retryDelayMs, undefined);
    const streamed = await failure(render.run(CASE.messages, { sampling: { temperature: -1 } }).text());
    assert.deepEqual([streamed.reason, streamed.field], ["INVALID_REQUEST", "sampling.temperature"]);
    assert.match(streamed.requestId!, /^[0-9a-f]{32}$/);
    assert.deepEqual((await failure(render.model("none"))).resource, { type: "model", name: "none" });
    const nowhere = new Tandem("127.0.0.1:1", { retries: 0 });
    const { code, reason } = await failure(nowhere.models());
    assert.deepEqual([code, reason], ["UNAVAILABLE", ""]);
    nowhere.close();
  });

  test("retries after the delay of the service, within bounds", async () => {
    const options = ["--models", MODEL, "--generate", `http://${generation}`, "--max-calls", "1"];
    const address = await start("render-svc", ...options);
    const [patient, hasty] = [new Tandem(address, { retries: 1e6 }), new Tandem(address, { retries: 0 })];
    const first = patient.run(CASE.messages, LONG);
    await first.events().next();
    for (const call of [() => hasty.models(), () => hasty.run(CASE.messages).text()]) {
      const error = await failure(call());
      assert(error.reason === "OVERLOADED" && error.retryDelayMs! > 0, String(error));
    }
    await failure(patient.models({ timeoutMs: 1000 }));
    const waiting = patient.run(CASE.messages, GREEDY).text();
    await sleep(500);
    await first[Symbol.asyncDispose]();
    assert(await waiting);
    assert.equal((await patient.models()).length, 1);
    [patient, hasty].forEach((client) => client.close());
  });

  test("uses TLS, a certificate and a token", async () => {
    const files = certificates();
    const path = (name: string) => join(files, name);
    writeFileSync(path("tokens"), "sesame\n");
    const tls = ["--tls-cert", path("server.pem"), "--tls-key", path("server.key"), "--tls-client-ca", path("ca.pem")];
    const address = await start("render-svc", "--models", MODEL, ...tls, "--token-file", path("tokens"));
    const identity = { ca: path("ca.pem"), cert: path("client.pem"), key: readFileSync(path("client.key"), "utf8") };
    for (const token of ["sesame", () => "sesame"]) {
      const client = new Tandem(address, { ...identity, token });
      assert.equal((await client.models()).length, 1);
      client.close();
    }
    const unnamed = new Tandem(`https://${address}`, identity);
    assert.equal((await failure(unnamed.models())).reason, "CREDENTIALS_MISSING");
    const stranger = new Tandem(address, { ca: path("ca.pem"), token: "sesame" });
    assert.equal((await failure(stranger.models())).code, "UNAVAILABLE");
    const plain = new Tandem(address, { timeoutMs: 20_000 });
    for (const call of [() => plain.models(), () => plain.run(CASE.messages).text()])
      assert.match((await failure(call())).message, new RegExp(`if the service has TLS, use https://${address}`));
    const secure = new Tandem(`https://${rendering}`, { timeoutMs: 20_000 });
    for (const call of [() => secure.models(), () => secure.run(CASE.messages).text()])
      assert.match((await failure(call())).message, new RegExp(`the service has no TLS: use http://${rendering}`));
    [unnamed, stranger, plain, secure].forEach((client) => client.close());
  });
});
