//! Programs in a root file system that lacks everything else.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tandem_tests::scratch;
use tempfile::TempDir;

/// Runs a command that must succeed, and returns its standard output.
pub(super) fn run(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().expect("it runs");
    assert!(status.success(), "{command:?}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).expect("UTF-8")
}

/// Returns the folder of libtorch, as cargo's configuration sets it for `cargo xtask`.
pub(super) fn libtorch() -> PathBuf {
    std::env::var_os("LIBTORCH").map_or_else(|| tandem_tests::repository().join(".tandem/libtorch"), PathBuf::from)
}

/// Returns the start of a command in another root, or None where this is not permitted.
pub(super) fn other_root() -> Option<Vec<&'static str>> {
    let ways = [vec!["unshare", "--user", "--map-root-user", "chroot"], vec!["chroot"]];
    ways.into_iter().find(|way| {
        let mut command = Command::new(way[0]);
        command.args(&way[1..]).args(["/", "/bin/true"]).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    })
}

/// A root file system that has the added files only.
pub(super) struct Root {
    pub(super) folder: TempDir,
    way: Vec<&'static str>,
}

impl Root {
    /// Makes a root without files.
    pub(super) fn empty(way: Vec<&'static str>) -> Self {
        Self { folder: TempDir::new_in(scratch()).expect("a folder"), way }
    }

    /// Unpacks tarballs into a new root, and adds the loader and the libraries of this machine's glibc.
    pub(super) fn new(way: Vec<&'static str>, tarballs: &[PathBuf]) -> Self {
        let root = Self::empty(way);
        for tarball in tarballs {
            let unpack = ["--extract", "--strip-components=1", "--one-top-level=program", "--file"];
            run(Command::new("tar").arg("--directory").arg(root.folder.path()).args(unpack).arg(tarball));
        }
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
    pub(super) fn add(&self, from: &Path, to: &str) {
        let to = self.folder.path().join(to.trim_start_matches('/'));
        fs::create_dir_all(to.parent().expect("a folder")).expect("a folder");
        fs::copy(from, to).expect("a copy");
    }

    /// Runs a program in the root, without an environment. The loader finds the program's folder
    /// through the one file of `/proc` that is there.
    pub(super) fn run(&self, arguments: &[&str], input: &str) -> String {
        let link = self.folder.path().join("proc/self/exe");
        fs::create_dir_all(link.parent().expect("a folder")).expect("a folder");
        let _ = fs::remove_file(&link);
        symlink(arguments[0], &link).expect("a link");
        let output = self.run_with(arguments, input, &[]);
        fs::remove_dir_all(self.folder.path().join("proc")).expect("removed");
        output
    }

    /// Runs a program in the root, without `/proc`, with these variables.
    pub(super) fn run_with(&self, arguments: &[&str], input: &str, variables: &[(&str, &str)]) -> String {
        feed(self.command(arguments).envs(variables.iter().copied()), input)
    }

    /// Returns a command that runs in the root.
    pub(super) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.way[0]);
        command.args(&self.way[1..]).arg(self.folder.path()).args(arguments).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command
    }
}

/// Runs a command with this input. Returns its output.
pub(super) fn feed(command: &mut Command, input: &str) -> String {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    child.stdin.take().expect("piped").write_all(input.as_bytes()).expect("it reads");
    let Output { status, stdout, stderr } = child.wait_with_output().expect("it ends");
    assert!(status.success(), "{command:?}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).expect("UTF-8")
}
