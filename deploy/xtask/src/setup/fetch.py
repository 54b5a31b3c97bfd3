"""Fetches one package by its exact file name into PART, going on from what PART already holds.

Usage: fetch.py PROJECT FILE PART LABEL

Where a wheel lives is read from the package index that pip itself is configured for (PEP 503 pages, PEP 691 JSON), with
pip's certificate and proxy settings. Any other file lives on the npm registry that npm is configured for, with npm's
certificate and proxy settings, where it has none with pip's. Whether the bytes are the right ones is for the caller to
check.

Exit status: 0 fetched; 10 the index cannot be asked this way, so pip should be for a wheel; 11 the network failed; 13 the disk is full.
The reason is one line on stdout; progress goes to stderr.
"""

import ast
import errno
import html.parser
import http.client
import json
import os
import shutil
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

ASK_PIP, NETWORK, DISK = 10, 11, 13
ATTEMPTS = 5
BLOCK = 1 << 18
STALL_SECONDS = 60
PARENT = os.getppid()
NPM_JSON = "application/vnd.npm.install-v1+json, application/json;q=0.5"
SIMPLE = "application/vnd.pypi.simple.v1+json, text/html;q=0.5"


class Stop(Exception):
    """Ends the script with a status and a reason."""

    def __init__(self, status, reason):
        super().__init__(reason)
        self.status = status


# --- How pip is configured -------------------------------------------------------------------------------------------


def pip_config():
    """pip's settings by option name. The environment wins over a command's section, which wins over the global one."""
    listing = subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", "config", "list"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ).stdout
    found = {}
    for section in ("global", "install", "download", ":env:"):
        for line in listing.splitlines():
            key, equals, value = line.partition("=")
            if equals and key.startswith(section + "."):
                found[key[len(section) + 1:]] = ast.literal_eval(value)
    return found


def default_index():
    """The index of an unconfigured pip, from pip's own code, so that no host is written down here."""
    try:
        from pip._internal.models.index import PyPI
        return PyPI.simple_url
    except (ImportError, AttributeError):
        raise Stop(ASK_PIP, "this pip does not say which index it uses")


def indexes(config):
    if "no-index" in config:
        raise Stop(ASK_PIP, "pip is configured to use no index")
    urls = [config.get("index-url") or default_index()]
    return urls + config.get("extra-index-url", "").split()


def certificates(config):
    """pip's certificate setting if there is one, else the system's authorities together with those that pip brings."""
    bundle = config.get("cert") or os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE")
    if bundle:
        is_folder = os.path.isdir(bundle)
        return ssl.create_default_context(**{"capath" if is_folder else "cafile": bundle})
    context = ssl.create_default_context()
    try:
        from pip._vendor import certifi
        context.load_verify_locations(certifi.where())
    except (ImportError, OSError):
        pass  # Distributions unbundle it; the system's authorities are there then.
    return context


def opener(config):
    handlers = [urllib.request.HTTPSHandler(context=certificates(config))]
    if "proxy" in config:
        handlers.append(urllib.request.ProxyHandler({"http": config["proxy"], "https": config["proxy"]}))
    return urllib.request.build_opener(*handlers)


# --- How npm is configured -------------------------------------------------------------------------------------------

NPM_REGISTRY = "https://registry.npmjs.org/"  # npm's own default, for machines without npm


def npm_option(name):
    """What the environment says, else npm if there is one."""
    value = os.environ.get("npm_config_" + name.replace("-", "_"))
    npm = shutil.which("npm")
    if not value and npm:
        value = subprocess.run(
            [npm, "config", "get", name], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        ).stdout.strip()
    return None if value in (None, "", "null", "undefined") else value


def npm_registry(project):
    scope = project.partition("/")[0]
    registry = project.startswith("@") and npm_option(scope + ":registry") or npm_option("registry") or NPM_REGISTRY
    return registry.rstrip("/") + "/"


def with_npm_options(config):
    """pip's settings with npm's in place of those that npm has too."""
    own = {"cert": npm_option("cafile"), "proxy": npm_option("https-proxy") or npm_option("proxy")}
    return {**config, **{name: value for name, value in own.items() if value}}


# --- Where the file lives --------------------------------------------------------------------------------------------


