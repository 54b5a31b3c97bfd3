//! The likeliest format of a model that ships no chat template: by its name if its tokenizer has the
//! format's control tokens, else by these tokens.

use crate::model::Model;

/// Formats and the control tokens that a tokenizer for the format has. The first match wins.
const BY_TOKENS: &[(&str, &[&str])] =
    &[("chatml", &["<|im_start|>"]), ("llama3", &["<|start_header_id|>"]), ("tagged", &["<|system|>", "<|end|>"])];

/// Formats by a part of the name of the file or folder, in lower case. The first match wins.
const BY_NAME: &[(&str, &str)] = &[("qwen", "chatml"), (DEEPSEEK, "chatml"), ("yi-", "chatml"), ("llama", "llama3")];

const DEEPSEEK: &str = "deepseek";

/// The likeliest format of a model.
pub(in crate::adapters) struct Guess {
    /// None if nothing identifies one.
    pub format: Option<&'static str>,
    /// The facts about the model that decided.
    pub reason: String,
}

/// Guesses the format of a model that ships no chat template.
///
/// A name is only a hint, because models of one name have several formats. Without a tokenizer,
/// only DeepSeek's own architecture contradicts the hint: its makers use none of the formats, unlike
/// the makers of other models that are named after it.
pub(in crate::adapters) fn guess(model: &Model) -> Guess {
    let name = model.artifacts.name.rsplit('/').next().unwrap_or_default().to_lowercase();
    let is_deepseek = model.artifacts.architecture.as_deref().is_some_and(|found| found.starts_with(DEEPSEEK));
    let is_hint = |part: &str| name.contains(part) && !(is_deepseek && part == DEEPSEEK);
    let by_name = BY_NAME.iter().find(|(part, _)| is_hint(part)).copied();
    let by_name = by_name.map(|(part, format)| (format, format!("its name contains {part:?}")));
    let unnamed = "its name identifies no format";
    let (format, decided) = match (&model.tokenizer, by_name) {
        (Err(_), Some((format, hint))) => (Some(format), format!("{hint}, and it has no usable tokenizer")),
        (Err(_), None) => (None, format!("{unnamed}, and it has no usable tokenizer")),
        (Ok(tokenizer), by_name) => {
            let has = |(format, tokens): &(&'static str, &[&str])| {
                let has_all = tokens.iter().all(|token| tokenizer.token_to_id(token).is_some());
                has_all.then(|| (*format, format!("its tokenizer has {}", tokens.join(" and "))))
            };
            let known: Vec<_> = BY_TOKENS.iter().filter_map(has).collect();
            let confirmed = known.iter().find(|(format, _)| by_name.as_ref().is_some_and(|(named, _)| named == format));
            let hint = by_name.as_ref().map_or(unnamed, |(_, hint)| hint);
            match (confirmed, known.first()) {
                (Some((format, tokens)), _) => (Some(*format), format!("{hint}, and {tokens}")),
                (None, Some((format, tokens))) => (Some(*format), format!("{hint}, but {tokens}")),
                (None, None) => (None, format!("{hint}, but its tokenizer has the control tokens of no format")),
            }
        }
    };
    Guess { format, reason: format!("the model ships no chat template; {decided}") }
}
