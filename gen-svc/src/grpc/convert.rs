//! Converts protobuf messages to domain types and back. Whole messages are destructured, so that a
//! new field fails to compile until it is handled.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tandem_common::field::Path;
use tandem_common::pb::generate::v1 as pb;
use tandem_common::pb::generate::v1::generate_request::Input as PbInput;
use tandem_common::pb::generate::v1::generate_response::Event as PbEvent;
use tandem_common::pb::generate::v1::grammar::Kind as PbGrammar;
use tandem_core::answer::{
    Accepted, Delta, Event, FinishReason, Finished, RequestProgress, Summary, Timings, Token, TopToken,
};
use tandem_core::engine::{ExternalEngine, GpuState, Promise};
use tandem_core::error::RequestError;
use tandem_core::grammar::{Grammar, GrammarKind, Whitespace};
use tandem_core::media::{self, HfMessages, Marked, MediaFile, MediaLimits, MediaSource};
use tandem_core::output::extract::Rules;
use tandem_core::output::reasoning::{MarkerSet, Markers};
use tandem_core::output::{Matched, TextSegment};
use tandem_core::request::{
    GenerateRequest, Input, Limits, OutputSpec, Resume, Returns, ServedModel, SpecialTokenClass, StopOptions,
};
use tandem_core::sampling::{Sampling, SamplingOptions};
use tandem_core::with_sampling_parameters;

use tandem_template::LocalTime;

use crate::executor::{Draft, UnreadInput};

impl TryFrom<pb::GenerateRequest> for Draft {
    type Error = RequestError;

    fn try_from(request: pb::GenerateRequest) -> Result<Self, RequestError> {
        let pb::GenerateRequest {
            model,
            input,
            sampling,
            stop,
            output_spec,
            return_options,
            expected_tokenizer_sha256,
            priority,
            cache_salt,
            grammar,
            resume,
            hf_template,
            media,
        } = request;
        let (input, unread) = read_input(input, hf_template, media)?;
        let request = GenerateRequest {
            caller: Arc::default(),
            model,
            input,
            sampling: sampling.map(read_sampling).unwrap_or_default(),
            stop: stop.map(read_stop).unwrap_or_default(),
            output_spec: output_spec.map(read_output_spec).transpose()?.unwrap_or_default(),
            returns: return_options.map(read_returns).unwrap_or_default(),
            after_reasoning: grammar.as_ref().is_some_and(|grammar| grammar.after_reasoning),
            grammar: grammar.map(read_grammar).transpose()?,
            expected_tokenizer_sha256,
            priority,
            cache_salt,
            resume: resume.map(read_resume),
        };
        Ok(Self { request, unread })
    }
}

/// Returns an input, or how to read one that takes long.
fn read_input(
    input: Option<PbInput>,
    template: Option<pb::HfTemplate>,
    media: Vec<pb::Media>,
) -> Result<(Input, Option<UnreadInput>), RequestError> {
    let is_messages = matches!(input, Some(PbInput::HfMessagesJson(_)));
    if template.is_some() && !is_messages {
        return Err(RequestError::invalid("hf_template", "must be set together with hf_messages_json only"));
    }
    if !media.is_empty() && is_messages {
        return Err(RequestError::invalid(
            "media",
            "must be empty with hf_messages_json, whose blocks have the images",
        ));
    }
    let marked = match input {
        Some(PbInput::HfMessagesJson(text)) => {
            let bytes = text.len() + template.as_ref().map_or(0, template_size);
            return Ok(unread(bytes, move || Ok(Input::HfMessages(Box::new(read_messages(&text, template)?)))));
        }
        Some(PbInput::Prompt(text)) if media.is_empty() => return Ok((Input::Text(text), None)),
        Some(PbInput::TokenIds(pb::TokenIds { ids })) if media.is_empty() => return Ok((Input::TokenIds(ids), None)),
        Some(PbInput::Prompt(text)) => Marked::Text(text),
        Some(PbInput::TokenIds(pb::TokenIds { ids })) => Marked::TokenIds(ids),
        None => {
            return Err(RequestError::invalid("input", "must be prompt, token_ids or hf_messages_json, is not set"));
        }
    };
    let bytes = marked.size() + media.iter().map(media_size).sum::<usize>();
    Ok(unread(bytes, move || Ok(Input::WithMedia(marked, read_media(media)?))))
}

