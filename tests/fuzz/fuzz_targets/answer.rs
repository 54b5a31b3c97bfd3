//! Reads arbitrary text as an answer, in pieces and whole.
//!
//! An input is a header of five bytes and a text. An even first byte reads the text with the built-in rules of the
//! second byte. An odd one takes the first line of the text as a `response_template` for the rest. The other three bytes
//! are the sizes of the pieces.

#![no_main]

use std::fs;
use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use render_svc::catalog::ServedModel;
use render_svc::parse::{Answer, AnswerReader, BUILT_IN, Delta, Parser, Rules, Template, Value};
use serde_json::{Value as Json, json};

/// The most characters of a piece.
const MAX_PIECE: u8 = 24;
/// The fewest letters of a word that must be in the answer.
const MIN_WORD: usize = 6;

/// The built-in rules, each with its source.
static ROWS: LazyLock<Vec<(Arc<Rules>, &'static str)>> = LazyLock::new(|| {
    let served = model(&json!({"chat_template": "{{ messages[0].content }}"})).expect("a model");
    BUILT_IN.iter().map(|row| (served.adapter.format.named_rules(row.name).expect("rules"), row.source)).collect()
});

/// Loads a model of these settings alone.
fn model(config: &Json) -> Option<ServedModel> {
    let folder = std::env::temp_dir().join(format!("tandem-fuzz-answer-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    fs::write(folder.join("tokenizer_config.json"), config.to_string()).expect("a file of the model");
    let served = ServedModel::load(&folder).ok();
    fs::remove_dir_all(&folder).expect("the folder can be removed");
    served
}

/// Returns the text in pieces, whose sizes repeat.
fn pieces(text: &str, sizes: [u8; 3]) -> Vec<&str> {
    let (mut pieces, mut rest) = (Vec::new(), text);
    for size in sizes.into_iter().cycle() {
        let size = usize::from(size % MAX_PIECE) + 1;
        let (piece, after) = rest.split_at(rest.char_indices().nth(size).map_or(rest.len(), |(at, _)| at));
        pieces.push(piece);
        rest = after;
        if rest.is_empty() {
            break;
        }
    }
    pieces
}

/// Reads an answer, and checks that its deltas join to it.
fn read(rules: &Arc<Rules>, pieces: &[&str]) -> Option<Answer> {
    let mut reader = AnswerReader::new(Arc::clone(rules), "", &[]).ok()?;
    let mut deltas: Vec<Delta> = pieces.iter().flat_map(|piece| reader.feed(piece)).collect();
    let (last, answer) = reader.finish();
    deltas.extend(last);
    let mut joined = Answer::default();
    for delta in deltas {
        match delta {
            Delta::Content(text) => joined.content.push_str(&text),
            Delta::Reasoning(text) => joined.reasoning.push_str(&text),
            Delta::Call(index, call) => {
                assert_eq!(index, joined.calls.len());
                joined.calls.push(call);
            }
        }
    }
    assert_eq!(
        (&joined.content, &joined.reasoning, &joined.calls),
        (&answer.content, &answer.reasoning, &answer.calls)
    );
    Some(answer)
}

/// Checks that an answer has each word of its text that the notation lacks.
fn check_words(text: &str, answer: &Answer, notation: &str) {
    let Answer { reasoning, content, calls, extra, .. } = answer;
    let found = format!("{content}\n{reasoning}\n{calls:?}\n{extra:?}");
    let is_word = |word: &&str| word.len() >= MIN_WORD && word.bytes().all(|byte| byte.is_ascii_alphabetic());
    for word in text.split_whitespace().filter(is_word).filter(|word| !notation.contains(word)) {
        assert!(found.contains(word), "{word} of {text:?} in {answer:?}");
    }
}

fn built_in(row: u8, text: &str, sizes: [u8; 3]) {
    let (rules, source) = &ROWS[usize::from(row) % ROWS.len()];
    let [whole, parts] =
        [vec![text], pieces(text, sizes)].map(|pieces| read(rules, &pieces).expect("built-in rules fit every prompt"));
    [&whole, &parts].into_iter().for_each(|answer| check_words(text, answer, source));
    // The places of warnings depend on the pieces.
    let [whole, parts] = [whole, parts].map(|answer| Answer { warnings: Vec::new(), ..answer });
    assert_eq!(whole, parts, "{}: {text:?}", rules.name);
}

/// Reads an answer as transformers does. Its faults are errors.
fn parse(template: &Arc<Template>, pieces: &[&str]) {
    let Ok((mut parser, _)) = Parser::new(Arc::clone(template), "", &[]) else { return };
    let _ = pieces.iter().try_for_each(|piece| parser.feed(piece).map(drop));
    let _ = parser.finish();
}

fn own(template: &str, text: &str, sizes: [u8; 3]) {
    let Ok(source) = serde_json::from_str::<Json>(template) else { return };
    let Ok(template) = Template::new(&Value::from(&source)) else { return };
    let template = Arc::new(template);
    let parts = pieces(text, sizes);
    [&[text], parts.as_slice()].into_iter().for_each(|pieces| parse(&template, pieces));
    let config = json!({"chat_template": "{{ messages[0].content }}", "response_template": source});
    let Some(served) = model(&config) else { return };
    let Ok(rules) = &served.adapter.format.answer_rules().rules else { return };
    [&[text], parts.as_slice()].into_iter().for_each(|pieces| drop(read(rules, pieces)));
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&[kind, row, sizes @ ..], text)) = bytes.split_first_chunk::<5>() else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    if kind % 2 == 0 {
        built_in(row, text, sizes);
    } else if let Some((template, text)) = text.split_once('\n') {
        own(template, text, sizes);
    }
});
