//! `serve --print-config` and `serve --check`.

use std::net::TcpListener;
use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};
use tandem_tests::{ModelFolder, default_model, program};
use tempfile::TempDir;

fn path(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

fn serve(name: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    program(name).arg("serve").args(arguments).envs(variables.iter().copied()).output().expect("it runs")
}

/// Runs `serve --print-config`. Returns the printed JSON.
fn config(name: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Value {
    let output = serve(name, &[&["--print-config"], arguments].concat(), variables);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Runs `serve --check`. Returns the exit code, standard output, and the errors.
fn check(name: &str, arguments: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = serve(name, &[&["--check"], arguments].concat(), &[]);
    let (stdout, stderr) = (String::from_utf8(stdout).expect("UTF-8"), String::from_utf8(stderr).expect("UTF-8"));
    let is_error = |line: &&str| line.starts_with(name) || line.starts_with("error:");
    (status.code(), stdout, stderr.lines().filter(is_error).collect())
}

#[test]
fn print_config_states_each_setting_and_its_origin() {
    let variables = [("TANDEM_MAX_CALLS", "7"), ("TANDEM_DEVICE", "cuda:0"), ("TANDEM_THREADS", "3")];
    let arguments =
        ["--model", "/nowhere.gguf", "--threads", "5", "--insecure", "--allowed-origin", "http://a,http://b"];
    let printed = config("gen-svc", &arguments, &variables);
    assert_eq!([&printed["program"], &printed["version"]], ["gen-svc", env!("CARGO_PKG_VERSION")]);
    let settings = &printed["settings"];
    assert_eq!(settings["model"], json!({"value": "/nowhere.gguf", "origin": "flag"}));
    assert_eq!(settings["threads"], json!({"value": 5, "origin": "flag"}));
    assert_eq!(settings["insecure"], json!({"value": true, "origin": "flag"}));
    assert_eq!(settings["allowed-origin"], json!({"value": ["http://a", "http://b"], "origin": "flag"}));
    let max_calls = json!({"value": 7, "origin": "environment", "variable": "TANDEM_MAX_CALLS"});
    assert_eq!(settings["max-calls"], max_calls);
    assert_eq!(settings["device"]["value"], "cuda:0");
    assert_eq!(settings["drain-seconds"], json!({"value": 25, "origin": "default"}));
    assert_eq!(settings["kv-memory-mib"], json!({"value": null, "origin": "default"}));
    let help = String::from_utf8(serve("gen-svc", &["--help"], &[]).stdout).expect("UTF-8");
    let flags = help.lines().filter_map(|line| line.trim_start().strip_prefix("--")?.split([' ', '[', ']']).next());
    let not_settings = ["print-config", "check"];
    for flag in flags.filter(|flag| !not_settings.contains(flag)) {
        assert!(settings.get(flag).is_some(), "{flag}");
    }
    assert!(not_settings.iter().all(|flag| settings.get(flag).is_none()), "{settings}");
}

#[test]
fn print_config_includes_the_file_of_models_and_no_secret() {
    let folder = TempDir::new().expect("a folder");
    let (tokens, models) = (folder.path().join("tokens"), folder.path().join("models.toml"));
    std::fs::write(&tokens, "s3cret\n").expect("a file");
    std::fs::write(&models, "[[models]]\npath = \"nowhere\"\naliases = [\"default\"]\n").expect("a file");
    let generate = "http://user:passw0rd@127.0.0.1:1,http://127.0.0.1:2";
    let arguments = [
        "--config",
        path(&models),
        "--token-file",
        path(&tokens),
        "--generate-token-file",
        path(&tokens),
        "--generate",
        generate,
    ];
    let printed = config("render-svc", &arguments, &[("OTEL_EXPORTER_OTLP_HEADERS", "authorization=hidd3n")]);
    assert_eq!(printed["models_file"], json!({"models": [{"path": "nowhere", "aliases": ["default"]}]}));
    assert_eq!(printed["settings"]["token-file"]["value"], path(&tokens));
    assert_eq!(printed["settings"]["generate"]["value"], json!(["http://***@127.0.0.1:1", "http://127.0.0.1:2"]));
    let text = printed.to_string();
    assert!(!["s3cret", "passw0rd", "hidd3n"].iter().any(|secret| text.contains(secret)), "{text}");

    std::fs::write(&models, "[[models]]\nno_such_key = 1\n").expect("a file");
    let output = serve("render-svc", &["--print-config", "--config", path(&models)], &[]);
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn check_of_a_good_configuration_names_the_served_models_and_listens_nowhere() {
    let (model, folder) = (default_model(), TempDir::new().expect("a folder"));
    let tokens = folder.path().join("tokens");
    std::fs::write(&tokens, "secret\n").expect("a file");
    // The port is taken, as beside a running service.
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let common = ["--listen", &address, "--token-file", path(&tokens), "--metrics-listen", "0.0.0.0:1"];
    let cases = [("gen-svc", "--model"), ("render-svc", "--models")];
    for (name, flag) in cases {
        let (code, line, error) = check(name, &[&common[..], &[flag, path(&model)]].concat());
        assert_eq!((code, error.as_str()), (Some(0), ""), "{name}");
        let id = model.file_stem().expect("a name").to_string_lossy();
        assert!(line.starts_with(&format!("{name} would serve")) && line.lines().count() == 1, "{line}");
        assert!(line.contains(&*id) && line.contains(&address), "{line}");
    }
}

#[test]
fn check_of_a_bad_configuration_exits_with_1_and_names_the_cause() {
    let (model, folder) = (default_model(), TempDir::new().expect("a folder"));
    let (model, empty) = (path(&model), folder.path().join("empty"));
    std::fs::write(&empty, "").expect("a file");
    let empty = path(&empty);
    let broken = ModelFolder::new("broken").with_template("{% if %}");
    let broken = path(&broken.path()).to_owned();
    let no_gpu = match tch::utils::has_cudart() {
        true => "DEVICE_UNAVAILABLE: device cuda:7 is not available: ",
        false => {
            "DEVICE_UNAVAILABLE: device cuda:7 is not available: libtorch has no CUDA: `cargo xtask setup --cuda` \
             installs one that has, or use --device cpu"
        }
    };
    let cases: &[(&str, &[&str], &str)] = &[
        ("gen-svc", &["--model", "/nowhere.gguf"], "/nowhere.gguf"),
        ("gen-svc", &["--model", model, "--token-file", empty], "--token-file"),
        ("gen-svc", &["--model", model, "--tls-cert", empty, "--tls-key", empty], "TLS"),
        ("gen-svc", &["--model", model, "--listen", "0.0.0.0:1"], "0.0.0.0:1"),
        ("gen-svc", &["--model", model, "--control-listen", "0.0.0.0:2"], "0.0.0.0:2"),
        ("gen-svc", &["--model", model, "--control-listen", "127.0.0.1:2", "--control-token-file", empty], "token"),
        ("gen-svc", &["--model", model, "--device", "cuda:7"], no_gpu),
        ("gen-svc", &["--model", model, "--kv-memory-mib", "1"], "kv-memory-mib"),
        ("render-svc", &["--models", "/nowhere"], "/nowhere"),
        ("render-svc", &["--models", model, "--models", &broken], "broken"),
        ("render-svc", &["--models", model, "--metrics-listen", "0.0.0.0:3"], "0.0.0.0:3"),
        ("render-svc", &["--models", model, "--generate", "https://127.0.0.1:1"], "TLS"),
        (
            "render-svc",
            &["--models", model, "--generate", "http://127.0.0.1:1", "--generate-token-file", empty],
            "token",
        ),
        (
            "render-svc",
            &["--models", model, "--otlp-endpoint", "https://127.0.0.1:1"],
            "OTEL_EXPORTER_OTLP_CERTIFICATE",
        ),
    ];
    for (name, arguments, cause) in cases {
        let (code, line, error) = check(name, arguments);
        assert_eq!((code, line.as_str()), (Some(1), ""), "{arguments:?}: {error}");
        assert!(error.contains(cause), "{arguments:?}: {error}");
    }
    let (code, _, error) = check("gen-svc", &["--model", model, "--log", "a=b=c"]);
    assert!(code == Some(2) && error.contains("--log"), "an invalid flag is an error of usage: {error}");
}

#[test]
fn a_kv_cache_that_is_too_small_names_the_smallest_size_that_works() {
    let model = default_model();
    let check_with =
        |mib: u64| check("gen-svc", &["--model", path(&model), "--threads", "1", "--kv-memory-mib", &mib.to_string()]);
    let (code, _, error) = check_with(1);
    assert!(code == Some(1) && error.contains("KV cache has 1 MiB"), "{error}");
    let least = error.split_once("minimum ").and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
    let least: u64 = least.unwrap_or_else(|| panic!("{error}"));
    assert_eq!(check_with(least - 1).0, Some(1), "one MiB less is too small");
    let (code, _, error) = check_with(least);
    assert_eq!(code, Some(0), "{error}");
}

#[test]
fn unknown_variables_cause_a_warning_with_the_nearest_name() {
    let given = [
        ("TANDEM_LISTEN", "127.0.0.1:1"),
        ("TANDEM_LOG", "warn"),
        ("TANDEM_GEN_LISTEN", "127.0.0.1:2"),
        ("TANDEM_RUNTIME", "torch"),
        ("TANDEM_SERVICE_HOST", "10.0.0.1"),
        ("TANDEM_PORT_50051_TCP", "tcp://10.0.0.1:50051"),
        ("TANDEM_SERVICE_PORT_GRPC", "50051"),
    ];
    let models = TempDir::new().expect("a folder");
    for mode in ["--check", "--print-config"] {
        let output = serve("render-svc", &[mode, "--models", path(models.path())], &given);
        let errors = String::from_utf8(output.stderr).expect("UTF-8");
        let mut warnings: Vec<_> = errors.lines().filter(|line| line.contains("warning: ")).collect();
        warnings.sort_unstable();
        let expected = [
            "render-svc: warning: the variable TANDEM_LISTEN is no setting; did you mean TANDEM_RENDER_LISTEN?",
            "render-svc: warning: the variable TANDEM_RUNTIME is no setting",
        ];
        assert_eq!(warnings, expected);
    }
}
