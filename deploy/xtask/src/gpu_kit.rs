//! `cargo xtask gpu-kit`: a folder that proves gen-svc on a machine with a GPU.

mod fatbin;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::cargo::{self, Profile};
use crate::files::{copy, make_folder, remove_folder};
use crate::layout::Layout;
use crate::output::output_of;
use crate::release::Commit;
use crate::setup;
use crate::setup::venv;

/// The libraries of libtorch that gen-svc loads. NVIDIA's own are in the PyTorch of the other machine.
const LIBRARIES: [&str; 7] = [
    "libtorch.so",
    "libtorch_cpu.so",
    "libtorch_cuda.so",
    "libtorch_nvshmem.so",
    "libtorch_global_deps.so",
    "libc10.so",
    "libc10_cuda.so",
];

/// The proof and its parts, in tests/gpu.
const SCRIPTS: [&str; 16] = [
    "README.md",
    "aims.py",
    "checks.py",
    "compare.py",
    "contract.py",
    "exact.py",
    "floors.py",
    "loading.py",
    "models.py",
    "proof.py",
    "prove.py",
    "reference.py",
    "rounding.py",
    "service.py",
    "speed.py",
    "versions.py",
];

/// Make a folder that proves gen-svc on a machine with a GPU, without cargo and network.
///
/// It has gen-svc (release build), libtorch with the code of one compute capability, and the programs
/// of tests/gpu. It has no model: the proof makes models of random weights. The other machine needs
/// Linux on x86-64, a driver for CUDA 13, and a Python with grpcio, transformers and a PyTorch for
/// CUDA 13, whose NVIDIA libraries gen-svc loads. There, `python3 prove.py` runs the proof;
/// `python3 prove.py --help` explains its phases.
///
/// Fetches libtorch with CUDA into `.tandem/libtorch-cuda` (3 GB, once), unless `.tandem/libtorch` has
/// CUDA. Needs binutils and a C compiler; --part-mb also needs xz.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask gpu-kit                                  for cards of capability 9.0, into target/gpu-kit
  cargo xtask gpu-kit --architecture 100               for cards of capability 10.0
  cargo xtask gpu-kit --part-mb 48                     also packed, in parts
  cat gpu-kit.tar.xz.* | tar -xJ; python3 gpu-kit/prove.py    on the other machine")]
pub(crate) struct Args {
    /// Folder of the kit, which is replaced [default: target/gpu-kit]
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Compute capability of the card, without the dot.
    #[arg(long, value_name = "NUMBER", default_value_t = 90)]
    architecture: u32,
    /// Also pack the kit beside its folder, as FOLDER.tar.xz in parts of this size in MB.
    #[arg(long, value_name = "MB")]
    part_mb: Option<u32>,
}

pub(crate) fn run(layout: &Layout, args: &Args) -> Result<ExitCode> {
    let out = args.out.clone().unwrap_or_else(|| layout.root().join("target/gpu-kit"));
    let libtorch = setup::libtorch_with_cuda(layout)?;
    let program = build(layout, &libtorch)?;
    remove_folder(&out)?;
    make_folder(&out.join("lib"))?;
    make_folder(&out.join("bin"))?;
    strip(&program, &out.join("bin/gen-svc"))?;
    add_libraries(&libtorch, args.architecture, &out.join("lib"))?;
    add_scripts(layout, &out)?;
    println!("{}  {:.0} MB", out.display(), size(&out)? as f64 / 1e6);
    if let Some(megabytes) = args.part_mb {
        pack(&out, megabytes)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Builds gen-svc with libtorch for CUDA. Its folder is not that of other builds, which keep theirs.
fn build(layout: &Layout, libtorch: &Path) -> Result<PathBuf> {
    eprintln!("Building gen-svc with CUDA, optimized; this takes some minutes.");
    let target = layout.root().join("target/gpu");
    let commit = Commit::of(layout).name;
    let variables = [
        ("LIBTORCH", libtorch.as_os_str()),
        ("CARGO_TARGET_DIR", target.as_os_str()),
        ("TANDEM_COMMIT", OsStr::new(&commit)),
    ];
    cargo::run(cargo::build_command(layout, Profile::Release, &["gen-svc"]).envs(variables))?;
    Ok(target.join("release/gen-svc"))
}

fn strip(from: &Path, to: &Path) -> Result<()> {
    output_of(Command::new("strip").arg("--strip-unneeded").arg("-o").arg(to).arg(from)).map(drop)
}

fn add_libraries(libtorch: &Path, architecture: u32, folder: &Path) -> Result<()> {
    for name in LIBRARIES {
        strip(&libtorch.join("lib").join(name), &folder.join(name))?;
    }
    for entry in fs::read_dir(libtorch.join("lib")).context("libtorch has no folder lib")? {
        let name = entry?.file_name();
        if name.to_string_lossy().starts_with("libgomp") {
            copy(&libtorch.join("lib").join(&name), &folder.join(&name))?;
        }
    }
    eprintln!("Removing the code of other cards from libtorch_cuda.so");
    let removed = fatbin::keep_only(&folder.join("libtorch_cuda.so"), architecture)?;
    eprintln!("kept {} MB, blanked {} MB", removed.kept >> 20, removed.blanked >> 20);
    Ok(())
}

/// Adds the programs of the proof, the library that counts waits, and the compiled contract.
fn add_scripts(layout: &Layout, out: &Path) -> Result<()> {
    let source = layout.root().join("tests/gpu");
    for name in SCRIPTS {
        copy(&source.join(name), &out.join(name))?;
    }
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O2", "-o"]).arg(out.join("lib/libwaits.so"));
    output_of(compiler.arg(source.join("waits.c")).arg("-ldl"))?;
    let mut buf = Command::new(venv::buf(layout)?);
    buf.arg("build").arg(layout.root().join("proto")).arg("--output").arg(out.join("tandem.binpb"));
    output_of(&mut buf).map(drop)
}

fn pack(out: &Path, megabytes: u32) -> Result<()> {
    let (parent, name) = (out.parent().context("the kit has a parent folder")?, file_name(out)?);
    eprintln!("Packing {name}");
    let archive = parent.join(format!("{name}.tar.xz"));
    let mut tar = Command::new("tar");
    tar.args(["--create", "--use-compress-program", "xz -6 --threads=0", "--file"]).arg(&archive);
    output_of(tar.arg("--directory").arg(parent).arg(name))?;
    let mut split = Command::new("split");
    split.arg("--numeric-suffixes").arg(format!("--bytes={megabytes}MB"));
    output_of(split.arg(&archive).arg(format!("{}.", archive.display())))?;
    println!("{}.*  {:.0} MB", archive.display(), size(&archive)? as f64 / 1e6);
    fs::remove_file(&archive).with_context(|| format!("cannot remove {}", archive.display()))
}

fn file_name(path: &Path) -> Result<&str> {
    path.file_name().and_then(OsStr::to_str).with_context(|| format!("{} has no name", path.display()))
}

/// Returns the bytes of a file, or of all files in a folder.
fn size(path: &Path) -> Result<u64> {
    let about = fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?;
    if !about.is_dir() {
        return Ok(about.len());
    }
    let entries = fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()))?;
    entries.map(|entry| size(&entry?.path())).sum()
}
