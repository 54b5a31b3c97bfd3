//! `template_args` of the DeepSeek families: values that are understood, refused or warned of, and
//! arguments of another revision.

use render_svc::catalog::ModelTable;
use serde_json::{Value, json};
use tandem_tests::{ModelFolder, answer, error_texts};

const FAMILIES: [&str; 2] = ["deepseek_v32", "deepseek_v4"];

fn models(family: &str) -> ModelTable {
    ModelFolder::new("tiny").with_architecture(family).models()
}

fn asked(family: &str, args: &Value) -> Value {
    answer(&models(family), &json!({"messages": [{"role": "user", "content": "Hi"}], "template_args": args}))
}

/// Returns the codes and paths of the warnings.
fn warnings(answer: &Value) -> Vec<(&str, &str)> {
    let warnings = answer["warnings"].as_array().map(Vec::as_slice).unwrap_or_default();
    warnings.iter().filter_map(|warning| Some((warning["code"].as_str()?, warning["path"].as_str()?))).collect()
}

/// Checks that the prompt opens reasoning or not, and the paths of warnings about arguments.
#[track_caller]
fn check(args: Value, thinks: bool, warned: &[&str]) {
    for family in FAMILIES {
        let answer = asked(family, &args);
        let end = if thinks { "<think>" } else { "</think>" };
        let expected = format!("<｜begin▁of▁sentence｜><｜User｜>Hi<｜Assistant｜>{end}");
        assert_eq!(answer["prompt"], expected, "{family} {args} {answer}");
        let expected: Vec<_> = warned.iter().map(|path| ("TEMPLATE_ARGS_IGNORED", *path)).collect();
        assert_eq!(warnings(&answer), expected, "{family} {args}");
    }
}

/// DeepSeek's API has this form. deepseek-recipe 0.2.0 reads it so.
#[test]
fn a_switch_may_be_an_object_with_a_type() {
    for name in ["thinking", "enable_thinking"] {
        check(json!({name: {"type": "disabled"}}), false, &[]);
        check(json!({name: {"type": "enabled"}}), true, &[]);
        check(json!({name: {"type": "enabled", "budget_tokens": 1}}), true, &[&format!("template_args.{name}")]);
    }
}

#[test]
fn a_switch_of_another_type_is_refused() {
    for family in FAMILIES {
        for value in [json!({"type": "auto"}), json!({"type": true}), json!({}), json!([]), json!([true])] {
            for name in ["thinking", "enable_thinking", "drop_thinking", "add_default_bos_token"] {
                let answer = asked(family, &json!({name: value}));
                let error = &answer["error"];
                let expected = (json!("INVALID_REQUEST"), json!(format!("template_args.{name}")));
                assert_eq!((&error["reason"], &error["field"]), (&expected.0, &expected.1), "{answer}");
                let is_typed = matches!(name, "thinking" | "enable_thinking");
                let case = if is_typed { "deepseek/typed-switch" } else { "deepseek/switch" };
                error_texts::check(case, error["message"].as_str().expect("a text"));
            }
        }
        let typed = asked(family, &json!({"drop_thinking": {"type": "enabled"}}));
        assert_eq!(typed["error"]["field"], "template_args.drop_thinking");
    }
}

#[test]
fn a_word_or_number_that_is_not_understood_is_warned_of() {
    check(json!({"thinking": "yes"}), false, &["template_args.thinking"]);
    check(json!({"enable_thinking": "adaptive"}), false, &["template_args.enable_thinking"]);
    check(json!({"thinking": 75}), true, &["template_args.thinking"]);
    check(json!({"add_default_bos_token": 2}), false, &["template_args.add_default_bos_token"]);
    for (value, thinks) in [(json!("On"), true), (json!(1), true), (json!(0.0), false), (json!("disabled"), false)] {
        check(json!({"thinking": value}), thinks, &[]);
    }
    check(json!({"thinking_mode": "chat", "thinking": "yes"}), false, &[]);
}

/// The compatibility specification says so.
#[test]
fn an_unknown_argument_is_ignored_silently() {
    check(json!({"thinking": true, "thinkng": false, "tools_mode": "x"}), true, &[]);
}

#[test]
fn an_argument_of_another_revision_is_warned_of() {
    let args = json!({"thinking": true, "reasoning_effort": "max"});
    let expected = [("TEMPLATE_ARGS_IGNORED", "template_args.reasoning_effort")];
    assert_eq!(warnings(&asked("deepseek_v32", &args)), expected);
    assert!(warnings(&asked("deepseek_v4", &args)).is_empty());
    assert!(warnings(&asked("deepseek_v32", &json!({"reasoning_effort": null}))).is_empty());
}

#[test]
fn an_effort_without_thinking_is_warned_of() {
    let expected = [("TEMPLATE_ARGS_IGNORED", "template_args.reasoning_effort")];
    assert_eq!(warnings(&asked("deepseek_v4", &json!({"reasoning_effort": "high"}))), expected);
    assert!(warnings(&asked("deepseek_v4", &json!({"reasoning_effort": "low"}))).is_empty());
}