class Links(html.parser.HTMLParser):
    """Collects every link target of a page."""

    def __init__(self):
        super().__init__()
        self.targets = []

    def handle_starttag(self, tag, attributes):
        target = dict(attributes).get("href")
        if tag == "a" and target:
            self.targets.append(target)


def file_links(body, content_type):
    if "json" in content_type:
        return [file["url"] for file in json.loads(body)["files"]]
    page = Links()
    page.feed(body.decode("utf-8", "replace"))
    return page.targets


def file_name(url):
    return urllib.parse.unquote(urllib.parse.urlsplit(url).path.rsplit("/", 1)[-1])


def find_on(open_url, index, project, file):
    page = index.rstrip("/") + "/" + project + "/"
    with open_url(urllib.request.Request(page, headers={"Accept": SIMPLE}), timeout=STALL_SECONDS) as answer:
        links = file_links(answer.read(), answer.headers.get("Content-Type", ""))
        base = answer.geturl()
    return next((urllib.parse.urljoin(base, link) for link in links if file_name(link) == file), None)


def locate(open_url, config, project, file):
    for index in indexes(config):
        try:
            url = patiently(lambda: find_on(open_url, index, project, file))
        except (urllib.error.HTTPError, http.client.InvalidURL, ValueError, KeyError):
            continue  # An index that wants a password or speaks another dialect: pip may know better.
        if url:
            return url
    raise Stop(ASK_PIP, "the configured package index does not list " + file)


def find_on_npm(open_url, registry, project, file):
    page = registry + urllib.parse.quote(project, safe="@")
    with open_url(urllib.request.Request(page, headers={"Accept": NPM_JSON}), timeout=STALL_SECONDS) as answer:
        versions = json.loads(answer.read())["versions"].values()
    links = (version["dist"]["tarball"] for version in versions)
    found = next((link for link in links if file_name(link) == file), None)
    # A mirror may hand on the links of the registry that it mirrors. Like npm, ask the mirror all the same.
    return found and registry + found[len(NPM_REGISTRY):] if (found or "").startswith(NPM_REGISTRY) else found


def locate_on_npm(open_url, project, file):
    registry = npm_registry(project)
    try:
        url = patiently(lambda: find_on_npm(open_url, registry, project, file))
    except (urllib.error.HTTPError, http.client.InvalidURL, ValueError, KeyError) as error:
        raise Stop(ASK_PIP, "the configured npm registry cannot be asked for {}: {}".format(project, reason(error)))
    if not url:
        raise Stop(ASK_PIP, "the configured npm registry does not list " + file)
    return url


# --- The bytes -------------------------------------------------------------------------------------------------------


class Progress:
    """A bar on a terminal, a line every few seconds elsewhere."""

    def __init__(self, label, total, done):
        self.label, self.total = label, total
        self.is_terminal = sys.stderr.isatty()
        self.pause = 0.1 if self.is_terminal else 5.0
        self.marks = [(time.monotonic(), done)]
        self.shown = 0.0 if self.is_terminal else time.monotonic()

    def update(self, done):
        now = time.monotonic()
        if now - self.shown >= self.pause:
            self.shown = now
            self.marks = [mark for mark in self.marks if now - mark[0] < 10][-100:] + [(now, done)]
            self.show(done)

    def rate(self):
        (then, before), (now, done) = self.marks[0], self.marks[-1]
        return (done - before) / (now - then) if now > then else 0.0

    def show(self, done):
        rate = self.rate()
        left = clock((self.total - done) / rate) if rate else "-:--"
        share = done / self.total if self.total else 1.0
        numbers = "{:3.0f} %  {:.1f} of {:.1f} MB  {:.1f} MB/s  {} left".format(
            100 * share, done / 1e6, self.total / 1e6, rate / 1e6, left)
        if self.is_terminal:
            sys.stderr.write("\r\x1b[K" + self.line(share, numbers))
        else:
            sys.stderr.write("  {}  {}\n".format(self.label, numbers))
        sys.stderr.flush()

    def line(self, share, numbers):
        room = shutil.get_terminal_size().columns - len(self.label) - len(numbers) - 8
        width = max(0, min(30, room))
        filled = int(width * share)
        return "  {}  [{}{}]  {}".format(self.label, "#" * filled, "-" * (width - filled), numbers)

    def finish(self, done):
        if self.is_terminal:
            self.marks.append((time.monotonic(), done))
            self.show(done)
            sys.stderr.write("\n")
            sys.stderr.flush()


