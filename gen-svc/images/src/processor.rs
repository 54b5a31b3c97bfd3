//! A model's processor.

use std::cell::OnceCell;
use std::sync::Arc;
use std::{fmt, iter};

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::decode::{Limits, decode_if};
use crate::decoding::Decoding;
use crate::error::{ImageError, ProcessorError};
use crate::image::RgbImage;
use crate::prepared::{ImagePlan, PixelBatch, Prepared, PreparedImage};
use crate::processors::{FAMILIES, Family};
use crate::recipe::Recipe;
use crate::settings::{Section, Settings};

const PREPROCESSOR: &str = "preprocessor_config.json";
const PROCESSOR: &str = "processor_config.json";
const TOKENIZER: &str = "tokenizer_config.json";
const CONFIG: &str = "config.json";

/// The files of a model that describe its processor, each a JSON object. An absent file is empty.
#[derive(Debug, Clone, Default)]
pub struct Files {
    /// `preprocessor_config.json`.
    pub preprocessor: Map<String, Value>,
    /// `processor_config.json`. Its `image_processor`, if any, replaces the file above.
    pub processor: Map<String, Value>,
    /// `tokenizer_config.json`, for names of special tokens.
    pub tokenizer: Map<String, Value>,
    /// `config.json`, for the model's type.
    pub config: Map<String, Value>,
    /// Values that replace those of the image processor, as arguments of a call do in transformers.
    pub overrides: Map<String, Value>,
}

impl Files {
    /// Reads the files by their names. `read` returns `None` for an absent file.
    pub fn read<E>(read: impl Fn(&str) -> Result<Option<Map<String, Value>>, E>) -> Result<Self, E> {
        let read = |file| Ok(read(file)?.unwrap_or_default());
        Ok(Self {
            preprocessor: read(PREPROCESSOR)?,
            processor: read(PROCESSOR)?,
            tokenizer: read(TOKENIZER)?,
            config: read(CONFIG)?,
            overrides: Map::new(),
        })
    }

    fn family(&self) -> Result<&'static Family, ProcessorError> {
        let family = self.family_by_name()?;
        let name = text_of(&self.image_settings(), "image_processor_type");
        match name {
            Some(name) if !family.image_processors.contains(&name.trim_end_matches("Fast")) => {
                let supported = family.image_processors.join(", ");
                Err(ProcessorError::Unknown { key: "image_processor_type", name, supported })
            }
            _ => Ok(family),
        }
    }

    fn family_by_name(&self) -> Result<&'static Family, ProcessorError> {
        let sources = [&self.processor, &self.preprocessor, &self.tokenizer];
        if let Some(name) = sources.iter().find_map(|file| text_of(file, "processor_class")) {
            return find("processor_class", name, |family| family.processors);
        }
        let name = text_of(&self.config, "model_type").ok_or(ProcessorError::Unnamed)?;
        find("model_type", name, |family| family.model_types)
    }

    fn image_settings(&self) -> Map<String, Value> {
        let nested = self.processor.get("image_processor").and_then(Value::as_object);
        nested.unwrap_or(&self.preprocessor).clone()
    }

    fn settings(&self) -> Settings {
        let mut image = self.image_settings();
        image.extend(self.overrides.clone());
        Settings {
            image: Section(image),
            processor: Section(self.processor.clone()),
            tokens: Section(special_tokens(&self.tokenizer)),
            overrides: Section(self.overrides.clone()),
        }
    }
}

/// Returns the texts of special tokens by name. A token is a text, or an object with its text.
fn special_tokens(tokenizer: &Map<String, Value>) -> Map<String, Value> {
    let nested = ["extra_special_tokens", "model_specific_special_tokens"];
    let nested = nested.iter().filter_map(|name| tokenizer.get(*name)?.as_object());
    let entries = nested.chain([tokenizer]).flatten().filter(|(name, _)| name.ends_with("_token"));
    let text = |value: &Value| value.get("content").unwrap_or(value).clone();
    entries.map(|(name, value)| (name.clone(), text(value))).collect()
}

