/* SPDX-License-Identifier: Apache-2.0 */
/* The loops over steps. While the replicas run one step, this thread pulls and stages the next
 * batch; then it waits for the step, adds up what the replicas found and tells the callbacks. */
#include "trainer/fit.h"
#include <inttypes.h>
#include <string.h>
#include "pipeline/memory/alloc.h"
#include "trainer/feed.h"
#include "trainer/loss_desc.h"
#include "trainer/model_impl.h"

/* What one replica needs and found; on cache lines of its own. */
typedef struct lane {
    _Alignas(64) float *per_example;
    size_t capacity;
    double loss; /* this replica's part of the sum of losses */
    double penalty;
    mr_array predictions;
} lane;

typedef struct run {
    mr_strategy *s;
    mr_model *m;
    mr_loss *loss;
    mr_optimizer *o; /* NULL: no training */
    const mr_fit_opts *opts;
    mr__feed feed;
    lane *lanes;
    size_t n_replicas;
    mr_metric *metrics[MR_MAX_METRICS];
    size_t slot;
    /* the epoch, or the whole evaluation */
    double loss_sum; /* losses of steps times their rows */
    int64_t rows;
} run;

static mr_code make_metrics(run *x, mr_status *st)
{
    if (x->opts->n_metrics > MR_MAX_METRICS)
        return mr_fail(st, MR_INVALID_ARGUMENT, "at most %d metrics, found %zu", MR_MAX_METRICS,
                       x->opts->n_metrics);
    for (size_t i = 0; i < x->opts->n_metrics; i++) {
        MR_TRY(mr_metric_parse(&x->metrics[i], x->opts->metrics[i], st));
        /* Half of the probability is 0 in logits. */
        if (x->loss && x->loss->desc->has_logits && x->loss->from_logits)
            mr_metric_set_threshold(x->metrics[i], 0);
    }
    return MR_OK;
}

static void run_close(run *x)
{
    if (x->opts->watch)
        x->opts->watch(x->opts->watch_ctx, NULL);
    mr__feed_close(&x->feed);
    for (size_t i = 0; i < MR_MAX_METRICS; i++)
        mr_metric_free(x->metrics[i]);
    for (size_t r = 0; x->lanes && r < x->n_replicas; r++)
        mr_free(x->lanes[r].per_example);
    mr_free(x->lanes);
}

static mr_code run_open(run *x, mr_dataset *ds, mr_status *st)
{
    if (mr_model_strategy(x->m) && mr_model_strategy(x->m) != x->s)
        return mr_fail(st, MR_FAILED_PRECONDITION, "the model was built on another strategy");
    if (x->loss)
        mr__loss_fit_model(x->loss, mr__model_last_activation(x->m));
    x->n_replicas = mr_strategy_num_replicas_in_sync(x->s);
    size_t bytes = x->n_replicas * sizeof *x->lanes;
    x->lanes = mr_aligned_alloc(_Alignof(lane), bytes);
    if (!x->lanes)
        return mr_fail_memory(st, bytes, "a training run");
    memset(x->lanes, 0, bytes);
    MR_TRY(make_metrics(x, st));
    MR_TRY(mr__feed_open(&x->feed, x->s, ds, x->opts->iterator, x->opts->staging_depth, st));
    if (x->opts->watch)
        x->opts->watch(x->opts->watch_ctx, x->feed.it);
    return MR_OK;
}

/* Looks at the first batch (or one of another form): builds the model if that is still to be done.
 */
static mr_code check_batch(run *x, mr_status *st)
{
    size_t n = mr__staging_n_columns(x->feed.ring);
    if (x->loss ? n != 2 : n > 2)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "the data must yield %s, found %zu components; map them to a tuple",
                       x->loss ? "(features, labels)" : "features or (features, labels)", n);
    mr_array t;
    mr__staging_tensor(x->feed.ring, x->slot, 0, 0, &t);
    if (mr_model_is_built(x->m))
        return MR_OK;
    if (t.dtype != MR_FLOAT32)
        return mr_fail(
            st, MR_INVALID_ARGUMENT,
            "features are %s, the model takes float32; convert them in the pipeline, such "
            "as map((x, y) => (cast(x, \"float32\") / 255.0, y))",
            mr_dtype_name(t.dtype));
    return mr_model_build(x->m, x->s, t.rank - 1, t.shape + 1,
                          &(mr_model_opts){.seed = x->opts->seed}, st);
}

