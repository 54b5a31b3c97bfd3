//! Chat templates in the folder of a DeepSeek model: equal to the maker's encoder, or different in one
//! kind of conversation.

use serde_json::json;
use tandem_tests::{ModelFolder, answer};

/// A template that renders as the encoder of DeepSeek-V4.
const V4: &str = r#"
{%- set thinks = thinking is defined and thinking -%}
{%- set ns = namespace(last=-1, system='') -%}
{%- for m in messages -%}
  {%- if m.role in ['user', 'tool'] -%}{%- set ns.last = loop.index0 -%}{%- endif -%}
  {%- if m.role == 'system' -%}{%- set ns.system = m.content -%}{%- endif -%}
{%- endfor -%}
{{- '<｜begin▁of▁sentence｜>' + ns.system -}}
{%- if tools -%}
{{- '\n\n## Tools\n\nYou have access to a set of tools to help answer the user\'s question. You can invoke tools by writing a "<｜DSML｜tool_calls>" block like the following:\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name="$TOOL_NAME">\n<｜DSML｜parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</｜DSML｜parameter>\n...\n</｜DSML｜invoke>\n<｜DSML｜invoke name="$TOOL_NAME2">\n...\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>\n\nString parameters should be specified as is and set `string="true"`. For all other types (numbers, booleans, arrays, objects), pass the value in JSON format and set `string="false"`.\n\nIf thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning inside <think>...</think> BEFORE any tool calls or final response.\n\nOtherwise, output directly after </think> with tool calls or final response.\n\n### Available Tool Schemas\n\n' -}}
{%- for t in tools -%}{{- t.function | tojson + '\n' -}}{%- endfor -%}
{{- '\nYou MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.\n' -}}
{%- endif -%}
{%- for m in messages -%}
  {%- if m.role == 'assistant' -%}
    {%- if thinks and (tools or loop.index0 > ns.last) -%}
      {{- (m.reasoning_content or '') + '</think>' -}}
    {%- endif -%}
    {{- m.content -}}
    {%- for call in m.tool_calls or [] -%}
      {{- '\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name="' + call.function.name + '">\n' -}}
      {%- for key, value in ARGUMENTS -%}
        {{- '<｜DSML｜parameter name="' + key + '" string="' -}}
        {{- 'true">' + value if value is string else 'false">' + value | tojson -}}
        {{- '</｜DSML｜parameter>\n' -}}
      {%- endfor -%}
      {{- '</｜DSML｜invoke>\n</｜DSML｜tool_calls>' -}}
    {%- endfor -%}
    {{- '<｜end▁of▁sentence｜>' -}}
  {%- elif m.role != 'system' -%}
    {%- if m.role == 'tool' -%}
      {{- '<｜User｜><tool_result>' + m.content + '</tool_result>' -}}
    {%- else -%}
      {{- '<｜User｜>' + m.content -}}
    {%- endif -%}
    {{- '<｜Assistant｜>' + ('<think>' if thinks and (tools or loop.index0 >= ns.last) else '</think>') -}}
  {%- endif -%}
{%- endfor -%}
"#;

