# What every sweep sources. A sweep is a loop that prints its runs, one command a line, into scripts/launch.py.
#
# From the environment, for any sweep: GAMES and SEEDS (lists), STEPS (environment steps of each run), FULL=1 (the larger
# grid, where there is one), BASE (the base's N x T), RUNS_DIR (runs), FLAGS (added to every command: FLAGS="--bf16
# --track"), PYTHON; and the lists that the sweep names in capitals. All else, as --dry-run, goes to scripts/launch.py.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

PYTHON=${PYTHON:-$(command -v .venv/bin/python || command -v python || command -v python3)}
SWEEP=$(basename "$0" .sh)
RUNS_DIR=${RUNS_DIR:-runs}
SEEDS=${SEEDS:-1 2 3 4 5}
STEPS=${STEPS:-100000000}
FULL=${FULL:-}
ATARI_5="BattleZone-v5 DoubleDunk-v5 NameThisGame-v5 Phoenix-v5 Qbert-v5"
ATARI_10="Amidar-v5 BattleZone-v5 Bowling-v5 DoubleDunk-v5 Frostbite-v5 KungFuMaster-v5 NameThisGame-v5 Phoenix-v5
    Qbert-v5 Riverraid-v5"
PHYSICS="Mjlab-Cartpole-Balance Mjlab-Velocity-Flat-Unitree-Go1 Mjlab-Velocity-Flat-Unitree-G1"

# Sets N and T from a shape such as 8x128, times two factors: `shape 8x128 2 1` is 16x128.
shape() {
    N=$((${1%x*} * ${2:-1})) T=$((${1#*x} * ${3:-1}))
}

# Prints the command of one run of $game with $seed at $N x $T: `run SCRIPT SUFFIX FLAG…`; SUFFIX tells the run from
# the others of the same shape.
run() {
    echo "python $1 --env-id $game --num-envs $N --num-steps $T --seed $seed --total-timesteps $STEPS" \
        "--run-name $SWEEP/${game}__n${N}_t$T${2}__s$seed --runs-dir $RUNS_DIR ${*:3} ${FLAGS:-}"
}

launch() {
    "$PYTHON" scripts/launch.py "$@"
}

# The script that plays $game: EnvPool's names end in -v5.
script_of() {
    case $1 in *-v5) echo ppo_atari_envpool.py ;; *) echo ppo_isaacgym.py ;; esac
}

# $1 * $2, for learning rates.
times() {
    awk "BEGIN { printf \"%.6g\", $1 * $2 }"
}
