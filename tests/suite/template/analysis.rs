//! Properties of a template that are found before rendering.

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

#[test]
fn the_literal_text_is_all_data_and_all_string_literals() {
    let template = "a<x>{{ 'b' 'c' ~ d['e'] }}{% if x == \"f\" %}\ng{% endif %}{# h #}{% raw %}{{ i }}{% endraw %}\
                    {% macro m(p='q') %}{{ j|replace('k', 'l') }}{% endmacro %}a<x>{% set n %}o{% endset %}";
    let compiled = compile(template);
    let mut pieces: Vec<&str> = compiled.literal_text().split('\0').collect();
    pieces.sort_unstable();
    assert_eq!(pieces, ["a<x>", "bc", "e", "f", "g", "k", "l", "o", "q", "{{ i }}"]);
}
