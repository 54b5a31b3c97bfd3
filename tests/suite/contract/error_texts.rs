//! The golden file of error texts has one text per case, and a test for each case.
//!
//! This module also checks the texts of errors that other tests do not cause.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use render_svc::error::Error;
use tandem_common::call::Credentials;
use tandem_common::serve::ServeError;
use tandem_common::status::{Failure, chain};
use tandem_common::telemetry::ExportError;
use tandem_model_files::tokenizer::TokenizerError;
use tandem_tests::{error_texts, repository};

#[test]
fn every_error_case_has_exactly_one_text() {
    let mut cases = BTreeMap::new();
    for (case, text) in error_texts::all() {
        assert!(case.contains('/') && !text.trim().is_empty(), "{case}: {text}");
        assert_eq!(cases.insert(case, text), None, "a case occurs twice");
    }
}

#[test]
fn every_case_is_named_by_a_test_or_a_fact() {
    let mut sources = Vec::new();
    for folder in ["tests/suite", "tests/src", "tests/full/src"] {
        read_sources(&repository().join(folder), &mut sources);
    }
    let facts = fs::read_dir(repository().join("tests/golden/template")).expect("the facts about templates");
    let stem = |path: &Path| path.file_stem().expect("a name").to_string_lossy().into_owned();
    sources.extend(facts.map(|fact| format!("\"template/{}\"", stem(&fact.expect("an entry").path()))));
    let cases = error_texts::all();
    let unnamed: Vec<_> =
        cases.iter().map(|(case, _)| without_row(case)).filter(|case| !is_named(&sources, case)).collect();
    assert!(unnamed.is_empty(), "remove these from tests/golden/error_texts.txt: {unnamed:?}");
}

/// Returns true if a source contains the case as a literal, or formats its area and contains the
/// rest as a literal.
fn is_named(sources: &[String], case: &str) -> bool {
    let (area, rest) = case.split_once('/').expect("a case has an area");
    let whole = format!("\"{case}\"");
    let (area, rest) = (format!("\"{area}/{{"), format!("\"{rest}\""));
    sources.iter().any(|source| source.contains(&whole) || source.contains(&area) && source.contains(&rest))
}

/// Returns a case without the number of its row.
fn without_row(case: &str) -> &str {
    match case.rsplit_once('/') {
        Some((before, row)) if before.contains('/') && row.bytes().all(|byte| byte.is_ascii_digit()) => before,
        _ => case,
    }
}

fn read_sources(folder: &Path, sources: &mut Vec<String>) {
    for entry in fs::read_dir(folder).expect("a folder of tests is readable") {
        let path = entry.expect("a folder of tests is readable").path();
        if path.is_dir() {
            read_sources(&path, sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            sources.push(fs::read_to_string(path).expect("a source file is readable"));
        }
    }
}

#[test]
fn an_error_of_rendering_has_one_text_for_its_caller() {
    let errors = [
        Error::ModelNotNamed { known: vec!["a".to_owned(), "b".to_owned()] },
        Error::ModelNotNamed { known: Vec::new() },
        Error::BatchResultsTooLarge { limit: 8 },
        Error::Tokenizer(TokenizerError::TooLong { bytes: 9, limit: 8 }),
        Error::Tokenizer(TokenizerError::Encode { reason: "the reason".to_owned() }),
        Error::ImagesNotSupported,
        Error::NoGenerationService,
        Error::GenerationUnavailable { message: "the cause".to_owned() },
        Error::DeadlineExceeded,
        Error::TemplateNotFound { template: "rag".to_owned(), known: Vec::new() },
    ];
    let texts = errors.each_ref().map(|error| {
        let failure = Failure::from(error);
        format!("{}: {}", failure.reason().name(), failure.message())
    });
    error_texts::check_rows("render/failure", texts);
}

#[test]
fn an_error_of_a_setting_has_one_text_for_the_operator() {
    let cause = || std::io::Error::other("the cause");
    let address = "127.0.0.1:80".parse().expect("an address");
    let serving =
        [ServeError::Listen { address, source: cause() }, ServeError::Signal(cause())].map(|error| chain(&error));
    error_texts::check_rows("serve/error", serving);
    let exporting = [
        ExportError::Authority { path: "ca.pem".into(), source: cause() },
        ExportError::NoAuthority,
        ExportError::Ratio("2".into()),
    ]
    .map(|error| chain(&error));
    error_texts::check_rows("telemetry/error", exporting);
    let credentials = Credentials { ca: Some("ca.pem".into()), ..Credentials::default() };
    let error = credentials.endpoint(&"http://host".parse().expect("a URI"), address).expect_err("http has no TLS");
    error_texts::check("call/credentials", chain(&error));
    let none = Credentials::default();
    let error = none.endpoint(&"https://host".parse().expect("a URI"), address).expect_err("https has authorities");
    error_texts::check("call/no-authorities", chain(&error));
}
