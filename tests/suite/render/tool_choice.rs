//! The grammar of a model's calls allows what its chat template writes, and nothing else.

use render_svc::catalog::{ModelTable, ServedModel};
use render_svc::output_spec::Mark;
use render_svc::parse_output::{Output, ParseJob, parse};
use render_svc::tool_choice::{CallLimits, ToolChoice};
use serde_json::{Value as Json, json};
use tandem_core::grammar::{Compiled, Followed, Follower, GrammarKind, Grammars};
use tandem_tests::corpus::read;
use tandem_tests::{answer, corpus};

use super::answer_rules::served;

/// The arguments of two calls, in the order of the schemas, without white space at their ends.
fn calls() -> [(&'static str, Json); 2] {
    let first = json!({"city": "Zürich, it's {nice} & <b>5 %</b>", "days": 3, "ratio": 0.25, "unit": "kelvin"});
    [("get_weather", first), ("get_time", json!({"city": "12"}))]
}

fn tools() -> Json {
    let text = json!({"type": "string"});
    let weather = json!({
        "city": text, "days": {"type": "integer"}, "ratio": {"type": "number"},
        "unit": {"type": "string", "enum": ["celsius", "kelvin"]},
    });
    let tool = |name, properties: Json| {
        let parameters = json!({"type": "object", "properties": properties, "required": ["city"]});
        json!({"type": "function", "function": {"name": name, "description": "A tool", "parameters": parameters}})
    };
    json!([tool("get_weather", weather), tool("get_time", json!({"city": text}))])
}

const IDS: [[&str; 2]; 3] = [
    ["call_abcdefghijklmnopqrstuvwx", "call_bcdefghijklmnopqrstuvwxy"],
    ["abcdefghi", "jklmnopqr"],
    ["functions.get_weather:0", "functions.get_time:1"],
];

/// Returns an answer with calls as the model's template writes it. None if it writes none.
fn written(models: &ModelTable, ends: &[String], count: usize) -> Option<String> {
    let question = json!({"role": "user", "content": "How is it?"});
    let rendered = |messages: Json, is_prompt: bool| {
        let request = json!({"messages": messages, "tools": tools(), "add_generation_prompt": is_prompt});
        answer(models, &request)["prompt"].as_str().map(str::to_owned)
    };
    let prompt = rendered(json!([question]), true)?;
    IDS.iter().find_map(|ids| {
        let call = |((name, arguments), id): ((&str, Json), &&str)| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
        let calls: Vec<Json> = calls().into_iter().zip(ids).take(count).map(call).collect();
        let reply = json!({"role": "assistant", "content": "", "tool_calls": calls});
        let whole = rendered(json!([question, reply]), false)?;
        let common = prompt.char_indices().zip(whole.chars()).take_while(|((_, a), b)| a == b).last()?;
        let common = common.0.0 + common.0.1.len_utf8();
        // Where a template writes another start than the generation prompt, the answer starts at the last mark.
        let is_whole = common == prompt.len() || prompt[..common].ends_with(['>', ']', '\n', ':']);
        let answer = &whole[if is_whole { common } else { prompt[..common].rfind(['<', '[']).unwrap_or(common) }..];
        let end = ends.iter().filter(|end| !end.trim().is_empty()).filter_map(|end| answer.find(end.as_str())).min();
        let answer = &answer[..end.unwrap_or(answer.len())];
        // A prompt that ends within reasoning: the grammar follows the reasoning.
        let closings = ["</think>", "<|END_THINKING|>", "</mm:think>", "<|close|>think<|sep|>"];
        let answer = closings.iter().find_map(|close| Some(answer.split_once(close)?.1)).unwrap_or(answer).trim();
        (answer.contains("get_weather") && (count == 1 || answer.contains("get_time"))).then(|| answer.to_owned())
    })
}

fn text(served: &ServedModel, mark: &Mark) -> Option<String> {
    match mark {
        Mark::Token(id) => served.model.tokenizer().ok()?.decode(&[*id], false).ok(),
        Mark::Text(text) => Some(text.clone()),
    }
}

/// Returns true if a text is a whole answer by a grammar.
fn allows(grammar: &Compiled, served: &ServedModel, text: &str) -> bool {
    let tokenizer = served.model.tokenizer().expect("a tokenizer");
    let ids = tokenizer.encode(text, false).expect("ids");
    let mut follower = Follower::new(grammar);
    for (at, id) in ids.iter().enumerate() {
        match follower.push(*id, false) {
            Followed::Continues => {}
            Followed::Completes => return at + 1 == ids.len(),
            Followed::Refused => {
                if std::env::var_os("SHOW").is_some() {
                    eprintln!("refused after {:?}", tokenizer.decode(&ids[..at], false));
                }
                return false;
            }
        }
    }
    follower.is_whole()
}

fn compiled(served: &ServedModel, choice: ToolChoice, may_repeat: bool) -> Result<Option<Compiled>, String> {
    compiled_for(served, choice, may_repeat, &tools())
}

fn compiled_for(
    served: &ServedModel,
    choice: ToolChoice,
    may_repeat: bool,
    tools: &Json,
) -> Result<Option<Compiled>, String> {
    compiled_after(served, choice, may_repeat, tools, "")
}

fn compiled_after(
    served: &ServedModel,
    choice: ToolChoice,
    may_repeat: bool,
    tools: &Json,
    prompt: &str,
) -> Result<Option<Compiled>, String> {
    let tokenizer = served.model.tokenizer().expect("a tokenizer");
    let format = &served.adapter.format;
    let rules = format.answer_rules().rules.clone().expect("rules");
    let limits = CallLimits { choice, may_repeat };
    let lark = limits.grammar(format.notation(), Some(&rules), Some(tools), tokenizer, prompt);
    let Some(lark) = lark.map_err(|error| error.to_string())? else { return Ok(None) };
    if std::env::var_os("SHOW").is_some() {
        eprintln!("{lark}");
    }
    let vocabulary = tokenizer.vocab_size();
    let grammars = Grammars::new(tokenizer.clone(), vocabulary, vec![vocabulary as u32 - 1], None);
    grammars.compile(&GrammarKind::Lark(lark.clone()).into()).map(Some).map_err(|error| format!("{error}\n{lark}"))
}

/// Returns the faults of the grammars of a model's calls. None if its template writes no calls.
fn faults(served: ServedModel) -> Option<Vec<String>> {
    let format = &served.adapter.format;
    let spec = format.output_spec();
    let ends: Vec<String> = spec.ends.iter().filter_map(|end| text(&served, &end.mark)).collect();
    let name = || ToolChoice::Name("get_time".to_owned());
    let grammars =
        [(ToolChoice::Required, true), (ToolChoice::Required, false), (name(), true), (ToolChoice::Auto, false)];
    let compiled: Vec<_> =
        grammars.into_iter().map(|(choice, may_repeat)| compiled(&served, choice, may_repeat)).collect();
    let models = ModelTable::from(served);
    let one = written(&models, &ends, 1)?;
    let two = written(&models, &ends, 2);
    let served = models.get("").expect("the model");
    let mut wrong = Vec::new();
    let mut check = |grammar: usize, text: &str, expected: bool| match &compiled[grammar] {
        Ok(Some(grammar)) if allows(grammar, served, text) == expected => {}
        Ok(Some(_)) => wrong.push(format!("{grammar}: {expected} for {text:?}")),
        Ok(None) if grammar == 3 => {}
        Err(error) if grammar == 3 && error.contains("between other marks") => {}
        Ok(None) => wrong.push(format!("{grammar}: no grammar")),
        Err(error) => wrong.push(format!("{grammar}: {error}")),
    };
    [(0, true), (1, true), (2, false), (3, true)]
        .into_iter()
        .for_each(|(grammar, expected)| check(grammar, &one, expected));
    if let Some(two) = &two {
        [(0, true), (1, false), (2, false), (3, false)]
            .into_iter()
            .for_each(|(grammar, expected)| check(grammar, two, expected));
    }
    let plain = "It is nice.";
    [(0, false), (1, false), (2, false), (3, true)]
        .into_iter()
        .for_each(|(grammar, expected)| check(grammar, plain, expected));
    let other = one.replace("kelvin", "inch");
    check(0, &other, other == one);
    let unknown = one.replace("get_weather", "get_whether");
    check(0, &unknown, false);
    Some(wrong)
}

#[test]
fn grammars_of_calls_allow_what_templates_write() {
    let Some(corpus) = corpus() else { return };
    let (mut cases, mut failed) = (0, Vec::new());
    for entry in read(&corpus.join("templates/manifest.json")).as_array().expect("a list") {
        if std::env::var("SHOW").is_ok_and(|slug| entry["slug"] != slug.as_str()) {
            continue;
        }
        let served = served(&corpus, entry);
        let rules = served.adapter.format.answer_rules().rules.clone().expect("rules");
        let Some(wrong) = faults(served) else { continue };
        cases += 1;
        if !wrong.is_empty() {
            failed.push(format!("{} with {}:\n  {}", entry["slug"], rules.name, wrong.join("\n  ")));
        }
    }
    eprintln!("the calls of {} of {cases} templates have a grammar\n{}", cases - failed.len(), failed.join("\n"));
    // The others are faulty: they write no JSON, the prompt's end again, or a notation that no rules read.
    assert!(cases > 130 && failed.len() <= 22, "{} of {cases} have none", failed.len());
}

/// Returns a model of the corpus. None without a corpus.
fn model(slug: &str) -> Option<ServedModel> {
    let corpus = corpus()?;
    let manifest = read(&corpus.join("templates/manifest.json"));
    let entry = manifest.as_array()?.iter().find(|entry| entry["slug"] == slug).expect("a template");
    Some(served(&corpus, entry))
}

/// The output spec of Kimi K3 has no markers of reasoning, and its prompt ends within reasoning unless a request says
/// otherwise.
#[test]
fn calls_are_required_after_reasoning_that_the_prompt_begins() {
    let Some(served) = model("lc-kimi-k3") else { return };
    let rendered = |models: &ModelTable, thinking: bool| {
        let request = json!({"messages": [{"role": "user", "content": "How is it?"}], "tools": tools(),
            "add_generation_prompt": true, "template_args": {"thinking": thinking}});
        answer(models, &request)["prompt"].as_str().expect("a prompt").to_owned()
    };
    let models = ModelTable::from(served);
    let call = written(&models, &["<|end_of_msg|>".to_owned()], 1).expect("a call");
    let prompts = [true, false].map(|thinking| rendered(&models, thinking));
    assert!(prompts[0].ends_with("<|open|>think<|sep|>") && !prompts[1].ends_with("think<|sep|>"), "{prompts:?}");
    let served = models.get("").expect("the model");
    let required = |prompt: &str| {
        compiled_after(served, ToolChoice::Required, true, &tools(), prompt).expect("a grammar").expect("one")
    };
    let [within, outside] = prompts.each_ref().map(|prompt| required(prompt));
    let continued = required(&format!("{}I was thinking", prompts[0]));
    let thought = format!("Hm, two.<|close|>think<|sep|>{call}");
    assert!(allows(&within, served, &thought), "{thought}");
    assert!(allows(&continued, served, &thought), "{thought}");
    assert!(!allows(&within, served, "Hm, two.<|close|>think<|sep|>It is nice."));
    assert!(!allows(&outside, served, &thought));
    // The prompt has the start of the response, which the call's text repeats.
    let rest = call.strip_prefix("<|open|>response<|sep|>").expect("the start of a response");
    assert!(allows(&outside, served, rest), "{rest}");
    assert!(!allows(&outside, served, &call));
}

/// Schemas as libraries of types make them: with references and null.
#[test]
fn types_behind_references_are_kept_and_read() {
    let Some(served) = model("lc-qwen3-coder") else { return };
    let tools = |key: &str| {
        let properties = json!({
            "size": {"$ref": "#/$defs/Size", "enum": ["large", "medium"]}, "place": {"allOf": [{"$ref": "#/$defs/Place"}]}, "tags": {"type": "array"},
            "days": {"anyOf": [{"type": "integer"}, {"type": "null"}]}, key: {"type": "boolean"},
            "floor": {"enum": [2, 3]},
        });
        let definitions = json!({"Size": {"enum": ["small", "large"], "type": "string"}, "Place": {"type": "object"}});
        json!([{"name": "book", "inputSchema": {"type": "object", "properties": properties, "$defs": definitions}}])
    };
    let parameter = |(name, value): (&str, &str)| format!("<parameter={name}>\n{value}\n</parameter>\n");
    let written = [
        ("size", "large"),
        ("place", r#"{"lat": 1}"#),
        ("tags", r#"["a"]"#),
        ("days", "3"),
        ("wet", "True"),
        ("floor", "2"),
    ];
    let text: String = written.map(parameter).concat();
    let text = format!("<tool_call>\n<function=book>\n{text}</function>\n</tool_call>");
    let grammar = compiled_for(&served, ToolChoice::Required, true, &tools("wet")).expect("a grammar").expect("one");
    assert!(allows(&grammar, &served, &text), "{text}");
    for (from, to) in [
        ("large", "small"),
        ("large", "huge"),
        ("\n3\n", "\nthree\n"),
        ("{\"lat\": 1}", "here"),
        ("True", "maybe"),
        ("\n2\n", "\n4\n"),
    ] {
        assert!(!allows(&grammar, &served, &text.replace(from, to)), "{to}");
    }
    let job = ParseJob {
        model: String::new(),
        output: Output::Text(text),
        prompt: String::new(),
        tools: Some(tools("wet")),
        rules: None,
    };
    let (answer, _) = parse(&served, job).expect("an answer");
    let arguments: Json = serde_json::from_str(&answer.calls[0].arguments).expect("JSON");
    let expected = json!({"size": "large", "place": {"lat": 1}, "tags": ["a"], "days": 3, "wet": true, "floor": 2});
    assert_eq!(arguments, expected);
    let refused = compiled_for(&served, ToolChoice::Required, true, &tools("a>b")).expect_err("a name with a mark");
    assert!(refused.contains("a>b"), "{refused}");
}

/// Schemas whose values the notation with tags can and cannot keep.
#[test]
fn schemas_that_tags_cannot_keep_are_refused_by_name() {
    let Some(served) = model("lc-qwen3-coder") else { return };
    let compiled = |parameters: &Json| {
        let tools = json!([{"name": "set", "parameters": parameters}]);
        compiled_for(&served, ToolChoice::Required, false, &tools)
    };
    let of = |property: Json| json!({"type": "object", "properties": {"n": property}, "required": ["n"]});
    let text = |value: &str| {
        format!("<tool_call>\n<function=set>\n<parameter=n>\n{value}\n</parameter>\n</function>\n</tool_call>")
    };
    let kept = [
        (json!({"type": "boolean", "const": false}), ["False", "True"]),
        (json!({"const": 5}), ["5", "6"]),
        (json!({"allOf": [{"type": "string"}], "enum": ["x", "y"]}), ["y", "z"]),
        (json!({"type": ["integer", "boolean"]}), ["7", "seven"]),
        (json!({"anyOf": [{"type": "integer"}, {"enum": ["all"]}]}), ["all", "none"]),
    ];
    for (property, [right, wrong]) in kept {
        let grammar = compiled(&of(property.clone())).expect("a grammar").expect("one");
        assert!(allows(&grammar, &served, &text(right)), "{property} {right}");
        assert!(!allows(&grammar, &served, &text(wrong)), "{property} {wrong}");
    }
    let refused = [
        (of(json!({"enum": [1, "a"]})), "several types"),
        (of(json!({"type": "string", "enum": []})), "without a value"),
        (of(json!({"type": "string", "enum": ["a", 5]})), "several types"),
        (of(json!({"type": "int"})), "of type int"),
        (of(json!({"allOf": [{"type": "integer"}, {"minimum": 3}]})), "allOf"),
        (of(json!({"type": "integer", "anyOf": [{"minimum": 0}, {"maximum": -10}]})), "anyOf beside type"),
        (of(json!({"const": "a", "enum": ["a", "b"]})), "const beside enum"),
        (of(json!(false)), "without a value"),
        (of(json!({"type": vec!["text"; 2000]})), "may have the type"),
        (of(json!({"$ref": "#/$defs/Absent"})), "which is not in the schema"),
        (of(json!({"enum": ["a</parameter>"]})), "has the mark of the end"),
        (json!({"type": "object", "properties": {}, "required": ["n"]}), "which is not in `properties`"),
        (json!({"type": "object", "properties": {}, "required": "n"}), "no list"),
        (json!({"type": "object", "properties": []}), "no object"),
        (json!({"type": "object", "properties": {}, "minProperties": 1}), "minProperties"),
    ];
    for (parameters, problem) in refused {
        let error = compiled(&parameters).map(drop).err();
        assert!(error.as_ref().is_some_and(|error| error.contains(problem)), "{parameters}: {error:?}");
    }
}

/// A notation with commas between optional parameters.
#[test]
fn grammars_grow_with_the_number_of_optional_parameters() {
    let Some(served) = model("lc-google-gemma-4-31b-it") else { return };
    let properties = json!({"path": {"type": "string"}, "count": {"type": "integer"}, "mode": {"enum": ["a", "b"]},
        "list": {"type": "array", "items": {"type": "string"}}, "on": {"type": "boolean"}});
    let many = |number| json!({"name": format!("tool_{number}"), "parameters": {"properties": properties}});
    let many: Json = (0..128).map(many).collect();
    assert!(compiled_for(&served, ToolChoice::Required, true, &many).is_ok_and(|grammar| grammar.is_some()));
    let names: Vec<String> = (0..200).map(|number| format!("p{number:03}")).collect();
    let tools = |required: &[&str]| {
        let properties: serde_json::Map<_, _> =
            names.iter().map(|name| (name.clone(), json!({"type": "integer"}))).collect();
        let parameters = json!({"type": "object", "properties": properties, "required": required});
        json!([{"name": "set", "parameters": parameters}])
    };
    let text = |names: &[&str]| {
        let arguments: Vec<String> = names.iter().map(|name| format!("{name}:7")).collect();
        format!("<|tool_call>call:set{{{}}}<tool_call|><|tool_response>", arguments.join(","))
    };
    let all: Vec<&str> = names.iter().map(String::as_str).collect();
    let optional = compiled_for(&served, ToolChoice::Required, false, &tools(&[])).expect("a grammar").expect("one");
    for names in [&all[..], &[], &["p000"], &["p199"], &["p003", "p150", "p151"]] {
        assert!(allows(&optional, &served, &text(names)), "{names:?}");
    }
    let required = ["p010", "p020"];
    let tools = tools(&required);
    let some = compiled_for(&served, ToolChoice::Required, false, &tools).expect("a grammar").expect("one");
    for names in [&all[..], &required, &["p009", "p010", "p015", "p020", "p021"]] {
        assert!(allows(&some, &served, &text(names)), "{names:?}");
    }
    for names in [&["p010"][..], &["p020"], &[], &["p011", "p020"], &["p020", "p010"], &["p010", "p010", "p020"]] {
        assert!(!allows(&some, &served, &text(names)), "{names:?}");
    }
}
