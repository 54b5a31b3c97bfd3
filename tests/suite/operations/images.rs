//! `cargo xtask images`: its images have the format of OCI archives, and run without anything else.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tandem_tests::{binary, default_model, repository, scratch};
use tempfile::TempDir;

use super::root::{Root, feed, libtorch, other_root, run};

/// Packs the programs of this build. Returns the archives.
fn pack(out: &Path, services: &[&str]) -> Vec<PathBuf> {
    let programs = services.iter().map(|name| binary(name)).collect::<Vec<_>>();
    let folder = programs[0].parent().expect("a folder");
    let mut command = Command::new(binary("xtask"));
    command.arg("images").args(services).arg("--out").arg(out).arg("--programs").arg(folder);
    run(command.env("SOURCE_DATE_EPOCH", "1700000000").env("LIBTORCH", libtorch()));
    services.iter().map(|service| out.join(format!("{service}.tar"))).collect()
}

/// An unpacked archive.
struct Layout(TempDir);

impl Layout {
    fn unpack(archive: &Path) -> Self {
        let folder = TempDir::new_in(scratch()).expect("a folder");
        run(Command::new("tar").arg("--extract").arg("--directory").arg(folder.path()).arg("--file").arg(archive));
        Self(folder)
    }

    fn json(&self, path: impl AsRef<Path>) -> Value {
        let text = fs::read_to_string(self.0.path().join(path)).expect("a file");
        serde_json::from_str(&text).expect("JSON")
    }

    /// Returns the file that a descriptor names, after a check of its digest and size.
    fn blob(&self, descriptor: &Value) -> PathBuf {
        let digest = descriptor["digest"].as_str().and_then(|digest| digest.strip_prefix("sha256:")).expect("SHA-256");
        let path = self.0.path().join("blobs/sha256").join(digest);
        assert!(run(Command::new("sha256sum").arg(&path)).starts_with(digest), "{descriptor}");
        assert_eq!(descriptor["size"], fs::metadata(&path).expect("a file").len());
        path
    }

    /// Returns the configuration and the layer's file.
    fn image(&self) -> (Value, PathBuf) {
        assert_eq!(self.json("oci-layout")["imageLayoutVersion"], "1.0.0");
        let index = self.json("index.json");
        let manifest = self.json(self.blob(&index["manifests"][0]));
        assert_eq!(manifest["schemaVersion"], 2);
        let layers = manifest["layers"].as_array().expect("a list");
        assert_eq!(layers.len(), 1);
        (self.json(self.blob(&manifest["config"])), self.blob(&layers[0]))
    }
}

#[test]
fn equal_inputs_give_equal_images() {
    let folder = TempDir::new_in(scratch()).expect("a folder");
    let packed = ["first", "second"].map(|out| pack(&folder.path().join(out), &["render-svc"]).remove(0));
    let [first, second] = packed.each_ref().map(|path| fs::read(path).expect("an archive"));
    assert!(first == second, "the images differ");
}

#[test]
fn images_run_in_their_own_root_and_not_as_root() {
    let Some(way) = other_root() else {
        eprintln!("skipped: neither `unshare --user --map-root-user chroot` nor `chroot` is permitted here");
        return;
    };
    let folder = TempDir::new_in(scratch()).expect("a folder");
    let services = ["gen-svc", "render-svc", "gen-bridge"];
    let model = default_model();
    let [generation, rendering, bridge] = [0, 1, 2].map(|at| {
        let archive = pack(folder.path(), &services[at..=at]).remove(0);
        let layout = Layout::unpack(&archive);
        let (config, layer) = layout.image();
        assert_eq!(config["config"]["User"], "65532:65532");
        assert_eq!(config["config"]["Entrypoint"], json!([format!("/bin/{}", services[at])]));
        let has_cuda = config["config"]["Labels"]["org.opencontainers.image.version"].to_string().contains("-cuda");
        assert_eq!(config["config"]["Env"].to_string().contains("NVIDIA"), has_cuda);
        let root = Root::empty(way.clone());
        run(Command::new("tar").arg("--extract").arg("--directory").arg(root.folder.path()).arg("--file").arg(&layer));
        root.add(&model, "/model.gguf");
        root
    });
    waits_for_its_engine(&bridge);
    let request = json!({"prompt": "Once upon a time", "max_new_tokens": 16, "temperature": 0}).to_string() + "\n";
    let ids = |answer: &str| serde_json::from_str::<Value>(answer).expect("JSON")["token_ids"].clone();
    let arguments = ["generate", "--jsonl", "--model"];
    let here = feed(Command::new(binary("gen-svc")).args(arguments).arg(&model), &request);
    let there = generation.run_with(&[&["/bin/gen-svc"], &arguments[..], &["/model.gguf"]].concat(), &request, &[]);
    assert_eq!((ids(&there), ids(&there).as_array().map(Vec::len)), (ids(&here), Some(16)));
    let request = |model: &str| json!({"model": model, "messages": [{"role": "user", "content": "Hi"}]}).to_string();
    let here = feed(Command::new(binary("render-svc")).arg("render"), &request(model.to_str().expect("UTF-8")));
    let there = rendering.run_with(&["/bin/render-svc", "render"], &request("/model.gguf"), &[]);
    assert!(there == here && there.contains("Hi"), "{there}");
}

/// Asserts that the bridge of a root starts. The root has no certificates of authorities.
fn waits_for_its_engine(root: &Root) {
    let arguments = ["serve", "--engine", "llama-cpp", "--engine-url", "http://127.0.0.1:1", "--model", "/model.gguf"];
    let mut command = root.command(&[&["/bin/gen-bridge"], &arguments[..], &["--listen", "127.0.0.1:0"]].concat());
    let mut bridge = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut seen = Vec::new();
    let mut lines = BufReader::new(bridge.stderr.take().expect("piped")).lines().map_while(Result::ok);
    let waits =
        lines.by_ref().inspect(|line| seen.push(line.clone())).any(|line| line.contains("waiting for the engine"));
    bridge.kill().expect("a child");
    bridge.wait().expect("a child");
    assert!(waits, "{seen:?}");
}

#[test]
fn dockerfiles_copy_the_root_of_the_images() {
    for service in ["gen-bridge", "gen-svc", "render-svc"] {
        let path = repository().join(format!("deploy/images/{service}.Dockerfile"));
        let text = fs::read_to_string(path).expect("a Dockerfile");
        for line in [
            "FROM scratch",
            "COPY --from=files root /",
            "USER 65532:65532",
            &format!("ENTRYPOINT [\"/bin/{service}\"]"),
        ] {
            assert!(text.lines().any(|it| it == line), "{service}: {line}");
        }
    }
}
