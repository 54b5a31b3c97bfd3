//! Template arguments that cannot reach a template: transformers' `apply_chat_template` takes keywords of these names itself.

use std::borrow::Cow;

use crate::conversation::Object;
use crate::warning::{Warning, WarningCode};

/// The parameters of `apply_chat_template` in transformers 5.23 and what it passes to the template itself, each with the request's
/// field for it, where there is one.
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

/// Whether an argument of this name cannot reach a template.
pub(super) fn is_reserved(name: &str) -> bool {
    RESERVED.iter().any(|(reserved, _)| *reserved == name)
}

/// The arguments without those of reserved names.
pub(super) fn left_out(args: &Object) -> Cow<'_, Object> {
    if !args.keys().any(|name| is_reserved(name)) {
        return Cow::Borrowed(args);
    }
    let kept = args.iter().filter(|(name, _)| !is_reserved(name));
    Cow::Owned(kept.map(|(name, value)| (name.clone(), value.clone())).collect())
}

/// Warns of each argument of a reserved name.
pub(super) fn warnings(args: &Object) -> impl Iterator<Item = Warning> {
    let found = |name: &String| RESERVED.iter().find(|(reserved, _)| reserved == name);
    args.keys().filter_map(found).map(|(name, field)| {
        let remedy = field.map(|field| format!("; set the request's field {field}")).unwrap_or_default();
        let text =
            format!("{name} is a parameter of apply_chat_template, not a variable of templates: ignored{remedy}");
        Warning { code: WarningCode::TemplateArgReserved, path: format!("template_args.{name}"), text }
    })
}
