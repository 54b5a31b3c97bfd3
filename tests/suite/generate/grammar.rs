//! Outputs that must follow a grammar, with the real model.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use gen_svc::load::{self, WithoutLibrary};
use serde_json::{Value, json};
use tandem_common::pb::generate::v1 as pb;
use tandem_common::pb::generate::v1::generate_service_client::GenerateServiceClient;
use tandem_common::serve::{SecurityArgs, ServeArgs};
use tandem_core::answer::{Event, FinishReason};
use tandem_core::engine::{Config, Engine};
use tandem_core::error::RequestError;
use tandem_core::grammar::{Constraint, Grammar, GrammarKind, Mask, MaskError};
use tandem_core::request::{GenerateRequest, Input, SamplingOptions, StopOptions};
use tandem_model_files::tokenizer::{CancelScope, TokenizerError};
use tandem_tests::failure::is_failed;
use tandem_tests::served_model::served_with_all_tokens;
use tandem_tests::{Generation, Random, binary, default_model, error_texts, goldens};
use tempfile::TempDir;
use tokio::sync::mpsc::Receiver;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tonic::Code;
use tonic::transport::Channel;

fn engine(change: impl FnOnce(&mut Config)) -> Engine {
    let mut config = Config { threads: 1, ..Config::new(default_model()) };
    change(&mut config);
    load::start(config, &WithoutLibrary).expect("the model loads").0
}

/// Returns a request with a high temperature: without the grammar, forbidden tokens would be drawn.
fn request(grammar: impl Into<Grammar>, seed: u64) -> GenerateRequest {
    GenerateRequest {
        sampling: SamplingOptions { temperature: Some(1.2), seed: Some(seed), ..SamplingOptions::default() },
        stop: StopOptions { max_new_tokens: Some(200), ..StopOptions::default() },
        grammar: Some(grammar.into()),
        ..GenerateRequest::new(Input::TokenIds(goldens()[0].prompt_ids.clone()))
    }
}

fn submit(engine: &Engine, request: GenerateRequest) -> Receiver<Event> {
    engine.submit(request.prepare(engine.model()).expect("a valid request"), None).expect("room")
}

/// Returns the text of each output, and its finish reason.
fn texts(mut events: Receiver<Event>) -> Vec<(String, FinishReason)> {
    let (mut texts, mut reasons) = (vec![String::new(); 16], Vec::new());
    loop {
        match events.blocking_recv().expect("a summary") {
            Event::Accepted(_) | Event::PromptLogprobs(_) => {}
            Event::Delta(delta) => texts[delta.output as usize] += &delta.text(),
            Event::Finished(end) => {
                texts[end.last.output as usize] += &end.last.text();
                reasons.push((end.last.output as usize, end.reason));
            }
            Event::Summary(_) => break,
            Event::Refused(error) => panic!("refused: {}", error.chain()),
        }
    }
    reasons.sort_by_key(|(output, _)| *output);
    reasons.into_iter().map(|(output, reason)| (std::mem::take(&mut texts[output]), reason)).collect()
}

fn answer(engine: &Engine, grammar: impl Into<Grammar>, seed: u64) -> String {
    let mut all = texts(submit(engine, request(grammar, seed)));
    let (text, reason) = all.remove(0);
    assert_eq!(reason, FinishReason::Stop, "{text:?}");
    text
}

