/* SPDX-License-Identifier: Apache-2.0 */
/* millrace evaluate and predict: run a saved model over data. */
#include <string.h>

#include <millrace/pipeline/memory/alloc.h>
#include <millrace/trainer/exchange/saved_model.h>
#include "train.h"

typedef struct use_opts {
    cli_run run;
    const char *saved, *data, *loss, *loss_weights, *devices;
    int64_t replicas;
    bool has_replicas, has_metrics;
    cli_texts metrics;
} use_opts;

typedef struct use_parts {
    mr_saved *saved;
    mr_dataset *data;
    mr_strategy *strategy;
    mr_model *model;
    mr_loss *loss;
    mr_cluster cluster;
} use_parts;

static void reset(use_parts *p)
{
    mr_model_free(p->model);
    mr_loss_free(p->loss);
    mr_strategy_free(p->strategy);
    mr_dataset_unref(p->data);
    mr_saved_close(p->saved);
    mr_cluster_reset(&p->cluster);
}

/* In a cluster each process is a worker, as in training. */
static mr_code open_strategy(const use_opts *o, use_parts *p, mr_status *st)
{
    train_devices d;
    const mr_job_fact facts[] = {
        {"data", o->data},
        {"model", mr_saved_model_text(p->saved)},
        {"loss", o->loss ? o->loss : "that of training"},
        {"weights of losses", o->loss_weights ? o->loss_weights : "those of training"}};
    const mr_workers_opts workers = {.cluster = &p->cluster,
                                     .facts = facts,
                                     .n_facts = sizeof facts / sizeof *facts,
                                     .cancel = cli_cancel()};
    int64_t rank;
    MR_TRY(mr_cluster_from_launcher(&p->cluster, st));
    MR_TRY(mr_cluster_worker(&p->cluster, &rank, st));
    MR_TRY(train_devices_read(&d, o->devices, o->has_replicas ? o->replicas : 0, st));
    mr_code rc = mr_strategy_by_name(&p->strategy, NULL, &d.opts, &workers, st);
    train_devices_reset(&d);
    return rc;
}

/* The model with its weights, and the checked data. */
static mr_code open_parts(const use_opts *o, use_parts *p, const mr_fit_opts *opts, mr_status *st)
{
    MR_TRY(train_of_graph("--saved", mr_saved_open(&p->saved, o->saved, st), st));
    MR_TRY(mr_model_parse(&p->model, mr_saved_model_text(p->saved), st));
    MR_TRY(open_strategy(o, p, st));
    MR_TRY(
        train_of_graph("--saved", mr_saved_build(p->saved, p->model, p->strategy, NULL, st), st));
    return train_of_graph("--data", mr_check_data(p->strategy, p->data, opts, st), st);
}

static int end(const mr_status *st)
{
    return cli_interrupted() ? CLI_INTERRUPTED : cli_fail(st, CLI_FAILED);
}

/* Parses flags and --help, checks required ones, reads the graph. Returns -1, or an exit status. */
static int begin(const cli_command *cmd, const cli_flag *flags, const cli_flag *run_flags,
                 use_opts *o, use_parts *p, int argc, char **argv)
{
    cli_flag cluster_flags[CLI_CLUSTER_FLAGS];
    cli_cluster_flags(&o->run, cluster_flags);
    const cli_flag *const tables[] = {flags, cluster_flags, run_flags, NULL};
    const char **rest = cli_words(argc);
    size_t n;
    mr_status st;
    int status = cli_parse(cmd, tables, argc, argv, rest, &n);
    if (status < 0 && n)
        status = cli_usage(cmd, "unexpected '%s'", rest[0]);
    if (status < 0 && (!o->saved || !o->data))
        status = cli_usage(cmd, "%s is missing", o->saved ? "--data EXPR" : "--saved DIR");
    if (status < 0 && o->devices && o->has_replicas)
        status = cli_usage(cmd, "--replicas and --devices cannot be combined");
    if (status < 0)
        train_split_at_commas(&o->metrics);
    if (status < 0 && o->metrics.n > MR_MAX_METRICS)
        status = cli_usage(cmd, "at most %d metrics", MR_MAX_METRICS);
    mr_free(rest);
    if (status >= 0)
        return status;
    cli_run_start(&o->run);
    if (mr_dataset_from_text(o->data, strlen(o->data), NULL, &p->data, &st) != MR_OK)
        return cli_fail(&st, CLI_USAGE);
    return -1;
}

