//! The marks in rendered text: control tokens, and text that is written as control tokens are.

use tandem_model_files::tokenizer::Tokenizer;
use tandem_template::literal::ControlTokenFinder;

use crate::error::Error;
use crate::model::Model;

/// A control token, or text that is written like one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mark {
    /// A token of the vocabulary.
    Token(u32),
    /// Text that is no token.
    Text(String),
}

/// A part of rendered text that is not white space.
enum Piece {
    Mark(Mark),
    Words,
}

/// Reads the marks of one model's prompts.
pub(in super::super) struct MarkReader<'a> {
    tokenizer: &'a Tokenizer,
    finder: ControlTokenFinder,
}

impl<'a> MarkReader<'a> {
    pub(in super::super) fn new(tokenizer: &'a Tokenizer, model: &Model) -> Result<Self, Error> {
        Ok(Self { tokenizer, finder: model.control_tokens(&[])? })
    }

    /// Returns the marks of a text, in order.
    pub(super) fn marks(&self, text: &str) -> Vec<Mark> {
        let marks = self.pieces(text).into_iter().filter_map(|piece| match piece {
            Piece::Mark(mark) => Some(mark),
            Piece::Words => None,
        });
        marks.collect()
    }

    /// Returns true if a text has a token that is a mark.
    pub(super) fn has_token(&self, text: &str) -> bool {
        self.marks(text).iter().any(|mark| matches!(mark, Mark::Token(_)))
    }

    /// Returns the marks before the first words of a text.
    pub(super) fn leading(&self, text: &str) -> Vec<Mark> {
        let leading = self.pieces(text).into_iter().map_while(|piece| match piece {
            Piece::Mark(mark) => Some(mark),
            Piece::Words => None,
        });
        leading.collect()
    }

    fn pieces(&self, text: &str) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let mut at = 0;
        for range in self.finder.in_text(text) {
            read_text(&text[at..range.start], &mut pieces);
            let id = self.tokenizer.token_to_id(&text[range.clone()]);
            pieces.push(id.map_or(Piece::Words, |id| Piece::Mark(Mark::Token(id))));
            at = range.end;
        }
        read_text(&text[at..], &mut pieces);
        pieces
    }
}

/// Reads text without control tokens.
fn read_text(text: &str, pieces: &mut Vec<Piece>) {
    let mut rest = text.trim_start();
    while let Some(next) = rest.chars().next() {
        let mark = written_mark(rest);
        // Words end at white space, and where a mark may begin.
        let word = || rest[next.len_utf8()..].find(|c: char| c.is_whitespace() || c == '<' || c == '[');
        let end = mark.map_or_else(|| word().map_or(rest.len(), |at| next.len_utf8() + at), str::len);
        pieces.push(mark.map_or(Piece::Words, |mark| Piece::Mark(Mark::Text(mark.to_owned()))));
        rest = rest[end..].trim_start();
    }
}

/// Brackets of text that is written as control tokens are.
const BRACKETS: [(&str, &str); 3] = [("<|", "|>"), ("<｜", "｜>"), ("[", "]")];

/// Returns the start of the text up to a closing bracket if it is written as control tokens are,
/// such as `<|im_end|>` or `[/assistant]`.
fn written_mark(text: &str) -> Option<&str> {
    const MAX_BYTES: usize = 40;
    let text = &text[..text.floor_char_boundary(MAX_BYTES)];
    BRACKETS.iter().find_map(|(open, close)| {
        let name = text.strip_prefix(open)?;
        let name = &name[..name.find(close)?];
        let mark = &text[..open.len() + name.len() + close.len()];
        let is_name = name.contains(char::is_alphabetic) && !name.contains(|c: char| c.is_whitespace() || c == '[');
        is_name.then_some(mark)
    })
}
