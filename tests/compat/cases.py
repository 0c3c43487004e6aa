# SPDX-License-Identifier: Apache-2.0
"""The graphs, models and jobs that make.py runs. UNORDERED in a graph stands for a map that makes the
graph impossible to repeat: positions then hold elements instead of places in files."""

# Positions that show --save-after saves: name | elements before the position | options | graph.
# Options are those of show, and
#   --draws    saves with --seed 7 and restores without it: the position must hold what was drawn
#   sorted     the elements come in any order
POSITIONS = r"""
range | 4 | | range(10)
range_downwards | 3 | | range(20, 0, -3)
counter | 3 | | counter(5, 3).take(9)
random | 3 | | random(seed=3).take(9)
random_without_a_seed | 3 | --draws | random().take(9)
random_again_in_each_pass | 6 | | random(seed=3, rerandomize_each_iteration=true).take(4).repeat(3)
from_tensors | 2 | | from_tensors(1, "a").repeat(5)
from_tensor_slices | 2 | | from_tensor_slices(["a", "bb", "ccc"], [[1, 2], [3, 4], [5, 6]])
list_files | 4 | | list_files("data/words-*.txt", shuffle=true, seed=5).repeat(3)
list_files_without_a_seed | 4 | --draws | list_files("data/words-*.txt", shuffle=true).repeat(3)
text_line | 9 | | text_line("data/words-*.txt")
text_line_at_the_end_of_a_file | 7 | | text_line(["data/words-0.txt", "data/words-2.txt"])
text_line_gzip | 3 | | text_line("data/words.gz", compression="GZIP")
fixed_length_record | 5 | | fixed_length_record(["data/fixed-0.bin", "data/fixed-1.bin"], 3, header_bytes=2, footer_bytes=1).map(r => decode_raw(r, "uint8"))
files | 1 | | files("data/words-*.txt").map(f => (f["path"], length(f["contents"])))
image_folder | 2 | | image_folder("data/pets")
tfrecord | 5 | | tfrecord("data/plain-*")
tfrecord_gzip | 5 | | tfrecord("data/gzip-*", compression="GZIP")
tfrecord_zstd | 5 | | tfrecord("data/zstd-*", compression="ZSTD")
tfrecord_several_at_once | 5 | | tfrecord("data/plain-*", num_parallel_reads=2)
tfrecord_skip_by_index | 3 | | tfrecord("data/indexed-*").skip(3)
tfrecord_range_by_index | 2 | | tfrecord("data/indexed-*", record_range=[1, 2])
tfrecord_skips_damage | 3 | | tfrecord("data/damaged.tfrecord", on_corrupt="skip", max_skipped=1)
tfrecord_of_zstd_records | 7 | | tfrecord("data/frames-*", record_compression="ZSTD").map(r => substring(r, 0, 30)).take(12)
global_shuffle | 4 | | tfrecord("data/indexed-*").global_shuffle(seed=42).repeat(2)
global_shuffle_in_a_later_pass | 16 | | tfrecord("data/indexed-*").global_shuffle(seed=42).repeat(2)
global_shuffle_without_a_seed | 4 | --draws | tfrecord("data/indexed-*").global_shuffle().repeat(2)
csv | 3 | | csv("data/people-*.csv", {"name": bytes, "id": int64})
csv_without_a_header | 2 | | csv("data/numbers.csv", [int64, feature(float32, default=0.5)], header=false)
jsonl | 3 | | jsonl("data/people-*.jsonl", {"name": bytes, "at": float32[2], "age": feature(int64, default=-1), "l": int64[]})
arrow | 5 | | arrow("data/arrow-*")
arrow_columns | 5 | | arrow("data/arrow-*", columns=["id"])
parquet | 5 | | parquet("data/parquet-*")
parquet_columns | 5 | | parquet("data/parquet-*", columns=["id", "title"])
tar | 2 | | tar("data/set-*.tar", members=["txt", "cls"])
load | 4 | | load("kept/saved")
shuffle | 5 | | range(20).shuffle(6, seed=3)
shuffle_in_the_next_pass | 25 | | range(20).shuffle(6, seed=3).repeat(3)
shuffle_the_same_in_each_pass | 25 | | range(20).shuffle(6, seed=3, reshuffle_each_iteration=false).repeat(2)
shuffle_without_a_seed | 25 | --draws | range(20).shuffle(6).repeat(3)
shuffle_everything | 5 | | range(20).shuffle(-2, seed=3)
shuffle_with_its_elements | 5 | --threads 0 | range(20).UNORDERED.shuffle(6, seed=3)
shuffle_with_its_last_elements | 17 | --threads 0 | range(20).UNORDERED.shuffle(6, seed=3)
shuffle_past_errors | 5 | | range(20).map(x => 12 // (x - 4)).shuffle(6, seed=3).ignore_errors()
shuffle_with_elements_of_all_types | 3 | --threads 0 | range(10).map(i => {"n": i, "s": format("no. {}", i), "r": ones([i % 3]), "b": i % 2 == 0, "u8": cast(i, "uint8"), "u64": cast(i, "uint64"), "f16": cast(i, "float16"), "bf": cast(i, "bfloat16"), "f64": cast(i, "float64"), "m": [[i, 1], [2, 3]], "t": (i, ["x", "y"])}).UNORDERED.shuffle(5, seed=3)
shuffle_with_datasets | 3 | --threads 0 | range(10).window(2).UNORDERED.shuffle(3, seed=3)
shuffle_with_ragged_elements | 2 | --threads 0 | range(24).map(x => ones([x % 3])).ragged_batch(2).UNORDERED.shuffle(4, seed=3)
repeat | 5 | | range(4).repeat(3)
repeat_without_end | 9 | --limit 5 | range(4).repeat()
repeat_at_the_end_of_a_pass | 4 | | range(4).repeat(2)
skip | 2 | | range(9).skip(3)
take | 2 | | range(9).take(6)
take_while | 2 | | range(9).take_while(x => x < 6)
take_while_has_stopped | 7 | | range(9).take_while(x => x < 6).concatenate(range(20, 23))
concatenate_in_its_first | 2 | | range(4).concatenate(range(10, 14))
concatenate_in_its_second | 6 | | range(4).concatenate(range(10, 14))
zip | 3 | | zip(range(9), range(10, 16), text_line("data/words-0.txt"))
zip_that_has_ended | 4 | | zip(range(3), range(9)).concatenate(zip(range(4), range(5)))
enumerate | 3 | | range(20, 26).enumerate(start=7)
assert_cardinality | 3 | | range(9).assert_cardinality(9)
filter | 3 | | range(20).filter(x => x % 3 == 0)
filter_in_parallel | 3 | | range(20).filter(x => x % 3 == 0, num_parallel_calls=3)
map | 3 | | range(9).map(x => (x, {"s": x * 2}))
map_in_parallel | 3 | | range(30).map(x => x * x, num_parallel_calls=3)
map_with_random_values | 3 | --seed 5 | range(9).map(x => random_int(0, 1000, seed=1) + cast(random_normal(seed=2) * 100.0, "int64"))
map_in_any_order | 3 | --threads 0 | range(9).map(x => x * x, num_parallel_calls=3, deterministic=false)
map_before_an_error | 3 | | range(9).map(x => 12 // (x - 5))
map_past_an_error | 6 | | range(9).map(x => 12 // (x - 5)).ignore_errors()
scan | 3 | | range(9).scan((0, 1.5, "s"), (s, x) => ((s[0] + x, s[1] * 2.0, format("{}{}", s[2], x)), s))
unique | 4 | | range(20).map(x => x * x % 10).unique()
unique_strings | 3 | | range(20).map(x => format("w{}", x * x % 11)).unique()
batch | 2 | | range(10).batch(3)
batch_without_the_rest | 2 | | range(10).batch(3, drop_remainder=true)
batch_in_parallel | 2 | | range(20).map(x => x * x).batch(3, num_parallel_calls=2)
padded_batch | 1 | | range(9).map(x => ones([x % 4])).padded_batch(2, padded_shapes=[5])
ragged_batch | 1 | | range(9).map(x => ones([x % 4])).ragged_batch(2)
rebatch | 3 | | range(20).batch(5).rebatch([2, 3])
unbatch | 5 | | range(20).batch(4).unbatch()
unbatch_of_several | 5 | | range(20).map(x => (x, format("{}", x))).batch(4).unbatch()
window | 2 | | range(9).window(3)
window_that_overlaps | 2 | | range(12).window(4, shift=2, stride=2)
window_flat | 5 | | range(12).window(4, shift=3, drop_remainder=true).flat_map(w => w.map(x => x * 10))
window_with_its_elements | 2 | --threads 0 | range(12).UNORDERED.window(4, shift=2)
window_of_tuples | 1 | | range(9).map(x => (x, format("{}", x))).window(3)
group_by_window | 2 | | range(20).group_by_window(x => x % 3, (k, w) => w.batch(4), window_size=4)
group_by_window_within_a_group | 5 | | range(20).group_by_window(x => x % 3, (k, w) => w.map(x => (k, x)), window_size=4)
group_by_window_of_its_sizes | 3 | | range(30).map(x => format("{}", x * x)).group_by_window(s => length(s), (k, w) => w.batch(9), window_size_fn=k => k + 1)
group_by_window_after_the_end | 7 | | range(23).group_by_window(x => x % 5, (k, w) => w.batch(9), window_size=4)
bucket_by_sequence_length | 2 | | range(20).map(x => ones([x % 6])).bucket_by_sequence_length(x => length(x), boundaries=[2, 4], batch_sizes=[3, 2, 2])
interleave | 7 | | range(6).interleave(x => range(x * 10, x * 10 + 5), cycle_length=3, block_length=2)
interleave_in_parallel | 7 | | range(6).interleave(x => range(x * 10, x * 10 + 5), cycle_length=3, num_parallel_calls=2)
interleave_files | 7 | | list_files("data/words-*.txt").interleave(f => text_line(f), cycle_length=2)
interleave_records | 5 | | list_files("data/plain-*").interleave(tfrecord, cycle_length=2, num_parallel_calls=auto)
interleave_shuffled | 7 | --draws | range(6).shuffle(4).interleave(x => range(x * 10, x * 10 + 5).shuffle(3, seed=1), cycle_length=3)
interleave_within_interleave | 9 | | range(4).interleave(x => range(3).interleave(y => range(2).map(z => x * 100 + y * 10 + z), cycle_length=2), cycle_length=2)
flat_map | 7 | | range(6).flat_map(x => range(x))
flat_map_of_files | 9 | | list_files("data/words-*.txt").flat_map(f => text_line(f).map(l => (f, l)))
prefetch | 3 | | range(20).map(x => x + 1).prefetch(4)
prefetch_with_its_elements | 3 | --threads 1 | range(20).cache().map(x => format("{}", x)).prefetch(4)
prefetch_with_an_error | 3 | | range(12).cache().map(x => 12 // (x - 5)).prefetch(6)
prefetch_in_any_order | 3 | sorted | range(20).UNORDERED.prefetch(4)
prefetch_in_any_order_with_errors | 3 | sorted | range(20).UNORDERED.scan(0, (s, x) => (s + 1, 12 // (x % 4 - 2))).prefetch(12).ignore_errors()
parallel_calls_in_any_order | 3 | --threads 0 | range(20).map(x => x + 1, num_parallel_calls=3).with_options(deterministic=false)
cache_that_records | 4 | | range(9).map(x => x * 2).cache().repeat(2)
cache_that_is_read | 13 | | range(9).map(x => x * 2).cache().repeat(2)
cache_that_was_just_completed | 9 | | range(9).map(x => x * 2).cache().repeat(2)
cache_of_random_elements | 13 | | random(seed=3).take(9).cache().repeat(2)
cache_with_its_elements | 4 | --threads 0 | range(9).UNORDERED.cache().repeat(2)
cache_with_all_its_elements | 13 | --threads 0 | range(9).UNORDERED.cache().repeat(2)
cache_that_records_its_elements | 4 | | range(9).cache().map(x => (x, format("{}", x))).cache().repeat(2)
cache_past_errors | 13 | | range(9).map(x => 12 // (x - 4)).cache().ignore_errors().repeat(2)
cache_in_a_file_that_is_written | 4 | | range(9).map(x => (x, ones([x % 3]))).cache("kept/begun").repeat(2)
cache_in_a_file_past_errors | 5 | | range(9).map(x => 12 // (x - 4)).cache("kept/errors").ignore_errors().repeat(2)
cache_in_a_file_that_is_read | 13 | | range(9).map(x => (x, ones([x % 3]))).cache("kept/whole").repeat(2)
cache_in_a_file_of_random_elements | 13 | | random().take(9).cache("kept/drawn").repeat(2)
cache_in_a_file_that_cannot_be_resumed | 4 | --threads 0 | range(9).UNORDERED.cache("kept/cannot")
snapshot_that_is_written | 4 | | range(9).map(x => x * 3).snapshot("kept/begun")
snapshot_that_is_read | 4 | | random().take(9).snapshot("kept/snapshots")
save | 4 | | range(9).map(x => x * 3).save("kept/saving")
sample_from_datasets | 5 | | sample_from_datasets([range(8), range(100, 108)], weights=[0.3, 0.7], seed=42)
sample_from_datasets_one_ended | 9 | | sample_from_datasets([range(3), range(100, 110)], seed=42).repeat(2)
sample_from_datasets_again | 20 | | sample_from_datasets([range(8), range(100, 108)], seed=42, rerandomize_each_iteration=true).repeat(2)
sample_from_datasets_without_a_seed | 5 | --draws | sample_from_datasets([range(8), range(100, 108)])
choose_from_datasets | 5 | | choose_from_datasets([range(8), range(100, 108)], range(12).map(x => x * x % 2))
choose_not_begun | 3 | | choose_from_datasets([range(9), range(9).distribute("local", streams=2)], range(12).map(x => x // 6))
rejection_resample | 4 | | range(30).rejection_resample(x => x % 2, [0.9, 0.1], initial_dist=[0.5, 0.5], seed=1)
rejection_resample_counting | 4 | | range(40).rejection_resample(x => x % 2, [0.8, 0.2], seed=1)
rejection_resample_without_a_seed | 4 | --draws | range(30).rejection_resample(x => x % 2, [0.9, 0.1])
shard | 2 | | range(20).shard(3, 1)
shard_that_is_not_empty | 2 | | range(20).shard(3, 1, require_non_empty=true)
replica_slices | 4 | | range(20).batch(5).replica_slices(3)
ignore_errors | 4 | | range(12).map(x => 12 // (x % 3 - 1)).ignore_errors()
with_options | 4 | | range(9).shuffle(4, seed=2).with_options(auto_shard_policy="DATA")
everything | 4 | --draws | list_files("data/plain-*", shuffle=true).interleave(tfrecord, cycle_length=2).cache().shuffle(5).map(r => (length(r), r), num_parallel_calls=2).padded_batch(2).repeat(3).prefetch(2)
at_the_end | 9 | | range(5).concatenate(range(4))
passes | 7 | --epochs 3 | range(5).shuffle(5, seed=3)
passes_without_a_seed | 7 | --epochs 3 --draws | text_line("data/words-*.txt").shuffle(5)
passes_of_a_cache | 12 | --epochs 3 | range(5).map(x => x * 2).cache()
replicas | 2 | --replicas 2 | range(20).shuffle(5, seed=3).batch(4)
replicas_of_files | 1 | --replicas 2 --workers 2 --auto-shard file | text_line("data/words-*.txt").batch(4)
replicas_of_a_worker | 1 | --replicas 2 --workers 2 --worker 1 --auto-shard data | text_line("data/words-*.txt").shuffle(5).batch(4)
replicas_by_range | 1 | --replicas 1 --workers 2 --auto-shard range | tfrecord("data/indexed-*").batch(4)
replicas_by_hint | 1 | --replicas 1 --workers 2 --auto-shard hint | range(20).shard(-1, 0).batch(4)
replicas_of_a_function | 1 | --replicas 2 --workers 2 --from-function | range(20).shard(num_input_pipelines, input_pipeline_id).batch(per_replica_batch_size(4))
replicas_in_a_later_pass | 4 | --replicas 2 --epochs 3 | range(10).shuffle(5, seed=3).batch(4)
replicas_of_one_that_ended | 3 | --replicas 1 --workers 2 --auto-shard file | text_line(["data/words-0.txt", "data/words-1.txt"]).batch(4)
distribute | 5 | | range(20).batch(2).distribute("local", streams=3, block_length=2)
distribute_shuffled | 7 | --seed 5 | range(20).shuffle(6).distribute("local", streams=3).repeat(2)
distribute_shuffled_without_a_seed | 7 | --draws | range(20).shuffle(6).distribute("local", streams=3)
distribute_in_the_next_pass | 25 | | range(20).shuffle(6).distribute("local", streams=3, seed=9).repeat(2)
distribute_files | 7 | | text_line("data/words-*.txt").distribute("local", streams=2)
distribute_matched_files | 7 | | list_files("data/words-*.txt", shuffle=true).flat_map(f => text_line(f)).distribute("local", streams=2, seed=2)
distribute_to_a_consumer | 3 | | range(20).distribute("local", streams=4, consumer_index=1, num_consumers=2)
distribute_splits | 7 | | text_line("data/words-*.txt").distribute("local", processing_mode="dynamic", seed=1)
distribute_in_a_mode_of_files | 7 | | text_line("data/words-*.txt").distribute("local", processing_mode="file", seed=1)
distribute_not_begun | 3 | | range(9).concatenate(range(9).batch(2).unbatch().distribute("local", streams=2))
distribute_with_errors | 3 | | range(12).map(x => 12 // (x - 5)).distribute("local", streams=3).ignore_errors().prefetch(3)
"""

