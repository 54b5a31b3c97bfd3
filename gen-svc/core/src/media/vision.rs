//! A model's processor: from messages to a prompt with images.

use std::iter;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::available_parallelism;

use serde_json::{Map, Value};
use tandem_common::admission::{Exhausted, Permit, Permits};
use tandem_images::{Files, PreparedCache, PreparedImage, Processor, expand_outside};
use tandem_model_files::artifacts::{Artifacts, read_object};
use tandem_model_files::tokenizer::{AffixPolicy, CancelScope, EncodeOptions};
use tandem_template::literal::{self, ControlTokenFinder, KnownNames, Parts, TaintedParts};
use tandem_template::{ChatTemplate, Limits as TemplateLimits, Taint};

use super::axes::AxisPositions;
use super::fetch::Fetcher;
use super::hosts::ImageHost;
use super::limits::MediaLimits;
use super::messages::{Encoded, FIELD, HfMessages};
use super::prompt::{MediaPrompt, PromptMedia};
use super::room::Room;
use super::source::ImageUrl;
use super::spans;
use crate::cache::Digest;
use crate::error::{LoadError, RequestError};
use crate::models::vision::families;

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
    pub(super) processor: Processor,
    template: ChatTemplate,
    control_tokens: ControlTokenFinder,
    special_tokens: Map<String, Value>,
    /// The token of a row of an image's features.
    pub(super) image_token: u32,
    pub(super) attention: ImageAttention,
    pub(super) limits: MediaLimits,
    cache: PreparedCache,
    memory: Permits,
    fetcher: Option<Fetcher>,
}

/// Reads the image preparation of a model's folder.
///
/// # Errors
/// A file cannot be read, or the processor that the files name is not supported.
pub fn read_processor(folder: &Path) -> Result<Processor, LoadError> {
    Ok(families::processor(&Files::read(|file| read_object(&folder.join(file)))?)?)
}

impl Vision {
    /// Returns the processor of a model with images, with its chat template. Images at URLs are
    /// fetched from `hosts`.
    ///
    /// # Errors
    /// The vocabulary lacks the image token, or there is no usable chat template.
    pub fn load(
        artifacts: &Artifacts,
        processor: Processor,
        attention: ImageAttention,
        limits: MediaLimits,
        hosts: Vec<ImageHost>,
    ) -> Result<Self, LoadError> {
        let tokenizer = artifacts.tokenizer()?;
        let image_token = tokenizer.token_to_id(processor.image_token());
        let image_token =
            image_token.ok_or_else(|| LoadError::ImageToken { token: processor.image_token().to_owned() })?;
        let source = artifacts.templates.get("default").ok_or(LoadError::NoTemplate)?;
        let named = artifacts.special_tokens.named.iter();
        let template = ChatTemplate::compile(source)?;
        // Other templates never render here, and one that does not compile writes nothing.
        let others = artifacts.templates.names().filter(|name| *name != "default");
        let others = others.filter_map(|name| ChatTemplate::compile(artifacts.templates.get(name)?).ok());
        let others: Vec<ChatTemplate> = others.collect();
        let is_written = |text: &str| {
            let mut templates = iter::once(&template).chain(&others);
            templates.any(|template| template.literal_text().contains(text))
        };
        let control_tokens = tokenizer.control_tokens(is_written).chain([processor.placeholder()]);
        let control_tokens = ControlTokenFinder::new(control_tokens).map_err(|_| LoadError::ControlTokens)?;
        Ok(Self {
            template,
            control_tokens,
            special_tokens: named.map(|(name, text)| (name.clone(), text.clone().into())).collect(),
            cache: PreparedCache::new(limits.memory_bytes as u64 / 4),
            memory: Permits::new(limits.memory_bytes),
            fetcher: Fetcher::new(hosts, limits.image.max_bytes),
            processor,
            image_token,
            attention,
            limits,
        })
    }

    /// Returns the preparation of images.
    #[must_use]
    pub fn processor(&self) -> &Processor {
        &self.processor
    }

