//! Templates that treat a message otherwise after another one than in their probes, and media, calls and
//! reasoning that they show in one form only.

use serde_json::{Value, json};
use tandem_tests::{ModelFolder, answer};

const CALLS: &str =
    "{% for c in m.tool_calls or [] %}[{{ c.function.name }} {{ c.function.arguments | tojson }}]{% endfor %}";

fn say(role: &str, content: impl Into<Value>) -> Value {
    json!({"role": role, "content": content.into()})
}

fn called(content: impl Into<Value>) -> Value {
    let call =
        json!({"id": "abcdefghi", "type": "function", "function": {"name": "weather", "arguments": {"city": "Rome"}}});
    json!({"role": "assistant", "content": content.into(), "tool_calls": [call]})
}

fn result(content: impl Into<Value>) -> Value {
    json!({"role": "tool", "tool_call_id": "abcdefghi", "content": content.into()})
}

/// Returns a template that writes this for each message `m`.
fn each(message: &str) -> String {
    format!("{{% for m in messages %}}{message}{{% endfor %}}")
}

fn render(template: &str, request: &Value) -> Value {
    answer(&ModelFolder::new("tiny").with_template(template).models(), request)
}

/// Checks the prompt, and the warnings' codes and paths.
#[track_caller]
fn check(template: &str, messages: &[Value], prompt: &str, expected: &[(&str, &str)]) {
    let answer = render(template, &json!({"messages": messages}));
    assert_eq!(answer["prompt"], prompt, "{template}: {answer}");
    assert_eq!(warnings(&answer), expected, "{template}: {answer}");
}

fn warnings(answer: &Value) -> Vec<(&str, &str)> {
    let all = answer["warnings"].as_array().unwrap_or_else(|| panic!("{answer}")).iter();
    all.map(|warning| (warning["code"].as_str().expect("a code"), warning["path"].as_str().expect("a path"))).collect()
}

#[test]
fn each_medium_that_a_template_leaves_out_has_a_warning() {
    let image = || json!({"type": "image", "base64": "QUJD"});
    let text = || json!({"type": "text", "text": "Which one?"});
    let walks = |image: &str| {
        each(&format!(
            "<{{{{ m.role }}}}>{{% if m.content is string %}}{{{{ m.content }}}}{{% else %}}{{% for b in m.content %}}{{% if b.type == 'text' %}}{{{{ b.text }}}}{image}{{% endif %}}{{% endfor %}}{{% endif %}}"
        ))
    };
    let lost = |template: &str, messages: &Value, paths: &[&str]| {
        let answer = render(template, &json!({"messages": messages}));
        let expected: Vec<_> = paths.iter().map(|path| ("IMAGES_IGNORED", *path)).collect();
        assert_eq!(warnings(&answer), expected, "{template}: {answer}");
        assert_eq!(&answer["hf_messages"], messages, "{answer}");
    };
    let first = "{% elif b.type == 'image' and loop.first %}<image>";
    let two = json!([say("user", json!([image(), text(), image()]))]);
    lost(&walks(first), &two, &["messages[0].content[2]"]);
    lost(&walks("{% elif b.type == 'image' %}<image>"), &two, &[]);
    lost(&walks("{% elif b.type == 'image' and false %}"), &two, &["messages[0].content[0]", "messages[0].content[2]"]);
    // As Llama Guard 3 Vision does: one mark for all images. Its processor refuses a second image.
    let once = format!("{}{}", "{% if 'base64' in messages | string %}<image>{% endif %}", walks(""));
    lost(&once, &two, &["messages[0].content[2]"]);
    // The messages have blocks of the type that most templates know.
    let only_url = "{% elif b.type == 'image_url' %}<image>";
    lost(&walks(only_url), &two, &["messages[0].content[0]", "messages[0].content[2]"]);
    let users = "{% elif b.type == 'image' and m.role == 'user' %}<image>";
    let others = json!([
        say("system", json!([image(), text()])),
        say("user", json!([text(), image()])),
        say("assistant", json!([image()]))
    ]);
    lost(&walks(users), &others, &["messages[0].content[0]", "messages[2].content[0]"]);
    // The prompt ends after the last text.
    let continued = [say("user", json!([image()])), say("assistant", json!([text(), image()]))];
    let answer = render(
        &walks("{% elif b.type == 'image' %}<image>"),
        &json!({"messages": continued, "continue_final_message": true}),
    );
    assert_eq!(warnings(&answer), [("IMAGES_IGNORED", "messages[1].content[1]")], "{answer}");
}

