#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tier: plain=full
# Several real processes that meet, sum, and fail: tests/ranks/rank.c is one of them.
. "$(dirname "${BASH_SOURCE[0]}")/../../expect.sh"
. "$tests/job.sh"
rank=$MR_BUILD/tests/rank
[ -x "$rank" ] || exit 77 # built without the trainer
free_ports() { "$MR_SOURCE/tests/ports.py" "$1"; }
patient=(--connect-timeout $patience --peer-timeout $patience) # where a test does not say otherwise
# start I ARGUMENT...: rank I of $world, by torchrun's variables
start() {
    local i=$1
    shift
    RANK=$i WORLD_SIZE=$world MASTER_ADDR=127.0.0.1 MASTER_PORT=$port timeout -k 1 $patience "$rank" "${patient[@]}" "$@" \
        >"out.$i" 2>"err.$i" </dev/null &
    pids[i]=$!
}
# start_all N ARGUMENT...
start_all() {
    world=$1 port=$(free_ports 1) pids=()
    rm -f out.* err.*
    local i
    for ((i = 0; i < world; i++)); do start "$i" "${@:2}"; done
}
said() { tail -qn 2 err.* out.* 2>/dev/null | head -c 1500; }
# all_say PATTERN [RANK...]: standard error of those ranks (all) has it
all_say() {
    local pattern=$1 i
    shift
    for i in "${@:-${!pids[@]}}"; do
        for i in $i; do grep -qE -- "$pattern" "err.$i" || return 1; done
    done
}

# ---- the values
hashes=
for ranks in 2 3 4; do
    for how in '' --tcp; do
        # shellcheck disable=SC2086
        start_all $ranks $how check
        # shellcheck disable=SC2046
        ended $(yes 0 | head -n $ranks) && [ "$(sort -u out.* | wc -l)" = 1 ]
        result "operations_of_${ranks}_ranks${how#--}" $? "$(said)"
        hashes+="$ranks $(sort -u out.0) "
        [ "$how" ] && want='connected by TCP$' || want='connected by shared memory$'
        all_say "$want"
        result "connections_of_${ranks}_ranks${how#--}" $? "$(said)"
    done
done
[ "$(echo "$hashes" | grep -oE '[0-9] done [0-9a-f]+' | sort -u | wc -l)" = 3 ]
result tcp_and_shared_memory_give_the_same_bits $? "$hashes"

world=3 port=$(free_ports 1) pids=()
rm -f out.* err.*
start 0 check; start 1 --tcp check; start 2 check
ended 0 0 0 && [ "$(sort -u out.* | wc -l)" = 1 ] && all_say 'TCP and shared memory$' '0 2' && all_say 'by TCP$' 1
result links_of_two_kinds_in_one_ring $? "$(said)"

# ---- TF_CONFIG
# shellcheck disable=SC2046
set -- $(free_ports 3)
tasks="{\"chief\": [\"127.0.0.1:$1\"], \"worker\": [\"localhost:$2\", \"127.0.0.1:$3\"]}"
tf() { # I TYPE INDEX ARGUMENT...
    TF_CONFIG="{\"cluster\": $tasks, \"task\": {\"type\": \"$2\", \"index\": $3}}" \
        timeout -k 1 $patience "$rank" "${patient[@]}" "${@:4}" >"out.$1" 2>"err.$1" </dev/null &
    pids[$1]=$!
}
pids=()
tf 2 worker 1 check; sleep 0.3; tf 0 chief 0 check; tf 1 worker 0 check
ended 0 0 0
result a_cluster_by_tf_config $? "$(said)"
pids=()
tf 0 chief 0 --connect-timeout 15 steps 1; tf 1 worker 1 --connect-timeout 15 steps 1
ended 1 1 && all_say "waiting for rank 1 \(localhost:$2"
result missing_addresses_are_named $? "$(said)"
pids=()
tf 0 chief 0 --connect-timeout 15 steps 1
listens() { grep -q "$(printf ':%04X 00000000:0000 0A ' "$1")" /proc/net/tcp; }
while_runs "${pids[0]}" listens "$1"
tf 1 chief 0 --connect-timeout 60 steps 1
ended 1 1 && all_say "rank 0 cannot listen on 127.0.0.1:$1: the address is in use; is a second process" 1
result a_second_task_of_one_address_says_so $? "$(said)"

