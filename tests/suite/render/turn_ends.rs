//! Ends of the assistant's turn: the ends that the files list, and the end that probes find. The
//! templates are shaped like templates of well-known models.

use std::collections::BTreeMap;
use std::fs;
use std::time::Instant;

use render_svc::catalog::ServedModel;
use render_svc::model::Model;
use render_svc::output_spec::{EndSource, Mark, Opened, OutputSpec, opens};
use serde_json::{Value, json};
use tandem_template::ChatTemplate;
use tandem_tests::{ModelFolder, corpus, repository};

use super::output_spec::bracketed;

const AFTER: &str = "{% if add_generation_prompt %}<|a|>{% endif %}";
/// The tokens of the templates below. The last is the tokenizer's eos token.
const TOKENS: [(&str, bool); 10] = [
    ("<|u|>", true),
    ("<|a|>", true),
    ("<|s|>", true),
    ("<|end|>", true),
    ("<|close|>", true),
    ("<|open|>", true),
    ("<|sep|>", true),
    ("<|eom|>", true),
    ("<|text|>", true),
    ("</s>", true),
];

/// Returns the ends that the model's files and template give, with their sources.
fn ends_of(model: &Model) -> BTreeMap<String, Vec<EndSource>> {
    let spec = OutputSpec::infer(model);
    let text = |mark: &Mark| match mark {
        Mark::Token(id) => model.tokenizer().ok().and_then(|it| it.id_to_token(*id)).unwrap_or_default(),
        Mark::Text(text) => format!("text {text}"),
    };
    spec.ends.iter().map(|end| (text(&end.mark), end.sources.clone())).collect()
}

/// Returns the end that the probe finds.
fn probed(model: &Model) -> Option<String> {
    ends_of(model).into_iter().find(|(_, sources)| sources.contains(&EndSource::Probe)).map(|(text, _)| text)
}

fn folder(template: &str) -> ModelFolder {
    let template = format!("{template}{AFTER}");
    ModelFolder::new("x").with_tokens(&TOKENS).with_template(&template).with_setting("eos_token", "</s>")
}

fn loaded(folder: &ModelFolder) -> Model {
    Model::load(&folder.path()).expect("the model loads")
}

#[track_caller]
fn check(template: &str, end: Option<&str>) {
    assert_eq!(probed(&loaded(&folder(template))).as_deref(), end, "{template}");
}

/// A message is several sections, as in Kimi K3. `<|close|>` ends each, `<|eom|>` the message.
const SECTIONS: &str = "{% for m in messages %}<|open|>{{ m.role }}<|sep|>{% if m.role == 'assistant' %}\
    {% if m.reasoning_content %}<|open|>think<|sep|>{{ m.reasoning_content }}<|close|>think<|sep|>{% endif %}\
    <|open|>answer<|sep|>{{ m.content }}<|close|>answer<|sep|>{% else %}{{ m.content }}{% endif %}<|eom|>{% endfor %}";

#[test]
fn the_end_of_a_section_does_not_end_the_turn() {
    check(SECTIONS, Some("<|eom|>"));
    let without_end = SECTIONS.replace("<|eom|>", "");
    check(&without_end, None);
}

#[test]
fn the_list_of_the_generation_config_is_believed() {
    let folder = folder(SECTIONS);
    let path = folder.path();
    let listed = |ids: Value| {
        fs::write(path.join("generation_config.json"), json!({"eos_token_id": ids}).to_string()).expect("a file");
        ends_of(&Model::load(&path).expect("the model loads"))
    };
    let ends = listed(json!([263, 265]));
    let both = [EndSource::GenerationConfig, EndSource::EosToken, EndSource::TokenizerFamily];
    let found = [EndSource::GenerationConfig, EndSource::Probe];
    assert_eq!(ends, BTreeMap::from([("</s>".to_owned(), both.to_vec()), ("<|eom|>".to_owned(), found.to_vec())]));
    // Also a token that a probe finds inside a turn.
    assert_eq!(listed(json!(260))["<|close|>"], [EndSource::GenerationConfig]);
}

