//! Links the mock as gen-svc itself is linked: link arguments are not inherited.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let arguments = env::var("DEP_GEN_SVC_LINK_ARGS").expect("gen-svc tells how to link libtorch");
    for argument in arguments.split(' ') {
        println!("cargo::rustc-link-arg-bins={argument}");
    }
}