# ---- who does not fit
start_all 1 steps 1
ended 1 && all_say 'a job of one process has no peers; start at least two'
result one_process_alone_is_refused $? "$(said)"
start_all 3 --connect-timeout 2 steps 1
kill -9 "$(process 2)" 2>/dev/null
wait "${pids[@]}" 2>/dev/null
world=3 port=$(free_ports 1) pids=()
start 0 --connect-timeout 15 steps 1; start 1 --connect-timeout 30 steps 1
ended 1 1 && all_say 'still waiting for rank 2 \(of 3 tasks\)'
result a_missing_rank_is_named $? "$(said)"
world=2 port=$(free_ports 1) pids=()
start 1 --connect-timeout 5 steps 1; pids[0]=${pids[1]}; cp err.1 err.0
ended 1 && all_say "waiting for rank 0 \(127.0.0.1:$port\): Connection refused" 1
result an_unreachable_first_rank_is_named $? "$(said)"

world=3 port=$(free_ports 1) pids=()
start 0 --fact seed=1 --fact 'model=dense(1)' steps 1
start 1 --fact seed=1 --fact 'model=dense(2)' steps 1
start 2 --fact seed=1 --fact 'model=dense(1)' steps 1
ended 1 1 1 && all_say "the model is 'dense\([12]\)' here and 'dense\([12]\)' on rank [012] \(127"
result a_difference_ends_all_and_names_both_values $? "$(said)"
long=$(printf 'map(x => x).%.0s' $(seq 100))
world=2 port=$(free_ports 1) pids=()
start 0 --fact "data=${long}batch(4)" steps 1; start 1 --fact "data=${long}batch(8)" steps 1
ended 1 1 && all_say "the data is '\.\.\.[^']*batch\([48]\)' here and '\.\.\.[^']*batch\([48]\)' on rank"
result long_values_are_shown_where_they_differ $? "$(said)"
world=2 port=$(free_ports 1) pids=()
start 0 --fact a=1 steps 1; start 1 --fact b=1 steps 1
ended 1 1 && all_say "compare '[ab]' here and '[ab]' on rank"
result other_facts_are_a_difference $? "$(said)"
world=2 port=$(free_ports 1) pids=()
start 0 --connect-timeout 60 steps 1
world=3
start 1 --connect-timeout 60 steps 1
ended 1 1 && all_say 'the job has [23] processes here and [23] on rank [01]'
result another_number_of_processes_is_a_difference $? "$(said)"
world=3 port=$(free_ports 1) pids=()
rm -f err.1
start 0 --connect-timeout 60 steps 1; start 1 --connect-timeout 60 steps 1
until_true test -e err.1; mv err.1 err.first; first=${pids[1]}
start 1 --connect-timeout 60 steps 1
ended 1 1; status=$?
wait "$first"; [ $? = 1 ] && [ $status = 0 ] && cp err.first err.2 && all_say 'two processes are rank 1 of the job: process [0-9]+ on' '0 1 2'
result two_of_one_rank_are_reported_by_all $? "$(said)"

# ---- strangers
world=2 port=$(free_ports 1) pids=()
start 0 --connect-timeout 600 steps 3
python3 - "$port" <<'PYTHON' &
import socket, sys, time
def connect():
    for _ in range(12000):
        try:
            return socket.create_connection(("127.0.0.1", int(sys.argv[1])))
        except OSError:
            time.sleep(0.05)
a, b = connect(), connect() # one that says nothing
open("strangers", "w").close()
try:
    a.sendall(b"GET / HTTP/1.1\r\nHost: somebody\r\n\r\n")
    time.sleep(600) # it is killed
except OSError:
    pass
PYTHON
strangers=$!
while_runs $strangers test -e strangers
sleep 0.2
start 1 --connect-timeout 600 steps 3
ended 0 0
result strangers_do_no_harm $? "$(said)"
kill $strangers 2>/dev/null

