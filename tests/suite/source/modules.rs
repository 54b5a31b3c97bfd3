//! No crate has modules that import each other, directly or through others.

use std::fs;
use std::path::{Path, PathBuf};

use tandem_tests::module_graph::{Edges, cycles, edges};
use tandem_tests::repository;
use tempfile::TempDir;

/// Folders that are not part of the source.
const SKIPPED_FOLDERS: [&str; 4] = ["target", ".tandem", ".git", "fuzz"];

/// Finds the root file of every crate below a folder. It is `src/lib.rs`, else `src/main.rs`, in a
/// folder with a Cargo.toml.
fn roots(folder: &Path) -> Vec<PathBuf> {
    let candidates = ["src/lib.rs", "src/main.rs"].map(|name| folder.join(name));
    let mut found: Vec<PathBuf> = candidates.into_iter().filter(|path| path.is_file()).take(1).collect();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if path.is_dir() && !path.is_symlink() && !SKIPPED_FOLDERS.contains(&name.as_str()) {
            found.extend(roots(&path));
        }
    }
    found
}

/// Returns the imports of a cycle: the importing file, the imported file, and the names.
fn explain(edges: &Edges, cycle: &[PathBuf]) -> String {
    let lines = cycle.iter().flat_map(|file| {
        let targets = edges[file].iter().filter(|(target, _)| cycle.contains(target));
        targets.map(move |(target, names)| format!("  {} -> {}: {names:?}\n", shown(file), shown(target)))
    });
    lines.collect()
}

fn shown(file: &Path) -> String {
    file.strip_prefix(repository()).unwrap_or(file).display().to_string()
}

#[test]
fn no_crate_has_an_import_cycle() {
    let (mut report, mut files) = (String::new(), 0);
    let roots = roots(repository());
    for root in &roots {
        let edges = edges(root);
        files += edges.len();
        for cycle in cycles(&edges) {
            report += &format!("{} files of {}:\n{}", cycle.len(), shown(root), explain(&edges, &cycle));
        }
    }
    assert!(roots.len() >= 8 && files > 200, "only {files} files of {} crates were read", roots.len());
    eprintln!("{} crates, {files} files that import others", roots.len());
    assert!(report.is_empty(), "modules import each other in a circle:\n{report}");
}

/// Cycles through a parent, a re-export and a macro are found. A re-export alone is not a cycle.
#[test]
fn a_cycle_is_found_through_re_exports_and_macros() {
    let cases = [
        ("mod a; mod b; pub use b::B;", "use super::B; pub struct A;", "pub struct B;", 0),
        ("mod a; mod b; pub use b::B;", "use super::B; pub struct A;", "pub struct B(super::a::A);", 1),
        ("mod a; mod b; pub struct R;", "use crate::R;", "fn f() { println!(\"{}\", super::a::X); }", 0),
        ("mod a; mod b; pub struct R(a::A);", "pub struct A; fn f() { g!(crate::R) }", "", 1),
        ("mod a; mod b;", "use super::b::*; pub const C: u8 = 1;", "const D: u8 = crate::a::C;", 1),
    ];
    for (root, a, b, expected) in cases {
        let folder = TempDir::new().expect("a temporary folder");
        for (name, text) in [("lib.rs", root), ("a.rs", a), ("b.rs", b)] {
            fs::write(folder.path().join(name), text).expect("a file");
        }
        assert_eq!(cycles(&edges(&folder.path().join("lib.rs"))).len(), expected, "{root} | {a} | {b}");
    }
}