/// Returns the bytes of the JSON texts.
fn template_size(template: &pb::HfTemplate) -> usize {
    let pb::HfTemplate { tools_json, documents_json, template_args_json, .. } = template;
    tools_json.len() + documents_json.len() + template_args_json.len()
}

fn media_size(media: &pb::Media) -> usize {
    match &media.source {
        Some(pb::media::Source::Data(bytes)) => bytes.len(),
        Some(pb::media::Source::Base64(text) | pb::media::Source::Url(text)) => text.len(),
        None => 0,
    }
}

/// Returns an empty input, and how to read the actual one.
fn unread(
    bytes: usize,
    read: impl FnOnce() -> Result<Input, RequestError> + Send + 'static,
) -> (Input, Option<UnreadInput>) {
    (Input::TokenIds(Vec::new()), Some(UnreadInput { bytes, read: Box::new(read) }))
}

/// Reads a list of messages, and the other inputs of the template.
fn read_messages(text: &str, template: Option<pb::HfTemplate>) -> Result<HfMessages, RequestError> {
    let Some(Value::Array(messages)) = read_json("hf_messages_json", text)? else {
        return Err(RequestError::invalid("hf_messages_json", "must be a list of messages"));
    };
    let pb::HfTemplate {
        tools_json,
        documents_json,
        template_args_json,
        add_generation_prompt,
        continue_final_message,
        render_time,
        literal_control_tokens,
    } = template.unwrap_or_default();
    let template_args = match read_json("hf_template.template_args_json", &template_args_json)? {
        None | Some(Value::Null) => serde_json::Map::new(),
        Some(Value::Object(args)) => args,
        Some(_) => return Err(RequestError::invalid("hf_template.template_args_json", "must be an object")),
    };
    Ok(HfMessages {
        messages,
        tools: read_json("hf_template.tools_json", &tools_json)?,
        documents: read_json("hf_template.documents_json", &documents_json)?,
        template_args,
        add_generation_prompt: add_generation_prompt.unwrap_or(!continue_final_message),
        continue_final_message,
        now: read_time(&render_time)?,
        literal_control_tokens,
    })
}

/// Reads JSON text. Returns None if it is empty.
fn read_json(field: &str, text: &str) -> Result<Option<Value>, RequestError> {
    if text.is_empty() {
        return Ok(None);
    }
    serde_json::from_str(text).map(Some).map_err(|error| RequestError::invalid(field, format!("must be JSON: {error}")))
}

/// Reads a time such as `2025-07-04T09:05:03`. Empty: the clock.
fn read_time(text: &str) -> Result<LocalTime, RequestError> {
    if text.is_empty() {
        return Ok(LocalTime::now());
    }
    let problem = "must be a time such as 2025-07-04T09:05:03";
    LocalTime::parse(text).ok_or_else(|| RequestError::invalid("hf_template.render_time", problem))
}

fn read_media(media: Vec<pb::Media>) -> Result<Vec<MediaFile>, RequestError> {
    let file = |(i, media): (usize, pb::Media)| {
        let pb::Media { kind, source, mime_type: _, offset } = media;
        let field = || Path::item("media", i);
        if !matches!(pb::MediaKind::try_from(kind), Ok(pb::MediaKind::Unspecified | pb::MediaKind::Image)) {
            return Err(RequestError::invalid(field().key("kind"), format!("must be MEDIA_KIND_IMAGE, is {kind}")));
        }
        let source = match source {
            Some(pb::media::Source::Data(bytes)) => MediaSource::Bytes(bytes),
            Some(pb::media::Source::Base64(text)) => {
                MediaSource::Bytes(media::decode_base64(&text, || field().key("base64"))?)
            }
            Some(pb::media::Source::Url(url)) => MediaSource::Url(url),
            None => {
                return Err(RequestError::invalid(field(), "must be data, base64 or url, is not set"));
            }
        };
        Ok(MediaFile { source, offset: offset as usize })
    };
    media.into_iter().enumerate().map(file).collect()
}

fn read_resume(resume: pb::Resume) -> Resume {
    let pb::Resume { generated_tokens, output_index, token_ids } = resume;
    Resume { generated_tokens, output_index, token_ids }
}

