//! Paths of the files that tests use: the repository, the default model, the corpus, Python, Envoy,
//! and the project's binaries.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use tandem_model_files::artifacts::Artifacts;

/// Returns the repository's root.
#[must_use]
pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ is a folder of the repository")
}

/// Returns the default model's file.
///
/// # Panics
/// If the file is missing: `cargo xtask setup` fetches it.
#[must_use]
pub fn default_model() -> PathBuf {
    let path = repository().join(".tandem/models/SmolLM2-135M-Instruct-Q4_1.gguf");
    assert!(path.is_file(), "{} is missing: run `cargo xtask setup`", path.display());
    path
}

/// Returns the corpus beside the repository, if it exists.
#[must_use]
pub fn corpus() -> Option<PathBuf> {
    let path = repository().parent()?.join("shared/corpus");
    path.is_dir().then_some(path)
}

/// Returns the Python that has the client's packages: TANDEM_PYTHON, or the environment that `cargo
/// xtask test` makes.
#[must_use]
pub fn python() -> Command {
    let made = repository().join(".tandem/venv/bin/python");
    Command::new(std::env::var_os("TANDEM_PYTHON").map_or(made, PathBuf::from))
}

/// Returns the Envoy binary: TANDEM_ENVOY, or the binary that `cargo xtask test` fetches.
///
/// # Panics
/// If the binary is missing.
#[must_use]
pub fn envoy() -> PathBuf {
    let fetched = repository().join(".tandem/envoy/envoy");
    let path = std::env::var_os("TANDEM_ENVOY").map_or(fetched, PathBuf::from);
    assert!(path.is_file(), "{} is missing: `cargo xtask test` fetches it", path.display());
    path
}

/// Returns the command of one of the project's binaries, without the variables of the tests, which are no settings.
#[must_use]
pub fn program(name: &str) -> Command {
    let mut command = Command::new(binary(name));
    let variables = std::env::vars_os().map(|(name, _)| name);
    variables.filter(|name| name.to_string_lossy().starts_with("TANDEM_")).for_each(|name| {
        command.env_remove(name);
    });
    command
}

/// Builds one of the project's binaries and returns its path. `cargo test` builds only the test.
///
/// # Panics
/// If the build fails.
#[must_use]
pub fn binary(name: &str) -> PathBuf {
    static BUILT: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let mut built = BUILT.lock().expect("no build panicked");
    if !built.iter().any(|known| known == name) {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut build = Command::new(cargo);
        build.current_dir(repository()).args(["build", "--quiet", "--workspace", "--bin", name]);
        // Build scripts, such as ring's, run again when the variables of the test's package change.
        for (variable, _) in std::env::vars_os() {
            if variable.to_string_lossy().starts_with("CARGO_PKG_") || variable == "CARGO_MANIFEST_DIR" {
                build.env_remove(variable);
            }
        }
        let status = build.status();
        assert!(status.is_ok_and(|status| status.success()), "{name} does not build");
        built.push(name.to_owned());
    }
    profile_folder().join(name)
}

/// Returns gen-svc without libtorch.
///
/// # Panics
/// If it is missing: `cargo xtask test` builds it.
#[must_use]
pub fn text_only_program() -> PathBuf {
    let path = profile_folder().join("gen-svc-text");
    assert!(path.is_file(), "{} is missing: run `cargo xtask text-only`", path.display());
    path
}

/// Returns the folder of this build's binaries: `target/PROFILE`.
fn profile_folder() -> PathBuf {
    let test = std::env::current_exe().expect("the test program has a path");
    test.ancestors().nth(2).expect("the test is in target/PROFILE/deps").to_path_buf()
}

/// Returns a folder for files that a test makes: `target/tmp`.
///
/// # Panics
/// If the folder cannot be made.
#[must_use]
pub fn scratch() -> PathBuf {
    let folder = profile_folder().parent().expect("the profile's folder is in target").join("tmp");
    std::fs::create_dir_all(&folder).expect("target can be written");
    folder
}

/// Reads the default model's artifacts.
///
/// # Panics
/// If the artifacts cannot be read.
#[must_use]
pub fn default_artifacts() -> Artifacts {
    Artifacts::load(&default_model()).expect("the default model")
}
