#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tier: plain=full
# Names in a graph for a service: relative ones belong to the client's directory, whatever opens
# them and when; standard input cannot be named.
. "$(dirname "${BASH_SOURCE[0]}")/../expect.sh"
. "$tests/daemons.sh"

mkdir -p client worker elsewhere client/images/a
cd client || exit 1
for i in 0 1 2; do printf 'a%s\nb%s\n' $i $i >part-$i.txt; done
printf 'x\ny\n' >vocabulary.txt
for f in parquet arrow npy; do
    "$m" write --out $f --format $f --expr 'range(10).map(i => {"a": i})' >/dev/null 2>&1
done
"$m" write --out records --expr 'range(10)' >/dev/null 2>&1
"$m" show 'range(4).save("elements")' >/dev/null 2>&1
printf 'image' >images/a/1.jpg
printf 'one' >r1.txt && tar cf records.tar r1.txt
"$m" write --out plain --format npy --expr 'range(4)' >/dev/null 2>&1
python3 -m zipfile -c arrays.npz plain-00000-of-00001.npy
cd ..

# Nothing of it is where the daemons are.
start dispatcher env -C worker "$m" dispatcher --listen 127.0.0.1:0 --state state
service=$at dispatcher=$pid
start one env -C worker "$m" worker --dispatcher "$service" </dev/null

in_client() { (cd client && timeout $patience "$m" "$@" 2>"$dir/err"); }
# the_same NAME GRAPH: read from the service, and in the process
the_same() {
    local want
    want=$(in_client show --seed 1 "$2") && [ -n "$want" ] || { result "$1" 1 "in the process: $(cat err)"; return; }
    result "$1" "$([ "$(in_client show --seed 1 "$2.distribute(\"$service\", streams=1)")" = "$want" ]; echo $?)" "$(cat err)"
    result "$1_in_a_shared_job" "$([ "$(in_client show --seed 1 "$2.distribute(\"$service\", processing_mode=\"parallel_epochs\")")" = "$want" ]; echo $?)" "$(cat err)"
}
the_same a_pattern 'text_line("part-*.txt")'
the_same a_name 'text_line("part-1.txt")'
the_same names_that_are_elements 'from_tensor_slices(["part-0.txt", "part-2.txt"]).flat_map(f => text_line(f))'
the_same listed_files 'list_files("part-*.txt").interleave(text_line)'
the_same a_listed_name 'list_files("part-1.txt").flat_map(text_line)'
the_same a_literal_in_a_function 'range(2).flat_map(i => text_line("part-1.txt"))'
the_same records 'tfrecord("records-*")'
the_same the_types_of_parquet 'parquet("parquet-*")'
the_same those_of_one_file 'parquet("parquet-00000-of-00001.parquet").batch(2)'
the_same those_of_parquet_in_a_function 'range(2).flat_map(i => parquet("parquet-*"))'
the_same the_types_of_arrow 'arrow("arrow-*")'
the_same the_types_of_arrays 'npy("npy-*")'
the_same those_of_arrays_in_a_function 'range(2).flat_map(i => npy("npy-*"))'
the_same those_of_an_archive 'npz("arrays.npz")'
the_same the_members_of_tar 'tar("records.tar")'
the_same saved_elements 'load("elements")'
the_same saved_elements_in_a_function 'range(2).flat_map(i => load("elements"))'
the_same images 'image_folder("images")'
the_same whole_files 'from_tensor_slices(["part-0.txt"]).map(f => read_file(f))'
the_same a_file_for_all_rows 'range(3).map(i => (i, read_file("part-0.txt")))'
the_same whole_files_in_parallel 'from_tensor_slices(["part-0.txt", "part-1.txt"]).map(f => read_file(f), num_parallel_calls=2)'
the_same a_vocabulary 'from_tensor_slices(["x", "y", "z"]).map(x => lookup(x, "vocabulary.txt"))'

