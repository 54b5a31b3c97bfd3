//! The proof on a GPU, tried on a CPU with tiny models.
//!
//! It needs the Python with PyTorch and transformers that `cargo xtask bench generate` makes. Without it, the
//! test prints that it is skipped.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tandem_common::pb::DESCRIPTORS;
use tandem_tests::{binary, python, repository, scratch};
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

#[test]
fn the_proof_on_a_gpu_compares_tiny_models_on_a_cpu() {
    let Some(reference) = reference() else {
        eprintln!("skipped: `cargo xtask bench generate` has not made .tandem/reference");
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
