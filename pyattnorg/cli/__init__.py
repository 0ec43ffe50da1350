"""The command line: ``pyattnorg demo``, ``analyze``, ``capture`` and ``info``."""


def main() -> None:
    """Run the command line."""
    from pyattnorg.cli.app import app

    app(prog_name="pyattnorg")


__all__ = ["main"]
