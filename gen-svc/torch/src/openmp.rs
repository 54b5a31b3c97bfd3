//! How long the threads of libgomp, with which libtorch computes on a CPU, spin while they wait.
//!
//! By default they spin for some milliseconds after each operation. This takes a core from the
//! preparation of images, from the calls, and from other processes: beside busy neighbours, spinning threads
//! wait for threads that got no core.

use std::env;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

/// The rounds of spinning, in libgomp's own variable.
const ROUNDS: (&str, &str) = ("GOMP_SPINCOUNT", "10000");

/// The variables with which a user decides how threads wait.
const DECIDED: [&str; 2] = [ROUNDS.0, "OMP_WAIT_POLICY"];

/// Sets the rounds of spinning, unless a variable of the environment does.
///
/// libgomp reads its variables before `main` begins. So the process starts its program again, with
/// the same identifier and arguments. If that is not possible, the threads spin as long as by default.
pub(crate) fn shorten_spinning() {
    if DECIDED.iter().any(|name| env::var_os(name).is_some()) {
        return;
    }
    let mut arguments = env::args_os();
    let (Ok(program), Some(name)) = (env::current_exe(), arguments.next()) else { return };
    if program.file_name() != Path::new(&name).file_name() {
        return; // started by the loader, or by a link
    }
    let error = Command::new(program).arg0(name).args(arguments).env(ROUNDS.0, ROUNDS.1).exec();
    eprintln!("gen-svc: {} is not set, because the program could not start again: {error}", ROUNDS.0);
}
