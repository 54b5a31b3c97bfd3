//! Template arguments that cannot reach a template, because `apply_chat_template` of transformers
//! has parameters with these names.

use std::borrow::Cow;

use tandem_common::field::Path;

use crate::conversation::Object;
use crate::warning::{Warning, WarningCode};

/// The parameters of `apply_chat_template` in transformers 5.23 and the variables that it sets,
/// each with the request's field for it, if any.
const RESERVED: &[(&str, Option<&str>)] = &[
    ("conversation", Some("messages")),
    ("messages", Some("messages")),
    ("tools", Some("tools")),
    ("documents", Some("documents")),
    ("add_generation_prompt", Some("add_generation_prompt")),
    ("continue_final_message", Some("continue_final_message")),
    ("chat_template", Some("template")),
    ("sanitize_control_tokens", Some("control_tokens")),
    ("tokenize", None),
    ("padding", None),
    ("truncation", None),
    ("max_length", None),
    ("return_tensors", None),
    ("return_dict", None),
    ("return_assistant_tokens_mask", None),
    ("tokenizer_kwargs", None),
];

/// Returns true if an argument of this name cannot reach a template.
pub(crate) fn is_reserved(name: &str) -> bool {
    RESERVED.iter().any(|(reserved, _)| *reserved == name)
}

/// Returns the arguments without those of reserved names.
pub(super) fn left_out(args: &Object) -> Cow<'_, Object> {
    if !args.keys().any(|name| is_reserved(name)) {
        return Cow::Borrowed(args);
    }
    let kept = args.iter().filter(|(name, _)| !is_reserved(name));
    Cow::Owned(kept.map(|(name, value)| (name.clone(), value.clone())).collect())
}

/// Warns of each argument with a reserved name.
pub(super) fn warnings(args: &Object) -> impl Iterator<Item = Warning> {
    let found = |name: &String| RESERVED.iter().find(|(reserved, _)| reserved == name);
    args.keys().filter_map(found).map(|(name, field)| {
        let remedy = field.map(|field| format!("; set the request's field {field}")).unwrap_or_default();
        let text =
            format!("{name} is a parameter of apply_chat_template, not a variable of templates: ignored{remedy}");
        Warning::new(WarningCode::TemplateArgReserved, Path::from("template_args").key(*name), text)
    })
}
