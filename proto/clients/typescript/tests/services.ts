// Both services, started for the tests with the model that `cargo xtask setup` fetches.

import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { createInterface } from "node:readline";
import { after } from "node:test";

export const REPOSITORY = join(import.meta.dirname, "../../../../..");
const PROGRAMS = process.env.TANDEM_PROGRAMS ?? join(REPOSITORY, "target/debug");
export const MODEL = join(REPOSITORY, ".tandem/models/SmolLM2-135M-Instruct-Q4_1.gguf");
export const FOLDER = mkdtempSync(join(tmpdir(), "tandem-client-"));

interface Case {
  messages: { role: string; content: string }[];
  prompt: string;
  prompt_ids: number[];
  greedy_ids: number[];
  greedy_text: string;
}

/** Conversations with prompts and tokens, as transformers computes them with the same model. */
export const CASES: Case[] = JSON.parse(readFileSync(join(REPOSITORY, "tests/golden/smollm2.json"), "utf8")).cases;

const stops: (() => Promise<unknown>)[] = [];
after(async () => {
  for (const stop of stops.reverse()) await stop();
  rmSync(FOLDER, { recursive: true });
});

/** Starts a service on a free port, and returns its address. It is stopped after the tests. */
export async function start(program: string, ...options: string[]): Promise<string> {
  return (await launch(program, "127.0.0.1:0", options)).address;
}

/** Starts a service at an address. Returns a function that stops it; it is stopped after the tests at the latest. */
export async function startAt(address: string, program: string, ...options: string[]): Promise<() => Promise<unknown>> {
  return (await launch(program, address, options)).stop;
}

async function launch(program: string, listen: string, options: string[]) {
  const log = openSync(join(FOLDER, `${program}.log`), "a");
  const command = ["serve", "--listen", listen, ...options];
  const child = spawn(join(PROGRAMS, program), command, { stdio: ["ignore", "pipe", log] });
  const exit = new Promise((resolve) => child.once("exit", resolve));
  const stop = () => {
    child.kill();
    return exit;
  };
  stops.push(stop);
  for await (const line of createInterface(child.stdout!))
    if (line.startsWith(`${program} listening on `)) return { address: line.split(" ").at(-1)!, stop };
  throw new Error(readFileSync(join(FOLDER, `${program}.log`), "utf8"));
}

/** Returns an address whose port was free a moment ago. */
export async function freeAddress(): Promise<string> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as { port: number };
  await new Promise((resolve) => server.close(resolve));
  return `127.0.0.1:${port}`;
}

/** Starts a render-svc whose template prints its input as JSON. */
export function startEcho(): Promise<string> {
  const folder = join(FOLDER, "echo");
  mkdirSync(folder);
  // The service renders the types of blocks that the template names.
  const template = "{% set types = ['tool_use'] %}{{ [messages, tools, documents, enable_thinking] | tojson }}";
  writeFileSync(join(folder, "tokenizer_config.json"), JSON.stringify({ chat_template: template }));
  return start("render-svc", "--models", folder);
}

/** Writes the model with a chat template that has tools. Returns its path. The Python package has the template. */
export function modelWithTools(): string {
  const folder = join(FOLDER, "with-tools");
  mkdirSync(folder);
  const path = join(folder, basename(MODEL));
  const file = readFileSync(MODEL);
  const key = "tokenizer.chat_template";
  const start = file.indexOf(key) + key.length + 4; // after the type of the value
  const size = Number(file.readBigUInt64LE(start));
  const source = readFileSync(join(REPOSITORY, "proto/clients/python/tests/with_tools.jinja"), "utf8").trim();
  const template = source.slice(0, -2).padEnd(size - 2) + "%}"; // spaces in a tag fill the rest
  if (template.length !== size) throw new Error(`the template may have ${size} bytes`);
  file.write(template, start + 8, "latin1");
  writeFileSync(path, file);
  return path;
}

/** A conversation with images, and the tokens that transformers generates for it. */
export interface ImageCase {
  messages: { role: string; content: { type: string; base64?: string; text?: string }[] }[];
  greedy: number[];
}

/** Writes a tiny model with images. Returns its folder and a conversation. The Python package makes both. */
export function visionModel(): [folder: string, conversation: ImageCase] {
  const folder = join(FOLDER, "vision");
  mkdirSync(folder);
  const script = join(REPOSITORY, "proto/clients/python/tests/vision.py");
  const [first] = JSON.parse(execFileSync("python3", [script, folder], { encoding: "utf8" })) as ImageCase[];
  return [folder, first!];
}

/** Makes an authority, and certificates of a server and a client. Returns the folder of the files. */
export function certificates(): string {
  const folder = join(FOLDER, "tls");
  mkdirSync(folder);
  const openssl = (line: string) => execFileSync("openssl", line.split(" "), { cwd: folder, stdio: "ignore" });
  openssl("req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -subj /CN=ca");
  writeFileSync(join(folder, "ext"), "subjectAltName=DNS:localhost,IP:127.0.0.1\n");
  for (const name of ["server", "client"]) {
    openssl(`req -newkey rsa:2048 -nodes -keyout ${name}.key -out ${name}.csr -subj /CN=${name}`);
    const authority = "-CA ca.pem -CAkey ca.key -CAcreateserial -extfile ext";
    openssl(`x509 -req -in ${name}.csr -out ${name}.pem ${authority}`);
  }
  return folder;
}
