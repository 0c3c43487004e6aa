/* SPDX-License-Identifier: Apache-2.0 */
/* Elements from the user's C callbacks. In the graph they are a function without a name, so a graph
 * with a generator has no text form.
 *
 * A generator that may block runs in a separate task:
 *
 *     next: submit -> wait (ends when it is done, or the iterator is cancelled)
 *     task: the callback fills `ready`
 *
 * so that a cancelled iterator stops waiting at once, and only closing waits for the producer. */
#include "pipeline/ops/sources.h"

#include <string.h>

#include "pipeline/engine/op_iterator.h"
#include "pipeline/engine/op_source.h"
#include "pipeline/engine/op_buffering.h"
#include "pipeline/engine/executor.h"
#include "pipeline/engine/iterator_internal.h"
#include "pipeline/graph/fn.h"
#include "pipeline/params/infer.h"
#include "pipeline/streams/sources/arrow_stream.h"
#include "pipeline/system/callback_code.h"

struct params {
    mr_fn *generator; /* its ctx is a struct source */
};

struct source {
    mr_generator callbacks;
};

struct state {
    const mr_generator *g;
    void *pass; /* the user's */
    bool opened;
    bool announced; /* no_position, to the ops above */
    uint64_t count; /* elements delivered */
    /* of the task */
    mr__task task;
    mr_executor *executor;
    bool running;
    size_t want;
    mr_block ready;
    mr_code rc;
    mr_status error;
    mr_iter *it;
};

/* The graph's function, which is never called: it marks a generator. */
static mr_code mark(void *ctx, const mr_block *in, mr_block *out, mr_status *st)
{
    (void)ctx;
    (void)in;
    (void)out;
    return mr_fail(st, MR_INTERNAL, "a generator is not a function");
}

static void release(void *ctx)
{
    struct source *s = ctx;
    if (s->callbacks.release)
        s->callbacks.release(s->callbacks.ctx);
    mr_free(s);
}

/* ---- calling it ---- */

/* The rows that the callback returned must have the spec with which the graph was built. */
static mr_code check_rows(const mr_iter *it, size_t want, const mr_block *b, mr_status *st)
{
    size_t n = mr_spec_n_leaves(it->spec);
    if (b->rows < 1 || b->rows > want || b->n_columns != n)
        return mr_fail(st, MR_INTERNAL,
                       "the generator returned %zu rows of %zu columns, expected 1 to %zu of %zu",
                       b->rows, b->n_columns, want, n);
    for (size_t c = 0; c < n; c++) {
        const mr_array *a = &b->columns[c];
        const mr_leaf *leaf = mr_spec_leaf(it->spec, c);
        bool good = a->rows == b->rows && a->dtype == leaf->dtype && a->storage != MR_PLACED;
        for (size_t r = 0; good && r < (a->storage == MR_RAGGED ? a->rows : 1); r++)
            good = mr_leaf_admits(leaf, a->rank, mr_array_row_shape(a, r));
        if (!good)
            return mr_fail(
                st, MR_INTERNAL,
                "column %zu of the generator's rows does not have the announced type (%s)", c,
                mr_dtype_name(leaf->dtype));
    }
    return MR_OK;
}

static mr_code call(struct state *s, size_t want, mr_block *b, mr_status *st)
{
    const mr_generator *g = s->g;
    mr_status error;
    mr_status_init(&error);
    mr_code rc = g->next(g->ctx, s->pass, want, b, &error);
    if (rc == MR_END)
        return rc;
    MR_TRY(mr__callback_passed(rc, "the generator's next", &error, st));
    return check_rows(s->it, want, b, st);
}

static void run(mr__task *task)
{
    struct state *s = (struct state *)((char *)task - offsetof(struct state, task));
    mr_status_init(&s->error);
    s->rc = call(s, s->want, &s->ready, &s->error);
}

