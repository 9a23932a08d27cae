"""python forked.py SCRIPT …: runs the script on the stand-in in a process that has imported torch already.

The stand-in refuses to be imported after torch, as Isaac Gym does. What it has besides comes from isaacgymenvs.
"""

import os
import runpy
import sys
import types

sys.modules["isaacgym"] = types.ModuleType("isaacgym")
sys.argv = sys.argv[1:]
sys.path.insert(0, os.path.dirname(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")
