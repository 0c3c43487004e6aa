#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tier: plain=full asan=full
# How blocks come from a worker of the same host: by shared memory, of which nothing is left however
# either side ends, or by TCP; the elements are the same.
. "$(dirname "${BASH_SOURCE[0]}")/../expect.sh"
. "$tests/daemons.sh"

start a "$m" dispatcher --listen 127.0.0.1:0
service=$at dispatcher=$pid
start b "$m" worker --dispatcher "$service" --any-user
worker=$pid
shared() { grep -c 'memfd:millrace' "/proc/$1/maps" 2>/dev/null; }
shares() { [ "$(shared "$1")" -gt 0 ]; }
shares_nothing() { [ "$(shared "$1")" = 0 ]; }

# Blocks of every form, small ones and large ones, with errors among them.
graphs=('range(40000).map(x => (x, cast(x, "float32"))).batch(3)'
    'range(300).map(x => zeros([x]))'
    'range(3000).map(x => (zeros([40]), 7 // (x % 500 - 3))).ignore_errors()'
    'from_tensors("0123456789").repeat(30000).map(s => (s, s + s)).batch(100)'
    'range(12).batch(4).flat_map(v => from_tensors(zeros([300, 100], "uint8")).repeat(5))')
for g in "${graphs[@]}"; do
    want=$("$m" show --limit 2000 "$g.distribute(\"local\", streams=3, seed=1)" | md5sum)
    for transfer in auto '"tcp"' '"shared_memory"'; do
        for options in "" ', max_outstanding_bytes=1' ', compression="ZSTD"'; do
            same "transfer=$transfer$options of $g" \
                "$(timeout $patience "$m" show --limit 2000 "$g.distribute(\"$service\", streams=3, seed=1, transfer=$transfer$options)" | md5sum)" "$want"
        done
    done
done

# read TRANSFER: a client that has begun to read, and waits to continue; its process is $client
read_some() {
    rm -f pipe
    mkfifo pipe
    "$m" show "range(100000000).batch(10000).distribute(\"$service\", transfer=$1)" >pipe 2>client.err &
    client=$!
    exec 9<pipe
    read -r _ <&9
}
end_reading() {
    kill -KILL "$client"
    wait "$client" 2>/dev/null
    exec 9<&-
}
for loop in "" --no-uring; do
    read_some '"tcp"'
    result "tcp shares nothing" "$(shares_nothing "$worker" && shares_nothing "$client"; echo $?)" "$(cat client.err)"
    end_reading
    read_some auto
    result "both sides have the memory" "$(while_runs "$client" shares "$worker" && while_runs "$client" shares "$client"; echo $?)" "$(cat client.err b.err)"
    # Only the worker can write to it.
    result "the client only reads it" "$(grep 'memfd:millrace' "/proc/$client/maps" | grep -vq ' r--s '; echo $((1 - $?)))" "$(grep memfd "/proc/$client/maps")"
    result "it has no name anywhere" "$(find /dev/shm -newer a -name '*millrace*' | wc -l)" ''
    end_reading
    result "a killed client leaves nothing at the worker" "$(until_true shares_nothing "$worker"; echo $?)" "$(cat b.err)"
    if [ -z "$loop" ]; then
        kill -TERM "$worker"
        end_of "$worker"
        start b "$m" worker --dispatcher "$service" --any-user --no-uring
        worker=$pid
    fi
done

# A worker is killed while its blocks are in use: the stream continues at another one.
want=$("$m" show 'range(3000000).batch(1000).distribute("local", streams=4, seed=1)' | md5sum)
start c "$m" worker --dispatcher "$service" --any-user
other=$pid
"$m" show "range(3000000).batch(1000).distribute(\"$service\", streams=4, seed=1, transfer=\"shared_memory\")" 2>client.err >all &
client=$!
while_runs "$client" has all
kill -KILL "$worker"
end_of "$client"
result a_killed_worker_status $? "$(cat client.err)"
same a_killed_worker "$(md5sum <all)" "$want"

