//! Programs that Go builds once from `deploy/cluster/programs`: Helm, and those of the test cluster.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use super::go;
use crate::files::{make_folder, rename};
use crate::layout::Layout;
use crate::output::output_of;

/// The version that the components report. It is the one in `go.mod`.
pub(crate) const KUBERNETES: &str = "v1.36.3";

/// A program: its name and its package.
type Program = (&'static str, &'static str);

const HELM: Program = ("helm", "helm.sh/helm/v4/cmd/helm");

/// The programs of a cluster.
const ALL: [Program; 6] = [
    ("pause", "./pause"),
    ("policies", "./policies"),
    ("coredns", "./coredns"),
    ("kube", "./kube"),
    ("metrics-server", "sigs.k8s.io/metrics-server/cmd/metrics-server"),
    HELM,
];

/// The components in the program `kube`. Each is a link to it.
const COMPONENTS: [&str; 7] =
    ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "kubectl"];

/// Returns the folder below the user's cache for these sources.
pub(crate) fn cache(layout: &Layout) -> Result<PathBuf> {
    let home = env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let user = env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or(home).context("set HOME or XDG_CACHE_HOME")?;
    let mut hash = Command::new("sh");
    hash.current_dir(sources(layout)).args(["-c", "cat go.mod go.sum */*.go | sha256sum"]);
    let digest = output_of(&mut hash)?;
    let folder = user.join("tandem").join(format!("cluster-{}", &digest[..12]));
    make_folder(&folder)?;
    Ok(folder)
}

/// Builds Helm unless it is built, and returns its path. TANDEM_HELM names another one.
pub(crate) fn helm(layout: &Layout) -> Result<PathBuf> {
    if let Some(chosen) = env::var_os("TANDEM_HELM") {
        return Ok(chosen.into());
    }
    Ok(ensure(layout, &[HELM])?.join("helm"))
}

/// Builds the missing programs of a cluster, and returns their folder.
pub(crate) fn cluster(layout: &Layout) -> Result<PathBuf> {
    let folder = ensure(layout, &ALL)?;
    for component in COMPONENTS {
        let link = folder.join(component);
        if !link.is_symlink() {
            std::os::unix::fs::symlink("kube", &link).with_context(|| format!("cannot make {}", link.display()))?;
        }
    }
    Ok(folder)
}

/// Builds the missing ones of these programs, and returns their folder. Another process may build too.
fn ensure(layout: &Layout, programs: &[Program]) -> Result<PathBuf> {
    let cache = cache(layout)?;
    let (folder, lock) = (cache.join("bin"), cache.join("building"));
    let missing = || programs.iter().filter(|(name, _)| !folder.join(name).exists()).collect::<Vec<_>>();
    if missing().is_empty() {
        return Ok(folder);
    }
    make_folder(&folder)?;
    let lock = File::create(&lock).with_context(|| format!("cannot write {}", lock.display()))?;
    lock.lock().context("cannot wait for another build")?;
    let missing = missing();
    announce(&missing);
    for (number, (name, package)) in missing.iter().enumerate() {
        eprintln!("  {} of {}: {name}", number + 1, missing.len());
        build(layout, &folder, name, package)?;
    }
    Ok(folder)
}

fn announce(missing: &[&Program]) {
    match missing {
        [] => {}
        [(name, _)] => eprintln!("Building {name} with Go, once; this takes some minutes on two cores."),
        _ => {
            eprintln!("Building Kubernetes with Go, once; this takes about a quarter of an hour on two cores,");
            eprintln!("and 5 GB of Go's caches, which `go clean -cache -modcache` removes.");
        }
    }
}

fn build(layout: &Layout, folder: &Path, name: &str, package: &str) -> Result<()> {
    let (partial, began) = (folder.join("partial"), Instant::now());
    let version = "k8s.io/component-base/version";
    let minor = KUBERNETES.split('.').nth(1).unwrap_or_default();
    let flags =
        format!("-s -w -X {version}.gitVersion={KUBERNETES} -X {version}.gitMajor=1 -X {version}.gitMinor={minor}");
    let mut go = go::command();
    go.current_dir(sources(layout)).args(["build", "-ldflags", &flags, "-o"]).arg(&partial).arg(package);
    if !go.status().context("cannot run go; install Go")?.success() {
        bail!("go cannot build {name}; see its messages above");
    }
    let bytes = fs::metadata(&partial).map_or(0, |metadata| metadata.len());
    eprintln!("  {name}: {:.0} MB after {} s", bytes as f64 / 1e6, began.elapsed().as_secs());
    rename(&partial, &folder.join(name))
}

fn sources(layout: &Layout) -> PathBuf {
    layout.root().join("deploy/cluster/programs")
}
