"""`python -m rtxscale`: the same command line as the `rtxscale` script."""

from rtxscale.cli.main import main

if __name__ == "__main__":
    main()
