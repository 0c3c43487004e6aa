/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_SHARD_PASSES_OWN_FILES_H
#define MR_SHARD_PASSES_OWN_FILES_H
/* Files of elements where several streams or workers run the same graph. A cache of each has a
 * separate file, since a part of the input yields that part of the cache:
 *
 *     cache("c")  ->  cache("c-stream-0-of-2", graph="...")   in stream 0 of 2
 *
 * All of them would write the single file of save and snapshot, which are refused.
 *
 * thread   any
 * since    0.2 */
#include "../../pipeline/graph/rewrite.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MR_SEVERAL_PARTS INT64_MAX

typedef struct mr_parts {
    int64_t index, n; /* this part, and the number of parts; n 0: not fixed; MR_SEVERAL_PARTS: will
                         be fixed, and may be above 1 */
    const char *what; /* "streams" or "workers", for messages */
    uint64_t how;     /* identifies how the parts are made: in another way, they are other parts */
    /* *out (owned) = the graph that the file of an op over `ds` is of; NULL: ds. */
    mr_code (*graph_of)(void *ctx, mr_dataset *ds, mr_dataset **out, mr_status *st);
    void *ctx;     /* of graph_of */
    uint64_t seed; /* from which random ops of that graph draw, if the files are to differ by it */
} mr_parts;

/* Refuses ds if an op cannot have a file for each part.
 * errors   MR_FAILED_PRECONDITION: names the op; the error that ds carries */
MR_API mr_code mr_check_own_files(mr_dataset *ds, const mr_parts *parts,
                                  mr_status *st) MR_NODISCARD;
/* *out (owned) = ds with files of this part; with a single part the names are unchanged. Call it
 * before the rewrites that make the part, which may give random ops other seeds in each run: a file
 * is of the graph before them.
 * errors   as mr_check_own_files */
MR_API mr_code mr_own_files(mr_dataset *ds, const mr_parts *parts, mr_dataset **out,
                            mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
