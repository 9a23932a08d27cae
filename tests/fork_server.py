"""Runs Python programs in forks of a process that has imported what they import: that takes longer than most test runs.

On stdin a JSON object a line: argv, cwd, env, and the files that take stdout and stderr. On stdout, when the program
has ended, its exit code (minus the signal that killed it).
"""

import importlib
import json
import os
import runpy
import sys

for name in ("envpool", "torch.optim", "tyro", "tqdm", "tensorboard.backend.event_processing.event_file_loader",
             "tensorboard.summary.writer.record_writer"):
    importlib.import_module(name)
for line in sys.stdin:
    job = json.loads(line)
    pid = os.fork()
    if pid == 0:
        break
    _, status = os.waitpid(pid, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)
else:
    sys.exit()

os.chdir(job["cwd"])
os.environ.clear()
os.environ.update(job["env"])
for descriptor, path in ((0, os.devnull), (1, job["stdout"]), (2, job["stderr"])):
    os.dup2(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), descriptor)
sys.argv = job["argv"]
sys.path[0] = os.path.dirname(sys.argv[0])
runpy.run_path(sys.argv[0], run_name="__main__")
