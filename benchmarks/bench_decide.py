"""`make bench`: what `tradewind bench decide` measures; passes its options on."""

import sys

from broker.cli import main

if __name__ == "__main__":
    sys.argv = ["tradewind", "bench", "decide", *sys.argv[1:]]
    sys.exit(main())
