# What a newcomer needs: `make train`, `make test`. Everything here also works by hand in the environment that
# `pip install -r requirements.txt` gives. Override any variable: `make train STEPS=1000000 SEED=2`.

# any Python from 3.11 on
PYTHON ?= python3
VENV   ?= .venv
PY     := $(VENV)/bin/python

# make train: about five minutes on two cores, at CleanRL's default 8 environments x 128 steps
GAME   ?= Breakout-v5
STEPS  ?= 200000
SEED   ?= 1
NAME   ?= quickstart/$(GAME)__$(STEPS)__s$(SEED)
# bfloat16 doubles the speed where the CPU (avx512_bf16) or the GPU computes in it
BF16   ?= $(shell (grep -qs avx512_bf16 /proc/cpuinfo || command -v nvidia-smi >/dev/null) && echo --bf16)

# make bench: any of the benchmark's flags; --help lists them
BENCH  ?=

.PHONY: setup train test lint system mjlab bench clean

setup: $(VENV)/.installed

# The stamp makes setup idempotent: pip runs again only when requirements.txt has changed.
$(VENV)/.installed: requirements.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "error: $(PYTHON) is too old: make PYTHON=python3.11 (or newer) is accepted"; exit 2; }
	@$(PYTHON) -m venv $(VENV) 2>/dev/null || { echo "installing Debian's python3-venv"; \
		$(call APT,python3-venv) && $(PYTHON) -m venv --clear $(VENV); }
	$(PY) -m pip install --quiet --upgrade pip
	$(PY) -m pip install --quiet -r requirements.txt
	@touch $@

train: setup
	$(PY) ppo_atari_envpool.py --env-id $(GAME) --total-timesteps $(STEPS) --seed $(SEED) --num-logs 100 \
		--run-name $(NAME) $(BF16)
	@echo
	@echo "The curves:   $(VENV)/bin/tensorboard --logdir runs      then open http://localhost:6006"
	@echo "A longer run: $(PY) ppo_atari_envpool.py --env-id $(GAME) --num-envs 128 --num-steps 8 $(BF16)"

test: setup system mjlab lint
	$(PY) -m pytest -n 2

lint: setup
	$(PY) -m ruff check .

# Procgen, inside EnvPool's wheel, needs Debian's Qt 5 before Python 3.12. Without it only Procgen is missing.
system: setup
	@if $(PY) -c 'import ctypes, sys; sys.version_info >= (3, 12) or ctypes.CDLL("libQt5Gui.so.5")' 2>/dev/null; then :; \
	else echo "installing Debian's libqt5gui5"; $(call APT,libqt5gui5) \
		|| echo "note: not installed (no apt or no rights): Procgen needs it, nothing else does"; fi

# The simulator of ppo_isaacgym.py's Mjlab-* tasks; nothing else needs it.
mjlab: setup $(VENV)/.mjlab

$(VENV)/.mjlab: requirements-mjlab.txt $(VENV)/.installed
	$(PY) -m pip install --quiet -r requirements-mjlab.txt
	@touch $@

# Steps per second of all scripts, against their limit and stable-baselines3; other programs spoil the numbers.
bench: system $(VENV)/.bench
	$(PY) scripts/benchmark.py $(BENCH)

$(VENV)/.bench: requirements-bench.txt $(VENV)/.installed
	$(PY) -m pip install --quiet -r requirements-bench.txt
	@touch $@

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis __pycache__ */__pycache__

# Installs a Debian package as root, or with sudo if it asks for no password.
APT = SUDO=; [ "$$(id -u)" = 0 ] || SUDO="sudo -n"; command -v apt-get >/dev/null && $$SUDO apt-get update -qq \
	&& DEBIAN_FRONTEND=noninteractive $$SUDO apt-get install -qq -y $(1) >/dev/null
