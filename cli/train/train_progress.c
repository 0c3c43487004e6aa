/* SPDX-License-Identifier: Apache-2.0 */
/* The output of millrace train: a line of JSON for each step and epoch, or a progress bar and a
 * line per epoch; and the results of an evaluation. */
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

#include <millrace/pipeline/engine/op_iterator.h>
#include <millrace/pipeline/files/glob.h>
#include <millrace/pipeline/formats/shards/data_files.h>
#include "train_progress.h"
#include "train.h"
#include "train_trace.h"

static void on_read(void *ctx, size_t bytes)
{
    atomic_fetch_add_explicit(&((train_progress *)ctx)->bytes_read, (int64_t)bytes,
                              memory_order_relaxed);
}

/* Adds up the sizes of the files that a name matches. A pipe has none. */
static mr_code add_size(void *ctx, const char *name, mr_status *st)
{
    train_progress *p = ctx;
    char **paths;
    size_t n;
    struct stat s;
    if (strcmp(name, "-") == 0)
        return mr_fail(st, MR_UNIMPLEMENTED, "standard input");
    MR_TRY(mr_data_files(&name, 1, &paths, &n, st));
    for (size_t i = 0; i < n; i++)
        if (stat(paths[i], &s) == 0 && S_ISREG(s.st_mode))
            p->file_bytes += (int64_t)s.st_size;
    mr_glob_free(paths, n);
    return MR_OK;
}

/* NaN has a sign, which printf shows. */
double train_number(double v)
{
    return isnan(v) ? (double)NAN : v;
}

static void print_value(const char *prefix, const char *name, double v, bool json)
{
    if (json) {
        printf(", \"%s%s\": ", prefix, name);
        cli_print_double(stdout, v);
    } else
        printf("  %s%s %.4f", prefix, name, train_number(v));
}

static void print_loss(const char *prefix, const char *name, float v, bool json)
{
    if (json) {
        printf(", \"%s%s\": ", prefix, name);
        cli_print_float(stdout, v);
    } else
        print_value(prefix, name, (double)v, false);
}

/* The rate of the next update, as in Keras's logs. */
static void print_rate(const mr_train_event *e, bool json)
{
    double rate = mr_optimizer_learning_rate(e->optimizer);
    if (json)
        print_value("", "learning_rate", rate, true);
    else
        printf("  lr %.3g", rate);
}

static void print_outputs(const char *prefix, const mr_output_losses *l, bool json)
{
    char name[128];
    for (size_t i = 0; i < l->n; i++) {
        snprintf(name, sizeof name, "%s_loss", l->names[i]);
        print_loss(prefix, name, l->values[i], json);
    }
}

static void print_metric(const char *prefix, const char *const *metrics, size_t i, double v,
                         bool json)
{
    char name[128];
    mr_metric_value_name(metrics, i, name, sizeof name);
    print_value(prefix, name, v, json);
}

static void print_metrics(const mr_train_event *e, bool json)
{
    print_outputs("", &e->outputs, json);
    for (size_t i = 0; i < e->n_metrics; i++)
        print_metric("", e->opts->metrics, i, mr_metric_result(e->metrics[i]), json);
}

static void print_validation(const mr_train_event *e, bool json)
{
    if (!e->validation)
        return;
    print_loss("val_", "loss", e->validation->loss, json);
    print_outputs("val_", &e->validation->outputs, json);
    for (size_t i = 0; i < e->n_metrics; i++)
        print_metric("val_", e->opts->metrics, i, e->validation->metrics[i], json);
}

void train_print_results(const char *prefix, const mr_fit_result *r, const char *const *metrics,
                         size_t n, bool json)
{
    print_outputs(prefix, &r->outputs, json);
    for (size_t i = 0; i < n; i++)
        print_metric(prefix, metrics, i, r->metrics[i], json);
}

void train_print_evaluation(const mr_fit_result *r, const char *const *metrics, size_t n)
{
    fputs("{\"eval_loss\": ", stdout);
    cli_print_float(stdout, r->loss);
    train_print_results("eval_", r, metrics, n, true);
    puts("}");
}

static mr_code on_epoch_begin(void *ctx, const mr_train_event *e, mr_status *st)
{
    train_progress *p = ctx;
    (void)st;
    p->epoch_began = mr_iter_now();
    p->epoch_first_step = e->step - e->epoch_step;
    if (!p->begun && e->step > 0 && !p->silent)
        fprintf(stderr,
                "millrace: resuming from the backup, after step %" PRId64 ", in epoch %" PRId64
                "\n",
                e->step, e->epoch);
    p->begun = true;
    return MR_OK;
}

/* Steps done and total: of the epoch if its length is known (from the graph or the previous epoch),
 * otherwise of --steps. *total < 1: neither is known. */
static void measure_steps(const train_progress *p, const mr_train_event *e, int64_t *done,
                          int64_t *total, double *began)
{
    int64_t limit = p->steps;
    *done = e->step - p->epoch_first_step;
    *total = p->steps_in_epoch;
    *began = p->epoch_began;
    if (*total > 0 && limit > 0 && limit - p->epoch_first_step < *total)
        *total = limit - p->epoch_first_step;
    if (*total < 1 && limit > 0) {
        *done = e->step;
        *total = limit;
        *began = p->began;
    }
}

/* The fraction of the first epoch's files read so far; 0: unknown. Reading runs slightly ahead of
 * training. It is unknown if the graph reads its files more than once. */
