//! Lets programs find, without LD_LIBRARY_PATH, the libtorch that they were linked with.

use std::env;
use std::path::Path;

fn main() {
    let folder = env::var("DEP_TCH_LIBTORCH_LIB").expect("torch-sys passes the folder of libtorch");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={folder}");
    for argument in link_arguments(&folder) {
        println!("cargo::rustc-link-arg={argument}");
    }
    // Dependents read these as DEP_GEN_SVC_LINK_ARGS: link arguments are not inherited.
    println!("cargo::metadata=link_args={}", link_arguments(&folder).join(" "));
}

/// An old-style rpath, because libtorch's own libraries find each other through it too.
/// libtorch_cuda is linked by force where it is there: nothing calls it by name, it registers
/// itself when loaded.
fn link_arguments(folder: &str) -> Vec<String> {
    let mut arguments = vec![format!("-Wl,--disable-new-dtags,-rpath,{folder}")];
    if Path::new(folder).join("libtorch_cuda.so").exists() {
        arguments.push(format!("-Wl,--no-as-needed,-L{folder},-ltorch_cuda,--as-needed"));
    }
    arguments
}
