//! The features that a model's template supports, inferred once per model.

use std::ops::BitOr;

use serde_json::{Value, json};
use tandem_template::{ChatTemplate, Input, Limits, LocalTime, RenderError};

use crate::conversation::Object;

/// The features that a model's template supports. All false means unknown, not unsupported.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Messages may have the role system.
    pub supports_system_role: bool,
    /// Messages of user and assistant must alternate.
    pub requires_strict_turns: bool,
    /// Tools can be declared and called.
    pub supports_tool_calls: bool,
    /// The model can reason before it answers.
    pub supports_reasoning: bool,
    /// A conversation that begins with a system message fails. This is no flag of the contract, in
    /// which no flags mean unknown.
    pub rejects_system_role: bool,
}

/// Selects a flag.
type Flag = fn(&mut Capabilities) -> &mut bool;

/// The flags by name.
const FLAGS: [(&str, Flag); 4] = [
    ("SUPPORTS_SYSTEM_ROLE", |all| &mut all.supports_system_role),
    ("REQUIRES_STRICT_TURNS", |all| &mut all.requires_strict_turns),
    ("SUPPORTS_TOOL_CALLS", |all| &mut all.supports_tool_calls),
    ("SUPPORTS_REASONING", |all| &mut all.supports_reasoning),
];

impl Capabilities {
    /// Returns the names of the flags that are set.
    #[must_use]
    pub fn names(self) -> Vec<&'static str> {
        let mut all = self;
        FLAGS.iter().filter(|(_, flag)| *flag(&mut all)).map(|(name, _)| *name).collect()
    }

    /// Returns the capabilities with exactly these flags. All others are not supported.
    ///
    /// # Errors
    /// The first unknown name, and the known ones.
    pub fn from_names<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let mut all = Self::default();
        for name in names {
            let Some((_, flag)) = FLAGS.iter().find(|(known, _)| *known == name) else {
                let known = FLAGS.map(|(name, _)| name).join(", ");
                return Err(format!("{name:?} is no capability; there are {known}"));
            };
            *flag(&mut all) = true;
        }
        all.rejects_system_role = !all.supports_system_role;
        Ok(all)
    }

    /// Returns true if system messages must become user messages.
    #[must_use]
    pub fn lacks_system_role(self) -> bool {
        self.rejects_system_role || (!self.is_empty() && !self.supports_system_role)
    }

    /// Returns true if nothing is known.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.names().is_empty()
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
            rejects_system_role: self.rejects_system_role | other.rejects_system_role,
        }
    }
}

// The texts that are searched, in lower case.

/// Texts of templates that write or allow system messages. They have precedence over the texts of a
/// rejection.
const TAKES_SYSTEM: &[&str] = &["[system_prompt]", "[available_tools]", "optional system message"];
const REJECTS_SYSTEM: &[&str] = &[
    "only user, assistant and tool roles are supported",
    "system role not supported",
    "got system",
    "raise exception for unsupported roles",
];
/// A text of a rejection, in a template without any other mention of system messages.
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

/// Infers capabilities from the template's text, the model's name and its architecture.
#[must_use]
pub fn infer(template: Option<&str>, model_name: &str, architecture: Option<&str>) -> Capabilities {
    let from_template = template.map(of_template).unwrap_or_default();
    from_template | of_name(model_name) | of_architecture(architecture)
}

/// How a template renders a conversation that begins with a system message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeadingSystem {
    /// The prompt contains the message.
    Shown,
    /// The template raises an error, and renders the same conversation without the message.
    Rejected,
    /// Neither was observed.
    Unknown,
}

/// The text of the probe's system message. A template may move it, but not change it.
const PROBE: &str = "tandem-system-probe";

/// Renders a conversation that begins with a system message, and returns how the message is
/// rendered.
#[must_use]
pub fn leading_system(template: &ChatTemplate, special_tokens: &Object) -> LeadingSystem {
    let [system, user] =
        [("system", PROBE), ("user", "Hello")].map(|(role, text)| json!({"role": role, "content": text}));
    let render = |messages: &[Value]| {
        let input = Input {
            messages,
            tools: None,
            documents: None,
            args: &Object::new(),
            special_tokens,
            add_generation_prompt: true,
            continue_final_message: None,
            now: LocalTime::EPOCH,
            taint: None,
        };
        template.apply(&input, &Limits::default())
    };
    match render(&[system, user.clone()]) {
        Ok(applied) if applied.text.contains(PROBE) => LeadingSystem::Shown,
        Err(RenderError::Raised { .. }) if render(&[user]).is_ok() => LeadingSystem::Rejected,
        _ => LeadingSystem::Unknown,
    }
}

/// Returns true if the template's text allows system messages, whatever else it rejects.
#[must_use]
pub fn says_it_takes_system(template: &str) -> bool {
    holds(&template.to_lowercase(), TAKES_SYSTEM)
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
        rejects_system_role: false,
    }
}

/// Infers capabilities from a model's name. They can only add to those of its template.
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
