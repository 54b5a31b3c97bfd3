//! The features that a model's template supports, inferred once per model.

use crate::fact::FactSource;
use crate::probes::{ContentLists, Finding, Repeat, Repeats, TemplateFacts};

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
    /// The content of messages may be a list of text blocks.
    pub supports_content_blocks: bool,
    /// A system message before all others fails, or is not in the prompt. This is no flag of the
    /// contract, in which no flags mean unknown.
    pub rejects_system_role: bool,
}

/// Selects a flag.
type Flag = fn(&mut Capabilities) -> &mut bool;

/// The flags by name.
const FLAGS: [(&str, Flag); 5] = [
    ("SUPPORTS_SYSTEM_ROLE", |all| &mut all.supports_system_role),
    ("REQUIRES_STRICT_TURNS", |all| &mut all.requires_strict_turns),
    ("SUPPORTS_TOOL_CALLS", |all| &mut all.supports_tool_calls),
    ("SUPPORTS_REASONING", |all| &mut all.supports_reasoning),
    ("SUPPORTS_CONTENT_BLOCKS", |all| &mut all.supports_content_blocks),
];

impl Capabilities {
    /// Returns the names of the flags that are set.
    #[must_use]
    pub fn names(self) -> Vec<&'static str> {
        let mut all = self;
        FLAGS.iter().filter(|(_, flag)| *flag(&mut all)).map(|(name, _)| *name).collect()
    }

    /// Returns the name and the value of each flag.
    pub fn flags(self) -> impl Iterator<Item = (&'static str, bool)> {
        FLAGS.iter().map(move |(name, flag)| (*name, *flag(&mut self.clone())))
    }

    /// Returns the capabilities with exactly these flags. All others are not supported. Without any,
    /// the capabilities are unknown.
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
        all.rejects_system_role = !all.is_empty() && !all.supports_system_role;
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
const REASONING_MODELS: &[&str] = &["deepseek-r1", "qwq", "-r1-"];
/// A word of a name, not a part of one: `marco-o1`, but not `OLMo1`.
const REASONING_WORD: &str = "o1";

/// The capabilities of a model, and how each flag was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inferred {
    pub capabilities: Capabilities,
    /// How each flag was found, in the order of the flags' names.
    pub sources: Vec<(&'static str, FactSource)>,
}

impl Inferred {
    /// Returns the capabilities of a configuration.
    #[must_use]
    pub fn configured(capabilities: Capabilities) -> Self {
        let sources = FLAGS.iter().map(|(name, _)| (*name, FactSource::Configuration)).collect();
        Self { capabilities, sources }
    }
}

/// The facts of a model from which its capabilities follow.
#[derive(Debug, Clone, Copy)]
pub struct Evidence<'a> {
    /// The facts about the default template. None without one.
    pub facts: Option<&'a TemplateFacts>,
    /// The facts about the template for conversations with tools, if it is another one.
    pub tool_facts: Option<&'a TemplateFacts>,
    /// The source of the default template.
    pub template: Option<&'a str>,
    /// The model's name.
    pub name: &'a str,
    /// The model's architecture.
    pub architecture: Option<&'a str>,
}

impl Evidence<'_> {
    /// Returns the capabilities: by probes; else by the template's text, and by the model's name where
    /// the template says nothing; without a template, by name and architecture.
    #[must_use]
    pub fn capabilities(&self) -> Inferred {
        let probed = self.probed();
        let architecture = self.architecture.filter(|_| self.facts.is_none_or(|facts| !facts.is_known));
        let by_text = self.template.map(of_template).unwrap_or_default();
        let (by_name, by_architecture) = (of_name(self.name), of_architecture(architecture));
        let mut inferred = Inferred::default();
        for ((name, flag), probed) in FLAGS.iter().zip(probed) {
            let is_set = |mut of: Capabilities| *flag(&mut of);
            // A template without reasoning does not show that the model never reasons.
            let is_decided = probed.filter(|is_set| *is_set || *name != "SUPPORTS_REASONING");
            let (value, source) = match is_decided {
                Some(value) => (value, FactSource::Probe),
                None if is_set(by_text) && probed.is_none() => (true, FactSource::TemplateText),
                None if is_set(by_name) => (true, FactSource::Name),
                None if is_set(by_architecture) => (true, FactSource::Architecture),
                None if probed.is_some() => (false, FactSource::Probe),
                None if self.template.is_some() => (false, FactSource::TemplateText),
                None => (false, FactSource::Default),
            };
            *flag(&mut inferred.capabilities) = value;
            inferred.sources.push((name, source));
        }
        inferred.capabilities.rejects_system_role = probed[0] == Some(false);
        self.add_system_of_formats(&mut inferred);
        inferred
    }

    /// Adds the flag of system messages for a model without templates: the built-in formats, which
    /// render for it, support them, except that an architecture may be known to lack them.
    fn add_system_of_formats(&self, inferred: &mut Inferred) {
        let flags = &mut inferred.capabilities;
        let has_template = self.template.is_some() || self.facts.is_some() || self.tool_facts.is_some();
        if has_template || flags.is_empty() || flags.requires_strict_turns || flags.supports_system_role {
            return;
        }
        flags.supports_system_role = true;
        let found = inferred.sources.iter_mut().find(|(name, _)| *name == "SUPPORTS_SYSTEM_ROLE");
        found.into_iter().for_each(|(_, source)| *source = FactSource::Adapter);
    }

    /// Returns the probed value of each flag, in the order of [`FLAGS`].
    fn probed(&self) -> [Option<bool>; 5] {
        let Some(facts) = self.facts.filter(|facts| facts.is_known) else { return [None; 5] };
        let system = match facts.instructions.system_first {
            Finding::Shown => Some(true),
            Finding::LeftOut | Finding::Refused => Some(false),
            Finding::Unknown => None,
        };
        let Repeats { user, user_beside_system, user_later, assistant, .. } = facts.repeats;
        let turns = [user, user_beside_system, user_later, assistant];
        let is_known = turns.iter().any(|turn| *turn != Repeat::Unknown);
        let strict = is_known.then(|| turns.iter().any(|turn| turn.needs_merging()));
        let of_tools = [Some(facts), self.tool_facts].into_iter().flatten();
        let tools = of_tools.clone().map(|facts| facts.tools);
        let has_tools = tools.clone().any(|tools| tools.is_known()).then(|| tools.clone().any(|t| t.are_supported()));
        let reasons = Some(of_tools.clone().any(TemplateFacts::reasons));
        let lists = match facts.contents.user.lists {
            ContentLists::Unknown => None,
            lists => Some(lists == ContentLists::Walked),
        };
        [system, strict, has_tools, reasons, lists]
    }
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
        supports_content_blocks: false,
        rejects_system_role: false,
    }
}

/// Infers capabilities from a model's name. They can only add to those of its template.
fn of_name(name: &str) -> Capabilities {
    let name = name.to_lowercase();
    Capabilities {
        supports_tool_calls: holds(&name, TOOL_MODELS),
        supports_reasoning: holds(&name, REASONING_MODELS)
            || name.split(|c: char| !c.is_alphanumeric()).any(|word| word == REASONING_WORD),
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
