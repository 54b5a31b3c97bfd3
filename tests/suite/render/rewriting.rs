//! Normalization of requests for adapters: the same for typed blocks and for HF messages. Errors
//! and warnings name the request's own fields.

use std::path::Path;

use render_svc::catalog::{ModelTable, ServedModel};
use render_svc::cli;
use render_svc::error::without_folder;
use render_svc::job::RenderJob;
use render_svc::limits::Limits;
use render_svc::prepare::forms::{self, ContentForm};
use render_svc::prepare::null_content;
use render_svc::prepare::origins::Origins;
use render_svc::prepare::tools;
use render_svc::prepare::traced::Traced;
use render_svc::render::render;
use render_svc::warning::WarningCode;
use serde_json::{Value, json};
use tandem_template::LocalTime;
use tandem_tests::{ModelFolder, answer, error_texts};
use tempfile::TempDir;

/// Shows messages and tools. The only capability found in its text is system messages.
const SHOW: &str = "{{ messages | tojson }}{{ tools | tojson }}";
/// Shows messages whose roles alternate.
const STRICT: &str = "{% for m in messages %}{% if not loop.first and m.role == loop.previtem.role %}\
                      {{ raise_exception('Conversation roles must alternate') }}{% endif %}{% endfor %}\
                      {{ messages | tojson }}";

/// Checks the reason and the field of a failed request. Returns the message.
#[track_caller]
fn failure(template: &str, request: &Value, reason: &str, field: &str) -> String {
    let answer = answer(&ModelFolder::new("tiny").with_template(template).models(), request);
    assert_eq!((&answer["error"]["reason"], &answer["error"]["field"]), (&json!(reason), &json!(field)), "{answer}");
    answer["error"]["message"].as_str().expect("every error has a message").to_owned()
}

fn warnings(answer: &Value) -> Vec<(&str, &str)> {
    let warnings = answer["warnings"].as_array().unwrap_or_else(|| panic!("{answer}")).iter();
    warnings.map(|w| (w["code"].as_str().expect("a code"), w["path"].as_str().expect("a path"))).collect()
}

fn say(role: &str, content: impl Into<Value>) -> Value {
    json!({"role": role, "content": content.into()})
}

fn image() -> Value {
    json!({"type": "image", "base64": "QUJD"})
}

#[test]
fn error_paths_refer_to_the_request_after_merging() {
    let unknown = json!([{"type": "text", "text": "a"}, {"type": "hologram"}]);
    let system = [say("system", "A"), say("system", "B")];
    let request = json!({"messages": [system[0], system[1], say("user", unknown.clone())]});
    let block_after_system = failure(SHOW, &request, "UNKNOWN_BLOCK", "messages[2].content[1]");
    let request = json!({"messages": [say("user", "one"), say("user", unknown)]});
    let block_after_user = failure(STRICT, &request, "UNKNOWN_BLOCK", "messages[1].content[1]");
    let request =
        json!({"adapter": "chatml", "messages": [system[0], system[1], say("user", "x"), say("wizard", "x")]});
    let role = failure(SHOW, &request, "INVALID_REQUEST", "messages[3].role");
    let calls = |calls: Value| json!({"role": "assistant", "tool_calls": calls});
    let request = json!({
        "adapter": "chatml", "capabilities": ["REQUIRES_STRICT_TURNS"],
        "messages": [say("user", "x"), calls(json!([{"function": {"name": "f"}}])), calls(json!(5))],
    });
    let calls = failure(SHOW, &request, "INVALID_REQUEST", "messages[2].tool_calls");
    error_texts::check_rows("render/merged", [block_after_system, block_after_user, role, calls]);
}

#[test]
fn warning_paths_refer_to_the_request_after_merging() {
    let template =
        "{% for m in messages %}{% for c in m.tool_calls %}{{ c.function.arguments.items() }}{% endfor %}{% endfor %}";
    let calls =
        |name: &str| json!({"role": "assistant", "tool_calls": [{"function": {"name": name, "arguments": "{}"}}]});
    let request = json!({"messages": [say("system", "A"), say("system", "B"), say("user", "x"), calls("f")]});
    let answer = answer(&ModelFolder::new("tiny").with_template(template).models(), &request);
    // The template fails for text arguments, which become objects. The one below takes them.
    assert_eq!(answer["prompt"], "dict_items([])", "{answer}");
    let template = format!("{{% if false %}}{template}{{% endif %}}{{{{ messages | tojson }}}}");
    let answer = tandem_tests::answer(&ModelFolder::new("tiny").with_template(&template).models(), &request);
    let expected =
        [("MESSAGES_MERGED", "messages[0]"), ("TOOL_ARGUMENTS_TYPE", "messages[3].tool_calls[0].function.arguments")];
    assert_eq!(warnings(&answer), expected);
}

#[test]
fn merge_warning_length_is_bounded() {
    let messages: Vec<_> = (0..10_000).map(|_| say("system", "a")).chain([say("user", "b")]).collect();
    let answer = answer(&ModelFolder::new("tiny").with_template(SHOW).models(), &json!({"messages": messages}));
    let text = answer["warnings"][0]["text"].as_str().expect("a text");
    assert!(text.len() < 400, "{text}");
    error_texts::check("warning/many-merged", text);
}

fn hf(template: &str, request: &Value) -> Value {
    let mut answer = answer(&ModelFolder::new("tiny").with_template(template).models(), request);
    assert!(answer["hf_messages"].is_array(), "{answer}");
    answer["hf_messages"].take()
}

#[test]
fn hf_messages_are_normalized_like_text_prompts() {
    let request = json!({"messages": [say("system", "A"), say("system", "B"), say("user", json!([image()]))]});
    let expected = json!([say("system", "A\n\nB"), say("user", json!([image()]))]);
    assert_eq!(hf(SHOW, &request), expected);
    let strict = json!({"messages": [say("user", "See"), say("user", json!([image()]))]});
    assert_eq!(hf(STRICT, &strict), json!([say("user", json!([{"type": "text", "text": "See"}, image()]))]));
    let none = json!({"normalization": "none", "messages": [say("user", "See"), say("user", json!([image()]))]});
    assert_eq!(hf(SHOW, &none), none["messages"]);
    let merged = answer(&ModelFolder::new("tiny").with_template(STRICT).models(), &strict);
    assert_eq!(
        warnings(&merged),
        [("IMAGES_NOT_SUPPORTED", "messages[1].content[0]"), ("MESSAGES_MERGED", "messages[0]")]
    );
}

