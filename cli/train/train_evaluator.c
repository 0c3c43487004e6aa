/* SPDX-License-Identifier: Apache-2.0 */
/* A task of type evaluator: waits for the checkpoints that training writes, evaluates each, and
 * ends after the last. */
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include <millrace/pipeline/memory/alloc.h>
#include <millrace/trainer/loop/checkpoint.h>
#include <millrace/trainer/exchange/saved_model.h>
#include "train.h"

enum { PAUSE_NS = 200 * 1000 * 1000, PAUSES_OF_STORE = 10 };

/* The next checkpoint to evaluate. */
typedef struct next {
    int64_t after; /* steps evaluated */
    bool found;
    int64_t epoch, step;
    char name[256];
} next;

static mr_code look_at(void *ctx, const mr_checkpoint_info *c, mr_status *st)
{
    next *x = ctx;
    (void)st;
    if (x->found || !c->whole || c->step <= x->after || strlen(c->name) >= sizeof x->name)
        return MR_OK;
    x->found = true;
    x->epoch = c->epoch;
    x->step = c->step;
    snprintf(x->name, sizeof x->name, "%s", c->name);
    return MR_OK;
}

/* Loads the weights of the model; MR_NOT_FOUND: training has removed the checkpoint. */
static mr_code load(const train_evaluator *e, const char *path, mr_status *st)
{
    mr_saved *saved = NULL;
    MR_TRY(mr_saved_open(&saved, path, st));
    mr_code rc = mr_model_is_built(e->model)
                     ? mr_saved_load(saved, e->model, st)
                     : mr_saved_build(saved, e->model, e->strategy, NULL, st);
    mr_saved_close(saved);
    return rc;
}

static mr_code evaluate(const train_evaluator *e, const char *directory, const next *x,
                        mr_status *st)
{
    mr_fit_result r;
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", directory, x->name);
    mr_code rc = load(e, path, st);
    if (rc == MR_NOT_FOUND)
        return MR_OK;
    MR_TRY(rc);
    MR_TRY(mr_evaluate(e->strategy, e->model, e->data, e->loss, e->opts, &r, st));
    if (e->json) {
        printf("{\"epoch\": %" PRId64 ", \"eval_loss\": ", x->epoch);
        cli_print_float(stdout, r.loss);
        train_print_results("eval_", &r, e->opts->metrics, e->opts->n_metrics, true);
        puts("}");
    } else {
        printf("epoch %" PRId64 "  eval_loss %.4f", x->epoch, (double)r.loss);
        train_print_results("eval_", &r, e->opts->metrics, e->opts->n_metrics, false);
        putchar('\n');
    }
    fflush(stdout);
    return MR_OK;
}

static mr_code follow(const train_evaluator *e, const char *directory, mr_status *st)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    int64_t after = 0;
    int pauses = strstr(directory, "://") ? PAUSES_OF_STORE : 1;
    for (;;) {
        /* Checked before listing, so that the list contains the last checkpoint. */
        bool last;
        MR_TRY(mr_checkpoint_finished(directory, &last, st));
        next x = {.after = after};
        mr_code rc = mr_checkpoint_list(directory, look_at, &x, st);
        if (rc != MR_OK && rc != MR_NOT_FOUND) /* training has not created the directory yet */
            return rc;
        if (cli_interrupted())
            return mr_fail(st, MR_CANCELLED, "interrupted");
        if (rc == MR_OK && x.found) {
            MR_TRY(evaluate(e, directory, &x, st));
            after = x.step;
        } else if (last)
            return MR_OK;
        else
            for (int i = 0; i < pauses && !cli_interrupted(); i++)
                nanosleep(&pause, NULL);
    }
}

mr_code train_evaluate_checkpoints(const train_evaluator *e, mr_status *st)
{
    const char *path = NULL;
    for (size_t i = 0; i < e->n_callbacks && !path; i++)
        path = mr_checkpoint_callback_path(&e->callbacks[i]);
    if (!path)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "an evaluator evaluates the checkpoints of training: give it the same "
                       "--callback 'checkpoint(\"dir/ckpt_{epoch}\")'");
    if (!e->data)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "an evaluator needs data: give --eval, or --validation");
    const char *name = strrchr(path, '/');
    char *directory =
        name ? mr_strndup(path, (size_t)(name - path) + (name == path)) : mr_strdup(".");
    if (!directory)
        return mr_fail_memory(st, strlen(path), "a file name");
    mr_code rc = follow(e, directory, st);
    mr_free(directory);
    return rc;
}
