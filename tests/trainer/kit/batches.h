/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TESTS_TRAINER_BATCHES_H
#define MR_TESTS_TRAINER_BATCHES_H
/* A source of batches for the trainer's tests: a separate op over arrays in memory, so that these
 * tests need only the engine of the pipeline. It writes in place if asked to. */
#include "pipeline/engine/op_iterator.h"
#include "trainer/strategy/strategy.h"
#include "trainer/strategy/variable.h"

typedef struct batches {
    size_t rows, batch,
        fail_at; /* fail_at: number of the batch that is an error instead; 0: none */
    int n_columns;
    mr_array columns[3]; /* one row: [rows, ...] */
    bool never_place;
    size_t *read; /* counts the batches made; NULL: not counted */
} batches;

/* A dataset over b, which must outlive it. One at a time in a process. */
mr_dataset *test_batches(const batches *b);
/* What a model predicted: mr_predict's taker, and what it took. */
typedef struct predicted {
    float values[64];
    size_t n;
} predicted;
mr_code test_take(void *ctx, const mr_array *p, mr_status *st);
/* A mirrored strategy of n replicas on whatever devices there are. */
mr_strategy *open_strategy(size_t n);
/* Inside a step: a copy of the host's bytes in memory of r's device, for as long as the step takes.
 */
mr_code test_to_device(mr_replica *r, const void *host, size_t bytes, void **out, mr_status *st);
/* Between steps: what is in memory of replica r's device; the values of its copy of v. */
void test_read(mr_strategy *s, size_t r, const void *device, size_t bytes, void *out);
void test_read_copy(mr_strategy *s, mr_variable *v, size_t r, float *out);
/* For a test about a machine without accelerators; before the first device is asked for. */
void test_hide_accelerators(void);
/* n numbers between -1 and 1. */
void test_fill(float *x, size_t n, uint64_t seed);
#endif
