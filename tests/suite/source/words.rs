//! The project's prose avoids the phrases of `words.txt`.

use std::fs;
use std::path::{Path, PathBuf};

use tandem_tests::repository;

const SKIPPED_FOLDERS: [&str; 4] = ["target", ".tandem", ".git", "corpus"];
const EXTENSIONS: [&str; 7] = ["rs", "proto", "md", "py", "yaml", "yml", "toml"];

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let extension = path.extension().map(|extension| extension.to_string_lossy().into_owned());
        if path.is_dir() && !path.is_symlink() {
            if !SKIPPED_FOLDERS.contains(&name.as_str()) {
                files(&path, found);
            }
        } else if extension.is_some_and(|extension| EXTENSIONS.contains(&extension.as_str())) {
            found.push(path);
        }
    }
}

/// Returns the prose of a line: comments, and in services' sources string literals too. Pages are
/// prose as a whole.
fn prose<'a>(path: &Path, line: &'a str) -> Vec<&'a str> {
    let extension = path.extension().map(|extension| extension.to_string_lossy().into_owned()).unwrap_or_default();
    let after = |mark: &str| line.find(mark).map(|at| &line[at..]).into_iter().collect::<Vec<_>>();
    match extension.as_str() {
        "md" | "yaml" | "yml" => vec![line],
        "py" | "toml" => after("#"),
        "rs" if !path.starts_with(repository().join("tests")) => {
            let mut found = after("//");
            found.extend(line.split('"').skip(1).step_by(2));
            found
        }
        _ => after("//"),
    }
}

/// Returns the words of a text in lower case, with one space before and after each.
fn words(text: &str) -> String {
    let words = text.split(|char: char| !char.is_alphanumeric() && char != '\'').filter(|word| !word.is_empty());
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
        for (number, line) in (1..).zip(text.lines()) {
            let prose: Vec<String> = prose(path, line).into_iter().map(words).collect();
            let matches = phrases.iter().filter(|phrase| prose.iter().any(|prose| prose.contains(phrase.as_str())));
            let place = path.strip_prefix(repository()).unwrap_or(path).display();
            found.extend(matches.map(|phrase| format!("{place}:{number}:{phrase}")));
        }
    }
    assert!(all.len() > 400, "only {} files were read", all.len());
    eprintln!("{} phrases of the word list in {} files", found.len(), all.len());
    assert!(found.is_empty(), "{} phrases of the word list:\n{}", found.len(), found.join("\n"));
}
