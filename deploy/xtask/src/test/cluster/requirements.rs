//! The requirements of the machine.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::tools::is_installed;

/// Programs, each with its package in Debian.
const PROGRAMS: [(&str, &str); 13] = [
    ("containerd", "containerd"),
    ("runc", "runc"),
    ("nft", "nftables"),
    ("iptables", "iptables"),
    ("conntrack", "conntrack"),
    ("ip", "iproute2"),
    ("openssl", "openssl"),
    ("unshare", "util-linux"),
    ("nsenter", "util-linux"),
    ("pidof", "sysvinit-utils"),
    ("go", "golang, version 1.26 or newer"),
    ("gcc", "gcc"),
    ("prometheus", "prometheus"),
];

/// The plugin of containernetworking-plugins that connects the pods.
const BRIDGE: &str = "/usr/lib/cni/bridge";

/// Returns the missing requirements.
pub(super) fn missing() -> Vec<String> {
    if !cfg!(target_os = "linux") {
        return vec!["Linux".to_owned()];
    }
    let mut missing = Vec::new();
    if !is_root() {
        missing.push("root".to_owned());
    }
    let lacking = PROGRAMS.iter().filter(|(program, _)| !is_installed(program));
    missing.extend(lacking.map(|(program, package)| format!("{program} (package {package})")));
    if !Path::new(BRIDGE).exists() {
        missing.push(format!("{BRIDGE} (package containernetworking-plugins)"));
    }
    if missing.is_empty() && !can_make_namespaces() {
        missing.push("a machine on which root may mount file systems and make namespaces".to_owned());
    }
    missing
}

fn is_root() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().any(|line| line.starts_with("Uid:\t0\t"))
}

fn can_make_namespaces() -> bool {
    let probe = ["--mount", "--net", "--pid", "--fork", "mount", "-t", "sysfs", "sysfs", "/sys"];
    Command::new("unshare").args(probe).output().is_ok_and(|output| output.status.success())
}
