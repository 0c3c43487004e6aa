/* SPDX-License-Identifier: Apache-2.0 */
/* millrace train: the program that `millrace train` executes. Training is trainer/'s; here are the
 * flags, the progress bar and the log. */
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "pipeline/engine/iter.h"
#include "pipeline/memory/alloc.h"
#include "trainer/fit.h"
#include "trainer/optimizer.h"
#include "trainer/strategy.h"

static int train(int argc, char **argv);

static const cli_command command = {
    .name = "train",
    .summary = "trains a model on mirrored replicas",
    .usage = "--data EXPR --model MODEL --loss LOSS --optimizer OPT [--eval EXPR]\n"
             "[--replicas N | --devices LIST] [--epochs N] [--steps N] [--metrics NAME...]",
    .details =
        "The data are batched with the global batch size and yield (features, labels). --steps\n"
        "alone goes round them as often as needed, --epochs alone ends after them; with both,\n"
        "whichever comes first; with neither, one epoch. --eval is evaluated after training.\n"
        "--log json prints an object a step, an epoch and an evaluation:\n"
        "  {\"step\": 1, \"epoch\": 1, \"loss\": 0.9024367}",
    .run = train,
};

typedef struct train_opts {
    cli_run run;
    const char *data, *eval, *model, *loss, *optimizer, *devices, *log;
    int64_t replicas, epochs, steps;
    cli_texts metrics;
    bool has_replicas, json, bar;
    int64_t steps_in_epoch; /* < 0: unknown */
} train_opts;

typedef struct progress {
    const train_opts *o;
    double began, epoch_began, last_shown;
    int64_t epoch_first_step, rows;
} progress;

static void print_metrics(const mr_train_event *e, bool json)
{
    for (size_t i = 0; i < e->n_metrics; i++) {
        if (json) {
            printf(", \"%s\": ", mr_metric_name(e->metrics[i]));
            cli_print_double(stdout, mr_metric_result(e->metrics[i]));
        } else
            printf("  %s %.4f", mr_metric_name(e->metrics[i]), mr_metric_result(e->metrics[i]));
    }
}

static mr_code on_epoch_begin(void *ctx, const mr_train_event *e, mr_status *st)
{
    progress *p = ctx;
    (void)st;
    p->epoch_began = mr_iter_now();
    p->epoch_first_step = e->step;
    return MR_OK;
}

/* "epoch 2/5 [=====>    ] 120/469  12 s left  loss 0.4321  accuracy 0.8512", over itself. */
static void show_bar(progress *p, const mr_train_event *e)
{
    double t = mr_iter_now();
    int64_t total = p->o->steps_in_epoch, done = e->step - p->epoch_first_step;
    if (done < 1)
        done = 1;
    if (t - p->last_shown < 0.1 && done != total)
        return;
    p->last_shown = t;
    printf("\r\033[Kepoch %" PRId64, e->epoch);
    if (p->o->epochs)
        printf("/%" PRId64, p->o->epochs);
    if (total > 0) {
        char bar[31];
        int filled = (int)(30 * done / total);
        if (filled > 30)
            filled = 30;
        memset(bar, '.', 30);
        memset(bar, '=', (size_t)filled);
        bar[30] = '\0';
        double left = (t - p->epoch_began) / (double)done * (double)(total - done);
        printf(" [%s] %" PRId64 "/%" PRId64 "  %.0f s left", bar, done, total, left < 0 ? 0 : left);
    } else
        printf("  step %" PRId64, done);
    printf("  loss %.4f", (double)e->loss);
    print_metrics(e, false);
    fflush(stdout);
}

static mr_code on_batch_end(void *ctx, const mr_train_event *e, mr_status *st)
{
    progress *p = ctx;
    p->rows += e->rows;
    if (cli_interrupted())
        return mr_fail(st, MR_CANCELLED, "interrupted");
    if (p->o->json) {
        printf("{\"step\": %" PRId64 ", \"epoch\": %" PRId64 ", \"loss\": ", e->step, e->epoch);
        cli_print_float(stdout, e->loss);
        puts("}");
    } else if (p->o->bar)
        show_bar(p, e);
    return MR_OK;
}

static mr_code on_epoch_end(void *ctx, const mr_train_event *e, mr_status *st)
{
    progress *p = ctx;
    (void)st;
    if (p->o->json) {
        printf("{\"epoch\": %" PRId64 ", \"loss\": ", e->epoch);
        cli_print_float(stdout, e->loss);
        print_metrics(e, true);
        puts("}");
    } else {
        double s = mr_iter_now() - p->epoch_began;
        printf("%sepoch %" PRId64, p->o->bar ? "\r\033[K" : "", e->epoch);
        if (p->o->epochs)
            printf("/%" PRId64, p->o->epochs);
        printf("  %.1f s  %.0f examples/s  loss %.4f", s, s > 0 ? (double)e->rows / s : 0,
               (double)e->loss);
        print_metrics(e, false);
        putchar('\n');
    }
    fflush(stdout);
    return MR_OK;
}

