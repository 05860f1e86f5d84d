"""`python -m glowpy` is the command line."""

from glowpy.cli.main import main

if __name__ == "__main__":
    main()
