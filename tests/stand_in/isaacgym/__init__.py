"""Stands in for NVIDIA's isaacgym, which cannot be installed from any index, and refuses what it refuses."""

import sys

if "torch" in sys.modules:
    raise ImportError("PyTorch was imported before isaacgym modules. Please import torch after isaacgym modules.")