fn read_grammar(grammar: pb::Grammar) -> Result<Grammar, RequestError> {
    let pb::Grammar { kind, after_reasoning: _, whitespace } = grammar;
    let kind = match kind {
        Some(PbGrammar::JsonSchema(text)) => GrammarKind::JsonSchema(text),
        Some(PbGrammar::Regex(text)) => GrammarKind::Regex(text),
        Some(PbGrammar::Lark(text)) => GrammarKind::Lark(text),
        Some(PbGrammar::Choice(pb::Choice { values })) => GrammarKind::Choice(values),
        None => return Err(RequestError::invalid("grammar", "must be json_schema, regex, lark or choice, is not set")),
    };
    let whitespace = match pb::Whitespace::try_from(whitespace) {
        Ok(pb::Whitespace::Unspecified | pb::Whitespace::Bounded) => Whitespace::Bounded,
        Ok(pb::Whitespace::None) => Whitespace::Nothing,
        Ok(pb::Whitespace::Free) => Whitespace::Free,
        Err(_) => {
            let problem = format!("must be a Whitespace, is {whitespace}");
            return Err(RequestError::invalid("grammar.whitespace", problem));
        }
    };
    Ok(Grammar { kind, whitespace })
}

fn read_returns(options: pb::ReturnOptions) -> Returns {
    let pb::ReturnOptions { token_ids, logprobs, prompt_logprobs, bytes, extracted_text } = options;
    Returns { token_ids, logprobs, prompt_logprobs, bytes, extracted_text }
}

