//! The rotary embeddings that a config describes. Reference: transformers,
//! `modeling_rope_utils.py`.
//!
//! transformers 5 writes `rope_parameters`: one section for all layers, or one section per type of
//! layer. Earlier versions wrote `rope_theta` and `rope_scaling`, which transformers 5 still reads first.

use super::config::{Config, ConfigError, unsupported};
use super::decoder::{Llama3, LongRope, Rope};

/// How to read a rotary embedding from a config: the names of its settings, and their defaults.
#[derive(Debug, Clone, Copy)]
pub(super) struct RopeSetting {
    /// The section of `rope_parameters`, if each type of layer has one.
    pub(super) layer_type: &'static str,
    /// The name of the base in configs without `rope_parameters`.
    pub(super) theta: &'static str,
    /// The default base.
    pub(super) default_theta: f32,
    /// True if `rope_scaling` applies.
    pub(super) scaled: bool,
    /// The sections of `rope_parameters`.
    pub(super) sections: Sections,
    /// The default of `original_max_position_embeddings` outside of the section, in architectures that have one.
    pub(super) original: Option<usize>,
    /// True if the rotation may cover only a part of each head.
    pub(super) partial: bool,
    /// The default of that part.
    pub(super) default_share: f32,
    /// The division of frequencies among the axes of positions. `None`: positions have one axis.
    pub(super) axes: Option<Axes>,
}

/// The sections of `rope_parameters`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sections {
    /// One for all layers.
    One,
    /// One per type of layer.
    PerType,
    /// One for all layers, or one per type of layer.
    Either,
}

/// The division of frequencies among time, height and width.
#[derive(Debug, Clone, Copy)]
pub(super) struct Axes {
    /// True if the axes alternate. False: the frequencies of an axis are adjacent.
    pub(super) interleaved: bool,
    /// The default number of frequencies of each axis.
    pub(super) default: [usize; 3],
    /// True if the default serves any number of frequencies: it ends with the last one.
    pub(super) is_cut: bool,
}

/// A section with parameters.
struct Section<'a> {
    config: Config<'a>,
    parameters: Config<'a>,
    /// The most positions of a sequence.
    context: usize,
}

/// The types of scaling that every architecture may have.
const SERVED: &str = "default, dynamic, linear, llama3 and longrope";

/// The settings of a model with one rotary embedding.
pub(super) const ONLY: RopeSetting = RopeSetting {
    layer_type: "full_attention",
    theta: "rope_theta",
    default_theta: 10_000.0,
    scaled: true,
    sections: Sections::One,
    original: None,
    partial: false,
    default_share: 1.0,
    axes: None,
};

impl RopeSetting {
    /// Reads the settings, for heads of `size` numbers, and sequences of at most `context` positions.
    pub(super) fn read(&self, config: &Config<'_>, size: usize, context: usize) -> Result<Rope, ConfigError> {
        let parameters = self.parameters(config)?;
        let theta = config.float_or(self.theta, self.default_theta)?;
        let mut rope = match parameters {
            None => Rope::new(self.rotary_dim(config, config, size)?, theta),
            Some(parameters) => self.scaled(&Section { config: *config, parameters, context }, size, theta)?,
        };
        let axes = |axes: Axes| axes.read(&parameters.unwrap_or(*config), rope.frequencies.len());
        rope.axes = self.axes.map(axes).transpose()?;
        let invalid =
            rope.of(false).iter().chain(rope.of(true)).chain([&rope.scale]).find(|number| !number.is_finite()).copied();
        match invalid {
            None => Ok(rope),
            Some(number) => Err(unsupported("a rotary frequency of rope_parameters", number)),
        }
    }