static mr_code lane_reserve(lane *l, size_t n, mr_status *st)
{
    if (n <= l->capacity)
        return MR_OK;
    float *p = mr_realloc(l->per_example, n * sizeof *p);
    if (!p)
        return mr_fail_memory(st, n * sizeof *p, "the losses of a batch");
    l->per_example = p;
    l->capacity = n;
    return MR_OK;
}

/* One step of one replica: forward, loss, metrics, and in training backward and update. */
static mr_code step(mr_replica *r, void *ctx, mr_status *st)
{
    run *x = ctx;
    size_t id = mr_replica_id(r);
    lane *l = &x->lanes[id];
    mr_array features, labels;
    int64_t first = mr__staging_first_row(x->feed.ring, x->slot, id);
    mr__staging_tensor(x->feed.ring, x->slot, id, 0, &features);
    MR_TRY(mr_model_forward(x->m, r, &features,
                            &(mr_forward_opts){.training = x->o != NULL, .first_row = first},
                            &l->predictions, st));
    if (!x->loss)
        return MR_OK;
    mr__staging_tensor(x->feed.ring, x->slot, id, 1, &labels);
    size_t per_example = mr_loss_values_per_example(&l->predictions);
    size_t n = (size_t)features.shape[0] * per_example;
    size_t total = mr__staging_rows(x->feed.ring, x->slot) * per_example;
    double scale = total ? 1 / (double)total : 0;
    MR_TRY(lane_reserve(l, n, st));
    MR_TRY(mr_loss_compute(x->loss, &labels, &l->predictions, first, scale, l->per_example,
                           x->o ? mr_model_output_gradient(x->m, r) : NULL, st));
    l->loss = 0;
    for (size_t i = 0; i < n; i++)
        l->loss += l->per_example[i];
    l->loss *= scale;
    /* Each replica holds the same weights: its share of the penalty is a part in n. */
    l->penalty = mr_model_regularization_loss(x->m, r) / (double)x->n_replicas;
    for (size_t i = 0; i < x->opts->n_metrics; i++)
        MR_TRY(mr_metric_update(x->metrics[i], r, &labels, &l->predictions, st));
    if (!x->o)
        return MR_OK;
    MR_TRY(mr_model_backward(x->m, r, st));
    return mr_model_apply_gradients(x->m, r, x->o, st);
}

/* Starts the step on the batch taken; the loss of the whole batch comes from finish_step. */
static mr_code start_step(run *x, mr_status *st)
{
    MR_TRY(check_batch(x, st));
    mr__staging_hand_over(x->feed.ring, x->slot);
    MR_TRY(mr_strategy_start(x->s, step, x, st));
    mr__staging_give_back(x->feed.ring, x->slot);
    return MR_OK;
}

static mr_code finish_step(run *x, float *loss, mr_status *st)
{
    MR_TRY(mr_strategy_join(x->s, st));
    double sum = 0;
    for (size_t r = 0; r < x->n_replicas; r++)
        sum += x->lanes[r].loss + x->lanes[r].penalty;
    int64_t rows = (int64_t)mr__staging_rows(x->feed.ring, x->slot);
    x->loss_sum += sum * (double)rows;
    x->rows += rows;
    *loss = (float)sum;
    return MR_OK;
}

static float mean_loss(const run *x)
{
    return x->rows > 0 ? (float)(x->loss_sum / (double)x->rows) : 0;
}

static void reset_means(run *x)
{
    x->loss_sum = 0;
    x->rows = 0;
    for (size_t i = 0; i < x->opts->n_metrics; i++)
        mr_metric_reset(x->metrics[i]);
}

typedef mr_code (*slot_fn)(void *ctx, const mr_train_event *e, mr_status *st);