#[test]
fn output_follows_its_grammar() {
    let engine = engine(|_| {});
    let schema = json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 12},
            "age": {"type": "integer", "minimum": 18, "maximum": 99},
            "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3},
        },
        "required": ["name", "age", "tags"],
        "additionalProperties": false,
    });
    for seed in 0..2 {
        let text = answer(&engine, GrammarKind::JsonSchema(schema.to_string()), seed);
        let value: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text:?}"));
        let object = value.as_object().expect("an object");
        assert_eq!(object.keys().collect::<Vec<_>>(), ["name", "age", "tags"]);
        assert!(value["name"].as_str().is_some_and(|name| name.chars().count() <= 12), "{text}");
        assert!(value["age"].as_i64().is_some_and(|age| (18..=99).contains(&age)), "{text}");
        let tags = value["tags"].as_array().expect("a list");
        assert!(tags.len() <= 3 && tags.iter().all(|tag| tag == "a" || tag == "b"), "{text}");

        let text = answer(&engine, GrammarKind::Regex("[0-9]{3}-[a-zé]{2,4}!".to_owned()), seed);
        let (digits, rest) = text.split_once('-').expect("a dash");
        let letters = rest.strip_suffix('!').expect("an exclamation mark").chars();
        assert!(digits.len() == 3 && digits.bytes().all(|digit| digit.is_ascii_digit()), "{text}");
        assert!(letters.clone().all(|letter| letter == 'é' || letter.is_ascii_lowercase()), "{text}");
        assert!((2..=4).contains(&letters.count()), "{text}");

        let choices = ["yes", "no \"quoted\"\n", "ja, bitte 🙂"].map(str::to_owned).to_vec();
        let text = answer(&engine, GrammarKind::Choice(choices.clone()), seed);
        assert!(choices.contains(&text), "{text:?}");

        let sum = "start: \"(\" NUMBER (\"+\" NUMBER)~1..3 \")\"\nNUMBER: /[1-9][0-9]{0,2}/";
        let text = answer(&engine, GrammarKind::Lark(sum.to_owned()), seed);
        let numbers = text.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')).expect("in parentheses");
        let numbers: Vec<u32> = numbers.split('+').map(|number| number.parse().expect("a number")).collect();
        assert!((2..=4).contains(&numbers.len()) && numbers.iter().all(|number| (1..1000).contains(number)), "{text}");
    }
}

#[test]
fn output_that_completes_its_grammar_finishes_with_stop() {
    let engine = engine(|_| {});
    let limited = |grammar: GrammarKind, tokens: u32| {
        let mut request = request(grammar, 0);
        request.stop.max_new_tokens = Some(tokens);
        texts(submit(&engine, request)).remove(0)
    };
    let digits = || GrammarKind::Regex("[0-9]{3}".to_owned());
    assert_eq!(limited(digits(), 3).1, FinishReason::Stop);
    assert_eq!(limited(digits(), 2).1, FinishReason::Length);
    assert_eq!(limited(GrammarKind::Regex("[0-9]{3,}".to_owned()), 3).1, FinishReason::Length);
    let odd = GrammarKind::Choice(vec!["\u{7f}\u{0}\t".to_owned()]);
    assert_eq!(limited(odd, 20), ("\u{7f}\u{0}\t".to_owned(), FinishReason::Stop));
}

#[test]
fn all_outputs_follow_the_grammar_after_preemption() {
    // The KV cache has room for one and a half requests, so some are preempted in the middle of
    // their output.
    let engine = engine(|config| config.kv_memory = Some(48 * 16 * 2 * 30 * 3 * 64 * 4));
    let mut several = request(GrammarKind::Regex("([a-z]{4} ){40}".to_owned()), 3);
    several.sampling.n = Some(4);
    several.stop.max_new_tokens = Some(400);
    let outputs = texts(submit(&engine, several));
    assert_eq!(outputs.len(), 4);
    for (text, reason) in &outputs {
        assert_eq!((text.len(), *reason), (200, FinishReason::Stop), "{text:?}");
        assert!(text.split_terminator(' ').all(|word| word.len() == 4 && word.bytes().all(|b| b.is_ascii_lowercase())));
    }
    assert!(outputs[0] != outputs[1]);
}

