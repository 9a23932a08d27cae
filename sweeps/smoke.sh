#!/usr/bin/env bash
# A miniature of every sweep, to see that all of it works on this machine: two games with short episodes, one seed, a few
# iterations of a few environments, two evaluation episodes. 136 runs; the 72 of an earlier version took 8 min 46 s on two
# idle cores without evaluation episodes. The curves are too short to show anything. Options are those of any sweep.
cd "$(dirname "$0")/.." || exit 1
export EVAL_EPISODES=${EVAL_EPISODES:-2} # of games that a random policy ends early: none with Pitfall
export RUNS_DIR=${RUNS_DIR:-runs/smoke} SEEDS=1 STEPS=1024 BASE=2x32 GAMES="Breakout-v5 RoadRunner-v5" FLAGS="--num-logs 4"
PYTHON=${PYTHON:-$(command -v .venv/bin/python || command -v python || command -v python3)}
options=("$@") result=0

mini() { # mini SWEEP [VARIABLE=VALUE …]
    echo "== $1"
    env "${@:2}" bash "sweeps/$1.sh" "${options[@]}" </dev/null
    code=$?
    [ $code -lt 128 ] || exit $code # stopped by a signal
    [ $code = 0 ] || result=$code
}

has() { # has SCRIPT IMPORT: whether it can run here
    [ -e "$1" ] && "$PYTHON" -c "$2" 2>/dev/null && return
    echo "-- left out: $1 (it is not in this repository, or \`$2\` fails; see README)"
    return 1
}

mini fixed_budget SHAPES="2x32 4x16"
mini scaling_data FACTORS=2
mini data_reuse EPOCHS="2 4"
mini coverage SHAPES="2x32 4x16 4x32"
mini decoupled
mini learning_rate RATES="0.000125 0.00025"
mini gamma GAMMAS="0.9 0.99"
mini hard_exploration GAMES="MontezumaRevenge-v5 Gravitar-v5" FACTORS="1 2"
mini num_envs_trend BASE=1x32 FACTORS="1 2 4"
mini outer_loop FACTORS="1 4"
mini step_size CLIPS="0.1 0.4" EPOCHS=2 BUDGETS="512 1024"
mini switch COMS="2 16"
mini schedule GAMES=CartPole-v1 STEPS=20000
mini raise_rate GAMES=CartPole-v1
mini shape_rate GAMES="CartPole-v1 Acrobot-v1" SHAPES="2x32 4x16" RATES="0.00025 0.001"
has pqn_atari_envpool.py "import envpool" && mini pqn FACTORS=2
has ppo_rnd_envpool.py "import envpool" &&
    mini rnd GAMES="MontezumaRevenge-v5 Gravitar-v5" FLAGS="$FLAGS --num-iterations-obs-norm-init 8"
has ppo_procgen.py "import ctypes, sys; sys.version_info >= (3, 12) or ctypes.CDLL('libQt5Gui.so.5')" &&
    mini procgen GAMES="bigfish starpilot" FACTORS=2
has ppo_isaacgym.py "import mjlab" && {
    mini isaacgym GAMES="Mjlab-Cartpole-Balance Mjlab-Cartpole-Swingup" BASE=32x16 SHAPES=16x32 FACTORS="1 2" STEPS=8192
    mini outer_loop GAMES=Mjlab-Cartpole-Balance BASE=32x16 FACTORS="1 4" STEPS=8192 EVAL_EPISODES=0
}
exit $result
