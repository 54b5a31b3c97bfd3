//! All facts about one template.

use std::time::Instant;

use tandem_template::ChatTemplate;

use super::arguments::{self, ArgumentFact};
use super::contents::RoleContents;
use super::finding::Finding;
use super::messages::{self, Instructions, Repeats};
use super::reasoning::{self, ReasoningFacts};
use super::renderer::{ModelValues, Renderer};
use super::tools::ToolFacts;

/// The facts about one chat template with the values of its model.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TemplateFacts {
    /// True if the template shows a user's words. Otherwise no probe of instructions and of repeated
    /// roles says anything.
    pub is_known: bool,
    /// The forms of content by role.
    pub contents: RoleContents,
    /// Messages of the system and of the developer, by position.
    pub instructions: Instructions,
    /// Two messages of one role in a row.
    pub repeats: Repeats,
    /// Tools, calls and results.
    pub tools: ToolFacts,
    /// Reasoning of the assistant.
    pub reasoning: ReasoningFacts,
    /// Documents.
    pub documents: Finding,
    /// The text that the generation prompt adds. None if a template cannot render the probe.
    pub generation_prompt: Option<String>,
    /// The template's own arguments that change the prompt, by name.
    pub arguments: Vec<ArgumentFact>,
}

impl TemplateFacts {
    /// Learns the facts about a template. The number and the cost of its renderings are bounded, and
    /// none starts after the deadline.
    #[must_use]
    pub fn of(template: &ChatTemplate, values: ModelValues<'_>, deadline: Instant) -> Self {
        let Some((renderer, is_known)) = Renderer::fitting(template, values, deadline) else {
            return Self::default();
        };
        let tools = ToolFacts::of(&renderer);
        Self {
            is_known,
            contents: RoleContents::of(&renderer, &tools),
            instructions: if is_known { Instructions::of(&renderer) } else { Instructions::default() },
            repeats: if is_known { Repeats::of(&renderer, &tools) } else { Repeats::default() },
            reasoning: ReasoningFacts::of(&renderer, &tools),
            documents: messages::documents(&renderer),
            generation_prompt: messages::generation_prompt(&renderer),
            arguments: arguments::of(&renderer, &tools),
            tools,
        }
    }

    /// Returns true if a probe shows that the model may reason before it answers.
    #[must_use]
    pub fn reasons(&self) -> bool {
        let opens = self
            .generation_prompt
            .as_deref()
            .is_some_and(|text| text.contains(reasoning::START) || text.contains(reasoning::END));
        self.reasoning.is_read() || opens || self.arguments.iter().any(ArgumentFact::is_thinking)
    }
}
