//! A sample of a model's output: an answer with reasoning, content and calls, as its adapter renders it.

use serde_json::{Value as Json, json};
use tandem_model_files::tokenizer::Tokenizer;

use crate::adapter::{Adapter, Input};
use crate::conversation::Conversation;
use crate::limits::Limits;
use crate::model::Model;
use crate::parse::IdForm;

pub(super) const CONTENT: &str = "qzcontent";
pub(super) const REASONING: &str = "qzreasoning";
/// The names of the called tools.
pub(super) const NAMES: [&str; 2] = ["qz_first", "qz_second"];
/// The names of the called tools, and the arguments of each call as JSON text.
pub(super) const CALLS: [(&str, &str); 2] =
    [(NAMES[0], r#"{"qzword": "qz value", "qzcount": 3}"#), (NAMES[1], r#"{"qzword": "qz other"}"#)];
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

/// How calls are handed to an adapter.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) id_form: IdForm,
    /// The identifiers of the calls.
    pub(super) ids: [&'static str; 2],
    /// True if arguments are JSON text, false if they are an object.
    is_text: bool,
}

impl Shape {
    /// Every shape, the usual one first.
    fn all() -> impl Iterator<Item = Self> {
        let forms = IdForm::ALL.into_iter().zip(IDS);
        forms.flat_map(|(id_form, ids)| [false, true].map(|is_text| Self { id_form, ids, is_text }))
    }
}

/// An answer to render.
#[derive(Debug, Clone)]
pub(super) struct Turn<'a> {
    pub(super) content: &'a str,
    /// None: the message has no reasoning.
    pub(super) reasoning: Option<&'a str>,
    /// The calls: the name of the tool, and its arguments.
    pub(super) calls: Vec<(&'a str, Json)>,
    /// The tools of the conversation.
    pub(super) tools: Json,
}

/// Renders samples with an adapter.
pub(super) struct Sampler<'a> {
    adapter: &'a Adapter,
    model: &'a Model,
}

/// Returns the tools of samples.
pub(super) fn tools() -> Json {
    tools_with(&json!({
        "qzword": {"type": "string", "description": "A word"},
        "qzcount": {"type": "integer", "description": "A number"},
    }))
}

/// Returns both tools, with these parameters.
pub(super) fn tools_with(properties: &Json) -> Json {
    let parameters = json!({"type": "object", "properties": properties, "required": []});
    let tool = |name: &&str| json!({"type": "function", "function": {"name": name, "description": "A tool", "parameters": parameters}});
    NAMES.iter().map(tool).collect()
}

/// Returns the texts and ids of special tokens, the longest text first.
pub(crate) fn special_tokens(tokenizer: &Tokenizer) -> Vec<(String, u32)> {
    let special = tokenizer.added_tokens().iter().filter(|token| tokenizer.is_special(token.id));
    let mut tokens: Vec<_> = special.map(|token| (token.text.clone(), token.id)).collect();
    tokens.retain(|(text, _)| !text.is_empty());
    tokens.sort_by_key(|(text, _)| std::cmp::Reverse(text.len()));
    tokens
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

    /// Returns the texts of the model's [special tokens](special_tokens).
    pub(super) fn special_tokens(&self) -> Vec<String> {
        let tokenizer = self.model.tokenizer.as_ref().ok();
        tokenizer.into_iter().flat_map(special_tokens).map(|(text, _)| text).collect()
    }

    /// Returns the first answers that the adapter renders with both calls, and with one.
    pub(super) fn samples(&self) -> Vec<Sample> {
        let sample = |calls| {
            [CONTENT, ""].into_iter().flat_map(|content| Shape::all().map(move |shape| (content, shape))).find_map(
                |(content, shape)| {
                    let turn = self.sample(calls, content, shape)?;
                    Some(Sample { turn, calls, id_form: shape.id_form })
                },
            )
        };
        [CALLS.len(), 1].into_iter().filter_map(sample).collect()
    }

    /// Returns the first shape in which the adapter renders a call without reasoning and content.
    pub(super) fn bare_shape(&self) -> Option<Shape> {
        Shape::all().find(|shape| self.shown(1, "", None, *shape).is_some())
    }

    fn sample(&self, calls: usize, content: &str, shape: Shape) -> Option<String> {
        self.shown(calls, content, Some(REASONING), shape)
    }

    /// Returns the turn of an answer. None if the adapter does not render it, or not its calls.
    fn shown(&self, count: usize, content: &str, reasoning: Option<&str>, shape: Shape) -> Option<String> {
        let object = |arguments| serde_json::from_str(arguments).unwrap_or(Json::Null);
        let calls = CALLS.iter().take(count).map(|(name, arguments)| (*name, object(arguments))).collect();
        let turn = self.turn(&Turn { content, reasoning, calls, tools: tools() }, shape)?;
        let is_shown = CALLS.iter().take(count).all(|(name, arguments)| {
            let words = arguments.split('"').filter(|word| word.starts_with("qz "));
            turn.contains(name) && words.into_iter().all(|word| turn.contains(word))
        });
        is_shown.then_some(turn)
    }

    /// Returns the rendered turn of an answer, from its start. None if the adapter does not render it.
    pub(super) fn turn(&self, turn: &Turn<'_>, shape: Shape) -> Option<String> {
        let call = |((name, arguments), id): (&(&str, Json), &str)| {
            let arguments = if shape.is_text { arguments.to_string().into() } else { arguments.clone() };
            json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
        };
        let written: Vec<Json> = turn.calls.iter().zip(shape.ids).map(call).collect();
        let mut answer = json!({"role": "assistant", "content": turn.content, "tool_calls": written});
        if let Some(reasoning) = turn.reasoning {
            answer["reasoning_content"] = reasoning.into();
        }
        let question = json!({"role": "user", "content": USER});
        let before = self.render(vec![question.clone()], Some(turn.tools.clone()), false)?;
        let after = self.render(vec![question, answer], Some(turn.tools.clone()), false)?;
        let common =
            before.char_indices().zip(after.chars()).find(|((_, a), b)| a != b).map_or(before.len(), |((at, _), _)| at);
        after.get(common..).map(str::to_owned)
    }

    fn render(&self, messages: Vec<Json>, tools: Option<Json>, add_generation_prompt: bool) -> Option<String> {
        let conversation = Conversation { messages, tools, ..Conversation::default() };
        let input = Input { add_generation_prompt, limits: Limits::default().short(), ..Input::of(&conversation) };
        (self.adapter.render)(self.model, &input).ok().map(|output| output.prompt)
    }
}
