//! Properties of a template that are found before rendering.

use tandem_template::ArgumentsShape::{self, Either, Object, Text, Unread};
use tandem_template::ChatTemplate;

#[track_caller]
fn compile(template: &str) -> ChatTemplate {
    ChatTemplate::compile(template).expect(template)
}

/// Templates, each with a name that it reads according to jinja2's `find_undeclared_variables`.
const READ: &[(&str, &str)] = &[
    ("{{ x }}", "x"),
    ("{{ x.y[z](w)|default(v) }}", "v"),
    ("{% set x = x or 1 %}", "x"),
    ("{% if a %}{% set x = 1 %}{% endif %}{{ x }}", "x"),
    ("{% for i in l %}{% set x = i %}{% endfor %}{{ x }}", "x"),
    ("{% for i in i %}{% endfor %}", "i"),
    ("{% macro m(a=x) %}{{ y }}{% endmacro %}", "x"),
    ("{% macro m(a=x) %}{{ y }}{% endmacro %}", "y"),
    ("{% with a = x %}{% endwith %}", "x"),
    ("{{ 'tools' if tools is defined }}", "tools"),
    ("{% for x in l %}{{ x }}{% endfor %}{{ x }}", "x"),
];

const NOT_READ: &[(&str, &str)] = &[
    ("x {{ 'x' }} {{ y.x }} {{ y['x'] }} {{ f(x=1) }} {# {{ x }} #}", "x"),
    ("{% set x = 1 %}{{ x }}", "x"),
    ("{% for x in l %}{{ x }}{% endfor %}", "x"),
    ("{% macro m(x) %}{{ x }}{% endmacro %}", "x"),
    ("{% with x = 1 %}{{ x }}{% endwith %}", "x"),
    ("{% set x %}a{% endset %}{{ x }}", "x"),
    ("{% raw %}{{ x }}{% endraw %}", "x"),
];

#[test]
fn analysis_finds_the_variables_that_a_template_reads() {
    for (template, name) in READ {
        assert!(compile(template).reads(name), "{template} reads {name}");
    }
    for (template, name) in NOT_READ {
        assert!(!compile(template).reads(name), "{template} does not read {name}");
    }
}

/// Wraps a use of `c.arguments` in the loops of most templates.
fn in_a_loop(body: &str) -> String {
    format!("{{% for m in messages %}}{{% for c in m.tool_calls %}}{body}{{% endfor %}}{{% endfor %}}")
}

