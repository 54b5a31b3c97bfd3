//! The requests of tasks to the generation service.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use serde_json::Value;
use tandem_common::pb::generate::v1::{
    self as pb, Grammar, HfTemplate, Media, OutputSpec, ReturnOptions, Sampling, Stop,
};
use tandem_common::random::random_u64;
use tandem_model_files::tokenizer::Encoding;

use super::model_names::ModelNames;
use super::prefix;
use crate::adapter::{Attachment, MediaSource};
use crate::catalog::GenerationIds;
use crate::conversation::Invalid;
use crate::conversation::media::MediaKind;
use crate::error::Error;
use crate::parse::RunningAnswer;
use crate::render::{Output, Rendered};

/// A rendered conversation and how to answer it.
#[derive(Debug)]
pub struct Task {
    /// The conversation, rendered with token ids.
    pub rendered: Rendered,
    /// The ids of all models of this service at the generation service.
    pub known_ids: Arc<GenerationIds>,
    /// Generation parameters.
    pub options: GenerationOptions,
    /// When the caller stops waiting.
    pub deadline: Option<Instant>,
    /// Reads the parts of the answer, if the caller wants them.
    pub reader: Option<RunningAnswer>,
}

impl Task {
    /// Returns true for a conversation with media: its messages become JSON text, or each file's
    /// token is searched. That can take long.
    #[must_use]
    pub fn has_media(&self) -> bool {
        match &self.rendered.output {
            Output::HfMessages(_) => true,
            Output::Prompt { attachments, .. } => !attachments.is_empty(),
        }
    }
}

/// A prompt and how to generate its output.
#[derive(Debug, Clone)]
pub struct GenerationRequest {
    /// The model, as replicas may know it.
    pub model: ModelNames,
    /// The input of the model.
    pub prompt: Prompt,
    /// Generation parameters.
    pub options: GenerationOptions,
    /// When the caller stops waiting.
    pub deadline: Option<Instant>,
}

/// The input of a model, as a replica takes it.
#[derive(Debug, Clone)]
pub enum Prompt {
    /// Token ids with a marker for each media file, in order.
    TokenIds {
        ids: Vec<u32>,
        /// The files. Contract messages keep their type.
        media: Vec<Media>,
    },
    /// Messages for the model's own processor.
    HfMessages {
        /// The JSON text of the messages.
        messages_json: String,
        /// The other inputs of the chat template.
        template: HfTemplate,
        /// The start of the messages, in the place of the ids that only a replica computes.
        prefix: Vec<u32>,
    },
}

impl Prompt {
    /// Returns the ids that a prefix cache may have. For messages, returns units of their text and
    /// images.
    #[must_use]
    pub fn prefix(&self) -> &[u32] {
        match self {
            Self::TokenIds { ids, .. } => ids,
            Self::HfMessages { prefix, .. } => prefix,
        }
    }

    /// Returns true if the prompt has images. A prompt of messages has.
    #[must_use]
    pub fn has_images(&self) -> bool {
        match self {
            Self::TokenIds { media, .. } => !media.is_empty(),
            Self::HfMessages { .. } => true,
        }
    }

    /// Returns the input of a rendered conversation.
    ///
    /// # Errors
    /// A media file has neither data nor a URL, or the rendering has no token ids.
    fn of(output: Output) -> Result<Self, Error> {
        match output {
            Output::HfMessages(messages) => {
                let template = HfTemplate::from(&*messages);
                let prefix = prefix::of_messages(&messages.messages);
                Ok(Self::HfMessages { messages_json: Value::from(messages.messages).to_string(), template, prefix })
            }
            Output::Prompt { tokens: Some(Encoding { ids, offsets }), attachments, .. } => {
                let offsets = offsets.unwrap_or_default();
                let media = attachments.into_iter().map(|attachment| media(attachment, &offsets));
                Ok(Self::TokenIds { ids, media: media.collect::<Result<_, _>>()? })
            }
            Output::Prompt { tokens: None, .. } => Err(Error::ImagesNotSupported),
        }
    }
}

/// Returns the file of an attachment, at the token that starts where its marker does.
fn media(attachment: Attachment, offsets: &[Range<usize>]) -> Result<Media, Error> {
    let Attachment { kind, path, offset, mime_type, source } = attachment;
    if kind != MediaKind::Image {
        return Err(Invalid::new(path, "must be an image: no other media are generated from").into());
    }
    let source = match source {
        MediaSource::Base64(base64) => pb::media::Source::Base64(base64),
        MediaSource::Location(url) if is_url(&url) => pb::media::Source::Url(url),
        MediaSource::Location(_) => {
            return Err(Invalid::new(path, "must have its data as bytes or base64, or an http or https URL").into());
        }
        MediaSource::Declared(_) | MediaSource::Elsewhere => {
            let problem =
                "must have its data as bytes or base64, or a URL: entries of template_args.attachments have none";
            return Err(Invalid::new(path, problem).into());
        }
    };
    let at = offsets.iter().position(|range| range.start == offset && !range.is_empty());
    Ok(Media {
        kind: pb::MediaKind::Image.into(),
        source: Some(source),
        mime_type: mime_type.unwrap_or_default(),
        offset: u32::try_from(at.ok_or(Error::ImagesNotSupported)?).unwrap_or(u32::MAX),
    })
}

fn is_url(location: &str) -> bool {
    let starts_with =
        |scheme: &str| location.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme));
    starts_with("http://") || starts_with("https://")
}

/// Returns the output spec in force: the inferred one if the request has none. The inferred eos ids
/// also apply if the request's output spec has none.
#[must_use]
pub fn output_spec_in_force(requested: Option<OutputSpec>, inferred: OutputSpec) -> OutputSpec {
    match requested {
        None => inferred,
        Some(spec) if spec.eos_token_ids.is_empty() => OutputSpec { eos_token_ids: inferred.eos_token_ids, ..spec },
        Some(spec) => spec,
    }
}

/// Generation parameters, forwarded to the generation service. Contract messages keep their type, as
/// in [`generator`](super::generator).
#[derive(Debug, Clone, Default)]
pub struct GenerationOptions {
    /// How tokens are sampled.
    pub sampling: Sampling,
    /// When the output ends.
    pub stop: Option<Stop>,
    /// Values to return besides text.
    pub return_options: ReturnOptions,
    /// How the output is read.
    pub output_spec: OutputSpec,
    /// Grammar that the output must match.
    pub grammar: Option<Grammar>,
    /// Higher is scheduled first.
    pub priority: i32,
    /// Cached prefixes are shared between requests with the same salt.
    pub cache_salt: String,
}

impl TryFrom<Task> for GenerationRequest {
    type Error = Error;

    /// Creates a request that any replica can resume: with a seed, so that each draws the same
    /// random numbers, and with token ids.
    ///
    /// # Errors
    /// More than one output is requested, a media file has neither data nor a URL, or the model has no tokenizer.
    fn try_from(task: Task) -> Result<Self, Error> {
        let Task { rendered, known_ids, mut options, deadline, reader: _ } = task;
        if options.sampling.n.is_some_and(|n| n > 1) {
            return Err(Invalid::new("sampling.n", "must be 1: a task has one answer").into());
        }
        let prompt = Prompt::of(rendered.output)?;
        options.sampling.seed.get_or_insert_with(random_u64);
        options.return_options.token_ids = true;
        let tokenizer_sha256 = rendered.model.tokenizer()?.sha256();
        let model = ModelNames::with_tokenizer(&rendered.model, known_ids, tokenizer_sha256);
        Ok(Self { model, prompt, options, deadline })
    }
}