# ---- a registered dataset keeps its directory
id=$(in_client service register 'text_line("part-*.txt")' --dispatcher "$service")
at_elsewhere() { (cd elsewhere && timeout $patience "$m" "$@" 2>"$dir/err"); }
six=$(in_client show 'text_line("part-*.txt")')
same a_registered_dataset "$(at_elsewhere show "distributed_dataset(\"$service\", \"$id\", streams=1)")" "$six"
same registered_again_it_is_the_same "$(in_client service register 'text_line("part-*.txt")' --dispatcher "$service")" "$id"
result elsewhere_it_is_another "$([ "$(at_elsewhere service register 'text_line("part-*.txt")' --dispatcher "$service")" != "$id" ]; echo $?)" "$id"
id=$(in_client service register 'parquet("parquet-*")' --dispatcher "$service")
ten=$(in_client show 'parquet("parquet-*")')
same a_registered_table "$(at_elsewhere show "distributed_dataset(\"$service\", \"$id\", streams=1)")" "$ten"
pid=$dispatcher at=$service
stop the_dispatcher_ends 0
start dispatcher env -C elsewhere "$m" dispatcher --listen "$service" --state ../worker/state
same it_keeps_it_when_the_dispatcher_is_another "$(at_elsewhere show "distributed_dataset(\"$service\", \"$id\", streams=1)")" "$ten"

# ---- a position keeps it too
both() { # NAME GRAPH WANT: the first four elements in one directory, the others in a third one
    local first
    first=$(in_client show --save-after 4 --state position "$2")
    same "$1" "$(printf '%s\n' "$first"; at_elsewhere show --restore ../client/position "$2")" "$3"
}
both a_position_of_a_registered_dataset "distributed_dataset(\"$service\", \"$id\", streams=1)" "$ten"
both a_position_of_a_graph "text_line(\"part-*.txt\").distribute(\"$service\", streams=1)" "$six"
both a_position_of_a_graph_in_this_process 'text_line("part-*.txt").distribute("local", streams=1)' "$six"
both a_position_of_a_table "parquet(\"$dir/client/parquet-*\").distribute(\"$service\", streams=1)" "$ten"

# ---- standard input, and descriptors
refused() { # NAME GRAPH [WORD]
    echo secret | in_client show "$2.distribute(\"$service\", streams=1)" >out
    [ $? = 1 ] && ! grep -q secret out && grep -q 'a graph for a service cannot read' err
    result "$1" $? "$(cat out err)"
}
refused input_is_refused 'text_line("-")'
refused input_of_tar 'tar("-", members=["txt"])'
refused input_of_a_table 'parquet("-", schema={"a": int64})'
refused input_of_arrays 'npy("-", schema=int64)'
refused input_by_its_file 'text_line("/dev/stdin")'
refused input_by_its_descriptor 'text_line("/dev/fd/0")'
refused input_in_a_function 'range(1).flat_map(i => text_line("-"))'
refused input_as_an_element 'from_tensor_slices(["-"]).flat_map(f => text_line(f))'
refused input_of_a_function 'from_tensor_slices(["-"]).map(f => read_file(f))'
refused input_as_a_vocabulary 'from_tensor_slices(["x"]).map(x => lookup(x, "-"))'
expect none_is_registered 2 '' 'a graph for a service cannot read' -- "$m" service register 'text_line("-")' --dispatcher "$service"

# ---- the data of a parameter server's workers: the coordinator is the client
if "$m" train --help >/dev/null 2>&1; then
    read -r ps wk < <(python3 "$tests/ports.py" 2)
    cluster="{\"cluster\": {\"ps\": [\"127.0.0.1:$ps\"], \"worker\": [\"127.0.0.1:$wk\"]}"
    for task in ps worker; do
        start "task-$task" env -C worker TF_CONFIG="$cluster, \"task\": {\"type\": \"$task\", \"index\": 0}}" "$m" server --gone 3600
    done
    rows='.map(x => ([1.0], [1.0])).batch(2)'
    train() {
        (cd client && TF_CONFIG="$cluster}" timeout $patience "$m" train --strategy parameter_server --model 'dense(1)' \
            --loss mse --optimizer 'sgd(0.01)' --steps 2 --log json --keep-servers --data "$1" >"$dir/out" 2>"$dir/err" </dev/null)
    }
    train "text_line(\"part-*.txt\")$rows"
    result training_reads_the_files_of_the_coordinator $? "$(cat out err)"
    train "from_tensor_slices([\"part-0.txt\", \"part-1.txt\"]).map(f => read_file(f))$rows"
    result also_in_functions $? "$(cat out err)"
    train "from_tensor_slices([\"-\", \"-\"]).map(f => read_file(f))$rows"
    result but_not_the_input_of_a_worker "$([ $? = 1 ] && grep -q 'a graph for a service cannot read' err; echo $?)" "$(cat out err)"
else
    skip training_reads_the_files_of_the_coordinator 'millrace-train is not here'
fi
finish
