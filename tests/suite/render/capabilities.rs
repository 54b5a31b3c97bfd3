//! Capabilities of templates, and the rewrites of conversations for them.

use render_svc::capabilities::{Capabilities, Evidence};
use render_svc::prepare::normalize::{Normalized, normalize};
use render_svc::prepare::rewrite::Change;
use render_svc::prepare::traced::Traced;
use serde_json::{Value, json};
use tandem_tests::error_texts;

const SYSTEM: &str = "SUPPORTS_SYSTEM_ROLE";
const STRICT: &str = "REQUIRES_STRICT_TURNS";
const TOOLS: &str = "SUPPORTS_TOOL_CALLS";
const REASONING: &str = "SUPPORTS_REASONING";

/// Returns the capabilities of a model of which no probe says anything.
fn infer(template: Option<&str>, name: &str, architecture: Option<&str>) -> Capabilities {
    Evidence { facts: None, tool_facts: None, template, name, architecture }.capabilities().capabilities
}

#[test]
fn capabilities_are_inferred_from_the_template_text() {
    let cases: &[(&str, &[&str])] = &[
        ("{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}", &[SYSTEM]),
        ("{{ raise_exception('System role not supported') }}", &[]),
        ("{{ raise_exception('Only user and assistant roles are supported!') }}", &[]),
        (
            "{% if role == 'system' %}{% endif %}{{ raise_exception('Only user and assistant roles are supported!') }}",
            &[SYSTEM],
        ),
        ("{{ raise_exception('Only user, assistant and tool roles are supported, got system.') }}", &[]),
        ("{#- Raise exception for unsupported roles. #}", &[]),
        (
            "[SYSTEM_PROMPT]{{ s }}[/SYSTEM_PROMPT]{{ raise_exception('Only user, assistant and tool roles are supported') }}",
            &[SYSTEM],
        ),
        (
            "{{ raise_exception('After the optional system message, conversation roles must alternate') }}",
            &[SYSTEM, STRICT],
        ),
        ("{% if (m.role == 'user') != (ns.index % 2 == 0) %}{% endif %}", &[SYSTEM, STRICT]),
        (
            "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}",
            &[SYSTEM, STRICT],
        ),
        ("{% if tools is defined %}[AVAILABLE_TOOLS]{{ tools }}{% endif %}", &[SYSTEM, TOOLS]),
        ("{% if tools %}<tool_call>{{ m.tool_calls }}</tool_call>{% endif %}", &[SYSTEM, TOOLS]),
        ("<|python_tag|>", &[SYSTEM, TOOLS]),
        ("{% if enable_thinking %}<think>{{ m.thinking }}</think>{% endif %}", &[SYSTEM, REASONING]),
        ("{{ m.reasoning_content }}{{ m.function_call }}", &[SYSTEM, TOOLS, REASONING]),
    ];
    for (template, expected) in cases {
        assert_eq!(infer(Some(template), "model", None).names(), *expected, "{template}");
    }
}

#[test]
fn capabilities_are_inferred_from_the_model_name() {
    let cases: &[(&str, &[&str])] = &[
        ("Hermes-2-Pro-7B", &[SYSTEM, TOOLS]),
        ("functionary-small", &[SYSTEM, TOOLS]),
        ("firefunction-v2", &[SYSTEM, TOOLS]),
        ("gorilla-openfunctions", &[SYSTEM, TOOLS]),
        ("DeepSeek-R1-Lite", &[SYSTEM, REASONING]),
        ("QwQ-32B", &[SYSTEM, REASONING]),
        ("skywork-r1-8b", &[SYSTEM, REASONING]),
        ("marco-o1", &[SYSTEM, REASONING]),
        ("smollm2", &[]),
    ];
    for (name, expected) in cases {
        assert_eq!(infer(None, name, None).names(), *expected, "{name}");
    }
    assert_eq!(infer(Some("simple"), "hermes", None).names(), [SYSTEM, TOOLS]);
    assert_eq!(infer(Some("<tool_call>"), "llama", None).names(), [SYSTEM, TOOLS]);
}

