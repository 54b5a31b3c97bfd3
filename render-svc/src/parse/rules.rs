//! Rules of reading: those of this project by name, and their form for one model.
//!
//! Each file in `rules/` is a `response_template`. To add a notation, write a file and add a row to [`BUILT_IN`].

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Value as Json, json};

use super::call_id::IdForm;
use super::engine::{Template, TemplateError, Value, strip};
use crate::conversation::Object;

/// Rules for one notation.
#[derive(Debug, Clone, Copy)]
pub struct BuiltIn {
    /// The name with which a request or the configuration pins the rules.
    pub name: &'static str,
    /// The `response_template`, as JSON. It may have keys that transformers lacks:
    ///
    /// - `content`: `json-calls` and `python-calls`. `strict` requires calls with arguments and no other text.
    /// - `content`: `xml-elements`, elements within elements, with the text `mark` before each tag.
    /// - `json_group`: a group of `tag_pattern` that marks a value as JSON.
    /// - `text_group`: a group of `tag_pattern` that is the value, if it takes part in a match.
    /// - `unquoted_keys`: keys may have any characters, and constants may be Python's.
    /// - `interrupts`: a field that the opening of this one closes too.
    pub source: &'static str,
    /// A text that a template or a tokenizer has only if its model writes calls in this notation. Empty if there is none.
    pub mark: &'static str,
}

macro_rules! built_in {
    ($($name:literal $mark:literal)*) => {
        &[$(BuiltIn { name: $name, source: include_str!(concat!("rules/", $name, ".json")), mark: $mark }),*]
    };
}

/// Every notation with its mark. Where several read a model's calls equally well, the first one is chosen.
pub const BUILT_IN: &[BuiltIn] = built_in! {
    "parameters-in-function" "<function="
    "arguments-in-tool-call" "<arg_key>"
    "mistral-named" "[ARGS]"
    "mistral" "[TOOL_CALLS]"
    "llama-json" "<|python_tag|>"
    "deepseek-dsml" "｜DSML｜"
    "deepseek-v3" "<｜tool▁sep｜>"
    "deepseek-v3.1" ""
    "gemma-4" "<|tool_call>"
    "gpt-oss" "<|channel|>"
    "kimi-k2" "<|tool_call_begin|>"
    "kimi-k3" "<|open|>"
    "minimax-m2" "<minimax:tool_call>"
    "minimax-m3" "]<]minimax[>["
    "seed-oss" "<seed:tool_call>"
    "granite" "<|tool_call|>"
    "phi-4-mini" "functools"
    "nemotron-nano" "<TOOLCALL>"
    "command" "<|START_ACTION|>"
    "command-r-plus" ""
    "json-in-tool-call" "<tool_call>"
    "hunyuan" ""
    "hunyuan-3" "<tool_call:opensource>"
    "ernie" ""
    "olmo-3" "<function_calls>"
    "lfm-2" "<|tool_call_start|>"
    "solar-open" "<|tool_call:begin|>"
    "internlm" "<|action_start|>"
    "minicpm-5" "<function name="
    "tool-calls-list" "<tool_calls>"
    "hunyuan-a13b" ""
    "function-tag" ""
    "apertus" "<|tools_prefix|>"
    "gigachat" "<|function_call|>"
    "granite-20b" "<function_call>"
    "python-list" ""
    "text" ""
};

/// The parts of rules that depend on the model.
#[derive(Debug, Clone, Default)]
pub(crate) struct Context {
    /// The texts around reasoning.
    pub(crate) reasoning: Option<(String, String)>,
    /// The texts that end the turn.
    pub(crate) ends: Vec<String>,
    /// The text that the generation prompt adds.
    pub(crate) generation_prompt: String,
    /// The form of identifiers.
    pub(crate) id_form: IdForm,
}

/// Rules for the answers of one model.
#[derive(Debug)]
pub struct Rules {
    /// `response_template` for the model's own ones, else the name of built-in ones.
    pub name: Cow<'static, str>,
    pub(super) template: Arc<Template>,
    pub(super) id_form: IdForm,
    /// The start of the assistant's turn in prompts, before anything that the rules read. None for the model's own
    /// template, which says itself where an answer starts.
    pub(crate) head: Option<String>,
    /// The texts that end the turn.
    ends: Vec<String>,
    /// The response template.
    source: Json,
}

