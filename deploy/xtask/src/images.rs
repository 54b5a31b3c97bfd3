//! `cargo xtask images`: a container image per service, made without a container engine.

mod oci;
mod root;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;

use crate::files::{make_folder, remove_folder};
use crate::layout::Layout;
use crate::release::{self, Commit, SERVICES};
use oci::{Archive, Image};

/// Make a container image per service, without a container engine.
///
/// An image has the program (release build, stripped), the libraries that it loads, and the license:
/// no shell, no package manager. It runs as user 65532, also with a read-only root file system. Each
/// image is an OCI archive, which `docker load`, `podman load` and `ctr images import` read, and a
/// folder `root`, which the Dockerfiles in deploy/images can take. Equal inputs give equal images.
/// The machine's architecture is the image's. If libtorch has CUDA (`cargo xtask setup --cuda`),
/// gen-svc's image has it too, and a tag that ends with -cuda. With --text-only, gen-svc has no
/// libtorch, its tag ends with -text, and its file is gen-svc-text.tar.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask images                          all services, into target/images
  cargo xtask images render-svc --out /tmp    one service
  cargo xtask images gen-svc --text-only      without libtorch, a tenth of the size
  cargo xtask images gen-bridge --text-only   the bridge, which never has libtorch; needs no set-up
  docker load --input target/images/render-svc.tar")]
pub(crate) struct Args {
    /// Services [default: all]
    #[arg(value_name = "SERVICE", value_parser = SERVICES)]
    services: Vec<String>,
    /// Folder of the images [default: target/images]
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Name of the images, without the service and the tag.
    #[arg(long, value_name = "REGISTRY", default_value = "localhost/tandem")]
    registry: String,
    /// Build gen-svc without libtorch: no images, no GPU, and only models that the CPU's kernels compute.
    #[arg(long, conflicts_with = "programs")]
    text_only: bool,
    /// Use the programs of this folder, and build nothing. Used by tests.
    #[arg(long, value_name = "FOLDER", hide = true)]
    programs: Option<PathBuf>,
}

impl Args {
    /// Returns the arguments for images of services whose programs are built.
    pub(crate) fn of_programs(services: &[&str], out: PathBuf, programs: PathBuf) -> Self {
        let registry = "localhost/tandem".to_owned();
        let services = services.iter().map(|&service| service.to_owned()).collect();
        Self { services, out: Some(out), registry, text_only: false, programs: Some(programs) }
    }
}

pub(crate) fn run(layout: &Layout, args: &Args) -> Result<ExitCode> {
    let services = release::chosen(&args.services);
    let out = args.out.clone().unwrap_or_else(|| layout.root().join("target/images"));
    let commit = Commit::of(layout);
    let programs = match args.text_only {
        true => release::without_libtorch(layout, &services, &commit)?,
        false => release::programs(layout, &services, &commit, args.programs.as_deref())?,
    };
    for (service, program) in services.iter().zip(programs) {
        let folder = out.join(folder_of(service, args.text_only));
        remove_folder(&folder)?;
        make_folder(&folder)?;
        eprintln!("Packing {service}");
        let tag = root::fill(layout, service, &program, &folder.join("root"))?;
        let name = format!("{}/{service}:{tag}", args.registry);
        let archive = pack(&folder, service, &name, &commit)?;
        println!("{}  {name}  {:.1} MB", archive.path.display(), archive.bytes as f64 / 1e6);
    }
    Ok(ExitCode::SUCCESS)
}

/// The folder of a service's image. gen-svc has two images, each in a folder and a file.
fn folder_of(service: &str, text_only: bool) -> String {
    match text_only && service == "gen-svc" {
        true => format!("{service}-text"),
        false => service.to_owned(),
    }
}

/// Packs `root` in a folder, with the program `bin/SERVICE`, as an image `FOLDER.tar` beside the folder.
pub(crate) fn pack(folder: &Path, service: &str, name: &str, commit: &Commit) -> Result<Archive> {
    oci::pack(&Image { service, name, commit }, folder)
}
