"""`pipe.run` borrows the signals of the program that calls it."""

import subprocess
import sys
from pathlib import Path

HOST = """
import ctypes, sys
handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(lambda number: None)
ctypes.CDLL(None).signal.restype = ctypes.c_void_p
ctypes.CDLL(None).signal(15, handler)
for name in ("signal", "_signal"):  # Python looks when it loads them, which was before ours was there
    sys.modules.pop(name, None)
import signal
from holdfast import Pipeline
pipe = Pipeline("p")
@pipe.step
def work() -> int:
    return 1
result = pipe.run(dir=sys.argv[1])
assert signal.getsignal(signal.SIGTERM) is None
print(result.status)
"""


def test_a_signal_that_a_host_in_c_handles_is_left_to_it(tmp_path: Path) -> None:
    """Python cannot put such a handler back, and the result of the run was lost in the attempt."""
    (tmp_path / "host.py").write_text(HOST)
    command = [sys.executable, str(tmp_path / "host.py"), str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.stdout, ended.stderr) == ("completed\n", "")
