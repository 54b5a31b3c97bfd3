//! Images in prompts: from messages to token ids and pixel values, as the model's processor in
//! transformers does it.
//!
//! 1. [`messages`] takes the images out of the messages.
//! 2. The images are decoded and prepared, several at once.
//! 3. The model's chat template writes the prompt, with a placeholder for each image.
//! 4. Each placeholder becomes an expansion, which contains the image's tokens.
//! 5. The whole text is tokenized. [`spans`] finds the tokens of each image.

use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value};
use tandem_images::{ImageError, Limits as ImageLimits, PreparedCache, PreparedImage, Processor};
use tandem_model_files::artifacts::Artifacts;
use tandem_model_files::tokenizer::Tokenizer;
use tandem_template::{ChatTemplate, Limits as TemplateLimits, LocalTime};

use crate::cache::{Digest, ImageSpan};
use crate::error::Error;

mod axes;
mod marked;
mod messages;
mod spans;

pub use axes::AxisPositions;
pub use marked::{Marked, MediaFile};
use messages::Encoded;
pub use messages::HfMessages;
pub use messages::decode_base64;

/// The field of messages in a request.
const FIELD: &str = "hf_messages_json";

/// The limits of the images of a request.
#[derive(Debug, Clone, Copy)]
pub struct MediaLimits {
    /// The most images of a request.
    pub images: usize,
    /// The limits of one image.
    pub image: ImageLimits,
    /// The bytes of prepared images that are kept for later requests.
    pub cache_bytes: u64,
}

impl Default for MediaLimits {
    fn default() -> Self {
        Self { images: 64, image: ImageLimits::default(), cache_bytes: 256 << 20 }
    }
}

/// The facts about a model that decide how its tokens attend to images.
#[derive(Debug, Clone, Copy)]
pub struct ImageAttention {
    /// True if positions have the axes time, height and width.
    pub has_axes: bool,
    /// True if the tokens of an image attend to each other in both directions.
    pub is_mutual: bool,
}

/// A model's processor: its image preparation and its chat template.
#[derive(Debug)]
pub struct Vision {
    processor: Processor,
    template: ChatTemplate,
    special_tokens: Map<String, Value>,
    /// The token that stands for a row of an image's features.
    image_token: u32,
    attention: ImageAttention,
    limits: MediaLimits,
    cache: PreparedCache,
}

/// A prompt with images.
#[derive(Debug)]
pub struct MediaPrompt {
    /// The token ids, with each image's tokens.
    pub ids: Vec<u32>,
    /// The images.
    pub media: PromptMedia,
}

/// The images of a prompt.
#[derive(Debug)]
pub struct PromptMedia {
    /// The images, in the order of the prompt.
    pub images: Vec<Arc<PreparedImage>>,
    /// The tokens of the images, in order and disjoint.
    pub spans: Vec<ImageSpan>,
    /// The positions of all tokens, if the model has three axes.
    pub positions: Option<AxisPositions>,
    /// True if the tokens of a span attend to each other in both directions.
    pub is_mutual: bool,
}

impl Vision {
    /// Reads the processor of a model with images.
    ///
    /// # Errors
    /// The processor or one of its settings is not supported, or there is no usable chat template.
    pub fn load(artifacts: &Artifacts, attention: ImageAttention, limits: MediaLimits) -> Result<Self, Error> {
        let processor = Processor::load(&artifacts.path)?;
        let image_token = artifacts.tokenizer()?.token_to_id(processor.image_token());
        let image_token = image_token.ok_or_else(|| Error::ImageToken { token: processor.image_token().to_owned() })?;
        let source = artifacts.templates.get("default").ok_or(Error::NoTemplate)?;
        let named = artifacts.special_tokens.named.iter();
        Ok(Self {
            template: ChatTemplate::compile(source)?,
            special_tokens: named.map(|(name, text)| (name.clone(), text.clone().into())).collect(),
            cache: PreparedCache::new(limits.cache_bytes),
            processor,
            image_token,
            attention,
            limits,
        })
    }

    /// Returns the limits of a request's images.
    #[must_use]
    pub fn limits(&self) -> &MediaLimits {
        &self.limits
    }

