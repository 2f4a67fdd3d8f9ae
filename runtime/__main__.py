"""`python -m loopline.runtime` is the `runtime` command."""

from loopline.runtime.cli import main

if __name__ == "__main__":
    main()
