//! JSON schemas as grammars: white space, formats, references and numbers.

use serde_json::{Value, json};
use tandem_core::error::RequestError;
use tandem_core::grammar::{Grammar, GrammarKind, Grammars, Whitespace};
use tandem_core::request::ServedModel;
use tandem_tests::error_texts;
use tandem_tests::served_model::served_with_all_tokens;

fn schema(schema: &Value, whitespace: Whitespace) -> Grammar {
    Grammar { kind: GrammarKind::JsonSchema(schema.to_string()), whitespace }
}

/// Returns true if a grammar allows this text, as a whole or as the start of a longer one.
fn allows(model: &ServedModel, grammar: &Grammar, text: &str) -> bool {
    let grammars: &Grammars = &model.grammars;
    let compiled = grammars.compile(grammar).unwrap_or_else(|error| panic!("{grammar:?}: {}", error.chain()));
    let ids = model.tokenizer.encode(text, false).expect("ids");
    match grammars.resume(compiled, &ids) {
        Ok(_) => true,
        Err(RequestError::Invalid { problem, .. }) if problem.contains("ended") => true,
        Err(RequestError::Invalid { problem, .. }) if problem.contains("follow") => false,
        Err(error) => panic!("{}", error.chain()),
    }
}

#[test]
fn white_space_between_tokens_of_json_is_bounded_absent_or_free() {
    let model = served_with_all_tokens();
    let pair = json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]});
    let lark = format!("start: \"%json \" %json {pair} // %json in a comment");
    let texts = [
        ("{\"a\":1}", [true, true, true]),
        ("{\"a\": 1}", [true, false, true]),
        ("{\n    \"a\": 1\n}", [true, false, true]),
        ("{\r\n\t\"a\": 1\r\n}", [true, false, true]),
        ("{\n\n\"a\":1}", [true, false, true]),
        ("{\"a\":  1}", [false, false, true]),
        ("{\n\n\n\"a\":1}", [false, false, true]),
        (&format!("{{\n{}\"a\":1}}", " ".repeat(40)), [true, false, true]),
        (&format!("{{\n{}\"a\":1}}", " ".repeat(41)), [false, false, true]),
    ];
    for (text, expected) in texts {
        for (whitespace, expected) in
            [Whitespace::Bounded, Whitespace::Nothing, Whitespace::Free].into_iter().zip(expected)
        {
            assert_eq!(allows(&model, &schema(&pair, whitespace), text), expected, "{whitespace:?} {text:?}");
            let lark = Grammar { kind: GrammarKind::Lark(lark.clone()), whitespace };
            assert_eq!(allows(&model, &lark, &format!("%json {text}")), expected, "in Lark, {whitespace:?} {text:?}");
        }
    }
}