    /// Returns an image with the most pixel values that a request may have, in a context of this many
    /// tokens. None: every image is refused.
    #[must_use]
    pub fn largest_image(&self, context: usize) -> Option<PreparedImage> {
        self.processor.largest(&self.limits.image, context)
    }

    /// Returns true if the tokens of an image attend to each other in both directions.
    #[must_use]
    pub fn has_mutual_images(&self) -> bool {
        self.attention.is_mutual
    }

    /// Returns the limits of a request's images.
    #[must_use]
    pub fn limits(&self) -> &MediaLimits {
        &self.limits
    }

    /// Returns the text that marks an image's place in a prompt.
    #[must_use]
    pub fn placeholder(&self) -> &str {
        self.processor.placeholder()
    }

    /// Returns true if images at URLs are fetched.
    #[must_use]
    pub fn fetches_images(&self) -> bool {
        self.fetcher.is_some()
    }

    /// Counts the memory of a prompt's images until the result is dropped.
    ///
    /// # Errors
    /// [`RequestError::ImageMemoryFull`].
    pub fn reserve(&self, media: &PromptMedia, caller: &Arc<str>) -> Result<Permit, RequestError> {
        let bytes = media.images.iter().map(|image| image.plan.shape.iter().product::<usize>()).sum();
        self.memory.acquire_many(caller, bytes).map_err(|exhausted| {
            let limit = match exhausted {
                Exhausted::All => self.memory.limit(),
                Exhausted::OfCaller => self.memory.limit_per_caller(),
            };
            RequestError::ImageMemoryFull { limit_mib: limit >> 20 }
        })
    }

    /// Replaces the URLs of images by their data. Does nothing if no host is allowed. Blocks, for at
    /// most ten seconds.
    ///
    /// # Errors
    /// There are too many images, an image cannot be fetched, or they are too large.
    pub fn fetch_images(&self, images: Vec<ImageUrl<'_>>) -> Result<(), RequestError> {
        let Some(fetcher) = &self.fetcher else { return Ok(()) };
        if let Some(ImageUrl { field, .. }) = images.get(self.limits.images) {
            return Err(RequestError::TooManyImages { field: field.clone(), limit: self.limits.images });
        }
        let urls: Vec<&str> = images.iter().map(|image| image.url.as_str()).collect();
        let fetched = fetcher.fetch(&urls);
        for (image, fetched) in images.into_iter().zip(fetched) {
            match fetched {
                Ok(bytes) => image.set(bytes),
                Err(source) => return Err(RequestError::Fetch { field: image.field, source }),
            }
        }
        Ok(())
    }

    /// Returns the prompt of messages.
    ///
    /// # Errors
    /// A message or an image is invalid or over a limit, the template fails, or the text or the images cannot
    /// fit into the context.
    pub fn prompt(&self, messages: HfMessages, room: Room<'_>) -> Result<MediaPrompt, RequestError> {
        let (messages, encoded) = messages.take_images(self.limits.images)?;
        let images = self.prepare(&encoded, room.context)?;
        let text = self.render(&messages, None)?;
        let literal = match messages.literal_control_tokens {
            false => Vec::new(),
            true => self.callers_control_tokens(&text, &messages)?,
        };
        let expansions: Vec<&str> = images.iter().map(|(image, _)| image.plan.expansion.text.as_str()).collect();
        let expanded = expand_outside(&text, self.processor.placeholder(), &expansions, &literal);
        let expanded = expanded.map_err(|source| RequestError::Image { field: FIELD.into(), source })?;
        room.check(FIELD, &[&expanded.text])?;
        // As in transformers: a template that writes bos itself gets no other special token.
        let has_bos =
            self.special_tokens.get("bos_token").and_then(Value::as_str).is_some_and(|bos| text.starts_with(bos));
        let affixes = if has_bos { AffixPolicy::None } else { AffixPolicy::Both };
        let options = EncodeOptions { affixes, literal: &expanded.literal, offsets: false };
        let ids = room
            .tokenizer
            .encode_with(&expanded.text, &options)
            .map_err(|error| RequestError::encode(FIELD, error))?
            .ids;
        let spans = spans::of(&ids, self.image_token, &images)?;
        let images: Vec<_> = images.into_iter().map(|(image, _)| image).collect();
        let positions = self.attention.has_axes.then(|| AxisPositions::new(ids.len(), &spans, &images));
        let is_mutual = self.attention.is_mutual;
        Ok(MediaPrompt { ids, media: PromptMedia { images, spans, positions, is_mutual } })
    }

