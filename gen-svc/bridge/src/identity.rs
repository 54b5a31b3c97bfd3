//! The proof that an engine has the tokenizer of the bridge's files. No engine reports a hash of it.

use tandem_model_files::tokenizer::Tokenizer;

use crate::call::CallError;
use crate::protocol::{Facts, Protocol};

/// Texts whose ids are compared: spaces, digits, punctuation, scripts, characters of several tokens.
const TEXTS: [&str; 10] = [
    "The quick brown fox jumps over the lazy dog.",
    "  two  spaces,\ttabs\tand\n\nline ends\r\n",
    "0123456789 3.14159 1,000,000 0xff 12:34:56",
    "fn main() { println!(\"{}\", x[0] != y && z >= 1); }",
    "Größe, façade, naïve, señor, Øresund, Łódź, İstanbul",
    "Быстрая коричневая лиса и ленивая собака",
    "敏捷的棕色狐狸跳过了懒狗。速い茶色の狐。빠른 갈색 여우",
    "الثعلب البني السريع यह एक परीक्षण है สวัสดีชาวโลก",
    "🌍👩‍👩‍👧‍👦🏳️‍🌈 é ﬁ ½ € ∑ ≈ 𝒳",
    "don't we'll I'm they've SHOUTING camelCase snake_case kebab-case",
];
/// The most control tokens that are compared.
const MAX_CONTROL_TOKENS: usize = 8192;
/// Ids that are compared beside those of the texts, spread over the vocabulary.
const SPREAD_IDS: usize = 256;

/// Rows that a model may have beyond twice its tokens.
const MAX_SPARE_ROWS: usize = 1 << 16;

/// How the engine's tokenizer differs from that of the bridge's files.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Skew {
    #[error(transparent)]
    Engine(#[from] CallError),
    #[error("its vocabulary has {engine} tokens, the tokenizer of --model {files}")]
    Vocabulary { engine: usize, files: usize },
    #[error("its tokenizer differs from that of --model: {text:?} is {engine:?} there, {files:?} here")]
    Ids { text: String, engine: Vec<u32>, files: Vec<u32> },
    #[error("its tokenizer differs from that of --model: the ids {ids:?} are {engine:?} there, {files:?} here")]
    Text { ids: Vec<u32>, engine: String, files: String },
}

/// Compares the engine's tokenizer with that of the bridge's files.
///
/// # Errors
/// It differs, or the engine does not answer.
pub(crate) async fn prove(protocol: &dyn Protocol, facts: &Facts, tokenizer: &Tokenizer) -> Result<(), Skew> {
    let files = tokenizer.vocab_size();
    // A model may have more rows than its tokenizer has tokens.
    let rows = files..=files.saturating_mul(2).saturating_add(MAX_SPARE_ROWS);
    if let Some(engine) = facts.vocabulary.filter(|engine| !rows.contains(engine)) {
        return Err(Skew::Vocabulary { engine, files });
    }
    for text in TEXTS {
        compare_ids(protocol, tokenizer, text).await?;
    }
    let control: Vec<&str> = tokenizer.control_tokens(|_| true).take(MAX_CONTROL_TOKENS).collect();
    for tokens in control.chunks(64) {
        compare_ids(protocol, tokenizer, &tokens.join(" ")).await?;
    }
    let step = (files / SPREAD_IDS).max(1);
    let spread: Vec<u32> = (0..files).step_by(step).filter_map(|id| u32::try_from(id).ok()).collect();
    for ids in spread.chunks(32) {
        compare_text(protocol, tokenizer, ids).await?;
    }
    Ok(())
}

async fn compare_ids(protocol: &dyn Protocol, tokenizer: &Tokenizer, text: &str) -> Result<(), Skew> {
    let files = tokenizer.encode(text, false).unwrap_or_default();
    let engine = protocol.tokenize(text).await?;
    if files == engine {
        return Ok(());
    }
    let differs = files.iter().zip(&engine).take_while(|(one, other)| one == other).count();
    let (from, cut) = (differs.saturating_sub(1), |ids: &[u32]| ids.iter().skip(differs).take(4).copied().collect());
    let near = tokenizer.decode(&files[from..(differs + 4).min(files.len())], false).unwrap_or_default();
    Err(Skew::Ids { text: near, engine: cut(&engine), files: cut(&files) })
}

async fn compare_text(protocol: &dyn Protocol, tokenizer: &Tokenizer, ids: &[u32]) -> Result<(), Skew> {
    // Ids without a text, or with a part of a character, are left to the engine.
    let has_text = |id: &u32| {
        let bytes = tokenizer.token_bytes(*id);
        !tokenizer.is_special(*id) && bytes.is_some_and(|bytes| std::str::from_utf8(bytes).is_ok())
    };
    let ids: Vec<u32> = ids.iter().copied().filter(has_text).collect();
    if ids.is_empty() {
        return Ok(());
    }
    let files: Vec<u8> = ids.iter().filter_map(|id| tokenizer.token_bytes(*id)).flatten().copied().collect();
    let files = String::from_utf8_lossy(&files).into_owned();
    let Some(engine) = protocol.detokenize(&ids).await? else {
        return compare_ids(protocol, tokenizer, &files).await;
    };
    // Some engines strip the space before the first word.
    if engine == files || Some(engine.as_str()) == files.strip_prefix(' ') {
        return Ok(());
    }
    Err(Skew::Text { ids, engine, files })
}
