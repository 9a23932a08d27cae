#!/usr/bin/env bash
# What a machine with an NVIDIA GPU shows in ten minutes, once: EnvPool alone, CleanRL's and LeanRL's Atari PPO beside
# ours, PQN, and the tests for a GPU. Prints a table and writes gpu_hour.json: docs/gpu.md says where to send it.
# Not a sweep: it trains nothing to its end. Options are those of results/benchmark/gpu_hour.py, such as --cpu.
cd "$(dirname "$0")/.." || exit 1
exec "${PYTHON:-$(command -v .venv/bin/python || command -v python || command -v python3)}" results/benchmark/gpu_hour.py "$@"
