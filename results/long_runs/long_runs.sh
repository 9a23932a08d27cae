#!/usr/bin/env bash
# Ten million steps: does an N x T fall behind, or catch up, in runs eleven times as long as the map's longest?
# Grid:  2 tasks x 3 N x T of 1024 steps x their two best learning rates at 900,000 steps (results/map/scores.csv) x 3
#        seeds, 10,000,000 steps, as in sweeps/map.sh.
# Cost:  36 runs, 360 million steps: some 2 hours of two cores.
SEEDS=${SEEDS:-1 2 3} STEPS=${STEPS:-10000000} EVAL_EPISODES=50 FLAGS=${FLAGS:---num-logs 100}
GAMES=${GAMES:-LunarLander-v3 CartpoleSwingup-v1}
. "$(dirname "$0")/../../sweeps/lib.sh"

"$PYTHON" results/map/map_rates.py --games $GAMES --steps 900000 --best 2 | while read -r game N T rate; do
    case ${N}x$T in
        8x128 | 32x32 | 128x8)
            for seed in $SEEDS; do
                run "$(script_of "$game")" "_lr$rate" --minibatch-size 256 --learning-rate "$rate"
            done
            ;;
    esac
done | launch "$@"
