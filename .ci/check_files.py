"""Refuses tracked files that are large, or that a .gitignore names. Runs in the current folder."""

import subprocess
import sys
from pathlib import Path

# As the hook check-added-large-files of .pre-commit-config.yaml counts.
MOST_KIB = 500


def tracked(*options: str) -> list[str]:
    """Return the tracked files of the current folder, or those that `options` select."""
    command = ["git", "ls-files", "-z", "--cached", *options]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603
    return [name for name in done.stdout.split("\0") if name]


def main() -> None:
    """Exit with a message for each file that is refused."""
    sizes = {name: Path(name).lstat().st_size for name in tracked() if Path(name).is_file()}
    refused = [
        f"larger than {MOST_KIB} KiB; let a program make it, and untrack it by git rm --cached: "
        f"{name} ({-(-size // 1024):,} KiB)"
        for name, size in sizes.items()
        if size > MOST_KIB * 1024
    ]
    # Patterns in the settings of one machine do not count.
    refused += [
        f"tracked, but a .gitignore names it; untrack it by git rm --cached, or change that: {name}"
        for name in tracked("--ignored", "--exclude-per-directory=.gitignore")
    ]
    if refused:
        sys.exit("\n".join(refused))


main()
