//! Renderings, models, adapters and templates as messages of the contract.

use std::ops::Range;

use serde_json::Value;
use tandem_common::pb::generate::v1 as generate;
use tandem_common::pb::render::v1 as pb;
use tandem_common::status::{Failure, chain};
use tandem_model_files::digest::hex_sha256;
use tandem_model_files::tokenizer::Encoding;
use tandem_template::{ChatTemplate, CompileError};

use crate::adapter::{Adapter, Attachment, Kind, MediaSource};
use crate::capabilities::{Capabilities, Evidence};
use crate::catalog::{CatalogEntry, Resolution, ServedModel, facts};
use crate::conversation::Object;
use crate::conversation::media::MediaKind;
use crate::error::{Error, without_folder};
use crate::fact::{Fact, FactSource};
use crate::field_paths::RequestPaths;
use crate::job::ControlTokenPolicy;
use crate::limits::Limits;
use crate::model::Model;
use crate::output_spec::{OutputSpec, ROLES, Reasoning};
use crate::probes::{self, ArgumentFact, ArgumentsShape, ModelValues, TemplateFacts};
use crate::render::{HfMessages, Output, Rendered};
use crate::warning::{Warning, WarningCode};

pub(in crate::grpc) fn rendered(rendered: Rendered) -> pb::RenderResponse {
    let timings = pb::RenderTimings {
        render_ms: rendered.render_time.as_secs_f64() * 1e3,
        tokenize_ms: rendered.tokenize_time.as_secs_f64() * 1e3,
    };
    pb::RenderResponse {
        fingerprint: Some(fingerprint(&rendered)),
        output_spec: Some(generate::OutputSpec::from(&*rendered.output_spec)),
        resolution: Some(resolution(&rendered.resolution)),
        warnings: rendered.warnings.iter().map(warning).collect(),
        timings: Some(timings),
        output: Some(output(rendered.output)),
    }
}

fn output(output: Output) -> pb::render_response::Output {
    match output {
        Output::Prompt { text, attachments, tokens } => {
            let Encoding { ids, offsets } = tokens.unwrap_or_default();
            pb::render_response::Output::Prompt(pb::Prompt {
                text,
                token_ids: ids,
                attachments: attachments.into_iter().map(attachment).collect(),
                offsets: self::offsets(offsets),
            })
        }
        Output::HfMessages(messages) => pb::render_response::Output::HfMessages(hf_messages(*messages)),
    }
}

fn hf_messages(messages: HfMessages) -> pb::HfMessages {
    let generate::HfTemplate {
        tools_json,
        documents_json,
        template_args_json,
        add_generation_prompt,
        continue_final_message,
        render_time,
        literal_control_tokens,
    } = generate::HfTemplate::from(&messages);
    let control_tokens =
        if literal_control_tokens { pb::ControlTokens::Literal } else { pb::ControlTokens::Unspecified };
    pb::HfMessages {
        messages_json: Value::from(messages.messages).to_string(),
        tools_json,
        documents_json,
        template_args_json,
        add_generation_prompt: add_generation_prompt.unwrap_or(true),
        continue_final_message,
        render_time,
        control_tokens: control_tokens.into(),
    }
}

impl From<&HfMessages> for generate::HfTemplate {
    fn from(messages: &HfMessages) -> Self {
        let json = |value: &Option<Value>| value.as_ref().filter(|value| !value.is_null()).map(Value::to_string);
        let args = &messages.template_args;
        Self {
            tools_json: json(&messages.tools).unwrap_or_default(),
            documents_json: json(&messages.documents).unwrap_or_default(),
            template_args_json: if args.is_empty() { String::new() } else { Value::from(args.clone()).to_string() },
            add_generation_prompt: Some(messages.add_generation_prompt),
            continue_final_message: messages.continue_final_message,
            render_time: messages.now.to_string(),
            literal_control_tokens: messages.control_tokens == ControlTokenPolicy::Literal,
        }
    }
}

pub(in crate::grpc) fn tokenized(encoding: Encoding) -> pb::TokenizeResponse {
    pb::TokenizeResponse { token_ids: encoding.ids, offsets: offsets(encoding.offsets) }
}

