/* SPDX-License-Identifier: Apache-2.0 */
/* A worker's records of a step, as it sends them:
 *
 *   for each of its replicas   the number of its rows and that of records, then each record as the
 *                              differences (zigzag) of its source, file, ordinal and epoch from
 *                              the record before
 *   names                      source, file and size, then the bytes, of the files whose names the
 *                              worker has not sent before
 *
 * all numbers as varints. */
#include "trainer/loop/step_records.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "pipeline/memory/alloc.h"
#include "pipeline/varint.h"
#include "trainer/loop/worker_bytes.h"

enum { MOST = 8 /* steps that were gathered and whose results have not arrived */ };

typedef struct bytes {
    uint8_t *v;
    size_t n, room;
} bytes;

/* A replica's records, in a gathered step. */
typedef struct part {
    int64_t first; /* row */
    uint64_t rows;
    size_t at, n; /* in the list of all */
} part;

typedef struct entry {
    mr_identity *ids;
    size_t n, room;
} entry;

struct mr__step_records {
    mr_strategy *s;
    mr_ledger *names, *sent; /* of this process's files; of those that the first worker knows */
    mr_ledger *file;         /* of the first worker */
    bool begun;
    bool of_one_batch; /* the rows of a step */
    bytes own;
    mr__worker_bytes *all; /* of each worker */
    part *parts;           /* of each replica of the job */
    entry read;            /* as it came, worker by worker */
    entry steps[MOST];
    size_t head, tail;
};

mr_code mr__step_records_new(mr__step_records **out, mr_strategy *s, mr_status *st)
{
    size_t workers = mr_strategy_num_workers(s), n = mr_strategy_num_replicas_in_sync(s);
    mr_status ignored;
    mr__step_records *x = mr_calloc(1, sizeof *x);
    if (!x)
        return mr_fail_memory(st, sizeof *x, "a ledger");
    x->s = s;
    x->all = mr_calloc(workers, sizeof *x->all);
    x->parts = mr_calloc(n, sizeof *x->parts);
    mr_code rc = x->all && x->parts ? mr__ledger_of_names(&x->names, st)
                                    : mr_fail_memory(st, n * sizeof *x->parts, "a ledger");
    if (rc == MR_OK)
        rc = mr__ledger_of_names(&x->sent, st);
    if (rc == MR_OK)
        *out = x;
    else if (mr__step_records_close(x, &ignored) != MR_OK)
        return rc;
    return rc;
}

mr_ledger *mr__step_records_names(mr__step_records *x)
{
    return x->names;
}

mr_code mr__step_records_close(mr__step_records *x, mr_status *st)
{
    mr_status ignored;
    if (!x)
        return MR_OK;
    mr_code rc = mr_ledger_close(x->file, st);
    mr_code names = mr_ledger_close(x->names, &ignored), sent = mr_ledger_close(x->sent, &ignored);
    (void)names; /* they have no file */
    (void)sent;
    for (size_t i = 0; i < MOST; i++)
        mr_free(x->steps[i].ids);
    mr_free(x->read.ids);
    mr_free(x->own.v);
    mr_free(x->all);
    mr_free(x->parts);
    mr_free(x);
    return rc;
}

mr_code mr__step_records_begin(mr__step_records *x, const char *path, char job[MR__LEDGER_JOB],
                               int64_t entries, bool of_one_batch, mr_status *st)
{
    x->begun = true;
    x->of_one_batch = of_one_batch;
    if (mr_strategy_worker(x->s) > 0)
        return MR_OK;
    if (entries > 0 && !job[0])
        return mr_fail(
            st, MR_FAILED_PRECONDITION,
            "%s: the job continues from a checkpoint that was saved without a ledger, so "
            "this one would lack its first %" PRId64 " steps: continue without a ledger",
            path, entries);
    return entries > 0 ? mr__ledger_continue_job(path, job, entries, &x->file, st)
                       : mr__ledger_create_job(path, job, &x->file, st);
}

/* ---- sending ---- */

static mr_code room_for(bytes *b, size_t n, mr_status *st)
{
    return MR_GROW(b->v, b->room, b->n + n, SIZE_MAX / 2, "the records of a step", st);
}

static void put(bytes *b, uint64_t v)
{
    b->n = (size_t)(mr__varint_put(b->v + b->n, v) - b->v);
}

static mr_code put_records(bytes *b, uint64_t rows, const mr_identity *ids, size_t n,
                           mr_identity *last, mr_status *st)
{
    MR_TRY(room_for(b, (2 + 4 * n) * MR__VARINT_MOST, st));
    put(b, rows);
    put(b, n);
    for (size_t i = 0; i < n; i++) {
        put(b, mr__zigzag((int64_t)(ids[i].source - last->source)));
        put(b, mr__zigzag((int64_t)(ids[i].file - last->file)));
        put(b, mr__zigzag((int64_t)(ids[i].ordinal - last->ordinal)));
        put(b, mr__zigzag((int64_t)(ids[i].epoch - last->epoch)));
        *last = ids[i];
    }
    return MR_OK;
}

