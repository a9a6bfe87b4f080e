#!/usr/bin/env python3
"""Builds libcurl and OpenSSL as archives, which wheels link instead of the system's libraries.

    python packaging/static_curl.py build/curl                          # prints the prefix
    python packaging/static_curl.py build/curl --archives FOLDER        # downloads nothing
    python packaging/static_curl.py build/curl --archives FOLDER --unchecked    # other bytes, too

libcurl speaks HTTP and HTTPS alone. CC, AR and RANLIB choose the compiler and its tools. Perl, make
and CMake must be there. Archives in FOLDER are named as those that are downloaded. `--unchecked` is
for those that a distribution has packed anew: their checksums are not compared.
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
import tempfile
import urllib.request
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple


class Source(NamedTuple):
    """A released archive of sources."""

    name: str
    url: str
    sha256: str

    @property
    def file(self) -> str:
        """The name of the archive."""
        return self.url.rpartition("/")[2]


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
# No code that is loaded at run time, and nothing that only programs need. The configuration of a
# machine is for its own OpenSSL: this one fails on options that it does not know. Then what HTTPS
# does not use: half a megabyte of a wheel, together with the sections that nothing refers to.
_OPENSSL_OPTIONS = (
    "no-shared",
    "no-module",
    "no-legacy",
    "no-engine",
    "no-autoload-config",
    "no-apps",
    "no-tests",
    "no-docs",
    *("no-cmp", "no-cms", "no-comp", "no-dtls", "no-quic", "no-rfc3779", "no-srp", "no-ts"),
    *("no-argon2", "no-aria", "no-bf", "no-blake2", "no-camellia", "no-cast", "no-dsa", "no-ec2m"),
    *("no-gost", "no-idea", "no-md4", "no-mdc2", "no-rc2", "no-rc4", "no-rmd160", "no-scrypt"),
    *("no-seed", "no-siphash", "no-siv", "no-sm2", "no-sm3", "no-sm4", "no-whirlpool"),
)
# Linkers differ in how they keep the symbols of archives out of the extension's own.
_FLAGS = ("-fvisibility=hidden", "-ffunction-sections", "-fdata-sections")
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
_CURL_ON = (
    "BUILD_STATIC_LIBS",
    "CMAKE_POSITION_INDEPENDENT_CODE",
    "CURL_DISABLE_OPENSSL_AUTO_LOAD_CONFIG",
    "CURL_DISABLE_WEBSOCKETS",
    "CURL_USE_OPENSSL",
    "ENABLE_IPV6",
    "ENABLE_THREADED_RESOLVER",
    "HTTP_ONLY",
)
# The archives depend on these too, beside the sources and these options.
_VARIABLES = ("CC", "CFLAGS", "AR", "RANLIB", "MACOSX_DEPLOYMENT_TARGET")


def sha256(path: Path) -> str:
    """Return a file's checksum."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check(source: Source, archive: Path) -> None:
    """Raise ValueError if it is not the archive that was released."""
    found = sha256(archive)
    if found != source.sha256:
        raise ValueError(f"{archive} has SHA-256 {found}, {source.name} must have {source.sha256}")


def download(source: Source, archive: Path) -> None:
    """Download a source's archive if it is not there yet."""
    if archive.exists():
        return
    archive.parent.mkdir(parents=True, exist_ok=True)
    print(f"downloading {source.url}", file=sys.stderr)
    partial = archive.with_suffix(".partial")
    urllib.request.urlretrieve(source.url, partial)
    partial.replace(archive)


def unpack(archive: Path, folder: Path) -> None:
    """Replace a folder by the one that an archive holds, whatever that is called there."""
    shutil.rmtree(folder, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as name:
        # Python before 3.11.4 has no filters; the digest of the archive has told that it is sound.
        options: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        with tarfile.open(archive) as content:
            content.extractall(name, **options)
        (unpacked,) = Path(name).iterdir()
        unpacked.rename(folder)


def run(*command: str | Path, cwd: Path) -> None:
    """Run a command; what it prints goes to standard error."""
    # OpenSSL holds the time at which it was built, and must be the same bytes if built later.
    environment = os.environ | {"SOURCE_DATE_EPOCH": "0"}
    subprocess.run(command, cwd=cwd, env=environment, check=True, stdout=sys.stderr)


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


def prefix_in(work: Path, processor: str, archives: Iterable[str]) -> Path:
    """Return where both belong that are built of these archives, given by their checksums."""
    chosen = (_OPENSSL_OPTIONS, _CURL_OFF, _CURL_ON, _FLAGS, *map(os.environ.get, _VARIABLES))
    version = hashlib.sha256(repr((*archives, *chosen)).encode()).hexdigest()[:16]
    return work / f"prefix_{processor}_{version}"


def build(archives: Mapping[Source, Path], work: Path, prefix: Path, processor: str) -> None:
    """Build both, with the folder of their licences as the last."""
    shutil.rmtree(prefix, ignore_errors=True)
    for source, archive in archives.items():
        unpack(archive, work / source.name)
    build_openssl(work / OPENSSL.name, prefix, processor)
    build_curl(work / CURL.name, prefix, processor)
    made = prefix / "licenses.partial"
    made.mkdir(parents=True)
    for source, name in LICENSES.items():
        shutil.copy(work / source.name / name, made / f"LICENSE.{source.name}.txt")
    made.rename(prefix / "licenses")


def main() -> None:
    """Build both in the folder that the command line names, and print their prefix."""
    parser = argparse.ArgumentParser()
    parser.add_argument("work", type=Path)
    parser.add_argument("--archives", type=Path, help="holds the archives; downloads none")
    parser.add_argument("--unchecked", action="store_true", help="takes archives of other bytes")
    parser.add_argument("--processor", default=platform.machine())
    given = parser.parse_args()
    if given.unchecked and not given.archives:
        parser.error("--unchecked is for --archives only")
    work = given.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    folder = (given.archives or work / "archives").resolve()
    archives = {source: folder / source.file for source in LICENSES}
    checksums = [sha256(archives[s]) if given.unchecked else s.sha256 for s in archives]
    prefix = prefix_in(work, given.processor, checksums)
    if not (prefix / "licenses").is_dir():
        for source, archive in archives.items():
            if not given.archives:
                download(source, archive)
            if not given.unchecked:
                check(source, archive)
        build(archives, work, prefix, given.processor)
    print(prefix)


if __name__ == "__main__":
    main()
