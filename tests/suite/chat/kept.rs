//! `--keep`, `--status` and `--stop`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tandem_tests::{ModelFolder, binary};
use tempfile::TempDir;

use super::service::run;

/// A folder of a chat, with a program in place of gen-svc that only says where it listens.
struct State(TempDir);

impl State {
    fn new() -> Self {
        let this = Self(TempDir::new().expect("a folder"));
        let script = "#!/bin/sh\necho gen-svc listening on 127.0.0.1:9\nwhile :; do sleep 0.1; done\n";
        fs::write(this.gen_svc(), script).expect("a file");
        fs::set_permissions(this.gen_svc(), fs::Permissions::from_mode(0o755)).expect("a mode");
        this
    }

    fn gen_svc(&self) -> PathBuf {
        self.0.path().join("gen-svc")
    }

    fn record(&self) -> PathBuf {
        self.0.path().join("chat-services.json")
    }

    fn services(&self) -> Vec<(u64, String)> {
        let record: Value = serde_json::from_slice(&fs::read(self.record()).expect("a record")).expect("JSON");
        let services = record["services"].as_array().expect("a list");
        services
            .iter()
            .map(|s| (s["pid"].as_u64().expect("an id"), s["address"].as_str().expect("it").to_owned()))
            .collect()
    }

    /// Runs the client with arguments, and returns whether it succeeded, its stdout and its stderr.
    fn run(&self, arguments: &[&str]) -> (bool, String, String) {
        let folder = self.0.path().to_str().expect("UTF-8");
        let output = run(&[&["--state", folder], arguments].concat(), "");
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        (output.status.success(), text(output.stdout), text(output.stderr))
    }

    fn keep(&self, model: &Path) -> (bool, String, String) {
        let (gen_svc, render_svc) = (self.gen_svc(), binary("render-svc"));
        let path = |path: &Path| path.to_str().expect("UTF-8").to_owned();
        let (gen_svc, render_svc, model) = (path(&gen_svc), path(&render_svc), path(model));
        self.run(&["--gen-svc", &gen_svc, "--render-svc", &render_svc, "--default-model", &model, "--keep"])
    }
}

impl Drop for State {
    fn drop(&mut self) {
        self.run(&["--stop"]);
    }
}

fn is_running(pid: u64) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, fields)| !fields.starts_with('Z'))
}

#[test]
fn kept_services_are_used_shown_and_stopped() {
    let (state, model) = (State::new(), ModelFolder::new("SmolLM2-tiny").with_template("{{ messages[0].content }}"));
    let (is_good, _, error) = state.keep(&model.path());
    assert!(is_good, "{error}");
    let services = state.services();
    let address = &services[0].1;
    for line in [
        format!("Ask:   cargo xtask chat --connect {address} \"Why is the sky blue?\""),
        r#""text": "Why is the sky blue?"}]}, "stop": {"max_new_tokens": 64}}'"#.to_owned(),
        "Stop:  cargo xtask chat --stop".to_owned(),
    ] {
        assert!(error.contains(&line), "{error}");
    }
    assert!(services.iter().all(|(pid, _)| is_running(*pid)));

    let (is_good, shown, _) = state.run(&["--status"]);
    assert!(is_good && shown.contains(address.as_str()) && shown.contains(&services[1].0.to_string()), "{shown}");
    let (is_good, _, error) = state.keep(&model.path());
    assert!(is_good && error.contains(address.as_str()), "{error}");
    assert_eq!(state.services(), services, "the same model is not started twice");
    let other = ModelFolder::new("other").with_template("{{ messages[0].content }}");
    let (is_good, _, error) = state.keep(&other.path());
    assert!(!is_good && error.contains("another model") && error.contains("chat --stop"), "{error}");

    let (is_good, stopped, _) = state.run(&["--stop"]);
    assert!(is_good && stopped.starts_with("Stopped:") && stopped.lines().count() == 3, "{stopped}");
    assert!(!services.iter().any(|(pid, _)| is_running(*pid)));
    let (is_good, shown, _) = state.run(&["--status"]);
    assert!(!is_good && shown == "No services of --keep run.\n");
    assert_eq!(state.run(&["--stop"]), (true, "No services of --keep run.\n".to_owned(), String::new()));
}

/// The id of an ended service may belong to another process.
#[test]
fn another_process_with_the_same_id_is_not_signalled() {
    let (state, model) = (State::new(), ModelFolder::new("tiny").with_template("{{ messages[0].content }}"));
    assert!(state.keep(&model.path()).0);
    let (services, record) = (state.services(), fs::read_to_string(state.record()).expect("a record"));
    let mut changed: Value = serde_json::from_str(&record).expect("JSON");
    changed["services"][0]["process"]["started"] = 1.into();
    changed["services"][1]["process"]["name"] = "another".into();
    fs::write(state.record(), changed.to_string()).expect("it can be written");
    assert_eq!(state.run(&["--stop"]).1, "No services of --keep run.\n");
    assert!(services.iter().all(|(pid, _)| is_running(*pid)));

    // The remaining service is stopped before new ones start.
    fs::write(state.record(), record).expect("it can be written");
    let id = i32::try_from(services[1].0).ok().and_then(rustix::process::Pid::from_raw).expect("an id");
    rustix::process::kill_process(id, rustix::process::Signal::KILL).expect("it runs");
    while is_running(services[1].0) {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(state.keep(&model.path()).0);
    assert!(!is_running(services[0].0));
    assert!(state.services().iter().all(|(pid, _)| is_running(*pid)));
}