/* The next rows, produced on a thread that may block. */
static mr_code call_elsewhere(struct state *s, size_t want, mr_block *out, mr_status *st)
{
    if (!s->running) {
        s->want = want;
        s->running = true;
        s->task.run = run;
        mr__task_submit_blocking(s->executor, &s->task);
    }
    bool done = mr__task_wait_or_cancel(s->executor, &s->task, mr_iter_cancel(s->it));
    if (!done)
        return mr_iter_fail_cancelled(st);
    s->running = false;
    if (s->rc != MR_OK && st)
        *st = s->error;
    if (s->rc != MR_OK)
        return s->rc;
    return mr_iter_emit(s->it, want, &s->ready, NULL, out, st);
}

/* ---- slots ---- */

static mr_code open_pass(struct state *s, mr_status *st)
{
    mr_status error;
    mr_status_init(&error);
    if (s->g->open)
        MR_TRY(mr__callback_passed(s->g->open(s->g->ctx, &s->pass, &error), "the generator's open",
                                   &error, st));
    s->opened = true;
    return MR_OK;
}

/* Saving a position fails. */
static bool no_position(const struct state *s)
{
    return s->g->no_position && !(s->g->save && s->g->restore);
}

static mr_code open(mr_iter *it, mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    s->g = &((const struct source *)p->generator->ctx)->callbacks;
    s->it = it;
    if (!s->g->save || !s->g->restore)
        mr_iter_set_no_replay(it);
    if (s->g->may_block)
        s->executor = mr_iter_executor(it);
    if (no_position(s)) {
        mr__iter_set_no_position(it, s->g->no_position);
        s->announced = true;
    }
    return open_pass(s, st);
}

static mr_code next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    struct state *s = it->state;
    size_t n = mr_iter_block_rows(it, want, mr__row_bytes(it->spec));
    MR_TRY(s->executor ? call_elsewhere(s, n, out, st) : call(s, n, out, st));
    MR_TRY(mr_iter_set_identities(it, out, 0, s->count, st));
    s->count += out->rows;
    return MR_OK;
}

static void close(mr_iter *it)
{
    struct state *s = it->state;
    if (s->running) {
        if (!mr__task_withdraw(s->executor, &s->task) && s->g->cancel)
            s->g->cancel(s->g->ctx, s->pass);
        mr__task_wait(s->executor, &s->task);
    }
    if (s->opened && s->g->close)
        s->g->close(s->g->ctx, s->pass);
    if (s->announced)
        mr__iter_set_no_position(it, NULL);
    mr_block_reset(&s->ready);
}

/* State: elements delivered, and the generator's own bytes if it has a position. The rest of a
 * cancelled call's rows is not waited for. */
static mr_code save(mr_iter *it, mr_state_w *w, mr_status *st)
{
    struct state *s = it->state;
    bool positioned = s->g->save && s->g->restore;
    if (no_position(s))
        return mr_fail(st, MR_FAILED_PRECONDITION, "%s", s->g->no_position);
    MR_TRY(mr_state_put_u64(w, s->count, st));
    MR_TRY(mr_state_put_u64(w, positioned, st));
    if (!positioned)
        return MR_OK;
    if (s->running)
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "the generator is still busy with a call that was cancelled");
    void *bytes = NULL;
    size_t n = 0;
    mr_status error;
    mr_status_init(&error);
    MR_TRY(mr__callback_passed(s->g->save(s->g->ctx, s->pass, &bytes, &n, &error),
                               "the generator's save", &error, st));
    if (!bytes && n > 0)
        return mr_fail(st, MR_INTERNAL, "the generator's save returned no bytes, but a size of %zu",
                       n);
    mr_code rc = mr_state_put_bytes(w, bytes, n, st);
    mr_free(bytes);
    return rc;
}

static mr_code restore(mr_iter *it, mr_state_r *r, mr_status *st)
{
    struct state *s = it->state;
    uint64_t positioned;
    MR_TRY(mr_state_get_u64(r, &s->count, st));
    MR_TRY(mr_state_get_u64(r, &positioned, st));
    if (positioned != (s->g->save && s->g->restore))
        return mr_state_damaged(st, "it belongs to a generator of another kind");
    if (!positioned)
        return MR_OK;
    const void *bytes;
    size_t n;
    MR_TRY(mr_state_get_bytes(r, &bytes, &n, st));
    mr_status error;
    mr_status_init(&error);
    return mr__callback_passed(s->g->restore(s->g->ctx, s->pass, bytes, n, &error),
                               "the generator's restore", &error, st);
}

