//! Links the suite with libtorch's link arguments, which dependents do not inherit.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let arguments = env::var("DEP_TANDEM_TORCH_LINK_ARGS").expect("tandem-torch exports its link arguments");
    for argument in arguments.split(' ') {
        println!("cargo::rustc-link-arg-tests={argument}");
    }
}