def clock(seconds):
    minutes, seconds = divmod(int(seconds + 0.5), 60)
    return "{}:{:02}".format(minutes, seconds)


def whole_size(answer, start):
    length = answer.headers.get("Content-Length")
    if length is None:
        raise Stop(ASK_PIP, "the server does not say how long the file is")
    return start + int(length)


def check_space(folder, needed):
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise Stop(DISK, "{:.1f} MB to fetch, {:.1f} MB free".format(needed / 1e6, free / 1e6))


def ask(open_url, url, start):
    """Opens the URL from `start` on. Says where the answer really starts: a server may ignore ranges."""
    headers = {"Accept-Encoding": "identity"}
    if start:
        headers["Range"] = "bytes={}-".format(start)
    answer = open_url(urllib.request.Request(url, headers=headers), timeout=STALL_SECONDS)
    return answer, start if getattr(answer, "status", None) == 206 else 0


def fetch_rest(open_url, url, part, label):
    """One connection's worth of the file. True when the file is whole."""
    start = os.path.getsize(part) if os.path.exists(part) else 0
    answer, start = ask(open_url, url, start)
    with answer, open(part, "r+b" if start else "wb") as out:
        total = whole_size(answer, start)
        check_space(os.path.dirname(part), total - start)
        out.seek(start)
        done = copy(answer, out, start, Progress(label, total, start))
        os.fsync(out.fileno())
    return done == total


def copy(answer, out, done, progress):
    try:
        while True:
            block = answer.read(BLOCK)
            if not block:
                return done
            if os.getppid() != PARENT:
                raise KeyboardInterrupt  # Whoever started us is gone, and its successor may be writing to this file.
            out.write(block)
            done += len(block)
            progress.update(done)
    finally:
        progress.finish(done)


def fetch(open_url, url, part, label):
    attempts = ATTEMPTS
    while attempts:
        before = os.path.getsize(part) if os.path.exists(part) else 0
        try:
            if patiently(lambda: fetch_rest(open_url, url, part, label)):
                return
        except urllib.error.HTTPError as error:
            if error.code != 416:
                raise Stop(ASK_PIP, "the server answered {} {}".format(error.code, error.reason))
            return  # Nothing is left to fetch: the part is whole, or it is not ours, which its checksum will say.
        gained = os.path.getsize(part) > before
        attempts = ATTEMPTS if gained else attempts - 1
    raise Stop(NETWORK, "the connection keeps breaking")


def patiently(action):
    """Tries again, after growing pauses, when the network or the server fails in a way that may pass."""
    for attempt in range(ATTEMPTS):
        try:
            return action()
        except (OSError, http.client.HTTPException) as error:
            refuse_if_lasting(error)
            if attempt == ATTEMPTS - 1:
                raise Stop(NETWORK, reason(error))
            sys.stderr.write("  {}; trying again in {} s\n".format(reason(error), 2 ** attempt))
            time.sleep(2 ** attempt)


def refuse_if_lasting(error):
    if isinstance(error, urllib.error.HTTPError):
        if error.code < 500:
            raise error
    elif isinstance(getattr(error, "reason", error), ssl.SSLCertVerificationError):
        raise Stop(ASK_PIP, reason(error))
    elif isinstance(error, http.client.InvalidURL):
        raise error
    elif getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
        raise Stop(DISK, reason(error))
    elif isinstance(error, (PermissionError, IsADirectoryError, FileNotFoundError)):
        raise Stop(DISK, reason(error))


def reason(error):
    return str(getattr(error, "reason", None) or error) or type(error).__name__


def main(project, file, part, label):
    config = pip_config()
    if file.endswith(".whl"):
        open_url = opener(config).open
        url = locate(open_url, config, project, file)
    else:
        open_url = opener(with_npm_options(config)).open
        url = locate_on_npm(open_url, project, file)
    fetch(open_url, url, part, label)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except Stop as stop:
        print(stop)
        sys.exit(stop.status)
    except KeyboardInterrupt:
        sys.stderr.write("\n")
        sys.exit(130)
