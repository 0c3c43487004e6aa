/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_ENGINE_WATCH_H
#define MR_PIPELINE_ENGINE_WATCH_H
/* What `millrace top PID` reads: the counters of all watched iterators of this process, over the
 * abstract Unix socket "millrace-top-PID". Private to engine/.
 *
 *     millrace top --connects--> | a thread of this process, | --reads--> counters of run, run, ...
 *                  <--a report-- | asleep unless asked       |
 *
 * The thread is there while an iterator is watched. It takes no lock that a pipeline needs from
 * block to block, and gives a report to this process's own user and to root alone. A client that
 * does not read its report is left after a second.
 *
 * A report is text, a line a thing, its fields with tabs between:
 *     millrace-top  version (1)
 *     process       resident bytes (-1: not known)
 *     pipeline      number, seconds since it was opened, threads, memory limit (0: none)
 *     graph         text; one without text is left out
 *     op            path, name, elements, blocks, bytes, busy seconds, wait seconds, queued
 *                   elements, queued blocks, queued bytes, room for elements, room for blocks; as
 *                   in mr_op_stats
 *     end
 * Lines of a pipeline follow it. The number is never used again in the process.
 *
 * thread   any */
#include "pipeline/engine/run.h"

typedef struct mr__watched mr__watched;
struct mr__watched {
    mr__watched *next, **at; /* the list, under its lock */
    mr_run *run;             /* NULL: not watched */
    const mr_dataset *graph;
    int64_t number;
};

/* Shows the run until mr__watch_stop. Where it cannot be shown, the log says why. */
void mr__watch_start(mr__watched *w, mr_run *run, const mr_dataset *graph);
/* Zeroed memory: nothing. */
void mr__watch_stop(mr__watched *w);
#endif
