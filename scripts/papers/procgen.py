"""More environments and longer rollouts on two games of Procgen; claims and images are those of scaling_data."""

from papers import scaling_data

FIGURE = "P1, Fig. 8"
VARIES = ("num_envs", "num_steps")
IQM = True
claims, sheets = scaling_data.claims, scaling_data.sheets
