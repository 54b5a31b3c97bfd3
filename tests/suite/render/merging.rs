//! Messages of one role in a row. They are merged only where the template refuses them or leaves one
//! out, and stay separate elsewhere.

use serde_json::{Value, json};
use tandem_tests::{ModelFolder, answer};

fn said(turns: &[(&str, &str)]) -> Value {
    turns.iter().map(|(role, text)| json!({"role": role, "content": text})).collect()
}

/// Returns a template that fails where the condition holds for a message `m` that follows one of its
/// role.
fn refusing(condition: &str) -> String {
    format!(
        "{{% for m in messages %}}{{% if not loop.first and loop.previtem.role == m.role and ({condition}) %}}\
         {{{{ raise_exception('refused') }}}}{{% endif %}}<{{{{ m.role }}}}{{{{ ' ' + m.name if m.name }}}}>{{{{ m.content }}}}{{% endfor %}}"
    )
}

#[track_caller]
fn check(template: &str, request: &Value, expected: &str, merged: &[&str]) {
    let answer = answer(&ModelFolder::new("tiny").with_template(template).models(), request);
    assert_eq!(answer["prompt"], expected, "{template}: {answer}");
    let warnings = answer["warnings"].as_array().expect("a list").iter();
    let found: Vec<_> = warnings.map(|w| (w["code"].as_str(), w["text"].as_str().expect("a text"))).collect();
    assert_eq!(found.len(), merged.len(), "{found:?}");
    for ((code, text), names) in found.iter().zip(merged) {
        assert!(*code == Some("MESSAGES_MERGED") && text.starts_with(&format!("{names} were merged")), "{found:?}");
    }
}

const RUNS: [(&str, &str); 6] =
    [("user", "a"), ("user", "b"), ("assistant", "c"), ("user", "d"), ("user", "e"), ("assistant", "f")];

#[test]
fn users_are_merged_only_at_the_places_that_need_it() {
    let request = json!({"messages": said(&RUNS), "add_generation_prompt": false});
    let later = refusing("m.role == 'user' and loop.index0 > 2");
    check(&later, &request, "<user>a<user>b<assistant>c<user>d\n\ne<assistant>f", &["messages 3, 4"]);
    let first = refusing("m.role == 'user' and loop.index0 < 2");
    check(&first, &request, "<user>a\n\nb<assistant>c<user>d<user>e<assistant>f", &["messages 0, 1"]);
    check(&refusing("false"), &request, "<user>a<user>b<assistant>c<user>d<user>e<assistant>f", &[]);
}

/// No probe has three messages of one role in a row, or two of them beside tools.
#[test]
fn messages_are_merged_where_only_the_prompt_shows_the_need() {
    let three = refusing("loop.index0 > 1 and messages[loop.index0 - 2].role == m.role");
    let messages = said(&[("user", "a"), ("user", "b"), ("user", "c")]);
    check(&three, &json!({"messages": messages}), "<user>a\n\nb\n\nc", &["messages 0, 1, 2"]);
    check(&three, &json!({"messages": said(&RUNS[..2])}), "<user>a<user>b", &[]);

    let beside_tools = format!("{}{{{{ tools | tojson }}}}", refusing("tools"));
    let tools = json!([{"type": "function", "function": {"name": "f"}}]);
    let request = json!({"messages": said(&RUNS[..2]), "tools": tools});
    let expected = "<user>a\n\nb[{\"type\": \"function\", \"function\": {\"name\": \"f\"}}]";
    check(&beside_tools, &request, expected, &["messages 0, 1"]);
    check(&beside_tools, &json!({"messages": said(&RUNS[..2])}), "<user>a<user>bnull", &[]);

    let users_only = format!("{}{{{{ tools | tojson }}}}", refusing("tools and m.role == 'user'"));
    let both = said(&[("user", "a"), ("user", "b"), ("assistant", "c"), ("assistant", "d"), ("user", "e")]);
    let only = json!({"messages": both, "tools": request["tools"]});
    let shown =
        "<user>a\n\nb<assistant>c<assistant>d<user>e[{\"type\": \"function\", \"function\": {\"name\": \"f\"}}]";
    check(&users_only, &only, shown, &["messages 0, 1"]);
    let answer = answer(&ModelFolder::new("tiny").with_template(&beside_tools).models(), &request);
    let text = answer["warnings"][0]["text"].as_str().expect("a text");
    assert!(text.contains("the template refuses one of them here"), "{text}");

    // The last of three is left out.
    let two = "{% for m in messages %}{% if loop.index0 < 2 or messages[loop.index0 - 2].role != m.role %}<{{ m.role }}>{{ m.content }}{% endif %}{% endfor %}";
    let long = said(&[("user", "The first word."), ("user", "The second word."), ("user", "The third word.")]);
    let expected = "<user>The first word.\n\nThe second word.\n\nThe third word.";
    check(two, &json!({"messages": long}), expected, &["messages 0, 1, 2"]);
}

/// A template may also print lists, or refuse them, in these conversations.
#[test]
fn lists_become_text_before_messages_are_merged() {
    let strict = "{% for m in messages %}{% if tools and (m.content is not string or (not loop.first and loop.previtem.role == m.role)) %}\
                  {{ raise_exception('refused') }}{% endif %}<{{ m.role }}>{% if m.content is string %}{{ m.content }}{% else %}\
                  {% for b in m.content %}{{ b.text }}{% endfor %}{% endif %}{% endfor %}{{ tools | tojson }}";
    let list = |text: &str| json!({"role": "assistant", "content": [{"type": "text", "text": text}]});
    let messages = json!([{"role": "user", "content": "a"}, list("b"), list("c")]);
    let tools = json!([{"type": "function", "function": {"name": "f"}}]);
    let request = json!({"messages": messages, "tools": tools, "add_generation_prompt": false});
    let expected = "<user>a<assistant>b\n\nc[{\"type\": \"function\", \"function\": {\"name\": \"f\"}}]";
    check(strict, &request, expected, &["messages 1, 2"]);
}

#[test]
fn merged_messages_keep_the_names_of_both() {
    let named = |name: &str, text: &str| json!({"role": "user", "name": name, "content": text});
    let strict = refusing("true");
    let request = |second: &str| json!({"messages": [named("ann", "a"), named(second, "b")]});
    check(&strict, &request("ann"), "<user ann>a\n\nb", &["messages 0, 1"]);
    check(&strict, &request("bob"), "<user ann, bob>a\n\nb", &["messages 0, 1"]);
}
