/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TESTS_PIPELINE_OPS_REPLAY_H
#define MR_TESTS_PIPELINE_OPS_REPLAY_H
/* Runs a graph with 0, 1 and 4 threads and with blocks of 1, 3 and 1024 rows, each time saved and
 * restored (with another number of threads) behind every element and error, and compares what comes
 * out with one expected list:
 *
 *     check_graph("range(-1, 2).map(x => 6 // x)", "-6 ! 6");
 *
 * An element is a number, a string, a [list of them], or components joined by "/"; an error is "!".
 */
#include "pipeline/engine/iterator.h"

typedef enum order { IN_ORDER, ANY_ORDER } order;

void check_graph(const char *text, const char *expected);
/* A graph made from C (taken over). */
void check_dataset(mr_dataset *ds, const char *expected, order how);
/* The graph can't be built, and the message has `part` in it. */
void check_refused(const char *text, const char *part);
/* Runs once; the events, to be freed by mr_free. *last: the last error. */
char *run_graph(const char *text, const mr_iterator_opts *opts, mr_status *last);
mr_dataset *parse_graph(const char *text);
/* Builds, runs, saves and restores with each allocation failing in turn, in one thread. */
void check_faults(const char *text);
#endif
