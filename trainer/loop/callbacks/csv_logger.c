/* SPDX-License-Identifier: Apache-2.0 */
/* A line of comma-separated values for each epoch: its number from 0, then the values in the order
 * of their names, like Keras. Includes the learning rate of the epoch if an earlier callback may
 * change it. A resumed run continues the file as the checkpoint left it: lines that it wrote after
 * its checkpoint, before it was killed, are cut off. Which these are is in a file next to the log,
 * .NAME.run, from the first checkpoint on:
 *
 *   the run, as in the checkpoint   the size of the log in bytes   its CRC-32C
 *   the line that is written next */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include "pipeline/files/atomic_file.h"
#include "pipeline/files/whole_file.h"
#include "pipeline/crc32c.h"
#include "pipeline/log.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/remote/store_internal.h"
#include "pipeline/system/retry.h"
#include "trainer/files/saved_files.h"
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

/* What the file holds. */
typedef struct content {
    char *bytes; /* owned, NUL-ended; NULL: nothing, or the file is not a regular one */
    size_t n;
} content;

struct state {
    const struct params *params;
    bool open, has_names;
    bool regular;  /* the file can be read and cut */
    bool prepared; /* the lines of runs before were looked at */
    bool recalled; /* by a checkpoint */
    bool checked;  /* the columns */
    bool noted;    /* lines are noted next to the log: a checkpoint knows of it */
    char run[17];  /* identifies the run and those that resume it */
    double rate;   /* at the beginning of the epoch, after earlier callbacks set it */
    int fd;
    int64_t size; /* bytes written, and their CRC-32C */
    uint32_t crc;
    char *header;           /* the file's first line, owned; NULL: it has none yet */
    bool unended, one_line; /* the last line has no end; it is the header */
    size_t n;
    char names[MAX_NAMES][NAME];
};

static const char rate_name[] = "learning_rate";

static mr_code at_file(const struct state *s, mr_code rc, mr_status *st)
{
    mr_status_at(st, s->params->file, -1, -1);
    return rc;
}

static mr_code fail(const struct state *s, const char *what, mr_status *st)
{
    return at_file(s, mr_fail_errno(st, errno, "csv_logger: cannot %s", what), st);
}

static void forget(struct state *s)
{
    if (s->open)
        mr__sys->close(s->fd);
    mr_free(s->header);
    *s = (struct state){.params = s->params};
}

