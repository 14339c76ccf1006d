"""Runs one command, and stops it when standard input ends: so it cannot outlive whoever started the guard.

`python -m stream.demo.embedded.guard STOP_TIMEOUT_S COMMAND...`; the exit code is the command's. To stop it, close the guard's
standard input: the command gets SIGTERM, and SIGKILL when it is still there after the time-out.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import Final

STDIN: Final = 0
READ_BYTES: Final = 4096


def stop_at_end_of_input(command: subprocess.Popen[bytes], timeout_s: float) -> None:
    """Wait for the end of standard input, then stop the command."""
    while os.read(STDIN, READ_BYTES):  # not sys.stdin, whose lock a waiting thread would hold at the end
        pass
    command.terminate()
    try:
        command.wait(timeout_s)
    except subprocess.TimeoutExpired:
        command.kill()


def main() -> int:
    """Run the command, and return its exit code (128 + the signal's number if one ended it)."""
    timeout_s, *command_line = sys.argv[1:]
    command = subprocess.Popen(command_line, stdin=subprocess.DEVNULL)  # noqa: S603 - whoever starts the guard chooses
    threading.Thread(target=stop_at_end_of_input, args=(command, float(timeout_s)), daemon=True).start()
    code = command.wait()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