#[test]
fn capabilities_are_inferred_from_the_architecture() {
    assert_eq!(infer(None, "model", Some("mistral")).names(), [STRICT]);
    assert_eq!(infer(None, "model", Some("mistral3")).names(), [SYSTEM, STRICT]);
    assert_eq!(infer(Some("<tool_call>"), "model", Some("mistral")).names(), [SYSTEM, STRICT, TOOLS]);
    assert!(infer(None, "model", Some("llama")).is_empty());
    assert!(infer(None, "model", None).is_empty());
}

const UNKNOWN: Capabilities = Capabilities {
    supports_system_role: false,
    requires_strict_turns: false,
    supports_tool_calls: false,
    supports_reasoning: false,
    supports_content_blocks: false,
    rejects_system_role: false,
};
const SYSTEM_ONLY: Capabilities = Capabilities { supports_system_role: true, ..UNKNOWN };
const NO_SYSTEM: Capabilities = Capabilities { supports_tool_calls: true, ..UNKNOWN };
const STRICT_ONLY: Capabilities = Capabilities { requires_strict_turns: true, ..UNKNOWN };
const STRICT_SYSTEM: Capabilities = Capabilities { supports_system_role: true, ..STRICT_ONLY };

/// Checks a normalized conversation and its rewrites, given as `merged 0 1` and `user 0`.
#[track_caller]
fn check(capabilities: Capabilities, messages: Value, expected: Value, rewrites: &[&str]) {
    let messages = messages.as_array().expect("messages").clone();
    let Normalized { messages, rewrites: found } = normalize(Traced::all(messages), capabilities);
    assert_eq!(messages.into_iter().map(|traced| traced.message).collect::<Value>(), expected);
    let found = found.iter().map(|rewrite| {
        let change = if rewrite.change == Change::SystemToUser { "user" } else { "merged" };
        rewrite.messages.iter().fold(change.to_owned(), |text, i| format!("{text} {i}"))
    });
    assert_eq!(found.collect::<Vec<_>>(), rewrites);
}

#[track_caller]
fn stays(capabilities: Capabilities, messages: Value) {
    check(capabilities, messages.clone(), messages, &[]);
}

fn text(role: &str, text: &str) -> Value {
    json!({"role": role, "content": text})
}

#[test]
fn consecutive_system_messages_always_merge() {
    for capabilities in [UNKNOWN, SYSTEM_ONLY, STRICT_SYSTEM] {
        check(
            capabilities,
            json!([text("system", "A"), text("system", "B"), text("system", "C"), text("user", "Hi")]),
            json!([text("system", "A\n\nB\n\nC"), text("user", "Hi")]),
            &["merged 0 1 2"],
        );
    }
    check(UNKNOWN, json!([text("system", ""), text("system", "B")]), json!([text("system", "B")]), &["merged 0 1"]);
    stays(UNKNOWN, json!([text("system", "A"), text("user", "Hi"), text("system", "B")]));
}

#[test]
fn unknown_capabilities_rewrite_only_system_messages() {
    stays(UNKNOWN, json!([text("user", "A"), text("user", "A"), text("assistant", "B"), text("assistant", "B")]));
    stays(SYSTEM_ONLY, json!([text("system", "S"), text("user", "A"), text("user", "B")]));
}

#[test]
fn unsupported_system_message_becomes_a_user_message() {
    check(
        NO_SYSTEM,
        json!([text("system", "Be kind"), text("user", "Hi")]),
        json!([text("user", "[System]: Be kind"), text("user", "Hi")]),
        &["user 0"],
    );
    check(NO_SYSTEM, json!([{"role": "system"}]), json!([{"role": "user"}]), &["user 0"]);
    let image = json!({"type": "image", "base64": "aGk="});
    check(
        NO_SYSTEM,
        json!([{"role": "system", "content": [{"type": "text", "text": "See"}, image]}, {"role": "system", "content": [image]}]),
        json!([{"role": "user", "content": [{"type": "text", "text": "[System]: See"}, image, image]}]),
        &["merged 0 1", "user 0 1"],
    );
    check(
        NO_SYSTEM,
        json!([{"role": "system", "content": [image]}]),
        json!([{"role": "user", "content": [{"type": "text", "text": "[System]: "}, image]}]),
        &["user 0"],
    );
}