    /// Returns the section with the parameters. `rope_scaling` has precedence: it replaces `rope_parameters`, or
    /// the equal settings in the section of a type of layer.
    fn parameters<'a>(&self, config: &Config<'a>) -> Result<Option<Config<'a>>, ConfigError> {
        let scaling = if self.scaled { config.section("rope_scaling")? } else { None };
        let scaling = scaling.filter(|scaling| !scaling.is_empty());
        let all = config.section("rope_parameters")?;
        let of_type = all.map(|all| all.section(self.layer_type)).transpose()?.flatten();
        if of_type.is_some() && scaling.is_none() && self.sections == Sections::One {
            return Err(unsupported("rope_parameters", "a section per type of layer"));
        }
        let by_type = self.sections == Sections::PerType;
        if let Some(kind) = scaling.filter(|scaling| by_type && !scaling.has("rope_type")) {
            // transformers ignores the older name in these architectures, and so does not scale.
            if let Some(found) = kind.find_text("type")? {
                let value = serde_json::Value::from(found);
                return Err(unsupported("rope_scaling.type", format_args!("{value} (write rope_type)")));
            }
        }
        Ok(match (scaling, of_type) {
            (Some(scaling), Some(own)) if by_type => Some(scaling.before(&own)),
            (Some(scaling), _) => Some(scaling),
            (None, Some(own)) => Some(own),
            (None, None) => all.filter(|all| !by_type && !all.is_empty()),
        })
    }

    /// Reads a rotary embedding with parameters.
    fn scaled(&self, section: &Section<'_>, size: usize, theta: f32) -> Result<Rope, ConfigError> {
        let Section { config, parameters, .. } = section;
        let theta = parameters.float_or("rope_theta", theta)?;
        match parameters.find_text("rope_type")?.or(parameters.find_text("type")?) {
            Some("proportional") if self.partial => proportional(Rope::new(size, theta), parameters),
            Some("mrope") if self.axes.is_some() => Ok(Rope::new(self.rotary_dim(config, parameters, size)?, theta)),
            kind => {
                let rope = Rope::new(self.rotary_dim(config, parameters, size)?, theta);
                self.scale(rope, kind.unwrap_or("default"), section)
            }
        }
    }

    fn scale(&self, rope: Rope, kind: &str, section: &Section<'_>) -> Result<Rope, ConfigError> {
        let parameters = &section.parameters;
        match kind {
            "default" => Ok(rope),
            // The frequencies change beyond the context only.
            "dynamic" => parameters.float("factor").map(|_| rope),
            "linear" => Ok(rope.linear(parameters.float("factor")?)),
            "llama3" => Ok(rope.llama3(Llama3 {
                factor: parameters.float("factor")?,
                low: parameters.float("low_freq_factor")?,
                high: parameters.float("high_freq_factor")?,
                original: self.original(section)? as f32,
            })),
            "longrope" | "su" => self.longrope(rope, section),
            // As in transformers, for the architectures with that setting.
            "yarn" if self.original.is_some() => self.longrope(rope, section),
            "gguf.divided" => {
                let divisors = parameters.floats("divisors", rope.frequencies.len())?;
                Ok(Rope { scale: parameters.float_or("attention_factor", 1.0)?, ..rope.divided(&divisors) })
            }
            other => {
                let found = serde_json::Value::from(other);
                let remedy = if other == "yarn" { self.without_yarn(section)? } else { String::new() };
                Err(unsupported("rope_type", format_args!("{found} (served are {SERVED}{remedy})")))
            }
        }
    }

    /// Returns how to serve a model without YaRN, by which published models extend the context of their training.
    fn without_yarn(&self, section: &Section<'_>) -> Result<String, ConfigError> {
        let original = self.original(section)?;
        Ok(format!(
            "; to serve the original context, write rope_type = \"default\" and max_position_embeddings = {original}"
        ))
    }

    /// Applies Phi's scaling: a divisor for each frequency. There are two sets of divisors: one for
    /// sequences up to the original context length, and one for longer sequences.
    fn longrope(&self, rope: Rope, section: &Section<'_>) -> Result<Rope, ConfigError> {
        let Section { parameters, context, .. } = section;
        let original = self.original(section)?;
        let count = rope.frequencies.len();
        let [short, long] = [parameters.floats("short_factor", count)?, parameters.floats("long_factor", count)?];
        let long = LongRope { after: original, frequencies: rope.clone().divided(&long).frequencies };
        let factor = parameters.find_float("factor")?.map_or(*context as f64 / original as f64, f64::from);
        let natural = if factor <= 1.0 { 1.0 } else { (1.0 + factor.ln() / (original as f64).ln()).sqrt() };
        let scale = parameters.float_or("attention_factor", natural as f32)?;
        Ok(Rope { scale, long: Some(long), ..rope.divided(&short) })
    }

    /// Returns the context length before the scaling. The setting outside of a section for all layers has
    /// precedence.
    fn original(&self, section: &Section<'_>) -> Result<usize, ConfigError> {
        const NAME: &str = "original_max_position_embeddings";
        let Section { config, parameters, context } = section;
        let outside = if self.sections == Sections::PerType { None } else { config.find_size(NAME)?.or(self.original) };
        Ok(outside.or(parameters.find_size(NAME)?).unwrap_or(*context))
    }

    /// Returns the rotary dimension: the number of elements of a head that are rotated.
    fn rotary_dim(&self, config: &Config<'_>, parameters: &Config<'_>, size: usize) -> Result<usize, ConfigError> {
        const NAME: &str = "partial_rotary_factor";
        // As in transformers, null is no default.
        let default = if config.is_null(NAME) { 1.0 } else { self.default_share };
        let share = parameters.find_float(NAME)?.or(config.find_float(NAME)?).unwrap_or(default);
        let rotary_dim = (f64::from(share) * size as f64 + 1e-3) as usize; // f32 has 1e-7 of at most 65,536
        match rotary_dim {
            2.. if rotary_dim <= size && rotary_dim.is_multiple_of(2) && (self.partial || rotary_dim == size) => {
                Ok(rotary_dim)
            }
            _ => Err(unsupported(NAME, share)),
        }
    }
}