#[test]
fn the_end_of_reasoning_does_not_end_the_turn() {
    // As Solar Open and gpt-oss write reasoning: a message before the answer.
    check(
        "{% for m in messages %}{% if m.reasoning %}<|open|>think<|text|>{{ m.reasoning }}<|end|>{% endif %}\
         <|open|>{{ m.role }}<|text|>{{ m.content }}<|end|>{% endfor %}",
        None,
    );
    // Reasoning that the content contains.
    check(
        "{% for m in messages %}<|s|>{{ m.role }}<|sep|>{{ m.content.replace('</think>', '<|end|>') }}<|end|>{% endfor %}",
        None,
    );
}

#[test]
fn the_end_of_a_call_does_not_end_the_turn() {
    let with_calls = |between: &str, end: &str| {
        format!(
            "{{% for m in messages %}}{{% if m.role == 'user' %}}<|u|>{{{{ m.content }}}}<|end|>{{% else %}}<|a|>{{{{ m.content }}}}\
             {{% for call in m.tool_calls %}}{between}<|open|>{{{{ call.function.name }}}}{{{{ call.function.arguments }}}}<|close|>\
             {{% endfor %}}{end}{{% endif %}}{{% endfor %}}"
        )
    };
    check(&with_calls("", "<|end|>"), Some("<|end|>"));
    check(&with_calls("", "<|close|>"), None);
    check(&with_calls("<|end|>", "<|end|>"), None);
}

#[test]
fn an_end_that_only_another_message_shows_is_found() {
    // As in Apertus.
    check(
        "{% for m in messages %}{% if m.role == 'assistant' %}<|a|>{{ m.content }}{% if not loop.last %}<|end|>{% endif %}\
         {% else %}<|u|>{{ m.content }}<|eom|>{% endif %}{% endfor %}",
        Some("<|end|>"),
    );
    // As in Qwen1.5, with a default system message.
    check(
        "{% if messages[0].role != 'system' %}<|s|>system\nBe kind<|end|>\n{% endif %}\
         {% for m in messages %}<|s|>{{ m.role }}\n{{ m.content }}{% if not loop.last %}<|end|>\n{% endif %}{% endfor %}",
        Some("<|end|>"),
    );
    // The prompt always ends with the start of the assistant's turn.
    check(
        "{% for m in messages %}{% if m.role == 'assistant' %}{{ m.content }}{% if not loop.last %}<|end|>{% endif %}\
         {% else %}<|u|>{{ m.content }}<|a|>{% endif %}{% endfor %}",
        Some("<|end|>"),
    );
    // A section ends with the answer, the turn before another message. As in Command A.
    check(
        "{% for m in messages %}{% if m.role == 'assistant' %}<|a|><|text|>{{ m.content }}<|close|>{% else %}<|u|>{{ m.content }}\
         {% endif %}{% if not loop.last %}<|end|>{% endif %}{% endfor %}",
        Some("<|end|>"),
    );
}

#[test]
fn the_end_of_the_text_does_not_hide_the_end_of_the_turn() {
    // As in Phi-3.
    check(
        "{% for m in messages %}{% if m.role == 'assistant' %}<|a|>\n{{ m.content }}<|end|>\n{% else %}<|u|>\n{{ m.content }}<|end|>\n\
         {% endif %}{% endfor %}{% if not add_generation_prompt %}</s>{% endif %}",
        Some("<|end|>"),
    );
}

#[test]
fn a_turn_with_two_ends_has_no_probed_end() {
    // As in gpt-oss: `<|eom|>` at the end, `<|end|>` before another message.
    check(
        "{% for m in messages %}<|s|>{{ m.role }}<|sep|>{{ m.content }}{% if loop.last %}<|eom|>{% else %}<|end|>{% endif %}\
         {% endfor %}",
        None,
    );
    // Another end if there is a system message.
    check(
        "{% for m in messages %}<|s|>{{ m.role }}<|sep|>{{ m.content }}{% if messages[0].role == 'system' %}<|eom|>{% else %}\
         <|end|>{% endif %}{% endfor %}",
        None,
    );
}

