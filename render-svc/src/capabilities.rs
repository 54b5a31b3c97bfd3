//! What a model's template can take, inferred once per model, and the rewriting of conversations to that.

mod normalize;

pub use normalize::{Change, Rewrite, normalize};

use std::ops::BitOr;

/// What a model's template can take. All false means that nothing is known, not that nothing is supported.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Messages may have the role system.
    pub supports_system_role: bool,
    /// Messages of user and assistant must alternate.
    pub requires_strict_turns: bool,
    /// Tools can be declared and called.
    pub supports_tool_calls: bool,
    /// The model may think before it answers.
    pub supports_reasoning: bool,
}

impl Capabilities {
    /// The names of those that are set.
    #[must_use]
    pub fn names(self) -> Vec<&'static str> {
        let Self { supports_system_role, requires_strict_turns, supports_tool_calls, supports_reasoning } = self;
        let flags = [
            (supports_system_role, "SUPPORTS_SYSTEM_ROLE"),
            (requires_strict_turns, "REQUIRES_STRICT_TURNS"),
            (supports_tool_calls, "SUPPORTS_TOOL_CALLS"),
            (supports_reasoning, "SUPPORTS_REASONING"),
        ];
        flags.into_iter().filter_map(|(is_set, name)| is_set.then_some(name)).collect()
    }

    /// Whether nothing is known.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }
}

impl BitOr for Capabilities {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self {
            supports_system_role: self.supports_system_role | other.supports_system_role,
            requires_strict_turns: self.requires_strict_turns | other.requires_strict_turns,
            supports_tool_calls: self.supports_tool_calls | other.supports_tool_calls,
            supports_reasoning: self.supports_reasoning | other.supports_reasoning,
        }
    }
}

// What is looked for, all in lower case.

/// A template that writes or allows system messages. This counts more than what it rejects.
const TAKES_SYSTEM: &[&str] = &["[system_prompt]", "[available_tools]", "optional system message"];
const REJECTS_SYSTEM: &[&str] = &[
    "only user, assistant and tool roles are supported",
    "system role not supported",
    "got system",
    "raise exception for unsupported roles",
];
/// The same, in a template that says nothing else of system messages.
const REJECTS_OTHER_ROLES: &str = "only user and assistant roles are supported";
const ALTERNATES: &[&str] = &["roles must alternate", "must alternate user and assistant", "ns.index % 2"];
const CALLS_TOOLS: &[&str] = &[
    "<tool_call>",
    "<|python_tag|>",
    "if tools",
    "tools is defined",
    "tool_calls",
    "function_call",
    "[available_tools]",
];
const REASONS: &[&str] = &[
    "<think>",
    "</think>",
    "<reasoning>",
    "</reasoning>",
    "enable_thinking",
    "thinking_forced_open",
    "reasoning_content",
];
const TOOL_MODELS: &[&str] = &["hermes", "functionary", "firefunction", "gorilla"];
const REASONING_MODELS: &[&str] = &["deepseek-r1", "qwq", "-r1-", "o1"];

/// What a template's text tells, then the model's name where the text tells nothing, and what the architecture implies.
#[must_use]
pub fn infer(template: Option<&str>, model_name: &str, architecture: Option<&str>) -> Capabilities {
    let from_template = template.map(of_template).unwrap_or_default();
    from_template | of_name(model_name) | of_architecture(architecture)
}

fn of_template(template: &str) -> Capabilities {
    let text = template.to_lowercase();
    let rejects_others = text.contains(REJECTS_OTHER_ROLES) && !text.contains("system");
    let rejects_system = holds(&text, REJECTS_SYSTEM) || rejects_others;
    Capabilities {
        supports_system_role: holds(&text, TAKES_SYSTEM) || !rejects_system,
        requires_strict_turns: holds(&text, ALTERNATES),
        supports_tool_calls: holds(&text, CALLS_TOOLS),
        supports_reasoning: holds(&text, REASONS),
    }
}

/// A name can only add what the template does not tell, so it need not be asked whether it does.
fn of_name(name: &str) -> Capabilities {
    let name = name.to_lowercase();
    Capabilities {
        supports_tool_calls: holds(&name, TOOL_MODELS),
        supports_reasoning: holds(&name, REASONING_MODELS),
        ..Capabilities::default()
    }
}

fn of_architecture(architecture: Option<&str>) -> Capabilities {
    Capabilities {
        requires_strict_turns: matches!(architecture, Some("mistral" | "mistral3")),
        supports_system_role: architecture == Some("mistral3"),
        ..Capabilities::default()
    }
}

fn holds(text: &str, parts: &[&str]) -> bool {
    parts.iter().any(|part| text.contains(part))
}