#[test]
fn a_template_refuses_hf_messages_as_it_refuses_text() {
    let image = json!({"type": "image", "base64": "QUJD"});
    let walks = "<{{ m.role }}>{% if m.content is string %}{{ m.content }}{% else %}{% for b in m.content %}{{ b.text or '<image>' }}{% endfor %}{% endif %}";
    let first = each(&format!(
        "{{% if loop.first and m.role != 'user' %}}{{{{ raise_exception('a user first') }}}}{{% endif %}}{walks}"
    ));
    for content in [json!([image]), json!("Hi")] {
        let answer = render(&first, &json!({"messages": [say("assistant", "Hello"), say("user", content)]}));
        assert_eq!(answer["error"]["reason"], "TEMPLATE_RAISED", "{answer}");
    }
    // Repeated roles are refused only beside a call.
    let strict = each(&format!(
        "{{% if m.role == 'user' and not loop.first and loop.previtem.role == 'user' and messages[0].tool_calls is defined %}}{{{{ raise_exception('alternate') }}}}{{% endif %}}{walks}{CALLS}"
    ));
    let messages = [called("See"), say("user", "This one:"), say("user", json!([image]))];
    let answer = render(&strict, &json!({"messages": messages}));
    assert_eq!(
        answer["hf_messages"][1],
        say("user", json!([{"type": "text", "text": "This one:"}, image])),
        "{answer}"
    );
    assert_eq!(warnings(&answer), [("MESSAGES_MERGED", "messages[1]")]);
}

/// A template that reads `reasoning` gets the reasoning of every request there.
#[test]
fn reasoning_has_the_key_that_the_template_reads() {
    let reads = |key: &str| each(&format!("<{{{{ m.role }}}}>{{{{ m.{key} + '|' if m.{key} }}}}{{{{ m.content }}}}"));
    for given in ["reasoning_content", "reasoning"] {
        let mut thought = say("assistant", "Paris.");
        thought[given] = "The capital is asked.".into();
        let messages = [say("user", "Which?"), thought];
        check(&reads("reasoning"), &messages, "<user>Which?<assistant>The capital is asked.|Paris.", &[]);
    }
    let mut thought = say("assistant", "");
    thought["reasoning_content"] = "The capital".into();
    let request = json!({"messages": [say("user", "Which?"), thought], "continue_final_message": "reasoning_content"});
    assert_eq!(render(&reads("reasoning"), &request)["prompt"], "<user>Which?<assistant>The capital");
    let hides = each("<{{ m.role }}>{{ m.reasoning if loop.last }}{{ m.content }}");
    let mut thought = say("assistant", "Paris.");
    thought["reasoning_content"] = "The capital is asked.".into();
    let lost = [("REASONING_IGNORED", "messages[1].reasoning_content")];
    check(
        &hides,
        &[say("user", "Which?"), thought, say("user", "Why?")],
        "<user>Which?<assistant>Paris.<user>Why?",
        &lost,
    );
}

#[test]
fn a_system_message_that_is_lost_after_a_result_becomes_the_users() {
    let messages =
        [say("system", "A"), say("user", "B"), called(""), result("C"), say("system", "Be brief."), say("user", "D")];
    let shown = "<system>A<user>B<assistant>[weather {\"city\": \"Rome\"}]<tool>C<user>[System]: Be brief.<user>D";
    let rewritten = [("SYSTEM_REWRITTEN", "messages[4]")];
    let after = "m.role == 'system' and not loop.first and loop.previtem.role == 'tool'";
    let refuses = each(&format!(
        "{{% if {after} %}}{{{{ raise_exception('no system here') }}}}{{% endif %}}<{{{{ m.role }}}}>{{{{ m.content }}}}{CALLS}"
    ));
    check(&refuses, &messages, shown, &rewritten);
    let drops = each(&format!("{{% if not ({after}) %}}<{{{{ m.role }}}}>{{{{ m.content }}}}{CALLS}{{% endif %}}"));
    check(&drops, &messages, shown, &rewritten);
}

