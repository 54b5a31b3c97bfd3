//! RunTask: requests to rendering and generation, and a task's events to responses.

use std::sync::Arc;

use serde_json::Value;
use tandem_common::pb::chat::v1::{ChatMessage, chat_message};
use tandem_common::pb::generate::v1 as generate;
use tandem_common::pb::render::v1::{RenderRequest, Resolution};
use tandem_common::pb::task::v1::run_task_response::Event;
use tandem_common::pb::task::v1::{
    Parsed, Rendered, RunTaskRequest, RunTaskResponse, TaskFinished, ToolChoice, ToolChoiceMode, tool_choice,
};

use super::{chat, parse, response};
use crate::conversation::Invalid;
use crate::error::Error;
use crate::job::RenderJob;
use crate::output_spec::OutputSpec;
use crate::parse::{Rules, RunningAnswer};
use crate::render;
use crate::task::output::{Answer, TaskEvent};
use crate::task::request::{GenerationOptions, output_spec_in_force};
use crate::tool_choice::{CallLimits, ToolChoice as Choice};

/// The generation parameters of a request.
pub(in crate::grpc) struct Parameters {
    sampling: Option<generate::Sampling>,
    stop: Option<generate::Stop>,
    return_options: Option<generate::ReturnOptions>,
    priority: i32,
    cache_salt: String,
    grammar: Option<generate::Grammar>,
    output_spec: Option<generate::OutputSpec>,
    pub(in crate::grpc) parse_output: bool,
    tool_choice: Option<ToolChoice>,
    parallel_tool_calls: Option<bool>,
}

impl Parameters {
    /// Returns the options in force, with the request's output spec or the `inferred` one.
    pub(in crate::grpc) fn options(self, inferred: &OutputSpec) -> GenerationOptions {
        let Self { sampling, stop, return_options, priority, cache_salt, grammar, output_spec, .. } = self;
        GenerationOptions {
            sampling: sampling.unwrap_or_default(),
            stop,
            return_options: return_options.unwrap_or_default(),
            output_spec: output_spec_in_force(output_spec, inferred.into()),
            grammar,
            priority,
            cache_salt,
        }
    }
}

impl Parameters {
    /// Returns the limits of the answer's calls.
    ///
    /// # Errors
    /// The choice is undefined, or there is a grammar beside one that the limits need.
    pub(in crate::grpc) fn call_limits(&self) -> Result<CallLimits, Invalid> {
        let choice = match self.tool_choice.as_ref().and_then(|choice| choice.choice.as_ref()) {
            None => Choice::Auto,
            Some(tool_choice::Choice::Name(name)) => Choice::Name(name.clone()),
            Some(tool_choice::Choice::Mode(mode)) => match ToolChoiceMode::try_from(*mode) {
                Ok(ToolChoiceMode::Unspecified | ToolChoiceMode::Auto) => Choice::Auto,
                Ok(ToolChoiceMode::None) => Choice::None,
                Ok(ToolChoiceMode::Required) => Choice::Required,
                Err(_) => return Err(Invalid::new("tool_choice.mode", format!("is not defined: {mode}"))),
            },
        };
        let limits = CallLimits { choice, may_repeat: self.parallel_tool_calls.unwrap_or(true) };
        if limits.need_grammar() && self.grammar.is_some() {
            let problem = "cannot be combined with tool_choice or parallel_tool_calls, which need a grammar themselves";
            return Err(Invalid::new("grammar", problem));
        }
        Ok(limits)
    }

    /// Sets the grammar of the answer's calls.
    pub(in crate::grpc) fn set_grammar(&mut self, lark: String) {
        let kind = Some(generate::grammar::Kind::Lark(lark));
        self.grammar = Some(generate::Grammar { kind, after_reasoning: true, ..generate::Grammar::default() });
    }
}

/// The part of a task that is rendered.
#[derive(Clone)]
pub(in crate::grpc) struct TaskRender(pub(in crate::grpc) RenderRequest);

impl TryFrom<TaskRender> for RenderJob {
    type Error = Invalid;

    fn try_from(TaskRender(request): TaskRender) -> Result<Self, Invalid> {
        Ok(Self { is_task: true, ..Self::try_from(request)? })
    }
}

