"""Compares a server's answer with the expectation of a vector. README.md of tests/contract has the rules."""

import base64
import copy
import json
import math
from pathlib import Path


def differences(expected, actual, path=""):
    """Yields a line for each value of `expected` that `actual`, proto3 JSON, does not have."""
    if isinstance(expected, dict) and isinstance(actual, (dict, type(None))):
        for key, value in expected.items():
            yield from differences(value, (actual or {}).get(key), f"{path}.{key}" if path else key)
    elif isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        for index, (value, other) in enumerate(zip(expected, actual)):
            yield from differences(value, other, f"{path}[{index}]")
    elif not (equal(expected, actual) or (actual is None and is_default(expected))):
        yield f"{path}: expected {expected!r}, got {actual!r}"


def equal(expected, actual):
    numbers = (int, float)
    if isinstance(expected, bool) or isinstance(actual, bool):
        return expected is actual
    if isinstance(expected, numbers) and isinstance(actual, numbers):
        return math.isclose(expected, actual, rel_tol=0, abs_tol=tolerance(expected, actual))
    return expected == actual


def tolerance(expected, actual):
    """Float fields have 7 digits, and log probabilities depend on the processor. Integers are exact."""
    is_integer = float(expected).is_integer() and float(actual).is_integer()
    return 0 if is_integer else 1e-4 * max(1, abs(expected))


def is_default(value):
    return value in ("", "0", 0, False, [], {}) or (isinstance(value, str) and value.endswith("_UNSPECIFIED"))


def present(paths, actual):
    """Yields a line for each path, such as `events[0].delta.text`, that `actual` has."""
    for path in paths:
        value = actual
        for part in path.replace("[", ".[").split("."):
            if part.startswith("["):
                index = int(part[1:-1])
                value = value[index] if isinstance(value, list) and index < len(value) else None
            else:
                value = value.get(part) if isinstance(value, dict) else None
        if value is not None:
            yield f"{path}: expected to be unset, got {value!r}"


def joined(events, keep_progress):
    """Joins consecutive deltas of an output, whose sizes depend on the timing, and drops `progress`, `parsed`
    (the last event has the whole) and events that this version does not define."""
    result, run = [], {}
    for event in events:
        if not event or "parsed" in event or ("progress" in event and not keep_progress):
            continue  # an event of a newer server is empty
        if "delta" in event:
            delta = event["delta"]
            add(run.setdefault(delta.get("outputIndex", 0), []), delta)
        elif "promptLogprobs" in event and result and "promptLogprobs" in result[-1]:
            result[-1]["promptLogprobs"].setdefault("tokens", []).extend(event["promptLogprobs"].get("tokens", []))
        else:
            result += ended(run)
            result.append(event)
    return result + ended(run)


def add(deltas, delta):
    if not any(key in delta for key in ("text", "bytes", "tokenIds", "tokens")):
        return
    if not deltas or deltas[-1].get("reasoning") != delta.get("reasoning"):
        deltas.append(dict(delta))
        return
    last = deltas[-1]
    for key in ("text", "tokenIds", "tokens"):
        if key in delta:
            last[key] = last[key] + delta[key] if key in last else delta[key]
    if "bytes" in delta:
        parts = (base64.b64decode(part["bytes"]) for part in (last, delta) if "bytes" in part)
        last["bytes"] = base64.b64encode(b"".join(parts)).decode()


def ended(run):
    """Returns the joined deltas, by output, and empties `run`."""
    events = [{"delta": delta} for _, deltas in sorted(run.items()) for delta in deltas]
    run.clear()
    return events


def check():
    """Applies the comparison to the cases that all suites share. Raises AssertionError if one fails."""
    cases = json.loads((Path(__file__).parents[1] / "comparison.json").read_text(encoding="utf8"))
    for case in cases["differences"]:
        lines = list(differences(case["expected"], case["actual"]))
        assert [line.split(":")[0] for line in lines] == case["at"], (case, lines)
    for case in cases["present"]:
        assert [line.split(":")[0] for line in present(case["paths"], case["actual"])] == case["at"], case
    for case in cases["joined"]:
        result = joined(copy.deepcopy(case["events"]), case.get("progress", False))
        assert result == case["joined"], (case, result)
