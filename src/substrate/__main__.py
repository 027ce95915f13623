"""`python -m substrate`: the same as the `substrate` command."""

from substrate.cli import main

if __name__ == "__main__":
    main()
