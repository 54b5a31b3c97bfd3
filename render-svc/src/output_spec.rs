//! How a model's output is to be read, as data: inferred once per model, from its tokenizer, generation config and template, and
//! completed for the adapter that renders.

mod ends;
pub mod tool_calls;

use serde_json::{Value, json};
use tandem_model_files::artifacts::Artifacts;
use tandem_model_files::tokenizer::Tokenizer;
use tandem_template::{self, Limits, LocalTime};

use crate::adapters::{Adapter, Kind};
use crate::capabilities::Capabilities;
use crate::chat::Object;
use crate::models::Templates;

/// What travels from Render to Generate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OutputSpec {
    /// Ids that end the model's turn, in ascending order.
    pub eos_token_ids: Vec<u32>,
    /// Strings that end it, for formats whose end marker is not one token.
    pub stop_strings: Vec<String>,
    /// Ids of special tokens that are part of a tool call: their text is part of the answer. In ascending order.
    pub passed_token_ids: Vec<u32>,
    /// What encloses reasoning. None where nothing is known to.
    pub reasoning: Option<Reasoning>,
    /// The head of the assistant's turn as text. Empty where it has none.
    pub turn_head: String,
    /// Whether the model may go on with turns of others: nothing is known to end its own.
    pub runs_on: bool,
}

/// What encloses reasoning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reasoning {
    /// The ids at which it starts and ends.
    Tokens(u32, u32),
    /// The texts at which it starts and ends, each of several tokens.
    Text(&'static str, &'static str),
}

/// What encloses reasoning, as models write it.
const REASONING: &[(&str, &str)] = &[
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<seed:think>", "</seed:think>"),
    ("<|channel>", "<channel|>"),
    ("<reasoning>", "</reasoning>"),
];

/// Roles whose names models write between turns when they do not end theirs.
pub const ROLES: [&str; 4] = ["system", "user", "assistant", "tool"];

/// What the probe's assistant says. A template may move it, not change it.
const PROBE: &str = "tandem-end-of-turn-probe";

impl OutputSpec {
    /// The eos ids of the generation config and the tokenizer, what the template writes after the assistant's words, what the
    /// tokenizer's families end with, what encloses reasoning, and what the template opens the assistant's turn with.
    #[must_use]
    pub fn infer(
        artifacts: &Artifacts,
        templates: &Templates,
        special_tokens: &Object,
        tokenizer: Option<&Tokenizer>,
        capabilities: Capabilities,
    ) -> Self {
        let Some(tokenizer) = tokenizer else {
            let eos_token_ids = ascending(artifacts.generation.eos_token_ids.clone());
            return Self { eos_token_ids, runs_on: templates.choose(None, false).is_err(), ..Self::default() };
        };
        let mut spec = Self { eos_token_ids: artifacts.generation.eos_token_ids.clone(), ..Self::default() };
        let named = special_tokens.get("eos_token").and_then(Value::as_str);
        let vocabulary = Vocabulary::new(tokenizer, artifacts);
        spec.eos_token_ids.extend(named.and_then(|text| vocabulary.id(text)));
        spec.eos_token_ids.extend(ends::of_families(&vocabulary));
        match end_of_turn(templates, special_tokens, tokenizer) {
            Some(End::Token(id)) => spec.eos_token_ids.push(id),
            Some(End::Text(text)) => spec.stop_strings.push(text),
            None => {}
        }
        spec.eos_token_ids = ascending(spec.eos_token_ids);
        spec.eos_token_ids.retain(|&id| vocabulary.reaches(id));
        spec.reasoning = reasoning(templates, &vocabulary, capabilities);
        spec.turn_head = turn_head(templates, special_tokens, tokenizer, spec.reasoning).unwrap_or_default();
        spec.runs_on = templates.choose(None, false).is_err();
        spec
    }

    /// The same for prompts that this adapter renders: its own turn ends, as an id where the tokenizer has one token for it, else as
    /// a stop string, and the special tokens of tool calls that the adapter or a template writes.
    #[must_use]
    pub fn of_adapter(
        &self,
        adapter: &Adapter,
        artifacts: &Artifacts,
        templates: &Templates,
        tokenizer: Option<&Tokenizer>,
    ) -> Self {
        let mut spec = self.clone();
        let vocabulary = tokenizer.map(|tokenizer| Vocabulary::new(tokenizer, artifacts));
        for end in adapter.turn_ends {
            match vocabulary.as_ref().and_then(|vocabulary| vocabulary.id(end)) {
                Some(id) => spec.eos_token_ids.push(id),
                None if spec.stop_strings.iter().all(|known| known != end) => spec.stop_strings.push((*end).to_owned()),
                None => {}
            }
        }
        spec.eos_token_ids = ascending(spec.eos_token_ids);
        spec.runs_on &= adapter.turn_ends.is_empty();
        if adapter.kind == Kind::Family {
            let pair = REASONING.iter().find(|(start, _)| adapter.markup.contains(start));
            spec.reasoning = spec.reasoning.or(pair.map(|(start, end)| Reasoning::Text(start, end)));
        }
        if adapter.kind == Kind::Format && !has_control_token(adapter, vocabulary.as_ref()) {
            spec.reasoning = spec.reasoning.filter(|markers| matches!(markers, Reasoning::Tokens(..)));
        }
        if let Some(vocabulary) = &vocabulary {
            spec.passed_token_ids = tokens_of_calls(adapter, templates, vocabulary);
            spec.passed_token_ids.retain(|id| !spec.eos_token_ids.contains(id));
        }
        spec
    }
}

/// The tokens that a model can generate. A tokenizer may know others, which were added without making the output layer larger.
struct Vocabulary<'a> {
    tokenizer: &'a Tokenizer,
    /// Of the output layer; None where the config does not say.
    size: Option<u64>,
}