# Positions that show never saves, since it takes one element at a time: name | calls of
# mr_iterator_next | elements requested by each | elements taken from the last block (default: all) |
# options for restoring | graph. "says WORDS": the first thing after the position is an error with
# these words, which the position stores.
POSITIONS_OF_BLOCKS = r"""
rows_before_the_state | 1 | 9 | 4 | --threads 0 | range(20).UNORDERED
rows_to_skip | 1 | 6 | 4 | | range(20).shuffle(5, seed=3)
rows_of_all_types_before_the_state | 3 | 6 | 2 | --threads 0 | range(10).map(i => {"n": i, "s": format("{}", i), "r": ones([i % 3])}).UNORDERED
a_deferred_error | 1 | 9 | | says 12 // (x - 2) | range(9).UNORDERED.scan(0, (s, x) => (s + 1, 12 // (x - 2)))
rows_after_an_error | 2 | 9 | | --threads 0 | range(9).map(x => 12 // (x - 2))
rows_with_an_error | 1 | 9 | | says 12 // (x - 2) | range(9).map(x => 12 // (x - 2))
rows_with_several_errors | 2 | 9 | | says 12 // (x % 3 - 2) | range(9).map(x => 12 // (x % 3 - 2))
a_predicate_with_errors | 3 | 9 | | says 12 // (x - 4) | range(9).take_while(x => 12 // (x - 4) < 100)
rows_after_an_error_of_a_predicate | 4 | 9 | | --threads 0 | range(9).take_while(x => 12 // (x - 4) < 100)
numbers_at_hand_of_a_selection | 2 | 20 | | --threads 0 | sample_from_datasets([range(8).map(x => 12 // (x - 1)), range(100, 108)], seed=42)
"""

