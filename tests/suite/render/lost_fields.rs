//! Fields that a template leaves out and that are no texts of messages: contents of other types, further keys,
//! names and values of calls, schemas of tools, and arguments of the template.

use serde_json::{Value, json};

use super::warned::{ALL, check, rendered, say, with};

/// Walks lists and shows their texts.
const WALKS: &str = "{% for m in messages %}<{{ m.role }}>{% if m.content is string %}{{ m.content }}{% else %}{% for b in m.content or [] %}{% if b.type == 'text' %}{{ b.text }}{% endif %}{% endfor %}{% endif %}{% endfor %}";

fn called(id: &str, arguments: Value) -> Value {
    let call = json!({"id": id, "type": "function", "function": {"name": "weather", "arguments": arguments}});
    with(say("assistant", ""), "tool_calls", json!([call]))
}

#[test]
fn content_that_is_an_object_has_a_warning_if_the_prompt_lacks_it() {
    let result = with(say("tool", json!({"temp": 18, "sky": "blue"})), "tool_call_id", "abcdefghi");
    let messages = json!([say("user", "Hi"), called("abcdefghi", json!({"city": "Rome"})), result]);
    let calls =
        "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function | tojson }}{% endfor %}{% endfor %}";
    for normalization in ["capability", "none"] {
        let request = json!({"messages": messages, "normalization": normalization});
        check(&format!("{calls}{WALKS}"), &request, &[("MESSAGE_IGNORED", "messages[2].content")]);
        check(&format!("{calls}{ALL}"), &request, &[]);
        let sky = format!("{calls}{WALKS}{{{{ messages[-1].content.sky }}}}");
        check(&sky, &request, &[("MESSAGE_IGNORED", "messages[2].content.temp")]);
    }
}

/// Under CAPABILITY, a block that a template does not show is refused.
#[test]
fn a_block_that_is_no_text_has_a_warning_if_the_prompt_lacks_it() {
    let text = json!({"type": "text", "text": "It is sunny."});
    for block in [
        json!({"type": "thinking", "thinking": "The sky is blue."}),
        json!({"type": "tool_use", "id": "abcdefghi", "name": "weather", "input": {"city": "Rome"}}),
        json!({"type": "file", "file": {"file_id": "f1"}}),
    ] {
        let messages = json!([say("user", "Hi"), say("assistant", json!([block, text]))]);
        let request = json!({"messages": messages, "normalization": "none"});
        check(WALKS, &request, &[("MESSAGE_IGNORED", "messages[1].content[0]")]);
        check(ALL, &request, &[]);
    }
}

#[test]
fn further_keys_of_a_text_block_have_warnings_if_the_prompt_lacks_them() {
    let cited = json!([{"type": "text", "text": "Hi", "citations": ["a.pdf"]}, {"type": "text", "text": " you", "cache_control": {"type": "ephemeral"}}]);
    let request = json!({"messages": [say("user", cited)]});
    let keys = [
        ("MESSAGE_IGNORED", "messages[0].content[0].citations"),
        ("MESSAGE_IGNORED", "messages[0].content[1].cache_control"),
    ];
    // One template takes text, the other one lists.
    check(ALL, &request, &keys);
    check(WALKS, &request, &keys);
    let cites = format!(
        "{WALKS}{{% for m in messages %}}{{% if m.content is not string %}}{{% for b in m.content %}}{{{{ b.citations }}}}{{% endfor %}}{{% endif %}}{{% endfor %}}"
    );
    check(&cites, &request, &keys[1..]);
}

