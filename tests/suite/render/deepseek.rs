//! The DeepSeek families: prompts that are equal to each other, parts of prompts, and rejected
//! requests. Whole prompts are in `tests/golden`.

use std::path::Path;

use render_svc::adapter::AdapterOutput;
use render_svc::catalog::{ModelTable, ServedModel};
use render_svc::conversation::{Conversation, Invalid, Object};
use render_svc::error::Error;
use render_svc::limits::Limits;
use render_svc::warning::WarningCode;
use serde_json::{Value, json};
use tandem_common::status::Reason;
use tandem_template::LocalTime;
use tandem_tests::{AdapterRequest, ModelFolder, error_texts};

const V32: &str = "deepseek_v32";
const V4: &str = "deepseek_v4";

/// Returns a model that has only a config.
fn model(name: &str, config: &Value) -> ServedModel {
    let folder = ModelFolder::new(name).with_template("{{ messages }}");
    let path = folder.path();
    std::fs::write(path.join("config.json"), config.to_string()).expect("a file");
    ServedModel::load(&path).expect("the model loads")
}

fn render(model: &ServedModel, request: &Value) -> Result<AdapterOutput, Error> {
    (model.adapter.adapter().render)(&model.model, &AdapterRequest::new(request).input())
}

fn prompt(architecture: &str, request: &Value) -> String {
    let rendered = render(&model("tiny", &json!({"model_type": architecture})), request);
    rendered.map(|rendered| rendered.prompt).unwrap_or_else(|error| panic!("{request}: {error}"))
}

#[track_caller]
fn check(architecture: &str, request: Value, expected: &str) {
    assert_eq!(prompt(architecture, &request), expected, "{request}");
}

/// Checks the field of an invalid request. Returns the message.
#[track_caller]
fn refuses(architecture: &str, request: Value, field: &str) -> String {
    let rendered = render(&model("tiny", &json!({"model_type": architecture})), &request);
    match rendered.map(|rendered| rendered.prompt) {
        Err(Error::Invalid(Invalid { field: found, problem, .. })) => {
            assert_eq!(found.to_string(), field, "{request}");
            problem
        }
        other => panic!("{request}: {other:?}"),
    }
}

fn chat(messages: Value) -> Value {
    json!({"messages": messages, "template_args": {"thinking_mode": "chat"}})
}

fn thinking(messages: Value) -> Value {
    json!({"messages": messages, "template_args": {"thinking_mode": "thinking"}})
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn answer(text: &str, reasoning: &str) -> Value {
    json!({"role": "assistant", "content": text, "reasoning_content": reasoning})
}

fn result(id: &str, content: impl Into<Value>) -> Value {
    json!({"role": "tool", "tool_call_id": id, "content": content.into()})
}

fn call(id: &str, name: &str, arguments: impl Into<Value>) -> Value {
    json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments.into()}})
}

