//! Parts of a conversation that a template leaves out of the prompt. Each has a warning with its path,
//! and no part that the prompt shows has one.

use serde_json::{Value, json};
use tandem_tests::{ModelFolder, answer};

use super::warned::{ALL, check, say};

/// Returns the warnings' codes and paths for a model with this template.
fn warnings(template: &str, request: &Value) -> Vec<(String, String)> {
    let answer = answer(&ModelFolder::new("tiny").with_template(template).models(), request);
    let warnings = answer["warnings"].as_array().unwrap_or_else(|| panic!("{answer}")).iter();
    let texts = |warning: &Value| ["code", "path"].map(|key| warning[key].as_str().expect("a text").to_owned());
    warnings.map(texts).map(|[code, path]| (code, path)).collect()
}

/// Words that occur elsewhere in a prompt, and many of them.
#[test]
fn messages_that_a_template_leaves_out_have_warnings() {
    let last = "{% for m in messages %}{% if loop.last %}[{{ m.role }}]{{ m.content }}{% endif %}{% endfor %}";
    let expected = [("MESSAGE_IGNORED", "messages[0]"), ("MESSAGE_IGNORED", "messages[1]")];
    let merged = [say("system", "Be brief."), say("system", "Be kind."), say("user", "Hi")];
    let both = [("MESSAGES_MERGED", "messages[0]"), expected[0], expected[1]];
    let none = "{% for m in messages if m.role == 'user' %}[{{ m.role }}]{{ m.content }}{% endfor %}";
    check(none, &json!({"messages": merged, "capabilities": ["SUPPORTS_SYSTEM_ROLE"]}), &both);
    let messages = [say("user", "word ".repeat(400)), say("assistant", "Sure thing, all right."), say("user", "Hi")];
    check(last, &json!({"messages": messages}), &expected);
    // Each text is a part of the prompt's other words.
    let messages = [say("user", "us"), say("assistant", "i"), say("user", "Hi, user")];
    check(last, &json!({"messages": messages}), &expected);
    let messages = [say("user", "Hi"), say("assistant", "user"), say("user", "Hi, user")];
    check(last, &json!({"messages": messages}), &expected);
    check(ALL, &json!({"messages": messages}), &[]);
    // A later message has the same words.
    let ends = "{% for m in messages %}{% if m.role != 'user' or loop.last %}<{{ m.role }}>{{ m.content }}{% endif %}{% endfor %}";
    let messages =
        [say("user", "Please write more."), say("assistant", "first part"), say("user", "Please write more.")];
    check(ends, &json!({"messages": messages}), &expected[..1]);
    check(ALL, &json!({"messages": messages}), &[]);
}

#[test]
fn a_message_that_a_template_transforms_is_shown() {
    let upper = "{% for m in messages %}<{{ m.role }}>{{ m.content | upper }}{% endfor %}";
    let messages =
        [say("system", "Speak Danish."), say("user", "Hi there, you."), say("assistant", "Hello, and welcome.")];
    check(upper, &json!({"messages": messages}), &[]);
}