fn find(
    key: &'static str,
    name: String,
    names: fn(&Family) -> &'static [&'static str],
) -> Result<&'static Family, ProcessorError> {
    let supported = || FAMILIES.iter().flat_map(names).copied().collect::<Vec<_>>().join(", ");
    let family = FAMILIES.iter().find(|family| names(family).contains(&name.as_str()));
    family.ok_or_else(|| ProcessorError::Unknown { key, name, supported: supported() })
}

fn text_of(file: &Map<String, Value>, key: &str) -> Option<String> {
    file.get(key)?.as_str().map(str::to_owned)
}

/// A model's processor: prepares images as the model expects them. A clone is cheap.
#[derive(Debug, Clone)]
pub struct Processor {
    recipe: Arc<dyn Recipe>,
    fingerprint: [u8; 32],
    fit: Option<Fit>,
}

/// Returns why a tower cannot take an image of a plan, if it cannot.
type Problem = dyn Fn(&ImagePlan) -> Option<String> + Send + Sync;

/// The rule of a tower.
#[derive(Clone)]
struct Fit(Arc<Problem>);

impl fmt::Debug for Fit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Fit")
    }
}

impl Processor {
    /// Returns the processor that the files name. Fails if it or one of its settings is not
    /// supported.
    pub fn new(files: &Files) -> Result<Self, ProcessorError> {
        let recipe: Arc<dyn Recipe> = (files.family()?.load)(&files.settings())?.into();
        let fingerprint = Sha256::digest(format!("{recipe:?}")).into();
        Ok(Self { recipe, fingerprint, fit: None })
    }

    /// Returns the processor of a tower, which refuses images for which `problem` returns a text.
    #[must_use]
    pub fn fitted(self, problem: impl Fn(&ImagePlan) -> Option<String> + Send + Sync + 'static) -> Self {
        Self { fit: Some(Fit(Arc::new(problem))), ..self }
    }

    /// Returns a digest of all settings. Processors with the same digest prepare images alike.
    #[must_use]
    pub fn fingerprint(&self) -> &[u8; 32] {
        &self.fingerprint
    }

    /// Returns the SHA-256 of the settings and of an encoded image. Equal digests have equal pixel
    /// values.
    #[must_use]
    pub fn digest(&self, bytes: &[u8]) -> [u8; 32] {
        Sha256::new().chain_update(self.fingerprint).chain_update(bytes).finalize().into()
    }

    /// Returns the text that marks an image's place in a rendered prompt.
    #[must_use]
    pub fn placeholder(&self) -> &str {
        self.recipe.placeholder()
    }

    /// Returns true if the sides of prepared images do not depend on `do_resize`, or if it is set.
    #[must_use]
    pub fn resizes(&self) -> bool {
        self.recipe.resizes()
    }

    /// Returns the token that is replaced by rows of the projector's output. An expansion contains
    /// it as often as [`Expansion::tokens`](crate::Expansion) says.
    #[must_use]
    pub fn image_token(&self) -> &str {
        self.recipe.image_token()
    }

    /// Returns the shape and the image tokens of an image with these sides.
    pub fn plan(&self, width: usize, height: usize) -> Result<ImagePlan, ImageError> {
        if width == 0 || height == 0 {
            return Err(ImageError::Empty { width: width as u64, height: height as u64 });
        }
        let plan = self.recipe.plan(width, height)?;
        let problem = self.fit.as_ref().and_then(|Fit(problem)| problem(&plan));
        problem.map_or(Ok(plan), |problem| Err(ImageError::Unfit { width, height, problem }))
    }

