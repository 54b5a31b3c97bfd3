//! Normalization of requests for adapters: the same for typed blocks and for HF messages. Errors
//! and warnings name the request's own fields.

use std::path::Path;

use render_svc::catalog::ServedModel;
use render_svc::error::without_folder;
use render_svc::prepare::origins::{Origins, Source, ToolOrigin};
use serde_json::{Value, json};
use tandem_tests::{ModelFolder, answer, error_texts};
use tempfile::TempDir;

/// Shows messages and tools. The only capability found in its text is system messages.
const SHOW: &str = "{{ messages | tojson }}{{ tools | tojson }}";
/// Shows messages. Its text requires strict turns.
const STRICT: &str =
    "{% if false %}{{ raise_exception('Conversation roles must alternate') }}{% endif %}{{ messages | tojson }}";

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
    // The template fails on text arguments. The request below has object arguments and shows the
    // warnings.
    assert_eq!(answer["error"]["reason"], "TEMPLATE_FAILED", "{answer}");
    let template = format!("{{% if false %}}{template}{{% endif %}}");
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
    assert_eq!(hf(STRICT, &none), none["messages"]);
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
    let template = "{% if false %}{{ messages[0].tool_calls[0].function.arguments.items() }}{% endif %}";
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
    assert_eq!(hf(SHOW, &request), json!([say("user", result(mapped.clone())), say("tool", json!([mapped]))]));
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
    let template = "{{ tokenize is defined }}{{ add_generation_prompt }}{{ messages | length }}{{ flag }}";
    let names = [
        "add_generation_prompt",
        "messages",
        "tools",
        "documents",
        "continue_final_message",
        "chat_template",
        "tokenize",
    ];
    let args: serde_json::Map<_, _> = names.iter().map(|name| ((*name).to_owned(), json!(false))).collect();
    let mut request = json!({"messages": [say("user", "x")], "template_args": args});
    request["template_args"]["flag"] = 7.into();
    let answer = answer(&ModelFolder::new("tiny").with_template(template).models(), &request);
    assert_eq!(answer["prompt"], "FalseTrue17");
    let paths: Vec<_> = names.iter().map(|name| format!("template_args.{name}")).collect();
    let expected: Vec<_> = paths.iter().map(|path| ("TEMPLATE_ARG_RESERVED", path.as_str())).collect();
    assert_eq!(warnings(&answer), expected);
    let texts = answer["warnings"].as_array().expect("an array").iter();
    let texts = texts.map(|warning| warning["text"].as_str().expect("a warning has a text"));
    error_texts::check_rows("warning/reserved-argument", texts);
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
    assert_eq!((&named["adapter"], warnings(&named)), (&json!("chatml"), vec![]));
    let llama = answer(&ModelFolder::new("llama-custom").with_tokens(&tokens).models(), &request);
    assert_eq!((&llama["adapter"], warnings(&llama)), (&json!("llama3"), vec![]));
    let other = answer(&ModelFolder::new("custom-model").with_tokens(&[]).models(), &request);
    assert_eq!((&other["adapter"], warnings(&other)), (&json!("plain"), vec![]));
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
    assert_eq!(prompt(json!([])), "user:[System]: S;user:A;user:B;");
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
    assert_eq!(origins.path(path), expected, "{path}");
}

#[test]
fn paths_of_an_unchanged_conversation_stay_the_same() {
    for path in ["messages[3].content[1].text", "tools[0].function.name", "template_args.x", "messages", "tools[0"] {
        origin(&Origins::default(), path, path);
    }
}

#[test]
fn merged_message_paths_map_to_their_source_messages() {
    let source = |message, blocks_at, calls_at| Source { message, blocks_at, calls_at };
    let origins = Origins {
        messages: vec![vec![source(0, 1, 0), source(1, 3, 0)], vec![source(2, 0, 0), source(4, 1, 2)]],
        tools: Vec::new(),
    };
    origin(&origins, "messages[0].role", "messages[0].role");
    origin(&origins, "messages[0].content[0]", "messages[0].content[0]");
    origin(&origins, "messages[0].content[2].text", "messages[0].content[1].text");
    origin(&origins, "messages[0].content[3].text", "messages[1].content[0].text");
    origin(&origins, "messages[1].tool_calls[1].function", "messages[2].tool_calls[1].function");
    origin(&origins, "messages[1].tool_calls[2].function.name", "messages[4].tool_calls[0].function.name");
    origin(&origins, "messages[9].role", "messages[9].role");
}

#[test]
fn tool_paths_map_to_the_tool_shape_of_the_request() {
    let flat = ToolOrigin { is_flat: true, schema: Some("input_schema"), is_schema_outside: false };
    let renamed = ToolOrigin { is_flat: false, ..flat };
    let outside = ToolOrigin { is_schema_outside: true, schema: Some("inputSchema"), ..renamed };
    let origins = Origins { messages: Vec::new(), tools: vec![flat, renamed, ToolOrigin::default(), outside] };
    origin(&origins, "tools[3].function.parameters.x", "tools[3].inputSchema.x");
    origin(&origins, "tools[0].function.name", "tools[0].name");
    origin(&origins, "tools[0].function.parameters.properties", "tools[0].input_schema.properties");
    origin(&origins, "tools[1].function.parameters", "tools[1].function.input_schema");
    origin(&origins, "tools[2].function.parameters", "tools[2].function.parameters");
    origin(&origins, "tools[0]", "tools[0]");
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
