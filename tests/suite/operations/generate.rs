//! `gen-svc generate`: requests on standard input, answers on standard output, without a server.

use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use tandem_tests::generate_command::{answers, generate_with, rendered};
use tandem_tests::{binary, default_model, error_texts, goldens};

/// Runs `gen-svc generate` on the default model with this standard input.
fn generate(arguments: &[&str], input: &[u8]) -> Output {
    generate_with(&default_model(), arguments, input)
}

#[test]
fn jsonl_answers_keep_order_and_match_transformers() {
    let goldens = &goldens()[..4];
    let requests: String = goldens
        .iter()
        .map(|golden| format!("{}\n", json!({"prompt": golden.prompt, "max_new_tokens": 64, "temperature": 0})))
        .collect();
    let output = generate(&["--jsonl", "-"], requests.as_bytes());
    assert!(output.status.success());
    let answers = answers(&output);
    assert_eq!(answers.len(), goldens.len());
    for (answer, golden) in answers.iter().zip(goldens) {
        assert_eq!(answer["token_ids"], json!(golden.greedy_ids), "{}", golden.id);
        let (prompt, completion) = (golden.prompt_ids.len(), golden.greedy_ids.len());
        let usage = json!({
            "prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion,
        });
        assert_eq!(answer["usage"], usage, "{}", golden.id);
        let reason = if golden.greedy_ids.last() == Some(&2) { "stop" } else { "length" };
        assert_eq!(answer["finish_reason"], reason, "{}", golden.id);
    }
}

#[test]
fn steps_without_waits_are_timed_for_each_number_of_sequences() {
    let time = |positions: &str| {
        let mut command = Command::new(binary("gen-svc"));
        command.arg("time-steps").arg("--model").arg(default_model()).args(["--dtype", "f32", "--steps", "2"]);
        command.args(["--sequences", "1,3", "--positions", positions]).output().expect("gen-svc runs")
    };
    let output = time("20");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines: Vec<Value> = output
        .stdout
        .split(|&byte| byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).expect("JSON"))
        .collect();
    assert_eq!(lines.iter().map(|line| line["sequences"].as_u64()).collect::<Vec<_>>(), [Some(1), Some(3)]);
    assert!(lines.iter().all(|line| line["milliseconds"].as_f64().is_some_and(|time| time > 0.0)), "{lines:?}");
    let output = time("1000000000");
    assert_eq!(output.status.code(), Some(1));
    let problem = String::from_utf8(output.stderr).expect("UTF-8");
    error_texts::check("generate/time-steps", problem.lines().last().unwrap_or_default());
}

