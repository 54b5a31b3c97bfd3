//! A sample of a model's output: an answer with reasoning, content and calls, as its adapter renders it.

use serde_json::{Value as Json, json};

use crate::adapter::{Adapter, Input};
use crate::conversation::Conversation;
use crate::limits::Limits;
use crate::model::Model;
use crate::parse::IdForm;

pub(super) const CONTENT: &str = "qzcontent";
pub(super) const REASONING: &str = "qzreasoning";
/// The names of the called tools, and the arguments of each call as JSON text.
pub(super) const CALLS: [(&str, &str); 2] =
    [("qz_first", r#"{"qzword": "qz value", "qzcount": 3}"#), ("qz_second", r#"{"qzword": "qz other"}"#)];
const USER: &str = "qzquestion";
const IDS: [[&str; 2]; 3] =
    [["call_qzaaaaaaaaaaaaaaaaaaaaaa", "call_qzbbbbbbbbbbbbbbbbbbbbbb"], ["qzaaaaaaa", "qzbbbbbbb"], NAMED_IDS];
const NAMED_IDS: [&str; 2] = ["functions.qz_first:0", "functions.qz_second:1"];

/// An answer as an adapter renders it.
#[derive(Debug)]
pub(super) struct Sample {
    /// The assistant's turn, from its start.
    pub(super) turn: String,
    /// The number of calls in it.
    pub(super) calls: usize,
    /// The form of its calls' identifiers.
    pub(super) id_form: IdForm,
}

/// Renders samples with an adapter.
pub(super) struct Sampler<'a> {
    adapter: &'a Adapter,
    model: &'a Model,
}

/// Returns the tools of samples.
pub(super) fn tools() -> Json {
    let parameters = json!({
        "type": "object",
        "properties": {
            "qzword": {"type": "string", "description": "A word"},
            "qzcount": {"type": "integer", "description": "A number"},
        },
        "required": ["qzword"],
    });
    let tool = |(name, _): &(&str, &str)| json!({"type": "function", "function": {"name": name, "description": "A tool", "parameters": parameters}});
    CALLS.iter().map(tool).collect()
}

impl<'a> Sampler<'a> {
    pub(super) fn new(adapter: &'a Adapter, model: &'a Model) -> Self {
        Self { adapter, model }
    }

    /// Returns the text that the generation prompt adds after a question. Empty if it adds none.
    pub(super) fn generation_prompt(&self) -> String {
        let rendered = |is_prompt| self.render(vec![json!({"role": "user", "content": USER})], None, is_prompt);
        let (Some(with), Some(without)) = (rendered(true), rendered(false)) else { return String::new() };
        with.strip_prefix(without.as_str()).unwrap_or_default().to_owned()
    }

    /// Returns the first answers that the adapter renders with both calls, and with one.
    pub(super) fn samples(&self) -> Vec<Sample> {
        let shapes = || {
            let contents = [CONTENT, ""].into_iter();
            let with_ids = contents.flat_map(|content| IdForm::ALL.into_iter().zip(IDS).map(move |ids| (content, ids)));
            with_ids.flat_map(|(content, ids)| [false, true].map(|is_text| (content, ids, is_text)))
        };
        let sample = |calls| {
            shapes().find_map(|(content, (id_form, ids), is_text)| {
                let turn = self.turn(calls, content, ids, is_text)?;
                Some(Sample { turn, calls, id_form })
            })
        };
        [CALLS.len(), 1].into_iter().filter_map(sample).collect()
    }

    /// Returns the turn of an answer. None if the adapter does not render it, or not its calls.
    fn turn(&self, calls: usize, content: &str, ids: [&str; 2], is_text: bool) -> Option<String> {
        let call = |((name, arguments), id): (&(&str, &str), &str)| {
            let object = serde_json::from_str(arguments).unwrap_or(Json::Null);
            let arguments = if is_text { json!(arguments) } else { object };
            json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
        };
        let written: Vec<Json> = CALLS.iter().zip(ids).take(calls).map(call).collect();
        let answer =
            json!({"role": "assistant", "content": content, "reasoning_content": REASONING, "tool_calls": written});
        let question = json!({"role": "user", "content": USER});
        let before = self.render(vec![question.clone()], Some(tools()), false)?;
        let after = self.render(vec![question, answer], Some(tools()), false)?;
        let common =
            before.char_indices().zip(after.chars()).find(|((_, a), b)| a != b).map_or(before.len(), |((at, _), _)| at);
        let turn = after.get(common..)?;
        let is_shown = CALLS.iter().take(calls).all(|(name, arguments)| {
            let words = arguments.split('"').filter(|word| word.starts_with("qz "));
            turn.contains(name) && words.into_iter().all(|word| turn.contains(word))
        });
        is_shown.then(|| turn.to_owned())
    }

    fn render(&self, messages: Vec<Json>, tools: Option<Json>, add_generation_prompt: bool) -> Option<String> {
        let conversation = Conversation { messages, tools, ..Conversation::default() };
        let input = Input { add_generation_prompt, limits: Limits::default().short(), ..Input::of(&conversation) };
        (self.adapter.render)(self.model, &input).ok().map(|output| output.prompt)
    }
}
