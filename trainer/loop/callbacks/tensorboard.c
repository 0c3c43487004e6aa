/* SPDX-License-Identifier: Apache-2.0 */
/* Event files for TensorBoard: train/ and validation/ in the directory, with Keras's tags. Epochs
 * are counted from 0, like in Keras, steps from 1. A resumed run continues the files of the run
 * before, without what was written after the checkpoint. */
#include <stdio.h>
#include <string.h>
#include "pipeline/log.h"
#include "pipeline/memory/alloc.h"
#include "trainer/loop/callback_impl.h"
#include "trainer/files/event_file.h"
#include "trainer/files/saved_files.h"

struct params {
    char *directory;
    int64_t update_freq;
};

enum { NAMES = 256 };

struct state {
    const struct params *params;
    mr__event_file *train, *validation; /* NULL: not opened yet */
    bool writes;                        /* this process does */
    char names[NAMES];                  /* of both files, each followed by '/' */
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
    (void)st;
    s->writes = mr__writes_files(e);
    return MR_OK;
}

/* Only now, since a checkpoint may name the files. */
static mr_code epoch_begin(void *ctx, const mr_train_event *e, mr_status *st)
{
    struct state *s = ctx;
    if (!s->writes)
        return MR_OK;
    MR_TRY(open_file(s, "train", &s->train, st));
    return e->opts->validation ? open_file(s, "validation", &s->validation, st) : MR_OK;
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
    const struct state *s = ctx;
    char name[128], tag[160];
    double v;
    if (!s->train)
        return MR_OK;
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

static void remember_file(mr__event_file *f, char *names, double *size)
{
    size_t at = strlen(names);
    if (f)
        mr__event_file_sync(f);
    snprintf(names + at, NAMES - at, "%s/", f ? mr__event_file_name(f) : "");
    *size = f ? (double)mr__event_file_size(f) : 0;
}

static void remember(const void *ctx, mr_callback_memory *out)
{
    struct state *s = (struct state *)(uintptr_t)ctx; /* for its text */
    *out = (mr_callback_memory){.of = s->params->directory, .n = 2, .text = s->names};
    s->names[0] = '\0';
    remember_file(s->train, s->names, &out->numbers[0]);
    remember_file(s->validation, s->names, &out->numbers[1]);
}

/* If the file is not there any more, a new one is begun. */
static mr_code recall_file(const struct state *s, const char *where, const char *name, size_t n,
                           double size, mr__event_file **f, mr_status *st)
{
    mr_status why;
    char message[1024];
    if (n == 0)
        return MR_OK;
    char *directory = mr__path_in(s->params->directory, where), *own = mr_strndup(name, n);
    mr_code rc = own && directory
                     ? mr__event_file_reopen(f, directory, own, mr__remembered_count(size), &why)
                     : mr_fail_memory(&why, n, "a file name");
    mr_free(own);
    mr_free(directory);
    if (rc == MR_RESOURCE_EXHAUSTED && st)
        *st = why;
    if (rc == MR_OK || rc == MR_RESOURCE_EXHAUSTED)
        return rc;
    mr_status_format(&why, message, sizeof message);
    mr_log(MR_LOG_WARNING, "the events of the run before are not continued: %s", message);
    return MR_OK;
}

static mr_code recall(void *ctx, const mr_callback_memory *m, mr_status *st)
{
    struct state *s = ctx;
    const char *first = m->text ? strchr(m->text, '/') : NULL;
    const char *second = first ? strchr(first + 1, '/') : NULL;
    if (!s->writes || !second)
        return MR_OK;
    clear(s);
    MR_TRY(
        recall_file(s, "train", m->text, (size_t)(first - m->text), m->numbers[0], &s->train, st));
    return recall_file(s, "validation", first + 1, (size_t)(second - first - 1), m->numbers[1],
                       &s->validation, st);
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
              .epoch_begin = epoch_begin,
              .batch_result = batch_result,
              .epoch_end = epoch_end,
              .train_end = train_end,
              .remember = remember,
              .recall = recall,
              .free = clear},
    .state_size = sizeof(struct state),
    .check = check,
};