#[test]
fn hf_messages_are_validated_like_text_prompts() {
    let with_image = say("user", json!([image()]));
    let check = |message: Value, reason: &str, field: &str| {
        failure(
            SHOW,
            &json!({"messages": [say("system", "A"), say("system", "B"), with_image, message]}),
            reason,
            field,
        )
    };
    let nested = json!([{"type": "tool_result", "content": [{"type": "hologram"}]}]);
    let messages = [
        check(json!({"content": "x"}), "INVALID_REQUEST", "messages[3].role"),
        check(say("user", 5), "INVALID_REQUEST", "messages[3].content"),
        check(say("user", json!([{"type": "text"}])), "INVALID_REQUEST", "messages[3].content[0].text"),
        check(say("user", json!([{"type": "hologram"}])), "UNKNOWN_BLOCK", "messages[3].content[0]"),
        check(say("user", json!([{"type": "image"}])), "INVALID_REQUEST", "messages[3].content[0].base64"),
        check(say("user", nested), "UNKNOWN_BLOCK", "messages[3].content[0].content[0]"),
    ];
    error_texts::check_rows("render/hf-messages", messages);
}

#[test]
fn keys_of_blocks_reach_hf_messages() {
    let blocks = json!([
        {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}},
        {"type": "image", "base64": "QUJD", "detail": "low", "mime_type": "image/webp"},
    ]);
    let request = json!({"messages": [say("user", blocks)]});
    assert_eq!(hf(SHOW, &request), request["messages"]);
}

#[test]
fn openai_image_blocks_become_image_blocks() {
    let check = |block: Value, expected: Value| {
        let messages = hf(SHOW, &json!({"messages": [say("user", json!([block]))]}));
        assert_eq!(messages[0]["content"][0], expected);
    };
    check(
        json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD", "detail": "high"}}),
        json!({"type": "image", "base64": "QUJD", "detail": "high", "mime_type": "image/png"}),
    );
    check(
        json!({"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}),
        json!({"type": "image", "url": "https://example.com/a.png"}),
    );
    check(
        json!({"type": "input_image", "image_url": "data:image/gif;base64,QUJD"}),
        json!({"type": "image", "base64": "QUJD", "mime_type": "image/gif"}),
    );
}

#[test]
fn nested_keys_do_not_replace_block_keys() {
    let inner =
        json!({"url": "https://x/y", "type": "text", "base64": "zz", "path": "p", "mime_type": "m", "detail": "low"});
    let blocks = json!([{"type": "image_url", "image_url": inner}]);
    let mapped = hf(SHOW, &json!({"messages": [say("user", blocks)]}));
    assert_eq!(mapped[0]["content"][0], json!({"type": "image", "url": "https://x/y", "detail": "low"}));
    let sound = json!([{"type": "input_audio", "input_audio": {"data": "QUJD", "format": "mp3"}}, image()]);
    let mapped = hf(SHOW, &json!({"messages": [say("user", sound)]}));
    assert_eq!(mapped[0]["content"][0], json!({"type": "audio", "base64": "QUJD", "mime_type": "audio/mpeg"}));
}

#[test]
fn warnings_of_one_kind_are_bounded() {
    let calls: Vec<_> = (0..1000).map(|_| json!({"function": {"name": "f", "arguments": "{}"}})).collect();
    let template =
        "{% if false %}{{ messages[0].tool_calls[0].function.arguments.items() }}{% endif %}{{ messages | tojson }}";
    let request = json!({"messages": [{"role": "assistant", "tool_calls": calls}]});
    let answer = answer(&ModelFolder::new("tiny").with_template(template).models(), &request);
    let of_calls = answer["warnings"].as_array().expect("warnings");
    assert_eq!(of_calls.len(), 16);
    error_texts::check("warning/further-warnings", of_calls[15]["text"].as_str().expect("a warning has a text"));
    let messages = [vec![say("user", json!([image()]))], vec![json!({"role": "user"}); 1000]].concat();
    let models = ModelFolder::new("tiny").with_template(SHOW).models();
    let answer = tandem_tests::answer(&models, &json!({"messages": messages}));
    assert!(answer["hf_messages"].is_array(), "{answer}");
    let without_content = warnings(&answer).into_iter().filter(|(code, _)| *code == "NO_CONTENT");
    assert_eq!(without_content.count(), 16, "of HF messages");
}

#[test]
fn images_of_tool_results_and_tool_messages_reach_hf_messages() {
    let url = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}});
    let result = |image: Value| json!([{"type": "tool_result", "tool_use_id": "1", "content": [image]}]);
    let request = json!({"messages": [say("user", result(url.clone())), say("tool", json!([url]))]});
    let mapped = json!({"type": "image", "base64": "QUJD", "mime_type": "image/png"});
    let answer = json!({"role": "tool", "tool_call_id": "1", "content": [mapped]});
    assert_eq!(hf(SHOW, &request), json!([answer, say("tool", json!([mapped]))]));
}

#[test]
fn a_pinned_adapter_warns_of_images_that_it_does_not_show() {
    let result = json!([{"type": "tool_result", "content": [image()]}]);
    let request = json!({"adapter": "chatml", "messages": [say("user", "a"), say("user", json!([image()])), say("user", result)]});
    let models = ModelFolder::new("tiny").with_template(SHOW).models();
    let by_request = answer(&models, &request);
    assert_eq!(warnings(&by_request), [("IMAGES_IGNORED", "messages[1].content[0]")]);
    assert!(by_request["prompt"].as_str().expect("a prompt").contains("<image>"));
    let text = by_request["warnings"][0]["text"].as_str().expect("a warning has a text");
    error_texts::check("warning/images-ignored", text);
    let template =
        json!({"adapter": "tokenizer-template", "normalization": "none", "messages": [say("user", json!([image()]))]});
    assert_eq!(warnings(&answer(&models, &template)), [("IMAGES_IGNORED", "messages[0].content[0]")]);
}

