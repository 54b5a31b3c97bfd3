//! Pre-tokenizers, which split text before BPE, by their names in `tokenizer.ggml.pre`.
//!
//! A GGUF contains only the name. The rules come from the `tokenizer.json` of the models with that
//! name.

use tokenizers::normalizers::NFC;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{NormalizerWrapper, PreTokenizerWrapper, SplitDelimiterBehavior};

use super::error::TokenizerError;

/// The rules of one or more names.
pub(super) struct PreTokenizer {
    names: &'static [&'static str],
    /// Applied in order, each to the pieces of the previous one.
    cuts: &'static [Cut],
    /// True if a piece that is itself a token becomes that token without merges.
    pub(super) whole_pieces: bool,
    /// True if text is first converted to Unicode normal form C.
    nfc: bool,
    /// True if bos is added before a text unless the file states otherwise.
    pub(super) bos_by_default: bool,
}

enum Cut {
    /// Makes each digit a piece. A digit is a character with Unicode's numeric property.
    EachDigit,
    /// Splits into GPT-2's words, each with the space before it.
    Gpt2,
    /// Splits at every match of the regex; the text between matches stays a piece.
    Matches(&'static str),
}

/// GPT-2's words.
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
/// The end of a regex that splits a whole text.
const SPACES: &str = r"\s+(?!\S)|\s+";

const TABLE: &[PreTokenizer] = &[
    PreTokenizer {
        names: &["gpt-2", "default", "phi-2"],
        cuts: &[Cut::Gpt2],
        whole_pieces: false,
        nfc: false,
        bos_by_default: false,
    },
    // Digits are split first, so the spaces before a digit are one piece: "a  1" is "a", two
    // spaces, "1". transformers uses only GPT-2's rule for every GGUF. It would split these spaces,
    // so the ids would differ from the ids in training.
    PreTokenizer {
        names: &["smollm", "starcoder", "refact"],
        cuts: &[Cut::EachDigit, Cut::Gpt2],
        whole_pieces: false,
        nfc: false,
        bos_by_default: false,
    },
    PreTokenizer {
        names: &["command-r"],
        cuts: &[Cut::EachDigit, Cut::Gpt2],
        whole_pieces: false,
        nfc: true,
        bos_by_default: false,
    },
    PreTokenizer {
        names: &["llama-bpe", "llama3", "llama-v3", "smaug-bpe"],
        cuts: &[Cut::Matches(concat!(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|",
            r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        ))],
        whole_pieces: true,
        nfc: false,
        bos_by_default: true,
    },
    PreTokenizer {
        names: &["qwen2"],
        cuts: &[Cut::Matches(concat!(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|",
            r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        ))],
        whole_pieces: false,
        nfc: true,
        bos_by_default: false,
    },
    PreTokenizer {
        names: &["gpt-4o"],
        cuts: &[Cut::Matches(concat!(
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|",
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|",
            r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        ))],
        whole_pieces: true,
        nfc: false,
        bos_by_default: false,
    },
    PreTokenizer {
        names: &["deepseek-v3"],
        cuts: &[
            Cut::Matches(r"\p{N}{1,3}"),
            Cut::Matches("[一-龥\u{3040}-ゟ゠-ヿ]+"),
            Cut::Matches(concat!(
                r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^"##,
                "\r\n",
                r"\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[",
                "\r\n",
                r"]*|\s*[",
                "\r\n",
                r"]+|\s+(?!\S)|\s+"
            )),
        ],
        whole_pieces: false,
        nfc: false,
        bos_by_default: false,
    },
];

impl PreTokenizer {
    pub(super) fn named(name: &str) -> Result<&'static Self, TokenizerError> {
        let row = TABLE.iter().find(|row| row.names.contains(&name));
        row.ok_or_else(|| TokenizerError::PreTokenizer { found: name.to_owned(), known: known_names() })
    }

    pub(super) fn normalizer(&self) -> Option<NormalizerWrapper> {
        self.nfc.then(|| NFC.into())
    }

    pub(super) fn pre_tokenizer(&self) -> Result<PreTokenizerWrapper, TokenizerError> {
        let mut steps = self.cuts.iter().map(Cut::step).collect::<Result<Vec<_>, _>>()?;
        steps.push(ByteLevel::new(false, true, false).into());
        Ok(Sequence::new(steps).into())
    }
}

impl Cut {
    fn step(&self) -> Result<PreTokenizerWrapper, TokenizerError> {
        match self {
            Self::EachDigit => Ok(Digits::new(true).into()),
            Self::Gpt2 => split(GPT2),
            Self::Matches(regex) => split(regex),
        }
    }
}

/// Returns true if `regex` is of a row and splits the whole text. With each of them, no word reaches over a
/// space between two letters or digits of ASCII.
pub(super) fn ends_words_at_spaces(regex: &str) -> bool {
    let mut cuts = TABLE.iter().flat_map(|row| row.cuts);
    regex.ends_with(SPACES) && (regex == GPT2 || cuts.any(|cut| matches!(cut, Cut::Matches(own) if *own == regex)))
}

fn split(regex: &str) -> Result<PreTokenizerWrapper, TokenizerError> {
    let pattern = SplitPattern::Regex(regex.to_owned());
    match Split::new(pattern, SplitDelimiterBehavior::Isolated, false) {
        Ok(split) => Ok(split.into()),
        Err(error) => Err(TokenizerError::Vocabulary { reason: error.to_string() }),
    }
}

fn known_names() -> String {
    let names: Vec<_> = TABLE.iter().flat_map(|row| row.names).copied().collect();
    names.join(", ")
}