#[test]
fn the_start_of_a_turn_does_not_end_one() {
    // As in GLM, whose other ends are those of its family.
    check("{% for m in messages %}<|{{ m.role[0] }}|>{{ m.content }}{% endfor %}", None);
    // The prompt always has a start of the assistant's turn, also after the assistant.
    check(
        "{% for m in messages %}<|s|>{{ m.role }}<|sep|>{{ m.content }}<|end|>{% endfor %}<|s|>assistant<|sep|>",
        Some("<|end|>"),
    );
    // Turns start with two tokens, as in Command R.
    check(
        "{% for m in messages %}<|s|><|{{ m.role[0] }}|>{{ m.content }}<|end|>{% endfor %}<|s|><|a|>",
        Some("<|end|>"),
    );
    // An empty system message leads, as in Jamba.
    check(
        "{% if messages[0].role != 'system' %}<|s|>system<|sep|><|end|>{% endif %}\
         {% for m in messages %}<|s|>{{ m.role }}<|sep|>{{ m.content }}<|end|>{% endfor %}",
        Some("<|end|>"),
    );
    // The bos token is also the eos token, as in OLMo.
    check(
        "{{ eos_token }}{% for m in messages %}<|{{ m.role[0] }}|>{{ m.content }}{% if m.role == 'assistant' %}{{ eos_token }}\
         {% endif %}{% endfor %}",
        Some("</s>"),
    );
    // The system message ends as turns do, directly before the user's text.
    check("{% for m in messages %}{{ m.content }}<|end|>{% endfor %}", Some("<|end|>"));
}

#[test]
fn templates_that_take_only_lists_or_need_tools_are_probed() {
    check(
        "{% for m in messages %}{{ m.role }}:{% for block in m.content %}{% if block.type == 'text' %}{{ block.text }}{% endif %}\
         {% endfor %}<|end|>{% endfor %}",
        Some("<|end|>"),
    );
    check(
        "{% for tool in tools %}{{ tool.function.name }}{% endfor %}\
         {% for m in messages %}<|s|>{{ m.role }}<|sep|>{{ m.content }}<|end|>{% endfor %}",
        Some("<|end|>"),
    );
}

#[test]
fn templates_that_restrict_the_last_message_are_probed() {
    for (role, end) in [("user", "<|end|>"), ("assistant", "<|end|>")] {
        let template = "{% if messages[-1].role == 'ROLE' %}{{ raise_exception('The last message is wrong') }}{% endif %}\
                        {% for m in messages %}<|s|>{{ m.role }}<|sep|>{{ m.content }}<|end|>{% endfor %}";
        check(&template.replace("ROLE", role), Some(end));
    }
}

#[test]
fn an_end_that_is_no_token_becomes_a_stop_string() {
    check("{% for m in messages %}[{{ m.role }}]{{ m.content }}[/{{ m.role }}]{% endfor %}", Some("text [/assistant]"));
    check("{% for m in messages %}{{ m.role }}: {{ m.content }} <|endx|>\n{% endfor %}", Some("text <|endx|>"));
    // Llama 2's user marker starts a turn.
    check(
        "{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]{% else %}{{ m.content }}{% endif %}\
         {% endfor %}",
        None,
    );
    // Text in square brackets is an end only if every rendering has it.
    check(
        "{% for m in messages %}{{ m.role }}: {{ m.content }}{% if not loop.last %}[/{{ m.role }}]{% endif %}{% endfor %}",
        None,
    );
    check("{% for m in messages %}{{ m.role }}: {{ m.content }}[{{ m.content }}]{% endfor %}", None);
}

#[test]
fn an_end_need_not_be_special() {
    let template = "{% for m in messages %}<user>{{ m.content }}</{{ m.role }}>{% endfor %}";
    let tokens = [("<user>", false), ("</user>", false), ("</assistant>", false)];
    let model = loaded(&ModelFolder::new("x").with_tokens(&tokens).with_template(template));
    let no_markup = ModelFolder::new("x").with_tokens(&[("<b>", false)]).with_template("{{ messages }}</b>");
    assert_eq!((probed(&model), probed(&loaded(&no_markup))), (Some("</assistant>".to_owned()), None));
}

#[test]
fn a_family_end_before_the_answer_is_left_out() {
    // The tokens are those of Phi-3's family, the sections are not.
    let template = "{% for m in messages %}<|{{ m.role }}|>{% if m.reasoning_content %}{{ m.reasoning_content }}<|end|>{% endif %}\
                    {{ m.content }}<|eom|>{% endfor %}";
    let tokens = [("<|assistant|>", true), ("<|end|>", true), ("<|eom|>", true), ("<|endoftext|>", true)];
    let model = loaded(&ModelFolder::new("x").with_tokens(&tokens).with_template(template));
    let expected = [
        ("<|endoftext|>".to_owned(), vec![EndSource::TokenizerFamily]),
        ("<|eom|>".to_owned(), vec![EndSource::Probe]),
    ];
    assert_eq!(ends_of(&model), BTreeMap::from(expected));
}