/// Returns a message that asks for the weather in Oslo and, if `count` is two, in Rome.
fn calls(text: &str, reasoning: &str, count: usize) -> Value {
    let both = [call("a", "weather", r#"{"city": "Oslo", "days": 2}"#), call("b", "weather", r#"{"city":"Rome"}"#)];
    let mut message = answer(text, reasoning);
    message["tool_calls"] = both[..count].to_vec().into();
    message
}

fn calling(arguments: impl Into<Value>) -> Value {
    json!({"role": "assistant", "content": "", "tool_calls": [call("a", "f", arguments)]})
}

const WEATHER: &str = r#"{"type": "function", "function": {"name": "weather", "parameters":
    {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer", "maximum": 1e+16}}}}}"#;

fn with_tools(mut request: Value) -> Value {
    request["tools"] = json!([serde_json::from_str::<Value>(WEATHER).expect("JSON")]);
    request
}

fn with_args(messages: Value, args: Value) -> Value {
    json!({"messages": messages, "template_args": args})
}

#[test]
fn v32_a_result_that_is_a_list_is_printed_as_python_does() {
    let blocks = json!([{"type": "text", "text": "it's\u{200b}"}, {"type": "image"}]);
    let printed = prompt(V32, &chat(json!([user("Go."), calls("", "", 1), result("a", blocks)])));
    let expected = r#"<result>[{'type': 'text', 'text': "it's\u200b"}, {'type': 'image'}]</result>"#;
    assert!(printed.contains(expected), "{printed}");
}

/// Returns the parameters in the prompt of a call with these arguments, as `name=value`; strings in
/// quotes.
fn parameters(architecture: &str, arguments: &str) -> String {
    let prompt = prompt(architecture, &chat(json!([user("Go."), calling(arguments)])));
    let lines = prompt.split("<｜DSML｜parameter name=\"").skip(1);
    let parameter = |line: &str| {
        let (name, rest) = line.split_once("\" string=\"").expect("a parameter");
        let (is_string, rest) = rest.split_once("\">").expect("a parameter");
        let (value, _) = rest.split_once("</｜DSML｜parameter>").expect("a parameter");
        if is_string == "true" { format!("{name}='{value}'") } else { format!("{name}={value}") }
    };
    lines.map(parameter).collect::<Vec<_>>().join(" ")
}

#[test]
fn tool_arguments_are_read_and_written_like_python() {
    let cases = [
        (r"{}", ""),
        (r#"{"a":"x \"y\"","b":"\u00e9\ud83d\ude00\/"}"#, r#"a='x "y"' b='é😀/'"#),
        (r#"{"a":1,"b":12345678901234567890123,"c":-0}"#, "a=1 b=12345678901234567890123 c=0"),
        (r#"{"a":1.0,"b":1e5,"c":1E16,"d":0.00001,"e":-0.0}"#, "a=1.0 b=100000.0 c=1e+16 d=1e-05 e=-0.0"),
        (r#"{"a":123456789012345.6,"b":0.1,"c":1e-4,"d":5e-324}"#, "a=123456789012345.6 b=0.1 c=0.0001 d=5e-324"),
        (r#"{"a":NaN,"b":-Infinity,"c":1e999,"d":[NaN]}"#, "a=NaN b=-Infinity c=Infinity d=[NaN]"),
        (r#"{"a":[1,"é",{"k":[ ]}],"b":{"z":1,"a":{}}}"#, r#"a=[1, "é", {"k": []}] b={"z": 1, "a": {}}"#),
        (r#"{"a":true,"b":null,"":"c"}"#, "a=true b=null ='c'"),
        (r#"{"a":1,"b":2,"a":{"x":1,"x":2}}"#, r#"a={"x": 2} b=2"#),
        (" \t\r\n{ \"a\" : \"\\b\\f\\n\" } ", "a='\u{8}\u{c}\n'"),
        (r#"{"a":["\u0001\"\\"]}"#, r#"a=["\u0001\"\\"]"#),
    ];
    for (arguments, expected) in cases {
        assert_eq!(parameters(V32, arguments), expected, "{arguments}");
        assert_eq!(parameters(V4, arguments), expected, "{arguments}");
    }
    let deep = format!("{}1{}", "[".repeat(450), "]".repeat(450));
    assert_eq!(parameters(V32, &format!(r#"{{"a":{deep}}}"#)), format!("a={deep}"));
}

#[test]
fn non_json_arguments_are_rejected_by_v32_and_verbatim_in_v4() {
    let long = format!(r#"{{"a": {}}}"#, "9".repeat(4301));
    let cases = [
        "",
        "no",
        "{",
        "{}x",
        r#"{"a":1,}"#,
        r#"{"a":[1,]}"#,
        r#"{"a":01}"#,
        r#"{"a":1.}"#,
        r#"{"a":.5}"#,
        r#"{"a":+1}"#,
        r#"{"a":-}"#,
        r#"{"a":1e}"#,
        "{'a':1}",
        "{a:1}",
        r#"{"a" 1}"#,
        r#"{"a":tru}"#,
        r#"{"a":"\x"}"#,
        r#"{"a":"\u12g4"}"#,
        "{\"a\":\"\u{1}\"}",
        r#"{"a":"open"#,
        "\u{feff}{}",
        "{}\u{a0}",
        &long,
    ];
    for arguments in cases {
        let request = chat(json!([user("Go."), calling(arguments)]));
        let message = refuses(V32, request, "messages[1].tool_calls[0].function.arguments");
        error_texts::check("deepseek/arguments", message);
        assert_eq!(parameters(V4, arguments), format!("arguments='{arguments}'"));
    }
    for arguments in [json!(["a"]), json!(5), json!(null)] {
        let message = refuses(V32, chat(json!([calling(arguments)])), "messages[0].tool_calls[0].function.arguments");
        error_texts::check("deepseek/arguments", message);
    }
}

fn verbatim(mut request: Value) -> Value {
    request["normalization"] = json!("none");
    request
}

/// The official encoder has the same behaviour.
#[test]
fn without_normalization_object_arguments_are_one_parameter_in_v4_and_refused_by_v32() {
    let request = verbatim(chat(json!([calling(json!({"a": 1.0}))])));
    let object = prompt(V4, &request);
    assert!(object.contains(r#"name="arguments" string="false">{"a": 1.0}<"#), "{object}");
    refuses(V32, request, "messages[0].tool_calls[0].function.arguments");
}

#[test]
fn arguments_may_be_an_object_or_text() {
    let object = json!({"a": 1.0, "b": [1, {"é": null}], "c": "x"});
    for architecture in [V32, V4] {
        let asked = |arguments: Value| chat(json!([user("Go."), calling(arguments)]));
        check(architecture, asked(object.clone()), &prompt(architecture, &asked(json!(object.to_string()))));
        let context = |arguments| with_args(json!([user("Go.")]), json!({"context": [calling(arguments)]}));
        prompt(architecture, &context(object.clone()));
    }
}

/// Returns text in two blocks.
fn blocks(first: &str, second: &str) -> Value {
    json!([{"type": "text", "text": first}, {"type": "text", "text": second}])
}

#[test]
fn v32_text_blocks_are_joined_in_every_role() {
    let calling = |content: Value| {
        let mut message = calls("", "", 1);
        message["content"] = content;
        message
    };
    let conversation = |text: &dyn Fn(&'static str, &'static str) -> Value| {
        json!([
            {"role": "system", "content": text("Be ", "brief.")},
            {"role": "user", "content": text("W", "hy?\n")},
            calling(text("", "Let me look.")),
            result("a", text("-", "3")),
            {"role": "assistant", "content": text(" So", ". ")},
            {"role": "developer", "content": text("Sum", " up.")},
        ])
    };
    let joined = prompt(V32, &chat(conversation(&|first, second| json!(format!("{first}{second}")))));
    check(V32, chat(conversation(&|first, second| blocks(first, second))), &joined);
}

/// The official encoder joins them in this way.
#[test]
fn v4_text_blocks_of_a_result_are_separated_by_a_blank_line() {
    let typed = json!([{"type": "tool_result", "tool_use_id": "a", "content": blocks("-3", "snow")}]);
    for last in [result("a", blocks("-3", "snow")), json!({"role": "user", "content": typed})] {
        let said = prompt(V4, &chat(json!([user("Go."), calls("", "", 1), last])));
        assert!(said.contains("<tool_result>-3\n\nsnow</tool_result>"), "{said}");
    }
}

#[test]
fn v4_text_blocks_are_joined_in_every_other_role() {
    let conversation = |text: &dyn Fn(&'static str, &'static str) -> Value| {
        json!([
            {"role": "system", "content": text("Be ", "brief.")},
            {"role": "user", "content": text("W", "hy?\n")},
            {"role": "assistant", "content": text(" So", ". ")},
            {"role": "latest_reminder", "content": text("No", "on.")},
            {"role": "developer", "content": text("Sum", " up.")},
        ])
    };
    let joined = prompt(V4, &chat(conversation(&|first, second| json!(format!("{first}{second}")))));
    check(V4, chat(conversation(&|first, second| blocks(first, second))), &joined);
}

#[test]
fn missing_content_is_written_as_nothing() {
    let conversation = |content: &dyn Fn(Value) -> Value| {
        chat(json!([
            content(json!({"role": "user"})),
            content(calls("", "", 1)),
            content(result("a", "")),
            content(json!({"role": "assistant"})),
            content(json!({"role": "user"})),
        ]))
    };
    let with = |content: Option<Value>| {
        move |mut message: Value| {
            let fields = message.as_object_mut().expect("an object");
            fields.remove("content");
            fields.extend(content.clone().map(|content| ("content".to_owned(), content)));
            message
        }
    };
    for architecture in [V32, V4] {
        let empty = prompt(architecture, &conversation(&with(Some(json!("")))));
        assert!(!empty.contains("None"), "{empty}");
        check(architecture, conversation(&with(None)), &empty);
        check(architecture, conversation(&with(Some(json!(null)))), &empty);
    }
}

/// As the official encoders: V3.2 prints a list as Python does, and V4 fails.
#[test]
fn without_normalization_a_users_list_is_read_as_the_official_encoders_do() {
    let request = verbatim(chat(json!([{"role": "user", "content": blocks("a", "b")}])));
    let printed = "[{'type': 'text', 'text': 'a'}, {'type': 'text', 'text': 'b'}]";
    check(V32, request.clone(), &format!("<｜begin▁of▁sentence｜><｜User｜>{printed}<｜Assistant｜></think>"));
    refuses(V4, request, "messages[0].content");
}

/// Renders the same exchange in both forms that clients use.
#[test]
fn typed_calls_and_results_render_like_tool_calls() {
    let typed_call = |id: &str, input: Value| json!({"type": "tool_use", "id": id, "name": "weather", "input": input});
    let typed_result = |id: &str, content: Value| json!({"type": "tool_result", "tool_use_id": id, "content": content});
    let typed = json!([
        user("Where is it warm?"),
        {"role": "assistant", "reasoning_content": "r1", "content": [
            {"type": "text", "text": "Let me look."},
            typed_call("a", json!({"city": "Oslo", "days": 2})),
            typed_call("b", json!({"city": "Rome"})),
        ]},
        {"role": "user", "content": [
            typed_result("a", json!("-3")),
            {"type": "text", "text": "W"},
            typed_result("b", blocks("2", "1")),
            {"type": "text", "text": "ell?"},
        ]},
        {"role": "assistant", "reasoning_content": "r2", "content": [{"type": "tool_use", "name": "f"}]},
        {"role": "tool", "content": [typed_result("c", json!(null))]},
    ]);
    let untyped = json!([
        user("Where is it warm?"),
        calls("Let me look.", "r1", 2),
        result("a", "-3"),
        result("b", "21"),
        user("Well?"),
        {"role": "assistant", "reasoning_content": "r2", "tool_calls": [call("c", "f", "{}")]},
        result("c", ""),
    ]);
    for form in [chat, thinking] {
        check(V32, form(typed.clone()), &prompt(V32, &form(untyped.clone())));
        // V4's encoder separates the texts of a result's list.
        let untyped = untyped.to_string().replace("\"21\"", "\"2\\n\\n1\"");
        let untyped = serde_json::from_str(&untyped).expect("JSON");
        check(V4, form(typed.clone()), &prompt(V4, &form(untyped)));
    }
}

#[test]
fn v32_typed_calls_follow_the_tool_calls_of_the_message() {
    let mut both = calls("", "", 1);
    both["content"] = json!([{"type": "tool_use", "id": "b", "name": "weather", "input": {"city": "Rome"}}]);
    check(V32, chat(json!([user("Go."), both])), &prompt(V32, &chat(json!([user("Go."), calls("", "", 2)]))));
}

#[test]
fn v32_user_message_with_only_results_adds_no_user_turn() {
    let typed = json!([user("Go."), calls("", "", 1),
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "-3"}]}]);
    let untyped = chat(json!([user("Go."), calls("", "", 1), result("a", "-3")]));
    check(V32, chat(typed), &prompt(V32, &untyped));
}

/// Keys of a message fit no tool message.
#[test]
fn keys_of_a_users_message_with_only_results_have_warnings() {
    let block = json!({"type": "tool_result", "tool_use_id": "a", "content": "-3"});
    let results = json!({"role": "user", "name": "Ann", "task": "title", "x": null, "content": [block]});
    let with_text = json!({"role": "user", "name": "Ann", "content": [block, {"type": "text", "text": "And?"}]});
    for architecture in [V32, V4] {
        let model = model("tiny", &json!({"model_type": architecture}));
        let warned = |request: Value| {
            let warnings = render(&model, &request).expect("renders").warnings;
            warnings.iter().map(|w| (w.code, w.path.to_string())).collect::<Vec<_>>()
        };
        let said = |last: &Value| json!([user("Go."), calls("", "", 1), last]);
        let lost =
            |path: &str| ["name", "task"].map(|key| (WarningCode::MessageIgnored, format!("{path}.{key}"))).to_vec();
        assert_eq!(warned(chat(said(&results))), lost("messages[2]"), "{architecture}");
        assert_eq!(warned(chat(said(&with_text))), [], "{architecture}");
        let context = with_args(json!([user("More.")]), json!({"context": said(&results)}));
        assert_eq!(warned(context), lost("template_args.context[2]"), "{architecture}");
    }
}

/// The id of a message of the tool is the id of its block's call.
#[test]
fn v4_a_typed_result_has_the_keys_of_its_tool_message() {
    let block = |content: &str| json!([{"type": "tool_result", "content": content}]);
    let said = |first: Value, second: Value| {
        chat(json!([user("Go."), calls("", "", 2), result("b", first), result("a", second)]))
    };
    check(V4, said(block("2"), block("1")), &prompt(V4, &said("2".into(), "1".into())));
}

/// Returns a request whose last message has this role and content.
fn said(role: &str, content: &Value) -> Value {
    chat(json!([user("Go."), calls("", "", 1), {"role": role, "tool_call_id": "a", "content": content}]))
}

/// Checks the reason and the field of an invalid request. Returns the message.
#[track_caller]
fn refuses_with_reason(architecture: &str, request: &Value, reason: Reason, field: &str) -> String {
    match render(&model("tiny", &json!({"model_type": architecture})), request).map(|rendered| rendered.prompt) {
        Err(Error::Invalid(error)) => {
            assert_eq!((error.reason, error.field.to_string().as_str()), (reason, field), "{request}");
            error.problem
        }
        other => panic!("{request}: {other:?}"),
    }
}

#[test]
fn unsupported_blocks_are_rejected_by_path() {
    let result = |content: Value| json!([{"type": "tool_result", "tool_use_id": "a", "content": content}]);
    for architecture in [V32, V4] {
        for role in ["system", "developer", "user", "assistant", "tool"] {
            for block in ["image", "image_url", "input_image", "audio", "input_audio", "video", "hologram"] {
                let block = json!({"type": block, "base64": "QUJD"});
                let content = json!([{"type": "text", "text": "a"}, block]);
                refuses_with_reason(
                    architecture,
                    &said(role, &content),
                    Reason::UnknownBlock,
                    "messages[2].content[1]",
                );
            }
        }
    }
    let image = json!([{"type": "image", "base64": "QUJD"}]);
    let nested = "messages[2].content[0].content[0]";
    let messages = [
        refuses_with_reason(V32, &said("user", &result(image.clone())), Reason::UnknownBlock, nested),
        refuses_with_reason(V32, &said("tool", &result(json!([{"type": "image"}]))), Reason::UnknownBlock, nested),
        refuses_with_reason(
            V32,
            &said("assistant", &result(json!("x"))),
            Reason::UnknownBlock,
            "messages[2].content[0]",
        ),
        refuses_with_reason(
            V32,
            &said("user", &json!([{"type": "image"}])),
            Reason::UnknownBlock,
            "messages[2].content[0]",
        ),
    ];
    error_texts::check_rows("deepseek/unknown-block", messages);
    let context = with_args(json!([user("Go.")]), json!({"context": [{"role": "user", "content": image}]}));
    for architecture in [V32, V4] {
        refuses_with_reason(architecture, &context, Reason::UnknownBlock, "template_args.context[0].content[0]");
    }
}

#[test]
fn content_of_a_wrong_type_is_refused_by_path() {
    for architecture in [V32, V4] {
        for role in ["system", "developer", "user", "assistant", "tool"] {
            for content in [json!(5), json!(true), json!({"a": 1})] {
                refuses_with_reason(architecture, &said(role, &content), Reason::InvalidRequest, "messages[2].content");
            }
            let no_text = json!([{"type": "text"}]);
            refuses_with_reason(
                architecture,
                &said(role, &no_text),
                Reason::InvalidRequest,
                "messages[2].content[0].text",
            );
        }
        let context = with_args(json!([user("Go.")]), json!({"context": [{"role": "user", "content": 5}]}));
        refuses_with_reason(architecture, &context, Reason::InvalidRequest, "template_args.context[0].content");
    }
}

#[test]
fn v32_typed_calls_and_results_of_a_wrong_shape_are_refused_by_path() {
    let cases = [
        ("assistant", json!([{"type": "tool_use", "name": "f", "input": "{}"}]), "content[0].input"),
        ("assistant", json!([{"type": "tool_use", "input": {}}]), "content[0].name"),
        ("assistant", json!([{"type": "tool_use", "name": "", "input": {}}]), "content[0].name"),
        ("user", json!([{"type": "tool_result", "content": 5}]), "content[0].content"),
        ("tool", json!([{"type": "tool_result"}, {"type": "text", "text": "x"}]), "content"),
    ];
    let messages = cases.map(|(role, content, field)| {
        refuses_with_reason(V32, &said(role, &content), Reason::InvalidRequest, &format!("messages[2].{field}"))
    });
    error_texts::check_rows("deepseek/typed-call", messages);
    let orphan = chat(json!([user("Go."), {"role": "user", "content": [{"type": "tool_result", "content": "x"}]}]));
    error_texts::check("deepseek/result-of-no-call", refuses(V32, orphan, "messages[1].content[0]"));
}

/// Returns the service's answer to a request for a model of the family.
fn response(architecture: &str, mut request: Value, adapter: Option<&str>) -> Value {
    if let Some(adapter) = adapter {
        request["adapter"] = json!(adapter);
    }
    let models: ModelTable = model("tiny", &json!({"model_type": architecture})).into();
    let job = render_svc::cli::json::request(&request.to_string(), LocalTime::now()).expect("a request");
    render_svc::cli::json::answer(render_svc::render::render(&models, job, &Limits::default()))
}

#[test]
fn images_become_hf_messages_unless_the_family_is_pinned() {
    let url = json!({"url": "data:image/png;base64,QUJD"});
    let images = [
        json!([{"type": "image", "base64": "QUJD"}]),
        json!([{"type": "image_url", "image_url": url}]),
        json!([{"type": "input_image", "image_url": url}]),
    ];
    for image in images {
        let result = json!([{"type": "tool_result", "tool_use_id": "a", "content": image}]);
        check_images(&said("user", &image), "messages[2].content[0]");
        check_images(&said("tool", &image), "messages[2].content[0]");
        check_images(&said("user", &result), "messages[2].content[0]");
    }
}

#[track_caller]
fn check_images(asked: &Value, field: &str) {
    for (architecture, adapter) in [(V32, "deepseek-v3.2"), (V4, "deepseek-v4")] {
        let shown = response(architecture, asked.clone(), None);
        assert!(shown["hf_messages"].is_array(), "{shown}");
        let refused = response(architecture, asked.clone(), Some(adapter));
        let error = &refused["error"];
        assert_eq!(error["reason"], "UNKNOWN_BLOCK", "{refused}");
        assert!(error["field"].as_str().is_some_and(|found| found.starts_with(field)), "{refused}");
        assert!(!refused.to_string().contains("QUJD"), "{refused}");
    }
}

/// The official encoders write a placeholder text for the image.
#[test]
fn image_without_data_in_a_tool_result_becomes_placeholder_text() {
    let placeholder = json!([{"type": "text", "text": "a"}, {"type": "image"}]);
    for (architecture, words) in [(V32, "{'type': 'image'}"), (V4, "[Unsupported image]")] {
        let shown = response(architecture, said("tool", &placeholder), None);
        assert!(shown["prompt"].as_str().is_some_and(|prompt| prompt.contains(words)), "{shown}");
        let mut both = said("tool", &placeholder);
        both["messages"][0]["content"] = json!([{"type": "image", "base64": "QUJD"}]);
        assert!(response(architecture, both, None)["prompt"].is_null());
    }
}

#[test]
fn images_stop_the_encoder_unless_it_has_placeholder_text() {
    let (text, image) = (json!({"type": "text", "text": "a"}), json!({"type": "image", "base64": "QUJD"}));
    let bare = json!({"type": "image"});
    let cases = [
        ("user", json!("a"), false),
        ("user", json!([text]), false),
        ("user", json!([image]), true),
        ("user", json!([text, bare]), true),
        ("assistant", json!([bare]), true),
        ("tool", json!("a"), false),
        ("tool", json!([text]), false),
        ("tool", json!([image]), true),
        ("tool", json!([bare]), false),
        ("tool", json!([text, bare]), false),
        ("tool", json!([bare, image]), true),
        ("user", json!([{"type": "tool_result", "tool_use_id": "a", "content": [bare]}]), true),
    ];
    for architecture in [V32, V4] {
        let served = model("tiny", &json!({"model_type": architecture}));
        let stops = served.adapter.adapter().stops_at_images;
        let of = |messages: Vec<Value>| stops(&Conversation { messages, ..Conversation::default() });
        assert!(!of(vec![]));
        for (role, content, expected) in &cases {
            let message = json!({"role": role, "content": content});
            assert_eq!(of(vec![message.clone()]), *expected, "{architecture} {message}");
            assert_eq!(of(vec![user("Go."), message.clone()]), *expected, "{architecture}: after text, {message}");
            let placeholder = json!({"role": "tool", "content": [bare]});
            assert_eq!(of(vec![placeholder, message.clone()]), *expected, "{architecture}: after an image, {message}");
        }
    }
}

#[test]
fn unrenderable_tool_arguments_are_rejected() {
    let deep = format!(r#"{{"a":{}{}}}"#, "[".repeat(2000), "]".repeat(2000));
    for arguments in ["[1]", "5", "null", r#""text""#, r#"{"a":"\ud83d"}"#, r#"{"a":"\ud83d\u0041"}"#, &deep] {
        for architecture in [V32, V4] {
            let request = chat(json!([user("Go."), calling(arguments)]));
            refuses(architecture, request, "messages[1].tool_calls[0].function.arguments");
        }
    }
}

#[test]
fn v4_an_unknown_task_is_refused() {
    let nap = json!({"role": "user", "content": "Do it.", "task": "nap"});
    error_texts::check("deepseek/task", refuses(V4, chat(json!([nap])), "messages[0].task"));
}

#[test]
fn v4_an_unknown_reasoning_effort_is_refused() {
    let asked = |mode: &str, effort: Value| {
        with_args(json!([user("Go.")]), json!({"thinking_mode": mode, "reasoning_effort": effort}))
    };
    let field = "template_args.reasoning_effort";
    let messages =
        [refuses(V4, asked("chat", json!("medium")), field), refuses(V4, asked("thinking", json!(75)), field)];
    error_texts::check_rows("deepseek/reasoning-effort", messages);
}

#[test]
fn request_tools_follow_the_tools_of_the_system_message() {
    let mut own = chat(json!([{"role": "system", "content": "Be brief."}, user("Warm?")]));
    own["messages"][0]["tools"] = json!([{"function": {"name": "mine"}}]);
    let prompt = prompt(V32, &with_tools(own));
    let (mine, weather) = (prompt.find(r#"{"name": "mine"}"#), prompt.find(r#"{"name": "weather""#));
    assert!(mine.is_some() && mine < weather, "{prompt}");
}

#[test]
fn tools_without_a_system_message_add_one() {
    for architecture in [V32, V4] {
        let prompt = prompt(architecture, &with_tools(json!({"messages": [user("Warm?")]})));
        assert!(prompt.starts_with("<｜begin▁of▁sentence｜>\n\n## Tools\n\n"), "{prompt}");
        assert!(prompt.ends_with("<｜User｜>Warm?<｜Assistant｜></think>"), "{prompt}");
    }
}

#[test]
fn switches_for_thinking_make_the_prompt_of_the_mode() {
    let on = [
        json!({"thinking": true}),
        json!({"enable_thinking": true}),
        json!({"thinking": 1}),
        json!({"thinking": " On "}),
        json!({"thinking": "1"}),
        json!({"enable_thinking": "TRUE"}),
        json!({"thinking": "enabled"}),
        json!({"thinking": "thinking", "unknown": {}}),
        json!({"thinking_mode": "thinking", "thinking": false}),
        json!({"thinking_mode": null, "thinking": true}),
        json!({"thinking": null, "enable_thinking": true}),
        json!({"thinking": true, "enable_thinking": null}),
        json!({"thinking_mode": null, "thinking": null, "enable_thinking": true}),
    ];
    let off = [
        json!({}),
        json!({"thinking": "yes"}),
        json!({"thinking": "false"}),
        json!({"thinking": 0}),
        json!({"thinking": false, "enable_thinking": true}),
        json!({"thinking": null, "enable_thinking": false}),
        json!({"thinking": null, "enable_thinking": null}),
        json!({"drop_thinking": null, "add_default_bos_token": null, "context": null}),
        json!({"thinking_mode": "chat", "thinking": true}),
    ];
    let asked = json!([user("Why?")]);
    let (thinking, chat) = (thinking(asked.clone()), chat(asked.clone()));
    for (args, mode) in on.map(|args| (args, &thinking)).into_iter().chain(off.map(|args| (args, &chat))) {
        for architecture in [V32, V4] {
            check(architecture, with_args(asked.clone(), args.clone()), &prompt(architecture, mode));
        }
    }
}

#[test]
fn a_question_cannot_be_continued() {
    for architecture in [V32, V4] {
        let open_question = json!({"messages": [user("Go.")], "continue_final_message": true});
        let message = refuses(architecture, open_question, "continue_final_message");
        error_texts::check("deepseek/no-text-to-continue", message);
    }
}

#[test]
fn documents_are_ignored_with_a_warning() {
    for architecture in [V32, V4] {
        let request = json!({"messages": [user("Why?")], "documents": [{"text": "Because."}]});
        let rendered = render(&model("tiny", &json!({"model_type": architecture})), &request).expect("a prompt");
        assert_eq!(rendered.warnings.len(), 1);
        assert_eq!(rendered.warnings[0].code, WarningCode::DocumentsIgnored);
    }
}

#[test]
fn input_that_official_encoders_reject_is_rejected_by_field() {
    let both = [
        (chat(json!([{"role": "critic", "content": "no"}])), "messages[0].role"),
        (chat(json!([{"content": "no"}])), "messages[0].role"),
        (chat(json!([{"role": "developer", "content": ""}])), "messages[0].content"),
        (chat(json!([{"role": "system", "tools": [{"name": "f"}]}])), "messages[0].tools[0].function"),
        (chat(json!([{"role": "system", "tools": "f"}])), "messages[0].tools"),
        (chat(json!([{"role": "assistant", "tool_calls": 5}])), "messages[0].tool_calls"),
        (
            chat(json!([{"role": "assistant", "tool_calls": [{"function": {"arguments": "{}"}}]}])),
            "messages[0].tool_calls[0].function.name",
        ),
        (
            chat(json!([{"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]}])),
            "messages[0].tool_calls[0].function.arguments",
        ),
        (with_args(json!([user("Why?")]), json!({"thinking_mode": "auto"})), "template_args.thinking_mode"),
        (with_args(json!([user("Why?")]), json!({"thinking_mode": true})), "template_args.thinking_mode"),
        (with_args(json!([user("Why?")]), json!({"context": "earlier"})), "template_args.context"),
        (with_args(json!([user("Why?")]), json!({"context": [5]})), "template_args.context[0]"),
        (json!({"messages": [user("Why?")], "tools": [{"type": "function"}]}), "tools[0].function"),
    ];
    let of = |architecture| both.clone().map(|(request, field)| refuses(architecture, request, field));
    error_texts::check_rows("deepseek/v32", of(V32));
    error_texts::check_rows("deepseek/v4", of(V4));
    let orphan = [user("Why?"), result("a", "-3")];
    let only_v32 = [
        refuses(V32, chat(json!(orphan)), "messages[1].role"),
        refuses(V32, chat(json!([calls("", "", 1), result("a", "1"), result("b", "2")])), "messages[2].role"),
        refuses(V32, thinking(json!([user("Why?"), answer("So.", "")])), "messages[1].reasoning_content"),
        refuses(V32, thinking(json!([{"role": "developer", "content": "x"}, user("Why?")])), "messages[0].role"),
    ];
    error_texts::check_rows("deepseek/only-v32", only_v32);
    let only_v4 = [
        refuses(V4, verbatim(chat(json!([{"role": "user", "content": null}]))), "messages[0].content"),
        refuses(V4, chat(json!([calls("", "", 1), result("a", json!(["text"]))])), "messages[1].content[0]"),
    ];
    error_texts::check_rows("deepseek/only-v4", only_v4);
}

#[test]
fn family_is_detected_by_model_type_not_by_folder_name() {
    let chosen = |name: &str, config: Value| model(name, &config).adapter.adapter().name;
    assert_eq!(chosen("tiny", json!({"model_type": "deepseek_v32"})), "deepseek-v3.2");
    assert_eq!(chosen("tiny", json!({"model_type": "deepseek_v4"})), "deepseek-v4");
    assert_eq!(chosen("DeepSeek-V3.2", json!({"model_type": "llama"})), "tokenizer-template");
    assert_eq!(chosen("deepseek-v3.2", json!({"model_type": "deepseek_v3"})), "tokenizer-template");
}

#[test]
fn family_is_detected_by_its_template_control_tokens() {
    let chosen = |template: &str| {
        let model =
            ServedModel::load(&ModelFolder::new("tiny").with_template(template).path()).expect("the model loads");
        model.adapter.adapter().name
    };
    assert_eq!(chosen("{{ '<｜DSML｜function_calls>' }}"), "deepseek-v3.2");
    assert_eq!(chosen("{{ '<｜DSML｜tool_calls>' }}"), "deepseek-v4");
    assert_eq!(chosen("{{ '<｜Assistant｜>' }}"), "tokenizer-template");
    let unwritten = [
        "{# <｜DSML｜function_calls> #}{{ messages }}",
        "{{ messages | replace('｜DSML｜', '') }}",
        "{% set mark = '<｜DSML｜function_calls>' %}{{ messages }}",
        "{% macro call() %}<｜DSML｜function_calls>{% endmacro %}{{ messages }}",
        "{% if false %}<｜DSML｜function_calls>{% endif %}{{ messages }}",
        "{% if '｜DSML｜' in messages[0].content %}{{ raise_exception('no') }}{% endif %}{{ messages }}",
    ];
    for template in unwritten {
        assert_eq!(chosen(template), "tokenizer-template", "{template}");
    }
    let other = ModelFolder::new("tiny").with_template("{{ '<｜DSML｜function_calls>' }}");
    std::fs::write(other.path().join("config.json"), r#"{"model_type": "qwen3"}"#).expect("a file");
    let other = ServedModel::load(&other.path()).expect("the model loads");
    assert_eq!(other.adapter.adapter().name, "tokenizer-template");
}

#[test]
fn family_is_detected_by_its_repository_name() {
    let folder = ModelFolder::new("models--Deepseek-AI--deepseek-v3.2/snapshots/1").with_template("{{ messages }}");
    let model = ServedModel::load(&folder.path()).expect("the model loads");
    assert_eq!(model.adapter.adapter().name, "deepseek-v3.2");
}

/// Compares every case of the corpus beside the repository, if the corpus exists.
#[test]
fn corpus_cases_match_the_official_encoders() {
    let Some(corpus) = tandem_tests::corpus() else {
        eprintln!("skipped: there is no corpus beside the repository");
        return;
    };
    for (file, architecture) in [("dsv32.json", V32), ("dsv4.json", V4)] {
        let different = different(&corpus.join("deepseek").join(file), architecture);
        assert!(different.is_empty(), "{file}: {different:?}");
    }
}

fn different(path: &Path, architecture: &str) -> Vec<String> {
    let text = std::fs::read_to_string(path).expect("the corpus");
    let file: Value = serde_json::from_str(&text).expect("JSON");
    let cases = file["cases"].as_array().expect("cases");
    let model = model("tiny", &json!({"model_type": architecture}));
    let different = cases.iter().filter(|case| !is_equal(&model, case));
    let id = |case: &Value| case["id"].as_str().expect("an id").to_owned();
    different.map(id).collect()
}

/// Returns true if a case's prompt is right. Every field except the id, the messages and the
/// outcome is an argument of the encoder.
fn is_equal(model: &ServedModel, case: &Value) -> bool {
    const NO_ARGUMENTS: &[&str] = &["id", "messages", "ok", "error", "class", "message"];
    let mut args: Object = case.as_object().expect("a case").clone();
    args.retain(|key, _| !NO_ARGUMENTS.contains(&key.as_str()));
    args.entry("drop_thinking").or_insert(json!(true));
    let request = verbatim(json!({"messages": case["messages"], "template_args": args}));
    let rendered = render(model, &request);
    let is_equal = match (case.get("ok"), &rendered) {
        (Some(expected), Ok(rendered)) => *expected == rendered.prompt,
        (None, Err(_)) => true,
        _ => false,
    };
    if !is_equal {
        eprintln!("{}: {rendered:?}", case["id"]);
    }
    is_equal
}