#[test]
fn null_beside_calls_becomes_a_text_where_the_template_fails_for_it() {
    let later = each(&format!(
        "<{{{{ m.role }}}}>{{{{ m.content.strip() if m.role == 'assistant' and loop.index0 > 2 else m.content }}}}{CALLS}"
    ));
    let messages = [say("user", "A"), called("x"), result("B"), called(Value::Null), result("C")];
    let call = "[weather {\"city\": \"Rome\"}]";
    check(&later, &messages, &format!("<user>A<assistant>x{call}<tool>B<assistant>{call}<tool>C"), &[]);

    let fails = each("<{{ m.role }}>{{ m.content.strip() if m.role == 'user' else m.content }}");
    let at_fault = |messages: Value| {
        let error =
            render(&fails, &json!({"messages": messages}))["error"]["message"].as_str().expect("an error").to_owned();
        (0..4).filter(|at| error.contains(&format!("messages[{at}]"))).collect::<Vec<_>>()
    };
    let [answer, user] = [say("assistant", Value::Null), say("user", Value::Null)];
    assert_eq!(at_fault(json!([say("user", "A"), answer, user])), [2]);
    assert_eq!(at_fault(json!([say("user", 5), answer])), [0; 0]);
}

#[test]
fn typed_blocks_become_messages_where_their_words_are_lost() {
    let call = json!({"type": "tool_use", "id": "abcdefghi", "name": "weather", "input": {"city": "Rome"}});
    let result = |content: Value| json!({"type": "tool_result", "tool_use_id": "abcdefghi", "content": content});
    let walk = |call: &str, result: &str| {
        each(&format!(
            "<{{{{ m.role }}}}>{{% if m.content is string %}}{{{{ m.content }}}}{{% else %}}{{% for b in m.content %}}{{% if b.type == 'text' %}}{{{{ b.text }}}}{{% elif b.type == 'tool_use' %}}({call}){{% elif b.type == 'tool_result' %}}({result}){{% endif %}}{{% endfor %}}{{% endif %}}{CALLS}"
        ))
    };
    let messages = |content: Value| {
        [say("user", "In Rome?"), say("assistant", json!([call])), say("user", json!([result(content)]))]
    };
    let printed = "[weather {\"city\": \"Rome\"}]";
    let named = walk("{{ b.name }}", "{{ b.content }}");
    check(&named, &messages("sunny".into()), &format!("<user>In Rome?<assistant>{printed}<user>(sunny)"), &[]);
    let listed = walk("{{ b.name }} {{ b.input | tojson }}", "{% for c in b.content %}{{ c.text }}{% endfor %}");
    let shown = "<user>In Rome?<assistant>(weather {\"city\": \"Rome\"})";
    check(&listed, &messages("sunny".into()), &format!("{shown}<tool>sunny"), &[]);
    check(&listed, &messages(json!([{"type": "text", "text": "sunny"}])), &format!("{shown}<user>(sunny)"), &[]);
}

#[test]
fn short_and_quoted_descriptions_that_a_template_leaves_out_have_warnings() {
    let described = |text: &str| {
        let parameters = json!({"type": "object", "properties": {"unit": {"type": "string", "description": text}}});
        json!({"messages": [say("user", "Hi")], "tools": [{"type": "function", "function": {"name": "weather", "description": "Finds the weather", "parameters": parameters}}]})
    };
    let with = |tool: &str| {
        format!("{{% for t in tools or [] %}}{tool}{{% endfor %}}{}", each("<{{ m.role }}>{{ m.content }}"))
    };
    let names =
        with("{{ t.function.name }} {{ t.function.description }} {{ t.function.parameters.properties | join(', ') }}");
    for text in ["Kelvin", "\"celsius\" or \"kelvin\"", "\"C\""] {
        let lost = ["description", "type"]
            .map(|key| format!("tools[0].function.parameters.properties.unit.{key}"))
            .map(|path| ("TOOLS_IGNORED".to_owned(), path));
        let lost = [0, 1].map(|at| (lost[at].0.as_str(), lost[at].1.as_str()));
        assert_eq!(warnings(&render(&names, &described(text))), lost, "{text}");
        assert_eq!(warnings(&render(&with("{{ t | tojson }}"), &described(text))), [], "{text}");
    }
    let mut both = described("Kelvin");
    both["tools"][0]["function"]["input_schema"] = json!({"type": "object"});
    let ignored = ("TOOL_PARAMETERS_IGNORED", "tools[0].function.input_schema");
    assert!(warnings(&render(&names, &both)).contains(&ignored));
}

