//! The chat-template engine, one fact per test. The expected values were taken from jinja2 3.1.6
//! and transformers 5.23.0. Error texts are compared in place where they are those of Jinja2 or
//! Python, after the line. The engine's own texts are in the golden file.

use std::cell::Cell;

use serde_json::{Map, Value, json};
use tandem_template::{Applied, CancelScope, ChatTemplate, Input, Limit, Limits, LocalTime, RenderError, Taint};
use tandem_tests::error_texts;

const NOW: LocalTime = LocalTime { year: 2025, month: 7, day: 4, hour: 9, minute: 5, second: 3, microsecond: 0 };

/// Returns the variables that the templates below use.
fn variables() -> Map<String, Value> {
    object(json!({
        "n": null,
        "i": 7,
        "f": 2.5,
        "s": "Hello World",
        "l": [3, 1, 2],
        "d": {"b": 1, "a": [true, null]},
        "items": [{"name": "Zoe", "age": 31}, {"name": "adam", "age": 4}, {"name": "Bob", "age": 31}],
    }))
}

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
            args: variables(),
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
    Case::new(json!([{"role": "user", "content": "Hi"}]))
}

#[track_caller]
fn check(template: &str, expected: &str) {
    assert_eq!(hi().text(template), expected, "{template}");
}

/// Checks an error at run time whose wording, after the line, is that of Jinja2 or Python.
#[track_caller]
fn check_error(template: &str, expected: &str) {
    let error = hi().apply(template).expect_err(template);
    assert_eq!(error.to_string(), expected, "{template}");
}

/// Checks errors at run time with the engine's own wording: a golden row per template.
#[track_caller]
fn check_own_errors(case: &str, templates: &[&str]) {
    error_texts::check_rows(case, templates.iter().map(|template| hi().apply(template).expect_err(template)));
}

/// Checks only that an error occurs.
#[track_caller]
fn check_fails(template: &str) {
    assert!(hi().apply(template).is_err(), "{template}");
}

/// Checks an error at compile time whose wording, after the line, is that of Jinja2 or Python.
#[track_caller]
fn check_refused(template: &str, expected: &str) {
    let error = ChatTemplate::compile(template).expect_err(template);
    assert_eq!(error.to_string(), expected, "{template}");
}

/// Checks errors at compile time with the engine's own wording: a golden row per template.
#[track_caller]
fn check_own_refusals(case: &str, templates: &[&str]) {
    let refused = |template: &&str| ChatTemplate::compile(template).expect_err(template);
    error_texts::check_rows(case, templates.iter().map(refused));
}

/// Checks the limit that a template exceeds. Returns the error.
#[track_caller]
fn check_limit(template: &str, expected: Limit) -> RenderError {
    let error = hi().apply(template).expect_err(template);
    assert!(matches!(error, RenderError::Limit { limit, .. } if limit == expected), "{template}: {error:?}");
    error
}

#[test]
fn white_space_around_tags_is_trimmed_like_jinja2() {
    check("a\n  {% if true %}\nb\n  {% endif %}\nc", "a\nb\nc");
    check("a {%- if true -%} b {%- endif -%} c", "abc");
    check("  {%+ if true %}x{% endif %}", "  x");
    check("{# c #}\nx", "x");
    check("x {#- c -#} y", "xy");
    check("{{- 'a' -}} b", "ab");
    check("a\r\nb\rc\n", "a\nb\nc");
    check("x\n", "x");
    check("x\n\n", "x\n");
    check("{% raw %}\n{{ a }}{% endraw %}\nb", "\n{{ a }}b");
    check("{% raw -%}  a {%- endraw %} b", "a b");
    check("{% raw %}", "");
    check("\t{% set x = 1 %}\n{{ x }}", "1");
    check("{{ 1 }}\n{{ 2 }}\n", "1\n2");
}

