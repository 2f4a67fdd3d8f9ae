"""`python -m loopline` is the `loopline` command."""

from loopline.cli import main

if __name__ == "__main__":
    main()