    /// Returns the prompt of messages.
    ///
    /// # Errors
    /// A message or an image is invalid or over a limit, or the template fails.
    pub fn prompt(&self, messages: HfMessages, tokenizer: &Tokenizer) -> Result<MediaPrompt, Error> {
        let (messages, encoded) = messages.take_images(self.limits.images)?;
        let images = self.prepare(&encoded)?;
        let text = self.render(&messages)?;
        let expansions: Vec<&str> = images.iter().map(|(image, _)| image.plan.expansion.text.as_str()).collect();
        let expanded = tandem_images::expand(&text, self.processor.placeholder(), &expansions);
        let expanded = expanded.map_err(|source| image_error(FIELD.to_owned(), source))?;
        // As in transformers: a template that writes bos itself gets no other special token.
        let has_bos =
            self.special_tokens.get("bos_token").and_then(Value::as_str).is_some_and(|bos| text.starts_with(bos));
        let ids = tokenizer.encode(&expanded.text, !has_bos).map_err(|error| Error::encode(FIELD, error))?;
        let spans = spans::of(&ids, self.image_token, &images)?;
        let images: Vec<_> = images.into_iter().map(|(image, _)| image).collect();
        let positions = self.attention.has_axes.then(|| AxisPositions::new(ids.len(), &spans, &images));
        let is_mutual = self.attention.is_mutual;
        Ok(MediaPrompt { ids, media: PromptMedia { images, spans, positions, is_mutual } })
    }

    fn render(&self, messages: &HfMessages) -> Result<String, Error> {
        let args = &messages.template_args;
        let input = tandem_template::Input {
            messages: &messages.messages,
            tools: messages.tools.as_ref(),
            documents: messages.documents.as_ref(),
            args,
            special_tokens: &self.special_tokens,
            add_generation_prompt: messages.add_generation_prompt,
            continue_final_message: messages.continue_final_message,
            now: messages.now,
            taint: None,
        };
        let applied = self.template.apply(&input, &TemplateLimits::default());
        Ok(applied.map_err(|source| Error::Template { field: FIELD, source: Box::new(source) })?.text)
    }

    /// Decodes and prepares images on as many threads as there are cores.
    fn prepare(&self, encoded: &[Encoded]) -> Result<Vec<(Arc<PreparedImage>, Digest)>, Error> {
        let cores = available_parallelism().map_or(1, usize::from);
        let share = encoded.len().div_ceil(cores).max(1);
        let prepare = |image: &Encoded| {
            let prepared = self.cache.prepare(&self.processor, &image.bytes, &self.limits.image);
            let prepared = prepared.map_err(|source| image_error(image.field.clone(), source))?;
            Ok((prepared, self.processor.digest(&image.bytes)))
        };
        if encoded.len() == 1 {
            return encoded.iter().map(prepare).collect();
        }
        std::thread::scope(|scope| {
            let shares = encoded.chunks(share);
            let threads: Vec<_> =
                shares.map(|share| scope.spawn(move || share.iter().map(prepare).collect::<Vec<_>>())).collect();
            let results = threads.into_iter().flat_map(|thread| match thread.join() {
                Ok(results) => results,
                Err(_) => vec![Err(Error::EngineFailed)],
            });
            results.collect()
        })
    }
}

/// Returns the current time, in UTC.
#[must_use]
pub fn now() -> LocalTime {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    LocalTime::from_unix(i64::try_from(elapsed.as_secs()).unwrap_or(i64::MAX), elapsed.subsec_micros())
}

fn image_error(field: String, source: ImageError) -> Error {
    Error::Image { field, source }
}

impl PromptMedia {
    /// Returns the number of image tokens.
    #[must_use]
    pub fn tokens(&self) -> usize {
        self.spans.iter().map(|span| span.positions.len()).sum()
    }

    /// Returns the span that contains a position.
    #[must_use]
    pub fn span_at(&self, position: usize) -> Option<&ImageSpan> {
        let after = self.spans.partition_point(|span| span.positions.end <= position);
        self.spans.get(after).filter(|span| span.positions.contains(&position))
    }
}
