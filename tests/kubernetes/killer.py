"""killer.py FILE: kills runs of plugins at random moments, until FILE exists. One process in 25 is killed, within 8 ms after it was seen.
Prints a line for each: plugin and verb. A process without a verb is the sandbox of a run."""

import os
import random
import signal
import sys
import time

seen = set()
while not os.path.exists(sys.argv[1]):
    there = {name for name in os.listdir("/proc") if name.isdigit()}
    for process in there - seen:
        try:
            with open(f"/proc/{process}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
            plugin = next((word for word in words if word.startswith(b"--plugin=")), None)
            if plugin is None or random.random() > 0.04:
                continue
            with open(f"/proc/{process}/environ", "rb") as file:
                verb = next((word for word in file.read().split(b"\0") if word.startswith(b"CNI_COMMAND=")), b"")
            time.sleep(random.random() * 0.008)
            with open(f"/proc/{process}/stat") as file:
                if file.read().rsplit(") ", 1)[1][0] in "ZX":
                    continue
            os.kill(int(process), signal.SIGKILL)
            print(plugin.decode(), verb.decode() or "sandbox", flush=True)
        except (FileNotFoundError, ProcessLookupError):
            continue
    seen = there
    time.sleep(0.001)
