/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_STREAMS_ELEMENTS_ELEMENT_ORIGIN_H
#define MR_PIPELINE_STREAMS_ELEMENTS_ELEMENT_ORIGIN_H
/* What the elements of a file were made from: the graph and the files that it read. A cache or a
 * snapshot is read only if both are the same as when it was written.
 *
 * Record 4 of a file of elements (element_file.h): the graph's fingerprint, the first bytes of its
 * text, the number of inputs, and for each of them 0 and its name (a pattern of file names), or 1,
 * its name, its size, and the seconds and nanoseconds of its last change (a file).
 *
 * thread   one at a time per object */
#include "pipeline/engine/inputs_read.h"

typedef struct mr__element_origin {
    uint64_t fingerprint;
    char *graph; /* its first bytes; "": not known, only the fingerprint is compared */
    mr__noted_input *inputs;
    size_t n;
    const mr_dataset *dataset; /* whose URLs are asked for, borrowed; NULL: stored names are */
} mr__element_origin;

/* The fingerprint and text of a graph into *out, without inputs. */
mr_code mr__element_origin_of(const mr_dataset *graph, mr__element_origin *out,
                              mr_status *st) MR_NODISCARD;
void mr__element_origin_reset(mr__element_origin *o);

/* o, with the inputs of `read`, as the fields of record 4. */
mr_code mr__element_origin_put(const mr__element_origin *o, mr__inputs_read *read, mr_state_w *w,
                               mr_status *st) MR_NODISCARD;
mr_code mr__element_origin_get(mr__element_origin *o, mr_state_r *r, mr_status *st) MR_NODISCARD;

/* Compares what the file `path` was made from with what it would be made from now; times: compares
 * those of the inputs too. Data may be deleted once they are in a cache: if all inputs are gone,
 * and nothing else matches their patterns, they are not compared.
 * errors   MR_FAILED_PRECONDITION: names the first difference */
mr_code mr__element_origin_check(const mr__element_origin *found, const mr__element_origin *now,
                                 const char *path, bool times, mr_status *st) MR_NODISCARD;
#endif
