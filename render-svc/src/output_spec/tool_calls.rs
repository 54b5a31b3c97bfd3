//! Special tokens that are part of a tool call as models write it. Their text is part of the
//! answer, in which callers search for calls. All other special tokens have no text.

/// Brackets around a special token's name.
const BRACKETS: &[char] = &['<', '>', '[', ']', '|', '｜', '/'];

/// Texts in the names of tokens of a call only: `<tool_call>`, `[TOOL_CALLS]`,
/// `<｜tool▁calls▁begin｜>`, `<|tool_call_start|>`, `<minimax:tool_call>`,
/// `<|tool_call_argument_begin|>`.
const PARTS: &[&str] = &["tool_call", "toolcall", "function_call"];

/// Complete names of tokens of a call.
const NAMES: &[&str] = &[
    // Llama 3 and 4.
    "python_tag",
    "python_start",
    "python_end",
    // Mistral.
    "args",
    "call_id",
    // GLM, Hunyuan.
    "arg_key",
    "arg_value",
    "tool_sep",
    // Command A, InternLM, Apertus.
    "start_action",
    "end_action",
    "action_start",
    "action_end",
    "plugin",
    "interpreter",
    "tools_prefix",
    "tools_suffix",
    // DeepSeek-V3.2, Gemma 4: the quotation marks of a call's arguments.
    "dsml",
    "\"",
];

/// Returns true if a token with this text is part of a tool call.
#[must_use]
pub fn is_marker(text: &str) -> bool {
    let name = text.trim_matches(BRACKETS).to_lowercase().replace(['▁', '-', ':'], "_");
    let is_bracketed = text.starts_with(BRACKETS) && text.ends_with(BRACKETS) && !text.contains(char::is_whitespace);
    is_bracketed && (NAMES.contains(&name.as_str()) || names_a_part(&name))
}

/// Returns true if the name contains a text of call tokens. Libraries of calls declare tools, and
/// responses answer a call; neither is part of one.
fn names_a_part(name: &str) -> bool {
    PARTS.iter().any(|part| name.contains(part))
        && !["library", "response", "result"].iter().any(|no| name.contains(no))
}