macro_rules! convert_sampling {
    ($($(#[$doc:meta])+ $name:ident: $type:ty = $neutral:expr, $range:expr, $default:expr;)+) => {
        fn read_sampling(sampling: pb::Sampling) -> SamplingOptions {
            let pb::Sampling { $($name,)+ logit_bias, n, seed } = sampling;
            let mut logit_bias: Vec<(u32, f32)> = logit_bias.into_iter().collect();
            logit_bias.sort_unstable_by_key(|(id, _)| *id);
            SamplingOptions { $($name,)+ logit_bias, n, seed }
        }

        fn sampling_options(sampling: SamplingOptions) -> pb::Sampling {
            let SamplingOptions { $($name,)+ logit_bias, n, seed } = sampling;
            pb::Sampling { $($name,)+ logit_bias: logit_bias.into_iter().collect(), n, seed }
        }

        fn sampling(sampling: Sampling) -> pb::Sampling {
            let Sampling { $($name,)+ logit_bias, n, seed } = sampling;
            let logit_bias = logit_bias.into_iter().collect();
            pb::Sampling { $($name: Some($name),)+ logit_bias, n: Some(n), seed: Some(seed) }
        }
    };
}

with_sampling_parameters!(convert_sampling);

fn read_stop(stop: pb::Stop) -> StopOptions {
    let pb::Stop {
        max_new_tokens,
        stop_strings,
        stop_token_ids,
        ignore_eos,
        min_new_tokens,
        include_stop,
        max_reasoning_tokens,
    } = stop;
    StopOptions {
        max_new_tokens,
        min_new_tokens,
        max_reasoning_tokens,
        stop_strings,
        stop_token_ids,
        ignore_eos,
        include_stop,
    }
}

fn read_output_spec(spec: pb::OutputSpec) -> Result<OutputSpec, RequestError> {
    let pb::OutputSpec { eos_token_ids, stop_strings, special_token_classes, reasoning, extraction } = spec;
    let classes = special_token_classes.into_iter().enumerate().map(read_class);
    Ok(OutputSpec {
        eos_token_ids,
        stop_strings,
        special_token_classes: classes.collect::<Result<_, _>>()?,
        reasoning: reasoning.map(read_markers).unwrap_or_default(),
        extraction: extraction.map(read_rules).unwrap_or_default(),
    })
}

fn read_class((i, class): (usize, pb::SpecialTokenClass)) -> Result<SpecialTokenClass, RequestError> {
    let pb::SpecialTokenClass { name: _, token_ids, action } = class;
    let passes = match pb::SpecialTokenAction::try_from(action) {
        Ok(pb::SpecialTokenAction::Pass) => true,
        Ok(pb::SpecialTokenAction::Drop | pb::SpecialTokenAction::Unspecified) => false,
        Err(_) => {
            let field = Path::item("special_token_classes", i).within("output_spec").key("action");
            return Err(RequestError::invalid(field, format!("must be a SpecialTokenAction, is {action}")));
        }
    };
    Ok(SpecialTokenClass { token_ids, passes })
}

fn read_markers(markers: pb::ReasoningMarkers) -> Markers {
    let pb::ReasoningMarkers { start_token_ids, end_token_ids, start_strings, end_strings } = markers;
    Markers {
        start: MarkerSet { token_ids: start_token_ids, strings: start_strings },
        end: MarkerSet { token_ids: end_token_ids, strings: end_strings },
    }
}

fn read_rules(rules: pb::ExtractionRules) -> Rules {
    let pb::ExtractionRules { strip_reasoning, cut_head, strip_lines } = rules;
    Rules { strip_reasoning, cut_head, strip_lines }
}

/// Returns the messages of an event: two for the end of an output with text, and an error for a
/// rejection.
pub(super) fn responses(event: Event) -> Result<Vec<pb::GenerateResponse>, RequestError> {
    let events = match event {
        Event::Refused(error) => return Err(error),
        Event::Accepted(accepted) => vec![PbEvent::Accepted(self::accepted(accepted))],
        Event::PromptLogprobs(tokens) => {
            let tokens = tokens.into_iter().map(token).collect();
            vec![PbEvent::PromptLogprobs(pb::PromptLogprobs { tokens })]
        }
        Event::Delta(delta) => deltas(delta),
        Event::Finished(finished) => end(finished),
        Event::Summary(summary) => vec![PbEvent::Summary(self::summary(summary))],
    };
    Ok(events.into_iter().map(|event| pb::GenerateResponse { event: Some(event) }).collect())
}

/// Returns the message for a request without an event, where the engine's thread gave its last sign
/// of life `age` ago.
pub(super) fn progress(progress: &RequestProgress, age: Duration) -> pb::GenerateResponse {
    let progress = pb::Progress {
        queue_place: progress.queue_place().map(count),
        computed_prompt_tokens: count(progress.computed_prompt_tokens()),
        last_step_age: age.try_into().ok(),
    };
    pb::GenerateResponse { event: Some(PbEvent::Progress(progress)) }
}

fn accepted(accepted: Accepted) -> pb::Accepted {
    let Accepted { sampling, limits, prompt_tokens, cached_tokens, image_tokens, queue } = accepted;
    pb::Accepted {
        sampling: Some(self::sampling(sampling)),
        stop: Some(self::limits(limits)),
        prompt_tokens: count(prompt_tokens),
        queue_ms: milliseconds(queue),
        cached_tokens: count(cached_tokens),
        image_tokens: count(image_tokens),
    }
}

fn limits(limits: Limits) -> pb::Stop {
    let Limits {
        max_new_tokens,
        min_new_tokens,
        max_reasoning_tokens,
        stop_strings,
        stop_token_ids,
        ignore_eos,
        include_stop,
    } = limits;
    pb::Stop {
        max_reasoning_tokens: max_reasoning_tokens.map(count),
        max_new_tokens: Some(count(max_new_tokens)),
        stop_strings,
        stop_token_ids,
        ignore_eos,
        min_new_tokens: count(min_new_tokens),
        include_stop,
    }
}

/// Returns one message for each segment. The last message has the tokens.
fn deltas(delta: Delta) -> Vec<PbEvent> {
    let Delta { output, segments, token_ids, tokens } = delta;
    let message = |TextSegment { reasoning, text, bytes }| pb::Delta {
        output_index: output,
        text,
        reasoning,
        bytes,
        token_ids: Vec::new(),
        tokens: Vec::new(),
    };
    let mut deltas: Vec<pb::Delta> = segments.into_iter().map(message).collect();
    if let Some(last) = deltas.last_mut() {
        last.token_ids = token_ids;
        last.tokens = tokens.into_iter().map(token).collect();
    }
    deltas.into_iter().map(PbEvent::Delta).collect()
}

fn token(token: Token) -> pb::TokenInfo {
    let Token { id, bytes, logprob, top } = token;
    let top = top.into_iter().map(|TopToken { id, bytes, logprob }| pb::TopLogprob { id, bytes, logprob });
    pb::TokenInfo { id, bytes, logprob, top_logprobs: top.collect() }
}

fn end(finished: Finished) -> Vec<PbEvent> {
    let Finished { last, reason, matched, extracted_text, grammar_not_reached } = finished;
    let warnings = grammar_not_reached.then_some(pb::OutputWarning::GrammarNotReached.into());
    let end = PbEvent::Finished(pb::Finished {
        output_index: last.output,
        reason: finish_reason(reason).into(),
        matched: matched.map(self::matched),
        extracted_text,
        warnings: warnings.into_iter().collect(),
    });
    let last = if last.is_empty() { Vec::new() } else { deltas(last) };
    last.into_iter().chain([end]).collect()
}

fn summary(summary: Summary) -> pb::Summary {
    let Summary { prompt_tokens, cached_tokens, image_tokens, completion_tokens, timings, seed } = summary;
    let usage = pb::Usage {
        prompt_tokens: count(prompt_tokens),
        completion_tokens: count(completion_tokens),
        total_tokens: count(prompt_tokens + completion_tokens),
        cached_tokens: count(cached_tokens),
        image_tokens: count(image_tokens),
    };
    pb::Summary { usage: Some(usage), timings: Some(self::timings(timings)), seed }
}

fn finish_reason(reason: FinishReason) -> pb::FinishReason {
    match reason {
        FinishReason::Stop => pb::FinishReason::Stop,
        FinishReason::Length => pb::FinishReason::Length,
        FinishReason::Cancelled => pb::FinishReason::Cancelled,
        FinishReason::Deadline => pb::FinishReason::Deadline,
        FinishReason::Error => pb::FinishReason::Error,
        FinishReason::GrammarLimit => pb::FinishReason::GrammarLimit,
    }
}

fn matched(matched: Matched) -> pb::finished::Matched {
    match matched {
        Matched::StopToken(id) => pb::finished::Matched::StopTokenId(id),
        Matched::StopString(text) => pb::finished::Matched::StopString(text),
    }
}

fn timings(timings: Timings) -> pb::Timings {
    let Timings { queue, prefill, decode } = timings;
    pb::Timings { queue_ms: milliseconds(queue), prefill_ms: milliseconds(prefill), decode_ms: milliseconds(decode) }
}

fn media_limits(limits: MediaLimits) -> pb::MediaLimits {
    let MediaLimits { images, image, memory_bytes: _ } = limits;
    pb::MediaLimits {
        max_images: count(images),
        max_image_bytes: image.max_bytes as u64,
        max_image_pixels: image.max_pixels,
        max_image_tiles: count(image.max_tiles),
    }
}

/// Returns the message of a model, without its GPUs.
pub(super) fn loaded_model(model: &ServedModel) -> pb::LoadedModel {
    pb::LoadedModel {
        id: model.id.clone(),
        architecture: model.architecture.clone(),
        context_length: count(model.context_length),
        vocabulary_size: count(model.vocabulary_size),
        dtype: model.dtype.clone(),
        quantization: model.quantization.clone(),
        device: model.device.clone(),
        tokenizer_sha256: model.tokenizer.sha256().to_owned(),
        eos_token_ids: model.eos_token_ids.clone(),
        default_sampling: Some(sampling_options(model.defaults.in_force())),
        media_kinds: model.vision.iter().map(|_| pb::MediaKind::Image.into()).collect(),
        media_limits: model.vision.as_ref().map(|vision| media_limits(*vision.limits())),
        gpu: None,
        gpus: Vec::new(),
        engine: None,
    }
}

/// Returns the message of an engine in another process.
pub(super) fn external_engine(engine: ExternalEngine) -> pb::ExternalEngine {
    let promise = |promise: &Promise| match promise {
        Promise::SameTokensAfterResume => pb::Promise::SameTokensAfterResume.into(),
        Promise::IndependentOfBatch => pb::Promise::IndependentOfBatch.into(),
        Promise::SeedsAcrossReplicas => pb::Promise::SeedsAcrossReplicas.into(),
    };
    pb::ExternalEngine {
        name: engine.name.to_owned(),
        version: engine.version,
        unsupported_fields: engine.unsupported_fields.into_iter().map(str::to_owned).collect(),
        missing_promises: engine.missing_promises.iter().map(promise).collect(),
    }
}

/// Returns the message of a GPU.
#[must_use]
pub fn gpu(GpuState { device, name, memory, layers, kv_bytes, kv_blocks }: GpuState) -> pb::Gpu {
    pb::Gpu {
        name,
        memory_bytes: memory.total,
        free_memory_bytes: memory.free,
        kv_blocks: count(kv_blocks.total),
        held_kv_blocks: count(kv_blocks.held),
        device,
        layers: count(layers),
        kv_bytes,
    }
}

/// Returns a count of tokens, which is bounded by the context length.
fn count(tokens: usize) -> u32 {
    u32::try_from(tokens).unwrap_or(u32::MAX)
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
