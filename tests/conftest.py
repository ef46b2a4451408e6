"""For all tests: no example of hypothesis has a deadline, since a busy machine is no failure; Ctrl-C works.

A shell starts what it puts into the background with SIGINT ignored, and every child inherits that: the tests that
interrupt a process would wait for ever.
"""

from __future__ import annotations

import signal

from hypothesis import settings

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
