/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_CLI_BENCH_H
#define MR_CLI_BENCH_H
/* Parts of bench in separate files: --trace, the spans of runs in Chrome's trace format; and
 * --tuning, the values chosen where the graph says auto. */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include <millrace/pipeline/engine/iterator.h>
#include <millrace/pipeline/files/atomic_file.h>
#include <millrace/pipeline/remote/host_stats.h>

enum { BENCH_TRACE_SPANS = 250000 }; /* of a run; about 150 bytes each in the file */

typedef struct bench_trace {
    mr_atomic_file *file;
    bool has_events;
} bench_trace;

/* t zeroed; a pipe or a device is written in place. errors with the file */
mr_code bench_trace_open(bench_trace *t, const char *path, mr_status *st) MR_NODISCARD;
/* Adds the spans of one run, of the iterator that the calling thread used, as a process called
 * name; the run took `seconds`. A line on stderr reports omitted spans. */
mr_code bench_trace_run(bench_trace *t, mr_iterator *it, int64_t run, const char *name,
                        double seconds, mr_status *st) MR_NODISCARD;
/* Adds counters of each host of URLs, what it did since `before`, `at` seconds after the run
 * began. */
mr_code bench_trace_hosts(bench_trace *t, int64_t run, double at, const mr_host_stats *before,
                          size_t n_before, mr_status *st) MR_NODISCARD;
/* Adds an event. Takes it; NULL: out of memory. */
mr_code bench_trace_put(bench_trace *t, json_t *event, mr_status *st) MR_NODISCARD;
/* Adds a "process_name" or "thread_name" event. */
mr_code bench_trace_name(bench_trace *t, const char *what, int64_t process, int thread,
                         const char *name, mr_status *st) MR_NODISCARD;
/* Publishes the file. */
mr_code bench_trace_close(bench_trace *t, mr_status *st) MR_NODISCARD;
/* Removes unpublished output. Also valid after close, and on a zeroed trace. */
void bench_trace_abort(bench_trace *t);

/* Prints the member "tuning" of an object, after a comma. */
mr_code bench_tuning_json(mr_iterator *it, mr_status *st) MR_NODISCARD;
/* Prints a table, with a line for each value that says how to pin it. */
mr_code bench_tuning_table(mr_iterator *it, bool threads, mr_status *st) MR_NODISCARD;
#endif
