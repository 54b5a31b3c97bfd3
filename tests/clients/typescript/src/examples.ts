// The TypeScript examples of proto/docs: a call of each method, with the code of protoc-gen-es and Connect.

// [start]
import { createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { ControlService } from "./contract/tandem/generate/v1/control_pb.js";
import { GenerateService } from "./contract/tandem/generate/v1/generate_pb.js";
import { RegistryService } from "./contract/tandem/render/v1/registry_pb.js";
import { RenderService } from "./contract/tandem/render/v1/render_pb.js";
import { TaskService } from "./contract/tandem/task/v1/task_pb.js";

export function connect(address: string) {
  return createGrpcTransport({ baseUrl: `http://${address}` });
}
// [end]

type Transport = ReturnType<typeof connect>;

/** The examples by method. */
export const EXAMPLES: Record<string, (transport: Transport) => Promise<void>> = {
  "RenderService.Render": async (transport) => {
    // [RenderService.Render]
    const conversation = { messages: [{ role: "user", content: { case: "text", value: "Hi" } as const }] };
    const { output } = await createClient(RenderService, transport).render({ conversation, returnTokenIds: true });
    if (output.case === "prompt") {
      console.log(output.value.text);
      console.log(`${output.value.tokenIds.length} tokens`);
    }
    // [end]
  },

  "RenderService.BatchRender": async (transport) => {
    // [RenderService.BatchRender]
    const conversation = { messages: [{ role: "user", content: { case: "text", value: "Hi" } as const }] };
    const requests = ["", "unknown"].map((model) => ({ model, conversation }));
    for (const { outcome } of (await createClient(RenderService, transport).batchRender({ requests })).results) {
      if (outcome.case === "failure") console.log(`failed with code ${outcome.value.code}`);
      else if (outcome.value?.output.case === "prompt") console.log(outcome.value.output.value.text);
    }
    // [end]
  },

  "RenderService.ValidateTemplate": async (transport) => {
    // [RenderService.ValidateTemplate]
    const template = "{{ messages }}\n{% if %}";
    const { outcome } = await createClient(RenderService, transport).validateTemplate({ template });
    if (outcome.case === "problem") console.log(`problem in line ${outcome.value.line}`);
    // [end]
  },

  "RenderService.Tokenize": async (transport) => {
    // [RenderService.Tokenize]
    const { tokenIds } = await createClient(RenderService, transport).tokenize({ text: "Hello world" });
    console.log(`${tokenIds.length} tokens`);
    // [end]
  },

  "RenderService.Detokenize": async (transport) => {
    // [RenderService.Detokenize]
    const { text } = await createClient(RenderService, transport).detokenize({ tokenIds: [72, 105] });
    console.log(text);
    // [end]
  },

  "RenderService.ParseOutput": async (transport) => {
    // [RenderService.ParseOutput]
    const text = 'Let me see.\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>';
    const request = { output: { case: "text" as const, value: text } };
    const { output } = await createClient(RenderService, transport).parseOutput(request);
    if (output?.message?.content.case === "text") console.log(output.message.content.value);
    for (const call of output?.message?.toolCalls ?? []) console.log(`${call.name} ${call.argumentsJson}`);
    // [end]
  },

  "RenderService.StreamParseOutput": async (transport) => {
    // [RenderService.StreamParseOutput]
    async function* messages() {
      yield { event: { case: "start" as const, value: {} } };
      for (const value of ["Let me see.\n<tool", '_call>\n{"name": "get_weather", ', '"arguments": {}}\n</tool_call>'])
        yield { event: { case: "text" as const, value } };
    }
    let content = "";
    for await (const { event } of createClient(RenderService, transport).streamParseOutput(messages())) {
      if (event.case === "parsed")
        for (const { part } of event.value.deltas) if (part.case === "content") content += part.value;
      if (event.case === "finished") {
        console.log(content);
        for (const { name } of event.value.output?.message?.toolCalls ?? []) console.log(name);
      }
    }
    // [end]
  },

  "RegistryService.ListModels": async (transport) => {
    // [RegistryService.ListModels]
    const { models } = await createClient(RegistryService, transport).listModels({});
    for (const { id, adapter } of models) console.log(id, adapter);
    // [end]
  },

  "RegistryService.GetModel": async (transport) => {
    // [RegistryService.GetModel]
    const { model } = await createClient(RegistryService, transport).getModel({});
    console.log(model?.architecture, model?.contextLength);
    // [end]
  },

  "RegistryService.ListAdapters": async (transport) => {
    // [RegistryService.ListAdapters]
    const { adapters } = await createClient(RegistryService, transport).listAdapters({});
    for (const { name } of adapters) console.log(name);
    // [end]
  },

  "RegistryService.ExplainResolution": async (transport) => {
    // [RegistryService.ExplainResolution]
    const { resolution } = await createClient(RegistryService, transport).explainResolution({});
    for (const { adapter } of resolution?.rejected ?? []) console.log("not", adapter);
    console.log(resolution?.adapter);
    // [end]
  },

  "GenerateService.Generate": async (transport) => {
    // [GenerateService.Generate]
    const input = { case: "prompt", value: "Once upon a time" } as const;
    const request = { input, sampling: { temperature: 0 }, stop: { maxNewTokens: 8 } };
    for await (const { event } of createClient(GenerateService, transport).generate(request, { timeoutMs: 60_000 })) {
      if (event.case === "delta") process.stdout.write(event.value.text);
      if (event.case === "summary") console.log(`\n${event.value.usage?.completionTokens} tokens`);
    }
    // [end]
  },

  "GenerateService.GetLoadedModel": async (transport) => {
    // [GenerateService.GetLoadedModel]
    const { model } = await createClient(GenerateService, transport).getLoadedModel({});
    console.log(model?.architecture, model?.contextLength);
    // [end]
  },

  "ControlService.GetServer": async (transport) => {
    // [ControlService.GetServer]
    const { model, maxRunning } = await createClient(ControlService, transport).getServer({});
    console.log(model?.architecture, maxRunning);
    // [end]
  },

  "ControlService.GetLoad": async (transport) => {
    // [ControlService.GetLoad]
    const { running, queued } = await createClient(ControlService, transport).getLoad({});
    console.log(`${running} running, ${queued} queued`);
    // [end]
  },

  "ControlService.FlushPrefixCache": async (transport) => {
    // [ControlService.FlushPrefixCache]
    const { flushedBlocks } = await createClient(ControlService, transport).flushPrefixCache({});
    console.log(`${flushedBlocks} blocks`);
    // [end]
  },

  "ControlService.Drain": async (transport) => {
    // [ControlService.Drain]
    await createClient(ControlService, transport).drain({});
    console.log("draining");
    // [end]
  },

  "TaskService.RunTask": async (transport) => {
    // [TaskService.RunTask]
    const content = { case: "text", value: "Why is the sky blue?" } as const;
    const conversation = { messages: [{ role: "user", content }] };
    const request = { conversation, sampling: { temperature: 0 }, stop: { maxNewTokens: 8 } };
    for await (const { event } of createClient(TaskService, transport).runTask(request, { timeoutMs: 60_000 })) {
      if (event.case === "delta") process.stdout.write(event.value.text);
      if (event.case === "finished") console.log(`\n${event.value.usage?.completionTokens} tokens`);
    }
    // [end]
  },
};
