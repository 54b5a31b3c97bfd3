//! The proof on a GPU, tried on a CPU with tiny models.
//!
//! The whole proof needs the Python with PyTorch and transformers that `cargo xtask bench generate` makes. Without
//! it, that test prints that it is skipped. Its client of gen-svc is always tested, with the suite's Python.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};
use tandem_common::pb::DESCRIPTORS;
use tandem_tests::{binary, default_model, python, repository, scratch};
use tempfile::TempDir;

use super::root::run;

/// Returns the Python with PyTorch and transformers, if it was made.
fn reference() -> Option<PathBuf> {
    Some(repository().join(".tandem/reference/bin/python")).filter(|path| path.is_file())
}

/// Returns the folder with the gRPC package of the client's Python.
fn packages() -> String {
    let script = "import grpc, pathlib; print(pathlib.Path(grpc.__file__).parents[1])";
    run(python().args(["-c", script])).trim().to_owned()
}

/// Copies the programs of the proof, and adds the contract, as `cargo xtask gpu-kit` does.
fn make_kit(folder: &Path) {
    for entry in fs::read_dir(repository().join("tests/gpu")).expect("the proof") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|extension| extension == "py") {
            fs::copy(&path, folder.join(path.file_name().expect("a name"))).expect("a copy");
        }
    }
    fs::write(folder.join("tandem.binpb"), DESCRIPTORS).expect("the contract");
}

/// Serves a model with the proof's client, and prints the facts that its checks read.
const CLIENT: &str = r#"
import json, pathlib, sys
kit, program, model = sys.argv[1:]
sys.path.insert(0, kit)
from service import likeliest, request, serve
sampling = {"seed": 1, "temperature": 0.5, "top_k": 5, "logit_bias": {5: 1.0}}
messages = [
    request([1, 2, 3, 4], 6, logprobs=2, prompt_logprobs=2, salt="a"),
    request([1, 2, 3], 9, logprobs=0, sampling=sampling, grammar={"regex": "[a-f]"}),
]
with serve(program, model, pathlib.Path(kit, "log"), ["--device", "cpu"], lambda: 300) as service:
    greedy, sampled = service.answers(messages, urgent=[request([5] * 4, 2, priority=5)])
    facts = {
        "tokens": len(greedy.ids),
        "positions": len(greedy.tokens),
        "prompt positions": len(greedy.prompt),
        "most likely is chosen": all(max(row, key=row.get) == t.id for t in greedy.tokens for row in [likeliest(t)]),
        "grammar ends": len(sampled.ids),
        "timed": greedy.summary.timings.decode_ms > 0,
        "steps": service.settled("tandem_engine_steps") > 0,
        "preemptions": service.metric("tandem_engine_preemptions"),
        "memory of a GPU": service.metric("tandem_engine_gpu_memory", 'state="used"'),
        "gpu": service.gpu(),
        "waits": service.waits(),
        "torch": "torch" in sys.modules,
    }
print(json.dumps(facts))
"#;

#[test]
fn the_client_of_the_proof_reads_answers_and_metrics_without_torch() {
    let folder = TempDir::new_in(scratch()).expect("a folder");
    make_kit(folder.path());
    let (program, model) = (binary("gen-svc"), default_model());
    let facts = run(python().args(["-c", CLIENT]).arg(folder.path()).arg(program).arg(model));
    let facts: Value = serde_json::from_str(&facts).expect("JSON");
    let expected = json!({
        "tokens": 6, "positions": 6, "prompt positions": 3, "most likely is chosen": true, "grammar ends": 1,
        "timed": true, "steps": true, "preemptions": 0.0, "memory of a GPU": null, "gpu": null,
        "waits": [0, 0.0], "torch": false,
    });
    assert_eq!(facts, expected);
}

#[test]
fn the_proof_on_a_gpu_compares_tiny_models_on_a_cpu() {
    let Some(reference) = reference() else {
        // The harness hides the text that a test that passes prints with macros.
        let reason = "`cargo xtask bench generate` has not made .tandem/reference with PyTorch and transformers";
        writeln!(io::stderr(), "skipped: the proof on a GPU, because {reason}").expect("standard error");
        return;
    };
    let folder = TempDir::new_in(scratch()).expect("a folder");
    make_kit(folder.path());
    let mut command = Command::new(reference);
    command.env("PYTHONPATH", packages()).arg(folder.path().join("prove.py")).args(["1", "2", "3", "--small"]);
    // A slow machine has more time for each check.
    command.args(["--device", "cpu", "--minutes", "60"]).arg("--work").arg(folder.path().join("work"));
    let Output { status, stdout, stderr } = command.arg("--gen-svc").arg(binary("gen-svc")).output().expect("it runs");
    let (printed, problems) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success() && printed.ends_with(" checks, 0 failed\n"), "{printed}{problems}");
    assert!(!printed.contains("out of time") && printed.lines().count() > 30, "{printed}{problems}");
}