/// A template that renders as the encoder of DeepSeek-V3.2.
const V32: &str = r#"
{%- set thinks = thinking is defined and thinking -%}
{%- set ns = namespace(last=-1, system='') -%}
{%- for m in messages -%}
  {%- if m.role == 'user' -%}{%- set ns.last = loop.index0 -%}{%- endif -%}
  {%- if m.role == 'system' -%}{%- set ns.system = m.content -%}{%- endif -%}
{%- endfor -%}
{{- '<｜begin▁of▁sentence｜>' + ns.system -}}
{%- if tools -%}
{{- '\n\n## Tools\n\nYou have access to a set of tools you can use to answer the user\'s question.\nYou can invoke functions by writing a "<｜DSML｜function_calls>" block like the following as part of your reply to the user:\n<｜DSML｜function_calls>\n<｜DSML｜invoke name="$FUNCTION_NAME">\n<｜DSML｜parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</｜DSML｜parameter>\n...\n</｜DSML｜invoke>\n<｜DSML｜invoke name="$FUNCTION_NAME2">\n...\n</｜DSML｜invoke>\n</｜DSML｜function_calls>\n\nString and scalar parameters should be specified as is without any escaping or quotes, while lists and objects should use JSON format. The "string" attribute should be set to "true" for string type parameters and "false" for other types (numbers, booleans, arrays, objects).\n\nIf the thinking_mode is enabled, then after function results you should strongly consider outputting a thinking block. Here is an example:\n\n<｜DSML｜function_calls>\n...\n</｜DSML｜function_calls>\n\n<function_results>\n...\n</function_results>\n\n<think>...thinking about results</think>\n\nHere are the functions available in JSONSchema format:\n<functions>\n' -}}
{%- for t in tools -%}{{- t.function | tojson + '\n' -}}{%- endfor -%}
{{- '</functions>\n' -}}
{%- endif -%}
{%- for m in messages -%}
  {%- if m.role == 'assistant' -%}
    {%- if thinks and loop.index0 > ns.last -%}
      {{- (m.reasoning_content or '') + '</think>' -}}
    {%- endif -%}
    {{- m.content -}}
    {%- for call in m.tool_calls or [] -%}
      {{- '\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name="' + call.function.name + '">\n' -}}
      {%- for key, value in ARGUMENTS -%}
        {{- '<｜DSML｜parameter name="' + key + '" string="' -}}
        {{- 'true">' + value if value is string else 'false">' + value | tojson -}}
        {{- '</｜DSML｜parameter>\n' -}}
      {%- endfor -%}
      {{- '</｜DSML｜invoke>\n</｜DSML｜function_calls>' -}}
    {%- endfor -%}
    {{- '<｜end▁of▁sentence｜>' -}}
  {%- elif m.role == 'tool' -%}
    {{- '\n\n<function_results>\n<result>' + m.content + '</result>\n</function_results>\n\n' -}}
    {{- '<think>' if thinks and loop.index0 >= ns.last else '</think>' -}}
  {%- elif m.role == 'user' -%}
    {{- '<｜User｜>' + m.content + '<｜Assistant｜>' -}}
    {{- '<think>' if thinks and loop.index0 >= ns.last else '</think>' -}}
  {%- endif -%}
{%- endfor -%}
"#;

/// The families, each with a template that renders as its encoder.
const FAMILIES: [(&str, &str); 2] = [("deepseek_v32", V32), ("deepseek_v4", V4)];

/// How a template reads the arguments of a call that is an object.
const OF_OBJECTS: &str = "call.function.arguments.items()";

/// Returns the text of the warning TEMPLATE_DIFFERS; None if the answer has no warning.
fn difference(family: &str, template: &str) -> Option<String> {
    let folder = ModelFolder::new("tiny").with_architecture(family).with_template(template);
    let answer = answer(&folder.models(), &json!({"messages": [{"role": "user", "content": "Hi"}]}));
    let warnings = answer["warnings"].as_array().unwrap_or_else(|| panic!("{answer}"));
    let [warning] = warnings.as_slice() else {
        assert_eq!(warnings.len(), 0, "{answer}");
        return None;
    };
    assert_eq!(warning["code"], "TEMPLATE_DIFFERS");
    warning["text"].as_str().map(str::to_owned)
}

#[test]
fn a_template_equal_to_the_encoder_is_not_warned_of() {
    for (family, template) in FAMILIES {
        assert_eq!(difference(family, &template.replace("ARGUMENTS", OF_OBJECTS)), None, "{family}");
    }
}

/// The text of arguments is no mapping, so this template fails for objects.
#[test]
fn a_template_that_takes_arguments_as_text_gets_text() {
    let whole = r#"[['city', 'Bonn'], ['limit', 2]] if call.function.arguments + '' else []"#;
    for (family, template) in FAMILIES {
        assert_eq!(difference(family, &template.replace("ARGUMENTS", whole)), None, "{family}");
    }
}