/// As Kimi K2 writes calls: by an identifier that contains the name, if the client made it so.
#[test]
fn the_name_of_a_call_that_is_shown_without_it_has_a_warning() {
    let by_id = format!(
        "{ALL}{{% for m in messages %}}{{% for c in m.tool_calls or [] %}}[{{{{ c.id }}}} {{{{ c.function.arguments | tojson }}}}]{{% endfor %}}{{% endfor %}}"
    );
    let named = by_id.replace("c.id", "c.function.name");
    for arguments in [json!({"city": "Rome"}), json!({})] {
        let request = |id: &str| json!({"messages": [say("user", "The weather?"), called(id, arguments.clone()), say("user", "Well?")]});
        check(&by_id, &request("call_1"), &[("TOOL_CALLS_IGNORED", "messages[1].tool_calls[0].function.name")]);
        check(&by_id, &request("functions.weather:0"), &[]);
        check(&named, &request("call_1"), &[]);
    }
}

#[test]
fn values_of_arguments_that_a_template_leaves_out_have_warnings() {
    let arguments = json!({"city": "Rome", "unit": null, "exact": false, "note": "", "days": ["Mon", {"at": "noon"}]});
    let request =
        json!({"messages": [say("user", "Hi"), called("abcdefghi", arguments)], "add_generation_prompt": false});
    let calls = |each: &str| {
        format!(
            "{ALL}{{% for m in messages %}}{{% for c in m.tool_calls or [] %}}{{{{ c.function.name }}}}({each}){{% endfor %}}{{% endfor %}}"
        )
    };
    let lost = |values: &[&'static str]| {
        values.iter().map(|value| format!("messages[1].tool_calls[0].function.arguments.{value}")).collect::<Vec<_>>()
    };
    let check_lost = |each: &str, values: &[&'static str]| {
        let paths = lost(values);
        check(
            &calls(each),
            &request,
            &paths.iter().map(|path| ("TOOL_CALLS_IGNORED", path.as_str())).collect::<Vec<_>>(),
        );
    };
    check_lost("{{ c.function.arguments | tojson }}", &[]);
    check_lost(
        "{% for k, v in c.function.arguments | items %}{% if v %}{{ k }}={{ v }} {% endif %}{% endfor %}",
        &["unit", "exact", "note"],
    );
    check_lost(
        "{% for k, v in c.function.arguments | items %}{{ k }}={{ v[0] if v is sequence and v is not string else v }} {% endfor %}",
        &["days[1]"],
    );
}

#[test]
fn the_name_of_a_result_has_a_warning_if_no_part_of_the_prompt_shows_it() {
    let result = |name: &str| with(with(say("tool", "sunny"), "name", name), "tool_call_id", "abcdefghi");
    let calls = format!(
        "{ALL}{{% for m in messages %}}{{% for c in m.tool_calls or [] %}}{{{{ c.function | tojson }}}}{{% endfor %}}{{% endfor %}}"
    );
    let request = |name: &str| json!({"messages": [say("user", "Hi"), called("abcdefghi", json!({"city": "Rome"})), result(name)]});
    let lost = [("MESSAGE_IGNORED", "messages[2].name")];
    check(&calls, &request("weather"), &[]);
    check(&calls, &request("forecast"), &lost);
    let call = ("TOOL_CALLS_IGNORED", "messages[1].tool_calls[0]");
    check(ALL, &request("weather"), &[call, lost[0]]);
}

