"""`python -m clusterops.cli`: the same as `clusterops`, with this interpreter."""

from clusterops.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