#[test]
fn literals_are_read_like_jinja2() {
    check(
        "{{ 1_000 }} {{ 0x1F }} {{ 0b11 }} {{ 0o17 }} {{ 1.5e3 }} {{ 1e-7 }} {{ 1e16 }} {{ 00 }}",
        "1000 31 3 15 1500.0 1e-07 1e+16 0",
    );
    check(r#"{{ 'a' 'b' "c" }}"#, "abc");
    check("{{ '\\x41\\u00e9\\U0001f600\\101\\q\\n' }}", "Aé😀A\\q\n");
    check("{{ '\\é' }}", "\\xe9");
    check(
        "{{ 123456789012345678901234567890 }} {{ -170141183460469231731687303715884105728 }}",
        "123456789012345678901234567890 -170141183460469231731687303715884105728",
    );
    check("{{ true }} {{ True }} {{ none }} {{ None }}", "True True None None");
    check(
        "{{ (1,) }} {{ () }} {{ (1, 'a') }} {{ [1, [2]] }} {{ {'a': 1, 2: none} }}",
        "(1,) () (1, 'a') [1, [2]] {'a': 1, 2: None}",
    );
    check("{{ 1, 2 }}", "(1, 2)");
    check("{{ {1: 'a', true: 'b', 1.0: 'c'} }}", "{1: 'c'}");
}

#[test]
fn operators_follow_python() {
    check(
        "{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 2 ** 3 ** 2 }}",
        "3 -4 2 -2 3.5 1024 0.5 64",
    );
    check(
        "{{ 10 ** 30 }} {{ 2 ** 130 - 1 }} {{ (2 ** 130) // 3 }}",
        "1000000000000000000000000000000 1361129467683753853853498429727072845823 453709822561251284617832809909024281941",
    );
    check("{{ 1 + 1.0 }} {{ true + 1 }} {{ -0.0 }} {{ 1e308 * 10 }}", "2.0 2 -0.0 inf");
    check("{{ 'ab' * 3 }} {{ [1] * 2 }} {{ [1] + [2] }}", "ababab [1, 1] [1, 2]");
    check("{{ 'a' ~ 1 ~ none ~ 1.0 ~ [1] ~ undef }}", "a1None1.0[1]");
    check("{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }}", "True False True True");
    check("{{ 1 == 1.0 == true }} {{ 'a' in 'abc' }} {{ 4 not in l }} {{ 'b' in d }}", "True True True True");
    check("{{ 0 or 'x' }} {{ 1 and 'y' }} {{ not l }} {{ none or undef }}", "x y False ");
    check("{{ -2|abs }} {{ +3 }} {{ - - 2 }}", "2 3 2");
    check("{{ 'y' if i > 5 else 'n' }}{{ 'z' if false }}", "y");
    check("{{ '%s-%05.1f-%x-%r' % ('a', 2.345, 255, 'q') }} {{ '%(a)s' % {'a': 1} }}", "a-002.3-ff-'q' 1");
    check("{{ undef == undef2 }} {{ undef in l }} {{ 1 in undef }}", "True False False");
}

#[test]
fn values_print_like_python() {
    check(
        "{{ [1.0, 1e16, 1e-5, 'it\\'s', \"q\\\"\", '\\n\\x7f\\u00e9\\u200b', none, true] }}",
        "[1.0, 1e+16, 1e-05, \"it's\", 'q\"', '\\n\\x7fé\\u200b', None, True]",
    );
    check("{{ d }}", "{'b': 1, 'a': [True, None]}");
    check("{{ undef }}|{{ [undef] }}", "|[Undefined]");
    check(
        "{{ d.keys() }} {{ d.items() }} {{ d.values() }}",
        "dict_keys(['b', 'a']) dict_items([('b', 1), ('a', [True, None])]) dict_values([1, [True, None]])",
    );
    check("{{ range(3) }} {{ range(1, 9, 2) }}", "range(0, 3) range(1, 9, 2)");
    check("{{ namespace(a=1) }}", "<Namespace {'a': 1}>");
    check("{% macro m() %}{% endmacro %}{{ m }}", "<Macro 'm'>");
    check(
        "{{ 0.1 + 0.2 }} {{ 1e22 }} {{ 123456789.123456789 }} {{ 5e-324 }}",
        "0.30000000000000004 1e+22 123456789.12345679 5e-324",
    );
}

#[test]
fn attributes_and_items_follow_the_sandbox() {
    check(
        "{{ d.b }} {{ d['b'] }} {{ d.missing is defined }} {{ l.0 }} {{ l[-1] }} {{ s[0] }} {{ s['upper']() }}",
        "1 1 False 3 2 H HELLO WORLD",
    );
    check("{{ {'items': 1}.items is callable }} {{ {'items': 1}['items'] }}", "True 1");
    check("{{ l.append is defined }} {{ s.__class__ is defined }}", "False False");
    check(
        "{{ s[1:4] }} {{ s[::-1] }} {{ l[:2] }} {{ l[::-2] }} {{ s[-3:] }} {{ s[5:2] }}",
        "ell dlroW olleH [3, 1] [2, 3] rld ",
    );
    check("{{ n.x is defined }} {{ i.real }} {{ f.is_integer() }}", "False 7 False");
    check("{{ d.get('zz', 5) }} {{ d.get('zz') }}", "5 None");
    check("{{ 'é𝄞x'[1] }} {{ 'é𝄞x'|length }}", "𝄞 3");
}

#[test]
fn scopes_follow_jinja2() {
    check("{% set x = 1 %}{% for a in l %}{% set x = a %}{{ x }}{% endfor %}{{ x }}", "3121");
    check("{% set ns = namespace(x=0) %}{% for a in l %}{% set ns.x = ns.x + a %}{% endfor %}{{ ns.x }}", "6");
    check("{% if true %}{% set y = 1 %}{% endif %}{{ y }}", "1");
    check("{% with x = 1, y = x %}{{ x }}{{ y }}{% endwith %}{{ x }}", "1");
    check("{% set x = 1 %}{% macro m() %}{{ x }}{% endmacro %}{% set x = 2 %}{{ m() }}", "2");
    check("{% for a in l %}{{ i }}{% if loop.last %}{% set i = 9 %}{% endif %}{{ i }}{% endfor %}", "777779");
    check("{% set i %}{{ i }}{% endset %}[{{ i }}]", "[]");
    check("{% set z %}{% set q = 1 %}{{ q }}{% endset %}{{ z }}{{ q }}", "1");
    check("{% set a, b = l[:2] %}{{ a }}{{ b }}", "31");
    check("{% set loop = 5 %}{{ loop }}", "5");
    check("{% for x in l %}{{ x }}{% endfor %}{{ x }}", "312");
    check("{% filter upper %}{% set w = 'a' %}{{ w }}{% endfilter %}{{ w }}", "A");
}

#[test]
fn loops_follow_jinja2() {
    check(
        "{% for x in l %}{{ loop.index }}/{{ loop.length }}{{ loop.first }}{{ loop.last }}{{ loop.revindex }}{{ loop.previtem }}{{ loop.nextitem }} {% endfor %}",
        "1/3TrueFalse31 2/3FalseFalse232 3/3FalseTrue11 ",
    );
    check("{% for x in [] %}x{% else %}empty{% endfor %}", "empty");
    check("{% for x in l %}{% break %}{% else %}else{% endfor %}", "else");
    check("{% for x in l %}{% continue %}{% else %}else{% endfor %}", "else");
    check("{% for x in l if x > 1 %}{{ loop.index }}{{ x }}{{ loop.last }} {% endfor %}", "13False 22True ");
    check(
        "{% set ns = namespace(seen=[]) %}{% for x in [1, 2, 1] if x not in ns.seen %}{{ x }}{% set ns.seen = ns.seen + [x] %}{% endfor %}",
        "12",
    );
    check(
        "{% set ns = namespace(seen=[]) %}{% for x in [1, 2, 1] if x not in ns.seen %}{{ loop.index }}{{ x }}{% set ns.seen = ns.seen + [x] %}{% endfor %}",
        "1122",
    );
    check("{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "b=1;a=[True, None];");
    check("{% for c in 'ab' %}{{ c }}{{ loop.last }}{% endfor %}", "aFalsebTrue");
    check(
        "{% for x in [1, [2, [3]]] recursive %}{{ loop.depth }}{{ x if x is number else loop(x) }}{% endfor %}",
        "11122233",
    );
    check("{% for x in l %}{{ loop.cycle('a', 'b') }}{{ loop.changed(x > 1) }}{% endfor %}", "aTruebTrueaTrue");
    check("{% for x in 1, 2 %}{{ x }}{% endfor %}", "12");
    check(
        "{% for x in l %}{% set t %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endset %}{{ t }}{% endfor %}",
        "32",
    );
    check("{% for x in undef %}{% endfor %}ok", "ok");
    check("{% for x in l|map('string') %}{{ x }}{{ loop.length }}{% endfor %}", "331323");
    check("{% for x in l %}{{ loop }}{% endfor %}", "<LoopContext 1/3><LoopContext 2/3><LoopContext 3/3>");
}

#[test]
fn macros_follow_jinja2() {
    check(
        "{% macro m(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }} {{ m(1, c=5) }} {{ m(*[7, 8]) }} {{ m(**{'a': 3}) }}",
        "121 125 787 323",
    );
    check("{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, x=2) }}", "(1,){'x': 2}");
    check("{% macro m(x) %}[{{ caller(x) }}]{% endmacro %}{% call(y) m(5) %}{{ y + 1 }}{% endcall %}", "[6]");
    check("{% macro fact(k) %}{{ k if k < 2 else k * fact(k - 1)|int }}{% endmacro %}{{ fact(5) }}", "120");
    check("{% macro m(a) %}{{ a is defined }}{% endmacro %}{{ m() }}", "False");
    check("{% macro m(a=1) %}{{ a }}{% endmacro %}{{ m(undef) }}|{{ m(none) }}", "|None");
    check("{% macro m() %}x{% endmacro %}{{ m.name }} {{ m.arguments }} {{ m()|upper }}", "m () X");
    check("{% macro outer() %}{% macro inner() %}{{ i }}{% endmacro %}{{ inner() }}{% endmacro %}{{ outer() }}", "7");
}

#[test]
fn filters_follow_jinja2() {
    check(
        "{{ l|sort }} {{ l|sum }} {{ l|max }} {{ l|first }} {{ l|last }} {{ l|length }} {{ l|reverse|list }} {{ l|join('-') }}",
        "[1, 2, 3] 6 3 3 2 3 [2, 1, 3] 3-1-2",
    );
    check(
        "{{ items|map(attribute='name')|list }} {{ items|selectattr('age', 'gt', 5)|map(attribute='name')|join }}",
        "['Zoe', 'adam', 'Bob'] ZoeBob",
    );
    check(
        "{{ [{'a': 1}, {}]|map(attribute='a', default='x')|list }} {{ [{}]|map(default='x', attribute='a')|list }}",
        "[1, 'x'] ['x']",
    );
    check(
        "{{ items|sort(attribute='name')|map(attribute='name')|join(',') }} {{ items|groupby('age')|map('first')|list }}",
        "adam,Bob,Zoe [4, 31]",
    );
    check(
        "{{ d|tojson }} {{ d|tojson(indent=2) }} {{ 'é\\u2028<'|tojson }} {{ 'é'|tojson(ensure_ascii=true) }}",
        "{\"b\": 1, \"a\": [true, null]} {\n  \"b\": 1,\n  \"a\": [\n    true,\n    null\n  ]\n} \"é\u{2028}<\" \"\\u00e9\"",
    );
    check("{{ {'b': 1, 'a': 1e16}|tojson(sort_keys=true, separators=(',', ':')) }}", r#"{"a":1e+16,"b":1}"#);
    check(
        "{{ '4.7'|int }} {{ 'x'|int(9) }} {{ '0x1f'|int(base=16) }} {{ ' 1_0 '|int }} {{ '1e3'|float }} {{ none|int }}",
        "4 9 31 10 1000.0 0",
    );
    check("{{ undef|default('d') }} {{ ''|default('d') }} {{ ''|d('d', true) }}", "d  d");
    check(
        "{{ s|replace('l', 'L', 1) }} {{ s|truncate(7) }} {{ s|title }} {{ s|wordcount }} {{ s|center(15) }}|",
        "HeLlo World Hello World Hello World 2   Hello World  |",
    );
    check("{{ 'a\nb\n\nc'|indent(2) }} {{ 'a\nb'|indent('> ', true) }}", "a\n  b\n\n  c > a\n> b");
    check(
        "{{ 2.5|round }} {{ 3.5|round }} {{ 2.675|round(2) }} {{ 42.55|round(1, 'floor') }} {{ 1234|round(-2) }}",
        "2.0 4.0 2.67 42.5 1200",
    );
    check("{{ '<b>'|e }} {{ '<'|safe + '<' }} {{ '<'|safe ~ '<' }} {{ '<b>x</b>'|striptags }}", "&lt;b&gt; <&lt; << x");
    check(
        "{{ range(7)|batch(3, 'x')|list }} {{ range(7)|slice(3)|list }}",
        "[[0, 1, 2], [3, 4, 5], [6, 'x', 'x']] [[0, 1, 2], [3, 4], [5, 6]]",
    );
    check(
        "{{ ['b', 'A', 'a']|unique|list }} {{ ['b', 'A', 'a']|sort }} {{ ['b', 'A']|sort(case_sensitive=true) }}",
        "['b', 'A'] ['A', 'a', 'b'] ['A', 'b']",
    );
    check(
        "{{ d|dictsort }} {{ d|items|list }} {{ 'a b'|urlencode }} {{ {'q': 'a b'}|urlencode }}",
        "[('a', [True, None]), ('b', 1)] [('b', 1), ('a', [True, None])] a%20b q=a+b",
    );
    check("{{ 'x'|string is string }} {{ 1000000|filesizeformat }} {{ '%s!'|format('a') }}", "True 1.0 MB a!");
    check("{{ none|selectattr('a')|list }} {{ undef|list }} {{ undef|length }}", "[] [] 0");
}

#[test]
fn methods_follow_python() {
    check(
        "{{ ' a b '.strip() }}|{{ '\\x1ca'.strip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'a,b,,c'.split(',') }}|{{ ' a  b '.split() }}|{{ 'a b c'.split(' ', 1) }}|{{ 'a b c'.rsplit(none, 1) }}",
        "a b|a|a|['a', 'b', '', 'c']|['a', 'b']|['a', 'b c']|['a b', 'c']",
    );
    check(
        "{{ 'abc'.find('c') }} {{ 'abc'.find('z') }} {{ 'abcabc'.count('b') }} {{ 'abc'.startswith(('x', 'a')) }} {{ 'abc'.endswith('c', 1) }}",
        "2 -1 2 True True",
    );
    check(
        "{{ '{} {1!r:>5}'.format(1, 2) if false else '{0} {1!r:>5} {a[k]:.2f}'.format(1, 'x', a={'k': 1.005}) }}",
        "1   'x' 1.00",
    );
    check(
        "{{ 'ǆ straße'.title() }} {{ 'ß'.upper() }} {{ 'hELLO'.capitalize() }} {{ 'aB'.swapcase() }}",
        "ǅ Straße SS Hello Ab",
    );
    check(
        "{{ 'a\\x0bb\\u2028c\\r\\nd'.splitlines() }} {{ 'a-b'.partition('-') }} {{ '-'.join(['a', 'b']) }}",
        "['a', 'b', 'c', 'd'] ('a', '-', 'b') a-b",
    );
    check(
        "{{ 'abc'.isalpha() }} {{ '²'.isdigit() }} {{ '²'.isdecimal() }} {{ '7'.zfill(3) }} {{ 'x'.center(4, '*') }}",
        "True True False 007 *x**",
    );
    check("{{ [1, 2, 1].count(1) }} {{ [1, 2].index(2) }} {{ (5).bit_length() }}", "2 1 3");
}

#[test]
fn tests_follow_jinja2() {
    check(
        "{{ n is none }} {{ i is number }} {{ true is number }} {{ true is integer }} {{ f is float }} {{ s is string }}",
        "True True True False True True",
    );
    check(
        "{{ d is mapping }} {{ l is sequence }} {{ s is iterable }} {{ n is iterable }} {{ undef is iterable }} {{ d.items is callable }}",
        "True True True False True True",
    );
    check(
        "{{ i is odd }} {{ i is divisibleby 7 }} {{ i is eq 7 }} {{ i is in [7] }} {{ i is not ge(8) }}",
        "True True True True True",
    );
    check(
        "{{ none is sameas none }} {{ 'A' is upper }} {{ '1' is lower }} {{ '<'|safe is escaped }}",
        "True True False True",
    );
    check_own_refusals(
        "template/test",
        &[
            "{{ undef is defined }} {{ undef.x is defined if false else 'skipped' }} {{ 'upper' is filter }} {{ 'nope' is test }}",
        ],
    );
}

#[test]
fn globals_match_transformers() {
    check("{{ strftime_now('%d %b %Y, %H:%M:%S %j %U %-d %e|%y') }}", "04 Jul 2025, 09:05:03 185 26 4  4|25");
    check(
        "{{ range(3)|list }} {{ range(5, 0, -2)|list }} {{ dict(a=1, **{'b': 2}) }} {{ dict([('k', 1)]) }}",
        "[0, 1, 2] [5, 3, 1] {'a': 1, 'b': 2} {'k': 1}",
    );
    check("{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}", "abab");
    check("{% set j = joiner('|') %}{% for x in l %}{{ j() }}{{ x }}{% endfor %}", "3|1|2");
    check("{{ dict.fromkeys(['a'], 1) }}", "{'a': 1}");
    check("{% generation %}a{{ i }}{% endgeneration %}b", "a7b");
}

#[test]
fn uncalled_globals_are_defined() {
    for global in ["range", "dict", "namespace", "cycler", "joiner", "lipsum", "raise_exception", "strftime_now"] {
        check(&format!("{{{{ {global} is defined and {global} is callable and {global} == {global} }}}}"), "True");
    }
    check("{{ lipsum is string }}{{ lipsum.x is defined }}{% if false %}{{ lipsum() }}{% endif %}", "FalseFalse");
    check("{% set lipsum = 1 %}{{ lipsum }}{{ random is defined }}", "1False");
    check("{{ cycler }} {{ joiner }}", "<class 'jinja2.utils.Cycler'> <class 'jinja2.utils.Joiner'>");
}

/// A prompt is never random: a random result is an error, or always the same.
#[test]
fn random_results_are_errors_or_constant() {
    check("{{ lipsum(0) }}{{ lipsum(n=-1) is escaped }}{{ lipsum(0, false) is escaped }}", "TrueFalse");
    check_error("{{ lipsum('a') }}", "line 1: 'str' object cannot be interpreted as an integer");
    check_fails("{{ lipsum(0, 1, 2, 3, 4) }}");
    check(
        "{{ []|random }}{{ ''|random is defined }}{{ {}|random is defined }}{{ undef|random is defined }}",
        "FalseFalseFalse",
    );
    check(
        "{{ [1]|random }}{{ 'a'|random }}{{ range(3, 4)|random }}{{ {0: 5}|random }}{{ [2, 2]|random + 1 }}",
        "1a353",
    );
    check(
        "{{ ('<'|safe)|random is escaped }}{{ [[1], [2]]|map('random')|list }}{{ 'random' is filter }}",
        "True[1, 2]True",
    );
    check("{{ l|random }}", "3");
    check_error("{{ ([]|random).x }}", "line 1: No random item, sequence was empty.");
    check_error("{{ 5|random }}", "line 1: object of type 'int' has no len()");
    check_error("{{ [1]|map('string')|random }}", "line 1: object of type 'generator' has no len()");
    check_fails("{{ {'a': 1}.keys()|random }}");
    check("{% if false %}{{ {'k': [1]|random, [1]: 2}.x }}{% endif %}", "");
    check_own_errors("template/random", &["\n{{ lipsum() }}", "{{ {'a': 1}|random }}"]);
}

#[test]
fn operations_that_python_rejects_are_errors() {
    check_error("{{ undef.x }}", "line 1: 'undef' is undefined");
    check_error("{{ undef + 1 }}", "line 1: 'undef' is undefined");
    check_error("{{ 'a' + 1 }}", r#"line 1: can only concatenate str (not "int") to str"#);
    check_error("{{ 1 / 0 }}", "line 1: division by zero");
    check_error("{{ none|length }}", "line 1: object of type 'NoneType' has no len()");
    check_error("{% for x in none %}{% endfor %}", "line 1: 'NoneType' object is not iterable");
    check_error("{% for x in 5 %}{% endfor %}", "line 1: 'int' object is not iterable");
    check_error("{{ s.nope() }}", "line 1: 'str object' has no attribute 'nope'");
    check_error("{{ n.x.y }}", "line 1: 'None' has no attribute 'x'");
    check_error("{{ undef|tojson }}", "line 1: Object of type Undefined is not JSON serializable");
    check_error("{{ l|map('upper')|tojson }}", "line 1: Object of type generator is not JSON serializable");
    check_refused("{{ [1]|join.x }}", "line 1: No filter named 'join.x'.");
    check_refused("{{ 1 if i else {[]: 1} }}", "line 1: unhashable type: 'list'");
    check_error("{{ {l: 1} }}", "line 1: unhashable type: 'list'");
    check_error("{{ {[]: 1} }}", "line 1: unhashable type: 'list'");
    check("{% if false %}{{ [{[]: 1}] }}{% endif %}", "");
    check_error(
        "{{ range(100001) }}",
        "line 1: Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000).",
    );
    check_error("{% set l.x = 1 %}", "line 1: cannot assign attribute on non-namespace object");
    check_error("{% set a, b = [1] %}", "line 1: not enough values to unpack (expected 2, got 1)");
    check_refused("{{ 1|nope }}", "line 1: No filter named 'nope'.");
    check("{% if false %}{{ 1|nope }}{% endif %}ok", "ok");
    check_error("{% if true %}{{ 1|nope }}{% endif %}", "line 1: No filter named 'nope' found.");
    check_error("{{ '%d' % 'a' }}", "line 1: %d format: a real number is required, not str");
    check_error("{{ [1, 'a']|sort }}", "line 1: '<' not supported between instances of 'str' and 'int'");
    check_error("{{ 'abc'.index('z') }}", "line 1: substring not found");
    check_error("{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "line 1: macro 'm' takes not more than 1 argument(s)");
    check_error("{% include 'x' %}", "line 1: no loader for this environment specified");
    check_error("{{ loop.index }}", "line 1: 'loop' is undefined");
    check_error("{{ d < d }}", "line 1: '<' not supported between instances of 'dict' and 'dict'");
    check_own_errors(
        "template/refused",
        &[
            "{{ l.append(1) }}",
            "{% set ns = namespace() %}{% set ns._x = 1 %}",
            "{{ 'x'.__class__.__mro__ }}",
            "{{ 10 ** 4400 }}",
        ],
    );
}

#[test]
fn constant_expressions_are_computed_at_compile_time() {
    let with_key =
        |constant: &str| format!("{{% if i < 0 %}}{{{{ {{'k': {constant}, [1]: 2}}.copy() }}}}{{% endif %}}x");
    for constant in
        ["'x' is equalto('a')", "'abc'|upper", "'abc'[1:]", "1 < 2 < 3", "1 if 1 else u", "[2]|first", "'a'.b"]
    {
        check_refused(&with_key(constant), "line 1: unhashable type: 'list'");
    }
    for computed in ["u", "'a'.upper()", "1 // 0", "[1]|map('string')"] {
        check(&with_key(computed), "x");
    }
}

#[test]
fn macros_read_outer_variables_at_call_time() {
    check("{% macro m() %}{{ y }}{% endmacro %}[{{ m() }}]{% set y = 2 %}{{ m() }}", "[]2");
    check(
        "{% for x in [3, 1] %}{% macro m() %}{{ x }}{{ y }}{% endmacro %}{{ m() }} {% set y = x %}{{ m() }} {% endfor %}",
        "3 33 1 11 ",
    );
    check(
        "{% macro o(x) %}{% macro i() %}{{ x }}{{ y }}{% endmacro %}{% set y = 5 %}{{ i() }}{% endmacro %}{{ o(1) ~ o(2) }}",
        "1525",
    );
}

#[test]
fn templates_that_jinja2_cannot_compile_are_rejected() {
    check_refused("{{ 1 +", "line 1: unexpected 'end of template'");
    check_refused(
        "{% for loop in l %}{% endfor %}",
        "line 1: Can't assign to special loop variable in for-loop target",
    );
    check_refused("{{ (1 }}", "line 1: unexpected '}', expected ')'");
    check_refused("{% raw %}x", "line 1: Missing end of raw directive");
    check_refused("{# x", "line 1: Missing end of comment tag");
    check_refused("{% block a %}{% endblock %}{% block a %}{% endblock %}", "line 1: block 'a' defined twice");
    check_refused("{{ x is a is b }}", "line 1: You cannot chain multiple tests with is");
    check_refused("{{ 1 if 2 else }}", "line 1: unexpected 'end of print statement'");
    check_own_refusals(
        "template/syntax",
        &[
            "{{ }}",
            "{% if x %}",
            "{% endif %}",
            "{% nope %}",
            "{{ 'a }}",
            "{% break %}",
            "{% set 1 = 2 %}",
            "{{ f(a=1, a=2) }}",
            "{% macro m(a, a) %}{% endmacro %}",
            "{{ '\\xZ' }}",
            "{{ a b }}",
            "{% for x in l %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}",
            "{% do l %}",
            "{{ $ }}",
            "{% set x = %}",
        ],
    );
}

#[test]
fn assignment_targets_match_jinja2() {
    check("{% for (a,) in [[1], [2]] %}{{ a }}{% endfor %}{% set (b,) = [3] %}{{ b }}", "123");
    check("{% for ((a), (b, c)) in [[1, (2, 3)]] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "123");
    check("{% for () in [[]] %}x{% endfor %}{% set () = [] %}{% set (), a = [], 1 %}{{ a }}", "x1");
    check("{% set a, %}x{% endset %}{{ a }}{% set b, (c,) %}yz{% endset %}{{ b }}{{ c }}", "xyz");
    check("{% with a, b = l[:2], (c) = 4 %}{{ a }}{{ b }}{{ c }}{% endwith %}", "314");
    check("{% set ns = namespace() %}{% set a, ns.b = 1, 2 %}{{ a }}{{ ns.b }}", "12");
    for refused in ["(ns.a) = 1", "(ns.a), b = 1, 2", "ns.a.b = 1", "(ns).a = 1", "(a, 'b') = 1, 2", "(,) = []"] {
        let template = format!("{{% set ns = namespace() %}}{{% set {refused} %}}");
        assert!(ChatTemplate::compile(&template).is_err(), "{template}");
    }
}

/// After a comma, Jinja2 reads the keywords that end a loop's target and its items as names.
#[test]
fn trailing_comma_in_a_target_requires_another_name() {
    check("{% for a, in in [[1, 2]] %}{{ a }}{{ in }}{% endfor %}{% for in in [3] %}{{ in }}{% endfor %}", "123");
    check("{% for a in 1, recursive %}{{ loop.index }}{{ a }}{% endfor %}", "112");
    check("{% for a in [1], recursive recursive %}{{ a }}{% endfor %}", "[1]");
    check_own_refusals(
        "template/comma",
        &[
            "{% for a, in l %}{% endfor %}",
            "{% for a ,in l %}{% endfor %}",
            "{% for (a), in [l] %}{% endfor %}",
            "{% set a, = [1] %}",
            "{% with a, = [1] %}{% endwith %}",
        ],
    );
}

/// Jinja2 checks that the owner is a namespace where a value is assigned, but not for a block.
#[test]
fn set_block_changes_a_dict_for_all_references() {
    check("{% set e = d %}{% set d.x %}{{ i }}{% endset %}{{ e }}", "{'b': 1, 'a': [True, None], 'x': '7'}");
    check(
        "{% set d.b|int %}12{% endset %}{{ d.b + 1 }}{{ d['b'] }}{% set d.b|list %}ab{% endset %}{{ d.b }}",
        "1312['a', 'b']",
    );
    check(
        "{% for m in messages %}{% set m.content %}[{{ m.content }}]{% endset %}{% endfor %}{{ messages }}",
        "[{'role': 'user', 'content': '[Hi]'}]",
    );
    check(
        "{% set v = d.values() %}{% set d.x, d.y %}12{% endset %}{{ v|length }}{{ 'y' in d }}{{ d|tojson }}",
        "4True{\"b\": 1, \"a\": [true, null], \"x\": \"1\", \"y\": \"2\"}",
    );
    check(
        "{% macro m(q={}) %}{% set q.z %}5{% endset %}{{ q }}{% endmacro %}{{ m() }}{{ m(d.copy()).z }}{{ m() }}{{ d }}",
        "{'z': '5'}{'z': '5'}{'b': 1, 'a': [True, None]}",
    );
    check(
        "{% for q in range(2) %}{% set e = [{'a': {}}] %}{% set f = e[0].a %}{{ e }}{% set f.b %}{{ q }}{% endset %}{{ e }}{% endfor %}",
        "[{'a': {}}][{'a': {'b': '0'}}][{'a': {}}][{'a': {'b': '1'}}]",
    );
    let nine = "{% set e = dict.fromkeys('abcdefgh'|list, 0) %}{% set e.i %}1{% endset %}{% set e.a %}2{% endset %}";
    check(&format!("{nine}{{{{ e.i }}}}{{{{ e.a }}}}{{{{ e.h }}}}{{{{ e|length }}}}"), "1209");
    check(
        "{% set ns = namespace() %}{% set ns.x|upper %}a{% endset %}{% set ns.y, z %}bc{% endset %}{{ ns.x }}{{ ns.y }}{{ z }}",
        "Abc",
    );
}

#[test]
fn dict_growth_during_iteration_is_an_error() {
    let grows = |items: &str, when: &str| {
        format!(
            "{{% for k in {items} %}}{{% if {when} %}}{{% set d.x %}}1{{% endset %}}{{% endif %}}{{{{ k }}}}{{% endfor %}}"
        )
    };
    for items in ["d", "d.items()", "d.keys() if k"] {
        check_error(&grows(items, "true"), "line 1: dictionary changed size during iteration");
    }
    check(&grows("d", "loop.last"), "ba");
    check(&grows("d|list", "true"), "ba");
    check("{% for k in d %}{% set d.a %}1{% endset %}{{ d[k] }}{{ loop.length }}{% endfor %}", "1212");
}

#[test]
fn set_block_on_other_values_is_an_error() {
    for (owner, kind) in [("s", "str"), ("n", "NoneType"), ("l", "list"), ("zz", "Undefined"), ("range", "function")] {
        let template = format!("{{% set {owner}.x %}}1{{% endset %}}");
        check_error(&template, &format!("line 1: '{kind}' object does not support item assignment"));
    }
    check_fails("{% for x in l %}{% set loop.x %}1{% endset %}{% endfor %}");
    check_fails("{% set ns = namespace() %}{% set ns._x %}1{% endset %}");
    check_error("{% set l.x = 1 %}", "line 1: cannot assign attribute on non-namespace object");
    check("{% if false %}{% set s.x %}1{% endset %}{% endif %}", "");
    check("{% set d.x|default(i, true) %}{% endset %}{{ d.x }}{{ i }}", "77");
    // Python allows a dict to contain itself.
    check_own_errors("template/set-block", &["{% set d.x|default(d, true) %}{% endset %}"]);
    check_own_refusals("template/set-block-refused", &["{% set d.x|default(zz, true) %}{% endset %}"]);
}

/// The cost of a change to a dict grows with the number of earlier changes.
#[test]
fn dict_changes_hit_the_step_limit() {
    let template =
        "{% for a in range(1000) %}{% for b in range(1000) %}{% set d.x %}{{ b }}{% endset %}{% endfor %}{% endfor %}";
    check_limit(template, Limit::Steps);
}

/// The output of `{% autoescape %}` blocks, escaped and unescaped.
const AUTOESCAPE: &[(&str, &str)] = &[
    ("{{ autoescape }}{{ autoescape is defined }}", "False"),
    (
        "{% autoescape true %}{{ '<' }}&{{ '<'|safe }}{{ 1 }}{{ ['<'] }}{% endautoescape %}{{ '<' }}",
        "&lt;&<1[&#39;&lt;&#39;]<",
    ),
    (
        "{% autoescape 'x' %}{{ '<' ~ s }}{% autoescape false %}{{ '<' }}{% endautoescape %}{% endautoescape %}",
        "&lt;Hello World<",
    ),
    ("{% set x = 1 %}{% autoescape true %}{% set x = 2 %}{% endautoescape %}{{ x }}", "1"),
    (
        "{% autoescape true %}{{ s ~ ('<'|safe) ~ '>' }}{{ ('<'|safe) ~ '<' }}{{ (s ~ '<') is escaped }}{% endautoescape %}",
        "Hello World<&gt;&lt;&lt;False",
    ),
    ("{% autoescape true %}{% set x %}<{{ '<' }}{% endset %}{{ x is escaped }}{{ x }}{% endautoescape %}", "True<&lt;"),
    (
        "{% autoescape true %}{% filter upper %}<{{ '<' }}{% endfilter %}{% block a %}{{ '<' }}{% endblock %}{% endautoescape %}",
        "<&LT;<",
    ),
    (
        "{% autoescape true %}{% generation %}{{ '<' }}{% endgeneration %}{{ d|tojson }}{% endautoescape %}",
        "&lt;{&#34;b&#34;: 1, &#34;a&#34;: [true, null]}",
    ),
    (
        "{% autoescape true %}{{ ['<', '>'|safe]|join('&') }}{{ ['<']|join is escaped }}{{ ['<']|join('>'|safe) }}{% endautoescape %}",
        "&lt;&amp;>False&lt;",
    ),
    (
        "{% autoescape true %}{{ '<a'|replace('a', '>'|safe) }}{{ ('<a'|safe)|replace('a', '>') }}{{ '<a'|replace('a', '>') }}{% endautoescape %}",
        "&lt;><&gt;&lt;&gt;",
    ),
    ("{% autoescape true %}{{ {'a': '<'}|xmlattr }}{{ none }}{{ undef }}{% endautoescape %}", " a=\"&lt;\"None"),
    (
        "{% autoescape true %}{% for x in ['<', ['>']] recursive %}{{ x if x is string else loop(x) }}{% endfor %}{% endautoescape %}",
        "&lt;&gt;",
    ),
    // A macro's result is safe if the call is made with escaping. A macro's own code escapes if the
    // macro is defined inside a block.
    (
        "{% macro m(x) %}{{ x }}<{% endmacro %}{% autoescape true %}{{ m('<') }}{{ m('<') is escaped }}{% endautoescape %}{{ m('<') is escaped }}",
        "<<TrueFalse",
    ),
    ("{% autoescape true %}{% macro m(x) %}{{ x }}<{% endmacro %}{{ m('<') }}{% endautoescape %}", "&lt;<"),
    (
        "{% macro m() %}{{ caller('<') is escaped }}{{ caller('<') }}{% endmacro %}{% autoescape true %}{% call(x) m() %}{{ x }}{% endcall %}{% endautoescape %}",
        "True&lt;",
    ),
    // If escaping is decided only at run time, constants are not escaped, and `~` marks nothing as
    // safe.
    (
        "{% autoescape i %}{{ '<' }}{{ s ~ '<' }}{{ '<'|upper }}{{ ('<'|safe) ~ '<' }}{% endautoescape %}",
        "<Hello World&lt;&lt;&lt;&lt;",
    ),
    (
        "{% autoescape n %}{{ '<' }}{{ s ~ '<' }}{% endautoescape %}{% autoescape nope %}{{ s[:0] ~ '<' }}{% endautoescape %}",
        "<Hello World<<",
    ),
    (
        "{% autoescape i %}{% set z %}<{% endset %}{{ z is escaped }}{{ z }}{{ z ~ '<' }}{% endautoescape %}",
        "True<&lt;&lt;",
    ),
    // After a jump out of the block, escaping stays on for values that are decided at run time.
    (
        "{% macro m() %}{% endmacro %}{% for x in l %}{% autoescape true %}{% break %}{% endautoescape %}{% endfor %}{{ '<' }}{{ m() is escaped }}",
        "<True",
    ),
];

#[test]
fn autoescape_blocks_escape_as_jinja2_does() {
    AUTOESCAPE.iter().for_each(|(template, expected)| check(template, expected));
    check_error("{% autoescape nope.x %}{% endautoescape %}", "line 1: 'nope' is undefined");
    check_refused("{% autoescape %}{% endautoescape %}", "line 1: unexpected 'end of statement block'");
    check_own_refusals("template/autoescape", &["{% autoescape true, false %}{% endautoescape %}"]);
}

/// The values of `self` and `super` in the template and in blocks.
const SELF: &[(&str, &str)] = &[
    (
        "{{ self }}{{ [self] }}{{ self ~ 'x' }}",
        "<TemplateReference None>[<TemplateReference None>]<TemplateReference None>x",
    ),
    (
        "{{ self is defined }}{{ self is callable }}{{ self is iterable }}{{ self is sequence }}{{ self is mapping }}",
        "TrueFalseTrueFalseFalse",
    ),
    (
        "{{ self == self }}{{ self is sameas self }}{{ self.x is defined }}{{ self[0] is defined }}",
        "TrueTrueFalseFalse",
    ),
    ("{{ self.a() }}{% block a %}x{{ i }}{% endblock %}{{ self['a']()|upper }}{{ self.a.name }}", "x7x7X7a"),
    (
        "{{ self.a is callable }}{{ self.a.super is defined }}{{ self.a == self.a }}{{ self|attr('a') is defined }}{% block a %}{% endblock %}",
        "TrueFalseFalseFalse",
    ),
    ("{% set x = 1 %}{{ self.a() }}{% set x = 2 %}{{ self.a() }}{% block a %}[{{ x }}]{% endblock %}", "[1][2][2]"),
    (
        "{% for x in l %}{{ self.a() }}{% endfor %}{% block a %}[{{ x }}{{ loop is defined }}]{% endblock %}",
        "[False][False][False][False]",
    ),
    ("{% for x in l %}{% block a scoped %}[{{ x }}]{% endblock %}{% endfor %}{{ self.a() }}", "[3][1][2][]"),
    ("{% block a %}{{ self.b() }}{% endblock %}{% block b %}B{{ self is defined }}{% endblock %}", "BTrueBTrue"),
    ("{% block a %}{% block b %}in{% endblock %}{% endblock %}{{ self.b() }}{{ self.a() }}", "ininin"),
    (
        "{% macro m(q=self) %}{{ self.a() }}{{ q }}{% endmacro %}{% block a %}q{% endblock %}{{ m() }}",
        "qq<TemplateReference None>",
    ),
    (
        "{% set ns = namespace(c=0) %}{% block a %}{% set ns.c = ns.c + 1 %}{{ ns.c }}{% endblock %}{{ self.a() }}{{ ns.c }}",
        "122",
    ),
    (
        "{% block a %}<{% endblock %}{% autoescape true %}{{ self.a() }}{{ self.a() is escaped }}{% endautoescape %}{{ self.a() is escaped }}",
        "<<TrueFalse",
    ),
    ("{{ self }}{% set self = 1 %}{{ self }}", "<TemplateReference None>1"),
    (
        "{% set self = 1 %}{{ self }}{% for self in l %}{{ self }}{% endfor %}{% with self = 3 %}{{ self }}{% endwith %}",
        "13123",
    ),
    (
        "{% block a %}{{ super }}{{ super is defined }}{% endblock %}{% block b %}{% set super = 1 %}{{ super }}{% endblock %}",
        "False1",
    ),
];

#[test]
fn self_gives_access_to_the_template_blocks() {
    SELF.iter().for_each(|(template, expected)| check(template, expected));
    check_error("{{ self() }}", "line 1: 'TemplateReference' object is not callable");
    check_error("\n{% block a %}{{ super() }}{% endblock %}", "line 2: there is no parent block called 'a'.");
    for wrong in
        ["self|list", "self|length", "self|tojson", "'a' in self", "self + 1", "self.a(1)", "self.a(x=1)", "self[:1]"]
    {
        check_fails(&format!("{{% block a %}}{{% endblock %}}{{{{ {wrong} }}}}"));
    }
    check_fails("{% for x in self %}{% endfor %}");
    check_fails("{% call self.a() %}{% endcall %}{% block a %}{% endblock %}");
    check_limit("{% block a %}{{ self.a() }}{% endblock %}", Limit::Recursion);
    check_own_errors("template/self", &["{{ self.nope() }}"]);
}

#[test]
fn block_nesting_is_limited_in_templates_that_use_self() {
    let nested = |depth: usize, within: &str| {
        let open: String = (0..depth).map(|at| format!("{{% block b{at} %}}")).collect();
        format!("{open}{within}{}", "{% endblock %}".repeat(depth))
    };
    check(&nested(8, "{{ self.b7 is defined }}"), "True");
    check(&nested(9, "x"), "x");
    check_own_refusals("template/self-nesting", &[&nested(9, "{{ self }}")]);
}

#[test]
fn raise_exception_reports_its_message_and_line() {
    let error = hi().apply("a\n{% macro m() %}\n{{ raise_exception('No ' ~ s) }}{% endmacro %}{{ m() }}");
    assert_eq!(error, Err(RenderError::Raised { message: "No Hello World".to_owned(), line: 3 }));
}

#[test]
fn errors_name_the_line() {
    check_error("a\nb\n{{ 1 +\n undef.x }}", "line 4: 'undef' is undefined");
    check_own_refusals("template/line", &["a\n{% if x %}\nb"]);
}

#[test]
fn unsupported_features_are_rejected_by_name() {
    check_own_refusals(
        "template/unsupported",
        &[
            "{{ s|urlize }}",
            "{% for x in l %}{% block a scoped %}\n{{ self }}{% endblock %}{% endfor %}",
            "{{ '\\N{DASH}' }}",
            "\n{{ 1.5.fromhex('0x1') }}",
            "{{ (1 + 2).from_bytes(s.upper()) }}",
            "{% if n %}{{ s.to_bytes(2, 'big') }}{% endif %}",
            "\n{{ s.encode() }}",
            "{{ ('a' ~ s).encode('utf-8').decode(l|first) }}",
        ],
    );
}

/// A call through another expression is known only when it runs.
#[test]
fn calls_of_unsupported_methods_fail_by_name() {
    check("{{ s.encode is defined }}{{ {'encode': 1}.encode }}{{ (3).encode is defined }}", "True1False");
    check_own_errors(
        "template/unsupported-method",
        &["\n{{ s['encode']() }}", "{% set f = i.to_bytes %}{{ f(1, 'big') }}"],
    );
}

/// Values computed at compile time are never the same object, unless CPython keeps one object for
/// the value.
#[test]
fn sameas_on_constants_matches_cpython_object_identity() {
    check("{{ 1.0 is sameas 1.0 }}{{ 1000 is sameas 1000 }}{{ 'ab' is sameas 'ab' }}", "FalseFalseFalse");
    check("{{ 3 is sameas 3 }}{{ 'a' is sameas 'a' }}{{ '' is sameas '' }}{{ () is sameas(()) }}", "TrueTrueTrueTrue");
    check(
        "{{ 257 is sameas 257 }}{{ -5 is sameas(-5) }}{{ 'é' is sameas 'é' }}{{ 'ő' is sameas 'ő' }}",
        "FalseTrueTrueFalse",
    );
    check("{{ none is sameas none }}{{ (1 < 2) is sameas true }}{{ (1,) is sameas (1,) }}", "TrueTrueFalse");
    check("{% set a = 1.0 %}{% set b = 1.0 %}{{ a is sameas 1.0 }}{{ a is sameas b }}", "TrueTrue");
    check("{% if 1.0 is sameas 1.0 %}y{% else %}n{% endif %}", "n");
    check("{% macro m(x) %}{{ x is sameas 1.0 }}{% endmacro %}{{ m(1.0) }}", "True");
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

#[test]
fn long_values_are_broken_like_pythons_pprint() {
    check(
        "{{ 'short'|pprint }} {{ {'b': 1, 'a': 2}|pprint }} {{ undef|pprint }}",
        "'short' {'a': 2, 'b': 1} Undefined",
    );
    check(
        "{{ {'z': ['a'*30, 'b'*30, 'c'*30], 'k': ('x'*40, 'y'*45)}|pprint }}",
        &format!(
            "{{'k': ('{}',\n       '{}'),\n 'z': ['{}',\n       '{}',\n       '{}']}}",
            "x".repeat(40),
            "y".repeat(45),
            "a".repeat(30),
            "b".repeat(30),
            "c".repeat(30)
        ),
    );
    check("{{ ('word ' * 20)|pprint }}", &format!("('{}'\n '{}')", "word ".repeat(15), "word ".repeat(5)));
    check(
        "{{ {undef: 1}|pprint }} {{ {none: 1, 'a': 3, true: 2}|pprint }}",
        "{Undefined: 1} {None: 1, True: 2, 'a': 3}",
    );
    check_error("{{ {'k': 1, undef: 2}|pprint }}", "line 1: 'undef' is undefined");
    check_error("{{ {(1, undef): 1, (1, 2): 3}|pprint }}", "line 1: 'undef' is undefined");
}

#[test]
fn rarely_used_methods_follow_python() {
    check(
        "{{ 'hello'.translate('x'.maketrans('lo', '01', 'h')) }} {{ 'ab'.translate({97: 'xyz', 98: none}) }}",
        "e001 xyz",
    );
    check("{{ ' a b \\x1f'.split(maxsplit=1) }} {{ ' a b '.rsplit(none, 1) }}", "['a', 'b \\x1f'] [' a', 'b']");
    check("{{ 1.5.hex() }} {{ (-0.1).hex() }} {{ 0.0.hex() }}", "0x1.8000000000000p+0 -0x1.999999999999ap-4 0x0.0p+0");
    check("{{ 'Straße ﬁ ŉ'.casefold() }}", "strasse fi ʼn");
    check("{{ {'a': 1}.keys() < {'a': 2, 'b': 3}.keys() }} {{ {'a': 1}.items() <= {'a': 2}.items() }}", "True False");
    check(
        "{{ ('a', 1) in {'a': 1}.items() }} {{ (1,).copy is defined }} {{ -0.0|filesizeformat }}",
        "True False 0 Bytes",
    );
    check("{{ '<!-- a > b --><p>Caf&eacute; &amp;&#x20AC;&#8364;&notit;</p> <x'|striptags }}", "Café &€€¬it; <x");
}

#[test]
fn required_blocks_are_errors_when_reached() {
    check_error("\n{% block a required %} {% endblock %}", "line 2: Required block 'a' not found");
    check_refused(
        "{% block a required %}x{% endblock %}",
        "line 1: Required blocks can only contain comments or whitespace",
    );
}

/// Returns a template with this part on line 4.
fn on_line_4(part: &str) -> String {
    format!("a\n{{% if true %}}\n  b\n{part}\n{{% endif %}}")
}

/// One case of each kind: every error at run time has its line.
#[test]
fn runtime_errors_name_their_line_and_cause() {
    for (wrong, expected) in [
        ("{{ undef.x }}", "'undef' is undefined"),
        ("{{ d.zz.x }}", "'dict object' has no attribute 'zz'"),
        ("{{ n.x.y }}", "'None' has no attribute 'x'"),
        ("{{ s['x'].y }}", "'str object' has no attribute 'x'"),
        ("{% for x in n %}{% endfor %}", "'NoneType' object is not iterable"),
        ("{{ s + 1 }}", "can only concatenate str (not \"int\") to str"),
        ("{{ i / 0 }}", "division by zero"),
        ("{{ l < 1 }}", "'<' not supported between instances of 'list' and 'int'"),
        ("{{ s.nosuch() }}", "'str object' has no attribute 'nosuch'"),
        ("{{ undef|tojson }}", "Object of type Undefined is not JSON serializable"),
        ("{% set a, b = l %}", "too many values to unpack (expected 2)"),
        ("{% if i %}{{ s|nosuch }}{% endif %}", "No filter named 'nosuch' found."),
        ("{{ range(1000000) }}", "Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000)."),
        ("{% include 'x' %}", "no loader for this environment specified"),
    ] {
        check_error(&on_line_4(wrong), &format!("line 4: {expected}"));
    }
    let own = ["{{ l.append(1) }}", "{% set d.x = 1 %}"].map(on_line_4);
    check_own_errors("template/line-4", &own.each_ref().map(String::as_str));
}

#[test]
fn scoped_blocks_read_outer_variables() {
    check("{% set q=1 %}{% for v in range(2) %}{% block a scoped %}{{v}}{{q}}{% endblock %}{% endfor %}", "0111");
    check("{% for v in range(2) %}{% block a %}{{v}}{% endblock %}{% endfor %}", "");
    check("{% for v in range(2) %}{% block a scoped %}{{loop.index}}{% endblock %}{% endfor %}", "12");
    check(
        "{% for v in range(2) %}{% set z=v %}{% block a scoped %}{{z}}{% set z=9 %}{{z}}{% endblock %}{{z}}{% endfor %}",
        "090191",
    );
    check("{% macro m(x) %}{% block a scoped %}{{x}}{% endblock %}{% endmacro %}{{ m(3) }}", "3");
    check("{% with k=5 %}{% block a scoped %}{{k}}{% endblock %}{% endwith %}", "5");
    check("{% with k=5 %}{% block a %}{{k}}{% block b scoped %}{{k}}{% endblock %}{% endblock %}{% endwith %}", "");
    check(
        "{% for v in range(2) %}{% block a scoped %}{% block b %}{{v}}{% endblock %}{% endblock %}{% endfor %}",
        "01",
    );
    check(
        "{% for v in range(2) %}{% if v %}{% set y=v %}{% endif %}{% block a scoped %}{{ y }}.{% endblock %}{% endfor %}",
        ".1.",
    );
    check(
        "{% set ns=namespace(a=0) %}{% for v in range(2) %}{% block a scoped %}{% set ns.a=ns.a+1 %}{% endblock %}{% endfor %}{{ ns.a }}",
        "2",
    );
    check(
        "{% macro f() %}F{% endmacro %}{% for v in range(1) %}{% macro g() %}G{{v}}{% endmacro %}{% block a scoped %}{{ f() }}{{ g() }}{% endblock %}{% endfor %}",
        "FG0",
    );
    check("{% block a scoped %}{% set q=1 %}{% endblock %}{{ q }}", "");
    check(
        "{% for v in range(2) %}{% block a scoped %}{% block b %}{{v}}{% endblock %}{% endblock %}{% endfor %}",
        "01",
    );
    check(
        "{% for v in [1,2] %}{% block a scoped %}{% set k=v %}{% block b %}{{ k }}{{ v }}{% endblock %}{% endblock %}{% endfor %}",
        "12",
    );
    assert!(hi().apply("{% with k=5 %}{% block a scoped required %} {% endblock %}{% endwith %}").is_err());
}

/// Results of operations on safe texts, as in MarkupSafe.
const SAFE_TEXTS: &[(&str, &str)] = &[
    ("{{ ('<b>a</b> &amp; <!-- x --> c'|safe).striptags() }}", "a & c"),
    (
        "{{ [('a <b> c'|safe).striptags(), ('&amp;'|safe).unescape(), ('x'|safe).escape('<')] }}",
        "['a c', '&', Markup('&lt;')]",
    ),
    ("{{ ('&lt;a&gt;'|safe).unescape() }}", "<a>"),
    ("{{ ('x'|safe).escape('<a>'|safe) }}{{ ('x'|safe).escape(['<']) }}", "<a>[&#39;&lt;&#39;]"),
    ("{{ ('x'|safe).escape(none) }}{{ ('x'|safe).escape(1) }}{{ ('x'|safe).escape(zz) }}", "None1"),
    ("{{ 'x'.striptags is defined }}{{ ('x'|safe).striptags is defined }}", "FalseTrue"),
    ("{{ ('{}'|e).format('<') }}", "&lt;"),
    ("{{ ('{a}'|e).format(a='<') }}", "&lt;"),
    ("{{ ('{!r}'|e).format('<') }}", "&#39;&lt;&#39;"),
    ("{{ ('{}'|e).format('<'|safe) }}", "<"),
    ("{{ ('{0[a]}'|e).format({'a':'<'}) }}", "&lt;"),
    ("{{ ('{a}'|e).format_map({'a':'<'}) }}", "&lt;"),
    ("{{ ('{a}'|e).format_map({'a':'<'|safe}) }}", "<"),
    ("{{ ('{}'|e).format(3) }}", "3"),
    ("{{ ('{}'|e).format(['<']) }}", "[&#39;&lt;&#39;]"),
    ("{{ ('{!s}'|e).format('<'|safe) }}", "&lt;"),
    ("{{ ('{}'|e).format(none) }}", "None"),
    ("{{ ('a'|e).replace('a','<') }}", "&lt;"),
    ("{{ ('a<'|e).replace('<','x') }}", "a&lt;"),
    ("{{ ('a<'|e).replace('&','x') }}", "axlt;"),
    ("{{ ('a<'|e).split('<') }}", "[Markup('a&lt;')]"),
    ("{{ ('a<'|e).split('&') }}", "[Markup('a'), Markup('lt;')]"),
    ("{{ ('a<'|e).strip('<') }}", "a&lt;"),
    ("{{ ('a<b'|e).partition('<') }}", "(Markup('a&lt;b'), Markup(''), Markup(''))"),
    ("{{ ('a<b'|e).partition('&') }}", "(Markup('a'), Markup('&'), Markup('lt;b'))"),
    ("{{ ('a<b'|e).rpartition('&') }}", "(Markup('a'), Markup('&'), Markup('lt;b'))"),
    ("{{ ('<'|e).find('<') }}", "-1"),
    ("{{ ('<'|e).find('&') }}", "0"),
    ("{{ ('<'|e).startswith('<') }}", "False"),
    ("{{ ('<'|e).count('<') }}", "0"),
    ("{{ ('<a'|e).removeprefix('<') }}", "&lt;a"),
    ("{{ ('<a'|e).removeprefix('&') }}", "lt;a"),
    ("{{ ('a<'|e).removesuffix('<') }}", "a&lt;"),
    ("{{ ('a'|e).translate({97:'<'}) }}", "<"),
    ("{{ ('ab'|e).join('<>') }}", "&lt;ab&gt;"),
    ("{{ ('a'|e).join(['<'|safe,1]) }}", "<a1"),
    ("{{ ('a'|e) + '<' }}", "a&lt;"),
    ("{{ '<' + ('a'|e) }}", "&lt;a"),
    ("{{ ('%s'|e) % '<' }}", "&lt;"),
    ("{{ ('%r'|e) % '<' }}", "&#39;&lt;&#39;"),
    ("{{ ('%d'|e) % 3 }}", "3"),
    ("{{ ('a'|e).zfill(4) }}", "000a"),
    ("{{ ('a\tb'|e).expandtabs() }}", "a       b"),
    ("{{ ('a'|e)|replace('a','<') }}", "<"),
    ("{{ 'a'|replace('a','<'|e) }}", "&lt;"),
    ("{{ ('a'|e).replace('a',1) }}", "1"),
    ("{{ ('a'|e).casefold().replace('a','<') }}", "&lt;"),
    ("{{ ('a'|e)|indent(2) is escaped }}", "True"),
    ("{{ [('a b'|e).split()] }}", "[[Markup('a'), Markup('b')]]"),
    (
        "{{ [('a b'|e).upper(), ('a'|e)|upper, ('a'|e).splitlines(), ('a'|e).title()] }}",
        "[Markup('A B'), Markup('A'), [Markup('a')], Markup('A')]",
    ),
    (
        "{{ [('a'|e).rsplit('a'), ('a'|e).lstrip(), ('a'|e)[0:1], ('a'|e)|first, ('a'|e)|trim] }}",
        "[[Markup(''), Markup('')], Markup('a'), Markup('a'), 'a', Markup('a')]",
    ),
    ("{{ ('a<'|e).endswith('<') }}", "False"),
    ("{{ ('a<'|e).rstrip('<;tl&') }}", "a"),
    ("{{ [('a'|e).format(), ('a'|e).join([])] }}", "[Markup('a'), Markup('')]"),
    (
        "{{ [('a'|e).removeprefix('x'), ('a'|e).partition('x')] }}",
        "[Markup('a'), (Markup('a'), Markup(''), Markup(''))]",
    ),
    ("{{ ('x'|e).maketrans('a','<') }}", "{97: 60}"),
    ("{{ [('a'|e) ~ 'b', ('a'|e)*2, ('%s'|e)%'<'] }}", "['ab', Markup('aa'), Markup('&lt;')]"),
    ("{{ ('a'|e).isalpha() }}", "True"),
    ("{{ ('<'|e).rfind('<') }}", "-1"),
];

/// Operations for which MarkupSafe raises an error.
const SAFE_TEXTS_REFUSED: &[&str] = &[
    "{{ ('x'|safe).escape(s='<') }}",
    "{{ ('x'|safe).escape() }}",
    "{{ ('x'|safe).escape('a', 'b') }}",
    "{{ ('x'|safe).striptags(1) }}",
    "{{ ('x'|safe).unescape(1) }}",
    "{{ 'x'.striptags() }}",
    "{{ ('{:>5}'|e).format('<') }}",
    "{{ ('{}'|e).format_map({'a':1}) }}",
    "{{ ('{:>4}'|e).format(3) }}",
    "{{ ('{:>5}'|e).format('<'|safe) }}",
    "{{ ('{:5}'|e).format('<'|safe) }}",
    "{{ ('{!r:>9}'|e).format('<') }}",
    "{{ ('a'|e).center(5,'<') }}",
    "{{ ('a'|e).ljust(3,'<') }}",
    "{{ ('a<b'|e).index('<') }}",
    "{{ ('a'|e).count('<','x') }}",
];

#[test]
fn safe_text_escapes_inserted_text() {
    SAFE_TEXTS.iter().for_each(|(template, expected)| check(template, expected));
    SAFE_TEXTS_REFUSED.iter().for_each(|template| check_fails(template));
}

/// Results of Python's formats.
const FORMATS: &[(&str, &str)] = &[
    ("{{ '%a' % 'é' }}", "'\\xe9'"),
    ("{{ '{!a}'.format('é') }}", "'\\xe9'"),
    ("{{ '{0[-1]}'.format('abc') }}", ""),
    ("{{ '{0[x]}'.format({}) }}", ""),
    ("{{ '{0.__class__}'.format(1) }}", ""),
    ("{{ '%%' % () }}", "%"),
    ("{{ '{0[-1]}'.format([1,2]) }}", ""),
    ("{{ '{0[a]}{0.a}'.format({'a':1}) }}", "11"),
    ("{{ '{0[0]}'.format({0:1,'0':2}) }}", "1"),
    ("{{ '{0[x]!r}|'.format({}) }}", "Undefined|"),
    ("{{ '{0[x]!s}|'.format({}) }}", "|"),
    ("{{ '{0[x]:}|'.format({}) }}", "|"),
    ("{{ '{}'.format(undef) }}", ""),
    ("{{ '{0[+1]}'.format([1,2]) }}", ""),
    ("{{ '{0[ 1]}'.format([1,2]) }}", ""),
    ("{{ '{0[01]}'.format([1,2]) }}", "2"),
    ("{{ '{0[1_0]}'.format([1,2]) }}", ""),
    ("{{ '{0[٣]}'.format([1,2,3,4]) }}", "4"),
    ("{{ '{٠}'.format(7) }}", "7"),
    ("{{ '{a.b}'.format(a=1) }}", ""),
    ("{{ '{!a}'.format({'é':'\\U0001f600\\n'}) }}", "{'\\xe9': '\\U0001f600\\n'}"),
    ("{{ '%a' % ['é'] }}", "['\\xe9']"),
    ("{{ '{:05}'.format('a') }}", "a0000"),
    ("{{ '{:05s}'.format('a') }}", "a0000"),
    ("{{ '{:_x}'.format(70000) }}", "1_1170"),
    ("{{ '{:010,d}'.format(1) }}", "00,000,001"),
    ("{{ '{:09,d}'.format(1) }}", "0,000,001"),
    ("{{ '{:08,d}'.format(1) }}", "0,000,001"),
    ("{{ '{:07,d}'.format(12345) }}", "012,345"),
    ("{{ '{:011_x}'.format(70000) }}", "0_0001_1170"),
    ("{{ '{:012,.2f}'.format(1.5) }}", "0,000,001.50"),
    ("{{ '{:015,d}'.format(1234) }}", "000,000,001,234"),
    ("{{ '{:016,d}'.format(1234) }}", "0,000,000,001,234"),
    ("{{ '{:017,d}'.format(1234) }}", "0,000,000,001,234"),
    ("{{ '{:03,d}'.format(1234) }}", "1,234"),
    ("{{ '{:<05}|{:<05d}|{:^07.1f}'.format('a',1,2.5) }}", "a0000|10000|002.500"),
    ("{{ '{:z.1f}|{:z.1e}|{:.1f}'.format(-0.01,-0.0,-0.01) }}", "0.0|0.0e+00|-0.0"),
    ("{{ '%5s|%-5s|%05d|%+d|% d|%.2s|%5.1s' % ('a','b',3,4,5,'xyz','pq') }}", "    a|b    |00003|+4| 5|xy|    p"),
    ("{{ '%#x|%#o|%.3d|%+.3d|%08.3f|%-8.2e|' % (255,8,5,5,2.5,2.5) }}", "0xff|0o10|005|+005|0002.500|2.50e+00|"),
    ("{{ '{:>5}|{:^5}|{:.2}|{:*^7.2s}'.format('a','b','xyz','pqr') }}", "    a|  b  |xy|**pq***"),
    ("{{ '{:5}|{:<5}|{:,}'.format(true,false,true) }}", "    1|0    |1"),
    ("{{ '{}|{!s:5}|{!r:>5}'.format(none,none,'a') }}", "None|None |  'a'"),
];

/// Formats for which Python raises an error.
const FORMATS_REFUSED: &[&str] = &[
    "{{ '{[0]}'.format([1]) }}",
    "{{ '{.a}'.format({'a':1}) }}",
    "{{ '{:,s}'.format('a') }}",
    "{{ '%5%' % () }}",
    "{{ '%5%|%%' % 1 }}",
    "{{ '%-%' % 1 }}",
    "{{ '%%' % 1 }}",
    "{{ '%(a)%' % {'a':1} }}",
    "{{ '%l%' % () }}",
    "{{ '{0[x]:5}|'.format({}) }}",
    "{{ '{0.x:>5}'.format({}) }}",
    "{{ '{:5}'.format(undef) }}",
    "{{ '{+0}'.format(7) }}",
    "{{ '{0.x.y}'.format({}) }}",
    "{{ '{0[x][y]}'.format({}) }}",
    "{{ '{}{0}'.format(1) }}",
    "{{ '{:,}'.format('a') }}",
    "{{ '{:_s}'.format('a') }}",
    "{{ '{:+s}'.format('a') }}",
    "{{ '{:-s}'.format('a') }}",
    "{{ '{: }'.format('a') }}",
    "{{ '{:#s}'.format('a') }}",
    "{{ '{:z}'.format('a') }}",
    "{{ '{:=5}'.format('a') }}",
    "{{ '{:0=5}'.format('a') }}",
    "{{ '{:,x}'.format(70000) }}",
    "{{ '{:,c}'.format(65) }}",
    "{{ '{:+c}'.format(65) }}",
    "{{ '{:,n}'.format(1) }}",
    "{{ '{:5}'.format(none) }}",
    "{{ '{:5}'.format([1]) }}",
];

#[test]
fn string_format_edge_cases_follow_python() {
    FORMATS.iter().for_each(|(template, expected)| check(template, expected));
    FORMATS_REFUSED.iter().for_each(|template| check_fails(template));
}

#[test]
fn batch_rows_and_range_slices_follow_python() {
    check("{{ [1,2]|batch(0)|list }}", "[[], [1, 2]]");
    check("{{ [1,2,3]|batch(0,'x')|list }}", "[[], [1, 2, 3]]");
    check("{{ [1,2]|batch(1.5)|list }}", "[[1, 2]]");
    check("{{ [1,2,3]|batch(2.0)|list }}", "[[1, 2], [3]]");
    check("{{ [1,2,3]|batch(true)|list }}", "[[1], [2], [3]]");
    check("{{ [1,2,3]|batch('a')|list }}", "[[1, 2, 3]]");
    check("{{ [1,2,3]|batch(none)|list }}", "[[1, 2, 3]]");
    check("{{ []|batch('a')|list }}", "[]");
    check("{{ [1,2,3]|batch(2.5,'x')|list }}", "[[1, 2, 3]]");
    check("{{ [1,2,3]|batch(2.5)|list }}", "[[1, 2, 3]]");
    check("{{ [1,2,3]|batch(-1)|list }}", "[[1, 2, 3]]");
    check("{{ [1,2,3]|batch(-1,'x')|list }}", "[[1, 2, 3]]");
    check("{{ [1]|batch('a')|list }}", "[[1]]");
    check("{{ range(10)[2:8:2] }}", "range(2, 8, 2)");
    check("{{ range(5)[1:] }}", "range(1, 5)");
    check("{{ range(5)[::-1] }}", "range(4, -1, -1)");
    check("{{ range(5)[3:1] }}", "range(3, 1)");
    check("{{ range(5)[10:] }}", "range(5, 5)");
    check("{{ range(0,10,3)[::2] }}", "range(0, 12, 6)");
    check("{{ range(0,10,3)[1:-1] }}", "range(3, 9, 3)");
    check("{{ range(0)[::-1] }}", "range(-1, -1, -1)");
    check("{{ range(3)[0:1] }}", "range(0, 1)");
    check("{{ 'x'|tojson(indent=undef) }}", "\"x\"");
    check("{{ 'x'|tojson(indent=1.5) }}", "\"x\"");
    check("{{ 'x'|tojson(indent=[]) }}", "\"x\"");
    check("{{ strftime_now('a\\0b') }}", "a");
    for refused in [
        "{{ [1,2,3]|batch(2.0,'x')|list }}",
        "{{ [1,2]|batch('a',0)|list }}",
        "{{ [1]|batch('a',0)|list }}",
        "{{ [1]|batch(2.5,0)|list }}",
        "{{ [1]|tojson(indent=undef) }}",
        "{{ []|tojson(indent=undef) }}",
        "{{ 1|tojson(indent=undef) }}",
        "{{ {}|tojson(indent=undef) }}",
        "{{ {'a':1}|tojson(indent=undef) }}",
        "{{ [1]|tojson(indent=1.5) }}",
        "{{ [1]|tojson(indent=[]) }}",
        "{{ 'x'|tojson(separators=undef) }}",
        "{{ [1]|tojson(separators=undef) }}",
    ] {
        check_fails(refused);
    }
}

#[test]
fn long_lines_are_wrapped_like_pythons_textwrap() {
    check("{{ 'é'.isupper()|replace('', '-')|wordwrap(5) }}", "-F-a-\nl-\ns-e-");
    check(
        "{{ 'well-known foo--bar a-b-c--d e-mail x-1-2 --opt a--- -b !-- c ?--d é-éé-é __-__ ab-cd-ef 1-ab ab-1a'|wordwrap(4) }}",
        "well\n-kno\nwn\nfoo\n--\nbar \na-b-\nc--d\ne-\nmail\nx-1-\n2 --\nopt\na---\n-b\n!--\nc ?\n--d \né-\néé-é\n__-\n__\nab-\ncd-\nef\n1-ab\nab-\n1a",
    );
    check("{{ 'aaaa-bbbb-cccc dddd--eeee ffff'|wordwrap(6) }}", "aaaa-\nbbbb-\ncccc\ndddd--\neeee\nffff");
    check("{{ 'aaaa-bbbb-cccc dddd--eeee ffff'|wordwrap(6,false) }}", "aaaa-\nbbbb-\ncccc\ndddd--\neeee\nffff");
    check("{{ 'aaaa-bbbb-cccc dddd--eeee ffff'|wordwrap(6,true,'|',false) }}", "aaaa-b|bbb-cc|cc ddd|d--eee|e ffff");
    check("{{ '   a\\n\\n  bbbbbbbbbb   c  \\n d'|wordwrap(3) }}", "a\n\n  b\nbbb\nbbb\nbbb\nc\n d");
    check("{{ 'a\u{a0}b \u{a0}\u{a0}\u{a0}\u{a0} c'|wordwrap(2) }}", "a\u{a0}\nb \n c");
    check("{{ '-----------'|wordwrap(3) }}", "---\n---\n---\n--");
    check("{{ 'ab-------cd'|wordwrap(3) }}", "ab-\n---\n---\ncd");
    check("{{ 'a-b-c-d-e-f'|wordwrap(1) }}", "a\n-\nb\n-\nc\n-\nd\n-\ne\n-\nf");
    check("{{ '\\t\\t a'|wordwrap(2) }}", " a");
}

#[test]
fn failing_slices_of_constants_are_undefined() {
    check("{{ ('%d-%s'|list is sameas true)[::-1] }}", "");
    check("{{ ({'k': 1})[0:0] }}", "");
    check("{{ (10|d('dd')|slice(3,'f'))[1:] }}", "");
    check("{% if ({})[0:1] is defined %}a{% else %}b{% endif %}", "b");
    check("{{ 'abc'['a':] }}", "");
    check("{{ (none)[1:]|d('x') }}", "x");
    check("{{ [1,2,3][1:]|map('string')|list }}", "['2', '3']");
    check("{{ 1[0:1] ~ 'a' }}", "a");
    check("{{ [({})[0:1]] }}", "[Undefined]");
    check("{{ ({})[0:1] if x else 3 }}", "3");
    check("{{ (({})[0:1]) or 5 }}", "5");
    check("{{ 1 and ({})[0:1] }}", "");
    check("{{ ([1]|batch(1))[0:1]|list }}", "[]");
    check("{{ x[0:1] if false else 'abc'[5:2] }}", "");
    check("{{ ((1,2)[0:1], ({})[1:2])|length }}", "2");
    check("{{ {'a': 1[0:1]} }}", "{'a': Undefined}");
    check(
        "{% set x = 'X' %}{{ (0 or x) ~ 'ab'[1:] }} {{ (1 and x) ~ 'ab'[1:] }} {{ (1 or x) ~ 'ab'[1:] }}",
        "Xb Xb 1b",
    );
    check("{{ {'a': [1][0:1]} }}", "{'a': [1]}");
    for refused in [
        "{% set x = ({})[0:1] %}{{ x }}",
        "{{ 'abc'[::0] }}",
        "{{ (({})[0:1]).x }}",
        "{{ {}[0:1].upper() }}",
        "{{ 'abc'[1:] + x }}",
        "{% for c in ({})[0:1] %}x{% else %}e{% endfor %}",
        "{{ ('abc'|map('upper'))[0:1] }}",
    ] {
        check_fails(refused);
    }
}

#[test]
fn large_integers_and_letter_cases_follow_python() {
    check(
        "{{ 3**100|float }}{{ (3**333)|float }}{{ (-7)**201|float }}",
        "5.153775207320113e+477.609880231320598e+158-7.32328680392005e+169",
    );
    check(
        "{{ ['B','a','\u{130}','i','Σa','σ']|sort }}{{ ['A','a','B']|unique|list }}{{ {'B':1,'a':2}|dictsort }}",
        "['a', 'B', 'i', '\u{130}', 'σ', 'Σa']['A', 'B'][('a', 2), ('B', 1)]",
    );
    let refused = "{{ 10**40|float }}{{ (10**40)*1.5 }}{{ (2**200+1)/3 }}{{ -(10**30)|float }}{{ {10**40: 1}[10**40] }}{{ 10**400 * 1.0 }}";
    check_fails(refused);
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
