/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TESTS_DRIVE_H
#define MR_TESTS_DRIVE_H
/* One graph, one expected result, every way to run it: blocks of 1, 3 and 1024 rows, 0, 1 and 4
 * threads, and for each of these saved at every place (between pulls, and after every row of a
 * block of which more rows were asked for than are used), restored into an iterator that runs
 * another way. If the graph is indexed, its elements are also looked up by number, and skipped.
 *
 *     mr_drive("range(5).batch(2)", "[0,1] [2,3] [4]");
 *     mr_drive("from_tensor_slices([1, 0]).map(x => 1 // x)", "1 !zero");
 *
 * Expected: events (tests/events.h) separated by blanks; !part is an error whose line holds part.
 * After each graph as much memory must be in use, and as many files open, as before it. */
#include "pipeline/engine/iterator.h"

void mr_drive(const char *text, const char *expected);
/* The same, in any order and with any message. */
void mr_drive_any(const char *text, const char *expected);
/* The same for a dataset made in C (taken over). */
void mr_drive_dataset(mr_dataset *ds, const char *expected);
/* From now on in this process: elements that fail in other shards count when they are looked up. */
void mr_drive_without_lookups(void);
/* Only that every way of running and restoring gives what the plain run does. */
void mr_drive_alike(const char *text);
/* text cannot be built; the message holds part. */
void mr_drive_bad(const char *text, const char *part);
/* Runs text to its end, saving and restoring on the way, with each allocation failing in turn. */
void mr_drive_faults(const char *text);
/* Runs text, whose run has no errors, with each allocation failing in turn: what lacked memory
 * comes with the next call. */
void mr_drive_goes_on(const char *text);
void mr_drive_count(const char *text, int64_t cardinality);

/* Builds text, which must be good. */
mr_dataset *mr_drive_build(const char *text);
/* All events of one plain run, as in `expected`. Owned: free. */
char *mr_drive_show(const char *text);
/* The last error of one plain run. */
void mr_drive_error(const char *text, mr_status *error);

/* A graph in which every @ is the test's directory. Valid until the eighth next call. */
const char *mr_drive_path(const char *graph);
/* File `name` of the test's directory holds these bytes; text. */
void mr_drive_bytes(const char *name, const void *bytes, size_t n);
void mr_drive_file(const char *name, const char *text);
#endif
