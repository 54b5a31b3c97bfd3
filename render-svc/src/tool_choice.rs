//! Which tools an answer may call, as a grammar of the answer.
//!
//! The grammar comes from the [notation](Notation) of the model's calls and the schemas of the tools' parameters.

mod lark;
mod parameters;

use std::sync::Arc;

use serde_json::Value as Json;
use tandem_model_files::tokenizer::Tokenizer;

use self::lark::Writer;
use crate::answer_rules::Notation;
use crate::conversation::Invalid;
use crate::error::Error;
use crate::parse::{Budget, Rules, name};

/// The field of a request.
const FIELD: &str = "tool_choice";
/// The name of rules that cannot be used: only a model's own ones can be such.
const OWN_RULES: &str = "response_template";
const PARALLEL_FIELD: &str = "parallel_tool_calls";

/// Which tools an answer calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolChoice {
    /// As the model decides.
    Auto,
    /// None.
    None,
    /// At least one.
    Required,
    /// This one, once.
    Name(String),
}

/// The calls that an answer may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallLimits {
    pub choice: ToolChoice,
    /// False: one call at most.
    pub may_repeat: bool,
}

impl CallLimits {
    /// Returns true if a grammar has to keep an answer to them.
    #[must_use]
    pub fn need_grammar(&self) -> bool {
        match self.choice {
            ToolChoice::Auto => !self.may_repeat,
            ToolChoice::None => false,
            ToolChoice::Required | ToolChoice::Name(_) => true,
        }
    }

    /// Returns the field of a request that needs the grammar.
    #[must_use]
    pub fn field(&self) -> &'static str {
        if self.choice == ToolChoice::Auto { PARALLEL_FIELD } else { FIELD }
    }

    /// Fails if there are no tools, or not the chosen one. `tools` is a JSON list in the form of `apply_chat_template`.
    ///
    /// # Errors
    /// Names the field of the request.
    pub fn check(&self, tools: Option<&Json>) -> Result<(), Error> {
        self.tools(tools).map(drop)
    }

    /// Returns the Lark grammar of the answers to a prompt that keep to the limits. None if every answer does. `tools` is a
    /// JSON list in the form of `apply_chat_template`, `rules` read the answer; None if the model's own cannot be used.
    ///
    /// # Errors
    /// There are no tools or not the chosen one, the model's notation gives no grammar, or not one of a tool's parameters.
    pub fn grammar(
        &self,
        notation: Option<&Notation>,
        rules: Option<&Arc<Rules>>,
        tools: Option<&Json>,
        tokenizer: &Tokenizer,
        prompt: &str,
    ) -> Result<Option<String>, Error> {
        let mut budget = Budget::of(tools.unwrap_or(&Json::Null));
        let tools = self.tools(tools)?;
        let Some(tools) = tools.filter(|_| self.need_grammar()) else { return Ok(None) };
        let refused = |field: &'static str, problem: String| Error::ToolChoiceNotSupported {
            field,
            message: format!("cannot be kept for this model: {problem}; leave it out, or set grammar"),
        };
        let is_forced = self.choice != ToolChoice::Auto;
        let field = self.field();
        let named = rules.map_or(OWN_RULES, |rules| &rules.name);
        let unread = || refused(field, format!("its prompt format writes no calls that the rules {named:?} read back"));
        let (notation, reading) = notation.zip(rules).ok_or_else(unread)?;
        if !is_forced && notation.join.is_none() {
            return Ok(None);
        }
        let mut writer = Writer::new(notation, notation.section_after(reading, prompt), tokenizer);
        let repeats = self.may_repeat && !matches!(self.choice, ToolChoice::Name(_));
        let tools: Vec<_> = tools
            .iter()
            .map(|(index, tool)| parameters::tool(&mut writer, reading, *index, tool, &mut budget))
            .collect::<Result<_, _>>()?;
        if is_forced {
            let is_reasoning = notation.begins_within_reasoning(reading, prompt);
            return Ok(Some(writer.forced(&tools, repeats, is_reasoning)));
        }
        let marked = || refused(field, format!("the rules {named:?} read content between other marks"));
        writer.one_at_most(&tools).ok_or_else(marked).map(Some)
    }

    /// Returns the tools that the answer may call, each with its index. None if a choice of them says nothing.
    fn tools<'t>(&self, tools: Option<&'t Json>) -> Result<Option<Vec<(usize, &'t Json)>>, Error> {
        let all = || tools.and_then(Json::as_array).into_iter().flatten().enumerate();
        let chosen: Vec<_> = match &self.choice {
            ToolChoice::Name(chosen) => all().filter(|(_, tool)| name(tool) == Some(chosen)).take(1).collect(),
            _ => all().collect(),
        };
        match &self.choice {
            ToolChoice::Auto | ToolChoice::None if chosen.is_empty() => Ok(None),
            ToolChoice::Name(chosen_name) if chosen.is_empty() => {
                let known: Vec<_> = all().filter_map(|(_, tool)| name(tool)).collect();
                let problem = format!("names {chosen_name:?}, which no tool has: {}", known.join(", "));
                Err(Invalid::new(&format!("{FIELD}.name")[..], problem).into())
            }
            ToolChoice::Required if chosen.is_empty() => {
                Err(Invalid::new(FIELD, "needs tools: conversation.tools is empty").into())
            }
            _ => Ok(Some(chosen)),
        }
    }
}
