# Start with `make train` and `make test`. Every command also works by hand, in an environment with
# `pip install -r requirements.txt -c constraints.txt`. Any variable can be set: `make train STEPS=1000000 SEED=2`.

# Python 3.11 or newer: python3, or the newest of those that were tried
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && exit; done; echo python3)
VENV   ?= .venv
PY     := $(VENV)/bin/python

# make train: CleanRL's default of 8 environments x 128 steps
GAME   ?= Breakout-v5
STEPS  ?= 90000
SEED   ?= 1
NAME   ?= quickstart/$(GAME)__$(STEPS)__s$(SEED)
# bfloat16 is about twice as fast where the CPU (avx512_bf16) or the GPU supports it
BF16   ?= $(shell (grep -qs avx512_bf16 /proc/cpuinfo || command -v nvidia-smi >/dev/null) && echo --bf16)

# make demo: the README's first advice on a small task
DEMO   := GAMES=CartPole-v1 SEEDS="1 2 3 4 5 6 7 8 9 10" STEPS=100000 EVAL_EPISODES=50 RUNS_DIR=runs/demo FLAGS="--num-logs 20"

# make bench: flags of results/benchmark/benchmark.py; --help lists them
BENCH  ?=

# make gpu: flags of results/benchmark/gpu_hour.py, such as --cpu
GPU    ?=

.PHONY: setup train demo test lint system mjlab tasks bench gpu constraints clean

setup: $(VENV)/.installed

# The stamp makes setup idempotent: pip runs again only when one of the two files has changed.
$(VENV)/.installed: requirements.txt constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "error: $(PYTHON) is too old: expected Python 3.11 or newer, as in make PYTHON=python3.11"; exit 2; }
	@$(PYTHON) -m venv $(VENV) 2>/dev/null || { echo "installing Debian's python3-venv"; \
		$(call APT,python3-venv) && $(PYTHON) -m venv --clear $(VENV); }
	$(PY) -m pip install --quiet --upgrade pip
	$(PY) -m pip install --quiet -r requirements.txt -c constraints.txt
	@touch $@

# Two cores make 200 to 330 steps/s in float32 (an AMD EPYC, an Intel Xeon) and 550 in bfloat16 (another EPYC).
train: setup
	@echo "$(GAME), $(STEPS) steps$(if $(BF16), in bfloat16): $$(( $(STEPS) / $(if $(BF16),550,330) / 60 + 1 ))" \
		"$(if $(BF16),,to $$(( $(STEPS) / 200 / 60 + 1 )) )minutes on two cores." \
		"The return of Breakout begins at 1.4; after 90,000 steps it was 1.8 on one machine and 3 on another."
	$(PY) ppo_atari_envpool.py --env-id $(GAME) --total-timesteps $(STEPS) --seed $(SEED) --num-logs 100 \
		--run-name $(NAME) $(BF16)
	@echo
	@echo "The curves:   $(VENV)/bin/tensorboard --logdir runs      then open http://localhost:6006"
	@echo "A longer run: $(PY) ppo_atari_envpool.py --env-id $(GAME) --num-envs 128 --num-steps 8 $(BF16)"

# What a raised learning rate buys on CartPole, and what 128 x 8 does at that rate: ten seeds of each, to a figure with
# intervals and a verdict, in minutes.
demo: setup
	$(DEMO) PYTHON=$(PY) bash sweeps/raise_rate.sh
	$(PY) scripts/figures.py raise_rate --runs runs/demo/raise_rate --out figures/demo
	@[ -z "$$DISPLAY$$WAYLAND_DISPLAY" ] || xdg-open figures/demo/raise_rate.png >/dev/null 2>&1 || true

test: setup system mjlab tasks lint
	$(PY) -m pytest -n 2 --dist loadscope

lint: setup $(VENV)/.test
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

$(VENV)/.test: requirements-test.txt $(VENV)/.installed
	$(PY) -m pip install --quiet -r requirements-test.txt -c constraints.txt
	@touch $@

# On Python 3.11 EnvPool's Procgen needs Debian's Qt 5. Without it everything else works.
system: setup
	@if $(PY) -c 'import ctypes, sys; sys.version_info >= (3, 12) or ctypes.CDLL("libQt5Gui.so.5")' 2>/dev/null; then :; \
	else echo "installing Debian's libqt5gui5"; $(call APT,libqt5gui5) \
		|| echo "note: not installed (no apt or no rights): only Procgen needs it"; fi

# The simulator, only for the Mjlab-* tasks of ppo_isaacgym.py.
mjlab: setup $(VENV)/.mjlab

$(VENV)/.mjlab: requirements-mjlab.txt $(VENV)/.installed
	$(PY) -m pip install --quiet -r requirements-mjlab.txt -c constraints.txt
	@touch $@

# MinAtar, and what evaluate.py --export needs.
tasks: setup $(VENV)/.tasks

$(VENV)/.tasks: requirements-tasks.txt $(VENV)/.installed
	$(PY) -m pip install --quiet -r requirements-tasks.txt -c constraints.txt
	@touch $@

# Steps per second of the EnvPool scripts, beside EnvPool alone and each --peer. Run nothing else at the same time.
bench: system
	$(PY) results/benchmark/benchmark.py $(BENCH)

# On a machine with an NVIDIA GPU: ten minutes for a table and gpu.json, which docs/gpu.md says where to send.
gpu: setup $(VENV)/.test $(VENV)/.gpu
	$(PY) results/benchmark/gpu_hour.py $(GPU)

$(VENV)/.gpu: requirements-gpu.txt $(VENV)/.installed
	$(PY) -m pip install --quiet -r requirements-gpu.txt -c constraints.txt
	@touch $@

# Resolves all requirements again and writes constraints.txt: every package that they bring along, with its version. Run it
# after a change to a requirements file, with the oldest supported Python, and run the tests before you commit the file.
constraints:
	$(PYTHON) -m venv --clear $(VENV)/new
	$(VENV)/new/bin/python -m pip install --quiet --upgrade pip
	$(VENV)/new/bin/python -m pip install --quiet $(addprefix -r ,$(wildcard requirements*.txt))
	{ grep '^#' constraints.txt; $(VENV)/new/bin/python -m pip freeze | tr _ - | sed 's/+.*//' \
		| grep -viE "^($$(grep -ohE '^[A-Za-z0-9-]+==' requirements*.txt | paste -sd '|'))"; } > $(VENV)/constraints.txt
	mv $(VENV)/constraints.txt constraints.txt
	rm -rf $(VENV)/new

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis __pycache__ */__pycache__ */*/__pycache__

# Installs a Debian package as root, or with sudo if it needs no password.
APT = SUDO=; [ "$$(id -u)" = 0 ] || SUDO="sudo -n"; command -v apt-get >/dev/null && $$SUDO apt-get update -qq \
	&& DEBIAN_FRONTEND=noninteractive $$SUDO apt-get install -qq -y $(1) >/dev/null
