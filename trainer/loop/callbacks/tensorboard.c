/* SPDX-License-Identifier: Apache-2.0 */
/* Event files for TensorBoard: train/ and validation/ in the directory, with Keras's tags. Epochs
 * are counted from 0, like in Keras, steps from 1. */
#include <stdio.h>
#include <string.h>
#include "pipeline/memory/alloc.h"
#include "trainer/loop/callback_impl.h"
#include "trainer/files/event_file.h"
#include "trainer/files/saved_files.h"

struct params {
    char *directory;
    int64_t update_freq;
};

struct state {
    const struct params *params;
    mr__event_file *train, *validation; /* NULL: not opened yet */
};

static mr_code open_file(const struct state *s, const char *name, mr__event_file **f, mr_status *st)
{
    if (*f)
        return MR_OK;
    char *path = mr__path_in(s->params->directory, name);
    if (!path)
        return mr_fail_memory(st, strlen(s->params->directory), "a file name");
    mr_code rc = mr__event_file_open(f, path, st);
    mr_free(path);
    return rc;
}

static mr_code train_begin(void *ctx, const mr_train_event *e, mr_status *st)
{
    struct state *s = ctx;
    return mr__writes_files(e) ? open_file(s, "train", &s->train, st) : MR_OK;
}

static mr_code batch_result(void *ctx, const mr_train_event *e, mr_status *st)
{
    const struct state *s = ctx;
    int64_t every = s->params->update_freq;
    if (!s->train || every == 0 || e->step % every != 0)
        return MR_OK;
    return mr__event_file_add(s->train, "batch_loss", e->step, e->loss, st);
}

static mr_code epoch_end(void *ctx, const mr_train_event *e, mr_status *st)
{
    struct state *s = ctx;
    char name[128], tag[160];
    double v;
    if (!s->train)
        return MR_OK;
    if (e->validation)
        MR_TRY(open_file(s, "validation", &s->validation, st));
    for (size_t i = 0; mr_train_value_name(e, i, name, sizeof name); i++) {
        bool is_val = e->validation && strncmp(name, "val_", 4) == 0;
        snprintf(tag, sizeof tag, "epoch_%s", is_val ? name + 4 : name);
        if (mr_train_value(e, name, &v))
            MR_TRY(mr__event_file_add(is_val ? s->validation : s->train, tag, e->epoch - 1,
                                      (float)v, st));
    }
    return MR_OK;
}

static void clear(void *ctx)
{
    struct state *s = ctx;
    mr__event_file_close(s->train);
    mr__event_file_close(s->validation);
    s->train = s->validation = NULL;
}

static mr_code train_end(void *ctx, const mr_train_event *e, mr_status *st)
{
    (void)e;
    (void)st;
    clear(ctx);
    return MR_OK;
}

static mr_code check(const void *params, mr_status *st)
{
    return mr__check_directory("tensorboard", ((const struct params *)params)->directory, st);
}

static const mr_param table[] = {
    MR_ARG(struct params, directory, .doc = "Directory in which train and validation are written."),
    MR_PARAM_OWN(struct params, update_freq, mr__param_freq, .def.s = "epoch",
                 .doc = "\"epoch\", \"batch\", or a number of steps: how often batch_loss is "
                        "written."),
    {0}};

const mr_callback_desc mr__callback_tensorboard = {
    .is = {.abi = MR_ABI_VERSION,
           .name = "tensorboard",
           .doc = "Writes losses, metrics and learning rates for TensorBoard.",
           .example = "tensorboard(\"logs\", update_freq=10)",
           .params = table,
           .params_size = sizeof(struct params)},
    .calls = {.train_begin = train_begin,
              .batch_result = batch_result,
              .epoch_end = epoch_end,
              .train_end = train_end,
              .free = clear},
    .state_size = sizeof(struct state),
    .check = check,
};
