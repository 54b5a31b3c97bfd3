//! Resident memory of every system's process.

use super::bench::Bench;

pub(super) fn report(bench: &Bench<'_>) {
    println!(
        "\nresident memory, MB: after load and a first answer, and at the end (mapped pages of the model's file included; up to {} MiB \
         of Tandem's are for keys and values)",
        bench.args.kv_memory_mib
    );
    for system in &bench.systems {
        if let (Some(loaded), Some(end)) = (system.loaded, system.memory()) {
            println!("  {:18}{:>8} {:>8}", system.name, loaded / 1_000_000, end / 1_000_000);
        }
    }
}
