//! No crate has modules that import each other, directly or through others.

use std::fs;
use std::path::{Path, PathBuf};

use tandem_tests::module_graph::{Edges, cycles, edges, joined};
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

/// Returns the cycles of a graph as lines. Empty if there are none.
fn report(root: &Path, nodes: &str, edges: &Edges) -> String {
    let found = cycles(edges);
    let lines =
        found.iter().map(|cycle| format!("{} {nodes} of {}:\n{}", cycle.len(), shown(root), explain(edges, cycle)));
    lines.collect()
}

/// Neither files nor top-level modules import each other in a circle.
#[test]
fn no_crate_has_an_import_cycle() {
    let (mut found, mut files) = (String::new(), 0);
    let roots = roots(repository());
    for root in &roots {
        let edges = edges(root);
        files += edges.len();
        found += &report(root, "files", &edges);
        found += &report(root, "modules", &joined(&edges, root.parent().expect("a folder")));
    }
    assert!(roots.len() >= 8 && files > 200, "only {files} files of {} crates were read", roots.len());
    eprintln!("{} crates, {files} files that import others", roots.len());
    assert!(found.is_empty(), "modules import each other in a circle:\n{found}");
}

/// Helpers that two areas need are in `tests/src` or `tests/full/src`.
#[test]
fn no_area_of_the_suite_imports_another() {
    let folder = repository().join("tests/suite");
    for name in ["light.rs", "full.rs"] {
        let root = folder.join(name);
        let edges = edges(&root);
        let areas = joined(&edges, &folder);
        let imports: Vec<_> = areas
            .keys()
            .map(|area| explain(&areas, &areas.keys().chain(areas[area].keys()).cloned().collect::<Vec<_>>()))
            .collect();
        assert!(edges.len() > 2, "only {} files of {name} were read", edges.len());
        assert!(areas.is_empty(), "areas import each other:\n{}", imports.concat());
    }
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

/// The files `a.rs` and `b/inner.rs` import each other only through their modules.
#[test]
fn a_cycle_is_found_between_top_level_modules() {
    let files = [
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "mod inner; pub struct A(crate::b::B);"),
        ("a/inner.rs", "pub struct Inner;"),
        ("b.rs", "mod inner; pub struct B;"),
        ("b/inner.rs", "use crate::a::inner::Inner;"),
    ];
    let folder = TempDir::new().expect("a temporary folder");
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    }
    let edges = edges(&folder.path().join("lib.rs"));
    assert_eq!(cycles(&edges).len(), 0, "files");
    assert_eq!(cycles(&joined(&edges, folder.path())).len(), 1, "modules");
}

/// Returns the source files and the manifests below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let below = paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] });
    below.filter(|path| path.extension().is_some_and(|extension| extension == "rs" || extension == "toml")).collect()
}

/// The core can be built without libtorch: it uses backends through their port.
#[test]
fn only_one_crate_names_libtorch() {
    let folders = ["gen-svc", "common", "render-svc", "deploy/chat"];
    let torch = repository().join("gen-svc/torch");
    let is_of_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let names_libtorch = |file: &PathBuf| {
        let text = fs::read_to_string(file).expect("a text");
        let is_word = |at: usize, word: &str| {
            let (before, after) = (&text.as_bytes()[..at], &text.as_bytes()[at + word.len()..]);
            !before.last().is_some_and(|&byte| is_of_word(byte)) && !after.first().is_some_and(|&byte| is_of_word(byte))
        };
        ["tch", "torch_sys", "torch-sys"].iter().any(|word| text.match_indices(word).any(|(at, _)| is_word(at, word)))
    };
    let files: Vec<PathBuf> = folders.iter().flat_map(|folder| files(&repository().join(folder))).collect();
    let (of_torch, others): (Vec<_>, Vec<_>) = files.into_iter().partition(|file| file.starts_with(&torch));
    let naming: Vec<_> = others.iter().filter(|file| names_libtorch(file)).collect();
    assert!(others.len() > 400 && naming.is_empty(), "of {} files, these name libtorch: {naming:?}", others.len());
    assert!(of_torch.iter().any(names_libtorch), "the crate of libtorch is looked for elsewhere");
}