    /// Returns the bytes of the prompt that spell a control token because the messages do.
    fn callers_control_tokens(&self, prompt: &str, messages: &HfMessages) -> Result<Vec<Range<usize>>, RequestError> {
        let parts = Parts {
            messages: &messages.messages,
            tools: messages.tools.as_ref(),
            documents: messages.documents.as_ref(),
            template_args: &messages.template_args,
        };
        let again = |tainted| {
            let TaintedParts { taint, messages: tainted, tools, documents, template_args } = tainted;
            let options = messages.without_content();
            let tainted = HfMessages { messages: tainted, tools, documents, template_args, ..options };
            self.render(&tainted, Some(taint))
        };
        let is_final =
            |error: &RequestError| matches!(error, RequestError::Template { source, .. } if literal::is_final(source));
        self.control_tokens.of_caller(prompt, parts, &KnownNames::TEMPLATE, again, is_final)
    }

    fn render(&self, messages: &HfMessages, taint: Option<Taint>) -> Result<String, RequestError> {
        let _scope = tandem_template::CancelScope::start(|| CancelScope::check().is_err());
        let args = &messages.template_args;
        let input = tandem_template::Input {
            messages: &messages.messages,
            tools: messages.tools.as_ref(),
            documents: messages.documents.as_ref(),
            args,
            special_tokens: &self.special_tokens,
            add_generation_prompt: messages.add_generation_prompt,
            continue_final_message: messages.continue_final_message.then_some("content"),
            now: messages.now,
            taint,
        };
        let applied = self.template.apply(&input, &TemplateLimits::default());
        Ok(applied.map_err(|source| RequestError::Template { field: FIELD, source: Box::new(source) })?.text)
    }

    /// Decodes and prepares images on as many threads as there are cores. Ends before the next image
    /// once the caller has gone, or the images have as many tokens as the context.
    pub(super) fn prepare(
        &self,
        encoded: &[Encoded],
        context: usize,
    ) -> Result<Vec<(Arc<PreparedImage>, Digest)>, RequestError> {
        let tokens = AtomicUsize::new(0);
        let cores = available_parallelism().map_or(1, usize::from);
        let share = encoded.len().div_ceil(cores).max(1);
        let prepare = |image: &Encoded| {
            CancelScope::check().map_err(RequestError::Tokenize)?;
            let prepared = self.cache.prepare(&self.processor, &image.bytes, &self.limits.image);
            let prepared = prepared.map_err(|source| RequestError::Image { field: image.field.clone(), source })?;
            let own = prepared.0.plan.expansion.tokens;
            match tokens.fetch_add(own, Ordering::Relaxed) + own {
                tokens if tokens >= context => {
                    Err(RequestError::ImagesTooLong { field: image.field.clone(), tokens, context })
                }
                _ => Ok(prepared),
            }
        };
        if encoded.len() == 1 {
            return encoded.iter().map(prepare).collect();
        }
        let cancelled = CancelScope::token();
        let prepare_all = |share: &[Encoded]| {
            let _scope = cancelled.clone().map(CancelScope::start);
            share.iter().map(prepare).collect::<Vec<_>>()
        };
        std::thread::scope(|scope| {
            let shares = encoded.chunks(share);
            let threads: Vec<_> = shares.map(|share| scope.spawn(|| prepare_all(share))).collect();
            let results = threads.into_iter().flat_map(|thread| match thread.join() {
                Ok(results) => results,
                Err(_) => vec![Err(RequestError::EngineFailed)],
            });
            results.collect()
        })
    }
}