fn offsets(offsets: Option<Vec<Range<usize>>>) -> Vec<pb::TokenOffset> {
    let offset = |range: Range<usize>| pb::TokenOffset { start: place(range.start), end: place(range.end) };
    offsets.into_iter().flatten().map(offset).collect()
}

/// Converts a position in a text. Messages, and so texts, are far shorter than 4 GiB.
pub(super) fn place(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

fn attachment(attachment: Attachment) -> pb::Attachment {
    use pb::attachment::Source;
    let kind = match attachment.kind {
        MediaKind::Image => generate::MediaKind::Image,
        MediaKind::Audio => generate::MediaKind::Audio,
        MediaKind::Video => generate::MediaKind::Video,
    };
    let source = match attachment.source {
        MediaSource::Base64(base64) => Some(Source::Base64(base64)),
        MediaSource::Location(location) => Some(Source::Location(location)),
        MediaSource::Declared(id) => Some(Source::AttachmentId(id)),
        MediaSource::Elsewhere => None,
    };
    pb::Attachment {
        kind: kind.into(),
        path: attachment.path.to_string(),
        source,
        offset: place(attachment.offset),
        mime_type: attachment.mime_type.unwrap_or_default(),
    }
}

pub(in crate::grpc) fn resolution(resolution: &Resolution) -> pb::Resolution {
    let rejected = |(adapter, reason): &(&str, String)| pb::RejectedAdapter {
        adapter: (*adapter).to_owned(),
        reason: reason.clone(),
    };
    pb::Resolution {
        adapter: resolution.adapter.unwrap_or_default().to_owned(),
        reason: resolution.reason.clone(),
        rejected: resolution.rejected.iter().map(rejected).collect(),
    }
}

pub(super) fn warning(warning: &Warning) -> pb::Warning {
    let code = match warning.code {
        WarningCode::ToolsIgnored => pb::WarningCode::ToolsIgnored,
        WarningCode::TemplateArgsIgnored => pb::WarningCode::TemplateArgsIgnored,
        WarningCode::DocumentsIgnored => pb::WarningCode::DocumentsIgnored,
        WarningCode::MessagesMerged => pb::WarningCode::MessagesMerged,
        WarningCode::SystemRewritten => pb::WarningCode::SystemRewritten,
        WarningCode::TemplateArgUnknown => pb::WarningCode::TemplateArgUnknown,
        WarningCode::ToolArgumentsType => pb::WarningCode::ToolArgumentsType,
        WarningCode::OptionIgnored => pb::WarningCode::OptionIgnored,
        WarningCode::FormatGuessed => pb::WarningCode::FormatGuessed,
        WarningCode::ImagesIgnored => pb::WarningCode::ImagesIgnored,
        WarningCode::TemplateArgReserved => pb::WarningCode::TemplateArgReserved,
        WarningCode::ToolParametersIgnored => pb::WarningCode::ToolParametersIgnored,
        WarningCode::ToolResultUnpaired => pb::WarningCode::ToolResultUnpaired,
        WarningCode::NoContent => pb::WarningCode::NoContent,
        WarningCode::ImagesNotSupported => pb::WarningCode::ImagesNotSupported,
        WarningCode::MessageIgnored => pb::WarningCode::MessageIgnored,
        WarningCode::ToolCallsIgnored => pb::WarningCode::ToolCallsIgnored,
        WarningCode::ReasoningIgnored => pb::WarningCode::ReasoningIgnored,
        WarningCode::TemplateDiffers => pb::WarningCode::TemplateDiffers,
    };
    pb::Warning { code: code.into(), path: warning.path.to_string(), text: warning.text.clone() }
}

pub(super) fn fingerprint(rendered: &Rendered) -> pb::Fingerprint {
    pb::Fingerprint {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        adapter: rendered.resolution.adapter.unwrap_or_default().to_owned(),
        template_sha256: rendered.template_sha256.as_deref().unwrap_or_default().to_owned(),
        tokenizer_sha256: tokenizer_sha256(&rendered.model),
        prompt_sha256: rendered.prompt_sha256().unwrap_or_default(),
    }
}

fn tokenizer_sha256(model: &Model) -> String {
    model.tokenizer.as_ref().map(|tokenizer| tokenizer.sha256().to_owned()).unwrap_or_default()
}

impl From<&OutputSpec> for generate::OutputSpec {
    fn from(spec: &OutputSpec) -> Self {
        let OutputSpec { ends, passed_token_ids, reasoning, turn_head, runs_on } = spec;
        Self {
            eos_token_ids: ends.token_ids(),
            stop_strings: ends.texts(),
            special_token_classes: passed_class(passed_token_ids).into_iter().collect(),
            reasoning: reasoning.as_ref().map(reasoning_markers),
            extraction: Some(generate::ExtractionRules {
                strip_reasoning: reasoning.is_some(),
                cut_head: turn_head.clone(),
                strip_lines: if *runs_on { ROLES.map(str::to_owned).to_vec() } else { Vec::new() },
            }),
        }
    }
}

fn passed_class(ids: &[u32]) -> Option<generate::SpecialTokenClass> {
    (!ids.is_empty()).then(|| generate::SpecialTokenClass {
        name: "tool_call".to_owned(),
        token_ids: ids.to_owned(),
        action: generate::SpecialTokenAction::Pass.into(),
    })
}

fn reasoning_markers(reasoning: &Reasoning) -> generate::ReasoningMarkers {
    match *reasoning {
        Reasoning::Tokens(start, end) => generate::ReasoningMarkers {
            start_token_ids: vec![start],
            end_token_ids: vec![end],
            ..generate::ReasoningMarkers::default()
        },
        Reasoning::Text(start, end) => generate::ReasoningMarkers {
            start_strings: vec![start.to_owned()],
            end_strings: vec![end.to_owned()],
            ..generate::ReasoningMarkers::default()
        },
    }
}

/// Converts the result of one request of a batch.
pub(in crate::grpc) fn result(result: Result<pb::RenderResponse, Error>, paths: &RequestPaths) -> pb::RenderResult {
    use pb::render_result::Outcome;
    let outcome = match result {
        Ok(response) => Outcome::Response(response),
        Err(error) => Outcome::Failure(paths.failure(Failure::from(&error)).into()),
    };
    pb::RenderResult { outcome: Some(outcome) }
}

pub(in crate::grpc) fn template(
    compiled: Result<ChatTemplate, CompileError>,
) -> pb::validate_template_response::Outcome {
    use pb::validate_template_response::Outcome;
    match compiled {
        Ok(template) => Outcome::Template(template_info(&template)),
        Err(error) => Outcome::Problem(template_problem(&error)),
    }
}

fn template_info(template: &ChatTemplate) -> pb::TemplateInfo {
    let empty = Object::new();
    let values = ModelValues { special_tokens: &empty, toggles: &empty };
    let facts = TemplateFacts::of(template, values, probes::deadline());
    let tool_arguments = match facts.tools.arguments {
        ArgumentsShape::Unread => pb::ToolArguments::Unread,
        ArgumentsShape::Object => pb::ToolArguments::Object,
        ArgumentsShape::Text => pb::ToolArguments::Text,
        ArgumentsShape::Either => pb::ToolArguments::Either,
    };
    let source = Some(template.source());
    let evidence = Evidence { facts: Some(&facts), tool_facts: None, template: source, name: "", architecture: None };
    pb::TemplateInfo {
        sha256: hex_sha256(template.source().as_bytes()),
        capabilities: capabilities(evidence.capabilities().capabilities),
        reads_tools: template.reads("tools"),
        reads_documents: template.reads("documents"),
        tool_arguments: tool_arguments.into(),
    }
}

fn template_problem(error: &CompileError) -> pb::TemplateProblem {
    use pb::TemplateProblemKind as Kind;
    let (kind, line, message) = match error {
        CompileError::Syntax { line, message } => (Kind::Syntax, *line, message.clone()),
        CompileError::Unsupported { line, construct } => {
            (Kind::Unsupported, *line, format!("{construct} is not supported"))
        }
        CompileError::TooComplex { line, what, max } => (Kind::TooComplex, *line, format!("{what} exceeds {max}")),
    };
    pb::TemplateProblem { kind: kind.into(), line, message }
}

pub(in crate::grpc) fn adapter_info(adapter: &Adapter) -> pb::AdapterInfo {
    let kind = match adapter.kind {
        Kind::Family => pb::AdapterKind::Family,
        Kind::Template => pb::AdapterKind::Template,
        Kind::Format => pb::AdapterKind::Format,
    };
    pb::AdapterInfo { name: adapter.name.to_owned(), description: adapter.description.to_owned(), kind: kind.into() }
}

pub(in crate::grpc) fn model_info(id: &str, entry: &CatalogEntry, limits: &Limits) -> pb::ModelInfo {
    let info = entry.model.as_ref().map(|served| loaded_model(served, limits)).unwrap_or_default();
    let problem = entry.problem.as_ref().map(|error| without_folder(&chain(error.as_ref()), &entry.path));
    let problem = problem.unwrap_or_default();
    pb::ModelInfo { id: id.to_owned(), aliases: entry.aliases.clone(), problem, ..info }
}

fn loaded_model(served: &ServedModel, limits: &Limits) -> pb::ModelInfo {
    let model = &served.model;
    let image_limits = pb::ImageLimits {
        max_images: u32::try_from(limits.max_images).unwrap_or(u32::MAX),
        max_image_pixels: limits.max_image_pixels,
    };
    let special = |(name, text): (&String, &Value)| {
        let text = text.as_str()?;
        let id = model.tokenizer.as_ref().ok().and_then(|tokenizer| tokenizer.token_to_id(text));
        Some(pb::SpecialToken { name: name.clone(), text: text.to_owned(), id })
    };
    pb::ModelInfo {
        id: String::new(),
        architecture: model.artifacts.architecture.clone().unwrap_or_default(),
        context_length: model.artifacts.context_length.unwrap_or_default(),
        adapter: served.adapter.adapter().name.to_owned(),
        special_tokens: model.special_tokens.iter().filter_map(special).collect(),
        tokenizer_sha256: tokenizer_sha256(model),
        template_sha256: model.artifacts.templates.sha256("default").unwrap_or_default(),
        capabilities: capabilities(model.capabilities),
        aliases: Vec::new(),
        templates: model.templates.iter().map(|template| template.name.clone()).collect(),
        problem: String::new(),
        tokenizer_problem: without_folder(&model.tokenizer_problem().unwrap_or_default(), &model.artifacts.path),
        media_kinds: model.takes_images.then(|| generate::MediaKind::Image.into()).into_iter().collect(),
        image_limits: model.takes_images.then_some(image_limits),
        facts: facts::facts(served).into_iter().map(fact).collect(),
        template_arguments: facts::arguments(served).into_iter().map(template_argument).collect(),
    }
}

fn fact(fact: Fact) -> pb::Fact {
    let Fact { name, value, source } = fact;
    pb::Fact { name: name.into_owned(), value, source: fact_source(source).into() }
}

fn template_argument((argument, source): (ArgumentFact, FactSource)) -> pb::TemplateArgument {
    let is_thinking = argument.is_thinking();
    let ArgumentFact { name, values, default, is_any_text } = argument;
    pb::TemplateArgument {
        name,
        values_json: values.iter().map(Value::to_string).collect(),
        default_json: default.map(|value| value.to_string()).unwrap_or_default(),
        takes_any_text: is_any_text,
        is_thinking,
        source: fact_source(source).into(),
    }
}

fn fact_source(source: FactSource) -> pb::FactSource {
    match source {
        FactSource::Probe => pb::FactSource::Probe,
        FactSource::TemplateText => pb::FactSource::TemplateText,
        FactSource::Name => pb::FactSource::Name,
        FactSource::Architecture => pb::FactSource::Architecture,
        FactSource::Files => pb::FactSource::Files,
        FactSource::Tokenizer => pb::FactSource::Tokenizer,
        FactSource::Adapter => pb::FactSource::Adapter,
        FactSource::Configuration => pb::FactSource::Configuration,
        FactSource::Default => pb::FactSource::Default,
    }
}

/// Prefix of the names of capabilities in the contract.
pub(super) const CAPABILITY: &str = "CAPABILITY_";

fn capabilities(capabilities: Capabilities) -> Vec<i32> {
    let flag = |name: &str| pb::Capability::from_str_name(&format!("{CAPABILITY}{name}"));
    capabilities.names().into_iter().filter_map(flag).map(i32::from).collect()
}
