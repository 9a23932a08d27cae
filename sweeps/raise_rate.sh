#!/usr/bin/env bash
# Raise the learning rate first: what does that buy, and what does N x T do at the raised rate? (our question)
# Claim: 8 x 128 at the raised rate beats 8 x 128 at CleanRL's.
# Grid:  $SMALL x 8x128 at CleanRL's rate, 8x128 and 128x8 at the rate that ppo_envpool.py has without --learning-rate
#        (results/CLAIMS.md, second_look: the law) x 10 seeds, 200k steps, 4 epochs of 4 minibatches (our choice).
# Cost:  150 runs, 30 million steps: some 2 core-hours. `make demo` asks it of CartPole, in minutes.
# Draws: curves and final scores of the three.
SEEDS=${SEEDS:-1 2 3 4 5 6 7 8 9 10} STEPS=${STEPS:-200000}
. "$(dirname "$0")/lib.sh"
GAMES=${GAMES:-$SMALL}
BASE=${BASE:-8x128}
set_n_by_t "$BASE"
RATE=${RATE:-$("$PYTHON" -c "from support import recipe; print(recipe.law_rate($STEPS, 16 / ($N * $T)))")}
SAME="--update-epochs 4 --num-minibatches 4" # CleanRL has more of both, and another rate, for continuous actions
bases_are "$BASE" $SAME --learning-rate 2.5e-4
varies num_envs num_steps learning_rate

for seed in $SEEDS; do
    for game in $GAMES; do
        set_n_by_t "$BASE"
        run "$(script_of "$game")" "" $SAME --learning-rate 2.5e-4
        run "$(script_of "$game")" "_raised" $SAME --learning-rate "$RATE"
        set_n_by_t "${BASE#*x}x${BASE%x*}"
        run "$(script_of "$game")" "_raised" $SAME --learning-rate "$RATE"
    done
done | launch "$@"