static bool is_same_file(const mr_identity *a, const mr_identity *b)
{
    return a->source == b->source && a->file == b->file;
}

static mr_code put_names(mr__step_records *x, const mr_identity *ids, size_t n, mr_status *st)
{
    for (size_t i = 0; i < n; i++) {
        if (i > 0 && is_same_file(&ids[i], &ids[i - 1]))
            continue;
        const char *name = mr_ledger_name_set(x->names, &ids[i]);
        if (!name || mr_ledger_name_set(x->sent, &ids[i]))
            continue;
        size_t size = strlen(name);
        MR_TRY(mr_ledger_name(x->sent, &ids[i], name, st));
        MR_TRY(room_for(&x->own, 3 * MR__VARINT_MOST + size, st));
        put(&x->own, ids[i].source);
        put(&x->own, ids[i].file);
        put(&x->own, size);
        memcpy(x->own.v + x->own.n, name, size);
        x->own.n += size;
    }
    return MR_OK;
}

static uint64_t rows_of(const mr_step *step, size_t r)
{
    const mr_block *b = &step->replicas[r];
    if (!step->has_data[r] || b->n_columns == 0)
        return 0;
    return (uint64_t)mr_array_row_shape(&b->columns[0], 0)[0];
}

static size_t records_of(const mr_step *step, size_t r, const mr_identity **ids)
{
    const mr_identities *x = &step->replicas[r].ids;
    *ids = NULL;
    if (!step->has_data[r] || !x->ids)
        return 0;
    size_t from = x->offsets ? x->offsets[0] : 0;
    *ids = x->ids + from;
    return x->offsets ? x->offsets[1] - from : 1;
}

mr_code mr__step_records_note(mr__step_records *x, const mr_step *step, mr_status *st)
{
    mr_identity last = {0};
    const mr_identity *ids;
    x->own.n = 0;
    if (!x->begun) /* steps that are skipped */
        return MR_OK;
    for (size_t r = 0; r < step->n_replicas; r++) {
        size_t n = records_of(step, r, &ids);
        MR_TRY(put_records(&x->own, rows_of(step, r), ids, n, &last, st));
    }
    for (size_t r = 0; r < step->n_replicas; r++) {
        size_t n = records_of(step, r, &ids);
        MR_TRY(put_names(x, ids, n, st));
    }
    return MR_OK;
}

/* ---- receiving ---- */

static mr_code invalid(mr_status *st)
{
    return mr_fail(st, MR_DATA_LOSS, "a worker sent records of a step that make no sense");
}

static mr_code get(const uint8_t **at, const uint8_t *end, uint64_t *v, mr_status *st)
{
    const uint8_t *p = mr__varint(*at, end, v);
    if (!p)
        return invalid(st);
    *at = p;
    return MR_OK;
}

static mr_code get_records(entry *to, const uint8_t **at, const uint8_t *end, mr_identity *last,
                           size_t *n, mr_status *st)
{
    uint64_t count, d[4];
    MR_TRY(get(at, end, &count, st));
    if (count > (uint64_t)(end - *at))
        return invalid(st);
    *n = (size_t)count;
    MR_TRY(MR_GROW(to->ids, to->room, to->n + *n, SIZE_MAX / sizeof *to->ids,
                   "the records of a step", st));
    for (size_t i = 0; i < *n; i++) {
        for (int k = 0; k < 4; k++)
            MR_TRY(get(at, end, &d[k], st));
        last->source += (uint64_t)mr__unzigzag(d[0]);
        last->file += (uint64_t)mr__unzigzag(d[1]);
        last->ordinal += (uint64_t)mr__unzigzag(d[2]);
        last->epoch += (uint64_t)mr__unzigzag(d[3]);
        to->ids[to->n++] = *last;
    }
    return MR_OK;
}

static mr_code get_names(mr_ledger *to, const uint8_t *at, const uint8_t *end, mr_status *st)
{
    while (at < end) {
        mr_identity of = {0};
        uint64_t size;
        MR_TRY(get(&at, end, &of.source, st));
        MR_TRY(get(&at, end, &of.file, st));
        MR_TRY(get(&at, end, &size, st));
        if (size > (uint64_t)(end - at))
            return invalid(st);
        char *name = mr_strndup((const char *)at, (size_t)size);
        if (!name)
            return mr_fail_memory(st, (size_t)size, "the name of a file");
        mr_code rc = mr_ledger_name(to, &of, name, st);
        mr_free(name);
        MR_TRY(rc);
        at += size;
    }
    return MR_OK;
}

