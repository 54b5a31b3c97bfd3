//! Settings of a processor: the model's files, and overrides.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::error::ProcessorError;
use crate::image::CHANNELS;
use crate::resize::Filter;
use crate::values::{Normal, ValueTable};

/// The largest side, in pixels, and the largest count.
const MAX_SIDE: usize = 1 << 13;

/// The largest number of pixels that an image may become. All its tiles count.
const MAX_AREA: usize = 1 << 25;

/// The values of a class of transformers for settings that the files lack.
#[derive(Debug, Clone, Copy)]
pub struct Defaults {
    pub resample: usize,
    pub normalize: bool,
    pub normal: Normal,
}

/// Mean and deviation 0.5.
pub const HALF: Normal = Normal { mean: [0.5; CHANNELS], std: [0.5; CHANNELS] };

/// Mean and deviation of CLIP's images.
pub const CLIP: Normal =
    Normal { mean: [0.481_454_66, 0.457_827_5, 0.408_210_73], std: [0.268_629_54, 0.261_302_58, 0.275_777_11] };

/// The settings of a model.
#[derive(Debug)]
pub struct Settings {
    /// Settings of the image processor, with overrides.
    pub image: Section,
    /// Settings of the processor, which expands the text.
    pub processor: Section,
    /// Names of special tokens.
    pub tokens: Section,
    /// Overrides alone, for settings whose values in the model's files have no effect.
    pub overrides: Section,
    /// The model's own config. Empty if it is not known.
    pub model: Section,
}

/// Settings of one source. A null is as an absent setting, and for a flag it is false, as in Python.
#[derive(Debug, Default)]
pub struct Section(pub Map<String, Value>);

impl Section {
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    pub fn flag(&self, name: &'static str, default: bool) -> Result<bool, ProcessorError> {
        match self.0.get(name) {
            None => Ok(default),
            Some(Value::Null) => Ok(false),
            Some(value) => value.as_bool().ok_or_else(|| refused(name, value, "true or false")),
        }
    }

    pub fn number(&self, name: &'static str, default: f64) -> Result<f64, ProcessorError> {
        let Some(value) = self.get(name) else { return Ok(default) };
        let number = value.as_f64().filter(|number| number.is_finite() && *number > 0.0);
        number.ok_or_else(|| refused(name, value, "a positive number"))
    }

    pub fn text(&self, name: &'static str, default: &str) -> Result<String, ProcessorError> {
        let Some(value) = self.get(name) else { return Ok(default.to_owned()) };
        let text = value.as_str().filter(|text| !text.is_empty());
        text.map(str::to_owned).ok_or_else(|| refused(name, value, "a text"))
    }

    /// Returns a side or count, from 1 to 8192.
    pub fn side(&self, name: &'static str, default: usize) -> Result<usize, ProcessorError> {
        self.get(name).map_or(Ok(default), |value| whole(name, value, MAX_SIDE))
    }

    /// Returns an area in pixels.
    pub fn area(&self, name: &'static str) -> Result<Option<usize>, ProcessorError> {
        self.get(name).map(|value| whole(name, value, MAX_AREA)).transpose()
    }

    /// Returns the entries of an object such as `size`, or `None` if it is absent.
    pub fn object(&self, name: &'static str) -> Result<Option<Self>, ProcessorError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let object = value.as_object().ok_or_else(|| refused(name, value, "an object"))?;
        Ok(Some(Self(object.clone())))
    }

    /// Returns a side of an object such as `size`, or `default` if the object is absent.
    pub fn side_of(&self, name: &'static str, key: &'static str, default: usize) -> Result<usize, ProcessorError> {
        let Some(object) = self.object(name)? else { return Ok(default) };
        match object.get(key) {
            Some(value) => whole(name, value, MAX_SIDE),
            None => Err(refused(name, &Value::Object(object.0), &format!("an object with {key}"))),
        }
    }

    /// Returns (height, width) of `size`.
    pub fn size(&self, default: usize) -> Result<(usize, usize), ProcessorError> {
        if let Some(value) = self.get("size").filter(|value| value.is_number()) {
            let side = whole("size", value, MAX_SIDE)?;
            return Ok((side, side));
        }
        Ok((self.side_of("size", "height", default)?, self.side_of("size", "width", default)?))
    }