#[test]
fn invalid_grammars_are_rejected_and_costly_grammars_are_bounded() {
    let engine = engine(|_| {});
    let deep = |open: &str, close: &str, depth: usize| format!("{}{}", open.repeat(depth), close.repeat(depth));
    // Errors at the end of such a chain took minutes.
    let chain: String = (0..8000).map(|rule| format!("T{rule}: \"a\" T{}\n", rule + 1)).collect();
    let optional: Vec<_> = (0..4001).map(|number| format!("\"p{number}\": {{\"type\": \"integer\"}}")).collect();
    let nested = (0..3000).fold("{}".to_owned(), |inner, _| format!("{{\"items\":{inner}}}"));
    let cases = [
        (GrammarKind::JsonSchema("{".to_owned()), "grammar.json_schema"),
        (
            GrammarKind::JsonSchema(r#"{"type": "object", "unknownKeyword": 1, "if": {}}"#.to_owned()),
            "grammar.json_schema",
        ),
        (
            GrammarKind::JsonSchema(r#"{"$ref": "https://example.invalid/schema.json"}"#.to_owned()),
            "grammar.json_schema",
        ),
        (GrammarKind::JsonSchema(nested), "grammar.json_schema"),
        (GrammarKind::JsonSchema("x".repeat(256 * 1024 + 1)), "grammar.json_schema"),
        (GrammarKind::Regex("(a".to_owned()), "grammar.regex"),
        (GrammarKind::Regex(String::new()), "grammar.regex"),
        (GrammarKind::Lark("begin: \"a\"".to_owned()), "grammar.lark"),
        (GrammarKind::Lark(format!("start: T0\n{chain}")), "grammar.lark"),
        (GrammarKind::Lark(format!("start: {}", vec!["\"a\" \"b\""; 3000].join(" | "))), "grammar.lark"),
        (GrammarKind::JsonSchema(format!("{{\"properties\": {{{}}}}}", optional.join(", "))), "grammar.json_schema"),
        (GrammarKind::Lark(format!("start: {}", deep("(", ")", 100_000))), "grammar.lark"),
        (GrammarKind::Choice(Vec::new()), "grammar.choice"),
        (GrammarKind::Choice(vec!["a".to_owned(), String::new()]), "grammar.choice"),
        (GrammarKind::Choice(vec!["a".to_owned(); 1025]), "grammar.choice"),
    ];
    let impossible = [
        GrammarKind::Lark("start: start".to_owned()),
        GrammarKind::Lark("start: A\nA: /a/ & /b/".to_owned()),
        GrammarKind::Regex("[^\\s\\S]".to_owned()),
        GrammarKind::JsonSchema(r##"{"$ref": "#"}"##.to_owned()),
    ];
    let impossible = impossible.map(|grammar| (grammar.clone(), grammar.field()));
    let mut problems = Vec::new();
    for (grammar, expected) in cases.into_iter().chain(impossible) {
        match request(grammar, 0).prepare(engine.model()) {
            Err(RequestError::Invalid { field, problem }) => {
                assert_eq!(field.to_string(), expected);
                assert!(problem.len() < 700, "{problem}");
                problems.push(problem);
            }
            other => panic!("{expected}: {:?}", other.map(|_| ())),
        }
    }
    error_texts::check_rows("grammar/invalid", problems);
    let problem = request(GrammarKind::Regex("a(?=b)".to_owned()), 0).prepare(engine.model());
    error_texts::check("grammar/look-ahead", problem.expect_err("a look-ahead is not supported"));
    let costly =
        ["(a{1000}){1000}".to_owned(), deep("(", ")", 8000), "(.*a.{400}){3}".to_owned()].map(GrammarKind::Regex);
    for grammar in costly {
        if let Ok(work) = request(grammar.clone(), 0).prepare(engine.model()) {
            texts(engine.submit(work, None).expect("room"));
        }
    }
    let together = |change: fn(&mut StopOptions)| {
        let mut request = request(GrammarKind::Regex("a".to_owned()), 0);
        change(&mut request.stop);
        request.prepare(engine.model()).expect_err("the stop option excludes a grammar")
    };
    let errors = [together(|stop| stop.ignore_eos = true), together(|stop| stop.min_new_tokens = 1)];
    let is_of = |error: &RequestError, name: &str| matches!(error, RequestError::Invalid { field, .. } if field.to_string() == name);
    assert!(is_of(&errors[0], "stop.ignore_eos") && is_of(&errors[1], "stop.min_new_tokens"), "{errors:?}");
    error_texts::check_rows("grammar/stop-option", errors);
    assert_eq!(answer(&engine, GrammarKind::Choice(vec!["still here".to_owned()]), 0), "still here");
}

/// Returns a schema for which the library needs about half a minute of processor time.
fn pairs_of_patterns() -> GrammarKind {
    let patterns: Vec<_> = (0..400).map(|i| format!("\"^p{i}[a-z]*$\": {{\"type\": \"integer\"}}")).collect();
    GrammarKind::JsonSchema(format!("{{\"type\": \"object\", \"patternProperties\": {{{}}}}}", patterns.join(", ")))
}

#[test]
fn grammar_that_takes_too_long_to_compile_is_refused_after_its_trial() {
    let engine = engine(|config| config.grammar_trials = Some(binary("gen-svc")));
    let error = request(pairs_of_patterns(), 0).prepare(engine.model()).expect_err("it takes too long");
    assert!(
        matches!(&error, RequestError::Invalid { field, .. } if field.to_string() == "grammar.json_schema"),
        "{error:?}"
    );
    error_texts::check("grammar/too-long-to-compile", error);
    let lark = GrammarKind::Lark("start: A\nA: /[ab]{1,4}/ & /[bc]{1,4}/".to_owned());
    assert!(answer(&engine, lark, 0).chars().all(|char| char == 'b'));
}

#[test]
fn grammar_that_takes_too_much_memory_to_compile_is_refused_after_its_trial() {
    let engine = engine(|config| config.grammar_trials = Some(binary("gen-svc")));
    // Within a second, the library would need about 200 MiB.
    let letter = |i: u8| char::from(b'a' + i % 26);
    let parts: Vec<_> = (0..200).map(|i| format!("/(.*{}.{{{}}}){{2}}/", letter(i), u32::from(i) + 10)).collect();
    let large = GrammarKind::Lark(format!("start: A\nA: {}", parts.join(" & ")));
    let error = request(large, 0).prepare(engine.model()).expect_err("it needs too much memory");
    error_texts::check("grammar/trial-memory", error);
}

#[test]
fn only_grammars_that_combine_their_parts_have_a_trial() {
    let engine = engine(|config| config.grammar_trials = Some("/no/such/program".into()));
    let prepared = |grammar| request(grammar, 0).prepare(engine.model()).map(drop);
    let usual = json!({
        "$defs": {"day": {"type": "string", "format": "date", "pattern": "^20"}},
        "type": "object",
        "properties": {"from": {"$ref": "#/$defs/day"}, "to": {"anyOf": [{"$ref": "#/$defs/day"}, {"type": "null"}]}},
        "required": ["from"],
    });
    for grammar in [
        GrammarKind::JsonSchema(usual.to_string()),
        GrammarKind::Regex("[a-z]+(-[a-z]{2,5})*".to_owned()),
        GrammarKind::Choice(vec!["a&b".to_owned()]),
    ] {
        prepared(grammar).expect("it needs no trial");
    }
    for grammar in [pairs_of_patterns(), GrammarKind::Lark("start: \"a\"".to_owned())] {
        assert!(matches!(prepared(grammar), Err(RequestError::Thread(_))));
    }
}

/// Returns the number of processes that this one has started and that run a trial.
fn trials() -> usize {
    let own = std::process::id();
    let processes = std::fs::read_dir("/proc").expect("processes").flatten().filter_map(|entry| {
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        let parent: u32 = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
        let command = std::fs::read_to_string(entry.path().join("cmdline")).ok()?;
        (parent == own && command.contains("try-grammar")).then_some(())
    });
    processes.count()
}

#[test]
fn trial_ends_when_its_caller_has_gone() {
    let engine = engine(|config| config.grammar_trials = Some(binary("gen-svc")));
    let cancelled = CancellationToken::new();
    let (engine, token) = (engine.clone(), cancelled.clone());
    let preparation = std::thread::spawn(move || {
        let _scope = CancelScope::start(token);
        request(pairs_of_patterns(), 0).prepare(engine.model()).map(drop)
    });
    while trials() == 0 {
        assert!(!preparation.is_finished(), "it waits for its trial");
        std::thread::sleep(Duration::from_millis(1));
    }
    cancelled.cancel();
    let ended = preparation.join().expect("no panic");
    assert!(matches!(ended, Err(RequestError::Tokenize(TokenizerError::Cancelled))), "{ended:?}");
}

/// Writes a program that reads its input and then waits for the file `go` beside it. A child writes it: this
/// process has no open file that would stop it from being run.
fn waiting_program(folder: &TempDir) -> PathBuf {
    let program = folder.path().join("wait");
    let script = "#!/bin/sh\ncat > /dev/null\nuntil [ -e \"${0%/*}/go\" ]; do sleep 0.05; done\n";
    let write = ["-c", "printf %s \"$1\" > \"$0\" && chmod +x \"$0\""];
    assert!(Command::new("sh").args(write).arg(&program).arg(script).status().expect("sh runs").success());
    program
}

/// Returns a call of a caller with one of many grammars.
fn call(caller: &str, grammar: pb::grammar::Kind) -> tonic::Request<pb::GenerateRequest> {
    let mut call = tonic::Request::new(pb::GenerateRequest {
        input: Some(pb::generate_request::Input::Prompt("Once".to_owned())),
        grammar: Some(pb::Grammar { kind: Some(grammar), ..pb::Grammar::default() }),
        ..pb::GenerateRequest::default()
    });
    call.metadata_mut().insert("authorization", format!("Bearer {caller}-secret").parse().expect("a value"));
    call
}

/// Reads an answer to its end.
async fn generated(
    mut client: GenerateServiceClient<Channel>,
    call: tonic::Request<pb::GenerateRequest>,
) -> Result<String, tonic::Status> {
    let (mut answer, mut text) = (client.generate(call).await?.into_inner(), String::new());
    while let Some(response) = answer.message().await? {
        if let Some(pb::generate_response::Event::Delta(delta)) = response.event {
            text += &delta.text;
        }
    }
    Ok(text)
}

#[tokio::test(flavor = "multi_thread")]
async fn grammars_of_one_caller_leave_room_in_the_queue_to_others() {
    const OF_ONE_CALLER: usize = 48;
    let folder = TempDir::new().expect("a temporary folder");
    let tokens = folder.path().join("tokens");
    std::fs::write(&tokens, "polite-secret name=polite\ngreedy-secret name=greedy\n").expect("a file");
    let security = SecurityArgs { token_file: Some(tokens), ..SecurityArgs::default() };
    let config = Config { grammar_trials: Some(waiting_program(&folder)), ..Config::new(default_model()) };
    let args = ServeArgs { security, ..ServeArgs::default() };
    let service = Generation::start_with_args(Config { threads: 1, ..config }, args).await;
    let client = GenerateServiceClient::new(service.running.channel().await);
    // Each has a trial, which does not end yet.
    let costly = |i: usize| pb::grammar::Kind::Lark(format!("start: A\nA: /[ab]{{1,4}}/ & /b{{1,{i}}}/"));
    let mut greedy = JoinSet::new();
    for i in 1..=OF_ONE_CALLER + 1 {
        greedy.spawn(generated(client.clone(), call("greedy", costly(i))));
    }
    let first = greedy.join_next().await.expect("one is refused").expect("no panic");
    is_failed("grammar/share-full", first, Code::ResourceExhausted, "GRAMMAR_QUEUE_FULL", None);

    let yes = pb::grammar::Kind::Choice(pb::Choice { values: vec!["yes".to_owned()] });
    assert_eq!(generated(client.clone(), call("polite", yes)).await.expect("it is compiled"), "yes");
    let waits = tokio::spawn(generated(client.clone(), call("polite", costly(100))));
    std::fs::write(folder.path().join("go"), "").expect("a file");
    let text = waits.await.expect("no panic").expect("it is in the queue");
    assert!(!text.is_empty() && text.chars().all(|char| char == 'b'), "{text:?}");
    while let Some(ended) = greedy.join_next().await {
        ended.expect("no panic").expect("it is compiled in its turn");
    }
}

/// A deterministic automaton of this expression has millions of states.
const TOO_COSTLY: &str = ".*[aeiou].{24}[xyz].*[aeiou].{24}q";

#[test]
fn output_whose_grammar_becomes_too_costly_ends_with_its_own_reason() {
    let engine = engine(|_| {});
    let mut request = request(GrammarKind::Regex(TOO_COSTLY.to_owned()), 0);
    request.sampling.temperature = Some(0.0);
    request.stop.max_new_tokens = Some(400);
    let (text, reason) = texts(submit(&engine, request)).remove(0);
    assert_eq!(reason, FinishReason::GrammarLimit, "{text:?}");
    assert!(!text.is_empty() && !text.contains('\n'), "{text:?}");
    assert_eq!(answer(&engine, GrammarKind::Choice(vec!["still here".to_owned()]), 0), "still here");
}

/// A step that exceeds the device's memory is computed again, and asks for the tokens of a grammar again.
#[test]
fn a_grammar_at_its_limit_is_so_each_time_that_it_is_asked() {
    let grammar = served_with_all_tokens().grammars.compile(&GrammarKind::Regex(TOO_COSTLY.to_owned()).into());
    let mut constraint = Constraint::start(&grammar.expect("it is compiled"), &"caller".into());
    let mut ask = |token: Option<u32>| {
        token.into_iter().for_each(|token| constraint.advance(token));
        assert!(constraint.is_computed_by(Instant::now() + Duration::from_secs(100)), "no mask is computed");
        constraint.mask()
    };
    let mut random = Random(7);
    let mut mask = ask(None);
    for _ in 0..400 {
        let Ok(Mask::Tokens(words)) = &mask else { break };
        let allowed: Vec<u32> =
            (0..words.len() as u32 * 32).filter(|id| words[*id as usize / 32] >> (id % 32) & 1 == 1).collect();
        mask = ask(Some(allowed[random.below(allowed.len() as u64) as usize]));
    }
    assert!(matches!(mask, Err(MaskError::Limit(_))), "{mask:?}");
    for _ in 0..2 {
        assert!(matches!(ask(None), Err(MaskError::Limit(_))), "it is another error when asked again");
    }
}

#[test]
fn slow_grammars_delay_no_other_output() {
    let engine = engine(|_| {});
    let quick = || GenerateRequest {
        sampling: SamplingOptions { temperature: Some(0.0), ..SamplingOptions::default() },
        stop: StopOptions { max_new_tokens: Some(16), ignore_eos: true, ..StopOptions::default() },
        ..GenerateRequest::new(Input::TokenIds(goldens()[0].prompt_ids.clone()))
    };
    let alone = texts(submit(&engine, quick()));
    // Each of its masks takes some ten milliseconds.
    let names = |of: fn(usize) -> String, between: &str| (0..200).map(of).collect::<Vec<_>>().join(between);
    let lexemes = names(|i| format!("L{i}: /[a-z]*{}?[a-z ]{{0,{i}}}/", i % 10), "\n");
    let grammar = format!("start: x~200\nx: {}\n{lexemes}", names(|i| format!("L{i}"), " | "));
    let slow = |seed| {
        let mut slow = request(GrammarKind::Lark(grammar.clone()), seed);
        slow.stop.max_new_tokens = Some(8);
        slow.caller = "greedy".into();
        submit(&engine, slow)
    };
    let slow: Vec<_> = (0..12).map(slow).collect();
    assert_eq!(texts(submit(&engine, quick())), alone);
    // The quick output has more tokens. Had all outputs taken part in each of its steps, the slow ones
    // would have ended before.
    assert!(slow.iter().any(|events| !events.is_closed()));
    assert!(slow.into_iter().flat_map(texts).all(|(text, _)| !text.is_empty()));
}
