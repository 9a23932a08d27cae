# Sourced by every sweep. A sweep is a loop that prints the command of each training run, one per line, into
# scripts/launch.py.
#
# All sweeps read these environment variables, besides the lists that a sweep defines in capitals:
#
#     GAMES           tasks; in the sweeps of PPO, GAMES=SMALL takes five that ppo_envpool.py learns in minutes
#     SEEDS           seeds
#     STEPS           environment steps of each run: 100M, 500k for small tasks
#     FULL=1          a larger grid, if the sweep has one
#     BASE            N x T of the base
#     EVAL_EPISODES   evaluation episodes of each final network, for the final scores: 100
#     RUNS_DIR        where the runs go: runs
#     FLAGS           added to every command, for example FLAGS="--bf16 --track"; with --learning-rate in it, small tasks
#                     have that rate, else CleanRL's: 2.5e-4, and 3e-4 for EnvPool's tasks with real actions
#     PYTHON          the interpreter
#
# Options such as --dry-run go to scripts/launch.py. The headers count the steps of training. Evaluation episodes come on
# top, and --dry-run counts them. "Our choice" marks values that the paper does not give. A100-hours are those of P1's
# own runs of 100M steps, 60 hours each, unless a header names a speed.
set -euo pipefail
set -f # GAMES='*' is no list of files
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Writes the whole numbers of variables in digits, as the arithmetic of bash takes them: 1e6, 2.5e3 as 1000000, 2500.
in_digits() {
    local name word decimals numbers
    for name in "$@"; do
        numbers=""
        for word in ${!name:-}; do
            if [[ $word =~ ^([1-9][0-9]*)\.?([0-9]*)[eE]\+?([0-9]{1,2})$ ]]; then
                decimals=${BASH_REMATCH[2]}
                if ((${#decimals} <= 10#${BASH_REMATCH[3]})); then
                    word=${BASH_REMATCH[1]}$decimals$(printf '%*s' $((10#${BASH_REMATCH[3]} - ${#decimals})) "" | tr ' ' 0)
                fi
            fi
            numbers+=" $word"
        done
        [[ -z ${!name:-} ]] || printf -v "$name" %s "${numbers# }"
    done
}
in_digits SEEDS EVAL_EPISODES NUM_LEVELS STEPS BUDGETS EPOCHS

# Ends the sweep with one line if a word of a variable is not as expected: `expect REGEX WORDS NAME...`.
expect() {
    local name word
    for name in "${@:3}"; do
        for word in ${!name:-}; do
            [[ $word =~ ^($1)$ ]] || { echo "error: $name=${!name}: expected $2" >&2 && exit 2; }
        done
    done
}
expect '0|[1-9][0-9]{0,9}' "whole numbers with spaces between them" SEEDS EVAL_EPISODES NUM_LEVELS
expect '[1-9][0-9]{0,17}' "whole numbers above 0 with spaces between them" STEPS BUDGETS EPOCHS
expect '[1-9][0-9]{0,8}(/[1-9][0-9]{0,8})?' "factors such as 2 4 with spaces between them" FACTORS
expect '([0-9]+\.?|[0-9]*\.[0-9]+)(e-?[0-9]{1,2})?' "numbers with spaces between them" RATES RATE GAMMAS CLIPS COMS
expect '[1-9][0-9]{0,8}x[1-9][0-9]{0,8}' "N x T, such as 8x128, with spaces between several" BASE SHAPES
expect '\$?SMALL|[A-Za-z0-9][A-Za-z0-9_./:-]*' "names of tasks with spaces between them" GAMES
for name in BASE STEPS EVAL_EPISODES RATE NUM_LEVELS; do
    [[ ${!name:-} != *[[:space:]]* ]] || { echo "error: $name=${!name}: expected one, not several" >&2 && exit 2; }
done
if [[ ${RUNS_DIR:-} =~ ^-|[[:cntrl:]\'] ]]; then
    echo "error: RUNS_DIR=$RUNS_DIR: expected a directory without a quote or a - before it" >&2 && exit 2
fi

PYTHON=${PYTHON:-$(command -v .venv/bin/python || command -v python || command -v python3)}
SWEEP=$(basename "$0" .sh)
RUNS_DIR=${RUNS_DIR:-runs}
QUOTED_RUNS_DIR="'$RUNS_DIR'" # for a command
SEEDS=${SEEDS:-1 2 3 4 5}
EVAL_EPISODES=${EVAL_EPISODES:-100}
FULL=${FULL:-}
ATARI_5="BattleZone-v5 DoubleDunk-v5 NameThisGame-v5 Phoenix-v5 Qbert-v5"
ATARI_10="Amidar-v5 BattleZone-v5 Bowling-v5 DoubleDunk-v5 Frostbite-v5 KungFuMaster-v5 NameThisGame-v5 Phoenix-v5
    Qbert-v5 Riverraid-v5"
# short episodes; a reward of -1 until the goal; dense rewards; a sparse reward; continuous actions for 1000 steps
SMALL="CartPole-v1 Acrobot-v1 LunarLander-v3 MiniGrid-DoorKey-5x5-v0 CheetahRun-v1"
PHYSICS="Mjlab-Cartpole-Balance Mjlab-Velocity-Flat-Unitree-Go1 Mjlab-Velocity-Flat-Unitree-G1"

functions=$("$PYTHON" -m support.catalog) # script_of: the script that plays a game; rate_of: CleanRL's rate there
eval "$functions"

GAMES=${GAMES:-}
case $GAMES in SMALL | '$SMALL') GAMES=$SMALL ;; esac
case $(script_of "${GAMES%% *}") in ppo_envpool.py) STEPS=${STEPS:-500000} ;; *) STEPS=${STEPS:-100000000} ;; esac

# The script that plays a task and has P3's options and measures: `outer_script_of GAME`.
outer_script_of() {
    local script
    script=$(script_of "$1")
    echo "${script/ppo_atari/ppo_ewma_atari}"
}

# Sets N and T from an N x T such as 8x128, each multiplied by a factor: `set_n_by_t 8x128 2 1` is 16x128.
set_n_by_t() {
    N=$((${1%x*} * ${2:-1})) T=$((${1#*x} * ${3:-1}))
}

# Sets rate to the flag that names CleanRL's learning rate, for ppo_envpool.py on a task: `name_rate SCRIPT TASK FLAG…`. The
# script's own default depends on the steps and the minibatches, which a sweep may vary.
name_rate() {
    rate=""
    case $1/${*:3} in *--learning-rate*) ;; ppo_envpool.py/*) rate="--learning-rate $(rate_of "$2")" ;; esac
}

# Prints the command of one run of $game with $seed at $N x $T: `run SCRIPT SUFFIX FLAG…`. SUFFIX is added to the run's
# name and tells it from others of the same N x T. With --schedule, which begins with its own, the command names no N x T.
run() {
    local rate eval_episodes=$EVAL_EPISODES flags=${FLAGS:-} n_by_t="--num-envs $N --num-steps $T"
    case "${*:3}" in *--schedule*) n_by_t="" ;; esac
    case $1/$game in ppo_isaacgym.py/Mjlab-*) ;; ppo_isaacgym.py/*) eval_episodes=0 ;; esac # Isaac Gym cannot play them
    name_rate "$1" "$game" "${@:3}" "$flags"
    echo "python $1 --env-id $game $n_by_t --seed $seed --total-timesteps $STEPS $rate" \
        "--eval-episodes $eval_episodes --run-name $SWEEP/${game}__n${N}_t$T${2}__s$seed --runs-dir $QUOTED_RUNS_DIR ${*:3} $flags"
}

# States the base that the figures compare with: `base_is SCRIPT NxT FLAG…`, once per script.
STATEMENT=""
base_is() {
    local rate
    set_n_by_t "$2"
    name_rate "$1" "${GAMES%% *}" "${@:3}" "${FLAGS:-}"
    STATEMENT+="# base $1 --num-envs $N --num-steps $T $rate ${*:3} ${FLAGS:-}"$'\n'
}

# States the same base for each script that plays one of $GAMES: `bases_are NxT FLAG…`.
bases_are() {
    local script
    for script in $(for game in $GAMES; do script_of "$game"; done | sort -u); do
        base_is "$script" "$@"
    done
}

# States the arguments that the sweep varies, by their names in manifest.json: `varies num_envs num_steps`.
varies() {
    STATEMENT+="# varies $*"$'\n'
}

# Pipes base and varied arguments, and then the commands, into the launcher, which keeps the former in sweep.json.
launch() {
    "$PYTHON" scripts/launch.py "$@" < <(printf %s "$STATEMENT" && cat)
}
