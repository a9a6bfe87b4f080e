"""Makes a compiler whose extensions run on any Linux since 2018, on a machine that is newer.

    python packaging/older_linux/toolchain.py build/older_linux     # prints the compiler's path
    python packaging/older_linux/toolchain.py build/older_linux aarch64

The second one compiles for another processor, by Debian's package g++-aarch64-linux-gnu.

gcc compiles, against the headers of glibc 2.28. Zig links, against stubs of that glibc, and both
come with the package `ziglang`. The stubs of libstdc++ and libgcc are made here: they have the
symbols of the machine's own libraries up to the versions that manylinux_2_28 allows. The few newer
ones that gcc's headers refer to are linked into each extension.
"""

from __future__ import annotations

import platform
import re
import shlex
import stat
import subprocess
import sys
from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

GLIBC = (2, 28)
# Source: auditwheel's policy for manylinux_2_28.
NEWEST = {"GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 11), "GCC": (7, 0, 0)}
LIBRARIES = ("libstdc++.so.6", "libgcc_s.so.1")
# The count of an exception's owners was a part of inline functions' callees until gcc 11.
EXCEPTION_PTR = ("_M_addrefEv", "_M_releaseEv")

# The folders in which Zig has the headers of a processor.
LIBC_HEADERS = {
    "x86_64": ("x86-linux-gnu", "generic-glibc", "x86-linux-any", "any-linux-any"),
    "aarch64": ("aarch64-linux-gnu", "generic-glibc", "aarch64-linux-any", "any-linux-any"),
}

_HERE = Path(__file__).resolve().parent


class Target(NamedTuple):
    """A processor to compile for."""

    processor: str

    def tool(self, name: str) -> str:
        """Return the command of one of the GNU tools for that processor."""
        is_here = self.processor == platform.machine()
        return name if is_here else f"{self.processor}-linux-gnu-{name}"


class Symbol(NamedTuple):
    """A symbol that a shared library defines.

    Attributes:
        version: The version that it has there, as (family, numbers).
        kind: FUNC, OBJECT or TLS, or another one of ELF's.
        size: In bytes.
        is_weak: True if another definition may replace it.
    """

    version: tuple[str, tuple[int, ...]]
    kind: str
    size: int
    is_weak: bool


def output_of(*command: str | Path) -> str:
    """Return what a command prints."""
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def run(*command: str | Path) -> None:
    """Run a command, and raise CalledProcessError if it fails."""
    subprocess.run(command, check=True)


def older_symbols(library: str) -> dict[str, Symbol]:
    """Return the symbols of a library, by name, each in its newest version that is allowed."""
    found: dict[str, Symbol] = {}
    # Columns: number, value, size, type, binding, visibility, section, name@@version.
    for line in output_of("readelf", "--dyn-syms", "-W", library).splitlines():
        columns = line.split()
        if len(columns) != 8 or columns[6] == "UND" or "@" not in columns[7]:
            continue
        name, version = re.split("@@?", columns[7])
        family, _, numbers = version.rpartition("_")
        if family not in NEWEST or not re.fullmatch("[0-9.]+", numbers):
            continue
        parsed = tuple(int(number) for number in numbers.split("."))
        if parsed > NEWEST[family]:
            continue
        if name not in found or found[name].version < (family, parsed):
            is_weak = columns[4] == "WEAK"
            size = int(columns[2], 0)
            found[name] = Symbol((family, parsed), columns[3], size, is_weak)
    return found


def make_stub(target: Target, soname: str, folder: Path) -> None:
    """Make a library to link to that has the older symbols, and no code."""
    library = output_of(target.tool("g++"), f"-print-file-name={soname}")
    sections = {"OBJECT": (".data", "object"), "TLS": ('.section .tdata,"awT"', "tls_object")}
    lines = ['.section .note.GNU-stack,"",@progbits']
    versions: defaultdict[tuple[str, tuple[int, ...]], list[str]] = defaultdict(list)
    for name, symbol in older_symbols(library).items():
        section, kind = sections.get(symbol.kind, (".text", "function"))
        binding = "weak" if symbol.is_weak else "globl"
        lines += [
            section,
            f".{binding} {name}",
            f".type {name},@{kind}",
            f"{name}: .zero {max(symbol.size, 1)}",
            f".size {name},{symbol.size}",
        ]
        versions[symbol.version].append(name)
    nodes = [
        f"{family}_{'.'.join(map(str, numbers))} {{ global: {' '.join(f'{n};' for n in names)} }};"
        for (family, numbers), names in sorted(versions.items())
    ]
    source, script = folder / f"{soname}.s", folder / f"{soname}.map"
    source.write_text("\n".join(lines) + "\n")
    script.write_text("\n".join(nodes) + "\n")
    run(
        *(target.tool("gcc"), "-shared", "-nostdlib", f"-Wl,-soname,{soname}"),
        *(f"-Wl,--version-script,{script}", "-o", folder / soname, source),
    )


def zig_folder() -> Path:
    """Return the folder of the installed package ziglang."""
    zig = find_spec("ziglang")
    if zig is None or zig.origin is None:
        raise ModuleNotFoundError("the package ziglang is not installed")
    return Path(zig.origin).parent


def header_flags(target: Target) -> list[str]:
    """Return the flags by which gcc finds its own headers, and glibc's of the older system."""
    command = [target.tool("g++"), "-E", "-v", "-x", "c++", "/dev/null"]
    probe = subprocess.run(command, capture_output=True, text=True, check=True)
    listed = probe.stderr.split("#include <...> search starts here:")[1]
    listed = listed.split("End of search list.")[0]
    of_gcc = [
        Path(path) for path in listed.split() if re.search(r"/c\+\+/|/gcc(-cross)?/[^.]*$", path)
    ]
    libc = zig_folder() / "lib/libc/include"
    of_libc = [libc / name for name in LIBC_HEADERS[target.processor]]
    folders = [_HERE / "include", *of_gcc, *of_libc]
    flags = ["-nostdinc", f"-D__GLIBC_MINOR__={GLIBC[1]}"]
    for folder in folders:
        if not folder.is_dir():
            raise FileNotFoundError(f"{folder} has no headers: another release of ziglang?")
        flags += ["-isystem", str(folder)]
    return flags


def newer_objects(target: Target, flags: list[str], folder: Path) -> list[Path]:
    """Make the object files of the symbols that older systems lack."""
    own, counts = folder / "newer_symbols.o", folder / "exception_ptr.o"
    run(
        *(target.tool("g++"), *flags, "-std=c++20", "-O2", "-fPIC", "-fvisibility=hidden"),
        *("-c", _HERE / "newer_symbols.cc", "-o", own),
    )
    archive = output_of(target.tool("g++"), "-print-file-name=libstdc++.a")
    counts.write_bytes(
        subprocess.run(["ar", "p", archive, "eh_ptr.o"], capture_output=True, check=True).stdout
    )
    kept = [f"_ZNSt15__exception_ptr13exception_ptr{len(n) - 2}{n}" for n in EXCEPTION_PTR]
    keep = [f"--keep-global-symbol={n}" for n in (*kept, "DW.ref.__gxx_personality_v0")]
    run(target.tool("objcopy"), *keep, counts)
    return [own, counts]


def write_compiler(target: Target, path: Path, flags: list[str], linked: list[Path]) -> None:
    """Write a script that compiles by gcc and links by Zig."""
    # Not `python -m ziglang`: pip hides this environment from the builds that it isolates.
    zig = shlex.quote(str(zig_folder() / "zig"))
    system = f"{target.processor}-linux-gnu.{GLIBC[0]}.{GLIBC[1]}"
    path.write_text(f"""#!/bin/sh
for argument do
  case $argument in
    -c|-E|-M|-MM|--version|-v) exec {target.tool("g++")} {shlex.join(flags)} "$@" ;;
  esac
done
exec {zig} cc -target {system} "$@" {shlex.join(map(str, linked))}
""")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def write_tools(target: Target, folder: Path) -> None:
    """Write scripts for Zig's own compiler of C, and the tools for its archives."""
    zig = shlex.quote(str(zig_folder() / "zig"))
    system = f"{target.processor}-linux-gnu.{GLIBC[0]}.{GLIBC[1]}"
    for name, command in {"cc": f"cc -target {system}", "ar": "ar", "ranlib": "ranlib"}.items():
        path = folder / name
        path.write_text(f'#!/bin/sh\nexec {zig} {command} "$@"\n')
        path.chmod(path.stat().st_mode | stat.S_IXUSR)


def main() -> None:
    """Make the compiler in the folder that the command line names, and print its path."""
    folder = Path(sys.argv[1]).resolve()
    target = Target(sys.argv[2] if len(sys.argv) > 2 else platform.machine())
    folder.mkdir(parents=True, exist_ok=True)
    for soname in LIBRARIES:
        make_stub(target, soname, folder)
    flags = header_flags(target)
    linked = [*newer_objects(target, flags, folder), *(folder / soname for soname in LIBRARIES)]
    compiler = folder / "g++"
    write_compiler(target, compiler, flags, linked)
    write_tools(target, folder)
    print(compiler)


if __name__ == "__main__":
    main()
