//! Resident memory of every system's process.

use super::system::System;

pub(super) fn report(systems: &[System]) {
    println!(
        "\nresident memory, MB: after load and a first answer, and at the end (mapped pages of the model's file included)"
    );
    for system in systems {
        if let (Some(loaded), Some(end)) = (system.loaded, system.memory()) {
            println!("  {:18}{:>8} {:>8}", system.name, loaded / 1_000_000, end / 1_000_000);
        }
    }
}
