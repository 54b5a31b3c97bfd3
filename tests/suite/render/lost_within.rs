//! Parts within calls, documents and merged messages that a template leaves out, and parts that it shows
//! only in some conversations.

use serde_json::{Value, json};

use super::warned::{ALL, check, say, with};

fn called(arguments: Value) -> Value {
    let call = json!({"id": "abcdefghi", "type": "function", "function": {"name": "weather", "arguments": arguments}});
    with(say("assistant", ""), "tool_calls", json!([call]))
}

/// Probes render small conversations, and none with this one's texts.
#[test]
fn a_part_that_a_template_escapes_in_this_conversation_only_has_no_warning() {
    let calls = format!(
        "{ALL}{{% if messages[0].role == 'system' %}}{{% for m in messages %}}{{% for c in m.tool_calls or [] %}}{{{{ c.function.name }}}}{{{{ c.function.arguments | tojson }}}}{{% endfor %}}{{% endfor %}}{{% endif %}}"
    );
    let quoted = called(json!({"q": "a \"b\""}));
    let request = json!({"messages": [say("system", "Be brief."), say("user", "Hi"), quoted]});
    check(&calls, &request, &[]);
    let request = json!({"messages": [say("user", "Hi"), quoted]});
    check(&calls, &request, &[("TOOL_CALLS_IGNORED", "messages[1].tool_calls[0]")]);

    let several = format!("{{% if documents | length > 1 %}}{{{{ documents | tojson }}}}{{% endif %}}{ALL}");
    let documents = |count: usize| vec![json!({"text": "The word \"a\" is <one>."}); count];
    check(&several, &json!({"messages": [say("user", "Hi")], "documents": documents(2)}), &[]);
    let one = json!({"messages": [say("user", "Hi")], "documents": documents(1)});
    check(&several, &one, &[("DOCUMENTS_IGNORED", "documents")]);

    let developer = "{{ tools | tojson if tools }}{% for m in messages %}{% if m.role != 'developer' %}<{{ m.role }}>{{ m.content }}{% elif tools %}{{ m.content | tojson }}{% endif %}{% endfor %}";
    let tool = json!({"type": "function", "function": {"name": "now", "description": "Finds the time"}});
    let messages = [say("developer", "Say \"no\" only."), say("user", "Hi")];
    check(developer, &json!({"messages": messages, "tools": [tool]}), &[]);
    check(developer, &json!({"messages": messages}), &[("MESSAGE_IGNORED", "messages[0]")]);
}

#[test]
fn arguments_that_a_template_leaves_out_have_warnings() {
    let arguments = json!({"city": "Rome", "days": 12345, "where": {"street": "Via Appia"}, "tags": ["old", "new \"x\""], "ok": true});
    let request = json!({"messages": [say("user", "In Rome?"), called(arguments), say("user", "Thanks")]});
    let with = |call: &str| {
        format!(
            "{{% for m in messages %}}<{{{{ m.role }}}}>{{{{ m.content }}}}{{% for c in m.tool_calls or [] %}}{call}{{% endfor %}}{{% endfor %}}"
        )
    };
    let each = |condition: &str| {
        with(&format!(
            "{{{{ c.function.name }}}}{{% for k, v in c.function.arguments | items %}}{{% if {condition} %}}{{{{ k }}}}={{{{ v if v is string else v | tojson }}}} {{% endif %}}{{% endfor %}}"
        ))
    };
    let lost = |names: &[&str]| {
        names.iter().map(|name| format!("messages[1].tool_calls[0].function.arguments.{name}")).collect::<Vec<_>>()
    };
    let check_lost = |template: &str, names: &[&str]| {
        let paths = lost(names);
        check(template, &request, &paths.iter().map(|path| ("TOOL_CALLS_IGNORED", path.as_str())).collect::<Vec<_>>());
    };
    check(&each("true"), &request, &[]);
    check(&with("{{ c.function | tojson }}"), &request, &[]);
    let name = ("TOOL_CALLS_IGNORED", "messages[1].tool_calls[0].function.name");
    check(&with("{{ c.function.arguments | dictsort }}"), &request, &[name]);
    check_lost(&each("v is string"), &["days", "where", "tags", "ok"]);
    check_lost(&each("k == 'tags'"), &["city", "days", "where", "ok"]);
    check_lost(&each("k != 'where'"), &["where"]);
    check_lost(
        &with("{{ c.function.name }}{{ c.function.arguments.values() | list | first }}"),
        &["days", "where", "tags", "ok"],
    );
    check_lost(&with("{{ c.function.name }}"), &["city", "days", "where", "tags", "ok"]);
    check(&with(""), &request, &[("TOOL_CALLS_IGNORED", "messages[1].tool_calls[0]")]);
}