static void watch(void *ctx, mr_iterator *it)
{
    (void)ctx;
    cli_watch_iterator(it);
}

static mr_code evaluate(const train_opts *o, mr_strategy *s, mr_model *m, mr_dataset *ds,
                        mr_loss *loss, const mr_fit_opts *opts, double trained_seconds,
                        int64_t trained_rows, mr_status *st)
{
    mr_fit_result r;
    mr_fit_opts all = *opts;
    all.steps = 0;
    MR_TRY(mr_evaluate(s, m, ds, loss, &all, &r, st));
    if (o->json) {
        fputs("{\"eval_loss\": ", stdout);
        cli_print_float(stdout, r.loss);
        for (size_t i = 0; i < opts->n_metrics; i++) {
            printf(", \"eval_%s\": ", opts->metrics[i]);
            cli_print_double(stdout, r.metrics[i]);
        }
        puts("}");
        return MR_OK;
    }
    printf("test: loss %.4f", (double)r.loss);
    for (size_t i = 0; i < opts->n_metrics; i++)
        printf("  %s %.4f", opts->metrics[i], r.metrics[i]);
    printf("  (%" PRId64 " examples)\n", r.rows);
    if (trained_seconds > 0)
        printf("trained on %.0f examples/s\n", (double)trained_rows / trained_seconds);
    return MR_OK;
}

/* "cpu:0,cpu:1" in place. */
static size_t split_devices(char *text, const char **out, size_t room)
{
    size_t n = 0;
    for (char *at = text; at && n < room;) {
        out[n++] = at;
        at = strchr(at, ',');
        if (at)
            *at++ = '\0';
    }
    return n;
}

typedef struct parts {
    mr_dataset *data, *eval;
    mr_model *model;
    mr_loss *loss;
    mr_optimizer *optimizer;
    mr_strategy *strategy;
} parts;

static mr_code parse_parts(const train_opts *o, parts *p, mr_status *st)
{
    MR_TRY(mr_dataset_from_text(o->data, strlen(o->data), NULL, &p->data, st));
    if (o->eval)
        MR_TRY(mr_dataset_from_text(o->eval, strlen(o->eval), NULL, &p->eval, st));
    MR_TRY(mr_model_parse(&p->model, o->model, st));
    MR_TRY(mr_loss_parse(&p->loss, o->loss, st));
    MR_TRY(mr_optimizer_parse(&p->optimizer, o->optimizer, st));
    for (size_t i = 0; i < o->metrics.n; i++) {
        mr_metric *m = NULL;
        MR_TRY(mr_metric_parse(&m, o->metrics.v[i], st));
        mr_metric_free(m);
    }
    return MR_OK;
}

static mr_code open_strategy(const train_opts *o, parts *p, mr_status *st)
{
    const char *names[256];
    char *text = o->devices ? mr_strdup(o->devices) : NULL;
    if (o->devices && !text)
        return mr_fail_memory(st, strlen(o->devices), "device names");
    mr_strategy_opts opts = {0};
    if (text) {
        opts.n_devices = split_devices(text, names, 256);
        opts.devices = names;
    } else
        opts.num_replicas = (size_t)o->replicas;
    mr_code rc = mr_strategy_mirrored(&p->strategy, &opts, st);
    mr_free(text);
    return rc;
}

static int run_parts(train_opts *o, parts *p)
{
    mr_status st;
    if (open_strategy(o, p, &st) != MR_OK)
        return cli_fail(&st, st.code == MR_INVALID_ARGUMENT ? CLI_USAGE : CLI_FAILED);
    progress at = {.o = o, .began = mr_iter_now()};
    mr_callback callback = {.ctx = &at,
                            .epoch_begin = on_epoch_begin,
                            .batch_end = on_batch_end,
                            .epoch_end = on_epoch_end};
    o->steps_in_epoch = mr_dataset_cardinality(p->data);
    mr_fit_opts opts = {.epochs = o->epochs,
                        .steps = o->steps,
                        .metrics = o->metrics.v,
                        .n_metrics = o->metrics.n,
                        .callbacks = &callback,
                        .n_callbacks = 1,
                        .seed = o->run.opts.seed,
                        .iterator = &o->run.opts,
                        .watch = watch};
    mr_fit_result r;
    mr_code rc = mr_fit(p->strategy, p->model, p->data, p->loss, p->optimizer, &opts, &r, &st);
    double trained = mr_iter_now() - at.began;
    if (rc == MR_OK && p->eval)
        rc = evaluate(o, p->strategy, p->model, p->eval, p->loss, &opts, trained, at.rows, &st);
    if (rc != MR_OK) {
        if (o->bar)
            putchar('\n');
        return cli_interrupted() ? CLI_INTERRUPTED : cli_fail(&st, CLI_FAILED);
    }
    return cli_flush(CLI_OK);
}

