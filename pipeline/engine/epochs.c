/* SPDX-License-Identifier: Apache-2.0 */
/* Counts how often each source of a scope was opened: a list of the opened sources, sorted by
 * number. */
#include <string.h>

#include "pipeline/engine/run.h"

/* The index of the first source whose number is not below `number`. */
static size_t find(const mr__scope *s, uint64_t number)
{
    size_t from = 0, to = s->n;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (s->counts[middle].number < number)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

/* The count of a source, added as 0 if missing; NULL: out of memory. */
static mr__epoch_count *count_of(mr__scope *s, uint64_t number, mr_status *st)
{
    size_t i = find(s, number);
    if (i < s->n && s->counts[i].number == number)
        return &s->counts[i];
    if (MR_GROW(s->counts, s->capacity, s->n + 1, SIZE_MAX, "the epochs of sources", st) != MR_OK)
        return NULL;
    memmove(&s->counts[i + 1], &s->counts[i], (s->n - i) * sizeof *s->counts);
    s->n++;
    s->counts[i] = (mr__epoch_count){number, 0};
    return &s->counts[i];
}

mr_code mr__scope_opened(mr_run *run, mr__scope *s, uint64_t number, uint64_t *epoch, mr_status *st)
{
    pthread_mutex_lock(&run->lock);
    mr__epoch_count *c = count_of(s, number, st);
    if (c)
        *epoch = c->opened++;
    pthread_mutex_unlock(&run->lock);
    return c ? MR_OK : MR_RESOURCE_EXHAUSTED;
}

void mr__scope_unopened(mr_run *run, mr__scope *s, uint64_t number)
{
    pthread_mutex_lock(&run->lock);
    size_t i = find(s, number);
    if (i < s->n && s->counts[i].number == number && s->counts[i].opened)
        s->counts[i].opened--;
    pthread_mutex_unlock(&run->lock);
}

mr_code mr__scope_set(mr_run *run, mr__scope *s, uint64_t number, uint64_t opened, mr_status *st)
{
    pthread_mutex_lock(&run->lock);
    mr__epoch_count *c = count_of(s, number, st);
    if (c)
        c->opened = opened;
    pthread_mutex_unlock(&run->lock);
    return c ? MR_OK : MR_RESOURCE_EXHAUSTED;
}

/* The counts of sources [first, first + n): *at is the first, returns their number. A graph that
 * contains one input very often has more sources than 64 bits can count; `n` is then modulo 2^64
 * and the list may be short. */
static size_t range_of(const mr__scope *s, uint64_t first, uint64_t n, size_t *at)
{
    *at = find(s, first);
    return first + n < first ? s->n - *at : find(s, first + n) - *at;
}

mr_code mr__scope_save(mr_run *run, const mr__scope *s, uint64_t first, uint64_t n, mr_state_w *w,
                       mr_status *st)
{
    size_t at = 0, have = 0;
    pthread_mutex_lock(&run->lock);
    if (s)
        have = range_of(s, first, n, &at);
    mr_code rc = mr_state_put_u64(w, have, st);
    for (size_t i = at; i < at + have && rc == MR_OK; i++) {
        rc = mr_state_put_u64(w, s->counts[i].number - first, st);
        if (rc == MR_OK)
            rc = mr_state_put_u64(w, s->counts[i].opened, st);
    }
    pthread_mutex_unlock(&run->lock);
    return rc;
}

mr_code mr__scope_restore(mr_run *run, mr__scope *s, uint64_t first, uint64_t n, mr_state_r *r,
                          mr_status *st)
{
    uint64_t have, number, opened, before = 0;
    if (s) {
        size_t at;
        pthread_mutex_lock(&run->lock);
        size_t old = range_of(s, first, n, &at);
        if (old)
            memmove(&s->counts[at], &s->counts[at + old], (s->n - at - old) * sizeof *s->counts);
        s->n -= old;
        pthread_mutex_unlock(&run->lock);
    }
    MR_TRY(mr_state_get_u64(r, &have, st));
    for (uint64_t i = 0; i < have; i++) {
        MR_TRY(mr_state_get_u64(r, &number, st));
        MR_TRY(mr_state_get_u64(r, &opened, st));
        if (number >= n || (i && number <= before))
            return mr_state_damaged(st, "a source was opened that is not in the graph");
        before = number;
        if (s)
            MR_TRY(mr__scope_set(run, s, first + number, opened, st));
    }
    return MR_OK;
}

void mr__scope_reset(mr__scope *s)
{
    mr_free(s->counts);
    *s = (mr__scope){0};
}
