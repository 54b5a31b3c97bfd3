"""The versions of both sides of a proof, and the machine."""

import os
import platform
import subprocess

import torch
import transformers

import service


def versions(program, device):
    """Returns the versions, and the names of the machine's parts."""
    return {
        "transformers": transformers.__version__,
        "torch": torch.__version__,
        "CUDA": torch.version.cuda,
        "card": torch.cuda.get_device_name() if device != "cpu" else "none",
        "driver": driver() if device != "cpu" else "none",
        "gen-svc": "; ".join(service.output(60, program, "--version").splitlines()),
        "Python": platform.python_version(),
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
    }


def driver():
    """Returns the version of the driver, or "unknown"."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def processor():
    """Returns the name of the processor."""
    with open("/proc/cpuinfo") as file:
        names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    return names[0] if names else "unknown"