static int missing(const train_opts *o)
{
    const char *const values[] = {o->data, o->model, o->loss, o->optimizer};
    static const char *const names[] = {"--data EXPR", "--model MODEL", "--loss LOSS",
                                        "--optimizer OPT"};
    for (int i = 0; i < 4; i++)
        if (!values[i])
            return cli_usage(&command, "%s is missing", names[i]);
    if (o->metrics.n > MR_MAX_METRICS)
        return cli_usage(&command, "at most %d metrics", MR_MAX_METRICS);
    if (o->devices && o->has_replicas)
        return cli_usage(&command, "--replicas and --devices do not go together");
    return -1;
}

static int train(int argc, char **argv)
{
    static const char *const logs[] = {"json", "text", NULL};
    train_opts o = {.replicas = 1};
    o.metrics.v = cli_words(argc);
    cli_flag run_flags[CLI_RUN_FLAGS];
    cli_run_flags(&o.run, run_flags, false);
    const cli_flag flags[] = {
        {.name = "data",
         .kind = CLI_TEXT,
         .value = &o.data,
         .what = "EXPR",
         .help = "what to train on"},
        {.name = "eval",
         .kind = CLI_TEXT,
         .value = &o.eval,
         .what = "EXPR",
         .help = "what to evaluate on, after training"},
        {.name = "model",
         .kind = CLI_TEXT,
         .value = &o.model,
         .what = "MODEL",
         .help = "for example 'flatten().dense(128, activation=\"relu\").dense(10)'"},
        {.name = "loss",
         .kind = CLI_TEXT,
         .value = &o.loss,
         .what = "LOSS",
         .help = "for example 'sparse_categorical_crossentropy(from_logits=true)'"},
        {.name = "optimizer",
         .kind = CLI_TEXT,
         .value = &o.optimizer,
         .what = "OPT",
         .help = "for example 'adam(learning_rate=0.001)'"},
        {.name = "metrics",
         .kind = CLI_TEXTS,
         .value = &o.metrics,
         .what = "NAME...",
         .help = "for example accuracy"},
        {.name = "replicas",
         .kind = CLI_INT,
         .value = &o.replicas,
         .given = &o.has_replicas,
         .what = "N",
         .min = 1,
         .max = 256,
         .help = "mirrored replicas on the CPU (default 1)"},
        {.name = "devices",
         .kind = CLI_TEXT,
         .value = &o.devices,
         .what = "LIST",
         .help = "a replica on each of these, as in cpu:0,cpu:1"},
        {.name = "epochs",
         .kind = CLI_INT,
         .value = &o.epochs,
         .what = "N",
         .min = 1,
         .max = INT64_MAX,
         .help = "go round the data N times"},
        {.name = "steps",
         .kind = CLI_INT,
         .value = &o.steps,
         .what = "N",
         .min = 1,
         .max = INT64_MAX,
         .help = "stop after N steps"},
        {.name = "log",
         .kind = CLI_TEXT,
         .value = &o.log,
         .what = "FORMAT",
         .words = logs,
         .help = "json: one object a line; text (default): a line an epoch, on a terminal a bar"},
        {0}};
    const cli_flag *const tables[] = {flags, run_flags, NULL};
    const char **rest = cli_words(argc);
    size_t n;
    parts p = {0};
    mr_status st;
    int status = cli_parse(&command, tables, argc, argv, rest, &n);
    if (status < 0 && n)
        status = cli_usage(&command, "unexpected '%s'", rest[0]);
    if (status < 0)
        status = missing(&o);
    if (status < 0) {
        cli_run_start(&o.run);
        o.json = o.log && strcmp(o.log, "json") == 0;
        o.bar = !o.json && isatty(STDOUT_FILENO);
        status = parse_parts(&o, &p, &st) == MR_OK ? run_parts(&o, &p) : cli_fail(&st, CLI_USAGE);
    }
    mr_model_free(p.model);
    mr_loss_free(p.loss);
    mr_optimizer_free(p.optimizer);
    mr_strategy_free(p.strategy);
    mr_dataset_unref(p.data);
    mr_dataset_unref(p.eval);
    mr_free(rest);
    mr_free(o.metrics.v);
    return status;
}

int main(int argc, char **argv)
{
    cli_start();
    return train(argc, argv);
}
