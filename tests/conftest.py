"""For all tests: no example of hypothesis has a deadline, since a busy machine is no failure; signals are heard.

A shell starts what it puts into the background with SIGINT ignored, `nohup` with SIGHUP, and every child inherits
that: the tests that interrupt a process would wait for ever, or find that it was not interrupted.
"""

from __future__ import annotations

import signal

from hypothesis import settings

HEARD = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}

for number, handler in HEARD.items():
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, handler)

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