static double share_read(train_progress *p)
{
    int64_t read = atomic_load_explicit(&p->bytes_read, memory_order_relaxed);
    return p->file_bytes && read <= p->file_bytes ? (double)read / (double)p->file_bytes : 0;
}

/* "epoch 2/5 [=====.....] 120/469  12 s left  loss 0.4321  accuracy 0.8512", over itself. */
static void show_bar(train_progress *p, const mr_train_event *e)
{
    double t = mr_iter_now(), began;
    int64_t total, done;
    measure_steps(p, e, &done, &total, &began);
    if (t - p->last_shown < 0.1 && done != total)
        return;
    p->last_shown = t;
    printf("\r\033[Kepoch %" PRId64, e->epoch);
    if (p->epochs)
        printf("/%" PRId64, p->epochs);
    double share = total > 0 ? (double)done / (double)total : share_read(p);
    if (share > 0) {
        char bar[31];
        memset(bar, '.', 30);
        memset(bar, '=', (size_t)(share < 1 ? 30 * share : 30));
        bar[30] = '\0';
        printf(" [%s]", bar);
    }
    if (total > 0)
        printf(" %" PRId64 "/%" PRId64, done, total);
    else
        printf("  step %" PRId64, done);
    if (share > 0)
        printf("  %.0f s left", share < 1 ? (t - began) / share * (1 - share) : 0);
    printf("  loss %.4f", train_number((double)e->loss));
    print_metrics(e, false);
    print_rate(e, false);
    if (e->seconds > 0)
        printf("  waiting %.0f %%", 100 * e->waited_seconds / e->seconds);
    fflush(stdout);
}

static mr_code on_batch_end(void *ctx, const mr_train_event *e, mr_status *st)
{
    (void)ctx;
    (void)e;
    return cli_interrupted() ? mr_fail(st, MR_CANCELLED, "interrupted") : MR_OK;
}

static mr_code on_batch_result(void *ctx, const mr_train_event *e, mr_status *st)
{
    train_progress *p = ctx;
    (void)st;
    if (p->json && !p->silent) {
        printf("{\"step\": %" PRId64 ", \"epoch\": %" PRId64 ", \"loss\": ", e->step, e->epoch);
        cli_print_float(stdout, e->loss);
        puts("}");
    } else if (p->bar)
        show_bar(p, e);
    return MR_OK;
}

static mr_code on_epoch_end(void *ctx, const mr_train_event *e, mr_status *st)
{
    train_progress *p = ctx;
    (void)st;
    p->steps_in_epoch = e->step - p->epoch_first_step;
    if (p->json && !p->silent) {
        printf("{\"epoch\": %" PRId64 ", \"loss\": ", e->epoch);
        cli_print_float(stdout, e->loss);
        print_metrics(e, true);
        print_validation(e, true);
        print_rate(e, true);
        puts("}");
    } else if (!p->silent) {
        double s = mr_iter_now() - p->epoch_began;
        printf("%sepoch %" PRId64, p->bar ? "\r\033[K" : "", e->epoch);
        if (p->epochs)
            printf("/%" PRId64, p->epochs);
        printf("  %.1f s  %.0f examples/s  loss %.4f", s, s > 0 ? (double)e->rows / s : 0,
               train_number((double)e->loss));
        print_metrics(e, false);
        print_validation(e, false);
        print_rate(e, false);
        putchar('\n');
    }
    fflush(stdout);
    return MR_OK;
}

/* A trace that cannot be written must not lose the trained model. */
static mr_code on_train_end(void *ctx, const mr_train_event *e, mr_status *st)
{
    train_progress *p = ctx;
    mr_status why;
    (void)st;
    if (e->stopping && !p->silent)
        fprintf(stderr,
                "%smillrace: interrupted after step %" PRId64 ", in epoch %" PRId64
                "; the same command continues there\n",
                p->bar ? "\n" : "", e->step, e->epoch);
    if (p->trace && e->error == MR_OK && train_trace_write(p->trace, e, &why) != MR_OK) {
        mr_status_prefix(&why, "--trace");
        p->failed = cli_fail(&why, CLI_FAILED) != CLI_OK;
    }
    return MR_OK;
}

void train_progress_start(train_progress *p, mr_dataset *data, mr_iterator_opts *reads)
{
    mr_status st;
    p->began = mr_iter_now();
    if (!p->bar || !data || p->steps_in_epoch > 0 || p->steps)
        return;
    if (mr_dataset_file_names(data, add_size, p, &st) != MR_OK)
        p->file_bytes = 0;
    reads->on_read = on_read;
    reads->on_read_ctx = p;
}

mr_callback train_progress_callback(train_progress *p)
{
    return (mr_callback){.ctx = p,
                         .epoch_begin = on_epoch_begin,
                         .batch_end = on_batch_end,
                         .batch_result = on_batch_result,
                         .epoch_end = on_epoch_end,
                         .train_end = on_train_end};
}

void train_progress_print(void *progress, const char *text, const char *json)
{
    const train_progress *p = progress;
    if (p->silent)
        return;
    if (p->json)
        puts(json);
    else
        printf("%s%s\n", p->bar ? "\r\033[K" : "", text);
    fflush(stdout);
}

void train_progress_end(const train_progress *p, const mr_fit_result *r)
{
    if (p->json || p->silent || r->seconds <= 0)
        return;
    printf("trained on %.0f examples/s; the devices waited for data %.1f %% of the time\n",
           (double)r->rows / r->seconds, 100 * r->waited_seconds / r->seconds);
}
