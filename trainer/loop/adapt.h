/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_LOOP_ADAPT_H
#define MR_TRAINER_LOOP_ADAPT_H
/* Learns the state of preprocessing layers in one pass over a dataset, like Keras's adapt:
 *
 *   lookup(max_tokens=none, oov=1)  vocabulary.txt: the tokens, one per line, the most frequent
 *                                   first; ties are broken in favour of the lexicographically last.
 *                                   max_tokens includes the oov indices
 *   text_vectorization(max_tokens=none)  the same for the words of texts; 2 indices are reserved
 *   normalization(axis="last")      normalization.json: {"mean": [..], "variance": [..]} along the
 *                                   last axis; axis="none": one for all
 *   discretization(num_bins)        boundaries.json: {"boundaries": [..]}, which divide the values
 *                                   into bins of equal count
 *
 * Models name the directory: lookup("DIR"), normalization(adapted="DIR"), discretization("DIR").
 *
 *     mr_adapt(ds, "lookup(max_tokens=1000)", "words", NULL, &st);
 *
 * thread   any
 * since    0.1 */
#include "../../pipeline/engine/iterator.h"
#include "../strategy/strategy.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Reads all of ds, whose elements are features or tuples that begin with them, batched or not, and
 * atomically writes the file for the layer's text to `directory`, which is created if needed. opts
 * NULL: defaults.
 * errors   those of the dataset · MR_INVALID_ARGUMENT: the layer's text, features that it does not
 *          take, values that are not finite numbers · MR_FAILED_PRECONDITION: no values ·
 *          MR_RESOURCE_EXHAUSTED · as open(2) and write(2) */
MR_API mr_code mr_adapt(mr_dataset *ds, const char *layer, const char *directory,
                        const mr_iterator_opts *opts, mr_status *st) MR_NODISCARD;
/* Checks that mr_adapt accepts the layer's text.
 * errors MR_INVALID_ARGUMENT, with line and caret */
MR_API mr_code mr_adapt_check(const char *layer, mr_status *st) MR_NODISCARD;
/* Like mr_adapt, by all workers of a strategy, each of which calls it: they share the data by
 * files, or by elements if the graph has no files or asks for another policy, and worker 0 writes
 * the merged result.
 * errors   those of mr_adapt, of any worker on all */
MR_API mr_code mr_adapt_on(mr_strategy *s, mr_dataset *ds, const char *layer, const char *directory,
                           const mr_iterator_opts *opts, mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
