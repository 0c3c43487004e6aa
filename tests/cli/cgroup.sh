#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tier: plain=full
# Threads and memory follow a real control group of version 1, where one can be made; tests/pipeline/cgroup.c
# has the files of both versions.
. "$(dirname "${BASH_SOURCE[0]}")/../expect.sh"

# mount CONTROLLER: where the controller of version 1 is mounted
mount_of() {
    awk -v c="$1" '$3 == "cgroup" && ("," $4 ",") ~ ("," c ",") { print $2; exit }' /proc/mounts
}
# inside GROUP... -- COMMAND...: runs it in these groups
inside() {
    sh -c 'while [ "$1" != -- ]; do echo $$ >"$1/cgroup.procs" || exit 99; shift; done; shift; exec "$@"' sh "$@" 2>&1
}
cpu=$(mount_of cpu)/mr-test-$$ memory=$(mount_of memory)/mr-test-$$
groups=()
clean() {
    [ ${#groups[@]} = 0 ] || rmdir "${groups[@]}" 2>/dev/null
    clean_up
}
trap clean EXIT
for group in "$cpu" "$memory"; do
    [ "${group%/*}" != "" ] && mkdir "$group" 2>/dev/null && groups+=("$group")
done
if [ ${#groups[@]} = 2 ] && echo 100000 2>/dev/null >"$cpu/cpu.cfs_period_us" && echo 150000 2>/dev/null >"$cpu/cpu.cfs_quota_us" &&
    echo 400M 2>/dev/null >"$memory/memory.limit_in_bytes"; then
    limit=$(cat "$memory/memory.limit_in_bytes")
    got=$(inside "$cpu" "$memory" -- "$m" show -v 'range(3)')
    result one_and_a_half_processors_are_two "$(grep -q 'control group allows 2 processors' <<<"$got"; echo $?)" "$got"
    result memory_of_the_group "$(grep -q "control group allows $limit bytes" <<<"$got"; echo $?)" "$got"
    echo 50000 >"$cpu/cpu.cfs_quota_us"
    got=$(inside "$cpu" -- "$m" show -v 'range(3)')
    result half_a_processor_is_one "$(grep -q 'control group allows 1 processors' <<<"$got"; echo $?)" "$got"
    # larger than the group: an error instead of the system's killer
    got=$(inside "$cpu" "$memory" -- "$m" show 'range(10000000).map(x => format("{:01000d}", x)).shuffle(10000000)')
    result eight_tenths_of_the_memory "$(grep -q "$((limit - limit / 10 * 2)) bytes that the control group sets" <<<"$got"; echo $?)" \
        "$(tail -c 2000 <<<"$got")"
else
    skip a_real_control_group "groups of version 1 cannot be made here"
fi
finish