#[test]
fn block_types_match_only_as_a_whole() {
    let template = "{% for b in messages[0].content %}{% if b.type == 'image_pad' %}x{% endif %}{% endfor %}";
    let block =
        |kind: &str| json!({"adapter": "tokenizer-template", "messages": [say("user", json!([{"type": kind}]))]});
    let message = failure(template, &block("pad"), "UNKNOWN_BLOCK", "messages[0].content[0]");
    error_texts::check("render/other-block", message);
    let known = answer(&ModelFolder::new("tiny").with_template(template).models(), &block("image_pad"));
    assert_eq!(known["prompt"], "x");
}

/// Returns a request with one user message of these blocks, for the model's template.
fn with_blocks(blocks: Value) -> Value {
    json!({"adapter": "tokenizer-template", "messages": [say("user", blocks)]})
}

#[test]
fn a_string_of_the_template_that_is_no_type_of_a_block_is_no_known_type() {
    let text = json!({"type": "text", "text": "a"});
    let refused = |template: &str, block: Value| {
        failure(template, &with_blocks(json!([text, block])), "UNKNOWN_BLOCK", "messages[0].content[1]");
    };
    // The template prints the block as an object, fails for a list, or loses the block.
    let prints = "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}";
    refused(prints, json!({"type": "user", "x": 1}));
    refused(&prints.replace("m.content", "'<' + m.content"), json!({"type": "user", "x": 1}));
    refused(&prints.replace("m.content", "m.content | tojson"), json!({"type": "user", "user": "x"}));
    let walks = "{% for b in messages[0].content %}{% if b.type == 'text' %}{{ b.text }}{% elif b.type == 'audio' %}\
                 <audio>{% endif %}{% endfor %}{% for p in tools or [] %}{{ 'S' if p.type == 'string' }}{% endfor %}";
    refused(walks, json!({"type": "string", "string": "x"}));
    let raises = "{% for b in messages[0].content %}{% if b.type == 'text' %}{{ b.text }}{% else %}\
                  {{ raise_exception('no ' ~ b.type ~ ' for user') }}{% endif %}{% endfor %}{{ 'user' }}";
    refused(raises, json!({"type": "user"}));
}

#[test]
fn a_type_that_the_template_compares_with_a_block_is_known() {
    let check = |template: &str, block: Value, expected: &str| {
        let models = ModelFolder::new("tiny").with_template(template).models();
        let shown = answer(&models, &with_blocks(json!([block])));
        assert_eq!(shown["prompt"], expected, "{template}: {shown}");
    };
    let walks = |test: &str, shown: &str| {
        format!("{{% for b in messages[0].content %}}{{% if {test} %}}{shown}{{% endif %}}{{% endfor %}}")
    };
    check(&walks("b['type'] in ['audio', 'sound']", "{{ b.sound }}"), json!({"type": "sound", "sound": "x"}), "x");
    check(
        &walks("b.get('type') == 'thinking'", "{{ b.thinking[0].text }}"),
        json!({"type": "thinking", "thinking": [{"text": "x"}]}),
        "x",
    );
    check(&walks("'image_url' in b", "<i>"), json!({"type": "image_url", "image_url": {"url": "https://a/b"}}), "<i>");
    let macros = "{% macro show(c) %}{% for b in c %}{% set t = b.type %}{% if t == 'audio' %}<a>{% endif %}{% endfor %}\
                  {% endmacro %}{{ show(messages[0].content) }}";
    check(macros, json!({"type": "audio", "base64": "QUJD"}), "<a>");
    // The template shows the block in the last message only. The small conversations reveal it.
    let last = "{% for m in messages %}{% for b in m.content %}{% if b.type == 'thinking' and loop.last and m == messages[-1] %}\
                <t>{% endif %}{% endfor %}{% endfor %}";
    let models = ModelFolder::new("tiny").with_template(last).models();
    let thinking = say("assistant", json!([{"type": "thinking", "thinking": "x"}]));
    let shown = answer(&models, &json!({"messages": [say("user", "a"), thinking, say("user", "b")]}));
    assert_eq!(shown["prompt"], "", "{shown}");
    // A template that fails without the block too returns its error.
    let fails = "{{ raise_exception('no') if messages }}{{ 'audio' }}";
    failure(fails, &with_blocks(json!([{"type": "audio"}])), "TEMPLATE_RAISED", "messages");
}

#[track_caller]
fn converts(form: ContentForm, content: &Value, expected: &Value) {
    let mut message = Traced::new(0, say("user", content.clone()));
    forms::apply(&mut message, form).expect("converts");
    assert_eq!(message.message["content"], *expected, "{form:?} {content}");
}

#[test]
fn content_has_the_form_that_a_template_needs() {
    let text = |text: &str| json!({"type": "text", "text": text});
    let two = json!([text("a"), text("b")]);
    converts(ContentForm::AsIs, &two, &two);
    converts(ContentForm::Text, &two, &json!("ab"));
    converts(ContentForm::List, &two, &two);
    converts(ContentForm::OneBlock, &two, &json!([text("ab")]));
    let string = json!("a");
    converts(ContentForm::AsIs, &string, &string);
    converts(ContentForm::Text, &string, &string);
    converts(ContentForm::List, &string, &json!([text("a")]));
    converts(ContentForm::OneBlock, &string, &json!([text("a")]));
    for form in [ContentForm::AsIs, ContentForm::Text, ContentForm::List, ContentForm::OneBlock] {
        converts(form, &json!(null), &json!(null));
        converts(form, &json!([text("a"), image()]), &json!([text("a"), image()]));
    }
    let mut broken = Traced::new(3, say("user", json!([text("a"), {"type": "text"}])));
    let invalid = forms::apply(&mut broken, ContentForm::Text).expect_err("the block has no text");
    assert_eq!(invalid.field.to_string(), "messages[3].content[1].text");
}

