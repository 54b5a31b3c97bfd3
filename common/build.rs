//! Compiles `proto/` into Rust and into the descriptor set that reflection serves. Needs no protoc.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

use prost::Message as _;

/// The folders of the contract. `clients` has no files of it.
const FOLDERS: [&str; 2] = ["google", "tandem"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../proto");
    println!("cargo::rustc-env=TANDEM_TARGET={}", env::var("TARGET")?);
    println!("cargo::rustc-env=TANDEM_PROFILE={}", env::var("PROFILE")?);
    let mut files = Vec::new();
    for folder in FOLDERS.map(|name| root.join(name)) {
        println!("cargo::rerun-if-changed={}", folder.display());
        files.extend(proto_files(&folder)?);
    }
    let descriptors = protox::compile(files, [&root])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
    let configured = tonic_prost_build::configure().codec_path("crate::codec::Codec");
    // tonic reads and writes error details with these types.
    configured.extern_path(".google.rpc", "::tonic_types::pb").compile_fds(descriptors)?;
    Ok(())
}

fn proto_files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(proto_files(&path)?);
        } else if path.extension().is_some_and(|e| e == "proto") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
