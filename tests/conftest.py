"""What holds for every test."""

import signal

import hypothesis

# A shell ignores SIGINT in what it starts in the background, and children inherit that: tests that
# interrupt their children would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes says nothing on a machine that does other work too.
hypothesis.settings.register_profile("suite", deadline=None)
hypothesis.settings.load_profile("suite")
