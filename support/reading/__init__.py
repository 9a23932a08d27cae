"""Run directories read again, for everything in scripts/ and for a run that resumes.

    from support import reading

    runs, curves = reading.load("runs", curves=True)

Nothing here imports torch, tensorboard or NumPy before a function needs it, so that a program that only reads starts at
once; and nothing imports a simulator or a module of a user.
"""

from support.reading.curves import CURVES, CurvesFile, Progress, event_files, progress, read_curves, records
from support.reading.files import (
    FORMAT,
    Files,
    checkpoints,
    find_runs,
    is_alive,
    is_done,
    is_locked,
    load_checkpoint,
    log_end,
    lost_runs,
    newest_checkpoint,
    no_link,
    read_arrays,
    read_files,
    read_json,
    read_object,
    shown,
    state,
    write_atomically,
)
from support.reading.manifests import begun_with, default_arguments, difference, script_of
from support.reading.table import COLUMNS, SECOND_HALF, load, row_of, without_none
