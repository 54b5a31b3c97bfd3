// Starts and stops the servers of `servers.json`.

import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { cpSync, mkdirSync, openSync, readFileSync, truncateSync, writeFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import { dirname, join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { Health, HealthCheckResponse_ServingStatus as Status } from "./contract/grpc/health/v1/health_pb.js";
import { CONTRACT, readJson, REPOSITORY, type Request } from "./vectors.js";

const PROGRAMS = resolve(process.env.TANDEM_PROGRAMS ?? join(REPOSITORY, "target/debug"));
const START_SECONDS = 120;

/** A file: its text, a named pipe, or a copy, which zeros extend to `size` bytes. */
type Content = string | { pipe: true } | { copy: string; size?: number };

export interface Spec {
  service: string;
  args: string[];
  replicas?: string[];
  environment?: Record<string, string>;
  files?: Record<string, Content>;
  ready?: boolean;
  tls?: string;
  hold?: Request;
  queued?: Request;
  signal?: string;
}

/** The running servers. */
export class Servers {
  readonly #specs: Record<string, Spec> = readJson(join(CONTRACT, "servers.json")) as Record<string, Spec>;
  readonly #running = new Map<string, Server>();

  /** `folder` gets the servers' files and logs. */
  constructor(readonly folder: string) {}

  async get(key: string): Promise<Server> {
    const running = this.#running.get(key);
    if (running) return running;
    const spec = this.#specs[key];
    if (!spec) throw new Error(`servers.json has no ${key}`);
    const replicas = [];
    for (const replica of spec.replicas ?? []) replicas.push(await this.get(replica));
    const server = new Server(key, spec, join(this.folder, key));
    this.#running.set(key, server);
    await server.start(replicas);
    return server;
  }

  /** Stops a server, unless others use it. */
  async release(key: string): Promise<void> {
    if (Object.values(this.#specs).some((spec) => spec.replicas?.includes(key))) return;
    await this.#running.get(key)?.stop();
    this.#running.delete(key);
  }

  async stop(): Promise<void> {
    for (const server of [...this.#running.values()].reverse()) await server.stop();
    this.#running.clear();
  }
}

/** One process and its addresses. */
export class Server {
  address = "";
  control = "";
  #process?: ChildProcess;
  /** The certificate of the authority, if the server needs TLS. */
  readonly authority?: Buffer;

  constructor(
    readonly key: string,
    readonly spec: Spec,
    readonly folder: string,
  ) {
    if (spec.tls) this.authority = readFileSync(join(CONTRACT, spec.tls));
  }

  async start(replicas: Server[]): Promise<void> {
    mkdirSync(this.folder, { recursive: true });
    [this.address, this.control] = [await freeAddress(), await freeAddress()];
    for (const [name, content] of Object.entries(this.spec.files ?? {})) write(join(this.folder, name), content);
    const generate = replicas[0] ? `http://${replicas[0].address}` : "";
    const values = { model: join(CONTRACT, "model"), folder: this.folder, control: this.control, generate };
    const variables = Object.entries(this.spec.environment ?? {}).map(([name, value]) => [name, filled(value, values)]);
    const options = this.spec.args.map((argument) => filled(argument, values));
    const log = openSync(join(this.folder, "log"), "w");
    this.#process = spawn(join(PROGRAMS, this.spec.service), ["serve", "--listen", this.address, ...options], {
      env: { ...process.env, ...Object.fromEntries(variables) },
      stdio: ["ignore", log, log],
    });
    await this.#wait("connections", () => accepts(this.address));
    if (this.spec.ready ?? true) await this.#wait("health SERVING", () => this.isServing());
  }

  async isServing(): Promise<boolean> {
    const scheme = this.authority ? "https" : "http";
    const nodeOptions = this.authority ? { ca: this.authority } : {};
    const transport = createGrpcTransport({ baseUrl: `${scheme}://${this.address}`, nodeOptions });
    try {
      return (await createClient(Health, transport).check({}, { timeoutMs: 5000 })).status === Status.SERVING;
    } catch {
      return false;
    }
  }

  /** Sends SIGTERM, and waits until health is not SERVING. */
  async terminate(): Promise<void> {
    this.#process?.kill("SIGTERM");
    while (await this.isServing()) await sleep(50);
  }

  async stop(): Promise<void> {
    const child = this.#process;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const ended = new Promise((resolve) => child.once("exit", resolve));
    child.kill((this.spec.ready ?? true) ? "SIGTERM" : "SIGKILL"); // a load may not end
    const timer = setTimeout(() => child.kill("SIGKILL"), 10_000);
    await ended;
    clearTimeout(timer);
  }

  async #wait(what: string, condition: () => Promise<boolean>): Promise<void> {
    for (let left = START_SECONDS * 20; left > 0 && this.#process?.exitCode === null; left--) {
      if (await condition()) return;
      await sleep(50);
    }
    throw new Error(`server ${this.key} has no ${what}:\n${readFileSync(join(this.folder, "log"), "utf8")}`);
  }
}

function filled(text: string, values: Record<string, string>): string {
  return text.replace(/\{(\w+)\}/g, (whole, name: string) => values[name] ?? whole);
}

function write(path: string, content: Content): void {
  mkdirSync(dirname(path), { recursive: true });
  if (typeof content === "string") return writeFileSync(path, content);
  if ("pipe" in content) return void execFileSync("mkfifo", [path]);
  cpSync(join(CONTRACT, content.copy), path, { recursive: true });
  if (content.size) truncateSync(path, content.size);
}

function accepts(address: string): Promise<boolean> {
  const [host, port] = address.split(":") as [string, string];
  return new Promise((resolve) => {
    const socket = connect(Number(port), host, () => {
      socket.destroy();
      resolve(true);
    });
    socket.once("error", () => resolve(false));
  });
}

/** Returns an address whose port was free a moment ago. */
async function freeAddress(): Promise<string> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as { port: number };
  await new Promise((resolve) => server.close(resolve));
  return `127.0.0.1:${port}`;
}
