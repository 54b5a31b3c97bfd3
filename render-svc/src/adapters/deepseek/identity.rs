//! How a model of a DeepSeek family is recognized.

use super::markup::{ASSISTANT, USER};
use super::template;
use crate::adapter::Match;
use crate::model::Model;

/// The properties that identify a family's models.
pub(super) struct Identity {
    pub(super) architectures: &'static [&'static str],
    pub(super) repository: Option<&'static str>,
    /// True if the family's DSML names calls `function_calls`; else `tool_calls`.
    pub(super) has_function_calls: bool,
    /// True for the newest family. It is the best guess for a later version without a template.
    pub(super) is_newest: bool,
}

/// The version of the newest family, as architectures name it.
const NEWEST: &str = "4";

/// Matches a model by its architecture, by its name where the family has a repository, or by the
/// DSML that its template writes for a call. An architecture of another maker speaks against it.
pub(super) fn matches(model: &Model, identity: &Identity) -> Match {
    let &Identity { architectures, repository, has_function_calls, is_newest } = identity;
    match model.artifacts.architecture.as_deref() {
        Some(found) if architectures.contains(&found) => {
            Match::Selected(format!("the model's architecture is {found:?}"))
        }
        _ if repository.is_some_and(|repository| model.is_repository(repository)) => {
            Match::Selected("the model's name is the family's".to_owned())
        }
        Some(found) if is_later(found) => {
            let reason = format!("the model's architecture is {found:?}, a later version with another encoder");
            if is_newest && is_guessable(model) { Match::Guessed(reason) } else { Match::NotSelected(reason) }
        }
        found if found.is_none_or(is_deepseek) && template::writes_dsml(model, has_function_calls) => {
            Match::Selected("the model's chat template writes the family's DSML".to_owned())
        }
        Some(found) => {
            Match::NotSelected(format!("the model's architecture is {found:?}, not {}", architectures.join(" or ")))
        }
        None => Match::NotSelected("the model's architecture is not known".to_owned()),
    }
}

fn is_deepseek(architecture: &str) -> bool {
    architecture.starts_with("deepseek")
}

/// Returns true for the architecture of a version after the newest family, such as `deepseek_v41`.
fn is_later(architecture: &str) -> bool {
    let Some(rest) = architecture.strip_prefix("deepseek") else { return false };
    let version = rest.strip_prefix("_v").unwrap_or(rest);
    let end = version.find(|c: char| !c.is_ascii_digit()).unwrap_or(version.len());
    let (digits, kind) = version.split_at(end);
    (kind.is_empty() || kind.starts_with('_')) && (digits.len() > 2 || digits > NEWEST || version.starts_with("4_"))
}

/// Returns true if the model ships no template, and its tokenizer, if it has one, has the control
/// tokens that start turns.
fn is_guessable(model: &Model) -> bool {
    let tokenizer = model.tokenizer.as_ref().ok();
    let has = |token| tokenizer.is_none_or(|tokenizer| tokenizer.token_to_id(token).is_some());
    model.artifacts.templates.is_empty() && has(USER) && has(ASSISTANT)
}