impl<'a> Vocabulary<'a> {
    fn new(tokenizer: &'a Tokenizer, artifacts: &Artifacts) -> Self {
        let config = &artifacts.config;
        let size = config.get("vocab_size").or_else(|| config.get("text_config")?.get("vocab_size"));
        Self { tokenizer, size: size.and_then(Value::as_u64) }
    }

    fn reaches(&self, id: u32) -> bool {
        self.size.is_none_or(|size| u64::from(id) < size)
    }

    fn id(&self, text: &str) -> Option<u32> {
        self.tokenizer.token_to_id(text).filter(|&id| self.reaches(id))
    }

    fn special_id(&self, text: &str) -> Option<u32> {
        self.id(text).filter(|&id| self.tokenizer.is_special(id))
    }
}

/// Whether a special token ends the turns of a format. Where none does, a marker that a user wrote as text cannot be told from the
/// model's own.
fn has_control_token(adapter: &Adapter, vocabulary: Option<&Vocabulary<'_>>) -> bool {
    let is_token = |end: &&str| vocabulary.is_some_and(|vocabulary| vocabulary.special_id(end).is_some());
    adapter.turn_ends.iter().any(is_token)
}

fn ascending(mut ids: Vec<u32>) -> Vec<u32> {
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// The special tokens of tool calls that a template or the adapter writes.
fn tokens_of_calls(adapter: &Adapter, templates: &Templates, vocabulary: &Vocabulary<'_>) -> Vec<u32> {
    let is_written = |text: &str| adapter.markup.contains(&text) || templates.write(text);
    let markers = vocabulary
        .tokenizer
        .added_tokens()
        .iter()
        .filter(|token| token.is_special && tool_calls::is_marker(&token.text));
    let written = markers.filter(|token| vocabulary.reaches(token.id) && is_written(&token.text));
    ascending(written.map(|token| token.id).collect())
}

/// A pair that the tokenizer has as tokens, else one that a template writes as text, else the usual one of a model that reasons.
fn reasoning(templates: &Templates, vocabulary: &Vocabulary<'_>, capabilities: Capabilities) -> Option<Reasoning> {
    let tokens = |(start, end): &(&str, &str)| Some(Reasoning::Tokens(vocabulary.id(start)?, vocabulary.id(end)?));
    let is_written = |(_, end): &&(&str, &str)| templates.write(end);
    let text = || {
        let written = REASONING.iter().find(is_written);
        let pair = written.or_else(|| REASONING.first().filter(|_| capabilities.supports_reasoning));
        pair.map(|(start, end)| Reasoning::Text(start, end))
    };
    REASONING.iter().find_map(tokens).or_else(text)
}

/// What ends the assistant's turn.
enum End {
    Token(u32),
    Text(String),
}

/// What directly follows the assistant's words in a rendered conversation: a special token, or text that is written like one. None
/// where the template does not render the probe, or goes on with something else.
fn end_of_turn(templates: &Templates, special_tokens: &Object, tokenizer: &Tokenizer) -> Option<End> {
    let messages = [json!({"role": "user", "content": "Hello"}), json!({"role": "assistant", "content": PROBE})];
    let rendered = render(templates, special_tokens, &messages, false)?;
    let after = rendered.rsplit_once(PROBE)?.1.trim_start();
    let first = *tokenizer.encode(after, false).ok()?.first()?;
    match tokenizer.is_special(first) {
        true => Some(End::Token(first)),
        false => control_text(after).map(|text| End::Text(text.to_owned())),
    }
}

/// The text up to its first `|>`, where it is written as control tokens are, such as `<|im_end|>`.
fn control_text(text: &str) -> Option<&str> {
    const LONGEST: usize = 40;
    let end = text.strip_prefix("<|")?.find("|>")? + "<||>".len();
    Some(&text[..end]).filter(|text| text.len() <= LONGEST && !text.contains(char::is_whitespace))
}

/// What is left of the generation prompt, up to where reasoning starts, without its special tokens. None where the template has none.
fn turn_head(
    templates: &Templates,
    special_tokens: &Object,
    tokenizer: &Tokenizer,
    reasoning: Option<Reasoning>,
) -> Option<String> {
    let messages = [json!({"role": "user", "content": "Hello"})];
    let without = render(templates, special_tokens, &messages, false)?;
    let with = render(templates, special_tokens, &messages, true)?;
    let ids = tokenizer.encode(with.strip_prefix(&without)?, false).ok()?;
    let head = ids.into_iter().take_while(|&id| !matches!(reasoning, Some(Reasoning::Tokens(start, _)) if id == start));
    let shown = head.filter(|&id| !tokenizer.is_special(id));
    let bytes: Vec<u8> = shown.flat_map(|id| tokenizer.token_bytes(id).unwrap_or_default().to_vec()).collect();
    let mut head = String::from_utf8(bytes).ok()?;
    if let Some(Reasoning::Text(start, _)) = reasoning {
        head.truncate(head.find(start).unwrap_or(head.len()));
    }
    (!head.trim().is_empty()).then_some(head)
}

fn render(
    templates: &Templates,
    special_tokens: &Object,
    messages: &[Value],
    add_generation_prompt: bool,
) -> Option<String> {
    let input = tandem_template::Input {
        messages,
        tools: None,
        documents: None,
        args: &Object::new(),
        special_tokens,
        add_generation_prompt,
        continue_final_message: false,
        now: LocalTime::EPOCH,
        taint: None,
    };
    Some(templates.choose(None, false).ok()?.template.apply(&input, &Limits::default()).ok()?.text)
}
