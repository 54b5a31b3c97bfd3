//! Pre-tokenizers, which split text before BPE, by their names in `tokenizer.ggml.pre`.
//!
//! A GGUF contains only the name. The rules come from the `tokenizer.json` of the models with that
//! name, and which names are aliases of one rule comes from llama.cpp.

use tokenizers::normalizers::NFC;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{NormalizerWrapper, PreTokenizerWrapper, SplitDelimiterBehavior};

use super::error::TokenizerError;

/// The split rules, and the GGUF names that select them.
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

/// The words of Llama 3, with up to three digits.
const LLAMA3: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|",
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
/// The words of Qwen 2, with one digit.
const QWEN2: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|",
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
/// The letters of DeepSeek's first models: Latin, Greek, Cyrillic and their relatives.
const DEEPSEEK_LETTERS: &str = concat!(
    r"\s?[",
    "A-Za-z\u{b5}\u{c0}-\u{d6}\u{d8}-\u{f6}\u{f8}-\u{1ba}\u{1bc}-\u{1bf}\u{1c4}-\u{293}",
    "\u{295}-\u{2af}\u{370}-\u{373}\u{376}\u{377}\u{37b}-\u{37d}\u{37f}\u{386}\u{388}-\u{38a}",
    "\u{38c}\u{38e}-\u{3a1}\u{3a3}-\u{3f5}\u{3f7}-\u{481}\u{48a}-\u{52f}\u{531}-\u{556}",
    "\u{10a0}-\u{10c5}\u{13a0}-\u{13f5}\u{13f8}-\u{13fd}\u{1c90}-\u{1cba}\u{1cbd}-\u{1cbf}",
    "\u{1d00}-\u{1d2b}\u{1d6b}-\u{1d77}\u{1d79}-\u{1d9a}\u{1e00}-\u{1f15}\u{1f18}-\u{1f1d}",
    "\u{1f20}-\u{1f45}\u{1f48}-\u{1f4d}\u{1f50}-\u{1f57}\u{1f59}\u{1f5b}\u{1f5d}",
    "\u{1f5f}-\u{1f7d}\u{1f80}-\u{1fb4}\u{1fb6}-\u{1fbc}\u{1fbe}\u{1fc2}-\u{1fc4}",
    "\u{1fc6}-\u{1fcc}\u{1fd0}-\u{1fd3}\u{1fd6}-\u{1fdb}\u{1fe0}-\u{1fec}\u{1ff2}-\u{1ff4}",
    "\u{1ff6}-\u{1ffc}\u{2102}\u{2107}\u{210a}-\u{2113}\u{2115}\u{2119}-\u{211d}\u{2124}",
    "\u{2126}\u{2128}\u{212a}-\u{212d}\u{212f}-\u{2134}\u{2139}\u{213c}-\u{213f}",
    "\u{2145}-\u{2149}\u{214e}\u{2183}\u{2184}\u{2c00}-\u{2c7b}\u{2c7e}-\u{2ce4}",
    "\u{2ceb}-\u{2cee}\u{2cf2}\u{2cf3}\u{a640}-\u{a66d}\u{a680}-\u{a69b}\u{a722}-\u{a76f}",
    "\u{a771}-\u{a787}\u{a78b}-\u{a78e}\u{ab70}-\u{abbf}\u{fb00}-\u{fb06}\u{fb13}-\u{fb17}",
    "\u{ff21}-\u{ff3a}\u{ff41}-\u{ff5a}\u{10400}-\u{1044f}\u{104b0}-\u{104d3}",
    "\u{104d8}-\u{104fb}\u{10c80}-\u{10cb2}\u{10cc0}-\u{10cf2}\u{118a0}-\u{118df}",
    "\u{1e900}-\u{1e943}",
    "]+"
);