/// The built-in formats show names, types and descriptions of parameters.
#[test]
fn parts_of_schemas_that_a_format_or_template_leaves_out_have_warnings() {
    let properties = json!({
        "city": {"type": "string", "description": "The city", "default": "Rome", "pattern": "[A-Z].*", "examples": ["Oslo"]},
        "unit": {"enum": ["celsius", "kelvin"]},
        "place": {"type": "object", "description": "A place", "properties": {"road": {"type": "string", "description": "Its road"}}},
        "days": {"type": "array", "items": {"type": "object", "properties": {"day": {"type": "string"}}}},
        "any": {"anyOf": [{"type": "string", "description": "A word"}]},
    });
    let parameters = json!({"type": "object", "properties": properties, "required": ["city"], "$defs": {"Area": {"type": "object", "properties": {"wide": {"type": "number"}}}}});
    let tool = json!({"type": "function", "function": {"name": "weather", "description": "Finds the weather", "parameters": parameters}});
    let request = json!({"messages": [say("user", "Hi")], "tools": [tool]});
    let lost = |answer: &Value| {
        let warnings = answer["warnings"].as_array().expect("warnings").iter();
        let paths =
            warnings.filter(|warning| warning["code"] == "TOOLS_IGNORED").map(|warning| warning["path"].as_str());
        let paths = paths.map(|path| {
            path.and_then(|path| path.strip_prefix("tools[0].function.parameters.")).expect("a path").to_owned()
        });
        paths.collect::<std::collections::BTreeSet<_>>()
    };
    for adapter in ["chatml", "llama3", "tagged"] {
        let found = lost(&rendered(ALL, &with(request.clone(), "adapter", adapter)));
        for path in [
            "properties.city.default",
            "properties.city.pattern",
            "properties.city.examples[0]",
            "properties.unit.enum",
            "properties.place.properties",
            "properties.days.items.properties",
            "properties.any.anyOf[0].description",
            "$defs.Area.properties",
            "required",
        ] {
            assert!(found.contains(path), "{adapter} {path}: {found:?}");
        }
        for path in ["properties.city.description", "properties.city.type", "properties.place.description"] {
            assert!(!found.contains(path), "{adapter} {path}: {found:?}");
        }
    }
    assert!(lost(&rendered(&format!("{{{{ tools | tojson }}}}{ALL}"), &request)).is_empty());
    assert!(lost(&rendered(&format!("{{{{ tools }}}}{ALL}"), &request)).is_empty());
    let each = format!(
        "{{% for t in tools or [] %}}{{% set p = t.function.parameters %}}{{{{ t.function.name }}}}{{{{ t.function.description }}}}{{{{ p.properties | tojson }}}}{{{{ p['$defs'] }}}}{{% endfor %}}{ALL}"
    );
    assert_eq!(lost(&rendered(&each, &request)).into_iter().collect::<Vec<_>>(), ["required"]);
}

#[test]
fn an_argument_that_a_template_replaces_before_it_reads_it_has_a_warning() {
    let request = |name: &str| json!({"messages": [say("user", "Hi")], "template_args": {name: "given"}});
    let unknown = [("TEMPLATE_ARG_UNKNOWN", "template_args.today")];
    check(&format!("{{% set today = 'now' %}}{{{{ today }}}}{ALL}"), &request("today"), &unknown);
    let branches =
        "{% if messages | length > 1 %}{% set today = 'a' %}{% else %}{% set today = 'b' %}{% endif %}{{ today }}";
    check(&format!("{branches}{ALL}"), &request("today"), &unknown);
    check(
        &format!("{{% if today is not defined %}}{{% set today = 'now' %}}{{% endif %}}{{{{ today }}}}{ALL}"),
        &request("today"),
        &[],
    );
    check(
        &format!("{{% for m in messages %}}{{{{ today }}}}{{% set today = m.role %}}{{% endfor %}}{ALL}"),
        &request("today"),
        &[],
    );
    let in_macro =
        "{% macro day() %}{{ today }}{% endmacro %}{% if false %}{% set today = 'a' %}{% endif %}{{ day() }}";
    check(&format!("{in_macro}{ALL}"), &request("today"), &[]);
}

/// Marks make a text longer.
#[test]
fn a_text_that_a_template_shows_by_its_length_has_no_false_warning() {
    let request = json!({"messages": [say("user", "Hi you"), say("assistant", "Hello there, how are you?")], "add_generation_prompt": false});
    let each = |content: &str| format!("{{% for m in messages %}}<{{{{ m.role }}}}>{content}{{% endfor %}}");
    check(&each("{{ m.content if m.content | length < 40 else '(long)' }}"), &request, &[]);
    check(&each("{{ m.content | wordwrap(5) }}"), &request, &[]);
    check(&each("{{ m.content[:12] }}"), &request, &[("MESSAGE_IGNORED", "messages[1].content")]);
}

