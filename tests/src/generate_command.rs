//! The commands `gen-svc generate` and `render-svc render`.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::files::binary;

/// Runs `gen-svc generate` on a model with this standard input.
///
/// # Panics
/// If the program does not run.
#[must_use]
pub fn generate_with(model: &Path, arguments: &[&str], input: &[u8]) -> Output {
    generate_by(&binary("gen-svc"), model, arguments, input)
}

/// As [`generate_with`], with another program.
///
/// # Panics
/// If the program does not run.
#[must_use]
pub fn generate_by(program: &Path, model: &Path, arguments: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(program)
        .arg("generate")
        .arg("--model")
        .arg(model)
        .args(["--dtype", "f32"])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("gen-svc starts");
    child.stdin.take().expect("a pipe").write_all(input).expect("gen-svc reads");
    child.wait_with_output().expect("gen-svc ends")
}

/// Returns the answers. If one is an error, the program must fail and count the errors.
///
/// # Panics
/// If they are not as said.
#[must_use]
pub fn answers(output: &Output) -> Vec<Value> {
    let text = |bytes| std::str::from_utf8(bytes).expect("UTF-8");
    let line = |line| serde_json::from_str(line).expect("a JSON line");
    let (answers, errors): (Vec<Value>, _) = (text(&output.stdout).lines().map(line).collect(), text(&output.stderr));
    let failed = answers.iter().filter(|answer| answer["error"].is_object()).count();
    assert_eq!(output.status.code(), Some(i32::from(failed > 0)), "{errors}");
    if failed > 0 {
        assert!(errors.ends_with(&format!("gen-svc: {failed} of {} requests failed\n", answers.len())), "{errors}");
    }
    answers
}

/// Renders conversations with `render-svc render --jsonl`.
///
/// # Panics
/// If the program does not run.
#[must_use]
pub fn rendered(requests: &[Value]) -> Vec<u8> {
    let mut child = Command::new(binary("render-svc"))
        .args(["render", "--jsonl"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("render-svc starts");
    let lines: String = requests.iter().map(|request| format!("{request}\n")).collect();
    child.stdin.take().expect("a pipe").write_all(lines.as_bytes()).expect("render-svc reads");
    child.wait_with_output().expect("render-svc ends").stdout
}
