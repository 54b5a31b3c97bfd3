//! Compiles the calls of libtorch that tch does not bind, and lets programs find libtorch without
//! LD_LIBRARY_PATH: beside the program, or, in a development build, where it was linked from.

use std::path::Path;
use std::{env, fs};

/// Set by `cargo xtask dist`: the program finds libraries beside itself only.
const DIST: &str = "TANDEM_DIST";

fn main() {
    let folder = env::var("DEP_TCH_LIBTORCH_LIB").expect("torch-sys passes the folder of libtorch");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={folder}");
    println!("cargo::rerun-if-env-changed={DIST}");
    println!("cargo::rustc-env=TANDEM_LIBTORCH_VERSION={}", version(&folder));
    compile_device_calls(&folder);
    // Dependents read these as DEP_TANDEM_TORCH_LINK_ARGS: link arguments are not inherited.
    println!("cargo::metadata=link_args={}", link_arguments(&folder).join(" "));
}

/// Compiles the calls of libtorch that tch does not bind.
fn compile_device_calls(folder: &str) {
    let source = "src/device/calls.cpp";
    println!("cargo::rerun-if-changed={source}");
    let include = Path::new(folder).join("../include");
    cc::Build::new().cpp(true).std("c++20").warnings(false).include(include).file(source).compile("tandem_device");
}

/// An old-style rpath, because libtorch's own libraries find each other through it too.
/// libtorch_cuda is linked by force where it is there: nothing calls it by name, it registers
/// itself when loaded.
fn link_arguments(folder: &str) -> Vec<String> {
    let is_dist = env::var_os(DIST).is_some_and(|value| !value.is_empty());
    let linked = if is_dist { String::new() } else { format!(":{folder}") };
    let mut arguments = vec![format!("-Wl,--disable-new-dtags,-rpath,$ORIGIN/lib:$ORIGIN/../lib{linked}")];
    if Path::new(folder).join("libtorch_cuda.so").exists() {
        arguments.push(format!("-Wl,--no-as-needed,-L{folder},-ltorch_cuda,--as-needed"));
    }
    arguments
}

/// Returns the version of the libtorch in this folder.
fn version(folder: &str) -> String {
    println!("cargo::rerun-if-changed={folder}/../build-version");
    fs::read_to_string(Path::new(folder).join("../build-version"))
        .map_or("unknown".to_owned(), |text| text.trim().to_owned())
}
