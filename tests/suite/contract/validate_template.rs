//! ValidateTemplate, and Render's warnings if a template ignores parts of a conversation.

use tandem_common::pb::chat::v1 as chat;
use tandem_common::pb::render::v1 as pb;
use tandem_common::pb::render::v1::validate_template_response::Outcome;
use tandem_tests::conversations::{conversation, request, serve, text};
use tandem_tests::error_texts;

async fn validated(template: &str) -> Outcome {
    let (_service, mut client) = serve("").await;
    let request = pb::ValidateTemplateRequest { template: template.to_owned() };
    client.validate_template(request).await.expect("an answer").into_inner().outcome.expect("an outcome")
}

async fn problem(template: &str) -> (pb::TemplateProblemKind, u32, String) {
    match validated(template).await {
        Outcome::Problem(problem) => (problem.kind(), problem.line, problem.message),
        Outcome::Template(info) => panic!("valid: {info:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn template_compile_error_names_its_kind_and_line() {
    let (kind, line, syntax) = problem("a\n{% for m in messages %}\n{{ m. }}{% endfor %}").await;
    assert_eq!((kind, line), (pb::TemplateProblemKind::Syntax, 3), "{syntax}");
    let (kind, line, unsupported) = problem("{{ 1 }}\n\n{{ messages | urlize }}").await;
    assert_eq!((kind, line), (pb::TemplateProblemKind::Unsupported, 3));
    let (kind, _, complex) = problem(&format!("{{{{ {} }}}}", "-".repeat(10_000))).await;
    assert_eq!(kind, pb::TemplateProblemKind::TooComplex);
    error_texts::check_rows("validate-template/problem", [syntax, unsupported, complex]);
}

#[tokio::test(flavor = "multi_thread")]
async fn template_with_too_many_tokens_is_refused() {
    let arguments = |count: usize| (0..count).map(|i| format!("a{i}=1,")).collect::<String>();
    let call = |count: usize| format!("{{{{ raise_exception({}) }}}}", arguments(count));
    // Four tokens each. The limit is 65,536.
    assert!(matches!(validated(&call(1_000)).await, Outcome::Template(_)));
    for template in [call(17_000), "{{a}}".repeat(22_000), format!("{{{{ a{} }}}}", "~a".repeat(33_000))] {
        let (kind, _, message) = problem(&template).await;
        assert_eq!(kind, pb::TemplateProblemKind::TooComplex, "{message}");
        assert!(message.contains("tokens"), "{message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn valid_template_reports_its_inputs_and_capabilities() {
    let template = "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}{% for c in m.tool_calls %}\
                    {{ c.function.arguments | items | list }}{% endfor %}<think>{% endfor %}";
    let Outcome::Template(info) = validated(template).await else { panic!("it compiles") };
    assert!(info.reads_tools && !info.reads_documents);
    assert_eq!(info.tool_arguments(), pb::ToolArguments::Object);
    let capabilities: Vec<_> = info.capabilities().collect();
    let expected =
        [pb::Capability::SupportsSystemRole, pb::Capability::SupportsToolCalls, pb::Capability::SupportsReasoning];
    assert_eq!(capabilities, expected);
    assert_eq!(info.sha256.len(), 64);
}

/// Returns the warnings of rendering a template for a conversation with tools, documents, two
/// template arguments and a tool call.
async fn warnings(template: &str, arguments_json: &str) -> Vec<(pb::WarningCode, String)> {
    let (_service, mut client) = serve(template).await;
    let call = chat::ToolCall { id: None, name: "f".to_owned(), arguments_json: arguments_json.to_owned() };
    let conversation = chat::Conversation {
        tools: vec![chat::Tool { kind: Some(chat::tool::Kind::ToolJson("{}".to_owned())) }],
        documents: vec![chat::Document { document_json: "{}".to_owned() }],
        template_args_json: Some(r#"{"known": 1, "unknown": 2}"#.to_owned()),
        ..conversation(vec![chat::ChatMessage { tool_calls: vec![call], ..text("assistant", "") }])
    };
    let response = client.render(request(conversation)).await.expect("renders").into_inner();
    response.warnings.into_iter().map(|warning| (warning.code(), warning.path)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn inputs_the_template_never_reads_cause_warnings() {
    let warnings = warnings("{{ known }}", "{}").await;
    let expected = [
        (pb::WarningCode::ToolsIgnored, "conversation.tools".to_owned()),
        (pb::WarningCode::DocumentsIgnored, "conversation.documents".to_owned()),
        (pb::WarningCode::TemplateArgUnknown, "conversation.template_args_json".to_owned()),
        (pb::WarningCode::ToolCallsIgnored, "conversation.messages[0].tool_calls[0]".to_owned()),
    ];
    assert_eq!(warnings, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn tool_arguments_of_the_wrong_type_cause_a_warning() {
    let showing = |arguments: &str| {
        let shown =
            "{{ known }}{{ unknown }}{{ documents }}{{ tools }}{% for m in messages %}{% for c in m.tool_calls %}";
        format!(
            "{shown}{{% set a = c.function.arguments %}}{{{{ c.function.name }}}}{arguments}{{% endfor %}}{{% endfor %}}"
        )
    };
    let arguments = "conversation.messages[0].tool_calls[0].arguments_json";
    let wrong = [(pb::WarningCode::ToolArgumentsType, arguments.to_owned())];
    let wants_object = showing("{{ a | tojson }}");
    assert_eq!(warnings(&wants_object, r#""{}""#).await, wrong);
    assert_eq!(warnings(&wants_object, "{}").await, []);
    let wants_text = showing("{{ '>' + a }}");
    assert_eq!(warnings(&wants_text, r#""{}""#).await, []);
    let takes_both = showing("{% if a is string %}{{ a }}{% else %}{{ a | tojson }}{% endif %}");
    assert_eq!(warnings(&takes_both, r#""{}""#).await, []);
    assert_eq!(warnings(&takes_both, "{}").await, []);
}
