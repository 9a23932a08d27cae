#!/usr/bin/env bash
# Does it matter to train on the reset row? With `--mask-resets` against without, at two shapes of one batch.
# Grid:  CartPole-v1, Acrobot-v1, Catch-v0 x 8x128 and 128x8 x {masked, not masked} x 10 seeds, 100k steps (our choice).
# Cost:  120 runs, 12 million steps: half an hour on two cores.
GAMES=${GAMES:-CartPole-v1 Acrobot-v1 Catch-v0} SEEDS=${SEEDS:-1 2 3 4 5 6 7 8 9 10} STEPS=${STEPS:-100000}
EVAL_EPISODES=${EVAL_EPISODES:-50} FLAGS=${FLAGS:---num-logs 20}
. "$(dirname "$0")/../../sweeps/lib.sh"
bases_are 8x128 --mask-resets
varies num_envs num_steps mask_resets

for seed in $SEEDS; do
    for game in $GAMES; do
        for nt in 8x128 128x8; do
            shape $nt
            run "$(script_of "$game")" "_masked" --mask-resets
            run "$(script_of "$game")" "_unmasked" --no-mask-resets
        done
    done
done | launch "$@"
