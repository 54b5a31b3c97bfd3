//! `cargo xtask dist`: its tarballs run on a machine with glibc and nothing else.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use tandem_tests::{binary, default_model, scratch};
use tempfile::TempDir;

use super::root::{Root, feed, libtorch, other_root, run};

const SERVICES: [&str; 3] = ["gen-svc", "render-svc", "gen-bridge"];

/// Packs the programs of this build. Returns the tarballs.
fn pack(out: &Path, services: &[&str]) -> Vec<PathBuf> {
    let programs = services.iter().map(|name| binary(name)).collect::<Vec<_>>();
    let folder = programs[0].parent().expect("a folder");
    let mut command = Command::new(binary("xtask"));
    command.arg("dist").args(services).arg("--out").arg(out).arg("--programs").arg(folder);
    let listed = run(command.env("SOURCE_DATE_EPOCH", "1700000000").env("LIBTORCH", libtorch()));
    let paths = listed.lines().map(|line| PathBuf::from(line.split("  ").next().unwrap_or(line)));
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "gz")).collect()
}

#[test]
fn tarball_has_all_parts_and_is_reproducible() {
    let folder = TempDir::new_in(scratch()).expect("a folder");
    let packed = ["first", "second"].map(|out| pack(&folder.path().join(out), &["render-svc"]).remove(0));
    let [first, second] = packed.each_ref().map(|path| fs::read(path).expect("a tarball"));
    assert!(first == second, "the tarballs differ");
    let listed = run(Command::new("tar").args(["--list", "--file"]).arg(&packed[0]));
    let name = packed[0].file_name().expect("a name").to_string_lossy().replace(".tar.gz", "");
    assert!(name.starts_with(&format!("render-svc-{}-", env!("CARGO_PKG_VERSION"))), "{name}");
    let files = [
        "LICENSE",
        "README.md",
        "bin/render-svc",
        "lib/libgcc_s.so.1",
        "share/completions/_render-svc",
        "share/completions/render-svc.bash",
        "share/completions/render-svc.fish",
        "share/man/man1/render-svc.1",
        "share/man/man1/render-svc-serve.1",
        "share/systemd/render-svc.service",
        "share/proto/google/rpc/error_details.proto",
        "share/proto/tandem/task/v1/task.proto",
    ];
    for file in files {
        assert!(listed.lines().any(|line| line == format!("{name}/{file}")), "{file}: {listed}");
    }
    let digests = folder.path().join("first");
    run(Command::new("sha256sum").args(["--check", "SHA256SUMS"]).current_dir(digests));
}

#[test]
fn packed_programs_run_in_an_empty_root() {
    let Some(way) = other_root() else {
        eprintln!("skipped: neither `unshare --user --map-root-user chroot` nor `chroot` is permitted here");
        return;
    };
    let folder = TempDir::new_in(scratch()).expect("a folder");
    let root = Root::new(way, &pack(folder.path(), &SERVICES));
    let model = default_model();
    root.add(&model, "/model.gguf");
    for name in SERVICES {
        let version = root.run(&[&format!("/program/bin/{name}"), "--version"], "");
        assert_eq!(version, run(Command::new(binary(name)).arg("--version")));
    }

    let request = json!({"prompt": "Once upon a time", "max_new_tokens": 16, "temperature": 0}).to_string() + "\n";
    let ids = |answer: &str| serde_json::from_str::<Value>(answer).expect("JSON")["token_ids"].clone();
    let arguments = ["generate", "--jsonl", "--model"];
    let here = feed(Command::new(binary("gen-svc")).args(arguments).arg(&model), &request);
    let there = root.run(&[&["/program/bin/gen-svc"], &arguments[..], &["/model.gguf"]].concat(), &request);
    let bare = &[("LD_LIBRARY_PATH", "/program/lib")];
    let bare = root.run_with(&[&["/program/bin/gen-svc"], &arguments[..], &["/model.gguf"]].concat(), &request, bare);
    assert_eq!(ids(&bare), ids(&here), "without /proc");
    assert_eq!((ids(&there), ids(&there).as_array().map(Vec::len)), (ids(&here), Some(16)));

    let request = |model: &str| json!({"model": model, "messages": [{"role": "user", "content": "Hi"}]}).to_string();
    let here = feed(Command::new(binary("render-svc")).arg("render"), &request(model.to_str().expect("UTF-8")));
    let there = root.run(&["/program/bin/render-svc", "render"], &request("/model.gguf"));
    assert!(there == here && there.contains("Hi"), "{there}");
}

#[test]
fn programs_search_libraries_beside_themselves_first() {
    for name in SERVICES {
        let dynamic = run(Command::new("readelf").args(["--dynamic", "--wide"]).arg(binary(name)));
        let path = dynamic.lines().find_map(|line| line.split_once("rpath: [")).map(|(_, path)| path);
        assert!(path.is_some_and(|path| path.starts_with("$ORIGIN/lib:$ORIGIN/../lib")), "{name}: {dynamic}");
    }
}
