//! Images in the format of the Open Container Initiative.
//!
//! Source: the OCI Image Format Specification, 1.1: layout, index, manifest, configuration and layer.

use std::env::consts::ARCH;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::files::{make_folder, remove_folder, rename, write};
use crate::output::output_of;
use crate::release::Commit;

/// The user of the process: not root, as Kubernetes' restricted standard demands.
const USER: &str = "65532:65532";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// The names of an image.
#[derive(Debug)]
pub(super) struct Image<'a> {
    pub(super) service: &'a str,
    /// With registry and tag.
    pub(super) name: &'a str,
    pub(super) commit: &'a Commit,
}

/// A packed image.
#[derive(Debug)]
pub(crate) struct Archive {
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
}

/// A file of the layout, named by its digest.
#[derive(Debug)]
struct Blob {
    media_type: &'static str,
    digest: String,
    bytes: u64,
}

impl Blob {
    fn json(&self) -> String {
        format!(r#"{{"mediaType":"{}","digest":"sha256:{}","size":{}}}"#, self.media_type, self.digest, self.bytes)
    }
}

/// Packs the folder's `root` as the one layer of an image. Returns the archive `FOLDER.tar` beside the folder.
pub(super) fn pack(image: &Image<'_>, folder: &Path) -> Result<Archive> {
    let layout = folder.join("layout");
    let blobs = layout.join("blobs/sha256");
    make_folder(&blobs)?;
    let layer = layout.join("layer");
    tar(&folder.join("root"), image.commit.seconds, &layer, &["."])?;
    let diff = digest(&layer)?;
    output_of(Command::new("gzip").args(["--no-name", "--suffix", ".gz"]).arg(&layer))?;
    let layer = store(&layout.join("layer.gz"), LAYER, &blobs)?;
    let config = text_blob(&config(image, &diff), CONFIG, &blobs)?;
    let manifest = format!(
        r#"{{"schemaVersion":2,"mediaType":"{MANIFEST}","config":{},"layers":[{}]}}"#,
        config.json(),
        layer.json()
    );
    let manifest = text_blob(&manifest, MANIFEST, &blobs)?;
    write(&layout.join("index.json"), &index(image, &manifest))?;
    write(&layout.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#)?;
    let path = folder.with_extension("tar");
    tar(&layout, image.commit.seconds, &path, &["oci-layout", "index.json", "blobs"])?;
    remove_folder(&layout)?;
    let bytes = size(&path)?;
    Ok(Archive { path, bytes })
}

/// Returns the configuration: the layer's digest before compression, and how a container starts.
fn config(image: &Image<'_>, diff: &str) -> String {
    let Image { service, commit: Commit { name: commit, .. }, .. } = image;
    let (version, title) = (image.name.rsplit(':').next().unwrap_or_default(), title(service));
    // The container runtime of NVIDIA mounts the driver, as these variables ask. Where it is the runtime of
    // all pods, it would also give every GPU of the node to an image without CUDA.
    let nvidia = r#","NVIDIA_VISIBLE_DEVICES=all","NVIDIA_DRIVER_CAPABILITIES=compute,utility""#;
    let variables = if version.ends_with("-cuda") { nvidia } else { "" };
    let port = if *service == "render-svc" { 50_051 } else { 50_052 };
    format!(
        r#"{{"architecture":"{}","os":"linux","config":{{"User":"{USER}","ExposedPorts":{{"{port}/tcp":{{}},"8081/tcp":{{}},"9464/tcp":{{}}}},"Env":["PATH=/bin"{variables}],"Entrypoint":["/bin/{service}"],"Cmd":["serve","--help"],"Labels":{{"org.opencontainers.image.title":"{service}","org.opencontainers.image.description":"{title}","org.opencontainers.image.licenses":"Apache-2.0","org.opencontainers.image.version":"{version}","org.opencontainers.image.revision":{commit:?}}}}},"rootfs":{{"type":"layers","diff_ids":["sha256:{diff}"]}}}}"#,
        architecture()
    )
}

fn title(service: &str) -> &'static str {
    match service {
        "pause" => "Holds the namespaces of a pod",
        "gen-svc" => "Runs one language model and streams its tokens",
        "gen-bridge" => "Serves the generation contract in front of another engine",
        _ => "Turns conversations into the exact prompts of models",
    }
}

/// Returns the name of this machine's architecture in Go, which images use.
fn architecture() -> &'static str {
    match ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn index(image: &Image<'_>, manifest: &Blob) -> String {
    let tag = image.name.rsplit(':').next().unwrap_or_default();
    format!(
        r#"{{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[{{"mediaType":"{MANIFEST}","digest":"sha256:{}","size":{},"platform":{{"architecture":"{}","os":"linux"}},"annotations":{{"org.opencontainers.image.ref.name":"{tag}","io.containerd.image.name":"{}"}}}}]}}"#,
        manifest.digest,
        manifest.bytes,
        architecture(),
        image.name
    )
}

fn text_blob(text: &str, media_type: &'static str, blobs: &Path) -> Result<Blob> {
    let file = blobs.join("text");
    write(&file, text)?;
    store(&file, media_type, blobs)
}

/// Moves a file to its place in the layout.
fn store(file: &Path, media_type: &'static str, blobs: &Path) -> Result<Blob> {
    let (digest, bytes) = (digest(file)?, size(file)?);
    rename(file, &blobs.join(&digest))?;
    Ok(Blob { media_type, digest, bytes })
}

fn digest(file: &Path) -> Result<String> {
    let listed = output_of(Command::new("sha256sum").arg(file))?;
    Ok(listed.split_whitespace().next().context("sha256sum prints a digest")?.to_owned())
}

fn size(file: &Path) -> Result<u64> {
    Ok(fs::metadata(file).with_context(|| format!("cannot read {}", file.display()))?.len())
}

/// Packs files of a folder. Order, times, owners and modes depend on nothing else.
fn tar(folder: &Path, seconds: u64, to: &Path, files: &[&str]) -> Result<()> {
    let mut tar = Command::new("tar");
    tar.args(["--create", "--format=ustar", "--sort=name", "--owner=0", "--group=0", "--numeric-owner"]);
    tar.arg("--mode=u+rw,go+rX,go-w").arg(format!("--mtime=@{seconds}")).arg("--file").arg(to);
    output_of(tar.arg("--directory").arg(folder).args(files)).map(drop)
}