#[test]
fn strict_turns_merge_consecutive_messages_of_one_role() {
    check(
        STRICT_ONLY,
        json!([
            text("system", "A"),
            text("system", "B"),
            text("user", "One"),
            text("user", "Two"),
            text("assistant", "1")
        ]),
        json!([text("user", "[System]: A\n\nB\n\nOne\n\nTwo"), text("assistant", "1")]),
        &["merged 0 1", "user 0 1", "merged 0 1 2 3"],
    );
    check(
        STRICT_SYSTEM,
        json!([text("user", "A"), text("user", "A"), text("assistant", "B"), text("user", "C"), text("user", "D")]),
        json!([text("user", "A\n\nA"), text("assistant", "B"), text("user", "C\n\nD")]),
        &["merged 0 1", "merged 3 4"],
    );
}

#[test]
fn tool_messages_never_merge() {
    let calls = json!({"role": "assistant", "content": null, "tool_calls": [{"id": "1"}, {"id": "2"}]});
    stays(
        STRICT_SYSTEM,
        json!([text("user", "Go"), calls, text("tool", "1"), text("tool", "2"), text("user", "Well?")]),
    );
}

#[test]
fn merged_assistant_messages_keep_their_tool_calls() {
    let said = |text: Value, calls: Value| json!({"role": "assistant", "content": text, "tool_calls": calls});
    check(
        STRICT_SYSTEM,
        json!([said(json!("A"), json!([{"id": "1"}])), said(json!("B"), json!([{"id": "1"}]))]),
        json!([said(json!("A\n\nB"), json!([{"id": "1"}, {"id": "1"}]))]),
        &["merged 0 1"],
    );
    check(
        STRICT_SYSTEM,
        json!([text("assistant", "A"), {"role": "assistant", "tool_calls": [{"id": "1"}]}]),
        json!([said(json!("A"), json!([{"id": "1"}]))]),
        &["merged 0 1"],
    );
    check(
        STRICT_SYSTEM,
        json!([said(json!(null), json!([{"id": "1"}])), text("assistant", "B")]),
        json!([said(json!("B"), json!([{"id": "1"}]))]),
        &["merged 0 1"],
    );
}

#[test]
fn merging_text_with_blocks_gives_blocks() {
    let image = json!({"type": "image", "base64": "aGk="});
    let block = |text: &str| json!({"type": "text", "text": text});
    let blocks = |blocks: Value| json!({"role": "user", "content": blocks});
    check(
        STRICT_SYSTEM,
        json!([text("user", "See"), blocks(json!([image])), text("user", "What is it?"), text("user", "")]),
        json!([blocks(json!([block("See"), image, block("What is it?")]))]),
        &["merged 0 1 2 3"],
    );
}

#[test]
fn merged_messages_keep_all_keys() {
    check(
        STRICT_SYSTEM,
        json!([
            {"role": "user", "content": "A", "name": "ann", "cache": {"ttl": 5}, "tags": ["x"], "n": 1, "as": "a"},
            {"role": "user", "content": "B", "name": "ann", "cache": {"ttl": 5}, "tags": ["y"], "n": 2, "as": ["b"], "new": null},
            {"role": "user", "content": "C", "n": 3},
        ]),
        json!([
            {"role": "user", "content": "A\n\nB\n\nC", "name": "ann", "cache": {"ttl": 5}, "tags": ["x", "y"], "n": [1, 2, 3],
             "as": ["a", "b"], "new": null},
        ]),
        &["merged 0 1 2"],
    );
    check(
        STRICT_SYSTEM,
        json!([{"role": "assistant", "content": "1", "reasoning_content": "a"}, {"role": "assistant", "reasoning_content": "b"}]),
        json!([{"role": "assistant", "content": "1", "reasoning_content": "a\n\nb"}]),
        &["merged 0 1"],
    );
}

#[test]
fn malformed_messages_are_not_rewritten() {
    stays(STRICT_SYSTEM, json!([{"role": "user", "content": 5}, text("user", "A")]));
    stays(
        STRICT_SYSTEM,
        json!([{"content": "no role"}, {"content": "no role"}, {"role": 5}, {"role": 5}, "text", null]),
    );
}

#[test]
fn rewrite_names_its_messages() {
    let messages = vec![text("user", "A"), text("system", "B"), text("system", "C")];
    let Normalized { rewrites, .. } = normalize(Traced::all(messages), NO_SYSTEM);
    assert_eq!(rewrites[0].path().to_string(), "messages[1]");
    error_texts::check("warning/merged", &rewrites[0]);
}
