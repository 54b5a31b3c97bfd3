"""Unpacks the wanted files of a wheel.

Usage: unpack.py WHEEL FOLDER RULE...

A rule is PATTERN=PLACE. A pattern that ends with a slash takes that whole folder to PLACE; any other is a shell pattern
whose matches go into the folder PLACE, or to the file PLACE when it does not end with a slash. A rule that matches nothing
is an error: the wheel is not what the rules were written for.

Exit status: 0 unpacked; 13 the disk is full; 14 the wheel is not as expected. The reason is one line on stdout.
"""

import errno
import fnmatch
import os
import shutil
import sys
import zipfile

DISK, UNEXPECTED = 13, 14


def place(name, pattern, target):
    """Where `name` goes under this rule, or None."""
    if pattern.endswith("/"):
        return target + name[len(pattern):] if name.startswith(pattern) else None
    if not fnmatch.fnmatchcase(name, pattern):
        return None
    return target + os.path.basename(name) if target.endswith("/") else target


def plan(wheel, rules):
    """(member, place) for every wanted file."""
    files = [member for member in wheel.infolist() if not member.is_dir()]
    wanted = []
    for rule in rules:
        pattern, _, target = rule.partition("=")
        matches = [(file, place(file.filename, pattern, target)) for file in files]
        matches = [(file, to) for file, to in matches if to]
        if not matches:
            sys.exit(fail(UNEXPECTED, "nothing in it matches " + pattern))
        wanted += matches
    return wanted


def fail(status, reason):
    print(reason)
    return status


def extract(wheel, member, path):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with wheel.open(member) as source, open(path, "wb") as out:
        shutil.copyfileobj(source, out, 1 << 20)


def main(path, folder, *rules):
    with zipfile.ZipFile(path) as wheel:
        wanted = plan(wheel, rules)
        needed = sum(member.file_size for member, _ in wanted)
        free = shutil.disk_usage(folder).free
        if needed > free:
            return fail(DISK, "{:.1f} MB to unpack, {:.1f} MB free".format(needed / 1e6, free / 1e6))
        for member, to in wanted:
            extract(wheel, member, os.path.join(folder, to))
    os.sync()  # The caller renames the folder next; a power cut must not leave its name without its content.
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except zipfile.BadZipFile as error:
        sys.exit(fail(UNEXPECTED, error))
    except OSError as error:
        sys.exit(fail(DISK if error.errno in (errno.ENOSPC, errno.EDQUOT) else UNEXPECTED, error))
    except KeyboardInterrupt:
        sys.exit(130)
