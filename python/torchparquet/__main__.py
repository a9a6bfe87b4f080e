"""`python -m torchparquet`, the same as the console script `torchparquet`."""

from torchparquet.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
