"""A script that is no training, for the tests of the launcher: it starts at once, and does what its flags say.

--until FILE     goes on when FILE is there, such as the manifest of a run that has to run beside this one
--stops 1        waits for a signal, leaves a checkpoint and exits with 143; with a checkpoint, it resumes
--refuses 1      exits with 2
--diverges CODE  exits with CODE, as if a number were not finite: with 3, or with 1 under torchrun
--bytes NUMBER   writes a file of this size
--resume-from R  fails if R is not finished
"""

import json
import os
import signal
import sys
import time
from pathlib import Path


class Args:
    num_envs: int = 1
    num_steps: int = 1


STOP = {signal.SIGTERM, signal.SIGUSR1}
signal.pthread_sigmask(signal.SIG_BLOCK, STOP)
flags = dict(zip(sys.argv[1::2], sys.argv[2::2]))
run = Path(flags["--runs-dir"], flags["--run-name"])
if "--refuses" in flags:
    print("error: --refuses 1: expected nothing", file=sys.stderr)
    sys.exit(2)
if "--resume-from" in flags and not Path(flags["--resume-from"], "done.json").exists():
    sys.exit("error: it has started too early")
(run / "manifest.json").write_text(json.dumps({"arguments": {}, "environment": dict(os.environ)}))
while "--until" in flags and not Path(flags["--until"]).exists():
    time.sleep(0.01)
if (run / "checkpoint.pt").exists():
    print("resumes at step 1", flush=True)
elif "--stops" in flags:
    signal.sigwait(STOP)
    (run / "checkpoint.pt").write_text("")
    sys.exit(143)
if "--diverges" in flags:
    (run / "failed.json").write_text('{"tensor": "logits", "global_step": 1}')
    print("error: logits is not finite", file=sys.stderr)
    sys.exit(int(flags["--diverges"]))
try:
    (run / "data").write_bytes(bytes(int(flags.get("--bytes", 0))))
except OSError as error:
    (run / "data").unlink()  # room for the line that says so
    sys.exit(f"error: {error.strerror}")
(run / "done.json").write_text("{}")