#[test]
fn numbers_and_letters_of_any_size_that_a_template_changes_have_no_warning() {
    let more = "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.name }}={{ c.function.arguments.n + 1 }}{% endfor %}{% endfor %}";
    for n in [5, 7, 77] {
        check(more, &json!({"messages": [say("user", "Hi"), called("abcdefghi", json!({"n": n}))]}), &[]);
    }
    let text = "天地玄黄，宇宙洪荒。日月盈昃，辰宿列张。寒来暑往，秋收冬藏。";
    let request = json!({"messages": [say("user", text)]});
    let each = |content: &str| format!("{{% for m in messages %}}<{{{{ m.role }}}}>{content}{{% endfor %}}");
    check(&each("{{ m.content | replace('。', '.') | replace('，', ', ') }}"), &request, &[]);
    check(&each("{{ m.content[:20] }}"), &request, &[("MESSAGE_IGNORED", "messages[0].content")]);
}

/// No letters of another text are left out.
#[test]
fn a_part_that_a_template_leaves_out_because_of_its_text_has_a_warning() {
    let skips = "{% for m in messages %}{% if m.content != 'please skip this' %}{{ m.content }}{% endif %}{% for c in m.tool_calls or [] %}[{{ c.function.name }}{% for k, v in c.function.arguments | items %}{% if v and v != 'verylongvalue' %} {{ k }}={{ v }}{% endif %}{% endfor %}]{% endfor %}{% endfor %}";
    let request = |messages: Value| json!({"messages": messages, "add_generation_prompt": false});
    let skipped = json!([say("user", "hello"), say("assistant", "please skip this"), say("user", "x")]);
    check(skips, &request(skipped), &[("MESSAGE_IGNORED", "messages[1]")]);
    let call = called("abcdefghi", json!({"a": "verylongvalue", "b": "short", "n": 0}));
    let of_call = ["a", "n"].map(|name| format!("messages[1].tool_calls[0].function.arguments.{name}"));
    let lost = of_call.each_ref().map(|path| ("TOOL_CALLS_IGNORED", path.as_str()));
    check(skips, &request(json!([say("user", "hello"), call])), &lost);
    let once = "{% set ns = namespace(s='') %}{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}{% if c.function.name not in ns.s %}{% set ns.s = ns.s + c.function.name %}[{{ c.function | tojson }}]{% endif %}{% endfor %}{% endfor %}";
    let [first, second] = ["Rome", "Oslo"].map(|city| called("abcdefghi", json!({"city": city})));
    let twice = json!([say("user", "hello"), first, say("user", "and there?"), second]);
    check(once, &request(twice), &[("TOOL_CALLS_IGNORED", "messages[3].tool_calls[0]")]);
}

