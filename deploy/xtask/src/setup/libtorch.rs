//! `.tandem/libtorch`, unpacked from wheels.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::package::Store;
use super::pins::{self, Package, TORCH_VERSION};
use crate::cargo;
use crate::files::{remove_folder, rename, write};
use crate::layout::Layout;

/// The file that describes the folder's content. It is written last, before the folder gets its
/// name.
const STAMP: &str = "tandem-setup";

const OWN_LIBTORCH: &str = "On other platforms, or to use an installed libtorch 2.13.0, set LIBTORCH to its folder";

/// The devices that a libtorch supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flavour {
    Cpu,
    Cuda,
}

impl Flavour {
    fn stamp(self) -> String {
        let name = match self {
            Self::Cpu => "cpu",
            Self::Cuda => "cuda",
        };
        format!("{TORCH_VERSION} {} {name}\n", env::consts::ARCH)
    }

    fn wheels(self) -> Result<&'static [Package]> {
        match self {
            Self::Cpu => pins::cpu().with_context(|| {
                format!("libtorch can be fetched for Linux with glibc on x86-64 and ARM only. {OWN_LIBTORCH}")
            }),
            Self::Cuda => pins::cuda().with_context(|| {
                format!("libtorch with CUDA can be fetched for Linux with glibc on x86-64 only. {OWN_LIBTORCH}")
            }),
        }
    }
}

/// Describes the libtorch that the user chose. Without a choice, cargo's configuration sets
/// LIBTORCH to our own folder.
pub(super) fn chosen_by_user(layout: &Layout) -> Option<String> {
    if env::var_os("LIBTORCH_USE_PYTORCH").is_some() {
        return Some("the one of your Python (LIBTORCH_USE_PYTORCH)".to_owned());
    }
    let chosen = PathBuf::from(env::var_os("LIBTORCH")?);
    let is_ours = chosen.as_os_str().is_empty() || chosen == layout.libtorch();
    (!is_ours).then(|| format!("{} (LIBTORCH)", chosen.display()))
}

/// Describes the libtorch that a build uses.
pub(super) fn in_use(layout: &Layout) -> String {
    let flavour = match installed(&layout.libtorch()) {
        Some(Flavour::Cuda) => "with CUDA",
        _ => "CPU only",
    };
    chosen_by_user(layout).unwrap_or_else(|| format!("{} ({TORCH_VERSION}, {flavour})", layout.libtorch().display()))
}

/// Returns the version of the libtorch that a build uses, without the suffix of its devices.
pub(super) fn version(layout: &Layout) -> String {
    let folder = env::var_os("LIBTORCH").map_or_else(|| layout.libtorch(), PathBuf::from);
    let stated = fs::read_to_string(folder.join("build-version")).unwrap_or_default();
    let version = stated.trim().split('+').next().filter(|version| !version.is_empty());
    version.unwrap_or(TORCH_VERSION).to_owned()
}

/// Returns the devices of the libtorch in a folder.
pub(super) fn installed(folder: &Path) -> Option<Flavour> {
    let stamp = fs::read_to_string(folder.join(STAMP)).ok()?;
    [Flavour::Cpu, Flavour::Cuda].into_iter().find(|flavour| flavour.stamp() == stamp)
}

/// Unpacks into a folder beside `place`, and renames that once it is complete.
pub(super) fn install(layout: &Layout, store: &Store, flavour: Flavour, place: &Path) -> Result<()> {
    let wheels = flavour.wheels()?;
    eprintln!("Setting up libtorch {TORCH_VERSION}: {} wheels to fetch, once.", wheels.len());
    let folder = layout.tandem().join("libtorch.partial");
    remove_folder(&folder)?;
    for wheel in wheels {
        store.unpack(wheel, &folder)?;
    }
    finish(&folder, flavour)?;
    take_place(layout, &folder, place)
}

fn finish(folder: &Path, flavour: Flavour) -> Result<()> {
    if flavour == Flavour::Cpu {
        // The wheel's libtorch.so depends on libtorch_cuda.so. A linker script is all that a build
        // needs.
        write(&folder.join("lib/libtorch.so"), "INPUT(libtorch_cpu.so)\n")?;
    }
    write(&folder.join("build-version"), &format!("{TORCH_VERSION}\n"))?;
    write(&folder.join(STAMP), &flavour.stamp())
}

fn take_place(layout: &Layout, folder: &Path, place: &Path) -> Result<()> {
    let old = layout.tandem().join("libtorch.old");
    remove_folder(&old)?;
    if place.exists() {
        rename(place, &old)?;
    }
    rename(folder, place)?;
    remove_folder(&old)?;
    // The bindings decide at build time what to link, and cargo does not detect that the folder's
    // content changed.
    cargo::clean(layout, "torch-sys")
}
