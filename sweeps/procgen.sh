#!/usr/bin/env bash
# P1, Fig. 8: N and T on levels that are generated.
# Claim: both N and T help on BigFish and StarPilot, N more.
# Grid:  2 games x {base 64x256, N x 2 4, T x 2 4 (our choice)} x 5 seeds; 100M steps (our choice: P1 does not say).
# Cost:  50 runs, 5 billion steps: 700 A100-hours at 2,000 steps/s. `--sps` takes the speed of one run on your GPU.
# Draws: as scaling_data; with NUM_LEVELS `_unseen`: the return on unseen levels.
. "$(dirname "$0")/lib.sh"
GAMES=${GAMES:-bigfish starpilot}
BASE=${BASE:-64x256}
FACTORS=${FACTORS:-2 4}
NUM_LEVELS=${NUM_LEVELS:-0} # NUM_LEVELS=200 trains on 200 levels and also plays unseen ones at each log point
suffix="" flags=""
if ((NUM_LEVELS)); then
    suffix="_l$NUM_LEVELS" flags="--num-levels $NUM_LEVELS"
fi
base_is ppo_procgen.py "$BASE"
varies num_envs num_steps

for seed in $SEEDS; do
    for game in $GAMES; do
        set_n_by_t "$BASE"
        run ppo_procgen.py "$suffix" $flags
        for factor in $FACTORS; do
            set_n_by_t "$BASE" "$factor" 1
            run ppo_procgen.py "$suffix" $flags
            set_n_by_t "$BASE" 1 "$factor"
            run ppo_procgen.py "$suffix" $flags
        done
    done
done | launch "$@"