#[test]
fn a_name_that_a_template_leaves_out_has_a_warning() {
    let messages = json!([with(say("user", "Hi, I am Bob."), "name", "Bob"), say("assistant", "Hello.")]);
    let request = json!({"messages": messages, "add_generation_prompt": false});
    check(ALL, &request, &[("MESSAGE_IGNORED", "messages[0].name")]);
    let named = "{% for m in messages %}<{{ m.role }}{{ ' ' + m.name if m.name }}>{{ m.content }}{% endfor %}";
    check(named, &request, &[]);
    let formatted = json!({"messages": messages, "adapter": "chatml"});
    check(ALL, &formatted, &[("MESSAGE_IGNORED", "messages[0].name")]);
}

#[test]
fn a_lost_key_of_each_merged_message_has_a_warning() {
    let strict = "{% for m in messages %}{% if not loop.first and loop.previtem.role == m.role %}{{ raise_exception('alternate') }}{% endif %}<{{ m.role }}>{{ m.content }}{% endfor %}";
    let merged = ("MESSAGES_MERGED", "messages[0]");
    for (key, first, second) in [
        ("name", json!("Ann"), json!("Bob")),
        ("tag", json!("x"), json!("y")),
        ("meta", json!({"a": 1}), json!({"b": 2})),
    ] {
        let messages =
            [with(say("user", "Hi"), key, first), with(say("user", "Ho"), key, second), say("assistant", "x")];
        let paths = [0, 1].map(|at| format!("messages[{at}].{key}"));
        let lost = [merged, ("MESSAGE_IGNORED", &*paths[0]), ("MESSAGE_IGNORED", &*paths[1])];
        check(strict, &json!({"messages": messages}), &lost);
    }
}