#[test]
fn each_end_has_its_sources() {
    let folder = folder("{% for m in messages %}<|s|>{{ m.role }}<|sep|>{{ m.content }}<|end|>{% endfor %}");
    let path = folder.path();
    fs::write(path.join("config.json"), json!({"eos_token_id": 265}).to_string()).expect("a file");
    let model = Model::load(&path).expect("the model loads");
    let expected = [
        ("</s>".to_owned(), vec![EndSource::Config, EndSource::EosToken, EndSource::TokenizerFamily]),
        ("<|end|>".to_owned(), vec![EndSource::Probe]),
    ];
    assert_eq!(ends_of(&model), BTreeMap::from(expected));
    let served = ServedModel::load(&path).expect("the model loads");
    let spec = served.resolve(Some("chatml")).expect("an adapter").format.output_spec();
    let of_adapter = spec.ends.iter().find(|end| end.sources == [EndSource::Adapter]).map(|end| end.mark.clone());
    assert_eq!(of_adapter, Some(Mark::Text("<|im_end|>".to_owned())));
}

#[test]
fn configured_eos_ids_replace_all_others() {
    let folder = folder("{% for m in messages %}<|s|>{{ m.role }}<|sep|>{{ m.content }}<|end|>{% endfor %}");
    let served = ServedModel::load(&folder.path()).expect("the model loads");
    let adapter = *served.resolve(Some("tagged")).expect("an adapter").adapter();
    let inferred = OutputSpec::infer(&served.model);
    assert_eq!(inferred.ends.token_ids(), [259, 265]);
    let overridden = inferred.clone().with_eos_override(Some(&[263, 258])).with_adapter(&adapter, &served.model);
    assert_eq!(overridden.ends.token_ids(), [258, 263]);
    let tokens = overridden.ends.iter().filter(|end| matches!(end.mark, Mark::Token(_)));
    assert!(tokens.into_iter().all(|end| end.sources == [EndSource::Override]));
    for unknown in [None, Some(&[][..])] {
        assert_eq!(inferred.clone().with_eos_override(unknown), inferred);
    }
}

/// The expected ends are in the generation configs of the models.
#[test]
fn a_well_known_tokenizer_alone_has_its_ends() {
    let expected: [(&str, &[&str]); 7] = [
        ("deepseek_v3", &["<｜end▁of▁sentence｜>"]),
        ("deepseek_v4", &["<｜end▁of▁sentence｜>"]),
        ("gemma3", &["<end_of_turn>", "<eos>"]),
        ("gptoss", &["<|call|>", "<|endoftext|>", "<|return|>"]),
        ("llama2", &["</s>"]),
        ("llama3_1", &["<|end_of_text|>", "<|eot_id|>"]),
        ("qwen3", &["<|endoftext|>", "<|im_end|>"]),
    ];
    for (name, ends) in expected {
        let source = repository().join(".tandem/tokenizers").join(name).join("tokenizer.json");
        let folder = tempfile::tempdir().expect("a temporary folder");
        fs::copy(&source, folder.path().join("tokenizer.json"))
            .unwrap_or_else(|error| panic!("{}: {error}: `cargo xtask test` fetches it", source.display()));
        let model = Model::load(folder.path()).expect("the model loads");
        let found = ends_of(&model);
        assert!(ends.iter().all(|end| found.contains_key(*end)), "{name} {found:?}");
        let others: Vec<_> = found.keys().filter(|end| !ends.contains(&end.as_str())).collect();
        assert!(others.iter().all(|end| *end == "<|eom_id|>"), "{name} {others:?}");
    }
}