static mr_code check(const void *p, mr_status *st)
{
    const struct params *q = p;
    if (q->generator->kind != MR_FN_BLOCK || q->generator->callback != mark)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "from_generator: a generator can be passed only from C");
    return MR_OK;
}

static mr_code infer(const mr_dataset *self, const void *p, mr_spec **out, mr_status *st)
{
    (void)self;
    const struct params *q = p;
    return mr__inferred(mr_spec_ref(q->generator->out), out, st);
}

static const mr_param table[] = {
    MR_ARG(struct params, generator, .doc = "Callbacks that produce the elements, from C."), {0}};

const mr_op mr_op_from_generator = {
    .abi = MR_ABI_VERSION,
    .name = "from_generator",
    .doc = "Emits the elements that C callbacks produce.",
    .example = "from_generator(x => x)",
    .params = table,
    .params_size = sizeof(struct params),
    .iter_size = sizeof(struct state),
    .role = MR_ROLE_SOURCE,
    .props = MR_OP_INTERNAL | MR_OP_MAY_BLOCK,
    .check = check,
    .infer = infer,
    .open = open,
    .next = next,
    .close = close,
    .save = save,
    .restore = restore,
};

mr_dataset *mr_from_generator(const mr_generator *g, const mr_spec *element)
{
    mr_status st;
    mr_status_init(&st);
    struct params p = {0};
    if (!g || !g->next || !element) {
        mr_fail(&st, MR_INVALID_ARGUMENT, "from_generator: next and the element's spec are needed");
        if (g && g->release)
            g->release(g->ctx);
        return mr_dataset_fail(&st);
    }
    struct source *s = mr_malloc(sizeof *s);
    if (s) {
        s->callbacks = *g;
        mr_fn_opts opts = {.out = (mr_spec *)(uintptr_t)element, .release = release};
        p.generator = mr_fn_block(mark, s, &opts);
        if (p.generator && g->label && !(p.generator->label = mr_strdup(g->label))) {
            mr_fn_unref(p.generator);
            p.generator = NULL;
        }
    } else if (g->release)
        g->release(g->ctx);
    if (!p.generator) {
        mr_fail_memory(&st, sizeof *s, "a generator");
        return mr_dataset_fail(&st);
    }
    mr_dataset *ds = mr_dataset_new(&mr_op_from_generator, &p, NULL, 0);
    mr_fn_unref(p.generator);
    return ds;
}

/* ---- a generator over an Arrow stream ---- */

static mr_code start_stream(void *ctx, void **pass, mr_status *st)
{
    *pass = ctx;
    return mr__arrow_stream_start(ctx, st);
}

static mr_code next_of_stream(void *ctx, void *pass, size_t want, mr_block *out, mr_status *st)
{
    (void)pass;
    return mr__arrow_stream_next(ctx, want, out, st);
}

static void free_stream(void *ctx)
{
    mr__arrow_stream_free(ctx);
}

mr_dataset *mr_from_arrow(struct ArrowArrayStream *stream)
{
    mr_status st;
    mr__arrow_stream *s;
    mr_status_init(&st);
    if (!stream)
        mr_fail(&st, MR_INVALID_ARGUMENT, "from_arrow: the stream is NULL");
    if (!stream || mr__arrow_stream_new(stream, &s, &st) != MR_OK)
        return mr_dataset_fail(&st);
    const mr_generator g = {.ctx = s,
                            .open = start_stream,
                            .next = next_of_stream,
                            .release = free_stream,
                            .may_block = true};
    mr_spec *spec = mr_spec_ref(mr__arrow_stream_spec(s));
    mr_dataset *ds = mr_from_generator(&g, spec);
    mr_spec_unref(spec);
    return ds;
}