#[test]
fn a_template_that_differs_in_one_kind_of_conversation_is_warned_of() {
    let changes = [
        ("'<｜User｜>' + m.content", "'<｜User｜> ' + m.content", "a question"),
        ("(m.reasoning_content or '')", "''", "a call and its result with reasoning"),
        ("thinking is defined and thinking", "false", "two turns with reasoning"),
        ("t.function | tojson", "t | tojson", "tools"),
        ("'false\">'", "'true\">'", "a call and its result"),
        ("m.content + '</", "m.content | upper + '</", "a call and its result"),
    ];
    for (family, template) in FAMILIES {
        for (old, new, kind) in changes {
            let changed = template.replace("ARGUMENTS", OF_OBJECTS).replace(old, new);
            let text = difference(family, &changed).unwrap_or_else(|| panic!("{family}: {new} is not warned of"));
            assert!(text.contains(&format!("renders {kind} differently from")), "{family}, {new}: {text}");
        }
    }
}

#[test]
fn a_template_that_fails_only_with_tools_is_warned_of() {
    for (family, template) in FAMILIES {
        let failing = format!("{{%- if tools -%}}{{{{- raise_exception('no tools') -}}}}{{%- endif -%}}{template}");
        let text = difference(family, &failing.replace("ARGUMENTS", OF_OBJECTS));
        assert!(text.is_some_and(|text| text.contains("renders tools differently")), "{family}");
    }
}

/// The template takes more steps than a probe may, and fewer than a request may.
#[test]
fn a_template_that_is_too_slow_for_probes_is_warned_of() {
    for (family, template) in FAMILIES {
        let slow = format!("{{%- for i in range(30000) -%}}{{%- endfor -%}}{template}");
        assert!(difference(family, &slow.replace("ARGUMENTS", OF_OBJECTS)).is_some(), "{family}");
    }
}

/// Returns the adapter of a model of this architecture in a folder with the name of DeepSeek, and
/// whether the choice is a guess.
fn chosen(architecture: &str, tokens: Option<&[&str]>, template: Option<&str>) -> (String, bool) {
    let mut folder = ModelFolder::new("DeepSeek-Next").with_architecture(architecture);
    if let Some(tokens) = tokens {
        folder = folder.with_tokens(&tokens.iter().map(|token| (*token, true)).collect::<Vec<_>>());
    }
    if let Some(template) = template {
        folder = folder.with_template(template);
    }
    let answer = answer(&folder.models(), &json!({"messages": [{"role": "user", "content": "Hi"}]}));
    let codes = answer["warnings"].as_array().unwrap_or_else(|| panic!("{answer}")).iter().map(|w| w["code"].clone());
    let codes: Vec<_> = codes.collect();
    assert!(codes.iter().all(|code| code == "FORMAT_GUESSED"), "{answer}");
    (answer["adapter"].as_str().expect("a name").to_owned(), !codes.is_empty())
}

/// No DeepSeek model has the tokens of ChatML, so its name never selects that format.
#[test]
fn a_later_version_without_a_template_is_guessed_to_be_of_the_newest_family() {
    let turns = &["<｜User｜>", "<｜Assistant｜>"][..];
    let cases: &[(&str, Option<&[&str]>, &str)] = &[
        ("deepseek_v41", None, "deepseek-v4"),
        ("deepseek41", None, "deepseek-v4"),
        ("deepseek_v5", None, "deepseek-v4"),
        ("deepseek_v41", Some(turns), "deepseek-v4"),
        ("deepseek_v41", Some(&["<s>"]), "plain"),
        ("deepseek_v3", None, "plain"),
        ("deepseek_vl_v2", None, "plain"),
        ("deepseek", None, "plain"),
        ("deepseek_v", None, "plain"),
        ("llama", None, "chatml"),
    ];
    for (architecture, tokens, adapter) in cases {
        assert_eq!(chosen(architecture, *tokens, None), ((*adapter).to_owned(), true), "{architecture} {tokens:?}");
    }
}

#[test]
fn a_later_version_with_a_template_is_rendered_by_it() {
    let template = V4.replace("ARGUMENTS", OF_OBJECTS);
    assert_eq!(chosen("deepseek_v41", None, Some(&template)), ("tokenizer-template".to_owned(), false));
}
