//! The `gemma-4` adapter: warnings, attachments and rejected requests. Whole prompts are in
//! `tests/golden`.

use std::fmt::Write as _;
use std::fs;
use std::sync::LazyLock;

use render_svc::adapter::Attachment;
use render_svc::catalog::{ModelTable, ServedModel};
use render_svc::cli::json;
use render_svc::limits::Limits;
use render_svc::render::{Output, Rendered, render};
use serde_json::{Value, json};
use tandem_common::pb::chat::v1::media_block::Source;
use tandem_common::pb::render::v1 as pb;
use tandem_common::pb::render::v1::render_response::Output as RenderOutput;
use tandem_common::pb::render::v1::render_service_client::RenderServiceClient;
use tandem_template::LocalTime;
use tandem_tests::conversations::{blocks, conversation, image_block, request, text, text_block};
use tandem_tests::{ModelFolder, error_texts, render_service};
use tempfile::TempDir;

/// A model that has only a type.
static GEMMA4: LazyLock<ModelTable> = LazyLock::new(|| model(&[("config.json", json!({"model_type": "gemma4"}))]));

/// Returns a model folder of these files.
fn model(files: &[(&str, Value)]) -> ModelTable {
    let folder = TempDir::new().expect("a temporary folder");
    for (name, json) in files {
        fs::write(folder.path().join(name), json.to_string()).expect("a file");
    }
    ServedModel::load(folder.path()).expect("a valid folder").into()
}

fn try_rendered(models: &ModelTable, request: &str) -> Result<Rendered, render_svc::error::Error> {
    render(models, json::request(request, LocalTime::now())?, &Limits::default())
}

#[track_caller]
fn rendered(models: &ModelTable, request: &str) -> Rendered {
    let rendered = try_rendered(models, request).expect("renders");
    assert_eq!(rendered.resolution.adapter, Some("gemma-4"));
    rendered
}

#[track_caller]
fn prompt(models: &ModelTable, request: &str) -> (String, Vec<Attachment>) {
    match rendered(models, request).output {
        Output::Prompt { text, attachments, .. } => (text, attachments),
        Output::HfMessages(_) => panic!("no prompt"),
    }
}

/// Returns the message of an error with this reason and field.
#[track_caller]
fn refused(request: &str, reason: &str, field: &str) -> String {
    let answer = json::answer(try_rendered(&GEMMA4, request));
    let error = &answer["error"];
    assert_eq!((&error["reason"], &error["field"]), (&json!(reason), &json!(field)), "{answer}");
    error["message"].as_str().expect("every error has a message").to_owned()
}

#[track_caller]
fn check_refused(case: &str, request: &str, reason: &str, field: &str) {
    error_texts::check(case, refused(request, reason, field));
}

/// Checks the paths and texts of the warnings about results without a call.
#[track_caller]
fn check_result_warnings(request: &str, expected: &[&str]) -> Option<String> {
    let warnings = rendered(&GEMMA4, request).warnings;
    assert!(warnings.iter().all(|warning| warning.code.name() == "TOOL_RESULT_UNPAIRED"), "{warnings:?}");
    let found: Vec<_> = warnings.iter().map(|warning| warning.path.to_string()).collect();
    assert_eq!(found, expected);
    warnings.into_iter().next().map(|warning| warning.text)
}

#[test]
fn a_result_of_no_call_is_warned_of() {
    let request = r#"{
        "messages": [
            {"role": "user", "content": "Hi"},
            {"role": "tool", "content": "of no call"},
            {"role": "user", "content": "x"}
        ]
    }"#;
    let first = check_result_warnings(request, &["messages[1]"]);
    let blocks =
        r#"{"messages": [{"role": "user", "content": ""}, {"role": "tool", "content": [{"type": "tool_result"}]}]}"#;
    let second = check_result_warnings(blocks, &["messages[1]"]);
    let answered = r#"{"messages": [
        {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {}}}], "tool_responses": [{"response": 1}]},
        {"role": "tool", "content": "too late"}
    ]}"#;
    let third = check_result_warnings(answered, &["messages[1]"]);
    error_texts::check_rows("gemma4/result-of-no-call", [first, second, third].into_iter().flatten());
}