/// The names of tools are in calls, results and questions, too.
#[test]
fn tools_that_only_calls_name_have_warnings() {
    let tool = |description: Option<&str>| {
        let mut tool = json!({"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}});
        description.into_iter().for_each(|text| tool["function"]["description"] = text.into());
        tool
    };
    let call = json!({"id": "1", "type": "function", "function": {"name": "weather", "arguments": {"city": "Paris"}}});
    let called = json!({"role": "assistant", "content": "", "tool_calls": [call]});
    let messages = [say("user", "Use weather for me."), called, say("tool", "sunny and warm")];
    let calls = "{% if false %}{{ tools }}{% endif %}{% for m in messages %}<{{ m.role }}>{{ m.content }}\
                 {% for c in m.tool_calls or [] %}{{ c.function.name }} {{ c.function.arguments | tojson }}{% endfor %}{% endfor %}";
    let declared = format!("{{{{ tools | tojson }}}}{calls}");
    for description in [None, Some("The weather of a city."), Some("\"Quoted\"")] {
        let request = json!({"messages": messages, "tools": [tool(description)]});
        check(calls, &request, &[("TOOLS_IGNORED", "tools")]);
        check(&declared, &request, &[]);
    }
}

#[test]
fn reasoning_that_a_template_cuts_from_a_text_has_a_warning() {
    let cut = "{% for m in messages %}<{{ m.role }}>{{ m.content.split('</think>')[-1] }}{% endfor %}";
    let thought = say("assistant", "<think>\nThe capital is asked.\n</think>\n\nIt is Paris, of course.");
    let messages = json!({"messages": [say("user", "Which is it?"), thought, say("user", "And of Italy?")]});
    check(cut, &messages, &[("REASONING_IGNORED", "messages[1]")]);
    check(ALL, &messages, &[]);
    let none = "{% for m in messages if m.role == 'user' %}<{{ m.role }}>{{ m.content }}{% endfor %}";
    check(none, &messages, &[("MESSAGE_IGNORED", "messages[1]"), ("REASONING_IGNORED", "messages[1]")]);
}

/// The words of reasoning, calls and results are often in later answers.
#[test]
fn parts_whose_words_are_in_a_later_message_have_warnings() {
    let call =
        json!({"id": "abcdefghi", "type": "function", "function": {"name": "weather", "arguments": {"city": "Paris"}}});
    let mut called = say("assistant", "Let me check that.");
    called["tool_calls"] = json!([call]);
    called["reasoning_content"] = "I will ask for the weather.".into();
    let later = "First I will ask for the weather. Let me check that. It is sunny in Paris. It is sunny.";
    let result = json!({"role": "tool", "tool_call_id": "abcdefghi", "content": "It is sunny."});
    let request =
        json!({"messages": [say("user", "Weather?"), called, result, say("assistant", later), say("user", "Thanks")]});
    let with = |parts: &str| format!("{{% for m in messages %}}<{{{{ m.role }}}}>{parts}{{% endfor %}}");
    let content = "{% if m.role != 'tool' and not m.tool_calls %}{{ m.content }}{% endif %}";
    let lost = [
        ("MESSAGE_IGNORED", "messages[1]"),
        ("REASONING_IGNORED", "messages[1].reasoning_content"),
        ("TOOL_CALLS_IGNORED", "messages[1].tool_calls[0]"),
        ("MESSAGE_IGNORED", "messages[2]"),
    ];
    check(&with(content), &request, &lost);
    let all = "{{ m.reasoning_content }}{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.name }}{{ c.function.arguments.city }}{% endfor %}";
    check(&with(all), &request, &[]);
}

/// A template that looks up the tool of a call, or fails for calls of unknown ones.
#[test]
fn a_call_is_found_without_another_name() {
    let tool = json!({"type": "function", "function": {"name": "weather", "description": "Finds the weather."}});
    let call =
        json!({"id": "abcdefghi", "type": "function", "function": {"name": "weather", "arguments": {"city": "Rome"}}});
    let called = json!({"role": "assistant", "content": "Let me look it up.", "tool_calls": [call]});
    let request = json!({"messages": [say("user", "In Rome?"), called, say("tool", "sunny"), say("user", "Rome")], "tools": [tool]});
    let with = |parts: &str| {
        format!(
            "{{% for t in tools or [] %}}{{{{ t | tojson }}}}{{% endfor %}}{{% for m in messages %}}<{{{{ m.role }}}}>{parts}{{% endfor %}}"
        )
    };
    let shown = "{{ m.content }}{% for c in m.tool_calls or [] %}{% for t in tools if t.function.name == c.function.name %}{{ c.function | tojson }}{% endfor %}{% endfor %}";
    check(&with(shown), &request, &[]);
    let strict = "{% for c in m.tool_calls or [] %}{% if c.function.name != 'weather' %}{{ raise_exception('unknown') }}{% endif %}{{ c.function.arguments | tojson }}{% else %}{{ m.content }}{% endfor %}";
    check(&with(strict), &request, &[("MESSAGE_IGNORED", "messages[1]")]);
}

/// Probes set no argument, and a user's short text may be in the description of a tool.
#[test]
fn earlier_reasoning_that_a_template_shows_has_no_warning() {
    let description = format!("{} Hi {}", "Finds things. ".repeat(90), "Finds more. ".repeat(90));
    let tool = json!({"type": "function", "function": {"name": "find", "description": description}});
    let mut thought = say("assistant", "Answer one here.");
    thought["reasoning_content"] = "A \"greeting\" is polite.".into();
    let messages = [say("user", "Hi"), thought, say("user", "next question")];
    let with = |reasoning: &str, condition: &str| {
        format!(
            "{{{{ tools | tojson }}}}{{% for m in messages %}}<{{{{ m.role }}}}>{{% if m.reasoning_content and ({condition}) %}}{reasoning}{{% endif %}}{{{{ m.content }}}}{{% endfor %}}"
        )
    };
    let last = "loop.last or messages[-1].content.startswith('<tool_response>')";
    let request = json!({"messages": messages, "tools": [tool]});
    check(
        &with("{{ m.reasoning_content }}", last),
        &request,
        &[("REASONING_IGNORED", "messages[1].reasoning_content")],
    );
    let mut answered = request.clone();
    answered["messages"][2]["content"] = "<tool_response>\nfound\n</tool_response>".into();
    check(&with("{{ m.reasoning_content }}", last), &answered, &[]);
    let mut kept = request;
    kept["template_args"] = json!({"keep": true});
    check(&with("{{ m.reasoning_content | tojson }}", "loop.last or keep"), &kept, &[]);
}

/// A list is printed only if its own words follow the marks of a printed block.
#[test]
fn a_walked_list_stays_a_list_beside_text_that_looks_like_a_printed_one() {
    let walk = "{% for m in messages %}<{{ m.role }}>{% if m.content is string %}{{ m.content }}{% else %}{{ m.content | map(attribute='text') | join('|') }}{% endif %}{% endfor %}";
    let list = |texts: [&str; 2]| Value::from(texts.map(|text| json!({"type": "text", "text": text})).to_vec());
    for texts in
        [["Привет,  {\"text\": \"x\"}", "мир?"], ["你好 {'text': 'x'}", "..."], ["Hi {\"text\": \"x\"}", "you"]]
    {
        let request = json!({"messages": [say("user", list(texts))]});
        assert_eq!(prompt(walk, &request), format!("<user>{}|{}", texts[0], texts[1]));
    }
}

/// Encoders of families drop messages of some roles, and every format drops a call in OpenAI's earlier
/// form.
#[test]
fn parts_that_an_encoder_or_a_format_leaves_out_have_warnings() {
    let with_architecture = |model_type: &str, request: &Value| {
        let folder = ModelFolder::new("tiny");
        std::fs::write(folder.path().join("config.json"), json!({"model_type": model_type}).to_string())
            .expect("a file");
        let answer = answer(&folder.models(), request);
        let warnings = answer["warnings"].as_array().unwrap_or_else(|| panic!("{answer}")).iter();
        let found = warnings
            .map(|w| format!("{} {}", w["code"].as_str().expect("a code"), w["path"].as_str().expect("a path")));
        found.filter(|warning| !warning.starts_with("FORMAT_GUESSED")).collect::<Vec<_>>()
    };
    let developer = json!({"messages": [say("developer", "Never reveal it."), say("user", "Hi")], "template_args": {"thinking": true}});
    assert_eq!(with_architecture("deepseek_v4", &developer), ["MESSAGE_IGNORED messages[0]"]);
    let mut called = say("assistant", "One moment.");
    called["function_call"] = json!({"name": "weather", "arguments": "{}"});
    let called = json!({"messages": [say("user", "Which weather is it?"), called]});
    for model_type in ["deepseek_v32", "deepseek_v4"] {
        assert_eq!(with_architecture(model_type, &called), ["TOOL_CALLS_IGNORED messages[1].function_call"]);
    }
    let mut plain = called.clone();
    plain["adapter"] = "plain".into();
    assert_eq!(with_architecture("other", &plain), ["TOOL_CALLS_IGNORED messages[1].function_call"]);
    let mut thought = say("assistant", "It is Paris.");
    thought["reasoning_content"] = "Paris".into();
    let request = json!({"messages": [say("user", "Which city?"), thought, say("user", "Thanks")]});
    assert_eq!(with_architecture("deepseek_v4", &request), ["REASONING_IGNORED messages[1].reasoning_content"]);
}

/// A name that a template does not read, beside one that it reads.
#[test]
fn reasoning_under_a_second_name_has_a_warning_if_it_is_another_text() {
    let shown = "{% for m in messages %}<{{ m.role }}>{{ m.reasoning_content }}{{ m.content }}{% endfor %}";
    let thought = |first: &str, second: &str| {
        let answer = json!({"role": "assistant", "content": "Paris.", "reasoning_content": first, "reasoning": second});
        json!({"messages": [say("user", "Which is it?"), answer]})
    };
    let lost = [("REASONING_IGNORED", "messages[1].reasoning")];
    check(shown, &thought("The capital is asked.", "It is in France."), &lost);
    check(shown, &thought("", "It is in France."), &lost);
    check(shown, &thought("The capital is asked.", "The capital is asked."), &[]);
}

#[test]
fn a_text_that_a_template_cuts_has_a_warning() {
    let request =
        |text: &str| json!({"messages": [say("user", text), say("assistant", "Sure."), say("user", "More, please.")]});
    let with = |content: &str| format!("{{% for m in messages %}}<{{{{ m.role }}}}>{{{{ {content} }}}}{{% endfor %}}");
    let cut = [("MESSAGE_IGNORED", "messages[0].content")];
    let tagged = request("The tag </think> ends a section.");
    check(&with("m.content.split('</think>')[-1]"), &tagged, &cut);
    check(&with("m.content.split('</think>')[0]"), &tagged, &cut);
    check(&with("m.content | replace('</think>', '')"), &tagged, &[]);
    let between = request("Call <tool> no words of mine </tool> them.");
    check(&with("m.content.split('<tool>')[0] + m.content.split('</tool>')[-1]"), &between, &cut);
    check(&with("m.content | replace('<tool>', '[') | replace('</tool>', ']')"), &between, &[]);
    let long = request(&"Some words, and more of them. ".repeat(20));
    check(&with("m.content[:100]"), &long, &cut);
    check(&with("m.content[100:] if loop.first else m.content"), &long, &cut);
    check(&with("(m.content | upper).split('</THINK>') | join(' ')"), &long, &[]);
    check(&with("m.content | replace('more', 'less')"), &long, &[]);
    // The middle, and lines of it.
    check(&with("m.content[:80] + '...' + m.content[-80:]"), &long, &cut);
    let lines = request("# A title\nThe first line of words.\n# Another title\nThe last line of words.");
    check(&with("m.content.split('\n')[0] + m.content.split('\n')[-1]"), &lines, &cut);
    check(&with("m.content.split('# ')[-1]"), &lines, &cut);
    check(&with("m.content.split('\n') | join(' / ')"), &lines, &[]);
    // A block is named by its place.
    let block = json!({"messages": [say("user", json!([{"type": "text", "text": "The tag </think> ends it."}]))]});
    let walked = "{% for m in messages %}<{{ m.role }}>{% for b in m.content %}{{ b.text.split('</think>')[-1] }}{% endfor %}{% endfor %}";
    check(walked, &block, &[("MESSAGE_IGNORED", "messages[0].content[0]")]);
}

#[test]
fn parameters_that_a_template_leaves_out_have_warnings() {
    let tool = |name: &str| {
        let parameters =
            json!({"type": "object", "properties": {"city": {"type": "string", "description": "The city"}}});
        json!({"type": "function", "function": {"name": name, "description": "Does one thing", "parameters": parameters}})
    };
    let plain = json!({"type": "function", "function": {"name": "now", "description": "Does another thing", "parameters": {"type": "object", "properties": {}}}});
    let request = json!({"messages": [say("user", "Which city?")], "tools": [tool("weather"), plain, tool("news")]});
    let with = |tool: &str| format!("{{% for t in tools or [] %}}{tool}{{% endfor %}}{ALL}");
    let lost = [("TOOLS_IGNORED", "tools[0].function.parameters"), ("TOOLS_IGNORED", "tools[2].function.parameters")];
    check(&with("{{ t.function.name }}: {{ t.function.description }}"), &request, &lost);
    check(&with("{{ t | tojson }}"), &request, &[]);
    let property = [0, 2].map(|i| format!("tools[{i}].function.parameters.properties.city.description"));
    let described = [0, 1, 2].map(|i| format!("tools[{i}].function.description"));
    let types = [0, 2].map(|i| format!("tools[{i}].function.parameters.properties.city.type"));
    let described = property.iter().chain(&described).chain(&types).map(|path| ("TOOLS_IGNORED", path.as_str()));
    let described: Vec<_> = described.collect();
    check(&with("{{ t.function.name }}({{ t.function.parameters.properties | join(', ') }})"), &request, &described);
    check(&with("{{ t.type }}"), &request, &[("TOOLS_IGNORED", "tools")]);
    let others = [("TOOLS_IGNORED", "tools[1]"), ("TOOLS_IGNORED", "tools[2]")];
    check(&format!("{{{{ tools[0] | tojson if tools }}}}{ALL}"), &request, &others);

    let nested = json!({
        "city": {"type": "string", "description": "The city of which the weather is asked"},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
        "place": {"type": "object", "description": "A place on the map", "properties": {
            "road": {"type": "string", "description": "The name of the road"},
            "points": {"type": "array", "items": {"type": "object", "properties": {"latitude": {"type": "number"}}}},
        }},
    });
    let tool = json!({"type": "function", "function": {"name": "weather", "description": "Does one thing", "parameters": {"type": "object", "properties": nested}}});
    let request = json!({"messages": [say("user", "Which city?")], "tools": [tool]});
    let at = |path: &str| ("TOOLS_IGNORED", format!("tools[0].function.parameters.properties.{path}"));
    let check_paths = |tool: &str, paths: &[&str]| {
        let mut found = warnings(&with(tool), &request);
        found.retain(|(_, path)| !path.ends_with(".type"));
        let lost: Vec<_> = paths.iter().map(|path| at(path)).map(|(code, path)| (code.to_owned(), path)).collect();
        assert_eq!(found, lost, "{tool}");
    };
    check(&with("{{ t | tojson }}"), &request, &[]);
    check(
        &with("{{ t.function.name }}: {{ t.function.description }}"),
        &request,
        &[("TOOLS_IGNORED", "tools[0].function.parameters")],
    );
    let each = |property: &str| {
        format!(
            "{{{{ t.function.name }}}}: {{{{ t.function.description }}}}{{% for name, p in t.function.parameters.properties | items %}}{{{{ name }}}}{property}{{% endfor %}}"
        )
    };
    let inner = ["place.properties.road.description", "place.properties.points.items.properties"];
    check_paths(&each("{{ p.enum | default([]) | join(' ') }}: {{ p.description }}"), &["place.properties"]);
    check_paths(&each(": {{ p.description }}"), &["unit.enum", "place.properties"]);
    check_paths(
        &each("{{ p.enum }}{{ p.properties | default({}) | join(' ') }}"),
        &["city.description", "place.description", inner[0], inner[1]],
    );
    check_paths(
        &each("{{ p.enum }}{{ p.properties | tojson if p.properties else p.description }}"),
        &["place.description"],
    );
}

#[test]
fn titles_and_texts_of_documents_that_a_template_leaves_out_have_warnings() {
    let documents = json!([{"title": "On Paris", "text": "Paris is in France."}, {"text": "Rome is in Italy."}]);
    let request = json!({"messages": [say("user", "Where is Rome?")], "documents": documents});
    let with = |document: &str| format!("{{% for d in documents or [] %}}{document}{{% endfor %}}{ALL}");
    check(&with("{{ d.text }}"), &request, &[("DOCUMENTS_IGNORED", "documents[0].title")]);
    check(&with("{{ d.title }}: {{ d.text }}"), &request, &[]);
    check(&with("{{ loop.index }}"), &request, &[("DOCUMENTS_IGNORED", "documents")]);
    let documents = json!([{"doc_id": "a17", "url": "https://example.org/paris", "text": "Paris is in France.", "snippet": "A capital."}]);
    let request = json!({"messages": [say("user", "Where is Rome?")], "documents": documents});
    let lost = [("DOCUMENTS_IGNORED", "documents[0].url"), ("DOCUMENTS_IGNORED", "documents[0].snippet")];
    check(&with("{{ d.text }}"), &request, &lost);
    check(&with("{{ d.text }} {{ d.snippet }}"), &request, &lost[..1]);
    check(&with("{{ d | tojson }}"), &request, &[]);
}

#[test]
fn the_mark_of_a_failed_result_has_a_warning_if_the_prompt_lacks_it() {
    let call = json!({"type": "tool_use", "id": "abcdefghi", "name": "f", "input": {}});
    let result = |is_error: bool| json!({"type": "tool_result", "tool_use_id": "abcdefghi", "content": "no", "is_error": is_error});
    let request = |is_error| json!({"messages": [say("user", "Hi"), say("assistant", json!([call])), say("user", json!([result(is_error)]))]});
    let calls = "{% for c in m.tool_calls or [] %}{{ c.function.name }}{% endfor %}";
    let with = |rest: &str| {
        format!("{{% for m in messages %}}<{{{{ m.role }}}}>{{{{ m.content }}}}{calls}{rest}{{% endfor %}}")
    };
    let lost = [("MESSAGE_IGNORED", "messages[2].content[0].is_error")];
    check(&with(""), &request(true), &lost);
    check(&with(""), &request(false), &[]);
    check(&with("{% if m.is_error %}!{% endif %}"), &request(true), &[]);
    // Only one of two is shown.
    let results = json!({"messages": [say("user", "Hi"), say("assistant", json!([call])), say("user", json!([result(true)])),
        say("assistant", json!([call])), say("user", json!([result(true)]))]});
    check(&with("{% if loop.last and m.is_error %}!{% endif %}"), &results, &lost);
    let plain = json!({"role": "tool", "tool_call_id": "abcdefghi", "content": "no", "is_error": true});
    let called =
        json!({"role": "assistant", "tool_calls": [{"id": "abcdefghi", "function": {"name": "f", "arguments": {}}}]});
    let plain = json!({"messages": [say("user", "Hi"), called, plain]});
    check(&with(""), &plain, &[("MESSAGE_IGNORED", "messages[2].is_error")]);
}

/// The generation service makes the prompt of HF messages with the model's template.
#[test]
fn hf_messages_have_the_warnings_of_the_prompt() {
    let image = json!({"type": "image", "base64": "QUJD"});
    let text = json!({"type": "text", "text": "What is in this picture?"});
    let messages = [say("developer", "Answer in Danish."), say("user", json!([image, text]))];
    let request = json!({"messages": messages, "tools": [{"type": "function", "function": {"name": "look"}}]});
    let walks = |image: &str| {
        format!(
            "{{% for m in messages if m.role == 'user' %}}{{% for b in m.content %}}{{% if b.type == 'image' %}}{image}\
             {{% else %}}{{{{ b.text }}}}{{% endif %}}{{% endfor %}}{{% endfor %}}"
        )
    };
    let expected = [("TOOLS_IGNORED", "tools"), ("MESSAGE_IGNORED", "messages[0]")];
    check(&walks("<image>"), &request, &expected);
    check(&walks(""), &request, &[&expected[..], &[("IMAGES_IGNORED", "messages[1].content[0]")]].concat());
}

/// Returns the prompt, without warnings.
#[track_caller]
fn prompt(template: &str, request: &Value) -> String {
    let answer = answer(&ModelFolder::new("tiny").with_template(template).models(), request);
    assert_eq!(answer["warnings"], json!([]), "{answer}");
    answer["prompt"].as_str().expect("a prompt").to_owned()
}

/// Templates walk lists in one branch, and print them in another. Transformers shows a text there.
#[test]
fn a_list_that_a_template_prints_in_some_place_becomes_text_there() {
    let list = json!([{"type": "text", "text": "Let me look."}]);
    let branch = |condition: &str| {
        format!(
            "{{% for m in messages %}}<{{{{ m.role }}}}>{{% if m.content is string or ({condition}) %}}{{{{ m.content }}}}\
             {{% else %}}{{% for b in m.content %}}{{{{ b.text }}}}{{% endfor %}}{{% endif %}}\
             {{% for c in m.tool_calls or [] %}}{{{{ c.function.name }}}}{{{{ c.function.arguments | tojson }}}}{{% endfor %}}{{% endfor %}}"
        )
    };
    let call = json!({"id": "1", "type": "function", "function": {"name": "f", "arguments": {"c": "Paris"}}});
    let called = json!({"role": "assistant", "content": list, "tool_calls": [call]});
    let messages = json!({"messages": [say("user", list.clone()), called, say("tool", "sunny")]});
    assert_eq!(
        prompt(&branch("m.tool_calls"), &messages),
        "<user>Let me look.<assistant>Let me look.f{\"c\": \"Paris\"}<tool>sunny"
    );
    let later = json!({"messages": [say("system", list.clone()), say("user", "Hi"), say("assistant", list.clone()), say("system", list)]});
    assert_eq!(
        prompt(&branch("not loop.first and m.role == 'system'"), &later),
        "<system>Let me look.<user>Hi<assistant>Let me look.<system>Let me look."
    );
}

/// Where a template only walks lists, a text becomes one, and stays a text elsewhere.
#[test]
fn a_text_that_a_template_leaves_out_in_some_place_becomes_a_list_there() {
    let walk = "{% for b in m.content %}{{ b.text }}{% endfor %}";
    let beside_calls = format!(
        "{{% for m in messages %}}<{{{{ m.role }}}}>{{% if m.tool_calls %}}{walk}{{% for c in m.tool_calls %}}{{{{ c.function.name }}}}\
         {{{{ c.function.arguments | tojson }}}}{{% endfor %}}{{% elif m.content is string %}}{{{{ m.content }}}}{{% endif %}}{{% endfor %}}"
    );
    let call = json!({"id": "1", "type": "function", "function": {"name": "f", "arguments": {"c": "Paris"}}});
    let called = json!({"role": "assistant", "content": "Let me look.", "tool_calls": [call]});
    let messages = json!({"messages": [say("user", "Which weather?"), called, say("tool", "sunny")]});
    assert_eq!(
        prompt(&beside_calls, &messages),
        "<user>Which weather?<assistant>Let me look.f{\"c\": \"Paris\"}<tool>sunny"
    );
    let first_only = "{% if messages[0].role == 'system' %}[{{ messages[0].content[0].text }}]{% endif %}\
                      {% for m in messages %}{% if not (loop.first and m.role == 'system') %}<{{ m.role }}>{{ m.content }}{% endif %}{% endfor %}";
    let messages = json!({"messages": [say("system", "Be brief."), say("user", "Hi there."), say("assistant", "Yes?"), say("system", "Speak Danish.")]});
    assert_eq!(prompt(first_only, &messages), "[Be brief.]<user>Hi there.<assistant>Yes?<system>Speak Danish.");
}

/// As Command A writes results: a text one letter at a time, a list as JSON.
#[test]
fn a_text_that_a_template_writes_letter_by_letter_becomes_a_list() {
    let items = "{% for m in messages %}<{{ m.role }}>{% if m.role == 'tool' %}{% for item in m.content %}\
                 \"{{ loop.index0 }}\": {{ item | tojson }},     {% endfor %}{% else %}{{ m.content }}\
                 {% for c in m.tool_calls or [] %}{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}{% endif %}{% endfor %}";
    let call = json!({"id": "1", "type": "function", "function": {"name": "f", "arguments": {}}});
    let called = json!({"role": "assistant", "content": "", "tool_calls": [call]});
    let messages = json!({"messages": [say("user", "Which weather?"), called, say("tool", "sunny")]});
    assert_eq!(
        prompt(items, &messages),
        "<user>Which weather?<assistant>f{}<tool>\"0\": {\"type\": \"text\", \"text\": \"sunny\"},     "
    );
}

/// OpenAI's earlier form of a call, which few templates write.
#[test]
fn a_function_call_that_a_template_leaves_out_has_a_warning() {
    let called =
        json!({"role": "assistant", "content": "One moment.", "function_call": {"name": "weather", "arguments": "{}"}});
    let request = json!({"messages": [say("user", "Which weather is it?"), called]});
    check(ALL, &request, &[("TOOL_CALLS_IGNORED", "messages[1].function_call")]);
    let shown =
        format!("{ALL}{{% for m in messages if m.function_call %}}{{{{ m.function_call.name }}}}{{% endfor %}}");
    check(&shown, &request, &[]);
}

/// Templates read one of the names of reasoning.
#[test]
fn merged_messages_keep_reasoning_under_different_names() {
    let strict = "{% for m in messages %}{% if not loop.first and loop.previtem.role == m.role %}{{ raise_exception('alternate') }}{% endif %}\
                  <{{ m.role }}>{% set r = m.reasoning_content or m.thinking or m.reasoning %}{% if r %}({{ r }}){% endif %}{{ m.content }}{% endfor %}";
    let thought =
        |key: &str, reasoning: &str, text: &str| json!({"role": "assistant", "content": text, key: reasoning});
    let answers = [thought("thinking", "First thought.", "x"), thought("reasoning", "Second thought.", "y")];
    let request = json!({"messages": [say("user", "Which?"), answers[0], answers[1]], "add_generation_prompt": false});
    let answer = answer(&ModelFolder::new("tiny").with_template(strict).models(), &request);
    assert_eq!(answer["prompt"], "<user>Which?<assistant>(First thought.\n\nSecond thought.)x\n\ny", "{answer}");
    check(strict, &request, &[("MESSAGES_MERGED", "messages[1]")]);
}

/// A template may take a system message only at the start, or only beside tools.
#[test]
fn a_system_message_that_a_template_refuses_at_its_place_becomes_the_users() {
    let first = "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('first') }}{% endif %}<{{ m.role }}>{{ m.content }}{% endfor %}";
    let messages = [
        say("system", "Be brief."),
        say("user", "Hi"),
        say("assistant", "Yes?"),
        say("system", "Speak Danish."),
        say("user", "Where are you?"),
    ];
    let request = json!({"messages": messages});
    let models = ModelFolder::new("tiny").with_template(first).models();
    assert_eq!(
        answer(&models, &request)["prompt"],
        "<system>Be brief.<user>Hi<assistant>Yes?<user>[System]: Speak Danish.<user>Where are you?"
    );
    check(first, &request, &[("SYSTEM_REWRITTEN", "messages[3]")]);
    let tools = "{{ tools | tojson }}{% for m in messages if m.role != 'system' or tools %}<{{ m.role }}>{{ m.content }}{% endfor %}";
    let tool = json!({"type": "function", "function": {"name": "f", "description": "Adds two numbers."}});
    check(tools, &json!({"messages": messages[..2], "tools": [tool]}), &[]);
    check(tools, &json!({"messages": messages[..2]}), &[("SYSTEM_REWRITTEN", "messages[0]")]);
}

/// A document's number may be left out, its words may not.
#[test]
fn a_document_of_which_only_the_number_is_shown_has_a_warning() {
    let document = json!({"doc_id": "7", "url": "https://example.com/a/long/way/to/the/weather", "content": "It rains in Rome today."});
    let request = json!({"messages": [say("user", "Which weather is it?")], "documents": [document]});
    let number = "{% for d in documents %}({{ d.doc_id }}){{ d.text }}{% endfor %}";
    check(&format!("{number}{ALL}"), &request, &[("DOCUMENTS_IGNORED", "documents")]);
    check(
        &format!("{{% for d in documents %}}{{{{ d.content }}}}{{% endfor %}}{ALL}"),
        &request,
        &[("DOCUMENTS_IGNORED", "documents[0].url")],
    );
    check(&format!("{{{{ documents | tojson }}}}{ALL}"), &request, &[]);
}