/// The rules by name. The names of one row are aliases in llama.cpp, which also states whether merges
/// are ignored for whole pieces, and the default of bos. Text is normalized where the models' own files
/// do so.
const TABLE: &[PreTokenizer] = &[
    PreTokenizer {
        names: &[
            "gpt-2",
            "default",
            "phi-2",
            "jina-es",
            "jina-de",
            "jina-v2-es",
            "jina-v2-de",
            "gigachat",
            "a.x-4.0",
            "mellum",
            "exaone4",
            "jais",
            "trillion",
            "granite-docling",
        ],
        cuts: &[Cut::Gpt2],
        whole_pieces: false,
        nfc: false,
        bos_by_default: false,
    },
    // The models with these names have GPT-NeoX's normalizer.
    PreTokenizer {
        names: &["mpt", "olmo", "modern-bert"],
        cuts: &[Cut::Gpt2],
        whole_pieces: false,
        nfc: true,
        bos_by_default: false,
    },
    // Digits are split first, so the spaces before a digit are one piece: "a  1" is "a", two
    // spaces, "1". transformers uses only GPT-2's rule for every GGUF. It would split these spaces,
    // so the ids would differ from the ids in training.
    PreTokenizer {
        names: &["smollm", "starcoder", "refact", "codeshell", "exaone", "minerva-7b", "mellum2"],
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
        names: &[
            "llama-bpe",
            "llama3",
            "llama-v3",
            "smaug-bpe",
            "falcon3",
            "falcon-h1",
            "pixtral",
            "midm-2.0",
            "lfm2",
            "jina-v5-nano",
        ],
        cuts: &[Cut::Matches(LLAMA3)],
        whole_pieces: true,
        nfc: false,
        bos_by_default: true,
    },
    PreTokenizer {
        names: &["dbrx", "glm4", "chatglm-bpe"],
        cuts: &[Cut::Matches(LLAMA3)],
        whole_pieces: false,
        nfc: false,
        bos_by_default: false,
    },
    PreTokenizer {
        names: &["qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "megrez", "stablelm2", "hunyuan"],
        cuts: &[Cut::Matches(QWEN2)],
        whole_pieces: false,
        nfc: true,
        bos_by_default: false,
    },
    PreTokenizer {
        names: &["solar-open", "grok-2"],
        cuts: &[Cut::Matches(QWEN2)],
        whole_pieces: false,
        nfc: false,
        bos_by_default: false,
    },
    // Marks belong to words.
    PreTokenizer {
        names: &["qwen35"],
        cuts: &[Cut::Matches(concat!(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|",
            r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        ))],
        whole_pieces: false,
        nfc: true,
        bos_by_default: false,
    },
    PreTokenizer {
        names: &["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"],
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
        names: &["tekken"],
        cuts: &[Cut::Matches(concat!(
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|",
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|",
            r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        ))],
        whole_pieces: true,
        nfc: false,
        bos_by_default: true,
    },
    // The models with this name have ranks of tokens, in which a whole piece precedes merges.
    PreTokenizer {
        names: &["kimi-k2"],
        cuts: &[Cut::Matches(concat!(
            r"[\p{Han}]+|",
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+",
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|",
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*",
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|",
            r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        ))],
        whole_pieces: true,
        nfc: false,
        bos_by_default: false,
    },
    PreTokenizer {
        names: &["seed-coder"],
        cuts: &[Cut::Matches(concat!(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}|",
            r" ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+"
        ))],
        whole_pieces: false,
        nfc: false,
        bos_by_default: false,
    },
    PreTokenizer {
        names: &["deepseek-llm"],
        cuts: &[
            Cut::Matches("[\r\n]"),
            Cut::Matches(DEEPSEEK_LETTERS),
            Cut::Matches("\\s?[!-/:-~\u{ff01}-\u{ff0f}\u{ff1a}-\u{ff5e}\u{2018}-\u{201f}\u{3000}-\u{3002}]+"),
            Cut::Matches(r"\s+$"),
            Cut::Matches("[\u{4e00}-\u{9fa5}\u{800}-\u{4e00}\u{ac00}-\u{d7ff}]+"),
            Cut::EachDigit,
        ],
        whole_pieces: false,
        nfc: false,
        bos_by_default: false,
    },
    PreTokenizer {
        names: &["deepseek-coder"],
        cuts: &[
            Cut::Matches("[\r\n]"),
            Cut::Matches(r"\s?\p{L}+"),
            Cut::Matches(r"\s?\p{P}+"),
            Cut::Matches("[\u{4e00}-\u{9fa5}\u{800}-\u{4e00}\u{ac00}-\u{d7ff}]+"),
            Cut::EachDigit,
        ],
        whole_pieces: false,
        nfc: false,
        bos_by_default: false,
    },
    PreTokenizer {
        names: &["deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"],
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