enum { SHARED_FLAGS = 4 };
static void shared_flags(use_opts *o, cli_flag *table)
{
    const cli_flag flags[SHARED_FLAGS] = {
        {.name = "saved",
         .kind = CLI_TEXT,
         .value = &o->saved,
         .what = "DIR",
         .help = "a saved model, a checkpoint, or a directory of checkpoints (the latest)"},
        {.name = "data",
         .kind = CLI_TEXT,
         .value = &o->data,
         .what = "EXPR",
         .help = "the data, batched"},
        {.name = "replicas",
         .kind = CLI_INT,
         .value = &o->replicas,
         .given = &o->has_replicas,
         .what = "N",
         .min = 1,
         .max = MR_MAX_REPLICAS,
         .help = "number of replicas, distributed over the devices (default: one for each GPU, or "
                 "one)"},
        {.name = "devices",
         .kind = CLI_TEXT,
         .value = &o->devices,
         .what = "LIST",
         .help = "one replica on each of these, as in cpu:0,cpu:1"}};
    memcpy(table, flags, sizeof flags);
}

/* ---- evaluate ---- */

static int evaluate(int argc, char **argv);

const cli_command cli_evaluate = {
    .name = "evaluate",
    .summary = "computes loss and metrics of a saved model over data",
    .usage = "--saved DIR --data EXPR [--loss LOSS] [--loss-weights WEIGHTS]\n"
             "    [--metrics NAME...] [--replicas N | --devices LIST] [OPTIONS]",
    .details = "The loss and the metrics are those of training unless others are given.\n"
               "In a cluster the workers share the data, and the chief prints. One object:\n"
               "  {\"eval_loss\": 0.5, \"eval_accuracy\": 0.75}",
    .run = evaluate,
};

/* Checks that the requested names can be parsed. Returns -1, or an exit status. */
static int check_words(const use_opts *o)
{
    mr_status st;
    mr_loss *loss = NULL;
    mr_code rc =
        o->loss ? train_of_graph("--loss", mr_loss_parse(&loss, o->loss, &st), &st) : MR_OK;
    mr_loss_free(loss);
    for (size_t i = 0; i < o->metrics.n && rc == MR_OK; i++) {
        mr_metric *m = NULL;
        rc = train_of_graph("--metrics", mr_metric_parse(&m, o->metrics.v[i], &st), &st);
        mr_metric_free(m);
    }
    return rc == MR_OK ? -1 : cli_fail(&st, CLI_USAGE);
}

static mr_code evaluate_parts(use_opts *o, use_parts *p, mr_fit_opts *opts, mr_status *st)
{
    mr_fit_result r;
    opts->metrics = o->metrics.v;
    MR_TRY(open_parts(o, p, opts, st));
    const char *loss = o->loss ? o->loss : mr_saved_loss(p->saved);
    if (!loss)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "the model was saved without a loss: give it with --loss");
    MR_TRY(mr_loss_parse(&p->loss, loss, st));
    if (o->loss_weights)
        MR_TRY(train_of_graph("--loss-weights", mr_loss_weigh(p->loss, o->loss_weights, st), st));
    size_t n = o->has_metrics ? o->metrics.n : mr_saved_n_metrics(p->saved);
    const char *names[MR_MAX_METRICS];
    for (size_t i = 0; i < n && i < MR_MAX_METRICS; i++)
        names[i] = o->has_metrics ? o->metrics.v[i] : mr_saved_metric(p->saved, i);
    opts->metrics = names;
    opts->n_metrics = n;
    MR_TRY(train_of_graph("--data",
                          mr_evaluate(p->strategy, p->model, p->data, p->loss, opts, &r, st), st));
    if (mr_strategy_worker(p->strategy) == 0) /* the chief prints for all */
        train_print_evaluation(&r, names, n);
    return MR_OK;
}