/// Splits a request into the part to render and the parameters of the generation.
pub(in crate::grpc) fn request(request: RunTaskRequest) -> (RenderRequest, Parameters) {
    let RunTaskRequest {
        model,
        conversation,
        options,
        sampling,
        stop,
        return_options,
        priority,
        cache_salt,
        grammar,
        output_spec,
        parse_output,
        tool_choice,
        parallel_tool_calls,
    } = request;
    (
        RenderRequest { model, conversation, options, return_token_ids: true, ..RenderRequest::default() },
        Parameters {
            sampling,
            stop,
            return_options,
            priority,
            cache_salt,
            grammar,
            output_spec,
            parse_output,
            tool_choice,
            parallel_tool_calls,
        },
    )
}

/// The parts of a request that concern the reading of its answer.
#[derive(Debug)]
pub(in crate::grpc) struct Reading {
    /// The model's id, and the pinned adapter.
    pub(in crate::grpc) model: String,
    pub(in crate::grpc) adapter: Option<String>,
    pub(in crate::grpc) tools: Option<Value>,
}

impl Reading {
    /// Returns the model of a request and, where they are needed, its tools.
    pub(in crate::grpc) fn of(request: &RenderRequest, needs_tools: bool) -> Result<Self, Invalid> {
        let conversation = request.conversation.as_ref().filter(|_| needs_tools);
        let tools = conversation.map(|conversation| conversation.tools.clone());
        let tools = tools.map(chat::tools).transpose().map_err(|error| error.within("conversation"))?.flatten();
        let adapter = request.options.as_ref().and_then(|options| options.adapter.clone());
        Ok(Self { model: request.model.clone(), adapter, tools })
    }

    /// Takes the tools out of the request, for an answer that calls none.
    pub(in crate::grpc) fn without_tools(self, request: &mut RenderRequest) -> Self {
        if let Some(conversation) = &mut request.conversation {
            conversation.tools.clear();
        }
        Self { tools: None, ..self }
    }

    /// Returns the reader of the answer to a rendered conversation. Messages for a processor have no prompt: an answer
    /// to them begins with its own start of reasoning.
    pub(in crate::grpc) fn reader(
        &self,
        rules: Arc<Rules>,
        rendered: &render::Rendered,
        options: &GenerationOptions,
    ) -> Result<RunningAnswer, Error> {
        let classes = options.output_spec.special_token_classes.iter();
        let passed = classes.filter(|class| class.action() == generate::SpecialTokenAction::Pass);
        let passed = passed.flat_map(|class| &class.token_ids).copied().collect();
        let spec = &options.output_spec;
        let reasoning =
            spec.reasoning.iter().flat_map(|marks| [&marks.start_token_ids, &marks.end_token_ids]).flatten();
        let segment_ends = reasoning.chain(&spec.eos_token_ids).copied().collect();
        let tokenizer = rendered.model.tokenizer()?.clone();
        let reader = RunningAnswer::new(rules, tokenizer, passed, segment_ends, rendered.prompt(), self.tools.as_ref());
        reader.map_err(|error| Error::Rules(error.into()))
    }
}

/// Returns the first response: how the conversation was rendered, and the output spec in force.
pub(in crate::grpc) fn rendered(rendered: &render::Rendered, output_spec: generate::OutputSpec) -> RunTaskResponse {
    let resolution = Resolution { rejected: Vec::new(), ..response::resolution(&rendered.resolution) };
    of(Event::Rendered(Rendered {
        resolution: Some(resolution),
        warnings: rendered.warnings.iter().map(response::warning).collect(),
        fingerprint: Some(response::fingerprint(rendered)),
        output_spec: Some(output_spec),
    }))
}

/// Returns the response for an event.
pub(in crate::grpc) fn response(event: TaskEvent) -> RunTaskResponse {
    of(match event {
        TaskEvent::Accepted(accepted) => Event::Accepted(accepted),
        TaskEvent::Progress(progress) => Event::Progress(progress),
        TaskEvent::PromptLogprobs(part) => Event::PromptLogprobs(part),
        TaskEvent::Delta(delta) => Event::Delta(delta),
        TaskEvent::Parsed(deltas) => Event::Parsed(Parsed { deltas: deltas.into_iter().map(parse::delta).collect() }),
        TaskEvent::Finished(answer) => Event::Finished(finished(answer)),
    })
}

fn of(event: Event) -> RunTaskResponse {
    RunTaskResponse { event: Some(event) }
}

fn finished(answer: Answer) -> TaskFinished {
    let Answer { text, finish, summary: generate::Summary { usage, timings, seed }, parsed } = answer;
    let content = Some(chat_message::Content::Text(text));
    let message = ChatMessage { role: "assistant".to_owned(), content, ..ChatMessage::default() };
    TaskFinished { message: Some(message), finish, usage, timings, seed, parsed: parsed.map(parse::output) }
}
