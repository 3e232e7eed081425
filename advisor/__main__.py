"""`python -m advisor` is `advise`."""

from advisor.cli.main import main

if __name__ == "__main__":
    main()
