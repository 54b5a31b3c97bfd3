//! Prints `proto/ERRORS.md`. `cargo xtask errors` writes it to the file.

#![allow(clippy::print_stdout, reason = "the page is this program's output")]

fn main() {
    print!("{}", tandem_common::status::errors_page());
}