#[test]
fn the_generation_prompt_opens_a_turn_and_reasoning() {
    let opened = |prompt: &str| {
        let template = format!(
            "{{% for m in messages %}}<|s|>{{{{ m.role }}}}\n{{{{ m.content }}}}<|end|>{{% endfor %}}{{% if add_generation_prompt %}}{prompt}{{% endif %}}"
        );
        let tokens = [("<|s|>", true), ("<|end|>", true), ("<think>", false), ("</think>", false)];
        let as_tokens = ModelFolder::new("x").with_tokens(&tokens).with_template(&template);
        let as_text = ModelFolder::new("x").with_tokens(&tokens[..2]).with_template(&template);
        let opened = opens(&loaded(&as_tokens));
        assert_eq!(opens(&loaded(&as_text)), opened, "{prompt}");
        opened
    };
    let expected = |head: &str, reasoning| Opened { head: head.to_owned(), reasoning };
    assert_eq!(opened("<|s|>assistant\n"), expected("assistant\n", false));
    assert_eq!(opened("<|s|>assistant\n<think>\n"), expected("assistant\n", true));
    assert_eq!(opened("<|s|>assistant\n<think>\n\n</think>\n\n"), expected("assistant\n", false));
    assert_eq!(opened("<|s|></think>"), expected("", false));
    assert_eq!(opened(""), expected("", false));
    // Reasoning that the question's turn opens, whether or not a prompt is asked for.
    let always = ModelFolder::new("x").with_template("{% for m in messages %}{{ m.content }}\n{% endfor %}<think>\n");
    assert_eq!(opens(&loaded(&always)), expected("", true));
    assert_eq!(opens(&loaded(&ModelFolder::new("x"))), Opened::default());
}

/// Prints the time of the probes, which the limits of one rendering bound.
#[test]
fn a_template_that_never_ends_has_no_probed_end() {
    let endless = "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}";
    let nearly = "{% for m in messages %}{{ m.role }}{{ m.content }}<|end|>{% endfor %}{% for a in range(1000) %}{% set b = a %}{% endfor %}";
    let brackets = "{% for m in messages %}{{ m.role }}{{ m.content }}<|end|>{% endfor %}{{ '[<|' * 10000 }}";
    for template in [endless, nearly, brackets] {
        let model = loaded(&folder(template));
        let start = Instant::now();
        let end = probed(&model);
        eprintln!("{end:?} in {:?}", start.elapsed());
        assert_eq!(end.is_some(), template != endless, "{template}");
    }
}

/// Returns the expected end of every template of the corpus.
fn expected_ends() -> BTreeMap<String, String> {
    let golden = fs::read_to_string(repository().join("tests/golden/turn_ends.txt")).expect("a golden file");
    let rows = golden.lines().filter(|line| !line.starts_with("# ")).filter_map(|line| line.split_once(' '));
    rows.flat_map(|(end, slugs)| slugs.split(' ').map(|slug| (slug.to_owned(), end.to_owned()))).collect()
}

/// Each template has a tokenizer whose special tokens are the bracketed words of the template.
#[test]
fn probes_find_the_ends_of_the_corpus_templates() {
    let Some(corpus) = corpus() else { return };
    let read = |path: &str| fs::read_to_string(corpus.join(path)).expect("a file of the corpus");
    let manifest: Value = serde_json::from_str(&read("templates/manifest.json")).expect("JSON");
    let (expected, mut found, mut slowest) = (expected_ends(), BTreeMap::new(), (0, String::new()));
    for entry in manifest.as_array().expect("a list") {
        let slug = entry["slug"].as_str().expect("a slug").to_owned();
        let source = read(&format!("templates/{slug}.jinja"));
        let template = ChatTemplate::compile(&source).expect("compiles");
        let named = ["bos_token", "eos_token"].into_iter().filter_map(|name| Some((name, entry[name].as_str()?)));
        let mut tokens = bracketed(template.literal_text());
        tokens.extend(named.clone().map(|(_, text)| text));
        let tokens: Vec<_> = tokens.into_iter().map(|text| (text, true)).collect();
        let model = ModelFolder::new("x").with_tokens(&tokens).with_template(&source);
        let model = loaded(&named.fold(model, |model, (name, text)| model.with_setting(name, text)));
        let start = Instant::now();
        let end = probed(&model).map(|end| end.trim_start_matches("text ").to_owned());
        slowest = slowest.max((start.elapsed().as_micros(), slug.clone()));
        found.insert(slug, end.unwrap_or_else(|| "-".to_owned()));
    }
    eprintln!("{} templates, slowest {slowest:?} us", found.len());
    let different: Vec<_> = found.iter().filter(|(slug, end)| expected.get(*slug) != Some(end)).collect();
    assert!(different.is_empty(), "{different:?}");
    assert_eq!(found.len(), expected.len());
}