const SHAPES: &[(&str, ArgumentsShape)] = &[
    ("{{ c.name }}", Unread),
    ("{{ c['arguments_json'] }} arguments", Unread),
    // The template requires an object.
    ("{{ c.arguments|tojson }}", Object),
    ("{{ c.function['arguments']|default({})|tojson(indent=2) }}", Object),
    ("{% for k, v in c.arguments|items %}{{ k }}{{ v }}{% endfor %}", Object),
    ("{% for k, v in c.function.arguments.items() %}{{ k }}={{ v|string }}{% endfor %}", Object),
    ("{% for k in c.arguments %}{{ k }}{% endfor %}", Object),
    ("{{ c.arguments['city'] }}", Object),
    ("{{ c.get('arguments', {})|dictsort }}", Object),
    ("{{ '{\"arguments\": ' ~ (c.arguments|tojson) ~ '}' }}", Object),
    ("{{ {'name': c.name, 'arguments': c.arguments}|tojson }}", Object),
    ("{{ dict(arguments=c.arguments)|tojson }}", Object),
    ("{{ c|tojson }}", Object),
    ("{{ m.tool_calls|map(attribute='function')|list|tojson }}", Object),
    ("{% if c.arguments is mapping %}{{ c.arguments|tojson }}{% endif %}", Object),
    (
        "{% if c.arguments is string %}{{ raise_exception('no: ' + c.arguments) }}{% endif %}{{ c.arguments|tojson }}",
        Object,
    ),
    ("{% if c.arguments is string %}{{ c.arguments|from_json }}{% else %}{{ c.arguments|tojson }}{% endif %}", Object),
    // The template requires a text.
    ("{{ c.arguments }}", Text),
    ("{{ '<' + c.name + c['arguments'] + '>' }}", Text),
    ("{{ c.name ~ c.arguments }}", Text),
    ("{{ c.arguments|trim }}", Text),
    ("{{ c.arguments.strip() }}", Text),
    ("{% set x %}{{ c.arguments }}{% endset %}", Text),
    ("{% if c.arguments is string %}{{ c.arguments }}{% endif %}", Text),
    ("{{ c.arguments if c.arguments }}", Text),
    // The template accepts both.
    ("{% if c.arguments is string %}{{ c.arguments }}{% else %}{{ c.arguments|tojson }}{% endif %}", Either),
    ("{% if c.arguments is not mapping %}{{ c.arguments }}{% else %}{{ c.arguments|tojson }}{% endif %}", Either),
    ("{{ c.arguments if c.arguments is string else c.arguments|tojson }}", Either),
    ("{{ c.arguments|tojson if c.arguments is mapping else c.arguments }}", Either),
    (
        "{% if c.arguments is defined and c.arguments is string %}{{ c.arguments }}{% elif c.arguments is mapping %}\
         {% for k, v in c.arguments|items %}{{ k }}{% endfor %}{% endif %}",
        Either,
    ),
    ("{{ c.arguments|length }}", Either),
    // The template reads the arguments through other names.
    ("{% set a = c.arguments %}{{ a }}", Text),
    ("{% set a = c.arguments %}{{ a|tojson }}", Object),
    ("{% set a, b = c.arguments, 1 %}{{ a|tojson }}", Object),
    ("{% with a = c.arguments %}{{ a }}{% endwith %}", Text),
    ("{% set a = c.arguments or {} %}{{ a|tojson }}", Object),
    ("{% set f = c.function %}{{ f|tojson }}", Object),
    ("{% macro show(a) %}{{ a|tojson }}{% endmacro %}{{ show(c.arguments) }}", Object),
    ("{% macro show(b, a) %}{{ a }}{% endmacro %}{{ show(1, a=c.arguments) }}", Text),
    ("{% set ns = namespace(a=none) %}{% set ns.a = c.arguments %}{{ ns.a }}", Text),
    ("{% set ns = namespace(a=c.arguments) %}{{ ns.a|tojson }}", Object),
    ("{% set a = c.arguments %}{% if a is not string %}{% set a = a|tojson %}{% endif %}{{ a }}", Either),
    (
        "{% if c.arguments is mapping %}{% set a = c.arguments|tojson %}{% else %}{% set a = c.arguments %}{% endif %}{{ a }}",
        Either,
    ),
    ("{% set a = b %}{{ a }}{% set b = c.arguments %}", Text),
];

#[test]
fn analysis_finds_the_tool_argument_type() {
    for (body, expected) in SHAPES {
        assert_eq!(compile(&in_a_loop(body)).arguments(), *expected, "{body}");
    }
}

#[test]
fn argument_type_analysis_takes_bounded_time() {
    let nested =
        (0..60).fold("c.arguments".to_owned(), |inner, _| format!("(1 if {inner} is string else c.arguments)"));
    assert_eq!(compile(&in_a_loop(&format!("{{{{ {nested} }}}}"))).arguments(), Text);
    // The analysis follows a chain of names up to a limit.
    let chain: String = (0..2000).rev().map(|at| format!("{{% set a{} = a{at} %}}", at + 1)).collect();
    assert_eq!(compile(&format!("{chain}{{% set a0 = c.arguments %}}{{{{ a2000 }}}}")).arguments(), Either);
}

#[test]
fn the_literal_text_is_all_data_and_all_string_literals() {
    let template = "a<x>{{ 'b' 'c' ~ d['e'] }}{% if x == \"f\" %}\ng{% endif %}{# h #}{% raw %}{{ i }}{% endraw %}\
                    {% macro m(p='q') %}{{ j|replace('k', 'l') }}{% endmacro %}a<x>{% set n %}o{% endset %}";
    let compiled = compile(template);
    let mut pieces: Vec<&str> = compiled.literal_text().split('\0').collect();
    pieces.sort_unstable();
    assert_eq!(pieces, ["a<x>", "bc", "e", "f", "g", "k", "l", "o", "q", "{{ i }}"]);
}
