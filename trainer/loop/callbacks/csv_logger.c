/* SPDX-License-Identifier: Apache-2.0 */
/* A line of comma-separated values for each epoch: its number from 0, then the values in the order
 * of their names, like Keras. Includes the learning rate of the epoch if an earlier callback may
 * change it. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "pipeline/system/retry.h"
#include "trainer/loop/callback_impl.h"

struct params {
    char *file, *separator;
    bool append;
};

enum {
    MAX_NAMES = 2 * (MR_MAX_METRICS + MR_MAX_OUTPUTS) + 4,
    NAME = 128,
    LINE = MAX_NAMES * (NAME + 8)
};

struct state {
    const struct params *params;
    bool open, has_names;
    double rate; /* at the beginning of the epoch, after earlier callbacks set it */
    int fd;
    size_t n;
    char names[MAX_NAMES][NAME];
};

static const char rate_name[] = "learning_rate";

static mr_code fail(const struct state *s, const char *what, mr_status *st)
{
    mr_code rc = mr_fail_errno(st, errno, "csv_logger: cannot %s", what);
    mr_status_at(st, s->params->file, -1, -1);
    return rc;
}

static mr_code train_begin(void *ctx, const mr_train_event *e, mr_status *st)
{
    struct state *s = ctx;
    struct stat is;
    if (!mr__writes_files(e))
        return MR_OK;
    s->has_names = false;
    s->n = 0;
    int how = O_WRONLY | O_CREAT | O_CLOEXEC | O_APPEND | (s->params->append ? 0 : O_TRUNC);
    if ((s->fd = mr__sys->open(s->params->file, how, 0666)) < 0)
        return fail(s, "open the file", st);
    s->open = true;
    if (mr__sys->fstat(s->fd, &is) != 0)
        return fail(s, "read the file's size", st);
    s->has_names = is.st_size > 0; /* of a run before */
    return MR_OK;
}

static mr_code put(const struct state *s, const char *line, mr_status *st)
{
    return mr__write_all(s->fd, line, strlen(line)) == 0 ? MR_OK : fail(s, "write a line", st);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

static bool writes_rate(const struct state *s, const mr_train_event *e)
{
    for (size_t i = 0; i < e->opts->n_callbacks && e->opts->callbacks[i].ctx != s; i++)
        if (e->opts->callbacks[i].sets_learning_rate)
            return true;
    return false;
}

static mr_code epoch_begin(void *ctx, const mr_train_event *e, mr_status *st)
{
    struct state *s = ctx;
    (void)st;
    s->rate = mr_optimizer_learning_rate(e->optimizer);
    return MR_OK;
}

/* The first epoch's names are those of the file. */
static void find_names(struct state *s, const mr_train_event *e)
{
    for (size_t i = 0;
         s->n < MAX_NAMES && mr_train_value_name(e, i, s->names[s->n], sizeof s->names[0]); i++)
        s->n += strcmp(s->names[s->n], rate_name) != 0 || writes_rate(s, e);
    qsort(s->names, s->n, sizeof s->names[0], by_name);
}

static mr_code epoch_end(void *ctx, const mr_train_event *e, mr_status *st)
{
    struct state *s = ctx;
    char line[LINE], value[40];
    if (!s->open)
        return MR_OK;
    if (s->n == 0)
        find_names(s, e);
    if (!s->has_names) {
        size_t at = (size_t)snprintf(line, sizeof line, "epoch");
        for (size_t i = 0; i < s->n; i++)
            at += (size_t)snprintf(line + at, sizeof line - at, "%s%s", s->params->separator,
                                   s->names[i]);
        snprintf(line + at, sizeof line - at, "\n");
        MR_TRY(put(s, line, st));
        s->has_names = true;
    }
    size_t at = (size_t)snprintf(line, sizeof line, "%" PRId64, e->epoch - 1);
    for (size_t i = 0; i < s->n; i++) {
        double v;
        value[0] = '\0';
        bool is_rate = strcmp(s->names[i], rate_name) == 0;
        if (is_rate)
            v = s->rate;
        if (is_rate || mr_train_value(e, s->names[i], &v))
            mr__number_text(v, value, sizeof value);
        at += (size_t)snprintf(line + at, sizeof line - at, "%s%s", s->params->separator, value);
    }
    snprintf(line + at, sizeof line - at, "\n");
    return put(s, line, st);
}

static void clear(void *ctx)
{
    struct state *s = ctx;
    if (s->open)
        mr__sys->close(s->fd);
    s->open = false;
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
    const struct params *o = params;
    size_t n = strlen(o->separator);
    return n > 0 && n < 8 ? MR_OK
                          : mr_fail(st, MR_INVALID_ARGUMENT,
                                    "csv_logger: the separator must have 1 to 7 bytes");
}

static const mr_param table[] = {
    MR_ARG(struct params, file, .doc = "File to write."),
    MR_PARAM(struct params, separator, .def.s = ",", .doc = "Separator of values."),
    MR_PARAM(struct params, append, .doc = "Appends to the file if it exists."),
    {0}};

const mr_callback_desc mr__callback_csv_logger = {
    .is = {.abi = MR_ABI_VERSION,
           .name = "csv_logger",
           .doc = "Writes the values of each epoch to a file of comma-separated values.",
           .example = "csv_logger(\"log.csv\")",
           .params = table,
           .params_size = sizeof(struct params)},
    .calls = {.train_begin = train_begin,
              .epoch_begin = epoch_begin,
              .epoch_end = epoch_end,
              .train_end = train_end,
              .free = clear},
    .state_size = sizeof(struct state),
    .check = check,
};