# A worker that is stopped is noticed, and its streams continue at another one.
start b "$m" worker --dispatcher "$service" --any-user
worker=$pid
rm -f all
"$m" show "range(3000000).batch(1000).distribute(\"$service\", streams=4, seed=1)" 2>client.err >all &
client=$!
while_runs "$client" has all
kill -STOP "$other"
end_of "$client"
result a_stopped_worker_status $? "$(cat client.err)"
same a_stopped_worker "$(md5sum <all)" "$want"
kill -CONT "$other"

kill -TERM "$other" "$worker" "$dispatcher"
for p in "$other" "$worker" "$dispatcher"; do end_of "$p"; done

expect local_workers_by_tcp 2 '' 'target_workers' -- "$m" show 'range(3).distribute("127.0.0.1:1", target_workers="local", transfer="tcp")'
expect local_workers_that_are_all_workers 2 '' parallel_epochs -- "$m" show 'range(3).distribute("127.0.0.1:1", target_workers="local", processing_mode="parallel_epochs")'

# ---- a worker elsewhere
if ip netns add "mr-a-$$" 2>/dev/null; then
    ip netns add "mr-b-$$"
    a() { ip netns exec "mr-a-$$" "$@"; }
    head -c 32 /dev/urandom >token
    if ip link add "va$$" netns "mr-a-$$" type veth peer name "vb$$" netns "mr-b-$$" &&
        ip -n "mr-a-$$" addr add 10.77.0.1/24 dev "va$$" && ip -n "mr-b-$$" addr add 10.77.0.2/24 dev "vb$$" &&
        ip -n "mr-a-$$" link set "va$$" up && ip -n "mr-b-$$" link set "vb$$" up &&
        ip -n "mr-a-$$" link set lo up && ip -n "mr-b-$$" link set lo up; then
        export MILLRACE_TOKEN_FILE=$PWD/token
        start d a "$m" dispatcher --insecure --listen 10.77.0.1:0
        service=$at
        start e ip netns exec "mr-b-$$" "$m" worker --insecure --dispatcher "$service" --listen 10.77.0.2:0 --root /
        elsewhere=$at
        g="range(3000).batch(1000).distribute(\"$service\", streams=2, seed=1"
        want=$("$m" show 'range(3000).batch(1000).distribute("local", streams=2, seed=1)')
        same a_worker_elsewhere "$(a "$m" show "$g)")" "$want"
        expect a_worker_elsewhere_shares_nothing 1 '' "$elsewhere" 'shared_memory' -- ip netns exec "mr-a-$$" "$m" show "$g, transfer=\"shared_memory\")"
        expect nobody_on_this_host 1 '' 'nothing came from the service' 'no worker on this host serves the job' "$service" -- ip netns exec "mr-a-$$" "$m" show "$g, target_workers=\"local\", stall_timeout=1.0)"
        start f a "$m" worker --insecure --dispatcher "$service" --listen 10.77.0.1:0 --root /
        here=$at
        same one_worker_here_and_one_elsewhere "$(a "$m" show "$g)")" "$want"
        same only_the_one_here "$(a "$m" show "$g, job_name=\"j\", target_workers=\"local\")")" "$want"
        a "$m" service streams j --dispatcher "$service" >streams
        result it_had_all_streams "$([ "$(grep -c "$here" streams)" = 2 ] || ! grep -q "$elsewhere" streams; echo $?)" "$(cat streams)"
        same only_the_one_here_dynamic "$(a "$m" show "range(60).distribute(\"$service\", processing_mode=\"dynamic\", target_workers=\"local\")" | sort -n)" "$(seq 0 59)"
    else
        skip a_worker_elsewhere 'no veth devices here'
    fi
    # shellcheck disable=SC2046
    kill $(ip netns pids "mr-a-$$") $(ip netns pids "mr-b-$$")
    wait
    ip netns del "mr-a-$$"
    ip netns del "mr-b-$$"
else
    skip a_worker_elsewhere 'no network namespaces here'
fi
finish
