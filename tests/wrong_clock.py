"""A process that imports this has a wall clock that is off by CLOCK_OFFSET_S seconds."""

import os
import time

OFFSET_S = float(os.environ["CLOCK_OFFSET_S"])
_time, _localtime, _gmtime, _strftime = time.time, time.localtime, time.gmtime, time.strftime


def wrong_time() -> float:
    return _time() + OFFSET_S


time.time = wrong_time
time.time_ns = lambda: int(wrong_time() * 1e9)
time.localtime = lambda seconds=None: _localtime(wrong_time() if seconds is None else seconds)
time.gmtime = lambda seconds=None: _gmtime(wrong_time() if seconds is None else seconds)
time.strftime = lambda form, moment=None: _strftime(form, time.localtime() if moment is None else moment)