#[test]
fn null_content_beside_calls_becomes_an_empty_text() {
    let filled = |message: Value| {
        let mut traced = Traced::new(0, message);
        null_content::fill(&mut traced);
        traced.message
    };
    let calls = json!([{"function": {"name": "f"}}]);
    let message = json!({"role": "assistant", "content": "", "tool_calls": calls});
    assert_eq!(filled(json!({"role": "assistant", "content": null, "tool_calls": calls})), message);
    assert_eq!(filled(json!({"role": "assistant", "tool_calls": calls})), message);
    for other in [
        json!({"role": "assistant", "content": null}),
        json!({"role": "assistant", "content": null, "tool_calls": []}),
        json!({"role": "assistant", "content": "x", "tool_calls": calls}),
    ] {
        assert_eq!(filled(other.clone()), other);
    }
}

#[test]
fn a_template_that_needs_content_names_the_message_with_null_content() {
    let template = "{% for m in messages %}{{ '<' + m.content }}{% endfor %}";
    let calls =
        json!({"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": {}}}]});
    let request = json!({"normalization": "none", "messages": [say("user", "q"), calls, say("tool", "4")]});
    let null = failure(template, &request, "TEMPLATE_FAILED", "messages[1]");
    let request =
        json!({"messages": [say("system", "a"), say("system", "b"), say("user", "q"), {"role": "assistant"}]});
    let missing = failure(template, &request, "TEMPLATE_FAILED", "messages[3]");
    error_texts::check_rows("render/null-content", [null, missing]);
}

#[test]
fn parts_of_messages_that_a_format_never_writes_cause_warnings() {
    let call = json!({"function": {"name": "f", "arguments": {}}});
    let said = json!({"role": "assistant", "content": "a", "reasoning_content": "Hm.", "tool_calls": [call, call]});
    let failed = json!([{"type": "tool_result", "content": "x", "is_error": true}]);
    for adapter in ["chatml", "llama3", "plain"] {
        let request = json!({"adapter": adapter, "messages": [say("system", "A"), say("system", "B"), say("user", "q"), said, say("user", failed.clone())]});
        let answer = answer(&ModelFolder::new("tiny").models(), &request);
        let expected = [
            ("MESSAGES_MERGED", "messages[0]"),
            ("REASONING_IGNORED", "messages[3].reasoning_content"),
            ("MESSAGE_IGNORED", "messages[4].content[0].is_error"),
        ];
        assert_eq!(warnings(&answer), expected, "{adapter}");
    }
}

