"""What holds for every test."""

import signal

# A shell ignores SIGINT in what it starts in the background, and children inherit that: tests that
# interrupt their children would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)
