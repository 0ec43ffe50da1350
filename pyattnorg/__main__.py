"""``python -m pyattnorg``: the command line."""

from pyattnorg.cli import main

if __name__ == "__main__":
    main()
