//! The `render` command, which runs the service's pipeline on JSON requests.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tandem_tests::{ModelFolder, Terminal, binary, default_model, error_texts, goldens};
use tempfile::{NamedTempFile, TempDir};

fn render(arguments: &[&str], input: &str) -> (bool, String, String) {
    run("render", arguments, input)
}

fn run(name: &str, arguments: &[&str], input: &str) -> (bool, String, String) {
    let mut command = Command::new(binary("render-svc"));
    command.arg(name).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("render-svc starts");
    child.stdin.take().expect("piped").write_all(input.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (output.status.success(), text(output.stdout), text(output.stderr))
}

/// Answers each line. If one has an error, the program must fail and count the errors.
fn lines(input: &str) -> Vec<Value> {
    let (success, output, errors) = render(&["--jsonl"], input);
    let answers: Vec<Value> = output.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let failed = answers.iter().filter(|answer| answer["error"].is_object()).count();
    assert_eq!(success, failed == 0, "{errors}");
    if failed > 0 {
        let count = format!("render-svc: {failed} of {} requests failed\n", answers.len());
        assert!(errors.ends_with(&count), "{errors}");
    }
    answers
}

#[test]
fn one_request_prints_its_prompt_byte_for_byte() {
    let golden = &goldens()[0];
    let request = json!({"model": default_model(), "messages": golden.messages}).to_string();
    assert_eq!(render(&[], &request), (true, golden.prompt.clone(), String::new()));
}

#[test]
fn command_line_capabilities_apply_unless_the_request_sets_them() {
    let models =
        ModelFolder::new("tiny").with_template("{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}");
    let messages = json!([{"role": "system", "content": "S"}, {"role": "user", "content": "U"}]);
    let own = json!({"model": models.path(), "messages": messages, "capabilities": ["SUPPORTS_SYSTEM_ROLE"]});
    let none = json!({"model": models.path(), "messages": messages});
    let prompt = |arguments: &[&str], request: &Value| render(arguments, &request.to_string()).1;
    assert_eq!(
        prompt(&["--capabilities", "REQUIRES_STRICT_TURNS,SUPPORTS_TOOL_CALLS"], &none),
        "user:[System]: S\n\nU;"
    );
    assert_eq!(prompt(&["--capabilities", ""], &none), "system:S;user:U;", "an empty list means unknown");
    assert_eq!(prompt(&["--capabilities", "REQUIRES_STRICT_TURNS"], &own), "system:S;user:U;");
    let (success, _, errors) = render(&["--capabilities", "MAGIC"], "");
    assert!(!success, "{errors}");
    error_texts::check("cli/unknown-capability", errors);
}

#[test]
fn jsonl_answers_keep_line_order() {
    let models = ModelFolder::new("tiny").with_template("{% for m in messages %}{{ m.role }}{% endfor %}");
    let path = models.path();
    let good = json!({"model": path, "messages": [{"role": "a", "content": ""}, {"role": "b", "content": ""}]});
    let image = json!({"role": "u", "content": [{"type": "image", "base64": "QQ=="}]});
    let requests = [
        good.to_string(),
        "[]".to_owned(),
        json!({"model": path, "messages": []}).to_string(),
        json!({"model": path, "messages": [image]}).to_string(),
        json!({"model": path, "messages": [{"role": "a"}], "colour": "red"}).to_string(),
        json!({"model": path, "messages": [{"role": "a", "content": ""}], "adapter": "plain", "tools": [{"name": "f"}]}).to_string(),
        json!({"model": path, "message": [{"role": "a"}]}).to_string(),
        "{\"model\": }".to_owned(),
    ];
    let answers = lines(&(requests.join("\n") + "\n"));
    assert_eq!(answers.len(), requests.len());
    assert_eq!(answers[0], json!({"prompt": "ab", "adapter": "tokenizer-template", "output_spec": {}, "warnings": []}));
    let error = |answer: &Value| (answer["error"]["reason"].clone(), answer["error"]["field"].clone());
    assert_eq!(error(&answers[1]), (json!("MALFORMED_MESSAGE"), json!("request")));
    assert_eq!(error(&answers[2]), (json!("INVALID_REQUEST"), json!("messages")));
    assert_eq!(answers[3]["hf_messages"], json!([{"role": "u", "content": [{"type": "image", "base64": "QQ=="}]}]));
    assert_eq!(error(&answers[4]), (json!("INVALID_REQUEST"), json!("colour")));
    assert_eq!(answers[5]["warnings"][0]["code"], "TOOLS_IGNORED");
    assert_eq!(error(&answers[6]), (json!("INVALID_REQUEST"), json!("message")));
    assert_eq!(error(&answers[7]), (json!("MALFORMED_MESSAGE"), json!("request")));
    let messages = [1, 2, 4, 6, 7].map(|at: usize| answers[at]["error"]["message"].as_str().expect("a message"));
    error_texts::check_rows("cli/bad-line", messages);
}

#[test]
fn field_with_an_invalid_value_is_named_in_the_error() {
    let model = ModelFolder::new("tiny").with_template("{{ messages[0].role }}");
    let wrong = [
        ("messages", json!("hi"), "messages"),
        ("messages", json!(["hi"]), "messages[0]"),
        ("model", json!(5), "model"),
        ("tools", json!([1]), "tools[0]"),
        ("tools", json!({}), "tools"),
        ("documents", json!([{}, "a"]), "documents[1]"),
        ("template_args", json!([]), "template_args"),
        ("add_generation_prompt", json!("yes"), "add_generation_prompt"),
        ("normalization", json!("foo"), "normalization"),
        ("control_tokens", json!(true), "control_tokens"),
        ("render_time", json!(5), "render_time"),
        ("render_time", json!("2025-07-04"), "render_time"),
        ("render_time", json!("2025-7-4T9:5:3"), "render_time"),
        ("render_time", json!("-9999-01-01T00:00:00"), "render_time"),
        ("render_time", json!("2025-07-04T09:05:03+02:00[Europe/Berlin]"), "render_time"),
        ("return", json!(["prompt"]), "return"),
    ];
    let requests = wrong.iter().map(|(name, value, _)| {
        let mut request = json!({"model": model.path(), "messages": [{"role": "u"}]});
        request[name] = value.clone();
        request.to_string()
    });
    let answers = lines(&requests.collect::<Vec<_>>().join("\n"));
    for (answer, (_, value, field)) in answers.iter().zip(&wrong) {
        let error = (&answer["error"]["reason"], &answer["error"]["field"]);
        assert_eq!(error, (&json!("INVALID_REQUEST"), &json!(field)), "{value}: {answer}");
    }
    let messages = answers.iter().map(|answer| answer["error"]["message"].as_str().expect("a message"));
    error_texts::check_rows("cli/wrong-shape", messages);
}

#[test]
fn byte_order_mark_before_a_request_is_ignored() {
    let model = ModelFolder::new("tiny").with_template("{{ messages[0].role }}");
    let request = json!({"model": model.path(), "messages": [{"role": "u"}]});
    assert_eq!(lines(&format!("\u{FEFF}{request}"))[0]["prompt"], "u");
}

#[test]
fn token_ids_are_returned_on_request() {
    let golden = &goldens()[0];
    let request = json!({"model": default_model(), "messages": golden.messages, "return": ["token_ids"]});
    assert_eq!(lines(&request.to_string())[0]["token_ids"], json!(golden.prompt_ids));
}

#[test]
fn offsets_give_the_byte_range_of_each_token() {
    let request =
        json!({"model": default_model(), "messages": [{"role": "user", "content": "naïve 👩‍👩‍👧"}], "return": "offsets"});
    let answer = lines(&request.to_string()).remove(0);
    let prompt = answer["prompt"].as_str().expect("a prompt");
    let (ids, offsets) = (answer["token_ids"].as_array(), answer["offsets"].as_array().expect("offsets"));
    assert_eq!(ids.map(Vec::len), Some(offsets.len()));
    let place = |at: &Value| usize::try_from(at.as_u64().expect("a number")).expect("small");
    let places: Vec<_> = offsets.iter().map(|at| place(&at[0])..place(&at[1])).collect();
    assert_eq!(&prompt[places[0].clone()], "<|im_start|>");
    assert!(places.is_sorted_by_key(|range| range.start) && places.last().expect("tokens").end == prompt.len());
    assert!(places.iter().all(|range| prompt.get(range.clone()).is_some()), "characters are never cut");
}

#[test]
fn blocks_reach_the_template_without_normalization() {
    let model = ModelFolder::new("tiny").with_template("{{ messages[0].content | tojson }}");
    let message = json!({"role": "u", "content": [{"type": "text", "text": "a"}]});
    let request = |policy| json!({"model": model.path(), "messages": [message], "normalization": policy}).to_string();
    let answers = lines(&format!("{}\n{}\n", request("capability"), request("none")));
    assert_eq!(answers[0]["prompt"], r#""a""#);
    assert_eq!(answers[1]["prompt"], r#"[{"type": "text", "text": "a"}]"#);
}

#[test]
fn failed_render_names_the_model_and_exits_with_an_error() {
    let (success, output, errors) = render(&[], r#"{"model": "nowhere", "messages": [{"role": "u"}]}"#);
    assert!(!success && output.is_empty());
    error_texts::check("cli/model-not-found", errors);
}

#[test]
fn a_pinned_adapter_renders_a_model_whose_template_does_not_compile() {
    let model = ModelFolder::new("tiny").with_template("{% if %}");
    let request =
        |adapter| json!({"model": model.path(), "adapter": adapter, "messages": [{"role": "user", "content": "x"}]});
    let folder = model.path();
    let named = json!({"adapter": "plain", "messages": [{"role": "user", "content": "x"}]}).to_string();
    let (success, output, errors) = render(&["--models", folder.to_str().expect("UTF-8")], &named);
    assert!(success && output == "x", "{errors}");
    let input =
        format!("{}\n{}\n{}\n", request(json!("chatml")), request(json!(null)), request(json!("tokenizer-template")));
    let answers = lines(&input);
    assert_eq!(answers[0]["adapter"], "chatml");
    assert!(answers[1..].iter().all(|answer| answer["error"]["reason"] == "MODEL_NOT_LOADED"), "{answers:?}");
}

#[test]
fn a_prompt_without_its_attachments_and_warnings_says_so_on_stderr() {
    let model = ModelFolder::new("tiny").with_architecture("gemma4");
    let image = json!({"type": "image", "base64": "SU1H"});
    let message = json!({"role": "user", "content": [image, image, {"type": "text", "text": "x"}]});
    let request = json!({"model": model.path(), "messages": [message], "documents": [{"text": "d"}]});
    let (success, output, errors) = render(&[], &request.to_string());
    assert!(success && output.contains("<|image|>"), "{output}{errors}");
    assert!(errors.contains("attachments=2") && errors.contains("--jsonl"), "{errors}");
    assert!(errors.contains("documents"), "{errors}");
}

/// The command line's caller sees every model; a caller of the service does not.
#[test]
fn an_unknown_model_of_the_command_line_is_answered_with_the_known_ones() {
    let model = ModelFolder::new("tiny").with_template("x");
    let folder = model.path();
    let arguments = ["--jsonl", "--models", folder.to_str().expect("UTF-8")];
    let (_, output, _) = render(&arguments, r#"{"model": "nowhere", "messages": [{"role": "u"}]}"#);
    assert!(output.contains("there is tiny"), "{output}");
}

#[test]
fn jsonl_answer_has_what_generation_needs() {
    let request = json!({"model": default_model(), "messages": [{"role": "user", "content": "Hi"}]});
    let answer = lines(&request.to_string()).remove(0);
    let tokenizer = tandem_tests::default_artifacts().tokenizer().expect("a tokenizer");
    assert_eq!(answer["tokenizer_sha256"], tokenizer.sha256());
    assert_eq!(answer["output_spec"], json!({"eos_token_ids": [0, 2], "extraction": {"cut_head": "assistant\n"}}));
    assert_eq!(answer.get("token_ids"), None, "the text is enough");
    let plain = ModelFolder::new("tiny").with_tokens_around();
    let request = json!({"model": plain.path(), "messages": [{"role": "user", "content": "Hi"}], "adapter": "plain"});
    let answer = lines(&request.to_string()).remove(0);
    assert_eq!(answer["prompt"], "Hi");
    assert_eq!(answer["token_ids"].as_array().map(Vec::len), Some(3), "{answer}: the tokenizer adds the first token");
}

#[test]
fn folder_with_a_gguf_or_a_cached_repository_is_a_model() {
    let model = default_model();
    let folder = TempDir::new().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    std::fs::create_dir(path("one")).expect("a folder");
    std::os::unix::fs::symlink(&model, path("one/m.gguf")).expect("a link");
    std::fs::create_dir_all(path("hub/models--org--name/snapshots/1234")).expect("a folder");
    std::os::unix::fs::symlink(&model, path("hub/models--org--name/snapshots/1234/m.gguf")).expect("a link");
    let golden = &goldens()[0];
    for path in [path("one"), path("hub/models--org--name")] {
        let request = json!({"model": path, "messages": golden.messages}).to_string();
        assert_eq!(render(&[], &request), (true, golden.prompt.clone(), String::new()));
    }
    let by_id = |models: &str, id: &str| {
        let models = path(models);
        let request = json!({"model": id, "messages": golden.messages}).to_string();
        render(&["--models", models.to_str().expect("UTF-8")], &request).0
    };
    assert!(by_id("one", "m") && by_id("hub", "m") && by_id("hub/models--org--name", "m"));
    std::os::unix::fs::symlink(&model, path("one/n.gguf")).expect("a link");
    let request = json!({"model": path("one"), "messages": golden.messages}).to_string();
    let (success, _, errors) = render(&[], &request);
    assert!(!success);
    error_texts::check("cli/several-models", errors.replace(folder.path().to_str().expect("UTF-8"), "FOLDER"));
}

#[test]
fn flag_with_an_invalid_value_says_what_to_write() {
    let run = |arguments: &[&str], variables: &[(&str, &str)]| {
        let mut command = Command::new(binary("render-svc"));
        let output = command.args(arguments).envs(variables.iter().copied()).output().expect("it runs");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        String::from_utf8(output.stderr).expect("UTF-8")
    };
    let listen = |address: &str| run(&["serve", "--models", "x", "--listen", address], &[]);
    error_texts::check_rows(
        "cli/flag",
        [
            listen("localhost:50999"),
            listen(":50999"),
            listen("50999"),
            listen("nonsense"),
            run(&["serve", "--models", "x", "--metrics-listen", "localhost:9"], &[]),
            run(&["render", "--log", "zzz=q"], &[]),
            run(&["serve", "--models", "x"], &[("TANDEM_INSECURE", "maybe")]),
        ],
    );
}

#[test]
fn help_is_a_command_and_a_variable_may_be_0_or_no() {
    let run = |arguments: &[&str], insecure: &str| {
        let mut command = Command::new(binary("render-svc"));
        command.args(arguments).env("TANDEM_INSECURE", insecure).output().expect("it runs")
    };
    let help = run(&["help", "render"], "0");
    assert!(help.status.success() && String::from_utf8_lossy(&help.stdout).contains("--jsonl"));
    for value in ["0", "no", "false", "1", "yes", "true"] {
        let output = run(&["serve", "--listen", "0.0.0.0:0", "--models", "/nowhere"], value);
        let errors = String::from_utf8_lossy(&output.stderr);
        let is_insecure = ["1", "yes", "true"].contains(&value);
        assert_eq!(errors.contains("not protected"), !is_insecure, "{value}: {errors}");
    }
}

#[test]
fn terminal_without_input_is_mentioned() {
    let mut terminal = Terminal::start(&binary("render-svc"), &["render"], 80);
    terminal.wait_for("reading a request from standard input");
    terminal.send("{}\n\x04");
    terminal.wait_for("render-svc: ");
}

#[test]
fn a_request_of_the_contract_renders_as_its_json_form() {
    let template = "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}{{ tools | tojson if tools }}";
    let path = ModelFolder::new("tiny").with_template(template);
    let path = path.path();
    let contract = |conversation: Value| json!({"model": path, "conversation": conversation}).to_string();
    let parameters = r#"{"b": 1.0, "a": {}}"#;
    let typed = json!({
        "messages": [{"role": "user", "text": "a"}, {"role": "user", "blocks": {"blocks": [{"text": {"text": "b"}}]}}],
        "tools": [{"function": {"name": "f", "parametersJson": parameters}}],
    });
    let plain = json!({
        "model": path,
        "messages": [{"role": "user", "content": "a"}, {"role": "user", "content": [{"type": "text", "text": "b"}]}],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"b": 1.0, "a": {}}}}],
    });
    let nameless = json!({"messages": [{"role": "", "text": "a"}]});
    let unknown = json!({"messages": [{"role": "user", "content": "a"}]});
    let images = json!({"messages": [{"role": "user", "blocks": {"blocks": [{"image": {"base64": "QUJD"}}]}}]});
    let requests = [contract(typed), plain.to_string(), contract(nameless), contract(unknown), contract(images)];
    let answers = lines(&requests.join("\n"));
    assert_eq!(
        answers[0]["prompt"],
        r#"user:a;user:b;[{"type": "function", "function": {"name": "f", "parameters": {"b": 1.0, "a": {}}}}]"#
    );
    assert_eq!(answers[0], answers[1]);
    assert_eq!(answers[2]["error"]["field"], "conversation.messages[0].role");
    assert_eq!(
        (&answers[3]["error"]["reason"], &answers[3]["error"]["field"]),
        (&json!("INVALID_REQUEST"), &json!("request"))
    );
    let unknown = answers[3]["error"]["message"].as_str().expect("a message");
    assert!(unknown.contains("content"), "the key is named: {unknown}");
    let warning = &answers[4]["warnings"][0];
    assert_eq!(warning["path"], "conversation.messages[0].blocks.blocks[0].image");
}

/// Runs `tokenize` or `explain`, which must succeed.
fn answer(name: &str, request: &Value) -> Value {
    let (success, output, errors) = run(name, &[], &request.to_string());
    assert!(success && errors.is_empty(), "{name} {request}: {errors}");
    serde_json::from_str(&output).expect("JSON")
}

#[test]
fn tokenize_converts_a_text_to_token_ids_and_back() {
    let model = default_model();
    let request = json!({"model": model, "text": "<|im_start|>é", "return_offsets": true});
    let tokens = answer("tokenize", &request);
    let ids = tokens["token_ids"].as_array().expect("a list");
    assert_eq!(tokens["offsets"].as_array().map(Vec::len), Some(ids.len()), "{tokens}");
    assert_eq!(answer("tokenize", &json!({"model": model, "token_ids": ids})), json!({"text": "<|im_start|>é"}));
    let skipped = json!({"model": model, "token_ids": ids, "skip_special_tokens": true});
    assert_eq!(answer("tokenize", &skipped), json!({"text": "é"}));
    let (success, _, error) = run("tokenize", &[], &format!("\u{feff}{skipped}"));
    assert!(success, "a byte order mark is skipped: {error}");
    let literal = json!({"model": model, "text": "<|im_start|>é", "control_tokens": "literal"});
    assert!(answer("tokenize", &literal)["token_ids"].as_array().is_some_and(|literal| literal.len() > ids.len()));
    let bad = [
        json!({"model": model}),
        json!({"model": model, "text": "a", "token_ids": [1]}),
        json!({"model": "m", "txt": "a"}),
        json!({"model": model, "token_ids": [4_000_000]}),
    ];
    let errors = bad.map(|request| {
        let (success, _, error) = run("tokenize", &[], &request.to_string());
        assert!(!success, "{request}");
        error
    });
    error_texts::check_rows("cli/tokenize", errors);
}

/// Runs the program on a terminal of 80 columns, and returns its output.
fn on_a_terminal(variable: &str, arguments: &[&str]) -> String {
    let program = binary("render-svc");
    let mut all = vec!["-u", "NO_COLOR", variable, program.to_str().expect("UTF-8")];
    all.extend(arguments);
    Terminal::start(Path::new("env"), &all, 80).rest()
}

#[test]
fn tokenize_shows_the_tokens_of_a_text_on_a_terminal_and_answers_json_in_a_pipe() {
    let model = default_model();
    let model = model.to_str().expect("UTF-8");
    let arguments = ["tokenize", "--model", model, "<|im_start|>a\n \u{1b}"];
    let (success, output, errors) = run(arguments[0], &arguments[1..], "");
    assert!(success, "{errors}");
    let ids = answer("tokenize", &json!({"model": model, "text": arguments[3]}))["token_ids"].clone();
    assert_eq!(serde_json::from_str::<Value>(&output).expect("JSON"), json!({"token_ids": ids}));
    let ids: Vec<u64> = serde_json::from_value(ids).expect("numbers");
    let coloured = on_a_terminal("A=1", &arguments);
    assert!(coloured.starts_with("\x1b[1;30;45m<|im_start|>\x1b[0m\x1b[30;43ma\x1b[0m"), "{coloured:?}");
    assert!(ids.iter().all(|id| coloured.contains(&format!("m{id}\x1b[0m"))), "{coloured:?}");
    let table = on_a_terminal("NO_COLOR=1", &arguments);
    let first = format!("{}  \"<|im_start|>\"  control token", ids[0]);
    assert_eq!(table.lines().next().map(str::trim_start), Some(first.as_str()));
    for shown in [coloured, table] {
        assert!(shown.contains("\\n") && shown.contains("\\u{1b}") && !shown.contains("\u{1b}\u{1b}"), "{shown:?}");
        assert!(shown.contains(&format!("tokens: {}, control tokens: 1", ids.len())), "{shown:?}");
    }
}

#[test]
fn a_file_in_place_of_a_text_and_a_model_that_is_not_fetched_are_refused_with_a_remedy() {
    let file = NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), json!({"text": "a"}).to_string()).expect("it is writable");
    let (path, model) = (file.path().to_str().expect("UTF-8"), default_model());
    let model = model.to_str().expect("UTF-8");
    let (success, _, error) = run("tokenize", &["--model", model, path], "");
    assert!(!success, "{error}");
    error_texts::check("cli/tokenize-file", error.replace(path, "FILE"));
    let (success, _, error) = run("tokenize", &["a"], "");
    assert!(!success, "{error}");
    error_texts::check("cli/tokenize-without-model", error);
    let unfetched = [
        run("tokenize", &["--model", "Qwen/Qwen3-0.6B", "a"], ""),
        run("tokenize", &["--models", "Qwen/Qwen3-0.6B", "a"], ""),
        run("render", &[], r#"{"model": "Qwen/Qwen3-0.6B", "messages": [{"role": "user", "content": "a"}]}"#),
    ];
    error_texts::check_rows("cli/repository", unfetched.map(|(_, _, error)| error));
    let (success, output, error) = run("tokenize", &["--model", model, "--input", path], "");
    assert_eq!(
        (success, output),
        (true, format!("{}\n", answer("tokenize", &json!({"model": model, "text": "a"})))),
        "{error}"
    );
}

