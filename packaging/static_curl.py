#!/usr/bin/env python3
"""Builds libcurl and OpenSSL as archives, which wheels link instead of the system's libraries.

    python packaging/static_curl.py build/curl                          # prints the prefix
    python packaging/static_curl.py build/curl --archives FOLDER        # downloads nothing

libcurl speaks HTTP and HTTPS alone. CC, AR and RANLIB choose the compiler and its tools. Perl, make
and CMake must be there.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import urllib.request
from pathlib import Path
from typing import NamedTuple


class Source(NamedTuple):
    """A released archive of sources."""

    name: str
    url: str
    sha256: str

    @property
    def folder(self) -> str:
        """The folder that the archive holds."""
        return self.url.rpartition("/")[2].removesuffix(".tar.gz")


OPENSSL = Source(
    "openssl",
    "https://github.com/openssl/openssl/releases/download/openssl-3.5.7/openssl-3.5.7.tar.gz",
    "a8c0d28a529ca480f9f36cf5792e2cd21984552a3c8e4aa11a24aa31aeac98e8",
)
CURL = Source(
    "curl",
    "https://curl.se/download/curl-8.14.1.tar.gz",
    "6766ada7101d292b42b8b15681120acd68effa4a9660935853cf6d61f0d984d4",
)
LICENSES = {OPENSSL: "LICENSE.txt", CURL: "COPYING"}

_OPENSSL_TARGETS = {
    ("linux", "x86_64"): "linux-x86_64",
    ("linux", "aarch64"): "linux-aarch64",
    ("darwin", "arm64"): "darwin64-arm64-cc",
    ("darwin", "x86_64"): "darwin64-x86_64-cc",
}
# No code that is loaded at run time, and nothing that only programs need.
_OPENSSL_OPTIONS = (
    "no-shared",
    "no-module",
    "no-legacy",
    "no-engine",
    "no-apps",
    "no-tests",
    "no-docs",
    "no-comp",
)
# Linkers differ in how they keep the symbols of archives out of the extension's own.
_FLAGS = ("-fvisibility=hidden",)
_CURL_OFF = (
    "BUILD_SHARED_LIBS",
    "CURL_HIDDEN_SYMBOLS",  # which would show its functions
    "BUILD_CURL_EXE",
    "BUILD_TESTING",
    "BUILD_LIBCURL_DOCS",
    "BUILD_MISC_DOCS",
    "ENABLE_CURL_MANUAL",
    "CURL_USE_LIBPSL",
    "CURL_USE_LIBSSH2",
    "CURL_BROTLI",
    "CURL_ZLIB",
    "CURL_ZSTD",
    "USE_NGHTTP2",
    "USE_LIBIDN2",
)
_CURL_ON = ("BUILD_STATIC_LIBS", "HTTP_ONLY", "CURL_USE_OPENSSL", "CMAKE_POSITION_INDEPENDENT_CODE")


def archive_of(source: Source, archives: Path) -> Path:
    """Return a source's archive, downloaded if the folder lacks it.

    Raises:
        ValueError: It is not the archive that was released.
    """
    path = archives / source.url.rpartition("/")[2]
    if not path.exists():
        archives.mkdir(parents=True, exist_ok=True)
        print(f"downloading {source.url}", file=sys.stderr)
        partial = path.with_suffix(".partial")
        urllib.request.urlretrieve(source.url, partial)
        partial.replace(path)
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != source.sha256:
        raise ValueError(f"{path} has SHA-256 {found}, {source.name} must have {source.sha256}")
    return path


def unpacked(source: Source, archives: Path, work: Path) -> Path:
    """Return the folder of a source, unpacked anew."""
    folder = work / source.folder
    shutil.rmtree(folder, ignore_errors=True)
    with tarfile.open(archive_of(source, archives)) as archive:
        archive.extractall(work, filter="data")
    return folder


def run(*command: str | Path, cwd: Path) -> None:
    """Run a command; what it prints goes to standard error."""
    subprocess.run(command, cwd=cwd, check=True, stdout=sys.stderr)


def build_openssl(folder: Path, prefix: Path, processor: str) -> None:
    """Install the archives and headers of OpenSSL."""
    target = _OPENSSL_TARGETS[sys.platform, processor]
    places = (f"--prefix={prefix}", "--libdir=lib", "--openssldir=/etc/ssl")
    flags = ("-fPIC", *_FLAGS)
    run("perl", "Configure", target, *_OPENSSL_OPTIONS, *flags, *places, cwd=folder)
    run("make", "-s", f"-j{os.cpu_count()}", "build_libs", cwd=folder)
    run("make", "-s", "install_dev", cwd=folder)


def build_curl(folder: Path, prefix: Path, processor: str) -> None:
    """Install the archive and headers of libcurl, which finds OpenSSL in the prefix."""
    options = dict.fromkeys(_CURL_OFF, "OFF") | dict.fromkeys(_CURL_ON, "ON")
    # Whoever makes a request names the certificates of the machine that it is made on.
    options |= {"CURL_CA_BUNDLE": "none", "CURL_CA_PATH": "none", "CMAKE_BUILD_TYPE": "Release"}
    options |= {"CMAKE_INSTALL_PREFIX": str(prefix), "CMAKE_INSTALL_LIBDIR": "lib"}
    options |= {"CMAKE_C_FLAGS": " ".join(_FLAGS)}
    tools = {"AR", "RANLIB"} & set(os.environ)
    options |= {f"CMAKE_{tool}": os.environ[tool] for tool in tools}
    options |= {"OPENSSL_ROOT_DIR": str(prefix), "OPENSSL_USE_STATIC_LIBS": "TRUE"}
    if processor != platform.machine():
        options |= {"CMAKE_SYSTEM_NAME": "Linux", "CMAKE_SYSTEM_PROCESSOR": processor}
        options |= {"CMAKE_FIND_ROOT_PATH": str(prefix)}
    given = [f"-D{name}={value}" for name, value in options.items()]
    run("cmake", "-S", ".", "-B", "build", *given, cwd=folder)
    run("cmake", "--build", "build", "-j", str(os.cpu_count()), cwd=folder)
    run("cmake", "--install", "build", cwd=folder)


def build(work: Path, archives: Path, processor: str) -> Path:
    """Return the prefix with both, built unless it is there already."""
    chosen = (OPENSSL, CURL, _OPENSSL_OPTIONS, _CURL_OFF, _CURL_ON, _FLAGS)
    version = hashlib.sha256(repr(chosen).encode()).hexdigest()[:16]
    prefix = work / f"prefix_{processor}_{version}"
    if (prefix / "licenses").is_dir():
        return prefix
    shutil.rmtree(prefix, ignore_errors=True)
    work.mkdir(parents=True, exist_ok=True)
    folders = {source: unpacked(source, archives, work) for source in LICENSES}
    build_openssl(folders[OPENSSL], prefix, processor)
    build_curl(folders[CURL], prefix, processor)
    made = prefix / "licenses.partial"
    made.mkdir()
    for source, name in LICENSES.items():
        shutil.copy(folders[source] / name, made / f"LICENSE.{source.name}.txt")
    made.rename(prefix / "licenses")
    return prefix


def main() -> None:
    """Build both in the folder that the command line names, and print their prefix."""
    parser = argparse.ArgumentParser()
    parser.add_argument("work", type=Path)
    parser.add_argument("--archives", type=Path, help="holds the archives, or gets them")
    parser.add_argument("--processor", default=platform.machine())
    given = parser.parse_args()
    work = given.work.resolve()
    print(build(work, (given.archives or work / "archives").resolve(), given.processor))


if __name__ == "__main__":
    main()