#[test]
fn result_with_an_unknown_call_id_is_shown_with_a_warning() {
    let calls = r#"{"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": {}}}]}"#;
    let request = |result: &str| format!(r#"{{"messages": [{calls}, {result}]}}"#);
    let named = request(r#"{"role": "tool", "tool_call_id": "z", "name": "other", "content": "1"}"#);
    let named = check_result_warnings(&named, &["messages[1]"]);
    let nameless = request(r#"{"role": "tool", "content": "1"}"#);
    let nameless = check_result_warnings(&nameless, &["messages[1]"]);
    let typed =
        request(r#"{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "z", "content": "1"}]}"#);
    let typed = check_result_warnings(&typed, &["messages[1].content[0]"]);
    error_texts::check_rows("gemma4/result-of-another-id", [named, nameless, typed].into_iter().flatten());
    check_result_warnings(&request(r#"{"role": "tool", "tool_call_id": "a", "content": "1"}"#), &[]);
    check_result_warnings(&request(r#"{"role": "tool", "name": "f", "content": "1"}"#), &[]);
}

/// Renders the same exchange in both forms that clients use.
#[test]
fn typed_calls_render_like_tool_calls() {
    let typed = r#"{
        "messages": [
            {"role": "user", "content": "Weather and time?"},
            {"role": "assistant", "reasoning_content": "Both.", "content": [
                {"type": "tool_use", "id": "a", "name": "weather", "input": {"city": "Bonn"}},
                {"type": "tool_use", "id": "b", "name": "clock", "input": {}}
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "b", "content": "noon"},
                {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "22"}, {"type": "image"}]},
                {"type": "text", "text": "And?"}
            ]},
            {"role": "assistant", "content": [{"type": "text", "text": "22 at noon."}]}
        ]
    }"#;
    let untyped = r#"{
        "messages": [
            {"role": "user", "content": "Weather and time?"},
            {"role": "assistant", "reasoning_content": "Both.", "tool_calls": [
                {"id": "a", "function": {"name": "weather", "arguments": {"city": "Bonn"}}},
                {"id": "b", "function": {"name": "clock", "arguments": {}}}
            ]},
            {"role": "tool", "tool_call_id": "b", "content": "noon"},
            {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "22"}, {"type": "image"}]},
            {"role": "user", "content": "And?"},
            {"role": "assistant", "content": "22 at noon."}
        ]
    }"#;
    assert_eq!(prompt(&GEMMA4, typed).0, prompt(&GEMMA4, untyped).0);
}

#[test]
fn a_typed_result_without_its_call_is_warned_of() {
    let message = r#"{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "z", "content": "lost"}]}"#;
    assert_eq!(rendered(&GEMMA4, &format!(r#"{{"messages": [{message}]}}"#)).warnings.len(), 1);
}

/// Checks the paths of the attachments in the order of their markers.
#[track_caller]
fn check_offsets(request: &str, expected: &[&str]) {
    let (text, attachments) = prompt(&GEMMA4, request);
    for Attachment { kind, offset, path, .. } in &attachments {
        let marker = format!("<|{}|>", kind.name());
        assert!(text.get(*offset..).is_some_and(|rest| rest.starts_with(&marker)), "{path} at {offset}: {text}");
    }
    assert!(attachments.is_sorted_by(|a, b| a.offset < b.offset), "{attachments:?}");
    assert_eq!(attachments.iter().map(|a| a.path.to_string()).collect::<Vec<_>>(), expected);
}

#[test]
fn attachments_have_their_marker_offsets() {
    let request = |continues: bool| {
        format!(
            r#"{{
                "messages": [
                    {{"role": "system", "content": [{{"type": "text", "text": "é<|image|>"}}, {{"type": "image"}}]}},
                    {{"role": "user", "content": [{{"type": "text", "text": "<|image|> 😀 <|audio|>"}}, {{"type": "audio"}}]}},
                    {{"role": "assistant", "content": "", "tool_calls": [{{"id": "a", "function": {{"name": "<|video|>",
                        "arguments": {{"<|image|>": "<|image|>"}}}}}}]}},
                    {{"role": "tool", "tool_call_id": "a", "content": [{{"type": "text", "text": "<|image|>"}}, {{"type": "image"}},
                        {{"type": "video"}}]}},
                    {{"role": "user", "content": [{{"type": "tool_result", "content": [{{"type": "image"}}]}}, {{"type": "image"}},
                        {{"type": "text", "text": "<|image|>  "}}, {{"type": "video"}}]}}
                ],
                "continue_final_message": {continues}
            }}"#
        )
    };
    let paths = [
        "messages[0].content[1]",
        "messages[1].content[1]",
        "messages[3].content[1]",
        "messages[3].content[2]",
        "messages[4].content[0].content[0]",
        "messages[4].content[1]",
        "messages[4].content[3]",
    ];
    check_offsets(&request(false), &paths);
    check_offsets(&request(true), &paths[..6]);
}

#[test]
fn attachments_have_their_mime_type_and_source() {
    let cases = [
        (r#"{"type": "image", "base64": "QUJD", "mime_type": "image/webp"}"#, Some("image/webp"), "base64", "QUJD"),
        (
            r#"{"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}}"#,
            Some("image/png"),
            "base64",
            "QUJD",
        ),
        (r#"{"type": "input_image", "image_url": "data:image/png;base64,QUJD"}"#, Some("image/png"), "base64", "QUJD"),
        (r#"{"type": "image", "url": "data:image/gif;base64,QUJD"}"#, Some("image/gif"), "base64", "QUJD"),
        (r#"{"type": "image", "image": "data:;base64,QUJD"}"#, None, "base64", "QUJD"),
        (r#"{"type": "video", "video": "http://x/y.mp4"}"#, None, "location", "http://x/y.mp4"),
        (r#"{"type": "audio", "path": "a.wav", "mime_type": "audio/wav"}"#, Some("audio/wav"), "location", "a.wav"),
        (
            r#"{"type": "input_audio", "input_audio": {"data": "QUJD", "format": "wav"}}"#,
            Some("audio/wav"),
            "base64",
            "QUJD",
        ),
        (r#"{"type": "image", "attachment_id": "cat"}"#, Some("image/jpeg"), "attachment_id", "cat"),
    ];
    for (block, mime_type, source, data) in cases {
        let request = format!(
            r#"{{"messages": [{{"role": "user", "content": [{block}]}}],
                "template_args": {{"attachments": [{{"id": "cat", "mime_type": "image/jpeg"}}]}}}}"#
        );
        let answer = json::answer(try_rendered(&GEMMA4, &request));
        let attachment = &answer["attachments"][0];
        assert_eq!((attachment["mime_type"].as_str(), &attachment[source]), (mime_type, &json!(data)), "{block}");
        assert_eq!(attachment["offset"], json!("<bos><|turn>user\n".len()), "{block}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn response_has_marker_offsets_and_unpaired_result_warnings() {
    let folder = ModelFolder::new("tiny").with_architecture("gemma4");
    let service = render_service(&[folder.path()], None).await;
    let mut client = RenderServiceClient::new(service.channel().await);
    let image = image_block(Source::Location("data:image/png;base64,QUJD".to_owned()));
    let messages = vec![blocks("user", vec![text_block("é<|image|>"), image]), text("tool", "4")];
    let response = client.render(request(conversation(messages))).await.expect("renders").into_inner();
    let warnings: Vec<_> = response.warnings.iter().map(|warning| (warning.code(), warning.path.as_str())).collect();
    assert_eq!(warnings, [(pb::WarningCode::ToolResultUnpaired, "conversation.messages[1]")]);
    let Some(RenderOutput::Prompt(pb::Prompt { text, attachments, .. })) = response.output else { panic!("no prompt") };
    let offset = text.rfind("<|image|>").and_then(|offset| u32::try_from(offset).ok()).expect("a marker");
    let expected = pb::Attachment {
        kind: tandem_common::pb::generate::v1::MediaKind::Image.into(),
        path: "conversation.messages[0].blocks.blocks[1].image".to_owned(),
        offset,
        mime_type: "image/png".to_owned(),
        source: Some(pb::attachment::Source::Base64("QUJD".to_owned())),
    };
    assert_eq!(attachments, [expected]);
}

/// Returns a request of two messages. The second message contains this block.
fn with_block(block: &str) -> String {
    format!(
        r#"{{"messages": [{{"role": "user", "content": "Hi"}}, {{"role": "user", "content": [{{"type": "text", "text": "a"}}, {block}]}}],
            "template_args": {{"attachments": [{{"id": "cat", "type": "image"}}]}}}}"#
    )
}

#[test]
fn invalid_block_is_rejected_with_its_path() {
    let cases = [
        (r#"{"type": "image", "attachment_id": "dog"}"#, "DANGLING_ATTACHMENT", ".attachment_id"),
        (r#"{"type": "hologram"}"#, "UNKNOWN_BLOCK", ""),
        (r#"{"type": "audio", "attachment_id": "cat"}"#, "INVALID_REQUEST", ".attachment_id"),
        (r#"{"type": "image", "base64": 1}"#, "INVALID_REQUEST", ".base64"),
        (r#"{"type": "text"}"#, "INVALID_REQUEST", ".text"),
        (r#""text""#, "INVALID_REQUEST", ""),
        (r#"{"type": "tool_use", "name": "f", "input": "{}"}"#, "INVALID_REQUEST", ".input"),
        (r#"{"type": "tool_result", "content": [{"type": "tool_use"}]}"#, "UNKNOWN_BLOCK", ".content[0]"),
    ];
    let messages = cases
        .map(|(block, reason, field)| refused(&with_block(block), reason, &format!("messages[1].content[1]{field}")));
    error_texts::check_rows("gemma4/block", messages);
}

#[test]
fn input_that_the_official_template_rejects_is_rejected_by_path() {
    let call = |call: &str| format!(r#"{{"messages": [{{"role": "assistant", "tool_calls": [{call}]}}]}}"#);
    for arguments in [r#""no""#, r#""[1]""#, r#""""#, "5", "[1]"] {
        let message = refused(
            &call(&format!(r#"{{"function": {{"name": "f", "arguments": {arguments}}}}}"#)),
            "INVALID_REQUEST",
            "messages[0].tool_calls[0].function.arguments",
        );
        // The official template's own message.
        assert_eq!(
            message,
            "chat_template: tool_calls[].function.arguments must be a JSON object (mapping), not a string. \
             Deserialize arguments before passing to the template.",
        );
    }
    let nameless = call(r#"{"name": "f", "arguments": {}}"#);
    check_refused("gemma4/call", &nameless, "INVALID_REQUEST", "messages[0].tool_calls[0].function");
    let without_role = r#"{"messages": [{"content": "x"}]}"#;
    check_refused("gemma4/no-role", without_role, "INVALID_REQUEST", "messages[0].role");
    let without_text = r#"{"messages": [{"role": "user"}], "continue_final_message": true}"#;
    check_refused("gemma4/no-text-to-continue", without_text, "INVALID_REQUEST", "messages[0].content");
}

#[test]
fn a_tool_must_have_a_name() {
    let request = |tool: &str| format!(r#"{{"messages": [{{"role": "user", "content": "Hi"}}], "tools": [{tool}]}}"#);
    for tool in [r#"{"description": "d"}"#, r#"{"name": null}"#, r#"{"name": ""}"#, r#"{"name": 5}"#] {
        let wrapped = request(&format!(r#"{{"function": {tool}}}"#));
        check_refused("gemma4/function-name", &wrapped, "INVALID_REQUEST", "tools[0].function.name");
    }
    check_refused("gemma4/tool-name", &request(r#"{"name": ""}"#), "INVALID_REQUEST", "tools[0].name");
    let nothing = r#"{"type": "function", "description": "d"}"#;
    check_refused("gemma4/function", &request(nothing), "INVALID_REQUEST", "tools[0].function");
}

#[test]
fn a_tool_may_be_given_without_its_function_object() {
    let function =
        r#""name": "f", "description": "d", "parameters": {"type": "object", "properties": {"x": {"type": "string"}}}"#;
    let result = r#"{"role": "user", "content": [{"type": "tool_result", "content": "1"}]}"#;
    let request = |tool: String| format!(r#"{{"messages": [{result}], "tools": [{tool}]}}"#);
    let (flat, _) = prompt(&GEMMA4, &request(format!(r#"{{"type": "function", {function}}}"#)));
    let (wrapped, _) = prompt(&GEMMA4, &request(format!(r#"{{"type": "function", "function": {{{function}}}}}"#)));
    assert_eq!(flat, wrapped);
    assert!(flat.contains("response:f{"), "{flat}");
    let bad = format!(r#"{{"messages": [{result}], "tools": [{{"name": "f", "parameters": 5}}]}}"#);
    check_refused("gemma4/parameters", &bad, "INVALID_REQUEST", "tools[0].parameters");
}

#[test]
fn tool_name_over_256_bytes_is_rejected() {
    let request =
        json!({"messages": [{"role": "assistant", "content": [{"type": "tool_use", "name": "f".repeat(257)}]}]});
    let field = "messages[0].content[0].name";
    check_refused("gemma4/long-name", &request.to_string(), "INVALID_REQUEST", field);
}

#[test]
fn documents_and_unknown_template_args_cause_warnings() {
    let request = r#"{
        "messages": [{"role": "user", "content": "Hi"}],
        "documents": [{"text": "x"}],
        "template_args": {"enable_thinking": false, "n": 1, "preserve_thinking": false, "zoom": 2}
    }"#;
    let warnings = rendered(&GEMMA4, request).warnings;
    let texts: Vec<_> = warnings.iter().map(|w| (w.code.name(), w.path.to_string(), w.text.as_str())).collect();
    let expected = [
        ("DOCUMENTS_IGNORED", "documents", "the Gemma 4 prompt cannot show documents to the model: ignored"),
        ("TEMPLATE_ARGS_IGNORED", "template_args", "n, zoom mean nothing to the Gemma 4 prompt: ignored"),
    ];
    assert_eq!(texts, expected.map(|(code, path, text)| (code, path.to_owned(), text)));
}

const HI: &str = r#"{"messages": [{"role": "user", "content": "Hi"}]}"#;

#[test]
fn a_model_without_a_template_is_detected_by_its_type() {
    let adapter = |kind: &str| {
        let rendered = try_rendered(&model(&[("config.json", json!({"model_type": kind}))]), HI).expect("renders");
        rendered.resolution.adapter.expect("it is rendered as text")
    };
    assert_eq!(adapter("gemma4_text"), "gemma-4");
    assert_ne!(adapter("gemma3"), "gemma-4");
}

#[test]
fn the_name_of_a_call_must_not_be_empty() {
    let call = |message: &str| format!(r#"{{"messages": [{{"role": "assistant", {message}}}]}}"#);
    let typed = call(r#""content": [{"type": "tool_use", "name": "", "input": {}}]"#);
    check_refused("gemma4/call-name", &typed, "INVALID_REQUEST", "messages[0].content[0].name");
    let untyped = call(r#""tool_calls": [{"function": {"name": "", "arguments": {}}}]"#);
    let field = "messages[0].tool_calls[0].function.name";
    check_refused("gemma4/call-name", &untyped, "INVALID_REQUEST", field);
}

#[test]
fn blocks_after_the_text_that_is_continued_are_warned_of() {
    let request = r#"{
        "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": [
            {"type": "image"}, {"type": "text", "text": "Look:"}, {"type": "image"},
            {"type": "tool_use", "name": "f", "input": {}}
        ]}],
        "continue_final_message": true
    }"#;
    let warnings = rendered(&GEMMA4, request).warnings;
    let found: Vec<_> = warnings.iter().map(|warning| (warning.code.name(), warning.path.to_string())).collect();
    let expected = [("IMAGES_IGNORED", "messages[1].content[2]"), ("MESSAGE_IGNORED", "messages[1].content[3]")];
    assert_eq!(found, expected.map(|(code, path)| (code, path.to_owned())));
    let (text, attachments) = prompt(&GEMMA4, request);
    assert!(text.ends_with("<|image|>Look:"), "{text}");
    assert_eq!(attachments.len(), 1);
}

/// A reproducible stream of small numbers.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % n
    }

    fn pick<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.below(words.len())]
    }

    /// Returns one of these texts or, rarely, any JSON text.
    fn usually(&mut self, texts: &[&str]) -> String {
        match self.below(16) {
            0 => self.json(3),
            _ => self.pick(texts).to_owned(),
        }
    }

    /// Returns JSON text made of the words of requests.
    fn json(&mut self, depth: usize) -> String {
        const KEYS: [&str; 22] = [
            "role",
            "content",
            "type",
            "text",
            "tool_calls",
            "tool_responses",
            "function",
            "name",
            "arguments",
            "id",
            "input",
            "tool_use_id",
            "attachment_id",
            "base64",
            "parameters",
            "properties",
            "items",
            "required",
            "enum",
            "response",
            "reasoning",
            "description",
        ];
        const VALUES: [&str; 17] = [
            "null",
            "true",
            "0",
            "-0.0",
            "1e999",
            "\"\"",
            "\"user\"",
            "\"assistant\"",
            "\"tool\"",
            "\"system\"",
            "\"text\"",
            "\"image\"",
            "\"tool_use\"",
            "\"tool_result\"",
            "\"object\"",
            "\"array\"",
            "\"\\u0000<|channel>İ\"",
        ];
        let (mut text, kind) = (String::new(), if depth == 0 { 0 } else { self.below(4) });
        let separators = ["", ","].into_iter().chain(std::iter::repeat(","));
        for (_, separator) in (0..self.below(5)).zip(separators) {
            match kind {
                2 => write!(text, "{separator}{}", self.json(depth - 1)),
                3 => write!(text, "{separator}\"{}\":{}", self.pick(&KEYS), self.json(depth - 1)),
                _ => break,
            }
            .expect("a String");
        }
        match kind {
            2 => format!("[{text}]"),
            3 => format!("{{{text}}}"),
            _ => self.pick(&VALUES).to_owned(),
        }
    }
}

/// Returns JSON text that is similar to a request.
fn odd_request(numbers: &mut Numbers) -> String {
    let block = format!(
        r#"{{"type": {}, "text": {}, "id": "a", "name": {}, "input": {}, "tool_use_id": {}, "content": {}}}"#,
        numbers.usually(&["\"text\"", "\"image\"", "\"tool_use\"", "\"tool_result\""]),
        numbers.usually(&["\"x\"", "\"<|channel>y<channel|>\""]),
        numbers.usually(&["\"f\""]),
        numbers.usually(&["{}", "null"]),
        numbers.usually(&["\"a\"", "\"b\""]),
        numbers.usually(&["\"x\"", "[]", "null"]),
    );
    let roles = ["\"user\"", "\"assistant\"", "\"tool\"", "\"system\""];
    let messages: Vec<String> = (0..3)
        .map(|_| {
            let (role, content) = (numbers.usually(&roles), numbers.usually(&["\"x\"", "null", &format!("[{block}]")]));
            let calls = numbers.usually(&["[]", r#"[{"function": {"name": "f", "arguments": {}}}]"#]);
            format!(r#"{{"role": {role}, "content": {content}, "tool_calls": {calls}}}"#)
        })
        .collect();
    let parameters =
        format!(r#"{{"type": "object", "properties": {{"p": {}, "q": {}}}}}"#, numbers.json(6), numbers.json(6));
    let tool = format!(r#"{{"function": {{"name": "f", "parameters": {}}}}}"#, numbers.usually(&[&parameters]));
    let continues = numbers.below(4) == 0;
    format!(r#"{{"messages": [{}], "tools": [{tool}], "continue_final_message": {continues}}}"#, messages.join(","))
}

#[test]
fn random_json_requests_cause_no_panic() {
    let mut numbers = Numbers(1);
    let is_answered = |request: String| try_rendered(&GEMMA4, &request).is_ok();
    let answered = (0..5_000).filter(|_| is_answered(odd_request(&mut numbers))).count();
    assert!(
        (1_000..4_500).contains(&answered),
        "{answered} were answered: the requests are not odd enough, or too odd"
    );
}
