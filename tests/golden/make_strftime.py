#!/usr/bin/env python3
"""Writes strftime.json: texts of Python's `datetime.strftime` on Linux (glibc, the C locale).

    LC_ALL=C.UTF-8 python3.11 make_strftime.py [FORMATS] [SEED]

Newer versions of Python differ: they write years before 1000 with four digits. The formats are a grid
of flags, widths, modifiers and conversions, drawn at random, alone and joined.
"""

import datetime
import json
import random
import string
import sys
from pathlib import Path

HERE = Path(__file__).parent
TIMES = ["2025-07-04T09:05:03", "2024-12-30T23:59:59.000120", "2021-01-03T00:00:00", "1999-12-31T12:30:07.999999",
         "0099-02-28T13:00:00", "1969-12-31T23:59:59", "9999-12-31T11:11:11", "2000-02-29T12:00:00", "0001-01-01T00:00:00"]
CODES = string.ascii_letters + string.ascii_letters + "%+ é:5"
FLAGS = ["", "", "_", "-", "0", "^", "#", "_-", "0_", "^#", "#0^", "-^", "--"]
WIDTHS = ["", "", "", "1", "2", "3", "5", "12", "40", "007"]
MODIFIERS = ["", "", "E", "O", "EO"]
# Formats of the ends of texts, of CPython's buffer and of literal text.
OTHERS = ["", "%", "%%", "%%f", "%5", "%-", "%E", "%O", "%_5", "%f%z%Z", "%-f", "%%%f", "%_%f", "%5%z", "a\tb é%", "%1022d", "%1023d",
          "%1024d", "%5000d", "%99999999999d", "%300d%300d%300d%300d", "%1023%", "%^é", "%^B %#p %^c", "x" * 30 + "%8000Y"]


def formats(count):
    yield from OTHERS
    for _ in range(count):
        parts = [draw() for _ in range(random.choice([1, 1, 1, 2, 3]))]
        yield random.choice(["", "", "|", " on "]).join(parts)


def draw():
    return "%" + random.choice(FLAGS) + random.choice(WIDTHS) + random.choice(MODIFIERS) + random.choice(CODES)


def main():
    count, seed = (int(argument) for argument in (sys.argv[1:] + ["900", "9"])[:2])
    random.seed(seed)
    rows = []
    for i, form in enumerate(formats(count)):
        time = TIMES[i % len(TIMES)]
        rows.append([time, form, datetime.datetime.fromisoformat(time).strftime(form)])
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    (HERE / "strftime.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
