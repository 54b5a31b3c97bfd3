//! The examples of each language: marked parts of the programs that the suites run.

use std::fs;

use tandem_tests::repository;

/// A language: its name, its name in Markdown, and the file with its examples.
const LANGUAGES: [(&str, &str, &str); 5] = [
    ("Python", "python", "tests/clients/python/examples.py"),
    ("TypeScript", "ts", "tests/clients/typescript/src/examples.ts"),
    ("Go", "go", "tests/clients/go/examples_test.go"),
    ("Java", "java", "tests/clients/java/src/test/java/tandem/contract/Examples.java"),
    ("Rust", "rust", "tests/suite/vectors/examples.rs"),
];

/// The files with the examples, in the order of `LANGUAGES`.
pub(super) struct Examples(Vec<String>);

impl Examples {
    pub(super) fn read() -> Self {
        let read = |path| fs::read_to_string(repository().join(path)).expect("a file with examples");
        Self(LANGUAGES.iter().map(|(_, _, path)| read(path)).collect())
    }

    /// Returns an example in each language, as Markdown. `name` is that of a method, or `start`.
    pub(super) fn markdown(&self, name: &str) -> String {
        let one = |((language, markup, path), source): (&(&str, &str, &str), &String)| {
            let code = part(source, name);
            assert!(!code.is_empty(), "{path} has no example of {name}");
            format!("<details><summary>{language}</summary>\n\n```{markup}\n{code}\n```\n\n</details>\n")
        };
        LANGUAGES.iter().zip(&self.0).map(one).collect()
    }
}

/// Returns the lines between each `[name]` and the next `[end]`, without their common indentation.
fn part(source: &str, name: &str) -> String {
    let mark = format!("[{name}]");
    let mut lines = Vec::new();
    let mut is_inside = false;
    for line in source.lines() {
        let comment = line.trim_start().trim_start_matches(['/', '#']).trim();
        if comment == mark {
            is_inside = true;
        } else if comment == "[end]" {
            is_inside = false;
        } else if is_inside {
            lines.push(line);
        }
    }
    let filled = lines.iter().filter(|line| !line.trim().is_empty());
    let indent = filled.map(|line| line.len() - line.trim_start().len()).min().unwrap_or_default();
    let cut: Vec<_> = lines.iter().map(|line| line.get(indent..).unwrap_or_default()).collect();
    cut.join("\n").trim().to_owned()
}