# Ledgers, and positions of runs that write one: name | elements before the position | options | graph
LEDGERS = r"""
of_a_shuffle | 5 | --threads 0 | text_line("data/words-*.txt").UNORDERED.shuffle(5, seed=3).batch(2)
of_closed_inputs | 9 | | text_line("data/words-0.txt").repeat(2).concatenate(text_line("data/words-1.txt").take(2)).batch(2).unbatch()
of_a_cache | 9 | | tfrecord("data/plain-00000-of-00003.tfrecord").cache().repeat(2)
of_an_interleave | 5 | | list_files("data/words-*.txt").interleave(f => text_line(f), cycle_length=2)
of_passes | 9 | --epochs 2 | text_line("data/words-0.txt").shuffle(4, seed=3)
of_replicas | 2 | --replicas 2 --epochs 2 | text_line("data/words-*.txt").batch(4)
"""

# Files of elements: name | graph that writes the file | graph that reads it (default: the same)
KEPT = r"""
saved | range(9).map(x => (x, ones([x]))).save("kept/saved") | load("kept/saved")
saved_records | range(5).map(i => {"n": i, "s": format("no. {}", i), "b": i % 2 == 0, "f16": cast(i, "float16"), "bf": cast(i, "bfloat16"), "in": {"x": [i, i], "y": cast(i, "uint8")}}).save("kept/records") | load("kept/records")
saved_ragged | range(9).map(x => ones([x % 3])).ragged_batch(2).save("kept/ragged") | load("kept/ragged")
saved_datasets | range(6).window(2).save("kept/windows") | load("kept/windows", allow_datasets=true).flat_map(w => w.map(x => x * 10))
cache_of_a_missing_file | text_line("kept/gone.txt").map(s => (s, length(s))).cache("kept/lines")
snapshot_of_a_missing_file | text_line("kept/gone.txt").map(s => (s, length(s))).snapshot("kept/snapshots")
cache_of_random_elements | random().take(9).cache("kept/drawn")
snapshot_of_random_elements | random().take(9).snapshot("kept/snapshots")
whole | range(9).map(x => (x, ones([x % 3]))).cache("kept/whole")
"""

