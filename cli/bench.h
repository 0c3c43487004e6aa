/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_CLI_BENCH_H
#define MR_CLI_BENCH_H
/* Parts of bench that have files of their own: --trace, the spans of runs as a file of Chrome's
 * trace format; and --tuning, what was chosen where the graph says auto. */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include <millrace/pipeline/engine/iterator.h>
#include <millrace/pipeline/files/atomic_file.h>

enum { BENCH_TRACE_SPANS = 250000 }; /* of a run; about 150 bytes each in the file */

typedef struct bench_trace {
    mr_atomic_file *file;
    bool has_events;
} bench_trace;

/* t zeroed; a pipe or a device is written in place. errors with the file */
mr_code bench_trace_open(bench_trace *t, const char *path, mr_status *st) MR_NODISCARD;
/* The spans of one run, of the iterator that the calling thread used, as a process of their own
 * called name; `seconds` it took. A line on stderr says it where some were left out. */
mr_code bench_trace_run(bench_trace *t, mr_iterator *it, int64_t run, const char *name,
                        double seconds, mr_status *st) MR_NODISCARD;
/* One event more, which is taken over; NULL: there was no memory for it. */
mr_code bench_trace_put(bench_trace *t, json_t *event, mr_status *st) MR_NODISCARD;
/* The "process_name" or "thread_name" of one. */
mr_code bench_trace_name(bench_trace *t, const char *what, int64_t process, int thread,
                         const char *name, mr_status *st) MR_NODISCARD;
/* Only then there is a file. */
mr_code bench_trace_close(bench_trace *t, mr_status *st) MR_NODISCARD;
/* Removes what was written. Also after close, and of a zeroed one. */
void bench_trace_abort(bench_trace *t);

/* A member "tuning" of the object that is printed, with a comma before it. */
mr_code bench_tuning_json(mr_iterator *it, mr_status *st) MR_NODISCARD;
/* A table, with a line for each that says how to pin it. */
mr_code bench_tuning_table(mr_iterator *it, bool threads, mr_status *st) MR_NODISCARD;
#endif
