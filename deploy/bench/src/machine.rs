//! The machine, and what processes take of it.

use std::fs;

/// What decides how fast kernels can be.
const FLAGS: [&str; 8] = ["avx2", "fma", "f16c", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", AMX];
const AMX: &str = "amx_int8";

/// As many threads as every system may use.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// "AMD EPYC, 2 cores, avx2 fma f16c; no AMX on this CPU"
pub(crate) fn describe() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = info.lines().find(|line| line.split(':').next().is_some_and(|key| key.trim() == name))?;
        line.split_once(':').map(|(_, value)| value.trim())
    };
    let has: Vec<&str> = field("flags").unwrap_or_default().split(' ').collect();
    let flags: Vec<&str> = FLAGS.into_iter().filter(|flag| has.contains(flag)).collect();
    let amx = match flags.contains(&AMX) {
        true => "llama.cpp uses AMX by default, and not in its plain row",
        false => "no AMX on this CPU",
    };
    format!("{}, {} cores, {}; {amx}", field("model name").unwrap_or("unknown CPU"), cores(), flags.join(" "))
}

/// Over one, five and fifteen minutes.
pub(crate) fn load_average() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').take(3).collect::<Vec<_>>().join(" ")
}

/// Resident memory of a process, in bytes.
pub(crate) fn resident(process: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}
