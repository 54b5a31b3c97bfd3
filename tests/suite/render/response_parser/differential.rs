//! The parser of answers compared with live transformers, on random templates and answers.
//!
//! `differential/answers.py` makes the cases, with transformers' results. TANDEM_DIFFERENTIAL_ANSWERS names the
//! resulting files. `cargo xtask test --differential` runs all of this.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::Arc;

use render_svc::parse::{Fault, PatternError, Template, TemplateError, Value};
use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::parsed::{Parsed, parsed};

/// The maximum number of differing cases that are printed.
const SHOWN: usize = 5;

/// A template with cases.
#[derive(Debug, Deserialize)]
struct Group {
    template: Json,
    /// `load` if transformers cannot load the template.
    fails: Option<Json>,
    /// True if transformers loads the template, but one of its patterns has no search in linear time.
    #[serde(default)]
    refused: bool,
    cases: Vec<Case>,
}

/// An answer in pieces, with transformers' results.
#[derive(Debug, Deserialize)]
struct Case {
    prompt: String,
    tools: Vec<Json>,
    pieces: Vec<String>,
    events: Vec<Json>,
    message: Option<Json>,
    last: Option<Json>,
    fails: Option<Json>,
}

/// Returns true if the template is refused for a construct that Python's `regex` accepts.
fn is_refusal(error: &TemplateError) -> bool {
    match error {
        TemplateError::Pattern { source, .. } | TemplateError::Argument(Fault::Pattern { source, .. }) => {
            matches!(source, PatternError::Refused { .. })
        }
        _ => false,
    }
}

impl Group {
    /// Returns the differences of the template, or of its cases.
    fn differences(self) -> Vec<String> {
        let text = self.template.to_string();
        let loaded = Template::new(&Value::from(&self.template));
        let template = match loaded {
            Err(error) if self.refused && is_refusal(&error) => return Vec::new(),
            Err(_) if self.fails.is_some() => return Vec::new(),
            Ok(template) if self.fails.is_none() && !self.refused => Arc::new(template),
            loaded => {
                let loaded = loaded.map(|_| "loaded");
                return vec![format!("{text}\n  fails {:?}, refused {}\n  {loaded:?}", self.fails, self.refused)];
            }
        };
        self.cases.into_iter().filter_map(|case| case.difference(&text, &template)).collect()
    }
}

impl Case {
    fn difference(self, text: &str, template: &Arc<Template>) -> Option<String> {
        let Self { prompt, tools, pieces, events, message, last, fails } = self;
        let found = parsed(template, &prompt, &pieces, &tools);
        let expected = Parsed { events, message, last, fails };
        let given = json!({"prompt": prompt, "tools": tools, "pieces": pieces});
        (found != expected).then(|| format!("{text}\n  {given}\n  expected {expected:?}\n  parsed   {found:?}"))
    }
}

/// Returns the differences of one file, and the number of all its cases.
fn compare(path: &Path) -> (Vec<String>, usize) {
    let mut differences = Vec::new();
    let mut count = 0;
    for line in BufReader::new(File::open(path).expect("the cases can be read")).lines() {
        let group: Group = serde_json::from_str(&line.expect("a line")).expect("a template with cases");
        count += group.cases.len().max(1);
        differences.extend(group.differences());
    }
    (differences, count)
}

#[test]
#[ignore = "needs cases that transformers has parsed"]
fn random_answers_are_read_as_by_transformers() {
    let paths = std::env::var_os("TANDEM_DIFFERENTIAL_ANSWERS");
    let paths = paths.expect("TANDEM_DIFFERENTIAL_ANSWERS names files of cases");
    let mut all = Vec::new();
    for path in std::env::split_paths(&paths) {
        let (differences, count) = compare(&path);
        eprintln!("{}: {count} cases, {} differ", path.display(), differences.len());
        all.extend(differences);
    }
    all.sort_by_key(String::len);
    let shown = all.iter().take(SHOWN).cloned().collect::<Vec<_>>().join("\n");
    assert!(all.is_empty(), "{} cases differ, of which the shortest:\n{shown}", all.len());
}