/// Returns a template with this text at the end of every turn of the assistant.
fn ended_by(end: &str) -> String {
    format!(
        "{{% for m in messages %}}{{% if m.role == 'user' %}}### Ask\n{{{{ m.content }}}}\n\n{{% elif m.role == 'assistant' %}}### Say\n\
         {{{{ m.content }}}}{end}{{% else %}}{{{{ m.content }}}}\n\n{{% endif %}}{{% endfor %}}"
    )
}

#[test]
fn text_that_ends_every_turn_becomes_a_stop_string() {
    check(&ended_by("\n### END\n"), Some("text \n### END"));
    check(&ended_by(" Over and out.\n\n"), Some("text  Over and out."));
    // A token ends the turn as a token.
    check(&ended_by("\n### END <|end|>\n"), Some("<|end|>"));
    // The tokenizer's own end remains beside the text.
    let ends = ends_of(&loaded(&folder(&ended_by("\n### END\n"))));
    assert_eq!(ends["</s>"], [EndSource::EosToken, EndSource::TokenizerFamily]);
    // `</s>` is text where the tokenizer has no such token.
    let unknown = ModelFolder::new("x").with_tokens(&[("<b>", true)]).with_template(&ended_by("</s>\n"));
    assert_eq!(probed(&loaded(&unknown)).as_deref(), Some("text </s>"));
}

#[test]
fn text_that_may_be_part_of_an_answer_ends_no_turn() {
    // White space, and signs without a word.
    check(&ended_by("\n\n"), None);
    check(&ended_by("\n###\n"), None);
    // The start of the assistant's turn, which the template writes at the end of every prompt.
    check(&format!("{}### Say\n", ended_by("\n\n")), None);
    // The start of the next turn, which the last one lacks.
    check("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}", None);
    // Only at the end of the conversation, or only before another message.
    check(&ended_by("{% if loop.last %}\n### END\n{% endif %}"), None);
    check(&ended_by("{% if not loop.last %}\n### END\n{% endif %}"), None);
    // Another text if there is a system message.
    check(&ended_by("{% if messages[0].role == 'system' %}\n### STOP\n{% else %}\n### END\n{% endif %}"), None);
    // Between reasoning and the answer too.
    let inside = "{% for m in messages %}{{ m.role }}: {% if m.reasoning %}{{ m.reasoning }}\n### END\n{% endif %}\
                  {{ m.content }}\n### END\n{% endfor %}";
    check(inside, None);
}

#[test]
fn stop_strings_of_the_generation_config_end_the_turn() {
    let folder = folder("{% for m in messages %}<|s|>{{ m.role }}<|sep|>{{ m.content }}<|end|>{% endfor %}");
    let path = folder.path();
    let listed = |stops: Value| {
        fs::write(path.join("generation_config.json"), json!({"stop_strings": stops}).to_string()).expect("a file");
        let ends = ends_of(&Model::load(&path).expect("the model loads")).into_iter();
        let ends = ends.filter(|(_, sources)| sources.contains(&EndSource::GenerationConfig));
        ends.map(|(text, _)| text).collect::<Vec<_>>()
    };
    assert_eq!(listed(json!("###")), ["text ###"]);
    assert_eq!(listed(json!(["\nUser:", "###", "###"])), ["text \nUser:", "text ###"]);
    // A special token is never part of the output's text.
    assert_eq!(listed(json!(["<|eom|>", "<|end|>"])), ["<|end|>", "<|eom|>"]);
    // The contract takes strings of 1 to 1,024 bytes.
    assert_eq!(listed(json!(["", "x".repeat(1025), 5, null, "y"])), ["text y"]);
    for nothing in [json!(null), json!([]), json!(""), json!(7), json!({"a": "b"})] {
        assert_eq!(listed(nothing.clone()), [""; 0], "{nothing}");
    }
    let many: Vec<_> = (0..100).map(|i| format!("stop {i}")).collect();
    assert_eq!(listed(json!(many)).len(), 32);
}

/// A model whose tokenizer is missing has stop strings too.
#[test]
fn stop_strings_need_no_tokenizer() {
    let folder = ModelFolder::new("x").with_template("{{ messages[0].content }}");
    let path = folder.path();
    fs::write(path.join("generation_config.json"), r####"{"stop_strings": ["###"]}"####).expect("a file");
    let served = ServedModel::load(&path).expect("the model loads");
    assert_eq!(served.adapter.format.output_spec().ends.texts(), ["###"]);
}