/// A line, and the reason and field of its error.
#[rustfmt::skip]
const BAD_LINES: &[(&[u8], &str, Option<&str>)] = &[
    (b"nonsense", "MALFORMED_MESSAGE", None),
    (b"[1]", "MALFORMED_MESSAGE", None),
    (b"{\"prompt\": \"\xff\"}", "MALFORMED_MESSAGE", None),
    (br#"{"prompt": "a", "temperatur": 0}"#, "INVALID_REQUEST", Some("temperatur")),
    (br#"{"prompt": "a", "min_tokens": 3}"#, "INVALID_REQUEST", Some("min_tokens")),
    (br#"{}"#, "INVALID_REQUEST", Some("prompt")),
    (br#"{"prompt": null}"#, "INVALID_REQUEST", Some("prompt")),
    (br#"{"prompt": ""}"#, "INVALID_REQUEST", Some("prompt")),
    (br#"{"prompt": 7}"#, "INVALID_REQUEST", Some("prompt")),
    (br#"{"prompt": "a", "token_ids": [1]}"#, "INVALID_REQUEST", Some("token_ids")),
    (br#"{"token_ids": []}"#, "INVALID_REQUEST", Some("token_ids")),
    (br#"{"token_ids": [1, -2]}"#, "INVALID_REQUEST", Some("token_ids[1]")),
    (br#"{"token_ids": "1"}"#, "INVALID_REQUEST", Some("token_ids")),
    (br#"{"token_ids": [1, 2, 49152]}"#, "INVALID_REQUEST", Some("token_ids[2]")),
    (br#"{"prompt": "a", "temperature": -1}"#, "INVALID_REQUEST", Some("temperature")),
    (br#"{"prompt": "a", "temperature": 1e99}"#, "INVALID_REQUEST", Some("temperature")),
    (br#"{"prompt": "a", "temperature": "0"}"#, "INVALID_REQUEST", Some("temperature")),
    (br#"{"prompt": "a", "top_k": 1.5}"#, "INVALID_REQUEST", Some("top_k")),
    (br#"{"prompt": "a", "top_p": 0}"#, "INVALID_REQUEST", Some("top_p")),
    (br#"{"prompt": "a", "min_p": 1.1}"#, "INVALID_REQUEST", Some("min_p")),
    (br#"{"prompt": "a", "repetition_penalty": 0}"#, "INVALID_REQUEST", Some("repetition_penalty")),
    (br#"{"prompt": "a", "seed": -1}"#, "INVALID_REQUEST", Some("seed")),
    (br#"{"prompt": "a", "max_new_tokens": 0}"#, "INVALID_REQUEST", Some("max_new_tokens")),
    (br#"{"prompt": "a", "stop": ["b", ""]}"#, "INVALID_REQUEST", Some("stop[1]")),
    (br#"{"prompt": "a", "stop": 1}"#, "INVALID_REQUEST", Some("stop")),
    (br#"{"prompt": "a", "stop_token_ids": [50000]}"#, "INVALID_REQUEST", Some("stop_token_ids[0]")),
    (br#"{"prompt": "a", "ignore_eos": 1}"#, "INVALID_REQUEST", Some("ignore_eos")),
    (br#"{"prompt": "a", "max_tokens": 5}"#, "INVALID_REQUEST", Some("max_tokens")),
    (br#"{"prompt": "a", "colour": "red"}"#, "INVALID_REQUEST", Some("colour")),
    (br#"{"messages": []}"#, "INVALID_REQUEST", Some("messages")),
    (br#"{"prompt": "a", "warnings": []}"#, "INVALID_REQUEST", Some("warnings")),
    (br#"{"prompt": "a", "stop": ["b", 1]}"#, "INVALID_REQUEST", Some("stop[1]")),
    (br#"{"prompt": "a", "logit_bias": {"x": 1}}"#, "INVALID_REQUEST", Some("logit_bias")),
    (br#"{"prompt": "a", "logit_bias": {"7": "x"}}"#, "INVALID_REQUEST", Some("logit_bias[7]")),
    (br#"{"prompt": "a", "output_spec": 1}"#, "INVALID_REQUEST", Some("output_spec")),
    (br#"{"prompt": "a", "output_spec": {"eos": [2]}}"#, "INVALID_REQUEST", Some("output_spec.eos")),
    (br#"{"prompt": "a", "output_spec": {"reasoning": {"start_strings": [1]}}}"#, "INVALID_REQUEST",
        Some("output_spec.reasoning.start_strings[0]")),
    (br#"{"prompt": "a", "output_spec": {"special_token_classes": [{"action": "PASS"}]}}"#, "INVALID_REQUEST",
        Some("output_spec.special_token_classes[0].action")),
    (br#"{"prompt": "a", "output_spec": {"eos_token_ids": [50000]}}"#, "INVALID_REQUEST",
        Some("output_spec.eos_token_ids[0]")),
];

/// Returns the messages of answers that are errors.
fn messages(answers: &[Value]) -> Vec<&str> {
    let message = |answer: &Value| answer["error"]["message"].as_str().is_some();
    assert!(answers.iter().all(message), "{answers:?}");
    answers.iter().filter_map(|answer| answer["error"]["message"].as_str()).collect()
}

#[test]
fn invalid_jsonl_line_returns_an_error_and_later_lines_run() {
    let good = br#"{"prompt": "Once upon a time", "max_new_tokens": 2, "temperature": 0}"#.as_slice();
    let mut input: Vec<u8> = BAD_LINES.iter().flat_map(|(line, ..)| [line, b"\n".as_slice()].concat()).collect();
    input.extend(good);
    let answers = answers(&generate(&["--jsonl"], &input));
    assert_eq!(answers.len(), BAD_LINES.len() + 1);
    for ((line, reason, field), answer) in BAD_LINES.iter().zip(&answers) {
        let error = &answer["error"];
        let line = String::from_utf8_lossy(line);
        assert_eq!(error["code"], "INVALID_ARGUMENT", "{line}: {answer}");
        assert_eq!((error["reason"].as_str(), error["field"].as_str()), (Some(*reason), *field), "{line}: {answer}");
    }
    error_texts::check_rows("generate-cli/bad-line", messages(&answers[..BAD_LINES.len()]));
    assert_eq!(answers[BAD_LINES.len()]["usage"]["completion_tokens"], 2);
}

#[test]
fn a_wrong_value_is_quoted_in_the_message_unless_it_is_long() {
    let long = "x".repeat(41);
    let cases = [
        (json!("zero"), true),
        (json!(long[1..]), true),
        (json!(long), false),
        (json!([1]), false),
        (json!({"a": 1}), false),
        (json!(true), true),
    ];
    let line = |(value, _): &(Value, bool)| format!("{}\n", json!({"prompt": "a", "temperature": value}));
    let answers = answers(&generate(&["--jsonl"], cases.iter().map(line).collect::<String>().as_bytes()));
    let found = messages(&answers);
    for (message, (value, is_quoted)) in found.iter().zip(&cases) {
        assert_eq!(message.ends_with(&value.to_string()), *is_quoted, "{message}");
    }
    error_texts::check_rows("generate-cli/not-a-number", found);
}

#[test]
fn too_long_prompt_error_names_length_and_limit() {
    let request = json!({"token_ids": vec![1; 9000]}).to_string();
    let output = generate(&["--jsonl"], request.as_bytes());
    let error = &answers(&output)[0]["error"];
    assert_eq!((error["reason"].as_str(), error["field"].as_str()), (Some("PROMPT_TOO_LONG"), Some("token_ids")));
    error_texts::check("generate-cli/prompt-too-long", error["message"].as_str().expect("every error has a message"));
}

#[test]
fn one_request_writes_only_its_text_to_standard_output() {
    let golden = &goldens()[0];
    let request = json!({"prompt": golden.prompt, "max_new_tokens": 12, "temperature": 0, "stop": "unlikely"});
    let output = generate(&[], request.to_string().as_bytes());
    assert!(output.status.success());
    let lines = json!({"prompt": golden.prompt, "max_new_tokens": 12, "temperature": 0}).to_string();
    let whole = answers(&generate(&["--jsonl"], lines.as_bytes()))[0]["text"].clone();
    assert_eq!(String::from_utf8(output.stdout).expect("UTF-8"), whole.as_str().expect("text"));
    let usage = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(usage.contains(&format!("{} prompt + 12 generated", golden.prompt_ids.len())), "{usage}");
}

#[test]
fn choices_are_a_list_or_have_their_form_in_the_contract() {
    let line = |choice: &Value| {
        json!({"prompt": "The sky is", "temperature": 0, "max_new_tokens": 4, "grammar": {"choice": choice}})
            .to_string()
    };
    let [list, object] = [json!([" blue"]), json!({"values": [" blue"]})].map(|choice| line(&choice));
    let output = generate(&["--jsonl"], format!("{list}\n{object}\n").as_bytes());
    let texts: Vec<Value> = answers(&output).into_iter().map(|answer| answer["text"].clone()).collect();
    assert_eq!(texts, [" blue", " blue"], "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_seed_reproduces_a_text() {
    let line = json!({"prompt": "Once upon a time", "max_new_tokens": 16, "temperature": 0.9, "seed": 11}).to_string();
    let other = json!({"prompt": "Once upon a time", "max_new_tokens": 16, "temperature": 0.9, "seed": 12}).to_string();
    let answers = answers(&generate(&["--jsonl"], format!("{line}\n{other}\n{line}\n").as_bytes()));
    assert_eq!(answers[0], answers[2]);
    assert_ne!(answers[0]["token_ids"], answers[1]["token_ids"]);
}

#[test]
fn model_load_failure_exits_with_its_reason() {
    const FOLDER: &str = env!("CARGO_MANIFEST_DIR");
    let mut texts = Vec::new();
    for (arguments, reason) in [
        (["--model", "/nowhere/model.gguf"].as_slice(), "MODEL_UNREADABLE"),
        (&["--model", FOLDER], "MODEL_UNREADABLE"),
        (&["--model", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")], "MODEL_UNREADABLE"),
        (&["--model", "unread", "--set", "max_tokens=5"], "INVALID_REQUEST"),
        (&["--model", "unread", "--set", "temperature=[]"], "INVALID_REQUEST"),
    ] {
        let output = Command::new(binary("gen-svc"))
            .arg("generate")
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .expect("gen-svc starts");
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && output.stdout.is_empty());
        assert!(message.starts_with(&format!("gen-svc: {reason}: ")), "{message}");
        texts.push(message.replace(FOLDER, "FOLDER"));
    }
    error_texts::check_rows("generate-cli/model", texts);
}

#[test]
fn one_invalid_request_fails_with_a_line_of_text() {
    let inputs: [&[u8]; 4] = [
        br#"{"prompt": "a", "max_tokens": 5}"#,
        b"nonsense",
        br#"{"hf_messages": [], "adapter": ""}"#,
        br#"{"error": {"code": "NOT_FOUND", "reason": "MODEL_NOT_FOUND", "message": "no model", "field": "model"}}"#,
    ];
    let texts = inputs.map(|input| {
        let output = generate(&[], input);
        assert!(output.status.code() == Some(1) && output.stdout.is_empty());
        String::from_utf8(output.stderr).expect("UTF-8")
    });
    error_texts::check_rows("generate-cli/one", texts);
}

#[test]
fn a_setting_applies_to_requests_without_the_key() {
    let lines = b"{\"prompt\": \"Once upon a time\"}\n{\"prompt\": \"Once upon a time\", \"max_new_tokens\": 3}\n";
    let answers = answers(&generate(&["--jsonl", "--set", "max_new_tokens=2", "--set", "temperature=0"], lines));
    let ids = |at: usize| answers[at]["token_ids"].as_array().expect("ids").clone();
    assert_eq!((ids(0).len(), ids(1).len()), (2, 3));
    assert_eq!(ids(0), ids(1)[..2]);
    let output = generate(&["--set", "stop=END"], b"");
    assert_eq!(output.status.code(), Some(2));
    error_texts::check("generate-cli/setting", String::from_utf8(output.stderr).expect("UTF-8"));
}

#[test]
fn rendered_lines_are_requests_and_failed_lines_are_passed_on() {
    let golden = &goldens()[0];
    let image = json!({"role": "user", "content": [{"type": "image", "base64": "QQ=="}]});
    let lines = rendered(&[
        json!({"model": default_model(), "messages": golden.messages}),
        json!({"model": default_model(), "messages": golden.messages, "return": ["token_ids", "offsets"]}),
        json!({"model": default_model(), "messages": []}),
        json!({"model": default_model(), "messages": [image]}),
    ]);
    let answers = answers(&generate(&["--jsonl", "--set", "max_new_tokens=64", "--set", "temperature=0"], &lines));
    for answer in &answers[..2] {
        assert_eq!(answer["token_ids"], json!(golden.greedy_ids));
        assert_eq!(answer["usage"]["prompt_tokens"], golden.prompt_ids.len());
    }
    let error = |at: usize| (answers[at]["error"]["reason"].as_str(), answers[at]["error"]["field"].as_str());
    assert_eq!(error(2), (Some("INVALID_REQUEST"), Some("messages")));
    assert_eq!(error(3), (Some("IMAGES_NOT_SUPPORTED"), None));
}

#[test]
fn rendered_output_spec_and_tokenizer_are_obeyed() {
    let golden = &goldens()[0];
    let line = rendered(&[json!({"model": default_model(), "messages": golden.messages})]);
    let answer: Value = serde_json::from_slice(&line).expect("a JSON line");
    let with = |key: &str, value: Value| {
        let mut answer = answer.clone();
        answer[key] = value;
        let line = answer.to_string();
        answers(&generate(&["--jsonl", "--set", "max_new_tokens=64", "--set", "temperature=0"], line.as_bytes()))
            .remove(0)
    };
    let spec = json!({
        "eos_token_ids": [golden.greedy_ids[3]],
        "special_token_classes": [{"name": "x", "token_ids": [1], "action": "SPECIAL_TOKEN_ACTION_PASS"}],
        "reasoning": {"start_strings": ["<think>"], "end_strings": ["</think>"]},
        "extraction": {"strip_reasoning": true, "cut_head": "a", "strip_lines": ["user"]},
    });
    let ended = with("output_spec", spec);
    assert_eq!((&ended["finish_reason"], &ended["token_ids"]), (&json!("stop"), &json!(golden.greedy_ids[..4])));
    assert_eq!(with("tokenizer_sha256", json!("00"))["error"]["reason"], "TOKENIZER_MISMATCH");
}