    /// Returns the filter, and the value of each byte. The conversion to RGB changes no image of
    /// three channels, so its flag has no effect.
    pub fn pixels(&self, defaults: Defaults) -> Result<(Filter, Arc<ValueTable>), ProcessorError> {
        self.flag("do_convert_rgb", true)?;
        let factor = self.number("rescale_factor", 1.0 / 255.0)?;
        let factor = if self.flag("do_rescale", true)? { factor } else { 1.0 };
        let mean = self.triple("image_mean", defaults.normal.mean, f64::MIN)?;
        let std = self.triple("image_std", defaults.normal.std, f64::MIN_POSITIVE)?;
        let normalize = self.flag("do_normalize", defaults.normalize)?;
        let values = ValueTable::new(factor, normalize.then_some(Normal { mean, std }));
        Ok((self.filter(defaults)?, Arc::new(values)))
    }

    fn filter(&self, defaults: Defaults) -> Result<Filter, ProcessorError> {
        let default = Value::from(defaults.resample);
        let value = self.get("resample").unwrap_or(&default);
        match value.as_u64() {
            Some(0) => Ok(Filter::Nearest),
            Some(1) => Ok(Filter::Lanczos),
            Some(2) => Ok(Filter::Bilinear),
            Some(3) => Ok(Filter::Bicubic),
            _ => Err(refused("resample", value, "0 (nearest), 1 (Lanczos), 2 (bilinear) or 3 (bicubic)")),
        }
    }

    /// Returns one number per channel. A single number is that of each channel.
    fn triple(
        &self,
        name: &'static str,
        default: [f64; CHANNELS],
        least: f64,
    ) -> Result<[f64; CHANNELS], ProcessorError> {
        let Some(value) = self.get(name) else { return Ok(default) };
        let number = |value: &Value| value.as_f64().filter(|number| number.is_finite() && *number >= least);
        let numbers = match value {
            Value::Array(values) => values.iter().map(number).collect::<Option<Vec<_>>>(),
            single => number(single).map(|number| vec![number; CHANNELS]),
        };
        let numbers = numbers.and_then(|numbers| numbers.try_into().ok());
        numbers.ok_or_else(|| refused(name, value, "three numbers"))
    }
}

fn whole(name: &'static str, value: &Value, limit: usize) -> Result<usize, ProcessorError> {
    let number = value.as_u64().and_then(|number| usize::try_from(number).ok());
    let number = number.filter(|number| (1..=limit).contains(number));
    number.ok_or_else(|| refused(name, value, &format!("a whole number from 1 to {limit}")))
}

/// Fails if an image may become too many pixels. `factors` are multiplied.
pub fn check_area(setting: &'static str, factors: &[usize]) -> Result<(), ProcessorError> {
    let area = factors.iter().fold(1, |area: usize, factor| area.saturating_mul(*factor));
    if area <= MAX_AREA {
        return Ok(());
    }
    Err(refused(setting, &format!("{area} pixels").into(), &format!("at most {MAX_AREA} pixels per image")))
}

/// Returns the error of a setting.
pub fn refused(setting: &'static str, value: &Value, expected: &str) -> ProcessorError {
    ProcessorError::Setting { setting, value: value.to_string(), expected: expected.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(text: &str) -> Section {
        Section(serde_json::from_str(text).expect("an object"))
    }

    const DEFAULTS: Defaults = Defaults { resample: 3, normalize: true, normal: HALF };

    #[test]
    fn defaults_apply_to_nulls() {
        let section = section(r#"{"resample": null, "image_std": null, "do_convert_rgb": null}"#);
        assert_eq!(section.pixels(DEFAULTS).expect("defaults").0, Filter::Bicubic);
    }

    #[test]
    fn unsupported_settings_are_named() {
        for (text, name) in [
            (r#"{"do_rescale": "no"}"#, "do_rescale"),
            (r#"{"do_convert_rgb": 1}"#, "do_convert_rgb"),
            (r#"{"resample": 5}"#, "resample"),
            (r#"{"image_std": [1, 0, 1]}"#, "image_std"),
            (r#"{"image_mean": [1, 0]}"#, "image_mean"),
            (r#"{"rescale_factor": 0}"#, "rescale_factor"),
        ] {
            let error = section(text).pixels(DEFAULTS).expect_err(name);
            assert!(matches!(error, ProcessorError::Setting { setting, .. } if setting == name), "{error}");
        }
    }

    #[test]
    fn a_size_without_its_key_is_an_error() {
        assert!(section(r#"{"size": {"shortest_edge": 5}}"#).size(224).is_err());
        assert_eq!(section(r#"{"size": 7}"#).size(224).expect("a number"), (7, 7));
        assert_eq!(section("{}").size(224).expect("the default"), (224, 224));
    }
}