#[test]
fn parts_within_a_document_that_a_template_leaves_out_have_warnings() {
    let document = json!({"title": "On Paris", "text": format!("{}The end.", "Paris is in France. ".repeat(20)),
        "authors": ["Ada", "Grace"], "meta": {"place": "Rive Gauche", "pages": [{"note": "first page"}]}, "id": "d1"});
    let request = json!({"messages": [say("user", "Where is it?")], "documents": [document]});
    let with = |document: &str| format!("{{% for d in documents or [] %}}{document}{{% endfor %}}{ALL}");
    check(&with("{{ d | tojson }}"), &request, &[]);
    let lost = |paths: &[&'static str]| paths.iter().map(|path| ("DOCUMENTS_IGNORED", *path)).collect::<Vec<_>>();
    let within = lost(&["documents[0].authors", "documents[0].meta.place", "documents[0].meta.pages[0].note"]);
    check(&with("{{ d.title }}: {{ d.text }}"), &request, &within);
    check(&with("{{ d.title }}: {{ d.text }}{{ d.authors | join(', ') }}"), &request, &within[1..]);
    let cut = lost(&["documents[0]"]);
    check(&with("{{ d.title }}: {{ d.text[:100] }}{{ d.authors }}{{ d.meta }}"), &request, &cut);
}

#[test]
fn calls_after_a_continued_field_have_warnings() {
    let reasons = "{% for m in messages %}<{{ m.role }}>{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}";
    let thought =
        with(with(called(json!({"city": "Rome"})), "content", "It is sunny."), "reasoning_content", "Let me see");
    let continued =
        |field: &str| json!({"messages": [say("user", "In Rome?"), thought], "continue_final_message": field});
    let lost = [("TOOL_CALLS_IGNORED", "messages[1].tool_calls[0]")];
    ["reasoning_content", "content"].iter().for_each(|field| check(reasons, &continued(field), &lost));
}

#[test]
fn lost_reasoning_of_each_merged_message_has_a_warning() {
    let strict = |rest: &str| {
        format!(
            "{{% for m in messages %}}{{% if not loop.first and loop.previtem.role == m.role %}}{{{{ raise_exception('alternate') }}}}{{% endif %}}<{{{{ m.role }}}}>{rest}{{{{ m.content }}}}{{% endfor %}}"
        )
    };
    let thought = |answer: &str, reasoning: &str| with(say("assistant", answer), "reasoning_content", reasoning);
    let messages = [
        say("user", "Hi"),
        thought("Hello.", "Be polite."),
        thought("And welcome.", "Be kind, too."),
        say("user", "Yes"),
    ];
    let request = json!({"messages": messages});
    let merged = ("MESSAGES_MERGED", "messages[1]");
    let lost =
        ["messages[1].reasoning_content", "messages[2].reasoning_content"].map(|path| ("REASONING_IGNORED", path));
    check(&strict(""), &request, &[merged, lost[0], lost[1]]);
    check(&strict("{{ m.reasoning_content }}"), &request, &[merged]);
}

/// The contract passes further keys of a message to the template, in `extra_json`.
#[test]
fn keys_of_a_message_that_a_template_never_reads_have_warnings() {
    let details = json!([{"type": "reasoning.text", "text": "The capital is asked."}]);
    let mut thought = with(with(say("assistant", "Paris."), "reasoning_details", details), "refusal", Value::Null);
    thought["annotations"] = json!([]);
    let asked = with(with(say("user", "Which?"), "meta", json!({"source": "web"})), "prefix", true);
    let request = json!({"messages": [asked, thought, say("user", "Why?")]});
    let lost = ["messages[0].meta", "messages[0].prefix", "messages[1].reasoning_details"]
        .map(|path| ("MESSAGE_IGNORED", path));
    let reads =
        |rest: &str| format!("{{% for m in messages %}}<{{{{ m.role }}}}>{rest}{{{{ m.content }}}}{{% endfor %}}");
    check(ALL, &request, &lost);
    check(&reads("{{ (m.meta or {}).source }}"), &request, &lost[1..]);
    check(&reads("{{ '!' if m.prefix }}"), &request, &[lost[0], lost[2]]);
    check(&reads("{% for d in m.reasoning_details or [] %}{{ d.text }}{% endfor %}"), &request, &lost[..2]);
    check("{{ messages | tojson }}", &request, &[]);
    let plain = json!({"messages": request["messages"], "adapter": "chatml"});
    check(ALL, &plain, &lost);
}

#[test]
fn long_arguments_that_a_template_cuts_have_warnings() {
    let lines = |count: usize| (0..count).map(|n| format!("print(\"line {n} of it all\")\n")).collect::<String>();
    let request =
        |arguments: Value| json!({"messages": [say("user", "Write it"), called(arguments), say("user", "Thanks")]});
    let object = json!({"path": "a.py", "code": lines(20), "edits": {"lines": [lines(9), "x"]}});
    let text = json!(object.to_string());
    let calls = |shown: &str| {
        format!(
            "{ALL}{{% for m in messages %}}{{% for c in m.tool_calls or [] %}}[{{{{ c.function.name }}}}{{% set a = c.function.arguments %}}{shown}]{{% endfor %}}{{% endfor %}}"
        )
    };
    let cut = |paths: &[&str]| paths.iter().map(|path| format!("messages[1].tool_calls[0]{path}")).collect::<Vec<_>>();
    let check_cut = |shown: &str, arguments: &Value, paths: &[&str]| {
        let paths = cut(paths);
        let expected: Vec<_> = paths.iter().map(|path| ("TOOL_CALLS_IGNORED", path.as_str())).collect();
        check(&calls(shown), &request(arguments.clone()), &expected);
    };
    let each = |value: &str| format!("{{% for k, v in a | items %}}{{{{ k }}}}={{{{ {value} }}}} {{% endfor %}}");
    let of_code = ".function.arguments.code";
    let of_lines = [0, 1].map(|line| format!(".function.arguments.edits.lines[{line}]"));
    check_cut("{{ a | tojson }}", &object, &[]);
    check_cut("{{ a }}", &text, &[]);
    check_cut(&each("(v if v is string else v | tojson)"), &object, &[]);
    check_cut(&each("(v if v is string else v | tojson)[:100]"), &object, &[&*of_lines[1], of_code, &*of_lines[0]]);
    check_cut(&each("(v | truncate(60) if v is string else v)"), &object, &[of_code]);
    check_cut("{{ a[:100] }}", &text, &[""]);
}

#[test]
fn a_cut_of_a_merged_text_names_the_part_that_is_cut() {
    let shown = |text: &str| {
        format!(
            "{{% for m in messages %}}{{% if not loop.first and loop.previtem.role == m.role %}}{{{{ raise_exception('alternate') }}}}{{% endif %}}<{{{{ m.role }}}}>{{{{ {text} }}}}{{% endfor %}}"
        )
    };
    let block = |text: &str| json!({"type": "text", "text": text});
    let long = &*"many words ".repeat(8);
    let [first, last] = ["m.content[:60]", "m.content[-60:]"].map(shown);
    let check_cut = |template: &str, messages: Value, paths: &[&str]| {
        let rewritten = [("MESSAGES_MERGED", "messages[0]")];
        let cut: Vec<_> = paths.iter().map(|path| ("MESSAGE_IGNORED", *path)).collect();
        let expected =
            if messages.as_array().is_some_and(|all| all.len() > 1) { [&rewritten, &cut[..]].concat() } else { cut };
        check(template, &json!({"messages": messages, "add_generation_prompt": false}), &expected);
    };
    check_cut(&first, json!([say("user", "Hi"), say("user", long)]), &["messages[1].content"]);
    check_cut(&last, json!([say("user", "Hi"), say("user", long)]), &["messages[0].content", "messages[1].content"]);
    check_cut(&last, json!([say("user", long), say("user", "Hi")]), &["messages[0].content"]);
    check_cut(&first, json!([say("user", json!([block("Hi, "), block(long)]))]), &["messages[0].content[1]"]);
    let blocks = json!([block("Hi, "), block("you. "), block(long)]);
    check_cut(
        &first,
        json!([say("user", "Hi"), say("user", blocks), say("user", "Bye")]),
        &["messages[1].content[2]", "messages[2].content"],
    );
    // The mark of a system message is before its text.
    let no_system =
        format!("{{% if messages[0].role == 'system' %}}{{{{ raise_exception('none') }}}}{{% endif %}}{first}");
    let messages = json!([say("system", "Be brief."), say("user", long)]);
    let rewritten = [("SYSTEM_REWRITTEN", "messages[0]"), ("MESSAGES_MERGED", "messages[0]")];
    check(
        &no_system,
        &json!({"messages": messages}),
        &[rewritten[0], rewritten[1], ("MESSAGE_IGNORED", "messages[1].content")],
    );
}

#[test]
fn an_argument_that_a_template_reads_only_in_a_branch_that_is_not_taken_has_a_warning() {
    let request = |args: Value| json!({"messages": [say("user", "Hi")], "template_args": args});
    let unknown = [("TEMPLATE_ARG_UNKNOWN", "template_args.style")];
    let with = |branch: &str| format!("{branch}{ALL}");
    let style = request(json!({"style": "short"}));
    check(&with("{% if false %}{{ style }}{% endif %}"), &style, &unknown);
    check(&with("{% if messages | length > 99 %}{{ style }}{% endif %}"), &style, &unknown);
    check(&with("{% macro m() %}{{ style }}{% endmacro %}"), &style, &unknown);
    check(&with("{% macro m() %}{{ style }}{% endmacro %}{{ m() }}"), &style, &[]);
    // A value that changes nothing is read all the same.
    check(&with("{% if style == 'long' %}!{% endif %}"), &style, &[]);
    check(&with("{{ 'x' if style is defined and style == 'long' }}"), &style, &[]);
    // It changes the prompts of other conversations.
    let tool = with("{% if tools %}{{ tools | tojson }}{{ 'x' if style }}{% endif %}");
    check(&tool, &style, &[]);
}
