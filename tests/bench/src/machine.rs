//! The machine, and the resources of a process.

use std::fs;
use std::time::Duration;

/// CPU features that determine the speed of kernels.
const FLAGS: [&str; 8] = ["avx2", "fma", "f16c", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", AMX];
const AMX: &str = "amx_int8";

/// Returns the number of threads of every system.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Returns text such as "AMD EPYC, 2 cores"
pub(crate) fn name() -> String {
    format!("{}, {} cores", cpu("model name").as_deref().unwrap_or("unknown CPU"), cores())
}

/// Returns text such as "AMD EPYC, 2 cores, avx2 fma f16c; no AMX on this CPU"
pub(crate) fn describe() -> String {
    let flags = cpu("flags").unwrap_or_default();
    let has: Vec<&str> = flags.split(' ').collect();
    let flags: Vec<&str> = FLAGS.into_iter().filter(|flag| has.contains(flag)).collect();
    let amx = if flags.contains(&AMX) {
        "llama.cpp uses AMX by default, and not in its plain row"
    } else {
        "no AMX on this CPU"
    };
    format!("{}, {}; {amx}", name(), flags.join(" "))
}

/// Returns a field of the first core in /proc/cpuinfo.
fn cpu(field: &str) -> Option<String> {
    let info = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = info.lines().find(|line| line.split(':').next().is_some_and(|key| key.trim() == field))?;
    line.split_once(':').map(|(_, value)| value.trim().to_owned())
}

/// Returns the load average over one, five and fifteen minutes.
pub(crate) fn load_average() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').take(3).collect::<Vec<_>>().join(" ")
}

/// Returns the resident memory of a process, in bytes.
pub(crate) fn resident(process: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

/// Returns the CPU time of a process.
pub(crate) fn cpu_time(process: u32) -> Option<Duration> {
    // Linux reports 100 ticks per second on every machine.
    const TICK: Duration = Duration::from_millis(10);
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The process name before the bracket may contain spaces.
    let (_, fields) = stat.rsplit_once(')')?;
    let ticks = fields.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<u32>().ok());
    Some(TICK * ticks.sum::<Option<u32>>()?)
}