    /// Returns a black image with the most pixel values among those of several ratios that the limits and
    /// the tower allow, of at most `max_tokens`. None: none is allowed.
    #[must_use]
    pub fn largest(&self, limits: &Limits, max_tokens: usize) -> Option<PreparedImage> {
        let allowed = |pixels: u64| {
            let limits = Limits { max_pixels: pixels, ..*limits };
            let plans = limits.largest_sides().filter_map(|[width, height]| self.plan(width, height).ok());
            let fits =
                |plan: &ImagePlan| plan.expansion.tokens <= max_tokens && limits.check_tiles(plan.tiles()).is_ok();
            let plans = plans.filter(fits);
            plans.max_by_key(|plan| plan.shape.iter().product::<usize>())
        };
        // Only smaller images may be allowed: without a resize, or in a short context.
        let halves = iter::successors(Some(limits.max_pixels), |pixels| Some(pixels / 2).filter(|half| *half > 0));
        let plan = halves.into_iter().find_map(allowed)?;
        let bytes = vec![0; plan.shape.iter().product()];
        Some(PreparedImage { plan, bytes, values: Arc::clone(self.recipe.values()) })
    }

    /// Prepares one image. The result does not depend on other images.
    pub fn prepare_image(&self, image: &RgbImage) -> Result<PreparedImage, ImageError> {
        let plan = self.plan(image.width(), image.height())?;
        let bytes = self.recipe.bytes(image)?;
        debug_assert_eq!(bytes.len(), plan.shape.iter().product::<usize>());
        Ok(PreparedImage { plan, bytes, values: Arc::clone(self.recipe.values()) })
    }

    /// Decodes and prepares one image. Its tiles are counted before its pixels are decoded.
    pub(crate) fn prepare_encoded(
        &self,
        bytes: &[u8],
        limits: &Limits,
        decoding: &Decoding,
    ) -> Result<PreparedImage, ImageError> {
        let share = OnceCell::new();
        let fits = |width, height| limits.check_tiles(self.plan(width, height)?.tiles());
        let fits_turned = |width, height| fits(width, height).or_else(|error| fits(height, width).map_err(|_| error));
        let starts = |width: usize, height: usize| {
            fits_turned(width, height)?;
            share.get_or_init(|| decoding.start(width as u64 * height as u64));
            Ok(())
        };
        let image = decode_if(bytes, limits, &starts)?;
        fits(image.width(), image.height())?;
        self.prepare_image(&image)
    }

    /// Prepares the images of a request, in the order of their placeholders.
    pub fn prepare(&self, images: &[RgbImage]) -> Result<Prepared, ImageError> {
        let images = images.iter().map(|image| self.prepare_image(image).map(Arc::new));
        Ok(Prepared { placeholder: self.placeholder().to_owned(), images: images.collect::<Result<_, _>>()? })
    }