static void draw_run(struct state *s)
{
    uint64_t v;
    if (mr__sys->getrandom(&v, sizeof v, GRND_NONBLOCK) != (ssize_t)sizeof v) {
        struct timespec t;
        mr__sys->clock_gettime(CLOCK_REALTIME, &t);
        v = (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
    }
    snprintf(s->run, sizeof s->run, "%016" PRIx64, v);
}

static mr_code train_begin(void *ctx, const mr_train_event *e, mr_status *st)
{
    struct state *s = ctx;
    struct stat is;
    forget(s);
    if (!mr__writes_files(e))
        return MR_OK;
    MR_TRY(mr__store_refuse_writing(s->params->file, st));
    if ((s->fd = mr__sys->open(s->params->file, O_WRONLY | O_CREAT | O_CLOEXEC | O_APPEND, 0666)) <
        0)
        return fail(s, "open the file", st);
    s->open = true;
    if (mr__sys->fstat(s->fd, &is) != 0)
        return fail(s, "read the file's size", st);
    s->regular = S_ISREG(is.st_mode);
    draw_run(s);
    return MR_OK;
}

/* ---- whose lines they are ---- */

static char *path_of_note(const struct state *s)
{
    const char *path = s->params->file, *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    return mr_strf("%.*s.%s.run", (int)(name - path), path, name);
}

/* Before the line is written, so that a run that is killed has no line that is not noted. */
static mr_code note(struct state *s, const char *line, mr_status *st)
{
    char message[1024];
    mr_status why;
    if (!s->noted || !s->regular)
        return MR_OK;
    char *path = path_of_note(s);
    char *text = mr_strf("%s %" PRId64 " %" PRIu32 "\n%s", s->run, s->size, s->crc, line);
    mr_code rc = path && text ? mr_file_replace(path, text, strlen(text), &why)
                              : mr_fail_memory(&why, strlen(line), "a note of a log");
    mr_free(text);
    mr_free(path);
    if (rc == MR_OK)
        return MR_OK;
    if (rc == MR_RESOURCE_EXHAUSTED) {
        if (st)
            *st = why;
        return rc;
    }
    mr_status_format(&why, message, sizeof message);
    mr_log(MR_LOG_WARNING, "csv_logger: if training is resumed, lines of %s may be there twice: %s",
           s->params->file, message);
    s->noted = false;
    return MR_OK;
}

/* This run wrote what the log holds beyond the checkpoint, up to the line at which it ended. */
static mr_code wrote_rest(const struct state *s, const content *c, bool *did, mr_status *st)
{
    char run[17];
    int64_t size;
    uint32_t crc;
    int head = 0;
    void *text = NULL;
    size_t n = 0;
    mr_status why;
    *did = false;
    char *path = path_of_note(s);
    if (!path)
        return mr_fail_memory(st, strlen(s->params->file), "a path");
    mr_code rc = mr_file_read(path, NULL, &text, &n, &why);
    mr_free(path);
    if (rc == MR_RESOURCE_EXHAUSTED && st)
        *st = why;
    if (rc != MR_OK)
        return rc == MR_RESOURCE_EXHAUSTED ? rc : MR_OK;
    if (sscanf(text, "%16s %" SCNd64 " %" SCNu32 "%n", run, &size, &crc, &head) == 3 &&
        ((char *)text)[head] == '\n' && size >= 0 && (size_t)size <= c->n) {
        const char *line = (char *)text + head + 1;
        size_t rest = c->n - (size_t)size;
        *did = strcmp(run, s->run) == 0 && rest <= strlen(line) &&
               memcmp(c->bytes + size, line, rest) == 0 &&
               (size == 0 || mr_crc32c(c->bytes, (size_t)size) == crc);
    }
    mr_free(text);
    return MR_OK;
}

static mr_code put(struct state *s, const char *line, mr_status *st)
{
    size_t n = strlen(line);
    MR_TRY(note(s, line, st));
    if (mr__write_all(s->fd, line, n) != 0)
        return fail(s, "write a line", st);
    s->size += (int64_t)n;
    s->crc = mr_crc32c_extend(s->crc, line, n);
    return MR_OK;
}

/* ---- the lines of a run before ---- */

static mr_code load(const struct state *s, content *c, mr_status *st)
{
    void *bytes;
    *c = (content){NULL, 0};
    if (!s->regular)
        return MR_OK;
    MR_TRY(mr_file_read(s->params->file, NULL, &bytes, &c->n, st));
    c->bytes = bytes;
    return MR_OK;
}

/* Leaves the first n bytes. */
static mr_code cut(struct state *s, const content *c, size_t n, mr_status *st)
{
    if (s->regular && mr__sys->ftruncate(s->fd, (off_t)n) != 0)
        return fail(s, "cut the file", st);
    s->size = (int64_t)n;
    s->crc = n > 0 ? mr_crc32c(c->bytes, n) : 0;
    return MR_OK;
}

/* Takes over the first n bytes. */
static mr_code keep(struct state *s, const content *c, size_t n, mr_status *st)
{
    size_t line = 0;
    if (n < c->n || !s->regular)
        MR_TRY(cut(s, c, n, st));
    s->size = (int64_t)n;
    s->crc = n > 0 ? mr_crc32c(c->bytes, n) : 0;
    if (n == 0)
        return MR_OK;
    while (line < n && c->bytes[line] != '\n')
        line++;
    s->unended = c->bytes[n - 1] != '\n';
    s->one_line = line == n;
    s->has_names = true;
    line -= line > 0 && c->bytes[line - 1] == '\r';
    s->header = mr_strndup(c->bytes, line);
    return s->header ? MR_OK : mr_fail_memory(st, line, "the columns of a log");
}

/* The bytes before the first line of an epoch, counted from 0, that is trained again. */
static size_t lines_before(const content *c, int64_t epoch)
{
    const char *at = c->bytes ? strchr(c->bytes, '\n') : NULL;
    while (at && at[1] && strtoll(at + 1, NULL, 10) < epoch && strchr(at + 1, '\n'))
        at = strchr(at + 1, '\n');
    return at ? (size_t)(at + 1 - c->bytes) : c->n;
}

/* Without a checkpoint that knows the file: a run starts again, or continues from a checkpoint of a
 * version that did not remember it. */
static mr_code prepare(struct state *s, const mr_train_event *e, mr_status *st)
{
    content c;
    bool resumed = e->step > 0;
    s->prepared = true;
    if (s->recalled)
        return MR_OK;
    MR_TRY(load(s, &c, st));
    size_t n = s->params->append ? c.n : resumed ? lines_before(&c, e->epoch - 1) : 0;
    mr_code rc = keep(s, &c, n, st);
    mr_free(c.bytes);
    return rc;
}

static mr_code recall(void *ctx, const mr_callback_memory *m, mr_status *st)
{
    struct state *s = ctx;
    content c;
    bool own = true;
    s->rate = m->numbers[2];
    s->recalled = true;
    if (m->text)
        snprintf(s->run, sizeof s->run, "%s", m->text);
    if (!s->open)
        return MR_OK;
    MR_TRY(mr__remove_partial(path_of_note(s), st));
    MR_TRY(load(s, &c, st));
    size_t n = (size_t)mr__remembered_count(m->numbers[0]);
    const int64_t crc = mr__remembered_count(m->numbers[1]);
    bool same = c.n >= n && (n == 0 || mr_crc32c(c.bytes, n) == crc);
    mr_code rc = same && c.n > n ? wrote_rest(s, &c, &own, st) : MR_OK;
    if (rc == MR_OK && s->regular && !(same && own))
        mr_log(MR_LOG_WARNING,
               "csv_logger: %s has changed since the previous run: its lines are kept",
               s->params->file);
    if (rc == MR_OK)
        rc = keep(s, &c, same && own ? n : c.n, st);
    mr_free(c.bytes);
    return rc;
}

static void remember(const void *ctx, mr_callback_memory *out)
{
    struct state *s = (struct state *)(uintptr_t)ctx; /* to note what follows */
    s->noted = true;
    if (s->open && mr__fsync_again(s->fd) != 0)
        errno = 0; /* not every file can be synced */
    *out = (mr_callback_memory){.of = s->params->file,
                                .n = 3,
                                .numbers = {(double)s->size, (double)s->crc, s->rate},
                                .text = s->run};
}

/* ---- columns ---- */

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

/* Those of every epoch, validation included. */
static void find_names(struct state *s, const mr_train_event *e)
{
    const mr_fit_result none = {0};
    mr_train_event end = *e;
    if (e->opts->validation)
        end.validation = &none;
    s->n = 0;
    for (size_t i = 0;
         s->n < MAX_NAMES && mr_train_value_name(&end, i, s->names[s->n], sizeof s->names[0]); i++)
        s->n += strcmp(s->names[s->n], rate_name) != 0 || writes_rate(s, e);
    qsort(s->names, s->n, sizeof s->names[0], by_name);
}

static void header_line(const struct state *s, char line[LINE])
{
    size_t at = (size_t)snprintf(line, LINE, "epoch");
    for (size_t i = 0; i < s->n; i++)
        at += (size_t)snprintf(line + at, LINE - at, "%s%s", s->params->separator, s->names[i]);
}

static mr_code end_last_line(struct state *s, mr_status *st)
{
    if (!s->unended)
        return MR_OK;
    mr_log(MR_LOG_WARNING, "csv_logger: the last line of %s had no end, which it gets now",
           s->params->file);
    return put(s, "\n", st);
}

/* A file that has lines must have the columns of this run. */
static mr_code check_columns(struct state *s, const mr_train_event *e, mr_status *st)
{
    char line[LINE];
    s->checked = true;
    find_names(s, e);
    header_line(s, line);
    if (!s->header)
        return MR_OK;
    if (strcmp(s->header, line) == 0)
        return end_last_line(s, st);
    if (s->one_line && strncmp(s->header, line, strlen(s->header)) == 0) {
        s->has_names = false; /* a write of it was cut short */
        return cut(s, &(content){NULL, 0}, 0, st);
    }
    return at_file(s,
                   mr_fail(st, MR_FAILED_PRECONDITION,
                           "csv_logger: the columns of the file are %.200s, those of this run "
                           "%.200s: name another file%s",
                           s->header, line, s->params->append ? ", or leave out append" : ""),
                   st);
}

static mr_code epoch_begin(void *ctx, const mr_train_event *e, mr_status *st)
{
    struct state *s = ctx;
    if (!s->recalled || e->epoch_step == 0)
        s->rate = mr_optimizer_learning_rate(e->optimizer);
    return s->open && !s->prepared ? prepare(s, e, st) : MR_OK;
}

/* As early as the names of outputs are known. */
static mr_code batch_result(void *ctx, const mr_train_event *e, mr_status *st)
{
    struct state *s = ctx;
    return s->open && !s->checked ? check_columns(s, e, st) : MR_OK;
}

static mr_code epoch_end(void *ctx, const mr_train_event *e, mr_status *st)
{
    struct state *s = ctx;
    char line[LINE], value[MR__NUMBER_TEXT];
    if (!s->open)
        return MR_OK;
    if (!s->checked)
        MR_TRY(check_columns(s, e, st));
    if (!s->has_names) {
        header_line(s, line);
        size_t at = strlen(line);
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
    forget(ctx);
}

static mr_code train_end(void *ctx, const mr_train_event *e, mr_status *st)
{
    (void)e;
    (void)st;
    forget(ctx);
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
              .batch_result = batch_result,
              .epoch_end = epoch_end,
              .train_end = train_end,
              .remember = remember,
              .recall = recall,
              .free = clear},
    .state_size = sizeof(struct state),
    .check = check,
};
