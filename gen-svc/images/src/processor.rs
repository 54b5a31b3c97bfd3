//! A model's processor.

use std::cell::OnceCell;
use std::sync::Arc;
use std::{fmt, iter};

use sha2::{Digest, Sha256};

use crate::decode::{Limits, decode_if};
use crate::decoding::Decoding;
use crate::error::ImageError;
use crate::image::RgbImage;
use crate::prepared::{ImagePlan, Prepared, PreparedImage};
use crate::recipe::Recipe;

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
    /// Returns the processor that prepares images by a recipe.
    #[must_use]
    pub fn new(recipe: Box<dyn Recipe>) -> Self {
        let fingerprint = Sha256::digest(format!("{recipe:?}")).into();
        Self { recipe: recipe.into(), fingerprint, fit: None }
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
        &self.recipe.basics().placeholder
    }

    /// Returns true if the sides of prepared images do not depend on `do_resize`, or if it is set.
    #[must_use]
    pub fn resizes(&self) -> bool {
        self.recipe.basics().resizes
    }

    /// Returns the token that is replaced by rows of the projector's output. An expansion contains
    /// it as often as [`Expansion::tokens`](crate::Expansion) says.
    #[must_use]
    pub fn image_token(&self) -> &str {
        &self.recipe.basics().image_token
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
        Some(PreparedImage { plan, bytes, values: Arc::clone(&self.recipe.basics().values) })
    }

    /// Prepares one image. The result does not depend on other images.
    pub fn prepare_image(&self, image: &RgbImage) -> Result<PreparedImage, ImageError> {
        let plan = self.plan(image.width(), image.height())?;
        let bytes = self.recipe.bytes(image)?;
        debug_assert_eq!(bytes.len(), plan.shape.iter().product::<usize>());
        Ok(PreparedImage { plan, bytes, values: Arc::clone(&self.recipe.basics().values) })
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
}
