#!/usr/bin/env bash
# The long runs of results/learning/README.md, the shorter ones first.
#
#     bash results/learning/runs.sh                # on two cores; --dry-run has the commands and their price
#     python results/learning/learning.py --runs runs/learning     # any time: takes the curves as far as they came
#
# The same command resumes after an interruption. BF16= leaves out --bf16, for CPUs that do not compute in bfloat16 (a
# run says at its start what would be faster). Options go to scripts/launch.py. Hours: of two cores of an AMD EPYC with bfloat16.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
PYTHON=${PYTHON:-$(command -v .venv/bin/python || command -v python3)} BF16=${BF16---bf16}
LEARNING=runs/learning
CORRIDOR="--env-id MontezumaRevenge-v5 --num-envs 16 --num-steps 32 --num-minibatches 4 --total-timesteps 40960" # places for rooms

# `run EXPERIMENT/RUN SCRIPT FLAG…` prints a command.
run() {
    echo "python ${*:2} --runs-dir $LEARNING --run-name $1"
}

commands() {
    local seed shape
    for seed in 1 2 3 4 5; do # 1.8 hours for all ten, of one core
        run rnd_corridor/bonus__s$seed results/learning/rnd_corridor.py --int-coef 1 --seed $seed $CORRIDOR $BF16
        run rnd_corridor/nobonus__s$seed results/learning/rnd_corridor.py --int-coef 0 --seed $seed $CORRIDOR $BF16
    done
    run isaac_swingup/256x32__s1 ppo_isaacgym.py --env-id Mjlab-Cartpole-Swingup --num-envs 256 \
        --total-timesteps 10485760 --eval-episodes 64 # 0.7 hours
    for seed in 1 2; do # 1.9 hours: 300 steps per second
        run pqn_pong/8x128__s$seed pqn_atari_envpool.py --env-id Pong-v5 --seed $seed --total-timesteps 1000000 \
            --eval-episodes 20 $BF16
    done
    for shape in 8x128 128x8; do # 6.6 hours: 900 and 780 steps per second
        run breakout/${shape}__s1 ppo_atari_envpool.py --env-id Breakout-v5 --num-envs ${shape%x*} --num-steps ${shape#*x} \
            --total-timesteps 10000000 --eval-episodes 100 $BF16
    done
    run pqn_breakout/8x128__s1 pqn_atari_envpool.py --env-id Breakout-v5 --total-timesteps 10000000 \
        --eval-episodes 100 $BF16 # 6 hours: 500 steps per second
    run procgen_starpilot/64x256__s1 ppo_procgen.py --env-id starpilot --num-levels 200 --total-timesteps 5000000 \
        --num-logs 300 $BF16 # 5 hours: 280 steps per second
    for seed in 1 2; do # 6.5 hours: 350 steps per second; ours were made on a GPU, without --bf16
        for coef in 1 0; do
            run rnd_montezuma/$([ $coef = 1 ] && echo bonus || echo nobonus)__s$seed ppo_rnd_envpool.py \
                --env-id MontezumaRevenge-v5 --num-envs 32 --int-coef $coef --seed $seed --total-timesteps 2000000
        done
    done
}

commands | "$PYTHON" scripts/launch.py --workers 1 "$@"
case " $* " in *" --dry-run "* | *" --status "*) exit ;; esac

# Procgen: 100 episodes on the 200 levels of the training, and 100 on all levels
starpilot=$LEARNING/procgen_starpilot/64x256__s1
"$PYTHON" scripts/evaluate.py $starpilot --train-levels > $starpilot/evaluation_200_levels.json
"$PYTHON" scripts/evaluate.py $starpilot > $starpilot/evaluation_all_levels.json
