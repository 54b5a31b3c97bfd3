//! Links the mock with gen-svc's link arguments, which dependents do not inherit.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let arguments = env::var("DEP_GEN_SVC_LINK_ARGS").expect("gen-svc exports its link arguments");
    for argument in arguments.split(' ') {
        println!("cargo::rustc-link-arg-bins={argument}");
    }
}
