#!/usr/bin/env bash
# Runs all sweeps, one after the other. Those that share runs with others come first and the large grids last, so that
# figures can be drawn early. Options and variables are those of any sweep, and hold for all of them. For one seed of
# every figure first, and then the other four:
#     SEEDS=1 bash sweeps/all.sh --gpus 0,1,2,3,4,5,6,7; bash sweeps/all.sh --gpus 0,1,2,3,4,5,6,7
cd "$(dirname "$0")/.." || exit 1
result=0
for sweep in fixed_budget scaling_data coverage hard_exploration procgen isaacgym pqn decoupled learning_rate data_reuse \
    rnd gamma outer_loop step_size switch num_envs_trend raise_rate shape_rate schedule; do
    echo "== $sweep"
    bash "sweeps/$sweep.sh" "$@" </dev/null
    code=$?
    [ $code -lt 128 ] || exit $code # stopped by a signal
    [ $code = 0 ] || result=$code
done
exit $result
