/* SPDX-License-Identifier: Apache-2.0 */
/* A handle is an iterator that is never pulled. */
#include "pipeline/engine/random_access.h"

#include <inttypes.h>

#include "pipeline/engine/iterator_internal.h"

enum { MOST_NUMBERS = 1024 };

struct mr_random_access {
    mr_iterator *it;
};

mr_code mr_random_access_open(mr_random_access **out, mr_dataset *ds, const mr_iterator_opts *opts,
                              mr_status *st)
{
    mr_iterator_opts own = {0};
    if (opts)
        own = *opts;
    own.has_threads = own.has_threads || !own.executor;
    own.positions = false;
    own.ledger = NULL;
    own.trace_spans = 0;
    MR_TRY(mr_dataset_indexed(ds, st));
    mr_random_access *ra = mr_calloc(1, sizeof *ra);
    if (!ra)
        return mr_fail_memory(st, sizeof *ra, "random access");
    mr_code rc = mr_iterator_open(&ra->it, ds, &own, st);
    if (rc != MR_OK) {
        mr_free(ra);
        return rc;
    }
    *out = ra;
    return MR_OK;
}

mr_code mr_random_access_count(mr_random_access *ra, int64_t *n, mr_status *st)
{
    uint64_t count;
    MR_TRY(mr__iterator_count(ra->it, &count, st));
    *n = (int64_t)count;
    return MR_OK;
}

mr_code mr_random_access_at(mr_random_access *ra, const int64_t *index, size_t n, mr_block *b,
                            mr_status *st)
{
    uint64_t few[16], *numbers = few, count;
    mr_block_clear(b);
    MR_TRY(mr__iterator_count(ra->it, &count, st));
    if (n == 0)
        return mr_fail(st, MR_INVALID_ARGUMENT, "at least one number of an element is needed");
    n = n < MOST_NUMBERS ? n : MOST_NUMBERS;
    if (n > sizeof few / sizeof *few && !(numbers = mr_malloc(n * sizeof *numbers)))
        return mr_fail_memory(st, n * sizeof *numbers, "numbers of elements");
    size_t good = 0;
    for (; good < n; good++) {
        numbers[good] = (uint64_t)index[good] + (index[good] < 0 ? count : 0);
        if (numbers[good] >= count)
            break;
    }
    mr_code rc = good ? mr__iterator_at(ra->it, numbers, good, b, st)
                      : mr_fail(st, MR_OUT_OF_RANGE,
                                "there is no element %" PRId64 ": the dataset has %" PRIu64,
                                index[0], count);
    if (numbers != few)
        mr_free(numbers);
    return rc;
}

void mr_random_access_cancel(mr_random_access *ra)
{
    mr_iterator_cancel(ra->it);
}

void mr_random_access_close(mr_random_access *ra)
{
    if (!ra)
        return;
    mr_iterator_close(ra->it);
    mr_free(ra);
}

mr_code mr_dataset_at(mr_dataset *ds, int64_t index, mr_block *b, mr_status *st)
{
    mr_random_access *ra = NULL;
    mr_block_clear(b);
    MR_TRY(mr_random_access_open(&ra, ds, NULL, st));
    mr_code rc = mr_random_access_at(ra, &index, 1, b, st);
    mr_random_access_close(ra);
    return rc;
}
