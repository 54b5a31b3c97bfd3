//! Every prompt in `tests/golden` equals its golden. A folder has the name of an adapter; a case is
//! a request and a prompt. The README there describes the files.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use render_svc::adapter::Kind;
use render_svc::adapters::ADAPTERS;
use render_svc::catalog::{ModelTable, ServedModel};
use serde_json::{Value, json};
use tandem_tests::{answer, repository};
use tempfile::TempDir;

/// The endings of a case's files: the request, the prompt, and the attachments if there are any.
const REQUEST: &str = "json";
const PROMPT: &str = "txt";
const ATTACHMENTS: &str = "attachments.json";

/// Folders without goldens of prompts.
const OTHER_FOLDERS: [&str; 5] = ["facts", "image_families", "response_templates", "template", "__pycache__"];

/// The files of a case, by ending.
type Files = BTreeMap<String, PathBuf>;

/// A request and its expected result.
#[derive(Debug)]
struct Case {
    request: Value,
    prompt: String,
    /// As in an answer of the command line; null if there are none.
    attachments: Value,
}

/// Returns the folders with goldens of prompts, sorted. The name of each is an adapter's.
fn families() -> Vec<PathBuf> {
    let entries = fs::read_dir(repository().join("tests/golden")).expect("a folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let others = |path: &PathBuf| OTHER_FOLDERS.iter().any(|other| path.ends_with(other));
    let mut families: Vec<_> = paths.filter(|path| path.is_dir() && !others(path)).collect();
    families.sort();
    families
}

fn name(path: &Path) -> String {
    path.file_name().expect("a name").to_str().expect("UTF-8").to_owned()
}

/// Returns the cases of a family by name.
fn cases(family: &Path) -> BTreeMap<String, Result<Case, String>> {
    let mut cases: BTreeMap<String, Files> = BTreeMap::new();
    for entry in fs::read_dir(family).expect("a folder") {
        let path = entry.expect("an entry").path();
        let file = name(&path);
        let (case, ending) = file.split_once('.').unwrap_or((&file, ""));
        cases.entry(case.to_owned()).or_default().insert(ending.to_owned(), path);
    }
    cases.into_iter().map(|(name, files)| (name, case(&files))).collect()
}

fn case(files: &Files) -> Result<Case, String> {
    if let Some(path) = files.iter().find_map(|(ending, path)| (!is_known(ending)).then_some(path)) {
        return Err(format!("{} is no file of a case", name(path)));
    }
    let text = |ending: &str| {
        let path = files.get(ending).ok_or_else(|| format!("has no .{ending}"))?;
        fs::read_to_string(path).map_err(|error| format!(".{ending}: {error}"))
    };
    let json = |ending: &str| serde_json::from_str(&text(ending)?).map_err(|error| format!(".{ending}: {error}"));
    let attachments = files.get(ATTACHMENTS).map_or(Ok(Value::Null), |_| json(ATTACHMENTS))?;
    Ok(Case { request: json(REQUEST)?, prompt: text(PROMPT)?, attachments })
}

fn is_known(ending: &str) -> bool {
    [REQUEST, PROMPT, ATTACHMENTS].contains(&ending)
}

/// Returns a model of these files.
fn model(files: &Value) -> Result<ModelTable, String> {
    let folder = TempDir::new().expect("a temporary folder");
    for (name, content) in files.as_object().ok_or("model is no object of files")? {
        fs::write(folder.path().join(name), content.to_string()).expect("a file");
    }
    ServedModel::load(folder.path()).map(ModelTable::from).map_err(|error| format!("model: {error}"))
}

/// Compares the answer to a case's request with the case. A request without model files pins the
/// adapter. A model of the case's own files must select the adapter.
fn check(family: &str, case: &Case) -> Result<(), String> {
    let mut request = case.request.clone();
    let files = request.as_object_mut().ok_or("the request is no object")?.remove("model");
    if files.is_none() {
        request["adapter"] = family.into();
    }
    let models = model(&files.unwrap_or_else(|| json!({"config.json": {}, "tokenizer_config.json": {}})))?;
    let answer = answer(&models, &request);
    let prompt = answer["prompt"].as_str().ok_or_else(|| format!("no prompt but {answer}"))?;
    if answer["adapter"] != family {
        return Err(format!("{} renders for the model", answer["adapter"]));
    }
    difference(prompt, &case.prompt)?;
    if answer.get("attachments").unwrap_or(&Value::Null) != &case.attachments {
        return Err(format!("attachments: expected {}, found {}", case.attachments, answer["attachments"]));
    }
    Ok(())
}

/// Fails with the position of the first different character, if there is one.
fn difference(found: &str, expected: &str) -> Result<(), String> {
    if found == expected {
        return Ok(());
    }
    let pairs = expected.char_indices().zip(found.chars());
    let equal = pairs.take_while(|((_, expected), found)| expected == found);
    let at = equal.last().map_or(0, |((at, char), _)| at + char.len_utf8());
    let line = expected[..at].matches('\n').count() + 1;
    let shown = |text: &str| text[at..].chars().take(40).collect::<String>();
    Err(format!("byte {at}, line {line}: expected {:?}, found {:?}", shown(expected), shown(found)))
}

/// Returns the number of a family's cases and the failures.
fn failures(family: &Path) -> (usize, Vec<String>) {
    let (cases, family) = (cases(family), name(family));
    let checked = cases.iter().map(|(name, case)| (name, case.as_ref().map_err(Clone::clone)));
    let checked = checked.map(|(name, case)| (name, case.and_then(|case| check(&family, case))));
    let failed = checked.filter_map(|(name, result)| result.err().map(|problem| format!("{family}/{name}: {problem}")));
    (cases.len(), failed.collect())
}

#[test]
fn every_prompt_equals_its_golden() {
    let mut failed = Vec::new();
    for family in families() {
        let (cases, failures) = failures(&family);
        eprintln!("{}: {cases} cases", name(&family));
        assert!(cases > 0, "{} has no cases", family.display());
        failed.extend(failures);
    }
    assert!(failed.is_empty(), "{} goldens differ:\n{}", failed.len(), failed.join("\n"));
}

#[test]
fn every_adapter_has_goldens_except_the_models_own_template() {
    let families: Vec<_> = families().iter().map(|family| name(family)).collect();
    let expected = ADAPTERS.iter().filter(|adapter| adapter.kind != Kind::Template).map(|adapter| adapter.name);
    for name in expected {
        assert!(families.iter().any(|family| family == name), "{name} has no folder in tests/golden");
    }
}

#[test]
fn an_incomplete_or_wrong_golden_fails() {
    let cases: [(&[(&str, &str)], &str); 5] = [
        (&[("a.json", "{}")], "plain/a: has no .txt"),
        (&[("a.txt", "x")], "plain/a: has no .json"),
        (&[("a.json", "{}"), ("a.text", "x")], "plain/a: a.text is no file of a case"),
        (
            &[("a.json", r#"{"messages": [{"role": "user", "content": "né"}]}"#), ("a.txt", "né\n")],
            "plain/a: byte 3, line 1: expected \"\\n\", found \"\"",
        ),
        (
            &[
                ("a.json", r#"{"model": {"config.json": {"model_type": "gemma4"}}, "messages": [{"role": "user"}]}"#),
                ("a.txt", ""),
            ],
            "plain/a: \"gemma-4\" renders for the model",
        ),
    ];
    for (files, expected) in cases {
        let folder = TempDir::new().expect("a temporary folder");
        let family = folder.path().join("plain");
        fs::create_dir(&family).expect("a folder");
        for (name, text) in files {
            fs::write(family.join(name), text).expect("a file");
        }
        assert_eq!(failures(&family), (1, vec![expected.to_owned()]));
    }
}