# Indexes, compressed records and files of adapt: name | "close" or nothing | arguments
READ = r"""
index_of_text | | show 'tfrecord("data/indexed-00000*").global_shuffle(seed=42)'
index_of_numbers | | show 'tfrecord("data/indexed-*").global_shuffle(seed=42)'
index_of_a_range | | show 'tfrecord("data/indexed-*", record_range=[2, 3])'
records_compressed_with_a_dictionary | | show 'tfrecord("data/frames-*", record_compression="ZSTD").map(r => length(r)).batch(100)'
records_are_whole | | inspect --json --verify data/frames-00000-of-00002.tfrecord data/gzip-00000-of-00002.tfrecord
learned_words | | show 'from_tensor_slices(["d", "a", "c", "x"]).map(x => lookup(x, "learned/words"))'
learned_texts | | show 'from_tensor_slices(["The cat and a DOG!", "a bird"]).map(x => text_vectorization(x, "learned/texts", output_sequence_length=5))'
learned_moments | close | show 'range(5).map(x => normalization([cast(x, "float32"), 20.0], adapted="learned/moments"))'
learned_bins | | show 'range(12).map(x => discretization(x, "learned/bins"))'
"""

X, Y = '[cast(i, "float32") / 24.0, 1.0]', '[cast(i, "float32") / 8.0]'
PAIRS = f"range(24).shuffle(24).map(i => ({X}, {Y})).batch(2).prefetch(2)"
SOME_PAIRS = f"range(8).map(i => ({X}, {Y})).batch(4)"
TWO_INPUTS = '{"left": [cast(i, "float32"), 1.0], "right": [2.0, cast(i % 3, "float32")]}'
TWO_OUTPUTS = '{"kind": i % 3, "size": [1.0]}'
IMAGES = 'range(24).shuffle(24).map(i => (reshape([cast(i, "float32"), 1.0, 2.0, 4.0], [2, 2, 1]) / 24.0, i % 3)).batch(4)'
CLASSES = 'range(24).shuffle(24).map(i => ([cast(i % 3, "float32"), cast(i, "float32") / 24.0], [cast(i % 2, "float32")])).batch(4)'
LETTERS = 'text_line("data/words-*.txt").map(s => cast(decode_raw(substring(s, 0, 4), "uint8"), "float32") / 64.0).map(x => (x, [1.0])).shuffle(5).batch(3)'

