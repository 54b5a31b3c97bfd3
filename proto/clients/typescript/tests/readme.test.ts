// The programs of the README compile and run.

import assert from "node:assert/strict";
import { execFile, execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { before, describe, test } from "node:test";
import { promisify } from "node:util";
import { FOLDER, MODEL, modelWithTools, start, visionModel } from "./services.js";

const PACKAGE = join(import.meta.dirname, "../..");
const README = readFileSync(join(PACKAGE, "README.md"), "utf8");
const PROGRAMS = [...README.matchAll(/```(js|ts)\n(.*?)```/gs)].map(([, language, text]) => ({
  language,
  text: text!,
}));
const ADDRESS = "127.0.0.1:50051";
const TOOL = '{ type: "function", function: { name: "add", parameters: { type: "object", properties: {} } } }';

/** The names that a program uses without a definition. */
const NAMES: [name: string, definition: string][] = [
  ["client", `const client = new Tandem("${ADDRESS}");`],
  ["messages", 'const messages: MessageInit[] = [{ role: "user", content: "Why is the sky blue?" }];'],
  ["tool", `const tool: ToolInit = ${TOOL};`],
];

const AGENT = "const functions =";

/** The outputs of the agent's model, which a grammar makes: two calls, a call of an unknown tool, and an answer. */
const OUTPUTS = [["weather", "local_time"], ["music"], []].map((names) => {
  const call = (name: string) => `<tool_call>\n{"name": "${name}", "arguments": {"city": "Paris"}}\n</tool_call>`;
  return names.map(call).join("\n") || "It rains.";
});
const FORCED = `parseOutput: true, grammar: { choice: { values: [${JSON.stringify(OUTPUTS)}[turn]!] } }`;

/** Returns the whole program: its imports, and the definitions of the names that it leaves out. */
function complete(program: string): string {
  const imports = program.split("\n").filter((line) => line.startsWith("import "));
  const missing = NAMES.filter(([name]) => new RegExp(`\\b${name}\\b`).test(program));
  const definitions = missing.filter(([name]) => !new RegExp(`const ${name}\\b`).test(program)).map(([, line]) => line);
  const body = program.split("\n").filter((line) => !line.startsWith("import "));
  const imported = imports.join("\n");
  const wanted = ["Tandem", "TandemError", "StrictError", "type MessageInit", "type ToolInit"];
  const own = wanted.filter((name) => !new RegExp(`\\b${name.replace("type ", "")}\\b`).test(imported));
  return [`import { ${own.join(", ")} } from "tandem-client";`, ...imports, ...definitions, ...body].join("\n");
}

describe("the README", () => {
  const folder = join(FOLDER, "readme");
  let text: string, tools: string, vision: string;

  before(async () => {
    const generation = await start("gen-svc", "--model", MODEL, "--max-output-tokens", "500");
    const options = ["--generate", `http://${generation}`];
    text = await start("render-svc", "--models", MODEL, ...options);
    tools = await start("render-svc", "--models", modelWithTools(), ...options);
    const [model, { messages }] = visionModel();
    const images = await start("gen-svc", "--model", model, "--max-output-tokens", "500");
    vision = await start("render-svc", "--models", model, "--generate", `http://${images}`);
    mkdirSync(folder);
    const { base64 } = messages.flatMap(({ content }) => content).find((block) => block.base64 !== undefined)!;
    writeFileSync(join(folder, "cat.png"), Buffer.from(base64!, "base64"));
    mkdirSync(join(folder, "node_modules"));
    symlinkSync(PACKAGE, join(folder, "node_modules/tandem-client"));
    const outside = (name: string) => existsSync(join(PACKAGE, "node_modules", name));
    for (const name of ["@types", "@bufbuild", "@grpc", "zod"].filter(outside))
      symlinkSync(join(PACKAGE, "node_modules", name), join(folder, "node_modules", name));
    writeFileSync(join(folder, "package.json"), '{ "type": "module" }');
    const sources = programs().map(({ file, source }) => {
      writeFileSync(join(folder, file), source);
      return file;
    });
    const compilerOptions = {
      target: "es2022",
      lib: ["es2022", "esnext.disposable"],
      module: "nodenext",
      strict: true,
      types: ["node"],
      outDir: "out",
    };
    writeFileSync(join(folder, "tsconfig.json"), JSON.stringify({ compilerOptions, files: sources }));
    compile();
  });

  /** Returns the programs as files. The examples of Connect need packages that this one does not have. */
  function programs() {
    const own = PROGRAMS.slice(1).filter(({ text }) => !text.includes("@connectrpc"));
    return own.map(({ text: program }, i) => {
      const address = program.includes("image(") ? vision : program.includes("StrictError") ? text : tools;
      const forced = program.includes(AGENT) ? program.replace("parseOutput: true", () => FORCED) : program;
      return { file: `program${i}.ts`, program, source: complete(forced).replaceAll(ADDRESS, address) };
    });
  }

  function compile(): void {
    try {
      execFileSync(process.execPath, [join(PACKAGE, "node_modules/typescript/bin/tsc"), "-p", folder], {
        encoding: "utf8",
      });
    } catch (error) {
      throw new Error((error as { stdout: string }).stdout);
    }
  }

  async function output(file: string): Promise<string> {
    const command = [join(folder, "out", file.replace(".ts", ".js"))];
    return (await promisify(execFile)(process.execPath, command, { cwd: folder, timeout: 120_000 })).stdout;
  }

  test("starts with a program that answers", async () => {
    const program = PROGRAMS[0]!.text;
    assert(program.includes(ADDRESS));
    const command = ["--input-type=module", "--eval", program.replace(ADDRESS, text)];
    assert((await promisify(execFile)(process.execPath, command, { cwd: PACKAGE })).stdout);
  });

  test("has programs that run", async () => {
    const expected: [mark: string, output: RegExp][] = [
      ["const Person", /^41\n$/],
      ["const output =", /^\{ name: 'add', arguments: '\{"a": 1\}' \} \[ '', '' \] json-in-tool-call\n$/],
      [AGENT, /^calls weather \{"city": "Paris"\}\ncalls local_time .*\ncalls music .*\nIt rains\.\n$/],
      ['toolChoice: "required"', /^add\n$/],
      ["StrictError", /^TOOLS_IGNORED conversation\.tools\n$/],
    ];
    const agent = programs().find(({ program }) => program.includes(AGENT))!;
    assert(agent.program.trimEnd().split("\n").length <= 30 && agent.source.includes("grammar"));
    for (const { file, program } of programs()) {
      const printed = await output(file);
      for (const [mark, pattern] of expected) if (program.includes(mark)) assert.match(printed, pattern);
    }
    const marks = programs().flatMap(({ program }) => expected.filter(([mark]) => program.includes(mark)));
    assert.equal(marks.length, expected.length);
  });
});
