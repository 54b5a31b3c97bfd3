//! The rewriting that a template needs: by its facts, and by capabilities of a request or of the
//! configuration, which replace the facts.

use serde_json::Value;

use super::forms::{ContentForm, Forms};
use super::normalize::Turns;
use crate::capabilities::Capabilities;
use crate::model::Model;
use crate::probes::{ContentFacts, ContentLists, Finding, Instructions, Repeat, TemplateFacts};

/// The knowledge about a template.
#[derive(Debug, Clone, Copy)]
pub struct Needs<'a> {
    /// What probes show of it. None without a template.
    facts: Option<&'a TemplateFacts>,
    /// The capabilities of the request or the configuration. No flags mean unknown capabilities.
    given: Option<Capabilities>,
    /// The capabilities of the model.
    inferred: Capabilities,
}

impl<'a> Needs<'a> {
    /// Returns the knowledge about a template of this model, with the capabilities of a request.
    #[must_use]
    pub fn new(facts: Option<&'a TemplateFacts>, requested: Option<Capabilities>, model: &Model) -> Self {
        let configured = model.has_configured_capabilities().then_some(model.capabilities);
        Self { facts, given: requested.or(configured), inferred: model.capabilities }
    }

    /// Returns the messages of a conversation that are merged or get another role.
    #[must_use]
    pub fn turns(&self, messages: &[Value], has_tools: bool) -> Turns {
        match (self.given, self.facts) {
            (Some(given), _) => given.into(),
            (None, Some(facts)) if facts.is_known => Turns {
                system_to_user: first_system(facts, has_tools).is_lost(),
                later_system_to_user: facts.instructions.system_later.is_lost(),
                merges_users: first_users(facts, messages, has_tools).needs_merging(),
                merges_later_users: facts.repeats.user_later.needs_merging(),
                merges_assistants: facts.repeats.assistant.needs_merging(),
            },
            (None, _) => self.inferred.into(),
        }
    }

    /// Returns the form of each role's content, where `usual` is the form of lists that no template
    /// walks.
    #[must_use]
    pub fn forms(&self, usual: ContentForm, has_tools: bool) -> Forms {
        let Some(facts) = self.facts else { return Forms::all(usual) };
        let form = |facts: ContentFacts| self.form(facts, usual);
        let contents = &facts.contents;
        Forms {
            system: form(contents.system),
            developer: form(contents.developer),
            assistant: form(contents.assistant),
            tool: form(contents.tool),
            user: form(if has_tools { contents.user_beside_tools } else { contents.user }),
        }
    }

    fn form(&self, facts: ContentFacts, usual: ContentForm) -> ContentForm {
        let given = self.given.filter(|given| !given.is_empty());
        let walks = given.map_or(facts.lists == ContentLists::Walked, |given| given.supports_content_blocks);
        match facts.lists {
            lists if lists.shows_one() && facts.needs_list() => ContentForm::OneBlock,
            _ if facts.needs_list() => ContentForm::List,
            _ if walks => ContentForm::AsIs,
            _ => usual,
        }
    }

    /// Returns the key under which the template reads reasoning, unless it is `reasoning_content`.
    #[must_use]
    pub fn reasoning_key(&self) -> Option<&'static str> {
        self.facts.and_then(|facts| facts.reasoning.key)
    }

    /// Returns true if the template fails for null content with tool calls, and not for an empty
    /// text.
    #[must_use]
    pub fn null_content_fails(&self) -> bool {
        self.facts.is_some_and(|facts| facts.tools.null_content_fails)
    }
}

/// Returns the finding about a first system message. It may differ if there are tools.
fn first_system(facts: &TemplateFacts, has_tools: bool) -> Finding {
    let Instructions { system_first, system_beside_tools, .. } = facts.instructions;
    if has_tools && system_beside_tools != Finding::Unknown { system_beside_tools } else { system_first }
}

/// Returns the finding about messages of users in a row before an answer. It may differ after a system
/// message.
fn first_users(facts: &TemplateFacts, messages: &[Value], has_tools: bool) -> Repeat {
    let starts_with_system =
        messages.first().is_some_and(|first| first.get("role").is_some_and(|role| role == "system"));
    let is_beside_system = starts_with_system && first_system(facts, has_tools) == Finding::Shown;
    if is_beside_system { facts.repeats.user_beside_system } else { facts.repeats.user }
}
