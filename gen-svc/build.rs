//! Links the program with libtorch's link arguments, if it is built with libtorch.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let arguments = env::var("DEP_TANDEM_TORCH_LINK_ARGS").unwrap_or_default();
    for argument in arguments.split_whitespace() {
        println!("cargo::rustc-link-arg-bins={argument}");
    }
}
