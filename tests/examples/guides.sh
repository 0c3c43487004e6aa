#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tier: plain=full
# The programs and commands of docs/guides.md give what the guides print.
. "$(dirname "${BASH_SOURCE[0]}")/../expect.sh"
[ -x "$MR_BUILD/examples/guides/custom_loop" ] || exit 77 # built without the trainer
for script in "$MR_SOURCE"/examples/guides/*.sh; do
    name=$(basename "$script" .sh)
    case $name in lib | run) continue ;; esac
    bash "$script" "$MR_BUILD" >out 2>&1
    result "$name" $? "$(grep -A12 '^!' out)"
    result "${name}_is_run_with_the_others" "$(grep -qw "$name" "$MR_SOURCE/examples/guides/run.sh"; echo $?)"
done
# Every row that a script names is in the page.
for row in $(grep -ohE '^ *block [0-9]\.[0-9]+' "$MR_SOURCE"/examples/guides/*.sh | awk '{ print $2 }' | sort -u); do
    grep -q "^| $row |" "$MR_SOURCE/docs/guides.md" || missing="${missing:-} $row"
done
result rows_are_in_the_page "$([ -z "${missing:-}" ]; echo $?)" "${missing:-}"
expect without_a_build_it_says_so 2 '' 'no such file' -- bash "$MR_SOURCE/examples/guides/input.sh" nowhere
finish
