//! How a model of a DeepSeek family is recognized.

use crate::adapter::Match;
use crate::model::Model;

/// The properties that identify a family's models.
pub(super) struct Identity {
    pub(super) architectures: &'static [&'static str],
    pub(super) repository: Option<&'static str>,
    /// True if the family's DSML names calls `function_calls`; else `tool_calls`.
    pub(super) has_function_calls: bool,
}

/// Matches a model by its architecture, by its name where the family has a repository, or by the
/// control tokens that its templates write. A template that mentions them in a comment writes none.
pub(super) fn matches(model: &Model, identity: &Identity) -> Match {
    let &Identity { architectures, repository, has_function_calls } = identity;
    let writes_dsml =
        |literals: &str| literals.contains("｜DSML｜") && literals.contains("function_calls") == has_function_calls;
    match model.artifacts.architecture.as_deref() {
        Some(found) if architectures.contains(&found) => {
            Match::Selected(format!("the model's architecture is {found:?}"))
        }
        _ if repository.is_some_and(|repository| model.is_repository(repository)) => {
            Match::Selected("the model's name is the family's".to_owned())
        }
        _ if model.templates.iter().any(|named| writes_dsml(named.template.literal_text())) => {
            Match::Selected("the model's chat template writes the family's DSML".to_owned())
        }
        Some(found) => {
            Match::NotSelected(format!("the model's architecture is {found:?}, not {}", architectures.join(" or ")))
        }
        None => Match::NotSelected("the model's architecture is not known".to_owned()),
    }
}