static mr_code tell(const run *x, size_t slot_at, const mr_train_event *e, mr_status *st)
{
    mr_code ended = MR_OK;
    for (size_t i = 0; i < x->opts->n_callbacks; i++) {
        const mr_callback *c = &x->opts->callbacks[i];
        slot_fn fn;
        memcpy(&fn, (const char *)c + slot_at, sizeof fn);
        mr_code rc = fn ? fn(c->ctx, e, st) : MR_OK;
        if (rc == MR_END)
            ended = MR_END;
        else if (rc != MR_OK)
            return rc;
    }
    return ended;
}
#define TELL(x, slot, e, st) tell(x, offsetof(mr_callback, slot), e, st)

/* As tell, but what an MR_END asks for is kept in *stop. */
#define TELL_STOP(x, slot, e, stop, st)                                                            \
    do {                                                                                           \
        mr_code tell_rc_ = TELL(x, slot, e, st);                                                   \
        if (tell_rc_ == MR_END)                                                                    \
            *(stop) = true;                                                                        \
        else if (tell_rc_ != MR_OK)                                                                \
            return tell_rc_;                                                                       \
    } while (0)

static mr_code train_step(run *x, mr_train_event *e, bool last, bool *stop, mr_status *st)
{
    e->step++;
    e->loss = 0;
    e->rows = (int64_t)mr__staging_rows(x->feed.ring, x->slot);
    TELL_STOP(x, batch_begin, e, stop, st);
    MR_TRY(start_step(x, st));
    if (!last)
        mr__feed_fetch(&x->feed); /* while the replicas work */
    MR_TRY(finish_step(x, &e->loss, st));
    TELL_STOP(x, batch_end, e, stop, st);
    return MR_OK;
}

/* One pass over the data, or what the limit on steps leaves of it. */
static mr_code train_epoch(run *x, mr_train_event *e, bool *stop, mr_status *st)
{
    int64_t limit = x->opts->steps;
    mr_code rc;
    e->epoch++;
    reset_means(x);
    e->loss = 0;
    e->rows = 0;
    TELL_STOP(x, epoch_begin, e, stop, st);
    while (!*stop && (rc = mr__feed_take(&x->feed, &x->slot, st)) != MR_END) {
        MR_TRY(rc);
        MR_TRY(train_step(x, e, limit > 0 && e->step + 1 == limit, stop, st));
        if (limit > 0 && e->step == limit)
            *stop = true;
    }
    e->loss = mean_loss(x);
    e->rows = x->rows;
    TELL_STOP(x, epoch_end, e, stop, st);
    return MR_OK;
}

static mr_code train(run *x, mr_fit_result *result, mr_status *st)
{
    const mr_fit_opts *o = x->opts;
    int64_t epochs = o->epochs > 0 ? o->epochs : o->steps > 0 ? INT64_MAX : 1;
    mr_train_event e = {
        .n_metrics = o->n_metrics, .metrics = x->metrics, .model = x->m, .optimizer = x->o};
    bool stop = false;
    TELL_STOP(x, train_begin, &e, &stop, st);
    while (!stop && e.epoch < epochs) {
        int64_t before = e.step;
        if (e.epoch > 0)
            MR_TRY(mr__feed_rewind(&x->feed, st));
        MR_TRY(train_epoch(x, &e, &stop, st));
        if (e.step == before && !stop)
            return mr_fail(st, MR_FAILED_PRECONDITION,
                           "epoch %" PRId64 " of the data has no batch; nothing to train on",
                           e.epoch);
        result->rows += x->rows;
    }
    *result = (mr_fit_result){.steps = e.step, .epochs = e.epoch, .rows = result->rows};
    result->loss = mean_loss(x);
    for (size_t i = 0; i < o->n_metrics; i++)
        result->metrics[i] = mr_metric_result(x->metrics[i]);
    TELL_STOP(x, train_end, &e, &stop, st);
    return MR_OK;
}

static mr_code check_opts(const mr_fit_opts *o, mr_status *st)
{
    if (o->epochs < 0 || o->steps < 0)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "epochs and steps must be positive, found %" PRId64 " and %" PRId64,
                       o->epochs, o->steps);
    return MR_OK;
}

