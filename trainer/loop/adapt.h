/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_ADAPT_H
#define MR_TRAINER_ADAPT_H
/* Learning, in one pass over a dataset, what preprocessing layers know, as Keras's adapt does:
 *
 *   lookup(max_tokens=none, oov=1)  vocabulary.txt: the tokens, one a line, the most frequent
 *                                   first; of those as frequent the last in order. max_tokens
 *                                   counts the oov indices too
 *   text_vectorization(max_tokens=none)  the same of the words of texts; 2 indices are no words
 *   normalization(axis="last")      normalization.json: {"mean": [..], "variance": [..]} along the
 *                                   last axis; axis="none": one for all
 *   discretization(num_bins)        boundaries.json: {"boundaries": [..]}, which part the values in
 *                                   bins of as many
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
 * writes the file that the layer's text asks for in `directory`, which is made if need be; the file
 * is there whole or not at all. opts NULL: defaults.
 * errors   what the dataset gives · MR_INVALID_ARGUMENT: the layer's text, features that it does
 *          not take, values that are no finite numbers · MR_FAILED_PRECONDITION: no values ·
 *          MR_RESOURCE_EXHAUSTED · as open(2) and write(2) */
MR_API mr_code mr_adapt(mr_dataset *ds, const char *layer, const char *directory,
                        const mr_iterator_opts *opts, mr_status *st) MR_NODISCARD;
/* Whether layer is a text that mr_adapt takes. errors MR_INVALID_ARGUMENT, with line and caret */
MR_API mr_code mr_adapt_check(const char *layer, mr_status *st) MR_NODISCARD;
/* As mr_adapt, by all workers of a strategy, each of which calls it: they share the data by files,
 * or where the graph has none or asks for another policy by elements, and worker 0 writes what all
 * have learned.
 * errors   those of mr_adapt, of any worker on all */
MR_API mr_code mr_adapt_on(mr_strategy *s, mr_dataset *ds, const char *layer, const char *directory,
                           const mr_iterator_opts *opts, mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
