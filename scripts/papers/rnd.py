"""RND: claims as in scaling_data, images as in hard_exploration."""

from papers import hard_exploration, scaling_data

FIGURE = "P1, Fig. 16"
VARIES = ("num_envs", "num_steps")
IQM = True
claims, sheets = scaling_data.claims, hard_exploration.sheets
