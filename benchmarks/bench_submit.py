"""`make bench`: what `tradewind bench submit` measures; passes --json and --runs on."""

import sys

from broker.cli import main

if __name__ == "__main__":
    sys.argv = ["tradewind", "bench", "submit", *sys.argv[1:]]
    sys.exit(main())