#[test]
fn the_error_of_a_template_names_the_part_for_which_it_fails() {
    let field = |template: &str, request: &Value| {
        let answer = rendered(template, request);
        answer["error"]["field"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    };
    let tools =
        format!("{{% for t in tools or [] %}}{{{{ t.function.parameters.properties.items() }}}}{{% endfor %}}{ALL}");
    let tool = |properties: Value| json!({"type": "function", "function": {"name": "f", "parameters": {"properties": properties}}});
    let request = json!({"messages": [say("user", "Hi")], "tools": [tool(json!({})), tool(json!(7)), tool(json!({}))]});
    assert_eq!(field(&tools, &request), "tools[1]");
    let raises = format!("{{{{ raise_exception('no tools') if tools }}}}{ALL}");
    assert_eq!(field(&raises, &request), "tools");
    let calls = format!(
        "{ALL}{{% for m in messages %}}{{% for c in m.tool_calls or [] %}}{{{{ c.function.arguments.items() }}}}{{% endfor %}}{{% endfor %}}"
    );
    let request = json!({"messages": [say("user", "Hi"), called("a", json!({"x": 1})), called("b", json!("no JSON"))], "normalization": "none"});
    assert_eq!(field(&calls, &request), "messages[2].tool_calls[0].function.arguments");
    let sums = "{% for m in messages %}{{ 'x' + m.content }}{% endfor %}";
    let request = json!({"messages": [say("user", "Hi"), say("assistant", json!({"a": 1}))], "normalization": "none"});
    assert_eq!(field(sums, &request), "messages[1].content");
    assert_eq!(field("{{ raise_exception('no') }}", &request), "messages");
    let numbers = json!({"messages": (0..40).map(|n| if n == 30 { say("user", n) } else { say("user", "Hi") }).collect::<Vec<_>>(), "normalization": "none"});
    assert_eq!(field(sums, &numbers), "messages[30].content");
    let many: Vec<_> = (0..100).map(|n| if n == 70 { tool(json!(n)) } else { tool(json!({})) }).collect();
    let needed = tools.replace("tools or []", "tools");
    for template in [tools, needed] {
        let request = json!({"messages": [say("user", "Hi")], "tools": many});
        assert_eq!(field(&template, &request), "tools[70]", "{template}");
    }
    // The arguments that become objects are no fault, nor is a tool beside an argument of the template.
    let both = format!("{sums}{calls}");
    let request = json!({"messages": [say("user", "Hi"), called("a", json!("{\"x\": 1}")), say("user", 5)]});
    assert_eq!(field(&both, &request), "messages[2].content");
    let styled = "{% if tools %}{{ 'x' + style }}{% endif %}";
    let request = json!({"messages": [say("user", "Hi")], "tools": [tool(json!({}))], "template_args": {"style": 5}});
    assert_eq!(field(styled, &request), "template_args.style");
    let documents = format!("{{% for d in documents or [] %}}{{{{ d.title + d.text }}}}{{% endfor %}}{ALL}");
    let document = |text: Value| json!({"title": "A", "text": text});
    let request = json!({"messages": [say("user", "Hi")], "documents": [document("B".into()), document(5.into())]});
    assert_eq!(field(&documents, &request), "documents[1]");
    let nameless = with(say("assistant", ""), "tool_calls", json!([{"id": "a", "function": {"arguments": {}}}]));
    let named = format!(
        "{ALL}{{% for m in messages %}}{{% for c in m.tool_calls or [] %}}{{{{ '' + c.function.name }}}}{{% endfor %}}{{% endfor %}}"
    );
    assert_eq!(field(&named, &json!({"messages": [say("user", "Hi"), nameless]})), "messages[1].tool_calls[0]");
}

/// Clients of other APIs send the arguments of a call as text.
#[test]
fn text_arguments_become_an_object_where_a_template_fails_for_text() {
    let walks = format!(
        "{WALKS}{{% for m in messages %}}{{% for c in m.tool_calls or [] %}}{{% for k, v in c.function.arguments | items %}}{{{{ k }}}}={{{{ v }}}}{{% endfor %}}{{{{ c.function.name }}}}{{% endfor %}}{{% endfor %}}"
    );
    let call = called("abcdefghi", json!("{\"city\": \"Rome\"}"));
    let request = json!({"messages": [say("user", "Hi"), call, say("user", "Well?")]});
    assert_eq!(rendered(&walks, &request)["prompt"], "<user>Hi<assistant><user>Well?city=Romeweather");
    let image = json!([{"type": "image", "base64": "QUJD"}, {"type": "text", "text": "Hi"}]);
    let shown = json!({"messages": [say("user", image), call, say("user", "Well?")]});
    assert_eq!(
        rendered(&walks, &shown)["hf_messages"][1]["tool_calls"][0]["function"]["arguments"],
        json!({"city": "Rome"})
    );
    let text = "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ '<' + c.function.arguments + '>' }}{% endfor %}{% endfor %}";
    let object =
        json!({"messages": [say("user", "Hi"), called("abcdefghi", json!({"city": "Rome"})), say("user", "Well?")]});
    assert_eq!(rendered(text, &object)["prompt"], "<{\"city\": \"Rome\"}>");
}
