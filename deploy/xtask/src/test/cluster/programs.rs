//! The cluster's programs, which Go builds once from `deploy/cluster/programs`.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::files::{make_folder, rename};
use crate::layout::Layout;
use crate::release::output::output_of;
use crate::setup::go_tool::go;

/// The version that the components report. It is the one in `go.mod`.
const KUBERNETES: &str = "v1.36.3";

/// Each program and its package.
const PROGRAMS: [(&str, &str); 6] = [
    ("pause", "./pause"),
    ("policies", "./policies"),
    ("coredns", "./coredns"),
    ("kube", "./kube"),
    ("metrics-server", "sigs.k8s.io/metrics-server/cmd/metrics-server"),
    ("helm", "helm.sh/helm/v4/cmd/helm"),
];

/// The components in the program `kube`. Each is a link to it.
const COMPONENTS: [&str; 7] =
    ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "kubectl"];

/// Returns the folder below the user's cache for these sources.
pub(super) fn cache(layout: &Layout) -> Result<PathBuf> {
    let home = env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let user = env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or(home).context("set HOME or XDG_CACHE_HOME")?;
    let mut hash = Command::new("sh");
    hash.current_dir(module(layout)).args(["-c", "cat go.mod go.sum */*.go | sha256sum"]);
    let digest = output_of(&mut hash)?;
    let folder = user.join("tandem").join(format!("cluster-{}", &digest[..12]));
    make_folder(&folder)?;
    Ok(folder)
}

/// Builds the missing programs, and returns their folder.
pub(super) fn ensure(layout: &Layout, cache: &Path) -> Result<PathBuf> {
    let folder = cache.join("bin");
    make_folder(&folder)?;
    let missing: Vec<_> = PROGRAMS.iter().filter(|(name, _)| !folder.join(name).exists()).collect();
    if !missing.is_empty() {
        eprintln!("Building Kubernetes with Go, once; this takes about a quarter of an hour on two cores,");
        eprintln!("and 5 GB of Go's caches, which `go clean -cache -modcache` removes.");
    }
    for (number, (name, package)) in missing.iter().enumerate() {
        eprintln!("  {} of {}: {name}", number + 1, missing.len());
        build(layout, &folder, name, package)?;
    }
    for component in COMPONENTS {
        let link = folder.join(component);
        if !link.is_symlink() {
            std::os::unix::fs::symlink("kube", &link).with_context(|| format!("cannot make {}", link.display()))?;
        }
    }
    Ok(folder)
}

fn build(layout: &Layout, folder: &Path, name: &str, package: &str) -> Result<()> {
    let (partial, began) = (folder.join("partial"), Instant::now());
    let version = "k8s.io/component-base/version";
    let minor = KUBERNETES.split('.').nth(1).unwrap_or_default();
    let flags =
        format!("-s -w -X {version}.gitVersion={KUBERNETES} -X {version}.gitMajor=1 -X {version}.gitMinor={minor}");
    let mut go = go();
    go.current_dir(module(layout)).args(["build", "-ldflags", &flags, "-o"]).arg(&partial).arg(package);
    if !go.status().context("cannot run go")?.success() {
        bail!("go cannot build {name}; see its messages above");
    }
    let bytes = fs::metadata(&partial).map_or(0, |metadata| metadata.len());
    eprintln!("  {name}: {:.0} MB after {} s", bytes as f64 / 1e6, began.elapsed().as_secs());
    rename(&partial, &folder.join(name))
}

fn module(layout: &Layout) -> PathBuf {
    layout.root().join("deploy/cluster/programs")
}