static mr_code get_worker(mr__step_records *x, size_t w, const int64_t *first, mr_status *st)
{
    size_t replicas = mr_strategy_num_local_replicas(x->s);
    const uint8_t *at = x->all[w].bytes, *end = at + x->all[w].size;
    mr_identity last = {0};
    for (size_t r = 0; r < replicas; r++) {
        part *p = &x->parts[w * replicas + r];
        *p = (part){.first = first ? first[w * replicas + r] : (int64_t)r, .at = x->read.n};
        MR_TRY(get(&at, end, &p->rows, st));
        MR_TRY(get_records(&x->read, &at, end, &last, &p->n, st));
    }
    return get_names(x->file, at, end, st);
}

static int by_row(const void *a, const void *b)
{
    const part *x = a, *y = b;
    if (x->first != y->first)
        return x->first < y->first ? -1 : 1;
    return x->at == y->at ? 0 : x->at < y->at ? -1 : 1;
}

static bool same_records(const mr__step_records *x, const part *a, const part *b)
{
    const mr_identity *p = x->read.ids + a->at, *q = x->read.ids + b->at;
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++)
        if (!is_same_file(&p[i], &q[i]) || p[i].ordinal != q[i].ordinal || p[i].epoch != q[i].epoch)
            return false;
    return true;
}

/* Slices of a batch whose rows are not of one record each (zip) have the records of the whole
 * batch: they count once. */
static void keep_once(const mr__step_records *x, size_t n)
{
    const part *first = NULL;
    for (size_t i = 0; i < n; i++) {
        const part *p = &x->parts[i];
        if (p->n == 0)
            continue;
        first = first ? first : p;
        if (p->n == p->rows || !same_records(x, first, p))
            return;
    }
    for (size_t i = 0; i < n; i++)
        if (&x->parts[i] != first)
            x->parts[i].n = 0;
}

/* The records of all workers in the order of the rows of the global batch. */
static mr_code enter(mr__step_records *x, const int64_t *first, mr_status *st)
{
    size_t n = mr_strategy_num_replicas_in_sync(x->s);
    entry *e = &x->steps[x->tail % MOST];
    x->read.n = 0;
    for (size_t w = 0; w < mr_strategy_num_workers(x->s); w++)
        MR_TRY(get_worker(x, w, first, st));
    MR_TRY(MR_GROW(e->ids, e->room, x->read.n, SIZE_MAX / sizeof *e->ids, "the records of a step",
                   st));
    qsort(x->parts, n, sizeof *x->parts, by_row);
    if (x->of_one_batch)
        keep_once(x, n);
    e->n = 0;
    for (size_t i = 0; i < n; i++) {
        if (x->parts[i].n > 0)
            memcpy(e->ids + e->n, x->read.ids + x->parts[i].at, x->parts[i].n * sizeof *e->ids);
        e->n += x->parts[i].n;
    }
    x->tail++;
    return MR_OK;
}

mr_code mr__step_records_gather(mr__step_records *x, const int64_t *first, mr_status *st)
{
    size_t workers = mr_strategy_num_workers(x->s);
    const mr__worker_bytes own = {x->own.v, x->own.n};
    mr_code rc = MR_OK;
    if (!x->begun)
        return MR_OK;
    if (workers > 1)
        rc = mr__worker_bytes_exchange(mr__strategy_world(x->s), MR__CHANNEL_DATA, workers, &own,
                                       x->all, st);
    else
        x->all[0] = own;
    if (rc == MR_OK && x->file)
        rc = enter(x, first, st);
    for (size_t i = 0; i < workers && workers > 1; i++) {
        mr_free(x->all[i].bytes);
        x->all[i] = (mr__worker_bytes){0};
    }
    return rc;
}

/* ---- writing ---- */

void mr__step_records_drop(mr__step_records *x)
{
    x->tail -= x->tail > x->head;
}

mr_code mr__step_records_trained(mr__step_records *x, mr_status *st)
{
    if (x->head == x->tail)
        return MR_OK;
    const entry *e = &x->steps[x->head++ % MOST];
    return mr_ledger_add(x->file, e->ids, e->n, st);
}

mr_code mr__step_records_pack(mr__step_records *x, const mr_step *step, const void **out,
                              size_t *size, mr_status *st)
{
    x->begun = true;
    MR_TRY(mr__step_records_note(x, step, st));
    *out = x->own.v;
    *size = x->own.n;
    return MR_OK;
}

mr_code mr__step_records_add(mr__step_records *x, const void *from, size_t size, mr_status *st)
{
    x->own.n = 0;
    MR_TRY(room_for(&x->own, size + 1, st));
    memcpy(x->own.v, from, size);
    x->all[0] = (mr__worker_bytes){x->own.v, size};
    MR_TRY(enter(x, NULL, st));
    return mr__step_records_trained(x, st);
}

mr_code mr__step_records_sync(mr__step_records *x, mr_status *st)
{
    return x->file ? mr__ledger_sync(x->file, st) : MR_OK;
}
