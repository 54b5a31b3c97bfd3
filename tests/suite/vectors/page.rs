//! The program of `proto/clients/rust.md`, built as a separate package.

use std::path::{Path, PathBuf};
use std::process::Command;

use tandem_tests::repository;

use super::servers::Servers;

const TOOL: &str = r#"{"type": "function", "function": {"name": "weather", "parameters":
    {"type": "object", "properties": {"city": {"const": "Paris"}}, "required": ["city"]}}}"#;

/// Returns the page's files: its blocks of code in TOML and Rust.
fn files(page: &str) -> Vec<&str> {
    let blocks = page.split("\n```").skip(1).step_by(2).filter_map(|block| block.split_once('\n'));
    blocks.filter(|(language, _)| ["toml", "rust"].contains(language)).map(|(_, code)| code).collect()
}

fn write(folder: &Path, name: &str, text: &str) {
    std::fs::write(folder.join(name), text).expect("the folder is writable");
}

/// Builds the package of the page with the workspace's versions. Returns its program.
fn build(folder: &Path) -> PathBuf {
    let page = std::fs::read_to_string(repository().join("proto/clients/rust.md")).expect("rust.md");
    let [manifest, script, program] = files(&page)[..] else { panic!("rust.md has three files") };
    std::fs::create_dir_all(folder.join("src")).expect("the folder is writable");
    write(folder, "Cargo.toml", &format!("{manifest}\n\n[workspace]\n"));
    write(folder, "build.rs", script);
    write(folder, "src/main.rs", program);
    write(folder, "Cargo.lock", &std::fs::read_to_string(repository().join("Cargo.lock")).expect("the lock file"));
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--offline", "--target-dir"]).arg(folder.join("target")).current_dir(folder);
    let status = cargo.env("PROTOS", repository().join("proto")).status().expect("cargo");
    assert!(status.success(), "{status}");
    folder.join("target/debug/ask")
}

/// Runs the program with a question, and with a tool if there is one. Returns its output.
async fn answer(program: &Path, address: &str, tool: Option<&str>) -> String {
    let mut command = Command::new(program);
    command.args([address, "hi"]).envs(tool.map(|tool| ("TOOL", tool)));
    let output = tokio::task::spawn_blocking(move || command.output()).await.expect("it runs").expect("a program");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "builds tonic; part of `cargo xtask test --clients`"]
async fn the_program_of_the_page_answers() {
    let program = build(&repository().join(".tandem/rust-page"));
    let mut servers = Servers::new();
    let task = servers.start("task").await;
    let text = answer(&program, task.address_of("TaskService.RunTask"), None).await;
    assert!(!text.trim().is_empty());
    let calling = servers.start("calling").await;
    let called = answer(&program, calling.address_of("TaskService.RunTask"), Some(TOOL)).await;
    assert!(called.contains("\ncalls weather {\"city\": \"Paris\"}\n"), "{called}");
}