/// The schemas of usual generators: of pydantic, of TypeScript, C# and Java.
#[test]
fn annotations_escaped_references_and_wide_bounds_are_accepted() {
    let model = served_with_all_tokens();
    let cases = [
        (json!({"type": "string", "format": "password"}), "\"x\"", "1"),
        (
            json!({"properties": {"format": {"type": "string", "format": "binary"}}, "type": "object"}),
            "{\"format\":\"x\"}",
            "{\"format\":1}",
        ),
        (json!({"type": "string", "format": "date"}), "\"2025-07-04\"", "\"x"),
        (json!({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"type": "boolean"}}}), "true", "1"),
        (
            json!({"$ref": "#/definitions/Pair%3Cstring%3E", "definitions": {"Pair<string>": {"type": "null"}}}),
            "null",
            "1",
        ),
        (
            json!({"$ref": "#/$defs/list~0", "$defs": {"list~": {"type": "array", "items": {"$ref": "#/$defs/list~0"}}}}),
            "[[],[[]]]",
            "[1",
        ),
        (
            json!({"type": "integer", "minimum": i64::MIN, "maximum": i64::MAX}),
            "-9223372036854774784",
            "9223372036854775808",
        ),
        (json!({"type": "integer", "minimum": 0, "maximum": u64::MAX}), "9223372036854775807", "-1"),
        (json!({"type": "integer", "minimum": i64::MIN}), "12", "1.5"),
        (json!({"type": "string", "minLength": 1.0, "maxLength": 2.0}), "\"ab\"", "\"abc"),
        (json!({"type": "string", "pattern": r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$"}), "\"-1.5\"", "\"+.\""),
        (json!({"const": (1_u64 << 53)}), "9007199254740992", "9007199254740993"),
        (json!({"enum": [i64::MAX, "x"]}), "9223372036854775807", "9223372036854775806"),
        (json!({"type": "integer", "exclusiveMinimum": -5, "exclusiveMaximum": -3, "minimum": -9}), "-4", "-5"),
        (
            json!({"type": ["integer", "null"], "exclusiveMinimum": 9_007_199_254_740_993_u64, "maximum": 9_007_199_254_740_996_u64}),
            "9007199254740994",
            "9007199254740993",
        ),
        // As in OpenAPI, and a schema inside an annotation.
        (
            json!({
                "properties": {"id": {"$ref": "#/components/schemas/Id"}},
                "required": ["id"],
                "components": {"schemas": {
                    "Id": {"anyOf": [{"$ref": "#/components/schemas/Text"}, {"type": "null"}]},
                    "Text": {"type": "string", "format": "password", "maxLength": 3},
                }},
            }),
            "{\"id\":\"abc\"}",
            "{\"id\":\"abcd\"}",
        ),
        (
            json!({"$ref": "#/x/0", "x": [{"type": "integer", "minimum": i64::MIN}], "$defs": {"reference-0": {}}}),
            "12",
            "x",
        ),
    ];
    for (case, allowed, refused) in cases {
        let grammar = schema(&case, Whitespace::Nothing);
        assert!(allows(&model, &grammar, allowed), "{case} refuses {allowed}");
        assert!(!allows(&model, &grammar, refused), "{case} allows {refused}");
    }
}

#[test]
fn integers_that_would_be_rounded_and_settings_of_the_library_are_refused() {
    let model = served_with_all_tokens();
    let cases = [
        r#"{"const": 9007199254740993}"#,
        r#"{"properties": {"id": {"enum": [1, 1234567890123456789]}}}"#,
        r#"{"items": {"const": {"ids": [76561198000000001]}}}"#,
        r#"{"type": "integer", "minimum": 1234567890123456789}"#,
        r#"{"type": "number", "maximum": -1234567890123456789}"#,
        r#"{"const": 18446744073709551615}"#,
        r#"{"const": 123456789012345678901234567890}"#,
        r#"{"type": "integer", "minimum": 9223372036854775808}"#,
        r#"{"x-guidance": {"whitespace_pattern": "abc"}, "type": "object"}"#,
        r#"{"anyOf": [{"type": "null"}, {"x-guidance": {}}]}"#,
        r##"{"$ref": "#/components/schemas/Id", "components": {"schemas": {"Id": {"enum": [76561198000000001]}}}}"##,
        r##"{"$ref": "#/$defs/a/b", "$defs": {"a": {"b": {"const": 9007199254740993}}}}"##,
        r#"{"type": "integer", "exclusiveMinimum": 9007199254740992}"#,
        r#"{"type": "integer", "exclusiveMaximum": -9007199254740992}"#,
    ];
    let refuse = |kind: GrammarKind| {
        let error = model.grammars.compile(&kind.into()).expect_err("it is refused");
        assert!(
            matches!(&error, RequestError::Invalid { field, .. } if field.to_string().starts_with("grammar.")),
            "{error:?}"
        );
        error
    };
    let schemas = cases.map(|case| refuse(GrammarKind::JsonSchema(case.to_owned())));
    let larks = ["start: %json {\"const\": 9007199254740993}", "start: %json", "start: %json {"];
    let larks = larks.map(|text| refuse(GrammarKind::Lark(text.to_owned())));
    error_texts::check_rows("grammar/json", schemas.into_iter().chain(larks));
}