mr_code mr_fit(mr_strategy *s, mr_model *m, mr_dataset *ds, mr_loss *loss, mr_optimizer *o,
               const mr_fit_opts *opts, mr_fit_result *result, mr_status *st)
{
    static const mr_fit_opts none;
    run x = {.s = s, .m = m, .loss = loss, .o = o, .opts = opts ? opts : &none};
    mr_fit_result made = {0};
    MR_TRY(check_opts(x.opts, st));
    mr_code rc = run_open(&x, ds, st);
    if (rc == MR_OK)
        rc = train(&x, &made, st);
    run_close(&x);
    if (rc == MR_OK && result)
        *result = made;
    return rc;
}

static mr_code evaluate(run *x, mr_fit_result *result, mr_status *st)
{
    mr_code rc;
    int64_t limit = x->opts->steps, steps = 0;
    while ((limit == 0 || steps < limit) &&
           (rc = mr__feed_take(&x->feed, &x->slot, st)) != MR_END) {
        float loss;
        MR_TRY(rc);
        MR_TRY(start_step(x, st));
        if (++steps != limit)
            mr__feed_fetch(&x->feed);
        MR_TRY(finish_step(x, &loss, st));
    }
    if (steps == 0)
        return mr_fail(st, MR_FAILED_PRECONDITION, "the data have no batch; nothing to evaluate");
    *result = (mr_fit_result){.steps = steps, .epochs = 1, .rows = x->rows, .loss = mean_loss(x)};
    for (size_t i = 0; i < x->opts->n_metrics; i++)
        result->metrics[i] = mr_metric_result(x->metrics[i]);
    return MR_OK;
}

mr_code mr_evaluate(mr_strategy *s, mr_model *m, mr_dataset *ds, mr_loss *loss,
                    const mr_fit_opts *opts, mr_fit_result *result, mr_status *st)
{
    static const mr_fit_opts none;
    run x = {.s = s, .m = m, .loss = loss, .opts = opts ? opts : &none};
    mr_fit_result made = {0};
    MR_TRY(check_opts(x.opts, st));
    mr_code rc = run_open(&x, ds, st);
    if (rc == MR_OK)
        rc = evaluate(&x, &made, st);
    run_close(&x);
    if (rc == MR_OK && result)
        *result = made;
    return rc;
}

/* Slices are cut in row order, so the replicas' outputs one after the other are in input order. */
static mr_code join_predictions(run *x, mr_array *out, mr_status *st)
{
    mr_array like = x->lanes[0].predictions;
    like.shape[0] = (int64_t)mr__staging_rows(x->feed.ring, x->slot);
    MR_TRY(mr_tensor_alloc(out, MR_FLOAT32, like.rank, like.shape, st));
    char *to = out->data;
    for (size_t r = 0; r < x->n_replicas; r++) {
        const mr_array *p = &x->lanes[r].predictions;
        size_t bytes = mr_array_row_bytes(p);
        if (bytes > 0)
            memcpy(to, p->data, bytes);
        to += bytes;
    }
    return MR_OK;
}

static mr_code predict(run *x, mr_code (*fn)(void *ctx, const mr_array *p, mr_status *st),
                       void *ctx, mr_status *st)
{
    mr_code rc;
    int64_t limit = x->opts->steps, steps = 0;
    while ((limit == 0 || steps < limit) &&
           (rc = mr__feed_take(&x->feed, &x->slot, st)) != MR_END) {
        mr_array p;
        MR_TRY(rc);
        MR_TRY(start_step(x, st));
        if (++steps != limit)
            mr__feed_fetch(&x->feed);
        MR_TRY(mr_strategy_join(x->s, st));
        MR_TRY(join_predictions(x, &p, st));
        rc = fn(ctx, &p, st);
        mr_array_reset(&p);
        MR_TRY(rc);
    }
    return MR_OK;
}

mr_code mr_predict(mr_strategy *s, mr_model *m, mr_dataset *ds,
                   mr_code (*fn)(void *ctx, const mr_array *predictions, mr_status *st), void *ctx,
                   const mr_fit_opts *opts, mr_status *st)
{
    static const mr_fit_opts none;
    run x = {.s = s, .m = m, .opts = opts ? opts : &none};
    MR_TRY(check_opts(x.opts, st));
    mr_code rc = run_open(&x, ds, st);
    if (rc == MR_OK)
        rc = predict(&x, fn, ctx, st);
    run_close(&x);
    return rc;
}