/// Messages of the tool replace a user's message that consists of results. Its keys fit none of them.
#[test]
fn keys_of_a_users_message_with_only_results_have_warnings() {
    let block = json!({"type": "tool_result", "tool_use_id": "a", "content": "-3"});
    let answer = |last: Value, normalization: &str| {
        let call = json!([{"type": "tool_use", "id": "a", "name": "f", "input": {}}]);
        let messages = [say("system", "A"), say("system", "B"), say("user", "q"), say("assistant", call), last];
        let request = json!({"messages": messages, "normalization": normalization});
        answer(&ModelFolder::new("tiny").with_template(SHOW).models(), &request)
    };
    let results = json!({"role": "user", "name": "Ann", "x": {"y": 1}, "z": null, "content": [block, block]});
    let found = answer(results.clone(), "capability");
    let expected = [
        ("MESSAGES_MERGED", "messages[0]"),
        ("MESSAGE_IGNORED", "messages[4].name"),
        ("MESSAGE_IGNORED", "messages[4].x"),
    ];
    assert_eq!(warnings(&found), expected);
    error_texts::check("rewriting/keys-of-results", found["warnings"][1]["text"].as_str().expect("a text"));
    assert!(warnings(&answer(results, "none")).is_empty());
    let with_text = json!({"role": "user", "name": "Ann", "content": [block, {"type": "text", "text": "And?"}]});
    let found = answer(with_text, "capability");
    assert_eq!(warnings(&found), [("MESSAGES_MERGED", "messages[0]")]);
    assert!(found["prompt"].as_str().is_some_and(|prompt| prompt.contains("Ann")), "{found}");
    let of_tool = json!({"role": "tool", "name": "f", "content": [block]});
    let found = answer(of_tool, "capability");
    assert_eq!(warnings(&found), [("MESSAGES_MERGED", "messages[0]")]);
    assert!(found["prompt"].as_str().is_some_and(|prompt| prompt.contains(r#""name": "f""#)), "{found}");
}

#[test]
fn plain_prompt_ids_begin_with_the_tokenizer_bos() {
    let models = ModelFolder::new("tiny").with_tokens_around().models();
    let request = |text: &str| json!({"messages": [say("user", text)], "return": ["token_ids", "offsets"]});
    let rendered = answer(&models, &request("ab"));
    assert_eq!((&rendered["adapter"], &rendered["prompt"]), (&json!("plain"), &json!("ab")));
    let (a, b) = (rendered["token_ids"][1].clone(), rendered["token_ids"][2].clone());
    assert_eq!(rendered["token_ids"], json!([256, a, b]));
    assert_eq!(rendered["offsets"], json!([[0, 0], [0, 1], [1, 2]]));
    assert_eq!(answer(&models, &request("<s>ab"))["token_ids"], json!([256, a, b]));
}

#[test]
fn an_input_schema_is_read_as_parameters() {
    let schema = json!({"type": "object", "properties": {"path": {"type": "string"}}});
    let tool = json!({"name": "read", "description": "Reads", "input_schema": schema, "cache_control": 1});
    let request = |adapter: &str, policy: &str, tool: &Value| json!({"adapter": adapter, "normalization": policy, "messages": [say("user", "x")], "tools": [tool]});
    let models = ModelFolder::new("tiny").with_template("{{ tools | tojson }}").models();
    let prompt = |request: &Value| answer(&models, request)["prompt"].as_str().expect("a prompt").to_owned();
    let usual = json!([{"type": "function", "function": {"name": "read", "description": "Reads", "parameters": schema},
                        "cache_control": 1}]);
    let shown: Value =
        serde_json::from_str(&prompt(&request("tokenizer-template", "capability", &tool))).expect("JSON");
    assert_eq!(shown, usual);
    let untouched: Value = serde_json::from_str(&prompt(&request("tokenizer-template", "none", &tool))).expect("JSON");
    assert_eq!(untouched, json!([tool]));
    assert!(prompt(&request("chatml", "capability", &tool)).contains("Parameters: {path: string}"));
    assert!(prompt(&request("chatml", "none", &tool)).contains("### read"));
    let nested = json!({"type": "function", "function": {"name": "read", "input_schema": schema}});
    assert!(prompt(&request("llama3", "capability", &nested)).contains("Parameters: {path: string}"));
    let outside = json!({"type": "function", "function": {"name": "read", "parameters": null}, "inputSchema": schema});
    assert!(prompt(&request("llama3", "capability", &outside)).contains("Parameters: {path: string}"));
    let both = json!({"name": "read", "parameters": {"type": "object"}, "input_schema": schema});
    let answered = answer(&models, &request("chatml", "capability", &both));
    assert_eq!(warnings(&answered), [("TOOL_PARAMETERS_IGNORED", "tools[0].input_schema")]);
    let nameless = json!({"input_schema": schema});
    let message = failure(SHOW, &request("chatml", "capability", &nameless), "INVALID_REQUEST", "tools[0].name");
    error_texts::check("render/tool-without-name", message);
}

#[test]
fn unrenderable_tool_parameters_cause_a_warning() {
    let models = ModelFolder::new("tiny").models();
    let check = |parameters: Value, expected: &[(&str, &str)]| {
        let tool = json!({"type": "function", "function": {"name": "f", "parameters": parameters}});
        let request = json!({"adapter": "chatml", "messages": [say("user", "x")], "tools": [tool]});
        assert_eq!(warnings(&answer(&models, &request)), expected, "{parameters}");
    };
    let lost = [("TOOL_PARAMETERS_IGNORED", "tools[0].function.parameters")];
    check(json!([{"name": "a"}]), &lost);
    check(json!({"type": "object", "properties": ["a"]}), &lost);
    check(json!({"type": "string"}), &lost);
    check(json!({"a": {"type": "string"}}), &lost);
    check(json!({"type": "object"}), &[]);
    check(json!({"type": "object", "properties": {}}), &[]);
    check(json!({}), &[]);
    let flat =
        json!({"adapter": "chatml", "messages": [say("user", "x")], "tools": [{"name": "f", "input_schema": [1]}]});
    assert_eq!(warnings(&answer(&models, &flat)), [("TOOL_PARAMETERS_IGNORED", "tools[0].input_schema")]);
}

#[test]
fn reserved_template_args_are_ignored_with_a_warning() {
    let template = "{{ tokenize is defined }}{{ add_generation_prompt }}{{ messages[0].content }}{{ flag }}";
    let names = ["messages", "tools", "documents", "chat_template", "tokenize"];
    let args: serde_json::Map<_, _> = names.iter().map(|name| ((*name).to_owned(), json!(false))).collect();
    let mut request = json!({"messages": [say("user", "x")], "template_args": args});
    request["template_args"]["flag"] = 7.into();
    let answer = answer(&ModelFolder::new("tiny").with_template(template).models(), &request);
    assert_eq!(answer["prompt"], "FalseTruex7");
    let paths: Vec<_> = names.iter().map(|name| format!("template_args.{name}")).collect();
    let expected: Vec<_> = paths.iter().map(|path| ("TEMPLATE_ARG_RESERVED", path.as_str())).collect();
    assert_eq!(warnings(&answer), expected);
    let texts = answer["warnings"].as_array().expect("an array").iter();
    let texts = texts.map(|warning| warning["text"].as_str().expect("a warning has a text"));
    error_texts::check_rows("warning/reserved-argument", texts);
}

/// transformers takes both as parameters of `apply_chat_template`.
#[test]
fn template_args_of_options_count_where_the_options_are_unset() {
    let template = "{% for m in messages %}<{{ m.content }}>{% endfor %}{% if add_generation_prompt %}A:{% endif %}";
    let models = ModelFolder::new("tiny").with_template(template).models();
    let messages = json!([say("user", "q"), say("assistant", "a")]);
    let ask = |args: Value, options: Value| {
        let mut request = json!({"messages": messages, "template_args": args});
        request.as_object_mut().expect("an object").extend(options.as_object().expect("an object").clone());
        answer(&models, &request)
    };
    for (args, options, expected) in [
        (json!({"add_generation_prompt": false}), json!({}), "<q><a>"),
        (json!({"add_generation_prompt": true}), json!({"add_generation_prompt": true}), "<q><a>A:"),
        (json!({"add_generation_prompt": null}), json!({}), "<q><a>A:"),
        (json!({"continue_final_message": true}), json!({}), "<q><a"),
        (json!({"continue_final_message": "content"}), json!({}), "<q><a"),
        (json!({"continue_final_message": "content"}), json!({"continue_final_message": true}), "<q><a"),
        (json!({"continue_final_message": false}), json!({}), "<q><a>A:"),
    ] {
        let answer = ask(args.clone(), options);
        assert_eq!((&answer["prompt"], warnings(&answer).len()), (&json!(expected), 0), "{args}: {answer}");
    }
    // An option of the request has priority over the argument.
    let contradicted = ask(json!({"add_generation_prompt": true}), json!({"add_generation_prompt": false}));
    assert_eq!(contradicted["prompt"], "<q><a>");
    assert_eq!(warnings(&contradicted), [("TEMPLATE_ARG_RESERVED", "template_args.add_generation_prompt")]);
    for (name, value) in [("add_generation_prompt", json!("no")), ("continue_final_message", json!(1))] {
        let answer = ask(json!({name: value}), json!({}));
        assert_eq!(answer["error"]["reason"], "INVALID_REQUEST", "{answer}");
        assert_eq!(answer["error"]["field"], format!("template_args.{name}"));
    }
}

/// The author's adapter ignores names that the encoder does not define.
#[test]
fn deepseek_ignores_template_args_of_options() {
    let models = ModelFolder::new("tiny").with_architecture("deepseek_v32").models();
    let ask = |args: Value| answer(&models, &json!({"messages": [say("user", "q")], "template_args": args}));
    let ignored = ask(json!({"add_generation_prompt": false, "continue_final_message": 7}));
    assert_eq!(ignored["prompt"], ask(json!({}))["prompt"]);
}

/// The model's reasoning is continued in each of its names. transformers ends the first prompt so.
#[test]
fn final_message_is_continued_within_the_named_field() {
    let template =
        "{% for m in messages %}{{ m.role }}<think>{{ m.reasoning_content }}</think>{{ m.content }};{% endfor %}";
    let models = ModelFolder::new("tiny").with_template(template).models();
    let ask = |field: Value, message: Value, adapter: Value| {
        let request = json!({"messages": [message], "continue_final_message": field, "adapter": adapter});
        answer(&models, &request)
    };
    let reasoned = json!({"role": "assistant", "reasoning_content": "The user wants ", "content": ""});
    let expected = "assistant<think>The user wants ";
    for field in ["reasoning_content", "thinking"] {
        assert_eq!(ask(json!(field), reasoned.clone(), json!(null))["prompt"], expected, "{field}");
    }
    let other = json!({"role": "assistant", "reasoning": "The user wants ", "content": null});
    assert_eq!(ask(json!("reasoning"), other.clone(), json!(null))["prompt"], expected);
    assert_eq!(ask(json!("content"), say("assistant", "a"), json!(null))["prompt"], "assistant<think></think>a");
    let refused = |field: Value, message: &Value, adapter: Value| {
        let answer = ask(field, message.clone(), adapter);
        assert_eq!(answer["error"]["field"], "continue_final_message", "{answer}");
        assert_eq!(answer["error"]["reason"], "INVALID_REQUEST");
        answer["error"]["message"].as_str().expect("text").to_owned()
    };
    let texts = [
        refused(json!("reasoning_content"), &say("assistant", "a"), json!(null)),
        refused(json!("name"), &json!({"role": "assistant", "name": "n", "content": "a"}), json!(null)),
        refused(json!("reasoning_content"), &reasoned, json!("chatml")),
        refused(json!("reasoning_content"), &reasoned, json!("gemma-4")),
        refused(json!(""), &reasoned, json!(null)),
        refused(json!(1), &reasoned, json!(null)),
    ];
    error_texts::check_rows("continue/refused", texts);
}

#[test]
fn deepseek_continues_reasoning_in_thinking_mode() {
    for family in ["deepseek_v32", "deepseek_v4"] {
        let models = ModelFolder::new("tiny").with_architecture(family).models();
        let ask = |field: &str, thinking: bool| {
            let final_message = json!({"role": "assistant", "reasoning_content": "Because ", "content": "Yes"});
            answer(
                &models,
                &json!({
                    "messages": [say("user", "Why?"), final_message],
                    "continue_final_message": field,
                    "template_args": {"thinking": thinking},
                }),
            )
        };
        let prompt = ask("reasoning_content", true)["prompt"].as_str().expect("a prompt").to_owned();
        assert!(prompt.ends_with("<｜Assistant｜><think>Because "), "{prompt}");
        let prompt = ask("content", true)["prompt"].as_str().expect("a prompt").to_owned();
        assert!(prompt.ends_with("<think>Because </think>Yes"), "{prompt}");
        assert_eq!(ask("reasoning_content", false)["error"]["field"], "continue_final_message");
        assert_eq!(ask("thinking", true)["error"]["field"], "continue_final_message");
    }
}

#[test]
fn capabilities_without_effect_are_ignored_with_a_warning() {
    let family = ModelFolder::new("tiny").with_architecture("deepseek_v32").models();
    let template = ModelFolder::new("tiny").with_template("{{ messages[0].content }}").models();
    let ask = |models: &ModelTable, policy: &str| {
        let request = json!({
            "messages": [say("user", "q")], "capabilities": ["REQUIRES_STRICT_TURNS"], "normalization": policy,
        });
        warnings(&answer(models, &request)).into_iter().map(|(code, path)| format!("{code} {path}")).collect::<Vec<_>>()
    };
    assert_eq!(ask(&family, "capability"), ["OPTION_IGNORED capabilities"]);
    for policy in ["none", "capability"] {
        assert_eq!(ask(&template, policy), Vec::<String>::new());
    }
}

/// `return` is one key for two options of the contract.
#[test]
fn return_without_effect_is_ignored_with_one_warning() {
    let models = ModelFolder::new("tiny").with_template("{{ messages[0].content }}").models();
    let image = json!({"role": "user", "content": [{"type": "image", "base64": "SU1H"}]});
    let request = json!({"messages": [image], "return": ["token_ids", "offsets"]});
    let answer = answer(&models, &request);
    let ignored: Vec<_> = warnings(&answer).into_iter().filter(|(code, _)| *code == "OPTION_IGNORED").collect();
    assert_eq!(ignored, [("OPTION_IGNORED", "return")]);
    // A task sets both options itself.
    let job = cli::json::request(&request.to_string(), LocalTime::EPOCH).expect("a request");
    let rendered = render(&models, RenderJob { is_task: true, ..job }, &Limits::default()).expect("renders");
    assert!(rendered.warnings.iter().all(|warning| warning.code != WarningCode::OptionIgnored));
}

#[test]
fn model_path_identifies_its_repository() {
    let adapter = |name: &str| {
        let request = json!({"messages": [say("user", "x")]});
        answer(&ModelFolder::new("x").at(name).models(), &request)["adapter"].clone()
    };
    assert_eq!(adapter("deepseek-ai/DeepSeek-V3.2"), "deepseek-v3.2");
    assert_eq!(adapter("hub/DeepSeek-AI/deepseek-v3.2"), "deepseek-v3.2");
    assert_eq!(adapter("example/DeepSeek-V3.2"), "chatml");
    // Both the path as given and the path after its links are resolved select the adapter.
    let folder = TempDir::new().expect("a folder");
    let (blob, named) = (folder.path().join("store/abc"), folder.path().join("deepseek-ai/DeepSeek-V3.2"));
    for path in [&blob, &named] {
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
    }
    std::fs::create_dir(&blob).expect("a folder");
    std::fs::write(blob.join("tokenizer_config.json"), "{}").expect("a file");
    std::os::unix::fs::symlink(&blob, &named).expect("a link");
    let model = ServedModel::load(&named).expect("loads");
    assert_eq!(model.adapter.adapter().name, "deepseek-v3.2");
}

#[test]
fn unknown_model_with_chatml_tokens_uses_chatml_with_a_warning() {
    let tokens = [("<|im_start|>", true), ("<|im_end|>", true)];
    let request = json!({"messages": [say("user", "x")]});
    let guessed = answer(&ModelFolder::new("custom-model").with_tokens(&tokens).models(), &request);
    assert_eq!(guessed["prompt"], "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n");
    assert_eq!(warnings(&guessed), [("FORMAT_GUESSED", "model")]);
    let named = answer(&ModelFolder::new("qwen-custom").with_tokens(&tokens).models(), &request);
    assert_eq!((&named["adapter"], warnings(&named)), (&json!("chatml"), vec![("FORMAT_GUESSED", "model")]));
    let llama = answer(&ModelFolder::new("llama-custom").with_tokens(&tokens).models(), &request);
    assert_eq!((&llama["adapter"], warnings(&llama)), (&json!("chatml"), vec![("FORMAT_GUESSED", "model")]));
    let other = answer(&ModelFolder::new("custom-model").with_tokens(&[]).models(), &request);
    assert_eq!((&other["adapter"], warnings(&other)), (&json!("plain"), vec![("FORMAT_GUESSED", "model")]));
}

#[test]
fn rejected_system_message_is_rewritten_as_a_user_message() {
    let template = "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}\
                    {% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}";
    let request = json!({"messages": [say("system", "S"), say("user", "U")]});
    let model = ModelFolder::new("tiny").with_template(template);
    let rendered = answer(&model.models(), &request);
    assert_eq!(rendered["prompt"], "user:[System]: S;user:U;");
    assert_eq!(warnings(&rendered), [("SYSTEM_REWRITTEN", "messages[0]")]);
    // The wording of the template's error does not matter.
    let otherwise = template.replace("System role not supported", "No, thank you");
    let rendered = answer(&ModelFolder::new("tiny").with_template(&otherwise).models(), &request);
    assert_eq!(rendered["prompt"], "user:[System]: S;user:U;");
    // If a template rejects system messages only after the first message, a leading one stays
    // unchanged. Other capabilities do not matter.
    let tools = "{% if tools %}{% endif %}{% for m in messages %}{% if m.role == 'system' and not loop.first %}\
                 {{ raise_exception('System role not supported') }}{% endif %}{{ m.role }}:{{ m.content }};{% endfor %}";
    let rendered = answer(&ModelFolder::new("tiny").with_template(tools).models(), &request);
    assert_eq!(rendered["prompt"], "system:S;user:U;");
    let elsewhere = "{% for m in messages[1:] %}{% if m.role == 'system' %}{{ raise_exception('System role not supported') }}\
                     {% endif %}{% endfor %}{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}";
    let rendered = answer(&ModelFolder::new("tiny").with_template(elsewhere).models(), &request);
    assert_eq!(rendered["prompt"], "system:S;user:U;");
}

#[test]
fn a_request_overrides_capabilities() {
    let models = ModelFolder::new("tiny")
        .with_template("{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}")
        .models();
    let request = |names: Value| json!({"messages": [say("system", "S"), say("user", "A"), say("user", "B")], "capabilities": names});
    let prompt = |names: Value| answer(&models, &request(names))["prompt"].clone();
    assert_eq!(prompt(json!(null)), "system:S;user:A;user:B;");
    // No flags mean that nothing is known, as in GetModel.
    assert_eq!(prompt(json!([])), "system:S;user:A;user:B;");
    assert_eq!(prompt(json!(["REQUIRES_STRICT_TURNS"])), "user:[System]: S\n\nA\n\nB;");
    assert_eq!(prompt(json!(["REQUIRES_STRICT_TURNS", "SUPPORTS_SYSTEM_ROLE"])), "system:S;user:A\n\nB;");
    let unknown = answer(&models, &request(json!(["SUPPORTS_MAGIC"])));
    assert_eq!(
        (&unknown["error"]["reason"], &unknown["error"]["field"]),
        (&json!("INVALID_REQUEST"), &json!("capabilities"))
    );
    error_texts::check("render/unknown-capability", unknown["error"]["message"].as_str().expect("a message"));
}

#[track_caller]
fn origin(origins: &Origins, path: &str, expected: &str) {
    assert_eq!(origins.path(&path.into()).to_string(), expected, "{path}");
}

#[test]
fn paths_of_an_unchanged_conversation_stay_the_same() {
    for path in ["messages[3].content[1].text", "tools[0].function.name", "template_args.x", "messages", "tools[0"] {
        origin(&Origins::default(), path, path);
    }
}

#[test]
fn tool_paths_map_to_the_tool_shape_of_the_request() {
    let schema = json!({"type": "object"});
    let mut tools = json!([
        {"name": "f", "input_schema": schema},
        {"function": {"name": "f", "input_schema": schema}},
        {"function": {"name": "f", "parameters": schema}},
        {"function": {"name": "f"}, "inputSchema": schema},
    ]);
    let origins = Origins { messages: Vec::new(), tools: tools::rewrite(&mut tools) };
    origin(&origins, "tools[3].function.parameters.x", "tools[3].inputSchema.x");
    origin(&origins, "tools[3].function.name", "tools[3].function.name");
    origin(&origins, "tools[0].function.name", "tools[0].name");
    origin(&origins, "tools[0].function.parameters.properties", "tools[0].input_schema.properties");
    origin(&origins, "tools[1].function.parameters", "tools[1].function.input_schema");
    origin(&origins, "tools[2].function.parameters", "tools[2].function.parameters");
    origin(&origins, "tools[0]", "tools[0]");
    origin(&origins, "tools[9].name", "tools[9].name");
}

#[test]
fn error_texts_omit_the_folders_above_the_model() {
    let check = |text: &str, model: &str, expected: &str| {
        assert_eq!(without_folder(text, Path::new(model)), expected, "{text} {model}");
    };
    check("/srv/models/a/config.json is not JSON", "/srv/models/a", "a/config.json is not JSON");
    check("/srv/models/a/config.json is not JSON", "/srv/models/a/", "a/config.json is not JSON");
    check("cannot read /srv/m/x-00002.gguf", "/srv/m/x-00001.gguf", "cannot read x-00002.gguf");
    check("./config.json is not the JSON that it should be.", ".", "./config.json is not the JSON that it should be.");
    check("models/a/x and models/a/y", "models/a", "a/x and a/y");
    check("no path at all", "/a", "no path at all");
}

/// The first template shows one block, the second writes each.
#[test]
fn merged_texts_keep_their_blank_line_in_lists() {
    let first = "{% for m in messages %}[{{ m.role }}]{{ m.content[0].text }}{% endfor %}";
    let each = "{% for m in messages %}[{{ m.role }}]{% for p in m.content %}<{{ p.text }}>{% endfor %}{% endfor %}";
    let messages = json!([say("system", "One."), say("system", "Two."), say("user", "x")]);
    for (template, expected) in [(first, "[system]One.\n\nTwo.[user]x"), (each, "[system]<One.\n\nTwo.>[user]<x>")] {
        let models = ModelFolder::new("tiny").with_template(template).models();
        assert_eq!(answer(&models, &json!({"messages": messages}))["prompt"], expected);
    }
}

#[test]
fn a_list_becomes_one_block_where_a_template_takes_no_other() {
    let one = "{% for m in messages %}{% if m.content is string or m.content | length != 1 %}{{ raise_exception('One block.') }}{% endif %}[{{ m.role }}]{{ m.content[0].text }}{% endfor %}";
    let blocks = json!([{"type": "text", "text": "One. "}, {"type": "text", "text": "Two."}]);
    let models = ModelFolder::new("tiny").with_template(one).models();
    let answer = answer(&models, &json!({"messages": [say("user", blocks), say("assistant", "x")]}));
    assert_eq!(answer["prompt"], "[user]One. Two.[assistant]x", "{answer}");
}

/// The contract's messages have a list of calls, and one source of a medium.
#[test]
fn values_that_the_contract_cannot_have_are_errors() {
    let with = |key: &str, value: Value| {
        let mut message = say("assistant", "");
        message[key] = value;
        json!({"messages": [say("user", "x"), message]})
    };
    let calls = failure(SHOW, &with("tool_calls", json!("y")), "INVALID_REQUEST", "messages[1].tool_calls");
    let call = failure(SHOW, &with("tool_calls", json!([{}, "y"])), "INVALID_REQUEST", "messages[1].tool_calls[1]");
    let image = json!({"type": "image", "base64": "QUJD", "url": "https://example.com/a.png"});
    let two = failure(SHOW, &with("content", json!([image])), "INVALID_REQUEST", "messages[1].content[0].url");
    let result = json!([{"type": "tool_result", "tool_use_id": "1", "content": [image]}]);
    failure(SHOW, &with("content", result), "INVALID_REQUEST", "messages[1].content[0].content[0].url");
    error_texts::check_rows("render/shapes", [calls, call, two]);
    // Transformers passes the messages on as they are.
    let mut as_given = with("tool_calls", json!("y"));
    as_given["normalization"] = "none".into();
    let answer = answer(&ModelFolder::new("tiny").with_template("{{ messages[1].tool_calls }}").models(), &as_given);
    assert_eq!(answer["prompt"], "y");
}

/// As in transformers, a template gets empty names. The contract's own fields refuse them.
#[test]
fn an_empty_name_reaches_a_template_and_no_format() {
    let function = json!({"name": "", "description": "Adds numbers", "arguments": {"a": "first"}});
    let tools = json!({"messages": [say("user", "x")], "tools": [{"type": "function", "function": function}]});
    let mut called = say("assistant", "");
    called["tool_calls"] = json!([{"id": "abcdefghi", "type": "function", "function": function}]);
    let called = json!({"messages": [say("user", "x"), called]});
    let models = ModelFolder::new("tiny").with_template(SHOW).models();
    for (request, field) in [(tools, "tools[0].function.name"), (called, "messages[1].tool_calls[0].function.name")] {
        let shown = answer(&models, &request);
        assert!(shown["prompt"].as_str().is_some_and(|prompt| prompt.contains("\"name\": \"\"")), "{shown}");
        assert_eq!(warnings(&shown), [], "{shown}");
        let mut formatted = request;
        for adapter in ["chatml", "gemma-4"] {
            formatted["adapter"] = adapter.into();
            failure(SHOW, &formatted, "INVALID_REQUEST", field);
        }
    }
}

/// Models that OpenAI's clients call get null there.
#[test]
fn null_content_beside_calls_becomes_empty_where_a_template_fails_for_it() {
    let template = "{% for m in messages %}<{{ m.role }}>{{ m['content'] + '' }}{% endfor %}";
    let models = ModelFolder::new("tiny").with_template(template).models();
    let call = json!({"id": "1", "type": "function", "function": {"name": "f", "arguments": {"c": "Paris"}}});
    let called = json!({"role": "assistant", "content": null, "tool_calls": [call]});
    let request = json!({"messages": [say("user", "q"), called, say("tool", "sunny"), say("user", "bye")]});
    let answer = answer(&models, &request);
    assert_eq!(answer["prompt"], "<user>q<assistant><tool>sunny<user>bye");
    assert_eq!(warnings(&answer), [("TOOL_CALLS_IGNORED", "messages[1].tool_calls[0]")]);
}