static int evaluate(int argc, char **argv)
{
    use_opts o = {0};
    use_parts p = {0};
    mr_status st;
    int64_t elastic = 0;
    cli_flag run_flags[CLI_RUN_FLAGS],
        flags[SHARED_FLAGS + 5] = {
            [SHARED_FLAGS] = {.name = "loss",
                              .kind = CLI_TEXT,
                              .value = &o.loss,
                              .what = "LOSS",
                              .help = "a loss other than that of training"},
            [SHARED_FLAGS + 1] = {.name = "metrics",
                                  .kind = CLI_TEXTS,
                                  .value = &o.metrics,
                                  .given = &o.has_metrics,
                                  .what = "NAME...",
                                  .help = "metrics other than those of training"},
            [SHARED_FLAGS + 2] = {.name = "loss-weights",
                                  .kind = CLI_TEXT,
                                  .value = &o.loss_weights,
                                  .what = "WEIGHTS",
                                  .help = "loss weights other than those of training"},
            [SHARED_FLAGS + 3] = {.name = "elastic",
                                  .kind = CLI_INT,
                                  .value = &elastic,
                                  .what = "S",
                                  .min = 1,
                                  .max = 65536,
                                  .help = "cut the data into S streams, as in training"}};
    shared_flags(&o, flags);
    o.metrics.v = cli_words(argc);
    cli_run_flags(&o.run, run_flags, false);
    int status = begin(&cli_evaluate, flags, run_flags, &o, &p, argc, argv);
    if (status < 0)
        status = check_words(&o);
    if (status < 0) {
        mr_fit_opts opts = {.iterator = &o.run.opts, .elastic_streams = elastic};
        status = evaluate_parts(&o, &p, &opts, &st) == MR_OK ? cli_flush(CLI_OK) : end(&st);
    }
    reset(&p);
    mr_free(o.metrics.v);
    return status;
}

/* ---- predict ---- */

static int predict(int argc, char **argv);

const cli_command cli_predict = {
    .name = "predict",
    .summary = "prints the predictions of a saved model",
    .usage = "--saved DIR --data EXPR [--replicas N | --devices LIST] [OPTIONS]",
    .details =
        "--data yields features, or tuples that begin with them, batched. Prints\n"
        "a line of JSON for each example, in the order of the data; for a model with several\n"
        "outputs, an object. In a cluster each worker takes a part of each batch, and the chief\n"
        "prints.",
    .run = predict,
};

/* Prints a tensor as nested lists; advances *v past it. */
static void print_tensor(const float **v, int rank, const int64_t *shape)
{
    if (rank == 0) {
        cli_print_float(stdout, *(*v)++);
        return;
    }
    putchar('[');
    for (int64_t i = 0; i < shape[0]; i++) {
        if (i > 0)
            fputs(", ", stdout);
        print_tensor(v, rank - 1, shape + 1);
    }
    putchar(']');
}

/* A list, or an object of those of several outputs. */
static mr_code print_predictions(void *ctx, const mr_array *p, mr_status *st)
{
    const mr_model *m = *(mr_model *const *)ctx;
    size_t n = mr_model_n_outputs(m);
    const float *v[MR_MAX_OUTPUTS];
    for (size_t i = 0; i < n; i++)
        v[i] = p[i].data;
    for (int64_t row = 0; row < p->shape[0]; row++) {
        for (size_t i = 0; i < n; i++) {
            if (n > 1)
                printf("%s\"%s\": ", i ? ", " : "{", mr_model_output_name(m, i));
            print_tensor(&v[i], p[i].rank - 1, p[i].shape + 1);
        }
        puts(n > 1 ? "}" : "");
    }
    if (cli_interrupted())
        return mr_fail(st, MR_CANCELLED, "interrupted");
    return ferror(stdout) ? mr_fail(st, MR_UNAVAILABLE, "cannot write the predictions") : MR_OK;
}

static int predict(int argc, char **argv)
{
    use_opts o = {0};
    use_parts p = {0};
    mr_status st;
    cli_flag run_flags[CLI_RUN_FLAGS], flags[SHARED_FLAGS + 1] = {{0}};
    shared_flags(&o, flags);
    cli_run_flags(&o.run, run_flags, false);
    int status = begin(&cli_predict, flags, run_flags, &o, &p, argc, argv);
    if (status < 0) {
        /* As mr_predict divides the data, so that the check agrees with it. */
        const mr_fit_opts opts = {
            .iterator = &o.run.opts, .has_auto_shard = true, .auto_shard = MR_SHARD_DATA};
        mr_code rc = open_parts(&o, &p, &opts, &st);
        if (rc == MR_OK)
            rc = train_of_graph(
                "--data",
                mr_predict(p.strategy, p.model, p.data, print_predictions, &p.model, &opts, &st),
                &st);
        status = rc == MR_OK ? cli_flush(CLI_OK) : end(&st);
    }
    reset(&p);
    return status;
}
