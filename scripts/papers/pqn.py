"""P1: PQN gains little from more data for each update."""

from analysis.claims import Claims
from analysis.parts import scaling

from papers import scaling_data

FIGURE = "P1, Fig. 6, 13, 14"
VARIES = ("num_envs", "num_steps")
IQM = True
sheets = scaling_data.sheets


def claims(suite):
    found = Claims(suite)
    scaling(suite, found, "little")
    found.diagnostics()
    return found
