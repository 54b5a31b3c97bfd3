//! The chat-template engine: the facts of `tests/golden/template`, and limits.

use std::cell::Cell;
use std::path::Path;
use std::sync::LazyLock;

use serde_json::{Map, Value, json};
use tandem_template::{Applied, CancelScope, ChatTemplate, Input, Limit, Limits, LocalTime, RenderError};
use tandem_tests::corpus::read;
use tandem_tests::{error_texts, repository};

const NOW: LocalTime = LocalTime { year: 2025, month: 7, day: 4, hour: 9, minute: 5, second: 3, microsecond: 0 };

/// The conversation and the variables of the templates in `tests/golden/template` and below.
static INPUT: LazyLock<Value> = LazyLock::new(|| read(&repository().join("tests/golden/template_input.json")));

fn object(value: Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

struct Case {
    messages: Vec<Value>,
    tools: Option<Value>,
    args: Map<String, Value>,
    special_tokens: Map<String, Value>,
    add_generation_prompt: bool,
    continue_final_message: Option<&'static str>,
}

impl Case {
    fn new(messages: Value) -> Self {
        Self {
            messages: messages.as_array().cloned().unwrap_or_default(),
            tools: None,
            args: object(INPUT["args"].clone()),
            special_tokens: Map::new(),
            add_generation_prompt: false,
            continue_final_message: None,
        }
    }

    #[track_caller]
    fn apply_with(&self, template: &str, limits: &Limits) -> Result<Applied, RenderError> {
        let template = ChatTemplate::compile(template).expect("the template compiles");
        let input = Input {
            messages: &self.messages,
            tools: self.tools.as_ref(),
            documents: None,
            args: &self.args,
            special_tokens: &self.special_tokens,
            add_generation_prompt: self.add_generation_prompt,
            continue_final_message: self.continue_final_message,
            now: NOW,
            taint: None,
        };
        template.apply(&input, limits)
    }

    #[track_caller]
    fn apply(&self, template: &str) -> Result<Applied, RenderError> {
        self.apply_with(template, &Limits::default())
    }

    #[track_caller]
    fn text(&self, template: &str) -> String {
        self.apply(template).expect("the conversation renders").text
    }
}

fn hi() -> Case {
    Case::new(INPUT["messages"].clone())
}

#[track_caller]
fn check(template: &str, expected: &str) {
    assert_eq!(hi().text(template), expected, "{template}");
}

/// Checks the limit that a template exceeds. Returns the error.
#[track_caller]
fn check_limit(template: &str, expected: Limit) -> RenderError {
    let error = hi().apply(template).expect_err(template);
    assert!(matches!(error, RenderError::Limit { limit, .. } if limit == expected), "{template}: {error:?}");
    error
}

/// Returns the kind of a template's outcome, and its text: the prompt or the error.
fn outcome(template: &str) -> (&'static str, String) {
    match ChatTemplate::compile(template) {
        Err(error) => ("refused", error.to_string()),
        Ok(_) => match hi().apply(template) {
            Ok(applied) => ("text", applied.text),
            Err(error) => ("failed", error.to_string()),
        },
    }
}

/// Compares the outcome of a row's template. Returns an error with the engine's own wording.
fn check_row(row: &Value) -> Result<Option<String>, String> {
    let template = row[0].as_str().expect("a row begins with its template");
    let (kind, found) = outcome(template);
    let expected = if row[1].is_string() { Some(&row[1]) } else { row[1].get(kind) };
    match expected {
        Some(Value::String(text)) if *text == found && (kind == "text") == row[1].is_string() => Ok(None),
        Some(Value::Null) => Ok(Some(found)),
        Some(Value::Bool(true)) => Ok(None),
        _ => Err(format!("{template}\n  expected {}\n  {kind} {found:?}", row[1])),
    }
}

/// Checks the rows of a fact, and the wording of its errors.
fn check_fact(path: &Path, wrong: &mut Vec<String>) {
    let fact = path.file_stem().expect("a name").to_string_lossy();
    let rows = read(path);
    let mut own = Vec::new();
    for row in rows.as_array().expect("a list of rows") {
        match check_row(row) {
            Ok(error) => own.extend(error),
            Err(problem) => wrong.push(format!("{fact}: {problem}")),
        }
    }
    if !own.is_empty() {
        error_texts::check_rows(&format!("template/{fact}"), own);
    }
}

#[test]
fn facts_about_templates_hold() {
    let folder = repository().join("tests/golden/template");
    let mut paths: Vec<_> =
        folder.read_dir().expect("the folder of facts").map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    let mut wrong = Vec::new();
    paths.iter().for_each(|path| check_fact(path, &mut wrong));
    assert!(paths.len() > 30, "only {} facts were found", paths.len());
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// The cost of a change to a dict grows with the number of earlier changes.
#[test]
fn dict_changes_hit_the_step_limit() {
    let template =
        "{% for a in range(1000) %}{% for b in range(1000) %}{% set d.x %}{{ b }}{% endset %}{% endfor %}{% endfor %}";
    check_limit(template, Limit::Steps);
}

#[test]
fn raise_exception_reports_its_message_and_line() {
    let error = hi().apply("a\n{% macro m() %}\n{{ raise_exception('No ' ~ s) }}{% endmacro %}{{ m() }}");
    assert_eq!(error, Err(RenderError::Raised { message: "No Hello World".to_owned(), line: 3 }));
}

#[test]
fn null_message_keys_are_removed() {
    let case = Case::new(json!([{"role": "user", "content": null, "name": "n"}]));
    assert_eq!(case.text("{{ messages[0] }}"), "{'role': 'user', 'name': 'n'}");
}

#[test]
fn reasoning_is_available_under_every_key_name() {
    let case = Case::new(json!([{"role": "assistant", "content": "c", "reasoning": "r"}]));
    let expected = "{'thinking': 'r', 'role': 'assistant', 'content': 'c', 'reasoning': 'r', 'reasoning_content': 'r'}";
    assert_eq!(case.text("{{ messages[0] }}"), expected);
}

#[test]
fn absent_tools_and_documents_are_none() {
    check("{{ tools is none }}{{ documents is defined }}", "TrueTrue");
    let case = Case { tools: Some(json!([{"z": 1.0, "a": 1e2}])), ..hi() };
    assert_eq!(case.text("{{ tools|tojson }}"), r#"[{"z": 1.0, "a": 100.0}]"#);
}

#[test]
fn template_args_override_special_tokens() {
    let tokens = object(json!({"bos_token": "<s>", "eos_token": "</s>"}));
    let args = object(json!({"bos_token": "<b>"}));
    let case = Case { special_tokens: tokens, args, ..hi() };
    assert_eq!(case.text("{{ bos_token }}{{ eos_token }}{{ pad_token is defined }}"), "<b></s>False");
}

#[test]
fn a_continued_message_ends_where_its_text_ends() {
    let template = "{% for m in messages %}<{{ m.role }}>{{ m.content|trim }}<end>{% endfor %}";
    let messages = json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b c "}]);
    let case = Case { continue_final_message: Some("content"), ..Case::new(messages) };
    assert_eq!(case.text(template), "<user>a<end><assistant>b c");
    assert_eq!(case.text(&template.replace("|trim", "")), "<user>a<end><assistant>b c ");
    let lost = case.apply("{% for m in messages %}{{ m.role }}{# content #}{% endfor %}");
    let both = Case { add_generation_prompt: true, ..case };
    let errors = [lost, both.apply(template)].map(|result| result.expect_err("the message cannot be continued"));
    assert!(errors.iter().all(|error| matches!(error, RenderError::ContinueFinalMessage { .. })), "{errors:?}");
    error_texts::check_rows("template/continue-final-message", errors);
}

#[test]
fn generation_blocks_are_found_in_the_prompt() {
    let template = "é{% for x in l %}<{% generation %}ü{{ x }}{% endgeneration %}>{% endfor %}";
    let applied = hi().apply(template).expect("the conversation renders");
    let blocks: Vec<&str> = applied.generation_spans.iter().map(|span| &applied.text[span.clone()]).collect();
    assert_eq!((applied.text.as_str(), blocks), ("é<ü3><ü1><ü2>", vec!["ü3", "ü1", "ü2"]));
}

#[test]
fn malformed_messages_and_tools_are_input_errors() {
    let messages = [json!([]), json!(["hi"]), json!([[{"role": "user"}]])];
    let with_tools = Case { tools: Some(json!(["t"])), ..hi() };
    let cases = messages.into_iter().map(Case::new).chain([with_tools]);
    let errors: Vec<_> = cases.map(|case| case.apply("x").expect_err("the input is invalid")).collect();
    assert!(errors.iter().all(|error| matches!(error, RenderError::Input { .. })), "{errors:?}");
    error_texts::check_rows("template/input", errors);
}

#[test]
fn templates_with_unbounded_growth_hit_a_limit() {
    let grow = |body: &str| {
        format!("{{% set ns = namespace(s='ab', l=[1]) %}}{{% for x in range(100000) %}}{body}{{% endfor %}}")
    };
    let errors = [
        check_limit(&grow("{% set ns.s = ns.s ~ ns.s %}"), Limit::Bytes),
        check_limit(&grow("{% set ns.l = ns.l + ns.l %}"), Limit::Bytes),
        check_limit(&grow("{% set ns.l = [ns.l] %}"), Limit::Nesting),
        check_limit(&grow("{% for y in range(100000) %}{% set z = 1 %}{% endfor %}"), Limit::Steps),
        check_limit(&grow(&"text".repeat(1000)), Limit::Output),
        check_limit("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", Limit::Recursion),
        check_limit("{% for x in l recursive %}{{ loop(l) }}{% endfor %}", Limit::Recursion),
        check_limit("{{ 10 ** 100000 }}", Limit::Integer),
        check_limit("{{ 'x' * 10 ** 12 }}", Limit::Steps),
        check_limit("{% block a %}{{ self.a() }}{% endblock %}", Limit::Recursion),
    ];
    error_texts::check_rows("template/limit", errors);
}

#[test]
fn use_of_shared_nested_lists_hits_the_step_limit() {
    let build = "{% set ns = namespace(a=[1], b=[1]) %}{% for x in range(60) %}{% set ns.a = [ns.a, ns.a] %}\
                 {% set ns.b = [ns.b, ns.b] %}{% endfor %}";
    for use_of in ["{{ ns.a == ns.b }}", "{{ ns.a in [ns.b] }}", "{{ [ns.b].index(ns.a) }}", "{{ ns.a }}"] {
        let limits = Limits { steps: 1_000_000, ..Limits::default() };
        let result = hi().apply_with(&format!("{build}{use_of}"), &limits);
        assert!(matches!(result, Err(RenderError::Limit { limit: Limit::Steps, .. })), "{use_of}: {result:?}");
    }
}

#[test]
fn render_ends_at_the_check_that_finds_it_cancelled() {
    thread_local! { static CHECKS: Cell<u32> = const { Cell::new(0) }; }
    let is_cancelled = || {
        CHECKS.set(CHECKS.get() + 1);
        CHECKS.get() >= 3
    };
    let bodies = ["", "{{ b }}", "{% set c = [a, b] | map('string') | join %}", "{{ 'x' | float(default=0) }}"];
    for body in bodies {
        let template =
            format!("{{% for a in range(10000) %}}{{% for b in range(10000) %}}{body}{{% endfor %}}{{% endfor %}}");
        let limits = Limits { steps: 1_000_000, ..Limits::default() };
        CHECKS.set(0);
        let scope = CancelScope::start(is_cancelled);
        assert_eq!(hi().apply_with(&template, &limits), Err(RenderError::Cancelled), "{body}");
        assert_eq!(CHECKS.get(), 3, "{body}");
        drop(scope);
        let result = hi().apply_with(&template, &limits);
        assert!(matches!(result, Err(RenderError::Limit { limit: Limit::Steps, .. })), "{body}: {result:?}");
        assert_eq!(CHECKS.get(), 3, "no check outside of a scope");
    }
}

#[test]
fn deeply_nested_sources_are_rejected_without_a_crash() {
    let many = |part: &str| part.repeat(10_000);
    let expressions = [
        format!("u{}", many(".a")),
        format!("u{}", many("|e")),
        format!("{}1", many("-")),
        format!("{}1", many("not ")),
        format!("1{}", many("-1")),
        format!("1{}", many(" if 1")),
        format!("{}1", many("1 if 0 else ")),
        many("("),
        many("["),
        many("{1:"),
    ];
    let templates = expressions.iter().map(|expression| format!("{{{{ {expression} }}}}"));
    let templates: Vec<_> = templates.chain([many("{% if 1 %}")]).collect();
    let error =
        |template: &String| ChatTemplate::compile(template).err().unwrap_or_else(|| panic!("{}", &template[..20]));
    error_texts::check_rows("template/too-deep", templates.iter().map(error));
    let elifs = format!("{{% if 0 %}}{}{{% endif %}}x", "{% elif 0 %}".repeat(15_000));
    check(&elifs, "x");
}

#[test]
fn namespace_can_contain_itself() {
    check("{% set ns = namespace() %}{% set ns.me = ns %}{{ ns.me.me is defined }}", "True");
    check_limit("{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}", Limit::Nesting);
}

#[test]
fn ten_megabyte_conversation_renders() {
    let message = |at: usize| json!({"role": "user", "content": format!("{at}{} ", "x".repeat(1000))});
    let messages: Vec<Value> = (0..10_000).map(message).collect();
    let template = "{% set ns = namespace(list=[]) %}{% for m in messages %}{% set ns.list = ns.list + [m] %}\
                    <{{ m.role ~ ':' ~ m.content|trim }}>{% endfor %}{{ ns.list|length }}";
    let applied = Case::new(messages.into()).apply(template).expect("the conversation renders");
    assert!(applied.text.len() > 10_000_000 && applied.text.ends_with(">10000"));
}

/// Templates that create texts, lists or numbers of size N, operations on them, and N.
const GROWING_WORK: &[(&str, &str, usize)] = &[
    ("{% set s = ['a' * N ~ 'B'] * 100 %}", "{% set x = s|sort %}", 1000),
    ("{% set s = [{'a': 'A' * N}] * 100 %}", "{% set x = s|groupby('a') %}", 1000),
    ("{% set s = ['A' * N] * 100 %}", "{% set x = s|unique|list %}", 1000),
    ("{% set s = ['A' * N] * 100 %}", "{% set x = s|max %}", 1000),
    ("{% set s = 'a' * N %}{% set c = 'bc' * (N // 2) ~ 'a' %}", "{% set x = s.strip(c) %}", 10_000),
    ("{% set x = 10 ** N %}{% set y = 10 ** (N // 2) + 1 %}", "{% set z = x // y + x % y %}", 500),
    ("{% set s = 'a' * N %}", "{% set x = s.removeprefix(s) %}", 10_000),
    ("{% set s = 'a' * N %}", "{% set x = s is sameas s %}", 10_000),
    ("{% set s = [1] * N %}{% set t = [1] * N %}", "{% set x = s == t %}", 10_000),
    ("", "{% set x = '{:0N,d}'.format(7) %}", 1000),
    ("{% set a = 'a' * N %}{% set b = 'b' * N %}", "{% set x = ''.maketrans(a, b) %}", 10_000),
    ("{% set s = 'a' * N %}", "{% set x = s|wordwrap(1) %}", 500),
    ("{% set s = 'a ' * N %}", "{% set x = s|striptags %}", 1000),
    ("{% set s = 'x' * N %}", "{% set x = []|tojson(indent=s) %}", 10_000),
    ("{% set s = 'a' * 100 %}{% set t = 'b' * N %}", "{% set x = s|join(t) %}", 1000),
    ("{% set s = 'a' * 100 %}{% set t = 'b' * N %}", "{% set x = s.translate({97: t}) %}", 1000),
    ("{% set s = '&' * N %}", "{% set x = s|striptags %}", 1000),
    ("{% set s = [1e300] * N %}", "{% set x = s.count(10 ** 400) %}", 10_000),
];

/// Returns the steps that a template takes: the lowest limit with which it renders, at most the
/// default limit.
fn steps(template: &str) -> u64 {
    let case = hi();
    let renders = |steps| case.apply_with(template, &Limits { steps, ..Limits::default() }).is_ok();
    let (mut too_few, mut enough) = (0, Limits::default().steps);
    while enough - too_few > 1 {
        let middle = too_few.midpoint(enough);
        if renders(middle) { enough = middle } else { too_few = middle }
    }
    enough
}

#[test]
fn content_sized_operations_hit_a_limit_in_time() {
    let mut failures = Vec::new();
    for (setup, operation, size) in GROWING_WORK {
        let [small, large] = [*size, 8 * size].map(|size| {
            let template = |text: &str| text.replace('N', &size.to_string());
            steps(&template(&[*setup, operation].concat())) - steps(&template(setup))
        });
        if large <= 4 * small {
            failures.push(format!("{setup}{operation}: {small} steps, {large} for 8 times the content"));
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
fn work_without_end_reaches_a_limit() {
    for bomb in [
        "{% set s = ['a' * 1000000 ~ 'B'] * 10000 %}{% set x = s|sort %}",
        "{% set x = ([{'a': 'A' * 1000000}] * 10000)|groupby('a') %}",
        "{% set x = (['A' * 1000000] * 10000)|unique|list %}",
        "{% set x = (['A' * 1000000] * 10000)|max %}",
        "{% set s = 'a' * 100000 %}{% set c = 'bc' * 50000 ~ 'a' %}{% for i in range(99999) %}{% set x = s.strip(c) %}{% endfor %}",
        "{% set x = 10 ** 4290 %}{% set y = 10 ** 2000 + 1 %}{% for j in range(99) %}{% for i in range(99999) %}{% set z = x // y + x % y %}{% endfor %}{% endfor %}",
        "{% set s = 'a' * 50000000 %}{% for i in range(99999) %}{% set x = s.removeprefix(s) %}{% endfor %}",
        "{% set s = 'a' * 50000000 %}{% for i in range(99999) %}{% set x = s is sameas s %}{% endfor %}",
        "{% set s = [1] * 1000000 %}{% set t = [1] * 1000000 %}{% for i in range(99999) %}{% set x = s == t %}{% endfor %}",
        "{% for i in range(99999) %}{% set x = '{:010000,d}'.format(i) %}{% endfor %}",
        "{% set x = ''.maketrans('a' * 60000000, 'b' * 60000000) %}",
        "{% for i in range(99999) %}{% set x = ('a' * 1000000)|wordwrap(1) %}{% endfor %}",
        "{% set x = ('a ' * 50000000)|striptags %}",
        "{% set s = 'x' * 10000000 %}{% for i in range(99999) %}{% set x = []|tojson(indent=s) %}{% endfor %}",
        "{{ ('a' * 100000)|join('b' * 100000)|length }}",
        "{{ ('a' * 100000).translate({97: 'b' * 100000})|length }}",
        "{% set s = '&' * 1000000 %}{% for i in range(99999) %}{% set x = s|striptags %}{% endfor %}",
        "{% set l = [1e300] * 1000000 %}{% for i in range(99999) %}{% set x = l.count(10 ** 400) %}{% endfor %}",
        "{% for j in range(99999) %}{% for i in range(99999) %}{% set x = (5e-324).as_integer_ratio() %}{% endfor %}{% endfor %}",
    ] {
        let error = hi().apply(bomb).expect_err(bomb);
        assert!(matches!(error, RenderError::Limit { limit: Limit::Steps | Limit::Bytes, .. }), "{bomb}: {error}");
    }
}

/// The engine follows the Unicode of Python 3.11. Its `repr` escapes code points that were assigned
/// later.
#[test]
fn newer_code_points_print_alike_in_templates_and_python_str() {
    for (text, expected) in [("\u{1fae8}", r"['\U0001fae8']"), ("\u{1c89}", r"['\u1c89']"), ("\u{e01}", "['\u{e01}']")]
    {
        let case = Case::new(json!([{"content": [text]}]));
        assert_eq!(case.text("{{ messages[0].content }}"), expected);
        assert_eq!(tandem_template::python::to_str(&json!([text])), expected);
    }
}
