"""Proves gen-svc on a GPU: python3 prove.py [PHASE ...] [--work FOLDER] [--minutes 8]

Phases: 1 loads a model and compares both implementations of attention; 2 compares tokens and log
probabilities in f32 with transformers on the same device; 3 compares the errors of bf16; 4 measures
speed, with its floor. Each phase consists of checks, and each check has a budget of time. A finished
check is kept in FOLDER/results.json at once and not run again, so that a proof can be cut into several
calls. The program ends within its minutes. It first prints the results, and which aims they reach.

Needs a Python with torch, transformers and grpcio. The other files of this kit are beside it.
"""

import argparse
import os
import pathlib
import sys
import time

START = time.monotonic()
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"

import aims  # noqa: E402
import exact  # noqa: E402
import loading  # noqa: E402
import rounding  # noqa: E402
import speed  # noqa: E402
from checks import Checks  # noqa: E402
from proof import Proof  # noqa: E402
from versions import versions  # noqa: E402

PHASES = {"1": loading.phase, "2": exact.phase, "3": rounding.phase, "4": speed.phase}


def phase(name):
    """Returns the phase of a name."""
    if name not in PHASES:
        raise argparse.ArgumentTypeError(f"unknown phase {name}, known: {', '.join(PHASES)}")
    return PHASES[name]


def arguments():
    """Returns the arguments of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("phases", nargs="*", type=phase, metavar="PHASE", help="phases to run [default: all]")
    parser.add_argument("--device", default="cuda:0", help="device of both sides")
    work = pathlib.Path("gpu-proof")
    parser.add_argument("--work", type=pathlib.Path, default=work, help="folder of models and results")
    parser.add_argument("--results", type=pathlib.Path, help="file of results [default: results.json in the folder]")
    parser.add_argument("--minutes", type=float, default=8, help="time after which the program has ended")
    parser.add_argument("--only", default="", metavar="TEXT", help="run only checks whose name has this text")
    parser.add_argument("--again", action="store_true", help="repeat failed checks")
    parser.add_argument("--gen-svc", type=pathlib.Path, default=HERE / "bin/gen-svc", help="program to prove")
    parser.add_argument("--option", action="append", default=[], help="further option of gen-svc serve, repeatable")
    parser.add_argument("--small", action="store_true", help="tiny models, to try this program without a GPU")
    return parser.parse_args()


def run(args, checks):
    """Runs the phases."""
    proof = Proof(args, checks)
    checks.watch()
    try:
        checks.record_versions(versions(args.gen_svc, args.device))
        for checks_of in args.phases or PHASES.values():
            checks_of(proof)
    finally:
        proof.drop()


def report(checks):
    """Prints the results, and returns the exit status."""
    if "4 machine" in checks.results:
        print(aims.speeds(checks.results))
        print(aims.aims(checks.results))
    if checks.postponed:
        print(f"out of time, the same command continues, maybe with more --minutes: {', '.join(checks.postponed)}")
    failed = [name for name, result in checks.results.items() if not result["ok"]]
    print(f"{len(checks.results)} checks, {len(failed)} failed{': ' if failed else ''}{', '.join(failed)}")
    return 1 if failed else 0


def main():
    """Runs the proof, and returns the exit status."""
    args = arguments()
    args.work.mkdir(parents=True, exist_ok=True)
    checks = Checks(args.results or args.work / "results.json", START, args.minutes, only=args.only, again=args.again)
    checks.on_stop = lambda: report(checks)
    run(args, checks)
    return report(checks)


if __name__ == "__main__":
    sys.exit(main())