#[test]
fn the_plain_format_shows_calls_of_both_forms() {
    let call = json!({"type": "tool_use", "id": "abcdefghi", "name": "weather", "input": {"city": "Rome"}});
    let plain = |message: Value| {
        render("{{ messages }}", &json!({"messages": [say("user", "Hi"), message], "adapter": "plain"}))
    };
    let [typed, called] = [say("assistant", json!([call])), called("")].map(plain);
    assert_eq!(typed["prompt"], called["prompt"]);
    assert!(called["prompt"].as_str().is_some_and(|prompt| prompt.contains("Rome")), "{called}");
}

/// No probe has the argument, or documents beside a system message, lists and repeated users.
#[test]
fn messages_stay_as_they_are_where_only_the_context_makes_a_template_take_them() {
    let block = |text: &str| json!({"type": "text", "text": text});
    let with_context = |messages: &Value, context: &str| {
        let mut request = json!({"messages": messages});
        match context {
            "documents" => request["documents"] = json!([{"text": "Rome is in Italy."}]),
            "tools" => {
                request["tools"] =
                    json!([{"type": "function", "function": {"name": "f", "description": "Adds numbers"}}])
            }
            _ => request["template_args"] = json!({"mode": "open"}),
        }
        request
    };
    let check_both = |template: &str, messages: Value, shown: &str, rewritten: &str, code: Option<&str>| {
        for context in ["documents", "tools", "mode"] {
            let name = if context == "mode" { "(mode == 'open')" } else { context };
            let template =
                format!("{}{{{{ (documents or tools or '') | tojson }}}}", template.replace("CONTEXT", name));
            let found = render(&template, &with_context(&messages, context));
            let prompt = found["prompt"].as_str().unwrap_or_else(|| panic!("{template}: {found}"));
            assert!(
                prompt.starts_with(&format!("{shown}[")) || prompt == format!("{shown}\"\""),
                "{template}: {found}"
            );
            assert_eq!(warnings(&found), [], "{template}: {found}");
            let alone = render(&template, &json!({"messages": messages}));
            assert_eq!(alone["prompt"], format!("{rewritten}\"\""), "{template}: {alone}");
            assert_eq!(warnings(&alone).iter().map(|(code, _)| *code).next(), code, "{template}: {alone}");
        }
    };
    let system = each(
        "{% if m.role == 'system' and not CONTEXT %}{{ raise_exception('no system') }}{% endif %}<{{ m.role }}>{{ m.content }}",
    );
    let messages = json!([say("system", "Be brief."), say("user", "Hi there")]);
    let users = "<user>[System]: Be brief.<user>Hi there";
    check_both(&system, messages, "<system>Be brief.<user>Hi there", users, Some("SYSTEM_REWRITTEN"));
    let repeated = each(
        "{% if not loop.first and loop.previtem.role == m.role and not CONTEXT %}{{ raise_exception('alternate') }}{% endif %}<{{ m.role }}>{{ m.content }}",
    );
    let messages = json!([say("user", "One moment"), say("user", "Hi there")]);
    check_both(
        &repeated,
        messages,
        "<user>One moment<user>Hi there",
        "<user>One moment\n\nHi there",
        Some("MESSAGES_MERGED"),
    );
    let lists = each(
        "<{{ m.role }}>{% if m.content is string or not CONTEXT %}{{ m.content }}{% else %}{% for b in m.content %}[{{ b.text }}]{% endfor %}{% endif %}",
    );
    let messages = json!([say("user", json!([block("One"), block(" moment")]))]);
    check_both(&lists, messages, "<user>[One][ moment]", "<user>One moment", None);
    // A printed list is not shown, in whichever order its keys are.
    let printed = each("<{{ m.role }}>{{ m.content }}");
    let answer = render(
        &printed,
        &json!({"messages": [say("user", json!([{"text": "Hi", "type": "text"}]))], "template_args": {"mode": "open"}}),
    );
    assert_eq!(answer["prompt"], "<user>Hi");
}