# Training that is killed: name, workers, step, options of backup_and_restore, arguments
BACKUPS = [
    ("adam_and_callbacks", 1, 18, "save_freq=3", ["--data", PAIRS, "--validation", SOME_PAIRS, "--epochs", "9", "--model",
     'dense(3, activation="relu").dropout(0.2).dense(1)', "--loss", "mse", "--optimizer", "adam(0.01)", "--metrics", "mse",
     "--callback", 'early_stopping(monitor="loss", min_delta=1000, patience=3, restore_best_weights=true)',
     'reduce_lr_on_plateau(monitor="loss", mode="max", factor=0.5, patience=1)', 'csv_logger("log.csv", append=true)']),
    ("sgd_and_images", 1, 8, "save_freq=1", ["--data", IMAGES, "--epochs", "3", "--replicas", "2", "--model",
     'conv2d(3, 2, padding="same").batch_norm().activation("relu").flatten().dense(3)', "--loss",
     "sparse_categorical_crossentropy", "--optimizer",
     "sgd(exponential_decay(0.05, decay_steps=5, decay_rate=0.5), momentum=0.9)", "--metrics", "accuracy"]),
    ("rmsprop_and_metrics", 1, 9, "save_freq=1", ["--data", CLASSES, "--epochs", "3", "--model",
     'dense(4, activation="tanh").dense(1, activation="sigmoid")', "--loss", "binary_crossentropy", "--optimizer",
     "rmsprop(0.01, momentum=0.5, centered=true)", "--metrics", "binary_accuracy", "precision", "recall", "auc"]),
    ("adamw_in_one_copy", 1, 14, "save_freq=4", ["--data", PAIRS, "--epochs", "3", "--replicas", "2", "--strategy",
     "central_storage", "--model", "dense(3).layer_norm().dense(1)", "--loss", "huber", "--optimizer", "adamw(0.01)"]),
    ("adagrad_and_files", 1, 9, "save_freq=2", ["--data", LETTERS, "--epochs", "3", "--model", "dense(2).dense(1)", "--loss",
     "mae", "--optimizer", "adagrad(0.1)"]),
    ("steps_of_endless_data", 1, 11, "save_freq=2", ["--data", PAIRS.replace(".batch", ".repeat().batch"), "--epochs", "4",
     "--steps-per-epoch", "5", "--model", "dense(1)", "--loss", "mse", "--optimizer", "sgd(0.01)"]),
    ("between_epochs", 1, 17, 'save_freq="epoch"', ["--data", PAIRS, "--epochs", "4", "--model", "dense(1)", "--loss", "mse",
     "--optimizer", "adam(0.01)"]),
    ("several_outputs", 1, 9, "save_freq=3", ["--data", PAIRS.replace(Y, TWO_OUTPUTS),
     "--epochs", "2", "--model", 'x = input(2); h = x.dense(4, activation="tanh"); kind = h.dense(3); size = h.dense(1)',
     "--loss", '{"kind": sparse_categorical_crossentropy, "size": mse}', "--loss-weights", '{"kind": 1.0, "size": 0.5}',
     "--metrics", "kind.accuracy", "size.mae", "--optimizer", "adam(0.01)"]),
    ("two_workers", 2, 8, "save_freq=2", ["--data", PAIRS.replace("batch(2)", "batch(4)"), "--auto-shard", "data", "--epochs", "3",
     "--model", "dense(3).dense(1)", "--loss", "mse", "--optimizer", "adam(0.01)"]),
]

