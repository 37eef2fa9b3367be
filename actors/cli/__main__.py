"""`python -m actors.cli` is `huginn`."""

from __future__ import annotations

from actors.cli.main import main

if __name__ == "__main__":
    main(prog_name="huginn")
