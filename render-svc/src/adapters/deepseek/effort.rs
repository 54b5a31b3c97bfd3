//! `reasoning_effort` of DeepSeek-V4, whose texts differ between revisions of the encoder.

use serde_json::Value;
use tandem_common::field::Path;
use tandem_template::{python, taint};

use crate::adapter::EncoderArgument;
use crate::conversation::{Invalid, Object};
use crate::model::Model;

/// The revisions of the encoder. They differ in nothing but the texts of efforts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Revision {
    /// Of the preview checkpoints, from April 2026.
    Preview,
    /// Of the checkpoints from DeepSeek-V4-Flash-0731 on.
    Later,
}

const ABSOLUTE: &str = "Reasoning Effort: Absolute maximum with no shortcuts permitted.\n\
    You MUST be very thorough in your thinking and comprehensively decompose the problem to resolve the root cause, rigorously \
    stress-testing your logic against all potential paths, edge cases, and adversarial scenarios.\n\
    Explicitly write out your entire deliberation process, documenting every intermediate step, considered alternative, and \
    rejected hypothesis to ensure absolutely no assumption is left unchecked.\n\n";

const BEYOND: &str = "Reasoning Effort: Beyond maximum — exhaustive, relentless, and uncompromising.\n\
    You MUST reason with the utmost depth and rigor, leaving absolutely nothing to chance: exhaustively decompose the problem \
    into its most fundamental components, trace every causal chain to its root, and resolve the underlying cause rather than \
    any surface symptom.\n\
    Do not stop reasoning until you have independently verified the solution from multiple angles and are certain that no \
    assumption remains unchecked and no error remains undiscovered.\n\n";

/// The beginnings of the texts, as an encoder's source spells them.
const ABSOLUTE_START: &str = "Reasoning Effort: Absolute maximum";
const BEYOND_START: &str = "Reasoning Effort: Beyond maximum";

/// The key of `config.json` with which converted checkpoints name the revision, as SGLang reads it.
const PROFILE: &str = "dsv4_reasoning_effort_profile";

impl Revision {
    /// Returns the revision of a model and where it comes from: the encoder in its folder, its
    /// config, or else the newest.
    pub(super) fn of(model: &Model) -> (Self, &'static str) {
        let source = model.encoder_source.as_deref().and_then(Self::of_source);
        let profile = || Self::of_profile(model.artifacts.config.get(PROFILE)?.as_str()?);
        let found = source.map(|revision| (revision, "the encoder in its folder has its reasoning-effort texts"));
        let found = found.or_else(|| Some((profile()?, "its config names it")));
        found.unwrap_or((Self::Later, "the newest, since its files name none"))
    }

    /// Recognizes the revision of an encoder by its texts. Comments may mention those of another.
    fn of_source(source: &str) -> Option<Self> {
        let contains = |text| source.lines().any(|line| !line.trim_start().starts_with('#') && line.contains(text));
        match (contains(BEYOND_START), contains(ABSOLUTE_START)) {
            (true, _) => Some(Self::Later),
            (false, true) => Some(Self::Preview),
            (false, false) => None,
        }
    }

    fn of_profile(name: &str) -> Option<Self> {
        match name {
            "preview" => Some(Self::Preview),
            "official" => Some(Self::Later),
            _ => None,
        }
    }

    /// Returns the name for people.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Preview => "preview",
            Self::Later => "0731",
        }
    }

    /// Returns the start of a prompt in thinking mode, by effort.
    fn efforts(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Preview => &[("high", ""), ("max", ABSOLUTE)],
            Self::Later => &[("low", ""), ("high", ABSOLUTE), ("max", BEYOND)],
        }
    }

    /// Returns true if the value means no effort.
    fn is_unset(self, effort: &Value) -> bool {
        match self {
            Self::Preview => effort.is_null(),
            Self::Later => !python::is_true(effort),
        }
    }
}

/// The template_arg.
pub(super) const NAME: &str = "reasoning_effort";

/// The template_arg with the efforts of every revision.
pub(super) const ARGUMENT: EncoderArgument =
    EncoderArgument { words: &["low", "high", "max"], needs: Some("thinking"), ..EncoderArgument::new(NAME) };

/// Returns the start of a prompt in thinking mode; empty without an effort.
///
/// # Errors
/// The revision has no such effort.
pub(super) fn text(model: &Model, args: &Object) -> Result<&'static str, Invalid> {
    let Some(effort) = args.get(NAME).filter(|effort| !effort.is_null()) else { return Ok("") };
    let (revision, _) = Revision::of(model);
    if revision.is_unset(effort) {
        return Ok("");
    }
    let asked = effort.as_str().map(taint::strip);
    let known = revision.efforts().iter().find(|(name, _)| asked.as_deref() == Some(name));
    known.map(|(_, text)| *text).ok_or_else(|| {
        let names: Vec<_> = revision.efforts().iter().map(|(name, _)| format!("{name:?}")).collect();
        let problem = format!("must be one of {} in the {} revision of the encoder", names.join(", "), revision.name());
        Invalid::new(Path::from("template_args").key(NAME), problem)
    })
}