# Saved models: name, data to train on, data for evaluate and predict, arguments of train
MODELS = [
    ("line", PAIRS, SOME_PAIRS, ["--model", 'dense(4, activation="relu").dense(1)', "--loss", "mse", "--metrics", "mse", "mae"]),
    ("layers", IMAGES, IMAGES.replace(".shuffle(24)", ".take(6)"), ["--model",
     'residual(conv2d(4, 2, padding="same").batch_norm().activation("elu"), projection=true).depthwise_conv2d(2, padding="same")'
     '.max_pool(1).average_pool(1).layer_norm().dropout(0.1).flatten().dense(3, kernel_regularizer=l2(0.01))',
     "--loss", "sparse_categorical_crossentropy(from_logits=true)", "--metrics", "accuracy"]),
    ("graph", PAIRS.replace(X, TWO_INPUTS), SOME_PAIRS.replace(X, TWO_INPUTS),
     ["--model", 'left = input(2); right = input(2); tower = dense(4, activation="tanh").dense(3);'
      'subtract(left.tower(), right.tower()).concat(left).dense(1)', "--loss", "mse"]),
    ("outputs", PAIRS.replace(Y, TWO_OUTPUTS),
     SOME_PAIRS.replace(Y, TWO_OUTPUTS), ["--model",
     'x = input(2); h = x.dense(4, activation="tanh"); kind = h.dense(3); size = h.dense(1)', "--loss",
     '{"kind": sparse_categorical_crossentropy, "size": mse}', "--loss-weights", '{"kind": 1.0, "size": 0.5}', "--metrics",
     "kind.accuracy", "size.mae"]),
    ("words", 'from_tensor_slices(["d", "a", "c", "x"]).repeat(4).map(s => ([s], [1.0])).batch(4)',
     'from_tensor_slices(["d", "a", "c", "x"]).map(s => ([s], [1.0])).batch(4)',
     ["--model", 'lookup("learned/words").embedding(8, 3).flatten().dense(1)', "--loss", "mse"]),
    ("texts", 'from_tensor_slices(["A cat!", "the dog and a bird"]).repeat(4).map(s => (s, [1.0])).batch(4)',
     'from_tensor_slices(["A cat!", "the dog and a bird"]).map(s => (s, [1.0])).batch(2)',
     ["--model", 'text_vectorization("learned/texts", output_sequence_length=4).embedding(12, 2).flatten().dense(1)', "--loss", "mse"]),
    ("moments", PAIRS, SOME_PAIRS, ["--model", 'normalization(adapted="learned/moments").dense(1)', "--loss", "mse"]),
    ("bins", 'range(12).map(i => ([i], [1.0])).batch(4)', 'range(12).map(i => ([i], [1.0])).batch(12)',
     ["--model", 'discretization("learned/bins").category_encoding(8).dense(1)', "--loss", "mse"]),
    ("bfloat16", PAIRS, SOME_PAIRS, ["--model", "dense(1)", "--loss", "mse", "--mixed-precision"]),
]