    /// Joins the images of a request to the tensor that transformers returns: Gemma 4 is padded to
    /// its largest number of patches, Mistral 3 to the largest sides of the request. Returns `None`
    /// without images. The images must be of this processor.
    #[must_use]
    pub fn join(&self, images: &[&PreparedImage]) -> Option<PixelBatch> {
        (!images.is_empty()).then(|| self.recipe.join(images))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(text: &str) -> Map<String, Value> {
        serde_json::from_str(text).expect("an object")
    }

    fn files(processor: &str, preprocessor: &str) -> Files {
        Files { processor: object(processor), preprocessor: object(preprocessor), ..Files::default() }
    }

    #[test]
    fn unknown_classes_are_refused_by_name() {
        let error = Processor::new(&files(r#"{"processor_class": "LlavaProcessor"}"#, "{}")).expect_err("unknown");
        assert!(error.to_string().starts_with("processor_class \"LlavaProcessor\" is not supported"), "{error}");
        let files =
            files(r#"{"processor_class": "Gemma3Processor"}"#, r#"{"image_processor_type": "SiglipImageProcessor"}"#);
        let error = Processor::new(&files).expect_err("another image processor");
        assert!(error.to_string().starts_with("image_processor_type"), "{error}");
        assert!(matches!(Processor::new(&Files::default()), Err(ProcessorError::Unnamed)));
    }

    #[test]
    fn the_suffix_fast_changes_nothing() {
        let with = |suffix: &str| {
            let preprocessor = format!(r#"{{"image_processor_type": "Gemma3ImageProcessor{suffix}"}}"#);
            Processor::new(&files(r#"{"processor_class": "Gemma3Processor"}"#, &preprocessor)).expect("known")
        };
        assert_eq!(with("").fingerprint(), with("Fast").fingerprint());
    }

    #[test]
    fn the_model_type_names_a_processor() {
        let files = Files { config: object(r#"{"model_type": "qwen3_vl"}"#), ..Files::default() };
        assert_eq!(Processor::new(&files).expect("known").placeholder(), "<|image_pad|>");
    }

    #[test]
    fn every_family_loads_with_defaults_and_prepares_one_pixel() {
        for name in FAMILIES.iter().flat_map(|family| family.processors) {
            let processor = files(&format!(r#"{{"processor_class": "{name}"}}"#), "{}");
            let processor = Processor::new(&processor).expect(name);
            let image = RgbImage::new(1, 1, vec![7; 3]).expect("one pixel");
            let prepared = processor.prepare_image(&image).expect(name);
            let tokens = prepared.plan.expansion.text.matches(processor.image_token()).count();
            assert_eq!(tokens, prepared.plan.expansion.tokens, "{name}");
        }
    }

    /// Sides are rounded to whole patches, so that another ratio may have slightly more.
    #[test]
    fn no_allowed_image_is_much_larger_than_the_largest() {
        let values = |plan: &ImagePlan| plan.shape.iter().product::<usize>();
        for name in FAMILIES.iter().flat_map(|family| family.processors) {
            for settings in ["{}", r#"{"do_resize": false}"#] {
                let files = files(&format!(r#"{{"processor_class": "{name}"}}"#), settings);
                let Ok(processor) = Processor::new(&files) else { continue };
                for (max_pixels, max_tiles) in [(3_000_000, 64), (400_000, 7), (1, 1)] {
                    let limits = Limits { max_pixels, max_tiles, ..Limits::default() };
                    let largest = processor.largest(&limits, usize::MAX).map_or(0, |image| image.bytes.len());
                    let sides =
                        (0..12).map(|power| 1 << power).flat_map(|side| [side, side * 3 / 2]).filter(|side| *side > 0);
                    for width in sides.clone() {
                        let heights = sides.clone().filter(|height| (width * height) as u64 <= max_pixels);
                        let plans = heights.filter_map(|height| processor.plan(width, height).ok());
                        let allowed = plans.filter(|plan| plan.tiles() <= max_tiles).map(|plan| values(&plan));
                        let most = allowed.max().unwrap_or(0);
                        assert!(most <= largest + largest / 20, "{name} {settings}, {limits:?}: {most}, {largest}");
                    }
                }
            }
        }
    }

    #[test]
    fn an_override_changes_the_fingerprint() {
        let mut files = files(r#"{"processor_class": "Gemma3Processor"}"#, r#"{"do_pan_and_scan": true}"#);
        let plain = Processor::new(&files).expect("known");
        assert_eq!(plain.plan(2000, 500).expect("any size").shape[0], 1);
        files.overrides = object(r#"{"do_pan_and_scan": true}"#);
        let cut = Processor::new(&files).expect("known");
        assert_eq!(cut.plan(2000, 500).expect("any size").shape[0], 5);
        assert_ne!(plain.fingerprint(), cut.fingerprint());
    }

    #[test]
    fn settings_that_need_too_much_memory_are_refused() {
        for (name, settings) in [
            ("SmolVLMProcessor", r#"{"max_image_size": {"longest_edge": 1}}"#),
            ("Gemma3Processor", r#"{"size": {"height": 8000, "width": 8000}}"#),
            ("Gemma4Processor", r#"{"patch_size": 8000}"#),
            ("Qwen3VLProcessor", r#"{"temporal_patch_size": 1000}"#),
            ("Qwen3VLProcessor", r#"{"max_pixels": 100000000000}"#),
            ("PixtralProcessor", r#"{"size": {"longest_edge": 8000}}"#),
            ("InternVLProcessor", r#"{"size": 4000, "max_patches": 200}"#),
        ] {
            let files = files(&format!(r#"{{"processor_class": "{name}"}}"#), settings);
            assert!(matches!(Processor::new(&files), Err(ProcessorError::Setting { .. })), "{name} {settings}");
        }
    }
}
