//! `cargo xtask dist`: its tarballs run on a machine with glibc and nothing else.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use tandem_tests::{binary, default_model, scratch};
use tempfile::TempDir;

/// Runs a command that must succeed, and returns its standard output.
fn run(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().expect("it runs");
    assert!(status.success(), "{command:?}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).expect("UTF-8")
}

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

/// Returns the folder of libtorch, as cargo's configuration sets it for `cargo xtask`.
fn libtorch() -> PathBuf {
    std::env::var_os("LIBTORCH").map_or_else(|| tandem_tests::repository().join(".tandem/libtorch"), PathBuf::from)
}

/// Returns the start of a command in another root, or None where this is not permitted.
fn other_root() -> Option<Vec<&'static str>> {
    let ways = [vec!["unshare", "--user", "--map-root-user", "chroot"], vec!["chroot"]];
    ways.into_iter().find(|way| {
        let mut command = Command::new(way[0]);
        command.args(&way[1..]).args(["/", "/bin/true"]).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    })
}

/// An empty root file system, with the loader and the libraries of this machine's glibc.
struct Root {
    folder: TempDir,
    way: Vec<&'static str>,
}

impl Root {
    /// Unpacks tarballs into a new root.
    fn new(way: Vec<&'static str>, tarballs: &[PathBuf]) -> Self {
        let folder = TempDir::new_in(scratch()).expect("a folder");
        for tarball in tarballs {
            let unpack = ["--extract", "--strip-components=1", "--one-top-level=program", "--file"];
            run(Command::new("tar").arg("--directory").arg(folder.path()).args(unpack).arg(tarball));
        }
        let root = Self { folder, way };
        // All programs need these, and a shell names them.
        let listed = run(Command::new("ldd").arg(libtorch().join("lib/libtorch_cpu.so")));
        let is_glibc = |path: &&str| {
            let names = ["ld-linux", "libc.", "libm.", "libdl.", "libpthread.", "librt.", "libutil."];
            names.iter().any(|name| path.rsplit('/').next().is_some_and(|file| file.starts_with(name)))
        };
        for path in listed.split_whitespace().filter(|word| word.starts_with('/')).filter(is_glibc) {
            root.add(Path::new(path), path);
        }
        root
    }

    /// Copies a file to a path in the root.
    fn add(&self, from: &Path, to: &str) {
        let to = self.folder.path().join(to.trim_start_matches('/'));
        fs::create_dir_all(to.parent().expect("a folder")).expect("a folder");
        fs::copy(from, to).expect("a copy");
    }

    /// Runs a program in the root, without an environment. The loader finds the program's folder
    /// through the one file of `/proc` that is there.
    fn run(&self, arguments: &[&str], input: &str) -> String {
        let link = self.folder.path().join("proc/self/exe");
        fs::create_dir_all(link.parent().expect("a folder")).expect("a folder");
        let _ = fs::remove_file(&link);
        symlink(arguments[0], &link).expect("a link");
        let output = self.run_with(arguments, input, &[]);
        fs::remove_dir_all(self.folder.path().join("proc")).expect("removed");
        output
    }

    /// Runs a program in the root, without `/proc`, with these variables.
    fn run_with(&self, arguments: &[&str], input: &str, variables: &[(&str, &str)]) -> String {
        let mut command = Command::new(self.way[0]);
        command.args(&self.way[1..]).arg(self.folder.path()).args(arguments).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        feed(command.envs(variables.iter().copied()), input)
    }
}

/// Runs a command with this input. Returns its output.
fn feed(command: &mut Command, input: &str) -> String {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    child.stdin.take().expect("piped").write_all(input.as_bytes()).expect("it reads");
    let Output { status, stdout, stderr } = child.wait_with_output().expect("it ends");
    assert!(status.success(), "{command:?}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).expect("UTF-8")
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
    let root = Root::new(way, &pack(folder.path(), &["gen-svc", "render-svc"]));
    let model = default_model();
    root.add(&model, "/model.gguf");
    for name in ["gen-svc", "render-svc"] {
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
    for name in ["gen-svc", "render-svc"] {
        let dynamic = run(Command::new("readelf").args(["--dynamic", "--wide"]).arg(binary(name)));
        let path = dynamic.lines().find_map(|line| line.split_once("rpath: [")).map(|(_, path)| path);
        assert!(path.is_some_and(|path| path.starts_with("$ORIGIN/lib:$ORIGIN/../lib")), "{name}: {dynamic}");
    }
}
