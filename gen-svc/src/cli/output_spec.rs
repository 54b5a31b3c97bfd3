//! The output spec as JSON, with the contract's names. `render-svc render --jsonl` writes it.

use tandem_core::error::RequestError;
use tandem_core::output::extract::Rules;
use tandem_core::output::reasoning::{MarkerSet, Markers};
use tandem_core::request::{OutputSpec, SpecialTokenClass};

use super::fields::Fields;

/// Takes the output spec of a request.
pub(super) fn output_spec(fields: &mut Fields) -> Result<OutputSpec, RequestError> {
    const KEYS: &[&str] = &["eos_token_ids", "stop_strings", "special_token_classes", "reasoning", "extraction"];
    let mut spec = fields.object("output_spec", KEYS)?;
    let classes = spec.objects("special_token_classes", &["name", "token_ids", "action"])?;
    Ok(OutputSpec {
        eos_token_ids: spec.ids("eos_token_ids")?.unwrap_or_default(),
        stop_strings: spec.strings("stop_strings")?,
        special_token_classes: classes.into_iter().map(class).collect::<Result<_, _>>()?,
        reasoning: markers(&mut spec)?,
        extraction: rules(&mut spec)?,
    })
}

fn class(mut class: Fields) -> Result<SpecialTokenClass, RequestError> {
    const ACTIONS: &str = "\"SPECIAL_TOKEN_ACTION_DROP\" or \"SPECIAL_TOKEN_ACTION_PASS\"";
    let passes = class.read("action", ACTIONS, |value| match value.as_str()? {
        "SPECIAL_TOKEN_ACTION_UNSPECIFIED" | "SPECIAL_TOKEN_ACTION_DROP" => Some(false),
        "SPECIAL_TOKEN_ACTION_PASS" => Some(true),
        _ => None,
    })?;
    Ok(SpecialTokenClass { token_ids: class.ids("token_ids")?.unwrap_or_default(), passes: passes.unwrap_or_default() })
}

fn markers(spec: &mut Fields) -> Result<Markers, RequestError> {
    const KEYS: &[&str] = &["start_token_ids", "end_token_ids", "start_strings", "end_strings"];
    let mut markers = spec.object("reasoning", KEYS)?;
    let mut set = |ids: &str, strings: &str| -> Result<MarkerSet, RequestError> {
        Ok(MarkerSet { token_ids: markers.ids(ids)?.unwrap_or_default(), strings: markers.strings(strings)? })
    };
    Ok(Markers { start: set("start_token_ids", "start_strings")?, end: set("end_token_ids", "end_strings")? })
}

fn rules(spec: &mut Fields) -> Result<Rules, RequestError> {
    let mut rules = spec.object("extraction", &["strip_reasoning", "cut_head", "strip_lines"])?;
    Ok(Rules {
        strip_reasoning: rules.boolean("strip_reasoning")?.unwrap_or_default(),
        cut_head: rules.text("cut_head")?.unwrap_or_default(),
        strip_lines: rules.strings("strip_lines")?,
    })
}
