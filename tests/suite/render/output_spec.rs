//! The output spec of Render: the tokens that end an answer, the special tokens whose text is part
//! of it, and the reasoning markers.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use render_svc::catalog::{ModelTable, ServedModel};
use render_svc::output_spec::tool_calls;
use render_svc::output_spec::{OutputSpec, Reasoning};
use serde_json::Value;
use tandem_template::ChatTemplate;
use tandem_tests::{ModelFolder, corpus};

/// Returns the output spec of the pinned adapter, or of the model's default adapter.
fn spec(models: &ModelTable, pinned: Option<&str>) -> OutputSpec {
    let adapter = models.get("").expect("one model").resolve(pinned).expect("an adapter");
    OutputSpec::clone(&adapter.format.output_spec())
}

const CHATML: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}\
                      {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// Returns these ends of `tagged`, and its starts of turns.
fn ends(first: &[&str]) -> Vec<String> {
    let starts = ["<|user|>", "<|assistant|>", "<|system|>", "<|tool|>"];
    first.iter().copied().chain(starts).map(str::to_owned).collect()
}

#[test]
fn one_token_turn_end_becomes_an_eos_id() {
    let tokens = [("<|im_end|>", true), ("<|eot_id|>", true), ("<|end|>", true)];
    let models = ModelFolder::new("bare").with_tokens(&tokens).models();
    for (format, id) in [("chatml", 256), ("llama3", 257)] {
        let spec = spec(&models, Some(format));
        assert_eq!((spec.ends.token_ids(), spec.ends.texts()), (vec![id], vec![]), "{format}");
    }
    let tagged = spec(&models, Some("tagged"));
    assert_eq!((tagged.ends.token_ids(), tagged.ends.texts()), (vec![258], ends(&["\n<|end|>"])));
}

#[test]
fn text_turn_end_becomes_a_stop_string() {
    let models = ModelFolder::new("bare").with_tokens(&[]).models();
    let expected: [(&str, &[&str]); 4] = [
        ("chatml", &["<|im_end|>"]),
        ("llama3", &["<|eot_id|>"]),
        ("tagged", &["\n<|end|>", "<|end|>", "<|user|>", "<|assistant|>", "<|system|>", "<|tool|>"]),
        ("plain", &[]),
    ];
    for (format, ends) in expected {
        let spec = spec(&models, Some(format));
        assert_eq!(spec.ends.texts(), ends, "{format}");
        assert_eq!(spec.ends.token_ids(), [0u32; 0], "{format}");
    }
}

#[test]
fn pinned_format_adds_its_turn_end_to_the_model_eos_ids() {
    let tokens = [("<|eot_id|>", true), ("</s>", true)];
    let model =
        ModelFolder::new("x").with_tokens(&tokens).with_template("{{ messages }}").with_setting("eos_token", "</s>");
    assert_eq!(spec(&model.models(), None).ends.token_ids(), [257]);
    assert_eq!(spec(&model.models(), Some("llama3")).ends.token_ids(), [256, 257]);
}

#[test]
fn template_turn_end_becomes_an_eos_id_or_a_stop_string() {
    let as_text = ModelFolder::new("x").with_tokens(&[]).with_template(CHATML);
    assert_eq!(spec(&as_text.models(), None).ends.texts(), ["<|im_end|>"]);
    let as_token = ModelFolder::new("x").with_tokens(&[("<|im_end|>", true)]).with_template(CHATML);
    let as_token = spec(&as_token.models(), None);
    assert_eq!((as_token.ends.token_ids(), as_token.ends.texts()), (vec![256], vec![]));
}

/// The text between the start of the assistant's turn and the reasoning, in the prompts of the goldens.
#[test]
fn the_head_is_that_of_the_adapters_prompts() {
    let tokens = [("<|im_start|>", true), ("<|turn>", true), ("<｜Assistant｜>", false)];
    let bare = || ModelFolder::new("x").with_tokens(&tokens);
    let with_template = bare().with_template(CHATML).models();
    assert_eq!(spec(&with_template, None).turn_head, "assistant\n");
    for (adapter, head) in [
        ("deepseek-v3.2", "<｜Assistant｜>"),
        ("deepseek-v4", "<｜Assistant｜>"),
        ("gemma-4", "model\n"),
        ("chatml", "assistant\n"),
        ("tagged", "<|assistant|>\n"),
        ("plain", ""),
    ] {
        assert_eq!(spec(&with_template, Some(adapter)).turn_head, head, "{adapter}");
        assert_eq!(spec(&bare().models(), Some(adapter)).turn_head, head, "{adapter}");
    }
    let family = bare().with_template(CHATML).with_architecture("deepseek_v32").models();
    assert_eq!(spec(&family, None).turn_head, "<｜Assistant｜>");
    assert_eq!(spec(&family, Some("tokenizer-template")).turn_head, "assistant\n");
}

#[test]
fn other_family_end_tokens_are_eos_ids_if_special() {
    let eos = |tokens: &[(&str, bool)], eos: &str| {
        let model =
            ModelFolder::new("x").with_tokens(tokens).with_template("{{ messages }}").with_setting("eos_token", eos);
        spec(&model.models(), None).ends.token_ids()
    };
    let qwen = [("<|endoftext|>", true), ("<|im_start|>", true), ("<|im_end|>", true)];
    assert_eq!(eos(&qwen, "<|im_end|>"), [256, 258]);
    let llama = [("<|end_of_text|>", true), ("<|start_header_id|>", true), ("<|eom_id|>", true), ("<|eot_id|>", true)];
    assert_eq!(eos(&llama, "<|eot_id|>"), [256, 258, 259]);
    let as_text = [("<|endoftext|>", false), ("<|im_start|>", true), ("<|im_end|>", true)];
    assert_eq!(eos(&as_text, "<|im_end|>"), [258]);
    // In gpt-oss, <|end|> ends one of several messages of an answer.
    let gpt_oss = [("<|end|>", true), ("<|return|>", true), ("<|call|>", true), ("<|start|>", true)];
    assert_eq!(eos(&gpt_oss, "<|return|>"), [257, 258]);
}

#[test]
fn output_spec_excludes_ids_outside_the_output_layer() {
    let tokens = [("<|im_start|>", true), ("<|im_end|>", true), ("<|endoftext|>", true), ("<tool_call>", true)];
    let model =
        ModelFolder::new("x").with_tokens(&tokens).with_template(CHATML).with_setting("eos_token", "<|im_end|>");
    let path = model.path();
    let with_layer_of = |size: u32| {
        std::fs::write(path.join("config.json"), format!(r#"{{"vocab_size": {size}}}"#)).expect("a file");
        let spec = spec(&ServedModel::load(&path).expect("loads").into(), Some("chatml"));
        (spec.ends.token_ids(), spec.passed_token_ids)
    };
    assert_eq!(with_layer_of(260), (vec![257, 258], vec![259]));
    assert_eq!(with_layer_of(258), (vec![257], vec![]));
    // Without the size of the output layer, the tokenizer has the last id.
    let generation = r#"{"eos_token_id": [257, 100257]}"#;
    let with_config = |config: &str| {
        std::fs::write(path.join("generation_config.json"), generation).expect("a file");
        std::fs::write(path.join("config.json"), config).expect("a file");
        spec(&ServedModel::load(&path).expect("loads").into(), Some("chatml")).ends.token_ids()
    };
    assert_eq!(with_config("{}"), [257, 258]);
    assert_eq!(with_config(r#"{"vocab_size": 200000}"#), [257, 258, 100_257]);
    std::fs::remove_file(path.join("tokenizer.json")).expect("a file");
    assert_eq!(with_config(r#"{"vocab_size": 258}"#), [257]);
}

#[test]
fn tool_call_tokens_pass_whether_or_not_the_template_writes_them() {
    let template = "{% for m in messages %}[INST]{{ m.content }}[/INST]{% if m.tool_calls %}[TOOL_CALLS]{% endif %}</s>{% endfor %}";
    let tokens = [
        ("[INST]", true),
        ("[/INST]", true),
        ("[TOOL_CALLS]", true),
        ("</s>", true),
        ("<tool_call>", true),
        ("<|python_tag|>", true),
        ("<tool_response>", true),
    ];
    let model = ModelFolder::new("x").with_tokens(&tokens).with_template(template).with_setting("eos_token", "</s>");
    for adapter in [None, Some("chatml"), Some("plain")] {
        assert_eq!(spec(&model.models(), adapter).passed_token_ids, [258, 260, 261], "{adapter:?}");
    }
    let bare = ModelFolder::new("x").with_tokens(&tokens);
    assert_eq!(spec(&bare.models(), Some("plain")).passed_token_ids, [258, 260, 261]);
}

#[test]
fn a_tool_call_token_that_ends_the_turn_does_not_pass() {
    let tokens = [("<|function_call|>", true), ("<tool_call>", true)];
    let model = ModelFolder::new("x").with_tokens(&tokens).with_template("{{ messages }}");
    let model = model.with_setting("eos_token", "<|function_call|>");
    assert_eq!(spec(&model.models(), None).passed_token_ids, [257]);
}

#[test]
fn reasoning_markers_are_token_ids_or_else_text() {
    let template = "{{ messages }}{% if enable_thinking %}<think>{{ x }}</think>{% endif %}";
    let tokens = ModelFolder::new("x").with_tokens(&[("<think>", false), ("</think>", false)]).with_template(template);
    assert_eq!(spec(&tokens.models(), None).reasoning, Some(Reasoning::Tokens(256, 257)));
    let text = ModelFolder::new("x").with_tokens(&[]).with_template(template);
    assert_eq!(spec(&text.models(), None).reasoning, Some(Reasoning::Text("<think>", "</think>")));
    let other = ModelFolder::new("x").with_tokens(&[]).with_template("{{ messages }}<reasoning>{{ x }}</reasoning>");
    assert_eq!(spec(&other.models(), None).reasoning, Some(Reasoning::Text("<reasoning>", "</reasoning>")));
    let by_name = ModelFolder::new("qwq-tiny").with_tokens(&[]).with_template("{{ messages[0].content }}");
    assert_eq!(spec(&by_name.models(), None).reasoning, Some(Reasoning::Text("<think>", "</think>")));
    let none = ModelFolder::new("x").with_tokens(&[]).with_template("{{ messages[0].content }}");
    assert_eq!(spec(&none.models(), None).reasoning, None);
    // The template shows that the markers of its reasoning are others.
    let others = ModelFolder::new("qwq-tiny").with_tokens(&[]).with_template("{{ messages }}");
    assert_eq!(spec(&others.models(), None).reasoning, None);
}

#[test]
fn family_markers_and_turn_ends_need_no_template() {
    let tokens = [("<｜end▁of▁sentence｜>", true), ("<｜Assistant｜>", true)];
    let model = ModelFolder::new("x").with_tokens(&tokens).with_architecture("deepseek_v32").models();
    let spec = spec(&model, None);
    assert_eq!(spec.reasoning, Some(Reasoning::Text("<think>", "</think>")));
    assert_eq!((spec.ends.token_ids(), spec.runs_on), (vec![256], false));
}

#[test]
fn text_markers_require_a_control_token_turn_end() {
    let template = "{{ messages }}<think></think>";
    let model = ModelFolder::new("x").with_tokens(&[("<|im_end|>", true)]).with_template(template).models();
    let text = Some(Reasoning::Text("<think>", "</think>"));
    let cases =
        [(None, text), (Some("chatml"), text), (Some("llama3"), None), (Some("tagged"), None), (Some("plain"), None)];
    for (adapter, expected) in cases {
        assert_eq!(spec(&model, adapter).reasoning, expected, "{adapter:?}");
    }
}

/// Returns the bracketed words in a template's own text that contain no white space.
pub(super) fn bracketed(literals: &str) -> BTreeSet<&str> {
    let mut found = BTreeSet::new();
    for (open, close) in [('<', '>'), ('[', ']'), ('｜', '｜')] {
        for (start, _) in literals.match_indices(open) {
            let rest = &literals[start..];
            let end = rest.char_indices().skip(1).find(|(_, c)| *c == close).map(|(at, c)| at + c.len_utf8());
            let text = end.filter(|&end| end < 64).map(|end| &rest[..end]);
            found.extend(text.filter(|text| !text.contains(|c: char| c.is_whitespace() || c == '\0')));
        }
    }
    found
}

/// Renders every template of the corpus without tools. The number of each passed marker in a prompt
/// does not depend on the length of the conversation. A passed marker is therefore never a role
/// marker, the end of a turn or the end of text. The number is above zero only if a template
/// explains tool calls. Prints the table.
#[test]
fn passed_markers_occur_only_for_tool_calls() {
    let Some(corpus) = corpus() else { return };
    let read = |path: PathBuf| std::fs::read_to_string(path).expect("a file of the corpus");
    let (mut templates, mut passing) = (0, 0);
    for entry in std::fs::read_dir(corpus.join("templates")).expect("templates") {
        let path = entry.expect("an entry").path();
        let Some(slug) = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".jinja")) else { continue };
        let template = ChatTemplate::compile(&read(path.clone())).expect("compiles");
        let markers: Vec<_> =
            bracketed(template.literal_text()).into_iter().filter(|text| tool_calls::is_marker(text)).collect();
        let goldens: Value = serde_json::from_str(&read(corpus.join(format!("goldens/{slug}.json")))).expect("JSON");
        let prompts = prompts_without_tools(&corpus, &goldens["cases"]);
        for marker in &markers {
            let counts: BTreeSet<_> = prompts.iter().map(|prompt| prompt.matches(marker).count()).collect();
            assert!(counts.len() < 2, "{slug} writes {marker} {counts:?} times");
        }
        templates += 1;
        if !markers.is_empty() {
            passing += 1;
            eprintln!("{slug}: {}", markers.join(" "));
        }
    }
    assert!(templates > 250 && passing > 100, "{passing} of {templates}");
}

/// Returns transformers' prompts for the conversations without tools.
fn prompts_without_tools(corpus: &Path, cases: &Value) -> Vec<String> {
    let cases = cases.as_object().expect("cases").iter();
    let has_no_tools = |case: &str| {
        let path = corpus.join(format!("conversations/{case}.json"));
        let conversation = std::fs::read_to_string(path).expect("a conversation");
        // Some formats show documents as the results of a call.
        !["tool", "document"].iter().any(|word| conversation.contains(word))
    };
    let prompts = cases.filter(|(case, _)| has_no_tools(case)).filter_map(|(_, golden)| golden["ok"].as_str());
    prompts.map(ToOwned::to_owned).collect()
}

#[test]
fn tool_call_markers_are_recognized_by_spelling() {
    let markers = [
        "<tool_call>",
        "</tool_call>",
        "[TOOL_CALLS]",
        "[ARGS]",
        "<|python_tag|>",
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁sep｜>",
        "<|tool_call_start|>",
        "<|tool_call>",
        "<tool_call|>",
        "<|\"|>",
        "｜DSML｜",
        "<minimax:tool_call>",
        "<TOOLCALL>",
        "<|tool_call:args|>",
        "<|START_ACTION|>",
        "<|function_call|>",
    ];
    for marker in markers {
        assert!(tool_calls::is_marker(marker), "{marker}");
    }
}

#[test]
fn role_end_and_result_markers_are_not_tool_call_markers() {
    let others = [
        "<|im_start|>",
        "<|im_end|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "</s>",
        "<tools>",
        "<tool_response>",
        "<|tool_response>",
        "[TOOL_RESULTS]",
        "[AVAILABLE_TOOLS]",
        "<｜tool▁outputs▁begin｜>",
        "<|call|>",
        "<think>",
        "<|assistant|>",
        "<|tool|>",
        "<|function_call_library|>",
        "tool_call",
        "a tool_call b",
        "",
        "<>",
        "<|tool_list_start|>",
        "<a tool_call>",
    ];
    for other in others {
        assert!(!tool_calls::is_marker(other), "{other}");
    }
}