# Positions and accounts hold these addresses.
DISPATCHER, WORKER = "127.19.7.1:5719", "127.19.7.1:5720"
DAEMONS = {"dispatcher": ["dispatcher", "--listen", DISPATCHER, "--state", "service/account", "--workers", WORKER],
           "workers": [["worker", "--listen", WORKER, "--dispatcher", DISPATCHER]]}

# Clients that leave before the end of a job: name | elements before that | graph | options of
# distribute | options of show. Each runs twice: one job continues at the client's position, the other
# where the account says. "long": a dispatcher that starts keeps streams of shared modes for the former
# client for 30 s.
JOBS = r"""
exactly_once | 5 | range(20).batch(2) | streams=3, block_length=2
shuffled | 7 | range(20).shuffle(6) | streams=2, seed=9
files | 7 | text_line("data/words-*.txt") | streams=3
a_consumer | 3 | range(20) | streams=4, consumer_index=1, num_consumers=2
some_splits | 7 | range(40) | processing_mode="dynamic" | --limit 20
splits | 7 | range(40) | processing_mode="dynamic" | long
splits_of_files | 7 | text_line("data/words-*.txt").batch(2) | processing_mode="dynamic" | long
parallel_epochs | 7 | range(10).shuffle(4) | processing_mode="parallel_epochs", seed=9 | long
workers_files | 7 | text_line("data/words-*.txt") | processing_mode="file"
workers_elements | 7 | range(20) | processing_mode="data"
"""
