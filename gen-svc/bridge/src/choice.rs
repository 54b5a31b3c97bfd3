//! Choices of a resumed output: an engine starts a grammar again with each call.

use tandem_core::grammar::GrammarKind;
use tandem_core::request::PreparedRequest;
use tandem_model_files::tokenizer::Tokenizer;

/// Returns the rests of the choices that the resumed tokens begin. None: the grammar has no choices, the tokens end
/// inside a character, or they are a whole choice.
pub(crate) fn rests(request: &PreparedRequest, tokenizer: &Tokenizer) -> Option<Vec<String>> {
    let GrammarKind::Choice(choices) = &request.grammar.as_ref()?.source.kind else { return None };
    let generated = request.generated();
    let bound = generated.get(generated.len().checked_sub(request.bound)?..)?;
    let begun: Vec<u8> = bound.iter().filter_map(|id| tokenizer.token_bytes(*id)).flatten().copied().collect();
    let rests = choices.iter().filter_map(|choice| choice.as_bytes().strip_prefix(begun.as_slice()));
    let rests: Vec<String> = rests.map(|rest| String::from_utf8(rest.to_vec()).ok()).collect::<Option<_>>()?;
    rests.iter().any(|rest| !rest.is_empty()).then_some(rests)
}
