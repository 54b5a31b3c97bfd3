//! Facts about a chat template that are found by rendering a conversation with known words.

use serde_json::{Value, json};
use tandem_model_files::tokenizer::Tokenizer;
use tandem_template::{Limits, LocalTime};

use super::reasoning::Reasoning;
use crate::conversation::Object;
use crate::model::Model;

/// The words of the probe's assistant. A template may move them, but not change them.
const PROBE: &str = "tandem-end-of-turn-probe";

/// The end of the assistant's turn.
pub(super) enum End {
    Token(u32),
    Text(String),
}

/// Returns what directly follows the assistant's words in a rendered conversation: a special token,
/// or text that is written like one. None if the template does not render the probe, or continues
/// with something else.
pub(super) fn end_of_turn(model: &Model, tokenizer: &Tokenizer) -> Option<End> {
    let messages = [json!({"role": "user", "content": "Hello"}), json!({"role": "assistant", "content": PROBE})];
    let rendered = render(model, &messages, false)?;
    let after = rendered.rsplit_once(PROBE)?.1.trim_start();
    let first = *tokenizer.encode(after, false).ok()?.first()?;
    if tokenizer.is_special(first) {
        return Some(End::Token(first));
    }
    control_text(after).map(|text| End::Text(text.to_owned()))
}

/// Returns the text up to its first `|>` if it is written as control tokens are, such as
/// `<|im_end|>`.
fn control_text(text: &str) -> Option<&str> {
    const MAX_BYTES: usize = 40;
    let end = text.strip_prefix("<|")?.find("|>")? + "<||>".len();
    Some(&text[..end]).filter(|text| text.len() <= MAX_BYTES && !text.contains(char::is_whitespace))
}

/// Returns the generation prompt up to the start of reasoning, without its special tokens. None if
/// the template writes none.
pub(super) fn turn_head(model: &Model, tokenizer: &Tokenizer, reasoning: Option<Reasoning>) -> Option<String> {
    let messages = [json!({"role": "user", "content": "Hello"})];
    let without = render(model, &messages, false)?;
    let with = render(model, &messages, true)?;
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

fn render(model: &Model, messages: &[Value], add_generation_prompt: bool) -> Option<String> {
    let template = &model.templates.choose(None, false).ok()?.template;
    let input = tandem_template::Input {
        messages,
        tools: None,
        documents: None,
        args: &Object::new(),
        special_tokens: &model.special_tokens,
        add_generation_prompt,
        continue_final_message: None,
        now: LocalTime::EPOCH,
        taint: None,
    };
    Some(template.apply(&input, &Limits::default()).ok()?.text)
}
