//! The parts of the command line that both programs have: version, completions, manual pages.

use std::collections::BTreeSet;
use std::process::Command;

use tandem_common::program::Build;
use tandem_tests::{binary, repository};
use tempfile::TempDir;

const PROGRAMS: [&str; 2] = ["gen-svc", "render-svc"];

/// Runs a program that must succeed, and returns its standard output.
fn run(name: &str, arguments: &[&str]) -> String {
    let output = Command::new(binary(name)).args(arguments).output().expect("it runs");
    assert!(output.status.success(), "{name} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Returns the long flags in a text.
fn flags(text: &str) -> BTreeSet<String> {
    let is_part = |char: char| char.is_ascii_lowercase() || char == '-';
    let words = text.split(|char| !is_part(char)).filter(|word| word.starts_with("--") && word.len() > 3);
    words.map(str::to_owned).collect()
}

/// Returns the flags of `serve`: its help has one at the start of a line, after spaces.
fn serve_flags(name: &str) -> BTreeSet<String> {
    let help = run(name, &["serve", "--help"]);
    let lines = help.lines().map(str::trim_start).filter(|line| line.starts_with("--"));
    lines.flat_map(|line| flags(line.split(' ').next().unwrap_or_default())).collect()
}

/// Returns the value of a fact of `--version`.
fn fact<'a>(version: &'a str, name: &str) -> &'a str {
    let line = version.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    line.unwrap_or_else(|| panic!("{name}: {version}"))
}

#[test]
fn version_states_the_build() {
    for name in PROGRAMS {
        assert_eq!(run(name, &["-V"]), format!("{name} {}\n", env!("CARGO_PKG_VERSION")));
        let version = run(name, &["--version"]);
        assert_eq!(version.lines().next(), Some(run(name, &["-V"]).trim()));
        let rustc = Command::new("rustc").arg("-vV").output().expect("rustc runs");
        let rustc = String::from_utf8(rustc.stdout).expect("UTF-8");
        assert_eq!(fact(&version, "target"), fact(&rustc, "host"));
        assert!(["debug", "release"].contains(&fact(&version, "profile")) && !fact(&version, "commit").is_empty());
    }
    let manifest = std::fs::read_to_string(repository().join("Cargo.toml")).expect("a manifest");
    let versions = run("render-svc", &["--version"]);
    for library in ["minijinja", "tokenizers"] {
        let pins = manifest.lines().filter(|line| line.starts_with(library) && line.contains("version = \"="));
        let pinned =
            pins.map(|line| line.split_once("version = \"=").expect("pinned").1.split('"').next().expect("a version"));
        let wanted: Vec<_> = pinned.collect();
        assert!(!wanted.is_empty() && wanted.iter().all(|pin| fact(&versions, library).contains(pin)), "{versions}");
    }
    let versions = run("gen-svc", &["--version"]);
    let levels: Vec<_> = tandem_kernels::IsaLevel::available().iter().map(|level| level.name()).collect();
    assert!(levels.contains(&fact(&versions, "kernels on this machine")), "{versions}");
    assert!(fact(&versions, "libtorch").starts_with(|digit: char| digit.is_ascii_digit()), "{versions}");
}

#[test]
fn version_names_the_commit_of_the_build() {
    let build = |commit| Build { name: "x", commit, components: vec![("library", "1.2".to_owned())] }.long_version();
    assert_eq!(fact(&build(Some("0123abc")), "commit"), "0123abc");
    assert_eq!(fact(&build(Some("0123abc")), "library"), "1.2");
    assert_eq!([fact(&build(None), "commit"), fact(&build(Some("")), "commit")], ["unknown"; 2]);
}

#[test]
fn completions_list_every_flag_of_serve() {
    for name in PROGRAMS {
        let wanted = serve_flags(name);
        assert!(wanted.len() > 25, "{wanted:?}");
        for shell in ["bash", "zsh", "fish"] {
            let script = run(name, &["completions", shell]);
            // Fish names a flag without its hyphens.
            let listed = |flag: &String| script.contains(flag) || script.contains(&format!("-l {}", &flag[2..]));
            let missing: Vec<_> = wanted.iter().filter(|flag| !listed(flag)).collect();
            assert!(missing.is_empty(), "{name} {shell}: {missing:?}");
        }
    }
}

#[test]
fn manual_pages_that_cannot_be_written_name_their_folder() {
    for name in PROGRAMS {
        let folder = "/dev/null/pages";
        let output = Command::new(binary(name)).args(["man", folder]).output().expect("it runs");
        let error = String::from_utf8(output.stderr).expect("UTF-8");
        assert!(!output.status.success() && error.starts_with(&format!("{name}: ")), "{error}");
        assert!(error.contains(&format!(" {folder}: ")), "{error}");
    }
}

#[test]
fn manual_pages_name_every_command_and_flag() {
    let folder = TempDir::new().expect("a folder");
    let own: [&[&str]; 2] = [&["serve", "generate"], &["serve", "render", "tokenize", "explain"]];
    for (name, commands) in PROGRAMS.into_iter().zip(own) {
        run(name, &["man", folder.path().to_str().expect("UTF-8")]);
        let page = |file: String| {
            let text =
                std::fs::read_to_string(folder.path().join(&file)).unwrap_or_else(|error| panic!("{file}: {error}"));
            text.replace("\\-", "-")
        };
        let main = page(format!("{name}.1"));
        assert_eq!(run(name, &["man"]).replace("\\-", "-"), main);
        for command in commands.iter().chain(&["check", "completions", "man"]) {
            assert!(main.contains(&format!("{name}-{command}(1)")), "{command}: {main}");
            page(format!("{name}-{command}.1"));
        }
        let (wanted, listed) = (serve_flags(name), flags(&page(format!("{name}-serve.1"))));
        assert!(wanted.is_subset(&listed), "{:?}", wanted.difference(&listed));
    }
}