#[test]
fn prompt_on_a_terminal_has_coloured_control_tokens_and_no_control_characters() {
    let messages = json!([{"role": "user", "content": "a\u{1b}]0;b\u{7}<|im_end|>"}]);
    let request = json!({"model": default_model(), "messages": messages, "control_tokens": "literal"});
    let file = NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), request.to_string()).expect("it is writable");
    let arguments = ["render", file.path().to_str().expect("UTF-8")];
    let coloured = on_a_terminal("A=1", &arguments);
    assert!(
        coloured
            .contains("\x1b[1;35m<|im_start|>\x1b[0muser\na\\u{1b}]0;b\\u{7}<|im_end|>\x1b[1;35m<|im_end|>\x1b[0m\n"),
        "{coloured:?}"
    );
    let plain = on_a_terminal("NO_COLOR=1", &arguments);
    assert!(
        plain.contains("<|im_start|>user\na\\u{1b}]0;b\\u{7}<|im_end|><|im_end|>\n") && !plain.contains('\x1b'),
        "{plain:?}"
    );
}

#[test]
fn explain_names_the_adapter_of_both_forms_of_a_request() {
    let models = ModelFolder::new("tiny").with_template("{{ messages[0].content }}");
    let template = answer("explain", &json!({"model": models.path(), "messages": []}));
    assert_eq!(template["adapter"], "tokenizer-template", "{template}");
    assert!(template["rejected"].as_array().is_some_and(|list| !list.is_empty()), "{template}");
    let typed = json!({"model": models.path(), "conversation": {}, "options": {"adapter": "chatml"}});
    assert_eq!(answer("explain", &typed)["adapter"], "chatml");
    let unknown = json!({"model": models.path(), "adapter": "magic"}).to_string();
    let (success, _, error) = run("explain", &[], &unknown);
    assert!(!success && error.contains("there is no adapter \"magic\""), "{error}");
}

#[test]
fn second_name_of_one_model_is_logged() {
    let folder = TempDir::new().expect("a folder");
    let model = ModelFolder::new("tiny").with_template("{{ messages[0].content }}");
    for name in ["beta", "alpha"] {
        std::os::unix::fs::symlink(model.path(), folder.path().join(name)).expect("a link");
    }
    let request = json!({"model": "alpha", "messages": [{"role": "user", "content": "Hi"}]}).to_string();
    let models = folder.path().to_str().expect("UTF-8");
    let (success, prompt, log) = render(&["--models", models], &request);
    assert_eq!((success, prompt.as_str()), (true, "Hi"), "{log}");
    let [line] = log.lines().collect::<Vec<_>>()[..] else { panic!("{log}") };
    let wanted = ["WARN", "model=\"alpha\"", "unused=\"beta\"", &format!("{models}/alpha"), &format!("{models}/beta")];
    assert!(wanted.iter().all(|part| line.contains(part)), "{line}");
    let alpha = &format!("{models}/alpha");
    assert_eq!(render(&["--models", alpha, "--models", alpha], &request), (true, prompt, String::new()));
}
