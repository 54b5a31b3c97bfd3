//! The project's prose avoids the phrases of `words.txt`.

use std::fs;
use std::iter;
use std::path::{Path, PathBuf};

use tandem_tests::repository;

const SKIPPED_FOLDERS: [&str; 5] = ["target", ".tandem", ".git", "corpus", "node_modules"];
const EXTENSIONS: [&str; 7] = ["rs", "proto", "md", "py", "yaml", "yml", "toml"];

/// Returns true if a file with this extension contains prose. JSON of tests is data.
fn is_prose(path: &Path, extension: &str) -> bool {
    EXTENSIONS.contains(&extension) || (extension == "json" && path.starts_with(repository().join("deploy")))
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let extension = path.extension().map(|extension| extension.to_string_lossy().into_owned());
        if path.is_dir() && !path.is_symlink() {
            if !SKIPPED_FOLDERS.contains(&name.as_str()) {
                files(&path, found);
            }
        } else if extension.is_some_and(|extension| is_prose(&path, &extension)) {
            found.push(path);
        }
    }
}

/// Texts of conversations in tests. They are data, not prose.
const CONVERSATIONS: [&str; 3] = ["Tell me a long story", "What is ", "what was said above"];

/// Returns the prose of a file, with line numbers: pages as a whole; else comments, documentation
/// and string literals.
fn prose<'a>(extension: &str, text: &'a str) -> Vec<(usize, &'a str)> {
    let mut found = Vec::new();
    let mut is_docstring = false;
    for (number, line) in (1..).zip(text.lines()) {
        let after = |mark: &str| line.find(mark).map(|at| (number, &line[at..]));
        match extension {
            "md" | "yaml" | "yml" | "json" => found.push((number, line)),
            "py" => {
                let quotes = line.matches("\"\"\"").count();
                let is_prose = is_docstring || quotes > 0;
                is_docstring ^= quotes % 2 == 1;
                found.extend(if is_prose { Some((number, line)) } else { after("#") });
            }
            "toml" => found.extend(after("#")),
            "rs" => {
                found.extend(after("//"));
                let strings = line.split('"').skip(1).step_by(2);
                let is_data = |text: &&str| CONVERSATIONS.iter().any(|data| text.contains(data));
                found.extend(strings.filter(|text| !is_data(text)).map(|text| (number, text)));
            }
            _ => found.extend(after("//")),
        }
    }
    found
}

/// Returns the words of a text in lower case, with one space before and after each. The names of
/// values, as in `{value}`, are left out.
fn words(text: &str) -> String {
    let mut parts = text.split('{');
    let first = parts.next().unwrap_or_default();
    let rest = parts.map(|part| part.split_once('}').map_or(part, |(_, rest)| rest));
    let is_separator = |char: char| !char.is_alphanumeric() && char != '\'';
    let words = iter::once(first).chain(rest).flat_map(|part| part.split(is_separator)).filter(|word| !word.is_empty());
    words.fold(" ".to_owned(), |all, word| all + &word.to_lowercase() + " ")
}

#[test]
fn prose_avoids_the_phrases_of_the_word_list() {
    let listed = include_str!("words.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let phrases: Vec<String> = listed.map(words).collect();
    let mut all = Vec::new();
    files(repository(), &mut all);
    let mut found = Vec::new();
    for path in &all {
        let text = fs::read_to_string(path).expect("text");
        let extension = path.extension().unwrap_or_default().to_string_lossy();
        let place = path.strip_prefix(repository()).unwrap_or(path).display();
        for (number, prose) in prose(&extension, &text) {
            let prose = words(prose);
            let matches = phrases.iter().filter(|phrase| prose.contains(phrase.as_str()));
            found.extend(matches.map(|phrase| format!("{place}:{number}:{phrase}")));
        }
    }
    assert!(all.len() > 400, "only {} files were read", all.len());
    eprintln!("{} phrases of the word list in {} files", found.len(), all.len());
    assert!(found.is_empty(), "{} phrases of the word list:\n{}", found.len(), found.join("\n"));
}