# ---- the end of one is the end of all
left='rank 1 \(127\.0\.0\.1:[0-9]+\) has ended, while rank [02] \(127\.0\.0\.1:[0-9]+\) continues at step'
for how in '' --tcp; do
    # shellcheck disable=SC2086
    start_all 3 $how --pause 20 --count 100000 steps 100000
    wait_for '^step 5$' out.1
    kill -9 "$(process 1)"
    ended 1 137 1 && all_say 'rank 1 \(127\.0\.0\.1:[0-9]+\) .*at step [0-9]+.*killed or crashed' '0 2'
    result "a_killed_rank_is_named${how#--}" $? "$(said)"

    # shellcheck disable=SC2086
    start_all 3 $how --peer-timeout 10 --pause 20 --count 100000 steps 100000
    wait_for '^step 5$' out.2
    stopped=$(process 2)
    kill -STOP "$stopped"
    wait "${pids[0]}"; a=$?
    wait "${pids[1]}"; b=$?
    kill -CONT "$stopped"
    wait "${pids[2]}"; c=$?
    [ $a$b$c = 111 ] && all_say 'rank 2 \(127\.0\.0\.1:[0-9]+\) gave no sign of life for 10 s, at step [0-9]+' '0 1'
    result "a_stopped_rank_is_named${how#--}" $? "$(said)"
    all_say 'at step [0-9]+|rank [01]' 2
    result "the_stopped_one_ends_too${how#--}" $? "$(said)"

    # shellcheck disable=SC2086
    start_all 2 $how --peer-timeout 30 --pause 5 steps 200
    wait_for '^step 5$' out.1
    stopped=$(process 1)
    kill -STOP "$stopped"; sleep 1; kill -CONT "$stopped"
    ended 0 0
    result "a_short_stop_does_no_harm${how#--}" $? "$(said)"

    for action in cut stray; do
        # shellcheck disable=SC2086
        start_all 3 $how --pause 5 --rank 1 --at 4 --do $action steps 1000
        ended 1 1 1 && all_say 'rank [0-2] \(127\.0\.0\.1:[0-9]+\).*at step [0-9]+|an invalid message|at step 4'
        result "connections_that_are_${action}${how#--}" $? "$(said)"
    done
    # shellcheck disable=SC2086
    start_all 3 $how --rank 1 --at 4 --do abort steps 1000
    ended 1 1 1 && all_say 'no such file' && all_say 'rank 1 \(127\.0\.0\.1:[0-9]+\) failed at step 4: no such file' '0 2'
    result "a_failure_is_everybodys${how#--}" $? "$(said)"
    # shellcheck disable=SC2086
    start_all 3 $how --rank 1 --at 4 --do shorter steps 1000
    ended 1 1 1 && all_say 'rank [0-2] \(.*\) sums (999|1000) values of float32 where rank [0-2] \(.*\) sums (999|1000) values of float32, in operation [0-9]+ at step 4'
    result "another_size_is_named${how#--}" $? "$(said)"
    # shellcheck disable=SC2086
    start_all 2 $how --rank 1 --at 4 --do other steps 1000
    ended 1 1 && all_say 'takes the maximum of 1000 values of float32'
    result "another_operation_is_named${how#--}" $? "$(said)"
    # shellcheck disable=SC2086
    start_all 3 $how --rank 1 --at 4 --do leave steps 1000
    ended 1 0 1 && all_say "$left 4$" '0 2'
    result "one_that_leaves_early_is_named${how#--}" $? "$(said)"
done

# ---- the same while numbers are exchanged
start_all 3 --exchange --pause 5 steps 100000
wait_for '^step 5$' out.1
kill -9 "$(process 1)"
ended 1 137 1 && all_say 'rank 1 \(127\.0\.0\.1:[0-9]+\) .*at step [0-9]+.*killed or crashed' '0 2'
result a_rank_killed_in_an_exchange_is_named $? "$(said)"
start_all 3 --exchange --rank 1 --at 4 --do leave steps 100
ended 1 0 1 && all_say "$left 4$" '0 2'
result one_that_leaves_an_exchange_is_named $? "$(said)"
start_all 2 --exchange --rank 1 --at 4 --do shorter steps 100
ended 1 1 && all_say 'rank [01] .* (sends [23] numbers where|has ended|closed)'
result another_count_of_numbers_is_named $? "$(said)"

# ---- a network that fails, between two that cannot share memory
if ip netns add "mr-a-$$" 2>/dev/null; then
    ip netns add "mr-b-$$"
    ip link add "va$$" netns "mr-a-$$" type veth peer name "vb$$" netns "mr-b-$$" &&
        ip -n "mr-a-$$" addr add 10.77.0.1/24 dev "va$$" && ip -n "mr-b-$$" addr add 10.77.0.2/24 dev "vb$$" &&
        ip -n "mr-a-$$" link set "va$$" up && ip -n "mr-b-$$" link set "vb$$" up &&
        ip -n "mr-a-$$" link set lo up && ip -n "mr-b-$$" link set lo up
    made=$?
    pids=()
    i=0
    for space in a b; do
        RANK=$i WORLD_SIZE=2 MASTER_ADDR=10.77.0.1 MASTER_PORT=2222 timeout -k 1 $patience \
            ip netns exec "mr-$space-$$" "$rank" --peer-timeout 10 --pause 5 steps 100000 >"out.$i" 2>"err.$i" &
        pids[i]=$!
        i=$((i + 1))
    done
    if [ $made = 0 ]; then
        wait_for '^step 5$' out.1
        ip -n "mr-a-$$" link set "va$$" down
        ended 1 1 && all_say 'connected by TCP$' && all_say 'rank [01] \(10\.77\.0\.[12]:[0-9]+\) (gave no sign of life|is lost).* at step [0-9]+'
        result a_cut_network_is_noticed $? "$(said)"
    else
        kill "${pids[@]}"
        wait
        skip a_cut_network_is_noticed 'no veth devices here'
    fi
    ip netns del "mr-a-$$"
    ip netns del "mr-b-$$"
else
    skip a_cut_network_is_noticed 'no network namespaces here'
fi
finish