impl Axes {
    /// Returns the axis of each of `count` frequencies.
    fn read(self, parameters: &Config<'_>, count: usize) -> Result<Vec<usize>, ConfigError> {
        const NAME: &str = "mrope_section";
        let list = parameters.find_list(NAME)?;
        let sections = list.map_or(Some(self.default.to_vec()), |list| {
            list.iter().map(|size| usize::try_from(size.as_u64()?).ok()).collect()
        });
        let wrong = || unsupported(NAME, format!("sections that do not fit {count} frequencies"));
        let [time, height, width]: [usize; 3] = sections.and_then(|list| list.try_into().ok()).ok_or_else(wrong)?;
        let fits = [time, height, width].iter().all(|size| *size <= count) && time + height + width == count;
        if !fits && (list.is_some() || !self.is_cut) {
            return Err(wrong());
        }
        let alternating = |i: usize| match i % 3 {
            1 if i < 3 * height => 1,
            2 if i < 3 * width => 2,
            _ => 0,
        };
        let adjacent = |i: usize| usize::from(i >= time) + usize::from(i >= time + height);
        Ok((0..count).map(|i| if self.interleaved { alternating(i) } else { adjacent(i) }).collect())
    }
}

/// Stops the frequencies beyond the rotated part of a head. The others fall over the whole head.
fn proportional(rope: Rope, parameters: &Config<'_>) -> Result<Rope, ConfigError> {
    const NAME: &str = "partial_rotary_factor";
    let share = parameters.find_float(NAME)?.unwrap_or(1.0);
    if !(0.0..=1.0).contains(&share) {
        return Err(unsupported(NAME, share));
    }
    let rotated = (f64::from(share) * rope.frequencies.len() as f64 + 1e-3) as usize;
    Ok(rope.first(rotated).linear(parameters.float_or("factor", 1.0)?))
}
