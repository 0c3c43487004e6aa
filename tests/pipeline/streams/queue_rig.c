/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/pipeline/streams/queue_rig.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "pipeline/engine/op_buffering.h"
#include "pipeline/engine/run.h"
#include "tests/harness.h"

/* An op that lends its iterator to the test, which drives a queue over input 0 by hand. */
static mr_iter *lent;

static mr_code lend(mr_iter *it, mr_status *st)
{
    (void)st;
    lent = it;
    return MR_OK;
}

static mr_code no_rows(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    (void)it, (void)want, (void)out, (void)st;
    return MR_END;
}

static const mr_op op_lend = {
    .abi = MR_ABI_VERSION,
    .name = "lend",
    .doc = "Lends its iterator.",
    .example = "none",
    .min_inputs = 1,
    .max_inputs = 1,
    .role = MR_ROLE_BARRIER,
    .open = lend,
    .next = no_rows,
};

mr_code rig_open_dataset(rig *r, mr_dataset *input, int threads, int64_t block_rows, mr_status *st)
{
    mr_dataset *ds = mr_dataset_new(&op_lend, NULL, &input, 1);
    mr_iterator_opts o = {
        .threads = threads, .has_threads = true, .block_rows = block_rows, .positions = true};
    *r = (rig){0};
    mr_code rc = mr_iterator_open(&r->iterator, ds, &o, st);
    mr_dataset_unref(ds);
    r->it = lent;
    if (rc == MR_OK)
        mr__queue_open(&r->q, r->it, r->it->inputs[0]);
    return rc;
}

void rig_open(rig *r, const char *text, int threads, int64_t block_rows)
{
    mr_status st;
    mr_ok(rig_open_dataset(r, mr_test_graph(text), threads, block_rows, &st), &st);
}

void rig_open_ahead(rig *r, const char *text, int threads, mr__ahead ahead)
{
    mr_status st;
    rig_open(r, text, threads, 0);
    mr_ok(
        mr__queue_open_ahead(&r->q, r->it, r->it->inputs[0], mr_iter_executor(r->it), &ahead, &st),
        &st);
}

void rig_close(rig *r)
{
    mr__queue_reset(&r->q);
    mr_iterator_close(r->iterator);
}

const char *rig_run(rig *r, size_t events, size_t want)
{
    static char text[4096];
    size_t at = 0, n = 0;
    mr_block b = MR_BLOCK_EMPTY;
    mr_status st;
    text[0] = '\0';
    while (n < events) {
        size_t w = events - n < want ? events - n : want;
        mr_code rc = mr__queue_next(&r->q, w, &b, &st);
        mr__queue_start(&r->q);
        if (rc == MR_END)
            break;
        if (rc != MR_OK) {
            mr_check(st.message[0]);
            at += (size_t)snprintf(text + at, sizeof text - at, "%s!", n ? " " : "");
            n++;
        }
        for (size_t i = 0; rc == MR_OK && i < b.rows; i++, n++)
            at += (size_t)snprintf(text + at, sizeof text - at, "%s%lld", n ? " " : "",
                                   (long long)((const int64_t *)b.columns[0].data)[i]);
        mr_check(rc != MR_OK || (b.rows >= 1 && b.rows <= w));
    }
    mr_block_reset(&b);
    return text;
}

void rig_save(rig *r, size_t taken, mr_state_w *w)
{
    mr_status st;
    *w = (mr_state_w){0};
    mr_ok(mr__queue_save(&r->q, taken, w, &st), &st);
}

mr_code rig_restore(rig *r, const mr_state_w *w, mr_status *st)
{
    mr_state_r in = {.at = w->data, .end = w->data + w->size};
    mr_code rc = mr__queue_restore(&r->q, r->it->inputs[0]->spec, &in, st);
    mr_check(rc != MR_OK || in.at == in.end);
    return rc;
}

const char *rig_after(const char *list, size_t n)
{
    for (; n; n--) {
        const char *blank = strchr(list, ' ');
        list = blank ? blank + 1 : "";
    }
    return list;
}

mr_code rig_short_of_memory(void *ctx, const mr_block *in, mr_block *out, mr_status *st)
{
    int *left = ctx;
    if (((const int64_t *)in->columns[0].data)[0] == 2 && *left > 0) {
        --*left;
        return mr_fail_memory(st, 1, "it");
    }
    return mr_block_slice(out, in, 0, in->rows, st);
}

void rig_pause(int ms)
{
    nanosleep(&(struct timespec){0, ms * 1000000L}, NULL);
}
