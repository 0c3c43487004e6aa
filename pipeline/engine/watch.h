/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_ENGINE_WATCH_H
#define MR_PIPELINE_ENGINE_WATCH_H
/* Serves `millrace top PID`: reports the counters of all watched iterators of this process over the
 * abstract Unix socket "millrace-top-PID". Private to engine/.
 *
 *     millrace top --connects--> | a thread of this process, | --reads--> counters of run, run, ...
 *                  <--a report-- | asleep unless asked       |
 *
 * The thread runs while an iterator is watched. It takes no lock that a pipeline needs for each
 * block, and reports only to this process's own user and to root. A client that does not read its
 * report is disconnected after a second.
 *
 * A report is text, one line per item, with fields separated by tabs:
 *     millrace-top  version (1)
 *     process       resident bytes (-1: not known)
 *     host          name, bytes, requests, retries, open connections, seconds to first bytes, the
 *                   numbers of first bytes by bound; as in mr_host_stats. Only if URLs were read
 *     pipeline      number, seconds since it was opened, threads, memory limit (0: none)
 *     graph         its text; omitted if the graph has no text form
 *     op            path, name, elements, blocks, bytes, busy seconds, wait seconds, queued
 *                   elements, queued blocks, queued bytes, room for elements, room for blocks; as
 *                   in mr_op_stats
 *     end
 * The lines of a pipeline follow its `pipeline` line. Its number is never reused in the process.
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

/* Makes the run visible until mr__watch_stop. If that fails, logs the reason. */
void mr__watch_start(mr__watched *w, mr_run *run, const mr_dataset *graph);
/* Zeroed memory: nothing. */
void mr__watch_stop(mr__watched *w);
#endif
