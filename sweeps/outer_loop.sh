#!/usr/bin/env bash
# P3, Fig. 9: c times as many environments, and three ways to use the c times larger batch.
# Claim: more minibatches of the same size are the reliable way. Larger minibatches at the same learning rate are the
#        worst; with the learning rate times sqrt c they are in between. A quarter of the environments with as many
#        minibatches hurts.
# Grid:  Atari-5 (base 8x128) and 3 tasks of GPU physics (base 4096x16) x N times {1/4, 1, 4, 16} x {more; bigger;
#        bigger and sqrt} x 5 seeds; 100M steps (games and steps are our choice). At c = 1 the three ways are one run.
# Cost:  400 runs, 40 billion steps. 250 of the runs are on Atari: 15,000 A100-hours.
# Draws: curves of each way at each c; `_hours`: the same against hours of computing.
. "$(dirname "$0")/lib.sh"
GAMES=${GAMES:-$ATARI_5 $PHYSICS}
FACTORS=${FACTORS:-1 4 16 1/4}
MINIBATCHES=4 # of the base
base_is ppo_ewma_atari_envpool.py "${BASE:-8x128}" --num-minibatches $MINIBATCHES --learning-rate 0.00025
base_is ppo_envpool.py "${BASE:-8x128}" --num-minibatches $MINIBATCHES --learning-rate 0.00025
base_is ppo_isaacgym.py "${BASE:-4096x16}" --num-minibatches $MINIBATCHES --learning-rate 0.001
varies num_envs minibatch_size num_minibatches learning_rate

for seed in $SEEDS; do
    for game in $GAMES; do
        script=$(outer_script_of "$game")
        case $script in
            ppo_ewma_atari_envpool.py | ppo_envpool.py) base=${BASE:-8x128} rate=0.00025 flags="" ;;
            *) base=${BASE:-4096x16} rate=0.001 flags="--desired-kl None" ;; # a fixed learning rate
        esac
        for factor in $FACTORS; do
            set_n_by_t "$base"
            given="--num-minibatches $MINIBATCHES --learning-rate $rate $flags"
            recipe="--scale-from $N $given --scaling"
            N=$((N * $factor)) # with $: 1/4 on its own would be 0
            if [ "$factor" = 1 ]; then # the three ways are one run
                run "$script" "_more" $given
                continue
            fi
            run "$script" "_more" $recipe more-minibatches
            run "$script" "_bigger" $recipe bigger-minibatches
            run "$script" "_sqrt" $recipe sqrt-lr
        done
    done
done | launch "$@"