impl Rules {
    /// Loads a model's own rules.
    pub(crate) fn own(source: &Json, id_form: IdForm) -> Result<Self, TemplateError> {
        let template = Arc::new(Template::new(&Value::from(source))?);
        Ok(Self {
            name: "response_template".into(),
            template,
            id_form,
            head: None,
            ends: Vec::new(),
            source: source.clone(),
        })
    }

    /// Returns built-in rules for a model.
    pub(crate) fn built_in(built_in: &BuiltIn, context: &Context) -> Self {
        let mut source: Json = serde_json::from_str(built_in.source).unwrap_or_default();
        if let Some(fields) = source.get_mut("fields").and_then(Json::as_object_mut) {
            let usual = json!({"open": "<think>", "close": "</think>"});
            let own = fields.get("reasoning_content");
            if let Some((open, close)) = context.reasoning.as_ref().filter(|_| own.is_none_or(|own| *own == usual)) {
                // The first field has precedence.
                fields.shift_remove("reasoning_content");
                fields.shift_insert(0, "reasoning_content".to_owned(), json!({"open": open, "close": close}));
            }
            // An answer can have several sections of reasoning.
            if let Some(reasoning) = fields.get_mut("reasoning_content").and_then(Json::as_object_mut) {
                reasoning.insert("repeats".to_owned(), json!(true));
                reasoning.insert("join".to_owned(), json!("\n"));
            }
            let content = fields.get_mut("content").and_then(Json::as_object_mut);
            let is_implicit = |content: &Object| !content.contains_key("open") && !content.contains_key("open_pattern");
            if let Some(content) = content.filter(|content| is_implicit(content) && !context.ends.is_empty()) {
                let own = content.get("close").and_then(Json::as_str).map(str::to_owned);
                content.insert("close".to_owned(), context.ends.iter().cloned().chain(own).collect());
            }
        }
        // A test loads every row. Rules that do not load read every answer as content.
        let template = Template::built_in(&Value::from(&source)).unwrap_or_else(|_| Template::of_text());
        let prompt = &context.generation_prompt;
        let head = template.first_anchor(prompt).and_then(|at| prompt.get(..at)).unwrap_or(prompt).to_owned();
        let (name, ends) = (built_in.name.into(), context.ends.clone());
        Self { name, template: Arc::new(template), id_form: context.id_form, head: Some(head), ends, source }
    }

    /// Returns rules that read no calls: their text is content.
    pub(crate) fn without_calls(&self) -> Self {
        let mut source = self.source.clone();
        if let Some(fields) = source.get_mut("fields").and_then(Json::as_object_mut) {
            ["tool_calls", "markup"].into_iter().for_each(|name| drop(fields.shift_remove(name)));
        }
        let template = Template::built_in(&Value::from(&source)).unwrap_or_else(|_| Template::of_text());
        let (name, head, ends) = (self.name.clone(), self.head.clone(), self.ends.clone());
        Self { name, template: Arc::new(template), id_form: self.id_form, head, ends, source }
    }

    /// Returns the texts around reasoning, if the rules have them as texts.
    pub(crate) fn reasoning_marks(&self) -> Option<(&str, &str)> {
        let field = self.field("reasoning_content")?;
        Some((field.get("open")?.as_str()?, field.get("close")?.as_str()?))
    }

    /// Returns true if there are marks around the content.
    pub(crate) fn marks_content(&self) -> bool {
        let has = |key| self.field("content").is_some_and(|field| field.get(key).is_some());
        has("open") || has("open_pattern")
    }

    fn field(&self, name: &str) -> Option<&Json> {
        self.source.get("fields")?.get(name)
    }

    /// Returns the part of a prompt that belongs to the answer.
    pub(crate) fn start_of<'p>(&self, prompt: &'p str) -> &'p str {
        match &self.head {
            None => self.template.answer_start(prompt),
            Some(head) if head.is_empty() => "",
            Some(head) => prompt.rfind(head.as_str()).and_then(|at| prompt.get(at + head.len()..)).unwrap_or_default(),
        }
    }

    /// Returns a text without the ends of the turn and the white space around it.
    pub(super) fn without_ends<'t>(&self, text: &'t str) -> &'t str {
        let mut text = strip(text);
        while let Some(rest) = self.ends.iter().find_map(|end| text.strip_prefix(end.as_str())) {
            text = strip(rest);
        }
        text
    }

    /// Returns true if a special token with this text is part of a text that the rules read.
    #[must_use]
    pub fn reads_token(&self, text: &str) -> bool {
        self.template.mentions(text)
    }
}
