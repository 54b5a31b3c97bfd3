//! The paths of the repository, and of `.tandem/` in it.

use std::env;
use std::path::{Path, PathBuf};

/// The repository's root, and the folders that the commands fill.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    root: PathBuf,
}

impl Layout {
    /// Cargo sets this crate's folder when it runs a binary. A binary run by hand uses the folder
    /// at build time.
    pub(crate) fn find() -> Self {
        let here = env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
        let root = here.ancestors().nth(2).unwrap_or(&here).to_path_buf();
        Self { root }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Downloads, tools, logs, and the files of chat. Git ignores this folder.
    pub(crate) fn tandem(&self) -> PathBuf {
        self.root.join(".tandem")
    }

    pub(crate) fn libtorch(&self) -> PathBuf {
        self.tandem().join("libtorch")
    }

    /// The libtorch of `gpu-kit`, beside a CPU-only one.
    pub(crate) fn libtorch_with_cuda(&self) -> PathBuf {
        self.tandem().join("libtorch-cuda")
    }

    pub(crate) fn models(&self) -> PathBuf {
        self.tandem().join("models")
    }

    pub(crate) fn tokenizers(&self) -> PathBuf {
        self.tandem().join("tokenizers")
    }

    pub(crate) fn envoy(&self) -> PathBuf {
        self.tandem().join("envoy")
    }

    /// Packages during the set-up, which removes this folder at its end.
    pub(crate) fn downloads(&self) -> PathBuf {
        self.tandem().join("downloads")
    }
}
