//! Lets the program find libraries beside itself, and states the versions of libraries that decide
//! results.

use std::fs;

/// The workspace's lock file, which is missing where the crate is used from elsewhere.
const LOCK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.lock");

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={LOCK}");
    println!("cargo::rustc-link-arg-bins=-Wl,--disable-new-dtags,-rpath,$ORIGIN/lib:$ORIGIN/../lib");
    let lock = fs::read_to_string(LOCK).unwrap_or_default();
    for (variable, package) in [("TANDEM_MINIJINJA", "minijinja"), ("TANDEM_TOKENIZERS", "tokenizers")] {
        println!("cargo::rustc-env={variable}={}", versions(&lock, package));
    }
}

/// Returns the locked versions of a package.
fn versions(lock: &str, package: &str) -> String {
    let name = format!("name = \"{package}\"\nversion = \"");
    let found: Vec<_> = lock.split(&name).skip(1).filter_map(|rest| rest.split('"').next()).collect();
    if found.is_empty() { "unknown".to_owned() } else { found.join(" and ") }
}
