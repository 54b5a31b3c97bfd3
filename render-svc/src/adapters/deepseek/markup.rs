//! The texts that both encoders write around messages.

pub(super) const BOS: &str = "<｜begin▁of▁sentence｜>";
pub(super) const EOS: &str = "<｜end▁of▁sentence｜>";
pub(super) const USER: &str = "<｜User｜>";
pub(super) const ASSISTANT: &str = "<｜Assistant｜>";
pub(super) const THINK: &str = "<think>";
pub(super) const THINK_END: &str = "</think>";
pub(super) const DSML: &str = "｜DSML｜";

pub(super) const MARKUP: &[&str] = &[
    USER,
    ASSISTANT,
    THINK,
    THINK_END,
    DSML,
    "<｜latest_reminder｜>",
    "<｜action｜>",
    "<｜query｜>",
    "<｜authority｜>",
    "<｜domain｜>",
    "<｜title｜>",
    "<｜read_url｜>",
];

/// Fields that only these encoders look up.
pub(super) const FIELDS: &[&str] = &["tools", "response_format", "task", "wo_eos"];
