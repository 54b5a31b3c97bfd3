//! How a model's output is to be read, as data: inferred once per model, from its tokenizer, generation config and template.

use serde_json::{Value, json};
use tandem_common::artifacts::Artifacts;
use tandem_common::template::{self, Limits, LocalTime};
use tandem_common::tokenizer::Tokenizer;

use crate::chat::Object;
use crate::models::Templates;

/// What travels from Render to Generate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OutputSpec {
    /// Ids that end the model's turn, in ascending order.
    pub eos_token_ids: Vec<u32>,
    /// Strings that end it, for formats whose end marker is not one token.
    pub stop_strings: Vec<String>,
    /// Ids at which reasoning starts and ends. None where the model has no such tokens.
    pub reasoning: Option<(u32, u32)>,
    /// The head of the assistant's turn as text. Empty where it has none.
    pub turn_head: String,
    /// Whether the model may go on with turns of others: it has no chat template, so nothing is known to end its own.
    pub runs_on: bool,
}

/// Tokens that enclose reasoning, as models name them.
const REASONING: &[(&str, &str)] = &[
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<seed:think>", "</seed:think>"),
    ("<|channel>", "<channel|>"),
];

/// Roles whose names models write between turns when they do not end theirs.
pub const ROLES: [&str; 4] = ["system", "user", "assistant", "tool"];

/// What the probe's assistant says. A template may move it, not change it.
const PROBE: &str = "tandem-end-of-turn-probe";

impl OutputSpec {
    /// The eos ids of the generation config and the tokenizer, the special token that the template writes after what the assistant
    /// said, the tokens that the tokenizer has for reasoning, and what the template opens the assistant's turn with.
    #[must_use]
    pub fn infer(
        artifacts: &Artifacts,
        templates: &Templates,
        special_tokens: &Object,
        tokenizer: Option<&Tokenizer>,
    ) -> Self {
        let mut eos_token_ids = artifacts.generation.eos_token_ids.clone();
        let named = special_tokens.get("eos_token").and_then(Value::as_str);
        eos_token_ids.extend(tokenizer.zip(named).and_then(|(tokenizer, text)| tokenizer.token_to_id(text)));
        eos_token_ids.extend(tokenizer.and_then(|tokenizer| end_of_turn(templates, special_tokens, tokenizer)));
        eos_token_ids.sort_unstable();
        eos_token_ids.dedup();
        let reasoning = tokenizer.and_then(reasoning);
        let start = reasoning.map(|(start, _)| start);
        let turn_head = tokenizer.and_then(|tokenizer| turn_head(templates, special_tokens, tokenizer, start));
        Self {
            eos_token_ids,
            stop_strings: Vec::new(),
            reasoning,
            turn_head: turn_head.unwrap_or_default(),
            runs_on: templates.choose(None, false).is_err(),
        }
    }
}

fn reasoning(tokenizer: &Tokenizer) -> Option<(u32, u32)> {
    let ids = |(start, end): &(&str, &str)| Some((tokenizer.token_to_id(start)?, tokenizer.token_to_id(end)?));
    REASONING.iter().find_map(ids)
}

/// The special token that directly follows the assistant's words in a rendered conversation. None where the template does not
/// render the probe, or goes on with something else.
fn end_of_turn(templates: &Templates, special_tokens: &Object, tokenizer: &Tokenizer) -> Option<u32> {
    let messages = [json!({"role": "user", "content": "Hello"}), json!({"role": "assistant", "content": PROBE})];
    let rendered = render(templates, special_tokens, &messages, false)?;
    let after = rendered.rsplit_once(PROBE)?.1.trim_start();
    let first = *tokenizer.encode(after, false).ok()?.first()?;
    tokenizer.is_special(first).then_some(first)
}

/// What is left of the generation prompt, up to where reasoning starts, without its special tokens. None where the template has none.
fn turn_head(
    templates: &Templates,
    special_tokens: &Object,
    tokenizer: &Tokenizer,
    reasoning: Option<u32>,
) -> Option<String> {
    let messages = [json!({"role": "user", "content": "Hello"})];
    let without = render(templates, special_tokens, &messages, false)?;
    let with = render(templates, special_tokens, &messages, true)?;
    let ids = tokenizer.encode(with.strip_prefix(&without)?, false).ok()?;
    let head = ids.into_iter().take_while(|&id| Some(id) != reasoning);
    let shown = head.filter(|&id| !tokenizer.is_special(id));
    let bytes: Vec<u8> = shown.flat_map(|id| tokenizer.token_bytes(id).unwrap_or_default().to_vec()).collect();
    String::from_utf8(bytes).ok().filter(|head| !head.trim().is_empty())
}

fn render(
    templates: &Templates,
    special_tokens: &Object,
    messages: &[Value],
    add_generation_prompt: bool,
) -> Option<String> {
    let input = template::Input {
        messages,
        tools: None,
        documents: None,
        args: &Object::new(),
        special_tokens,
        add_generation_prompt,
        continue_final_message: false,
        now: LocalTime::EPOCH,
        marks: None,
    };
    Some(templates.choose(None, false).ok()?.template.apply(&input, &Limits::default()).ok()?.text)
}
