//! Answers with small faults, or in a notation's less usual forms, read by built-in rules.

use std::sync::Arc;

use ParseWarningCode::{Malformed, Outside, Unclosed};
use render_svc::catalog::ServedModel;
use render_svc::parse::{Answer, AnswerReader, Delta, ParseWarningCode, Rules, Value};
use render_svc::parse_output::{Output, ParseJob, parse};
use serde_json::{Value as Json, json};
use tempfile::TempDir;

/// An answer, and the parts that the rules read.
struct Row {
    rules: &'static str,
    text: &'static str,
    reasoning: &'static str,
    content: &'static str,
    /// Names and arguments.
    calls: &'static [(&'static str, &'static str)],
    warnings: &'static [ParseWarningCode],
}

/// A row without reasoning and warnings.
const USUAL: Row = Row { rules: "", text: "", reasoning: "", content: "", calls: &[], warnings: &[] };

/// A call that the request's tools allow.
const LAMP: &[(&str, &str)] = &[("lamp", r#"{"on": true}"#)];

const ROWS: &[Row] = &[
    // Meta's parser reads JSON as a call if it has `name` and `parameters`, or `"type": "function"` as well.
    Row {
        rules: "llama-json",
        text: r#"{"name": "Mia", "age": 3}"#,
        content: r#"{"name": "Mia", "age": 3}"#,
        warnings: &[Malformed],
        ..USUAL
    },
    Row {
        rules: "llama-json",
        text: r#"{"name": "lamp"}"#,
        content: r#"{"name": "lamp"}"#,
        warnings: &[Malformed],
        ..USUAL
    },
    Row {
        rules: "llama-json",
        text: r#"{"type": "function", "name": "lamp", "parameters": {"on": true}}"#,
        calls: LAMP,
        ..USUAL
    },
    Row {
        rules: "llama-json",
        text: r#"<|python_tag|>{"type": "function", "name": "lamp", "parameters": {"on": true}}<|eom_id|>"#,
        calls: LAMP,
        ..USUAL
    },
    Row { rules: "llama-json", text: r#"{"parameters": {"on": true}, "name": "lamp"}"#, calls: LAMP, ..USUAL },
    Row {
        rules: "llama-json",
        text: r#"{"name": "lamp", "parameters": {"on": true}} is a call."#,
        content: r#"{"name": "lamp", "parameters": {"on": true}} is a call."#,
        warnings: &[Malformed],
        ..USUAL
    },
    // A mark without a call is text.
    Row {
        rules: "phi-4-mini",
        text: "functools[{\"name\": \"lamp\", \"arguments\": {\"on\": true}}] functoolsoo and functools [{bad}].",
        content: "functoolsoo and functools [{bad}].",
        calls: LAMP,
        warnings: &[Outside, Malformed],
        ..USUAL
    },
    // A list in brackets is no end of CDATA.
    Row {
        rules: "minicpm-5",
        text: "<function name=\"note\"><param name=\"text\">a[b[0]]></param></function>",
        calls: &[("note", r#"{"text": "a[b[0]]>"}"#)],
        ..USUAL
    },
    Row {
        rules: "minicpm-5",
        text: "<function name=\"note\"><param name=\"text\"><![CDATA[a</param>]]></param></function>",
        calls: &[("note", r#"{"text": "a</param>"}"#)],
        ..USUAL
    },
    // Gemma's template writes keys without quotes and Python's constants.
    Row {
        rules: "gemma-4",
        text: "<|tool_call>call:note{text:<|\"|>a,b:c<|\"|>, count: 3,my-key:None,l:[True,{x:\"p,q:r\"}]}<tool_call|>",
        calls: &[("note", r#"{"text": "a,b:c", "count": 3, "my-key": null, "l": [true, {"x": "p,q:r"}]}"#)],
        ..USUAL
    },
    Row {
        rules: "gemma-4",
        text: "<|tool_call>call:note{x<|\"|>abc<|\"|>:1}<tool_call|>",
        content: "<|tool_call>call:note{x<|\"|>abc<|\"|>:1}<tool_call|>",
        warnings: &[Malformed],
        ..USUAL
    },
    // The end of a value is missing.
    Row {
        rules: "arguments-in-tool-call",
        text: "<tool_call>note<arg_key>text</arg_key><arg_value>a<arg_key>count</arg_key><arg_value>3</arg_value>\
               </tool_call>",
        content: "<tool_call>note<arg_key>text</arg_key><arg_value>a<arg_key>count</arg_key><arg_value>3</arg_value>\
                  </tool_call>",
        warnings: &[Malformed],
        ..USUAL
    },
    Row {
        rules: "parameters-in-function",
        text: "<tool_call>\n<function=note>\n<parameter=text>a\n<parameter=count>\n3\n</parameter>\n</function>\n\
               </tool_call>",
        content: "<tool_call>\n<function=note>\n<parameter=text>a\n<parameter=count>\n3\n</parameter>\n</function>\n\
                  </tool_call>",
        warnings: &[Malformed],
        ..USUAL
    },
    Row {
        rules: "python-list",
        text: "[note(text=('a'), count=(3,), level=1e3)]",
        calls: &[("note", r#"{"text": "a", "count": [3], "level": 1000.0}"#)],
        ..USUAL
    },
    Row {
        rules: "python-list",
        text: r"[note(text='\01\x41')]",
        calls: &[("note", r#"{"text": "\u0001A"}"#)],
        ..USUAL
    },
    // No value of a repeated key is lost.
    Row {
        rules: "parameters-in-function",
        text: "<tool_call>\n<function=note>\n<parameter=more>\n{\"a\": 1, \"a\": 2}\n</parameter>\n</function>\n\
               </tool_call>",
        content: "<tool_call>\n<function=note>\n<parameter=more>\n{\"a\": 1, \"a\": 2}\n</parameter>\n</function>\n\
                  </tool_call>",
        warnings: &[Malformed],
        ..USUAL
    },
    Row {
        rules: "json-in-tool-call",
        text: r#"<tool_call>{"name": "lamp", "arguments": {"on": false, "on": true}}</tool_call>"#,
        content: r#"<tool_call>{"name": "lamp", "arguments": {"on": false, "on": true}}</tool_call>"#,
        warnings: &[Malformed],
        ..USUAL
    },
    Row {
        rules: "arguments-in-tool-call",
        text: "<tool_call>lamp<arg_key>on</arg_key><arg_value>false</arg_value><arg_key>on</arg_key>\
               <arg_value>true</arg_value></tool_call>",
        content: "<tool_call>lamp<arg_key>on</arg_key><arg_value>false</arg_value><arg_key>on</arg_key>\
                  <arg_value>true</arg_value></tool_call>",
        warnings: &[Malformed],
        ..USUAL
    },
    Row {
        rules: "gemma-4",
        text: "<|tool_call>call:lamp{on:false,on:true}<tool_call|>",
        content: "<|tool_call>call:lamp{on:false,on:true}<tool_call|>",
        warnings: &[Malformed],
        ..USUAL
    },
    Row {
        rules: "python-list",
        text: "[note(text={'a': 1, 'a': 2}), lamp(on=True)]",
        content: "note(text={'a': 1, 'a': 2})",
        calls: LAMP,
        warnings: &[Malformed],
        ..USUAL
    },
    // No key of a call is lost.
    Row {
        rules: "json-in-tool-call",
        text: r#"<tool_call>{"name": "lamp", "room": "attic"}</tool_call>"#,
        content: r#"<tool_call>{"name": "lamp", "room": "attic"}</tool_call>"#,
        warnings: &[Malformed],
        ..USUAL
    },
    Row {
        rules: "nemotron-nano",
        text: r#"<TOOLCALL>[{"name": "lamp", "arguments": {}, "room": "attic"}]</TOOLCALL>"#,
        content: r#"<TOOLCALL>[{"name": "lamp", "arguments": {}, "room": "attic"}]</TOOLCALL>"#,
        warnings: &[Malformed],
        ..USUAL
    },
    Row {
        rules: "json-in-tool-call",
        text: r#"<tool_call>{"type": "function", "name": "lamp", "arguments": {"on": true}}</tool_call>"#,
        calls: LAMP,
        ..USUAL
    },
    // A call has a name.
    Row {
        rules: "tool-calls-list",
        text: r#"<tool_calls>[{"arguments": {"on": true}}]</tool_calls>"#,
        content: r#"<tool_calls>[{"arguments": {"on": true}}]</tool_calls>"#,
        warnings: &[Malformed],
        ..USUAL
    },
    Row { rules: "apertus", text: r#"<|tools_prefix|>[{"lamp": {"on": true}}]<|tools_suffix|>"#, calls: LAMP, ..USUAL },
    // Words after a list of calls.
    Row {
        rules: "mistral",
        text: "[TOOL_CALLS][{\"name\": \"lamp\", \"arguments\": {\"on\": true}}]\nIt is on.",
        content: "It is on.",
        calls: LAMP,
        warnings: &[Outside],
        ..USUAL
    },
    Row {
        rules: "mistral",
        text: r#"[TOOL_CALLS][{"name": "lamp", "arguments": {"on": true}}] and [1] [TOOL_CALLS][{"name": "note"}]"#,
        content: "and [1]",
        calls: &[("lamp", r#"{"on": true}"#), ("note", "{}")],
        warnings: &[Outside],
        ..USUAL
    },
    Row {
        rules: "mistral",
        text: r#"[TOOL_CALLS][{"name": "lamp", "arguments": {"on": true}}][TOOL_CALLS][{"name": "no"#,
        content: r#"[TOOL_CALLS][{"name": "no"#,
        calls: LAMP,
        warnings: &[Malformed],
        ..USUAL
    },
    Row {
        rules: "mistral-named",
        text: r#"[TOOL_CALLS]lamp[ARGS]{"on": true} Then:[TOOL_CALLS]note[ARGS]{} It is on."#,
        content: "Then: It is on.",
        calls: &[("lamp", r#"{"on": true}"#), ("note", "{}")],
        warnings: &[Outside, Outside],
        ..USUAL
    },
    Row {
        rules: "granite",
        text: "<|tool_call|>[{\"name\": \"lamp\", \"arguments\": {\"on\": true}}]\nIt is on.",
        content: "It is on.",
        calls: LAMP,
        warnings: &[Outside],
        ..USUAL
    },
    Row {
        rules: "phi-4-mini",
        text: r#"functools[{"name": "lamp", "arguments": {"on": true}}] It is on."#,
        content: "It is on.",
        calls: LAMP,
        warnings: &[Outside],
        ..USUAL
    },
    Row {
        rules: "phi-4-mini",
        text: r#"<|tool_call|>[{"name": "lamp", "arguments": {"on": true}}]<|/tool_call|>"#,
        calls: LAMP,
        ..USUAL
    },
    Row { rules: "phi-4-mini", text: "Import functools first.", content: "Import functools first.", ..USUAL },
    // Liquid documents JSON as the second form.
    Row {
        rules: "lfm-2",
        text: r#"<|tool_call_start|>[{"name": "lamp", "arguments": {"on": true}}]<|tool_call_end|>"#,
        calls: LAMP,
        ..USUAL
    },
    Row { rules: "lfm-2", text: "<|tool_call_start|>[lamp(on=True)]<|tool_call_end|>", calls: LAMP, ..USUAL },
    // In OpenAI's harmony format, a header can name its recipient and the type of its text.
    Row {
        rules: "gpt-oss",
        text: "<|channel|>commentary to=assistant<|channel|>analysis<|message|>hm<|end|>\
               <|start|>assistant<|channel|>analysis code<|message|>so<|end|>\
               <|start|>assistant<|channel|>final<|message|>It is on.<|return|>",
        reasoning: "hm\nso",
        content: "It is on.",
        ..USUAL
    },
    Row {
        rules: "gpt-oss",
        text: "<|channel|>commentary to=functions.lamp <|constrain|>json<|message|>{\"on\": true}<|call|>",
        calls: LAMP,
        ..USUAL
    },
    // With a budget of 0, Gemma's template writes the end of the thought at once.
    Row { rules: "gemma-4", text: "<|channel>thought<channel|>It is on.", content: "It is on.", ..USUAL },
    Row {
        rules: "gemma-4",
        text: "<|channel><|channel>thought\nhm<channel|>It is on.",
        reasoning: "hm",
        content: "It is on.",
        ..USUAL
    },
    // The prompts of Granite 3.3 and 3.2 ask for these marks.
    Row {
        rules: "granite",
        text: "<think>hm</think><response>It is on.</response>",
        reasoning: "hm",
        content: "It is on.",
        ..USUAL
    },
    Row {
        rules: "granite",
        text: "Here is my thought process:\nhm\nHere is my response:\nIt is on.",
        reasoning: "hm",
        content: "It is on.",
        ..USUAL
    },
    Row {
        rules: "hunyuan-a13b",
        text: "<think>\nhm\n</think>\n<answer>\nIt is on.\n</answer>",
        reasoning: "hm",
        content: "It is on.",
        ..USUAL
    },
    Row {
        rules: "hunyuan-a13b",
        text: "<answer><tool_calls>[{\"name\": \"lamp\", \"arguments\": {\"on\": true}}]</tool_calls></answer>",
        calls: LAMP,
        ..USUAL
    },
    // A damaged opening is content with its marks.
    Row {
        rules: "deepseek-v3.1",
        text: "<｜tool▁call▁begin｜><｜tool▁sep｜>{\"on\": true}<｜tool▁call▁end｜>",
        content: "<｜tool▁call▁begin｜><｜tool▁sep｜>{\"on\": true}<｜tool▁call▁end｜>",
        warnings: &[Malformed],
        ..USUAL
    },
    Row {
        rules: "deepseek-v3",
        text: "<｜tool▁call▁begin｜>function<｜tool▁sep｜>\n```json\n{}\n```<｜tool▁call▁end｜>",
        content: "<｜tool▁call▁begin｜>function<｜tool▁sep｜>\n```json\n{}\n```<｜tool▁call▁end｜>",
        warnings: &[Malformed],
        ..USUAL
    },
    Row {
        rules: "kimi-k2",
        text: "<|tool_call_begin|>functions.:0<|tool_call_argument_begin|>{}<|tool_call_end|>",
        content: "<|tool_call_begin|>functions.:0<|tool_call_argument_begin|>{}<|tool_call_end|>",
        warnings: &[Malformed],
        ..USUAL
    },
    Row {
        rules: "arguments-in-tool-call",
        text: "<tool_call><arg_key>on</arg_key><arg_value>true</arg_value></tool_call>",
        content: "<tool_call><arg_key>on</arg_key><arg_value>true</arg_value></tool_call>",
        warnings: &[Malformed],
        ..USUAL
    },
    Row {
        rules: "minimax-m2",
        text: "<invoke><parameter name=\"on\">true</parameter></invoke>",
        content: "<invoke><parameter name=\"on\">true</parameter></invoke>",
        warnings: &[Malformed],
        ..USUAL
    },
    Row {
        rules: "deepseek-dsml",
        text: "<｜DSML｜invoke></｜DSML｜invoke>",
        content: "<｜DSML｜invoke></｜DSML｜invoke>",
        warnings: &[Malformed],
        ..USUAL
    },
    Row {
        rules: "gemma-4",
        text: "<|tool_call>lamp on<tool_call|>",
        content: "<|tool_call>lamp on<tool_call|>",
        warnings: &[Malformed],
        ..USUAL
    },
    // MiniMax M3 writes objects and lists as elements, and empty ones as nothing. Schemas have the types.
    Row {
        rules: "minimax-m3",
        text: "]<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name=\"note\">]<]minimax[>[<text>a <b>]<]minimax[>[</text>\
               ]<]minimax[>[<more>]<]minimax[>[<lat>47.5]<]minimax[>[</lat>]<]minimax[>[<names>]<]minimax[>[<item>7\
               ]<]minimax[>[</item>]<]minimax[>[<item>b]<]minimax[>[</item>]<]minimax[>[</names>]<]minimax[>[<flags>\
               ]<]minimax[>[</flags>]<]minimax[>[<item>true]<]minimax[>[</item>]<]minimax[>[</more>]<]minimax[>[</invoke>\n\
               ]<]minimax[>[</tool_call>",
        calls: &[(
            "note",
            r#"{"text": "a <b>", "more": {"lat": 47.5, "names": ["7", "b"], "flags": {}, "item": true}}"#,
        )],
        ..USUAL
    },
    Row {
        rules: "minimax-m3",
        text: "]<]minimax[>[<invoke name=\"note\">]<]minimax[>[<more>]<]minimax[>[<item>false]<]minimax[>[</item>\
               ]<]minimax[>[</more>]<]minimax[>[</invoke>",
        calls: &[("note", r#"{"more": {"item": false}}"#)],
        ..USUAL
    },
    // The types are behind a combination, in a part of one, and behind a path with a list's index.
    Row {
        rules: "minimax-m3",
        text: "]<]minimax[>[<invoke name=\"note\">]<]minimax[>[<shape>]<]minimax[>[<kind>b]<]minimax[>[</kind>]<]minimax[>[\
               <n>3]<]minimax[>[</n>]<]minimax[>[<size>4]<]minimax[>[</size>]<]minimax[>[<none>]<]minimax[>[</none>\
               ]<]minimax[>[<all>]<]minimax[>[</all>]<]minimax[>[<list>\n]<]minimax[>[</list>]<]minimax[>[</shape>\
               ]<]minimax[>[</invoke>",
        calls: &[("note", r#"{"shape": {"kind": "b", "n": 3, "size": 4, "none": null, "all": "", "list": []}}"#)],
        ..USUAL
    },
    Row {
        rules: "minimax-m3",
        text: "]<]minimax[>[<invoke name=\"note\">]<]minimax[>[<text>a]<]minimax[>[</more>]<]minimax[>[</invoke>",
        content: "]<]minimax[>[<invoke name=\"note\">]<]minimax[>[<text>a]<]minimax[>[</more>]<]minimax[>[</invoke>",
        warnings: &[Malformed],
        ..USUAL
    },
    // Qwen's own parser ends the last value at the end of the function.
    Row {
        rules: "parameters-in-function",
        text: "<tool_call>\n<function=note>\n<parameter=text>\nbuy milk\n</function>\n</tool_call>",
        calls: &[("note", r#"{"text": "buy milk"}"#)],
        ..USUAL
    },
    Row {
        rules: "parameters-in-function",
        text: "<tool_call>\n<function=note>\n<parameter=text>\nbuy mi",
        content: "<tool_call>\n<function=note>\n<parameter=text>\nbuy mi",
        warnings: &[Unclosed, Malformed],
        ..USUAL
    },
    // Whole numbers keep their digits.
    Row {
        rules: "parameters-in-function",
        text: "<function=note>\n<parameter=level>\n9007199254740993\n</parameter>\n</function>",
        calls: &[("note", r#"{"level": 9007199254740993}"#)],
        ..USUAL
    },
    // A line break joins sections of reasoning.
    Row {
        rules: "kimi-k2",
        text: "<think>hm</think> Well. <think>so</think>",
        reasoning: "hm\nso",
        content: "Well.",
        ..USUAL
    },
    // Where the mark of a call is a control token, it ends open reasoning.
    Row {
        rules: "kimi-k2",
        text: "<think>hm <|tool_calls_section_begin|><|tool_call_begin|>functions.lamp:0<|tool_call_argument_begin|>\
               {\"on\": true}<|tool_call_end|><|tool_calls_section_end|>",
        reasoning: "hm",
        calls: LAMP,
        ..USUAL
    },
    Row {
        rules: "deepseek-v3.1",
        text: "<think>hm<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>lamp<｜tool▁sep｜>{\"on\": true}\
               <｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        reasoning: "hm",
        calls: LAMP,
        ..USUAL
    },
    // Ernie writes marks around its content, but not always.
    Row {
        rules: "ernie",
        text: "<think>hm</think><response>\nIt is on.\n</response>",
        reasoning: "hm",
        content: "It is on.",
        ..USUAL
    },
    Row { rules: "ernie", text: "It is on.", content: "It is on.", ..USUAL },
    // A value that the notation marks as text stays text.
    Row {
        rules: "deepseek-dsml",
        text: "<｜DSML｜invoke name=\"note\">\
               <｜DSML｜parameter name=\"count\" string=\"true\">3</｜DSML｜parameter></｜DSML｜invoke>",
        calls: &[("note", r#"{"count": "3"}"#)],
        ..USUAL
    },
    Row {
        rules: "kimi-k3",
        text: "<|open|>call tool=\"note\"<|sep|><|open|>argument key=\"count\" type=\"string\"<|sep|>3\
               <|close|>argument<|sep|><|close|>call<|sep|>",
        calls: &[("note", r#"{"count": "3"}"#)],
        ..USUAL
    },
    Row {
        rules: "json-in-tool-call",
        text: "<tool_call>{\"name\": \"note\", \"arguments\": {\"count\": \"3\"}}</tool_call>",
        calls: &[("note", r#"{"count": 3}"#)],
        ..USUAL
    },
    // One invalid call leaves the others.
    Row {
        rules: "python-list",
        text: "[lamp(on=True), note(text='it's milk')]",
        content: "note(text='it's milk')]",
        calls: LAMP,
        warnings: &[Malformed],
        ..USUAL
    },
    Row {
        rules: "olmo-3",
        text: "<function_calls>note(level=1e999)\nlamp(on=True)</function_calls>",
        content: "note(level=1e999)",
        calls: LAMP,
        warnings: &[Malformed],
        ..USUAL
    },
    Row {
        rules: "python-list",
        text: "[note(text=b'a, b'), lamp(on=True)]",
        content: "note(text=b'a, b')",
        calls: LAMP,
        warnings: &[Malformed],
        ..USUAL
    },
];

#[test]
fn answers_are_read_whole_and_in_pieces() {
    let tools = json!([
        {"name": "lamp", "parameters": {"properties": {"on": {"type": "boolean"}}}},
        {"name": "note", "parameters": {"properties": {
            "text": {"type": "string"}, "count": {"type": "integer"}, "level": {"type": "number"},
            "more": {"type": "object", "properties": {
                "lat": {"anyOf": [{"type": "number"}, {"type": "null"}]}, "names": {"$ref": "#/$defs/Names"},
                "flags": {"type": "object"}, "item": {"type": "boolean"},
            }},
            "shape": {"anyOf": [
                {"properties": {"kind": {"type": "string"}, "n": {"type": "string"}}},
                {"allOf": [{"$ref": "#/$defs/Sized"}], "properties": {
                    "kind": {"type": "string"}, "n": {"anyOf": [{"$ref": "#/$defs/Count"}, {"type": "null"}]},
                    "size": {"$ref": "#/properties/shape/anyOf/1/properties/n"},
                    "none": {"type": ["integer", "null"]},
                    "all": {"anyOf": [{"type": "string"}, {"type": "array"}]}, "list": {"type": "array"},
                }},
            ]},
        }, "$defs": {"Count": {"enum": [1, 2, 3]}, "Sized": {"type": "object"}, "Names": {"type": "array", "items": {"type": "string"}}}}},
    ]);
    let tools: Vec<Value> = tools.as_array().expect("a list").iter().map(Value::from).collect();
    for row in ROWS {
        let rules = rules(row.rules);
        for size in [usize::MAX, 7, 1] {
            check(row, &rules, &tools, size);
        }
    }
}

/// Each call takes much more memory than its text.
#[test]
fn an_answer_has_a_limited_number_of_calls() {
    let (one, many) = ("<tool_call>{\"name\": \"a\", \"arguments\": {}}</tool_call>", 3_000);
    let answer = AnswerReader::new(rules("json-in-tool-call"), "", &[]).expect("a reader").read(&one.repeat(many));
    assert_eq!(answer.calls.len(), 1024);
    assert_eq!(answer.content, one.repeat(many - 1024));
    let text = format!("[{}a()]", "a(),".repeat(many));
    let answer = AnswerReader::new(rules("python-list"), "", &[]).expect("a reader").read(&text);
    assert_eq!((answer.calls.len(), answer.content), (0, text));
}

/// Schemas that refer to each other many times are not copied many times.
#[test]
fn a_schema_with_many_references_takes_a_bounded_time() {
    let mut definitions = serde_json::Map::new();
    for level in 0..8 {
        let reference = json!({"$ref": format!("#/$defs/a{}", level + 1)});
        definitions.insert(format!("a{level}"), json!({"allOf": vec![reference; 100]}));
    }
    definitions.insert("a8".to_owned(), json!({"type": "integer"}));
    let parameters = json!({"properties": {"s": {"$ref": "#/$defs/a0"}}, "$defs": definitions});
    let tools = json!([{"name": "lamp", "parameters": parameters}]);
    let folder = TempDir::new().expect("a temporary folder");
    std::fs::write(folder.path().join("chat_template.jinja"), "{{ messages[0].content }}").expect("a file");
    let served = ServedModel::load(folder.path()).expect("a model");
    let job = ParseJob {
        model: String::new(),
        output: Output::Text("[lamp(s='3')]".to_owned()),
        prompt: String::new(),
        tools: Some(tools),
        rules: Some("python-list".to_owned()),
    };
    let (answer, _) = parse(&served, job).expect("an answer");
    assert_eq!(answer.calls[0].arguments, r#"{"s": "3"}"#);
}

/// Each value within a value is cast by its schema, whose list of values is as long as the answer.
#[test]
fn many_values_with_many_choices_take_a_bounded_time() {
    let count = 20_000;
    let names: Vec<String> = (0..count).map(|number| format!("n{number}")).collect();
    let properties = json!({"list": {"type": "array", "items": {"enum": names}}});
    let tool = json!({"name": "note", "parameters": {"properties": properties}});
    let mark = "]<]minimax[>[";
    let items: String = names.iter().map(|name| format!("{mark}<item>{name}{mark}</item>")).collect();
    let text = format!("{mark}<invoke name=\"note\">{mark}<list>{items}{mark}</list>{mark}</invoke>");
    let answer = AnswerReader::new(rules("minimax-m3"), "", &[Value::from(&tool)]).expect("a reader").read(&text);
    assert_eq!(serde_json::from_str::<Json>(&answer.calls[0].arguments).expect("JSON"), json!({"list": names}));
}

#[track_caller]
fn check(row: &Row, rules: &Arc<Rules>, tools: &[Value], size: usize) {
    let mut reader = AnswerReader::new(Arc::clone(rules), "", tools).expect("a reader");
    let chars: Vec<char> = row.text.chars().collect();
    let mut deltas = Vec::new();
    for piece in chars.chunks(size) {
        deltas.extend(reader.feed(&piece.iter().collect::<String>()));
    }
    let (last, Answer { reasoning, content, calls, warnings, .. }) = reader.finish();
    deltas.extend(last);
    let place = format!("{}: {:?} in pieces of {size}", row.rules, row.text);
    assert_eq!((reasoning.as_str(), content.as_str()), (row.reasoning, row.content), "{place}");
    let json = |text: &str| serde_json::from_str::<Json>(text).expect("JSON");
    let found: Vec<_> = calls.iter().map(|call| (call.name.as_str(), json(&call.arguments))).collect();
    let wanted: Vec<_> = row.calls.iter().map(|(name, arguments)| (*name, json(arguments))).collect();
    assert_eq!(found, wanted, "{place}");
    let codes: Vec<_> = warnings.iter().map(|warning| warning.code).collect();
    assert_eq!(codes, row.warnings, "{place}: {warnings:?}");
    let mut streamed = (String::new(), String::new());
    for delta in deltas {
        match delta {
            Delta::Reasoning(text) => streamed.0.push_str(&text),
            Delta::Content(text) => streamed.1.push_str(&text),
            Delta::Call(index, call) => assert_eq!(calls[index], call, "{place}"),
        }
    }
    assert_eq!(streamed, (reasoning, content), "{place}");
}

/// The markers of reasoning are found in the chat template alone, so that the choice of rules needs no tokenizer.
#[test]
fn rules_of_a_model_without_a_tokenizer_read_its_reasoning() {
    let template = "{% for m in messages %}<|im_start|>{{ m.role }}\n\
        {% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}{{ m.content or '' }}\
        {% for call in m.tool_calls or [] %}\n<tool_call>\n{\"name\": \"{{ call.function.name }}\", \"arguments\": \
        {{ call.function.arguments | tojson }}}\n</tool_call>{% endfor %}<|im_end|>\n{% endfor %}\
        {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
    let folder = TempDir::new().expect("a temporary folder");
    let config = json!({"chat_template": template}).to_string();
    std::fs::write(folder.path().join("tokenizer_config.json"), config).expect("a file");
    let served = ServedModel::load(folder.path()).expect("a model");
    let rules = served.adapter.format.answer_rules().rules.clone().expect("rules");
    assert_eq!(rules.name, "json-in-tool-call");
    let reader = AnswerReader::new(rules, "", &[]).expect("a reader");
    let answer = reader.read("<think>\nhm\n</think>\n\nWrite <response>x</response>.");
    assert_eq!((answer.reasoning.as_str(), answer.content.as_str()), ("hm", "Write <response>x</response>."));
    assert_eq!(answer.warnings, []);
}

/// Returns the rules of a name for a model without reasoning and without ends of the turn.
fn rules(name: &str) -> Arc<Rules> {
    let folder = TempDir::new().expect("a temporary folder");
    std::fs::write(folder.path().join("tokenizer_config.json"), r#"{"chat_template": "{{ messages[0].content }}"}"#)
        .expect("a file");
    let served = ServedModel::load(folder.path()).expect("a model");
    served.adapter.format.named_rules(name).expect("rules")
}
