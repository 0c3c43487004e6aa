/* SPDX-License-Identifier: Apache-2.0 */
/* millrace train: the program that `millrace train` executes. trainer/ does the training; this
 * file has the flags, the progress bar and the log. */
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include <millrace/pipeline/graph/rewrite.h>
#include <millrace/pipeline/log.h>
#include <millrace/pipeline/memory/alloc.h>
#include <millrace/shard/cluster/cluster.h>
#include <millrace/trainer/loop/callback.h>
#include <millrace/trainer/loop/fit.h>
#include <millrace/trainer/objectives/optimizer.h>
#include <millrace/trainer/exchange/saved_model.h>
#include <millrace/trainer/strategy/strategy.h>
#include <millrace/transport/service/service.h>
#include "../bench.h"
#include "../cli.h"
#include "../ledger_flag.h"
#include "train.h"
#include "train_processes.h"
#include "train_progress.h"
#include "train_trace.h"

static int train(int argc, char **argv);
static char **as_started; /* the words of the command line; lists in argv are cut in place */

static const cli_command command = {
    .name = "train",
    .summary = "trains a model on one or more replicas and processes",
    .usage =
        "--data EXPR --model MODEL --loss LOSS --optimizer OPT\n"
        "    [--loss-weights WEIGHTS] [--validation EXPR] [--eval EXPR] [--steps-per-epoch N]\n"
        "    [--validation-steps N] [--class-weights WEIGHTS] [--callback CALL...]\n"
        "    [--replicas N | --devices LIST] [--epochs N] [--steps N] [--metrics NAME...]\n"
        "    [--weighted-metrics NAME...]\n"
        "    [--strategy S] [--from-function] [--auto-shard POLICY | --elastic S] "
        "[--check-replicas]\n"
        "    [--processes P [--restarts N] [--min-processes M]]\n"
        "    [--init DIR] [--save DIR] [--resume-changed] [--restart-epoch] [--trace FILE]\n"
        "    [OPTIONS]",
    .details =
        "--data yields (features, labels), batched with the global batch size. --steps alone\n"
        "repeats the data as often as needed, --epochs alone stops after that many passes; with\n"
        "both, training stops at whichever comes first; with neither, after one pass. --log json\n"
        "prints an object for each step, epoch and evaluation:\n"
        "  {\"step\": 1, \"epoch\": 1, \"loss\": 0.9024367}\n"
        "In a cluster (TF_CONFIG, a Slurm step, torchrun or mpirun) each process trains on its\n"
        "share of the data, and gradients are summed over all of them. They find each other, and\n"
        "compare their options, before the first step. Only the chief prints, except that with\n"
        "TF_CONFIG and --log json all print the same. torchrun has options that begin with\n"
        "--log: write -- before the command, torchrun ... --no-python -- millrace train ...",
    .run = train,
};

typedef struct train_opts {
    cli_run run;
    const char *data, *eval, *validation, *model, *loss, *loss_weights, *optimizer, *devices, *log;
    const char *strategy, *communication, *cross_device_ops, *auto_shard, *init, *save,
        *partitioner, *ledger, *trace;
    int64_t replicas, epochs, steps, steps_per_epoch, validation_steps, connect_timeout,
        peer_timeout, elastic;
    const char *class_weights;
    double *weights;           /* of the classes */
    size_t n_weights, n_added; /* metrics that are weighted(...) of weighted_metrics */
    cli_texts metrics, weighted_metrics, callbacks;
    mr_cluster cluster;
    train_processes processes;
    bool has_replicas, json, bar;
    bool silent; /* the chief prints */
    bool check_replicas, keep_servers, any_user, from_function, mixed_precision;
    bool no_cuda_graph, resume_changed, restart_epoch, by_name;
} train_opts;

static mr_code evaluate(const train_opts *o, mr_strategy *s, mr_model *m, mr_dataset *ds,
                        mr_loss *loss, const mr_fit_opts *opts, mr_status *st)
{
    mr_fit_result r;
    mr_fit_opts all = *opts;
    all.steps = 0;
    MR_TRY(mr_evaluate(s, m, ds, loss, &all, &r, st));
    if (o->silent)
        return MR_OK;
    if (o->json) {
        train_print_evaluation(&r, opts->metrics, opts->n_metrics);
        return MR_OK;
    }
    printf("test: loss %.4f", train_number((double)r.loss));
    train_print_results("", &r, opts->metrics, opts->n_metrics, false);
    printf("  (%" PRId64 " examples)\n", r.rows);
    return MR_OK;
}

typedef struct parts {
    mr_dataset *data, *eval, *validation;
    mr_saved *init;
    mr_model *model;
    mr_loss *loss;
    mr_optimizer *optimizer;
    mr_strategy *strategy;
    mr_callback *callbacks; /* the requested ones, after the one that prints */
    size_t n_callbacks;
    mr_timeline *timeline; /* NULL: there is no --trace */
} parts;

/* An mr_input_fn: --data, for one worker where it is an input function. */
static mr_code make_data(void *ctx, const mr_input_context *c, mr_dataset **out, mr_status *st)
{
    const train_opts *o = ctx;
    mr_input_env env;
    mr_input_env_init(&env, c);
    return mr_dataset_from_text(o->data, strlen(o->data), o->from_function ? &env.env : NULL, out,
                                st);
}

static mr_code parse_graph(const char *flag, const char *text, mr_dataset **out, mr_status *st)
{
    if (!text)
        return MR_OK;
    return train_of_graph(flag, mr_dataset_from_text(text, strlen(text), NULL, out, st), st);
}

static mr_code parse_lists(const train_opts *o, parts *p, mr_status *st)
{
    for (size_t i = 0; i < o->metrics.n; i++) {
        mr_metric *m = NULL;
        MR_TRY(train_of_graph("--metrics", mr_metric_parse(&m, o->metrics.v[i], st), st));
        mr_metric_free(m);
    }
    p->callbacks = mr_calloc(o->callbacks.n + 1, sizeof *p->callbacks);
    if (!p->callbacks)
        return mr_fail_memory(st, o->callbacks.n * sizeof *p->callbacks, "callbacks");
    for (p->n_callbacks = 1; p->n_callbacks <= o->callbacks.n; p->n_callbacks++)
        MR_TRY(train_of_graph("--callback",
                              mr_callback_parse(&p->callbacks[p->n_callbacks],
                                                o->callbacks.v[p->n_callbacks - 1], st),
                              st));
    return MR_OK;
}

static mr_code parse_parts(train_opts *o, parts *p, mr_status *st)
{
    const mr_input_context alone = MR_INPUT_CONTEXT_ALONE;
    mr_dataset *data;
    MR_TRY(train_of_graph("--data", make_data(o, &alone, &data, st), st));
    if (o->from_function) /* its text is valid; each worker calls it */
        mr_dataset_unref(data);
    else
        p->data = data;
    MR_TRY(parse_graph("--eval", o->eval, &p->eval, st));
    MR_TRY(parse_graph("--validation", o->validation, &p->validation, st));
    MR_TRY(train_of_graph("--model", mr_model_parse(&p->model, o->model, st), st));
    MR_TRY(train_of_graph("--loss", mr_loss_parse(&p->loss, o->loss, st), st));
    if (o->loss_weights)
        MR_TRY(train_of_graph("--loss-weights", mr_loss_weigh(p->loss, o->loss_weights, st), st));
    MR_TRY(train_of_graph("--optimizer", mr_optimizer_parse(&p->optimizer, o->optimizer, st), st));
    if (o->class_weights)
        MR_TRY(train_of_graph(
            "--class-weights",
            train_read_class_weights(o->class_weights, &o->weights, &o->n_weights, st), st));
    return parse_lists(o, p, st);
}

/* Builds the model and loads the weights of --init. */
static mr_code take_weights(const train_opts *o, parts *p, mr_status *st)
{
    if (!o->init)
        return MR_OK;
    MR_TRY(mr_saved_open(&p->init, o->init, st));
    return mr_saved_build(
        p->init, p->model, p->strategy,
        &(mr_model_opts){.seed = o->run.opts.seed, .mixed_precision = o->mixed_precision}, st);
}

static mr_code save_model(const train_opts *o, const parts *p, mr_status *st)
{
    if (!o->save || mr_strategy_worker(p->strategy) > 0)
        return MR_OK;
    return mr_model_save(p->model, o->save,
                         &(mr_save_opts){.loss = p->loss,
                                         .optimizer = p->optimizer,
                                         .metrics = o->metrics.v,
                                         .n_metrics = o->metrics.n},
                         st);
}

/* multi_worker_mirrored, if there are workers and no other strategy was requested. */
static bool wants_workers(const train_opts *o)
{
    return mr_cluster_num_workers(&o->cluster) > 1 &&
           (!o->strategy || strcmp(o->strategy, "multi_worker_mirrored") == 0);
}

/* "millrace: mirrored, 2 replicas on cpu:0, cpu:1, sums by hierarchical_copy" */
static void say_strategy(mr_strategy *s)
{
    size_t n = mr_strategy_num_local_replicas(s);
    fprintf(stderr, "millrace: %s, %zu replicas on ", mr_strategy_name(s), n);
    for (size_t i = 0; i < n && i < 8; i++)
        fprintf(stderr, "%s%s", i ? ", " : "",
                mr_device_name(mr_replica_device(mr_strategy_replica(s, i))));
    fprintf(stderr, "%s, sums by %s\n", n > 8 ? ", ..." : "", mr_strategy_communication(s));
}

static void join(const cli_texts *t, char *out, size_t size)
{
    *out = '\0';
    for (size_t i = 0, at = 0; i < t->n && at < size; i++)
        at += (size_t)snprintf(out + at, size - at, "%s%s", i ? "," : "", t->v[i]);
}

/* The options that must be the same in all processes. */
static mr_code open_named(const train_opts *o, parts *p, const mr_strategy_opts *opts,
                          mr_status *st)
{
    char seed[24] = "none", epochs[24], streams[24], steps[24], per_epoch[24], metrics[512],
         callbacks[4096];
    char validation_steps[24];
    join(&o->metrics, metrics, sizeof metrics);
    join(&o->callbacks, callbacks, sizeof callbacks);
    if (o->run.opts.has_seed)
        snprintf(seed, sizeof seed, "%" PRIu64, o->run.opts.seed);
    snprintf(streams, sizeof streams, "%" PRId64, o->elastic);
    snprintf(epochs, sizeof epochs, "%" PRId64, o->epochs);
    snprintf(steps, sizeof steps, "%" PRId64, o->steps);
    snprintf(per_epoch, sizeof per_epoch, "%" PRId64, o->steps_per_epoch);
    snprintf(validation_steps, sizeof validation_steps, "%" PRId64, o->validation_steps);
    const mr_job_fact facts[] = {{"strategy", "multi_worker_mirrored"},
                                 {"data", o->data},
                                 {"kind of data", o->from_function ? "a function" : "a dataset"},
                                 {"policy of sharding", o->auto_shard ? o->auto_shard : "none"},
                                 {"elastic streams", streams},
                                 {"model", o->model},
                                 {"loss", mr_loss_text(p->loss)},
                                 {"optimizer", o->optimizer},
                                 {"seed", seed},
                                 {"number of epochs", epochs},
                                 {"number of steps", steps},
                                 {"number of steps in an epoch", per_epoch},
                                 {"validation", o->validation ? o->validation : "none"},
                                 {"number of validation steps", validation_steps},
                                 {"class weights", o->class_weights ? o->class_weights : "none"},
                                 {"list of metrics", metrics},
                                 {"list of callbacks", callbacks},
                                 {"evaluation", o->eval ? o->eval : "none"},
                                 {"precision", o->mixed_precision ? "mixed" : "float32"},
                                 {"check of replicas", o->check_replicas ? "on" : "off"},
                                 {"restart of the epoch", o->restart_epoch ? "on" : "off"}};
    const mr_workers_opts workers = {.cluster = &o->cluster,
                                     .facts = facts,
                                     .n_facts = sizeof facts / sizeof *facts,
                                     .connect_timeout_s = (double)o->connect_timeout,
                                     .peer_timeout_s = (double)o->peer_timeout,
                                     .cancel = cli_cancel(),
                                     .communication = o->communication,
                                     .any_user = o->any_user,
                                     .keep_servers = o->keep_servers,
                                     .variable_partitioner = o->partitioner};
    MR_TRY(mr_strategy_by_name(&p->strategy, o->strategy, opts, &workers, st));
    if (o->strategy && strcmp(o->strategy, "parameter_server") == 0)
        fprintf(stderr, "millrace: parameter_server, %zu servers, %zu workers\n",
                o->cluster.tasks[MR_TASK_PS].n, o->cluster.tasks[MR_TASK_WORKER].n);
    else if (mr_strategy_num_workers(p->strategy) < 2) {
        if (mr_strategy_num_local_replicas(p->strategy) > 1)
            say_strategy(p->strategy);
    } else if (mr_cluster_is_chief(&o->cluster))
        fprintf(stderr, "millrace: %zu workers by %s, %zu replicas in sync, sums by %s\n",
                mr_strategy_num_workers(p->strategy), mr_cluster_source_name(o->cluster.source),
                mr_strategy_num_replicas_in_sync(p->strategy),
                mr_strategy_communication(p->strategy));
    return MR_OK;
}

static mr_code open_strategy(const train_opts *o, parts *p, mr_status *st)
{
    train_devices d;
    MR_TRY(train_devices_read(&d, o->devices, o->has_replicas ? o->replicas : 0, st));
    d.opts.cross_device_ops = o->cross_device_ops;
    mr_code rc = open_named(o, p, &d.opts, st);
    train_devices_reset(&d);
    return rc;
}

static mr_shard_policy policy_of(const char *name)
{
    int p = MR_SHARD_AUTO;
    while (strcasecmp(mr_shard_policy_name((mr_shard_policy)p), name) != 0)
        p++; /* the flag accepts no other names */
    return (mr_shard_policy)p;
}

static volatile sig_atomic_t terminated;

static void on_terminate(int sig)
{
    terminated = 1;
    signal(sig, SIG_DFL); /* a second one ends the program at once */
}

static bool is_terminated(void *ctx)
{
    (void)ctx;
    return terminated;
}

/* If a callback saves at the end, SIGTERM ends training after the current step. */
static void stop_on_termination(const parts *p, mr_fit_opts *opts)
{
    const struct sigaction act = {.sa_handler = on_terminate};
    for (size_t i = 0; i < p->n_callbacks; i++)
        if (p->callbacks[i].backs_up && !opts->stopping) {
            sigaction(SIGTERM, &act, NULL);
            opts->stopping = is_terminated;
        }
}

static bool is_evaluator(const train_opts *o)
{
    return o->cluster.has_task && o->cluster.type == MR_TASK_EVALUATOR;
}

static mr_code follow_training(const train_opts *o, const parts *p, mr_status *st)
{
    const mr_fit_opts opts = {
        .metrics = o->metrics.v, .n_metrics = o->metrics.n, .iterator = &o->run.opts};
    const train_evaluator e = {.strategy = p->strategy,
                               .model = p->model,
                               .data = p->eval ? p->eval : p->validation,
                               .loss = p->loss,
                               .opts = &opts,
                               .callbacks = p->callbacks,
                               .n_callbacks = p->n_callbacks,
                               .json = o->json};
    return train_evaluate_checkpoints(&e, st);
}

static mr_code open_trace(const train_opts *o, parts *p, mr_status *st)
{
    MR_TRY(train_trace_check(o->trace, st));
    return mr_timeline_new(&p->timeline, TRAIN_TRACE_SPANS, st);
}

/* How much of the time of the sums overlapped with the backward pass. */
static void say_overlap(mr_collective *c, int64_t steps)
{
    mr_collective_times t;
    mr_collective_measured(c, &t);
    if (t.seconds > 0)
        mr_log(MR_LOG_INFO,
               "sums ran for %.3f ms per step, of which replicas waited for %.3f ms: %.0f %% "
               "overlapped with other work",
               1e3 * t.seconds / (double)steps, 1e3 * t.exposed_seconds / (double)steps,
               100 * (1 - t.exposed_seconds / t.seconds));
}

/* The exit status after an error. */
static int status_of(const train_opts *o, const parts *p, const mr_status *st)
{
    bool lost = p->strategy ? mr_strategy_lost_peer(p->strategy)
                            : wants_workers(o) && st->code == MR_UNAVAILABLE;
    return lost ? CLI_AGAIN : CLI_FAILED;
}

static int run_parts(train_opts *o, parts *p)
{
    mr_status st;
    if (open_strategy(o, p, &st) != MR_OK)
        return cli_interrupted()
                   ? CLI_INTERRUPTED
                   : cli_fail(&st,
                              st.code == MR_INVALID_ARGUMENT ? CLI_USAGE : status_of(o, p, &st));
    if (is_evaluator(o)) {
        if (follow_training(o, p, &st) == MR_OK)
            return cli_flush(CLI_OK);
        return cli_interrupted()
                   ? CLI_INTERRUPTED
                   : cli_fail(&st, st.code == MR_INVALID_ARGUMENT ? CLI_USAGE : CLI_FAILED);
    }
    train_progress at = {.json = o->json,
                         .bar = o->bar,
                         .silent = o->silent,
                         .epochs = o->epochs,
                         .steps = o->steps,
                         .trace = o->trace,
                         .steps_in_epoch = o->steps_per_epoch ? o->steps_per_epoch
                                           : p->data          ? mr_dataset_cardinality(p->data)
                                                              : MR_UNKNOWN_COUNT};
    mr_iterator_opts read_opts = o->run.opts;
    p->callbacks[0] = train_progress_callback(&at);
    mr_fit_opts opts = {.epochs = o->epochs,
                        .steps = o->steps,
                        .steps_per_epoch = o->steps_per_epoch,
                        .validation = p->validation,
                        .validation_steps = o->validation_steps,
                        .class_weights = o->weights,
                        .n_class_weights = o->n_weights,
                        .evaluation = p->eval,
                        .metrics = o->metrics.v,
                        .n_metrics = o->metrics.n,
                        .callbacks = p->callbacks,
                        .n_callbacks = p->n_callbacks,
                        .print = train_progress_print,
                        .print_ctx = &at,
                        .seed = o->run.opts.seed,
                        .ledger = o->ledger,
                        .iterator = &read_opts,
                        .mixed_precision = o->mixed_precision,
                        .check_replicas = o->check_replicas,
                        .no_cuda_graph = o->no_cuda_graph,
                        .resume_changed = o->resume_changed,
                        .restart_epoch = o->restart_epoch};
    opts.elastic_streams = o->elastic;
    if (o->from_function) {
        opts.input = make_data;
        opts.input_ctx = o;
    }
    if (o->auto_shard) {
        opts.has_auto_shard = true;
        opts.auto_shard = policy_of(o->auto_shard);
    }
    mr_fit_result r;
    mr_code rc = train_of_graph("--data", mr_check_data(p->strategy, p->data, &opts, &st), &st);
    if (rc == MR_OK && p->validation)
        rc = train_of_graph("--validation", mr_check_data(p->strategy, p->validation, &opts, &st),
                            &st);
    if (rc == MR_OK && p->eval)
        rc = train_of_graph("--eval", mr_check_data(p->strategy, p->eval, &opts, &st), &st);
    if (rc == MR_OK && o->save && mr_strategy_worker(p->strategy) == 0)
        rc = train_of_graph("--save", mr_check_save_path(o->save, &st), &st);
    if (rc == MR_OK)
        rc = train_of_graph("--init", take_weights(o, p, &st), &st);
    if (rc == MR_OK && o->trace)
        rc = train_of_graph("--trace", open_trace(o, p, &st), &st);
    opts.timeline = p->timeline;
    mr_collective *sums = mr_strategy_collective(p->strategy);
    if (rc == MR_OK && o->run.verbose)
        rc = mr_collective_measure(sums, &st);
    stop_on_termination(p, &opts);
    train_progress_start(&at, p->data, &read_opts);
    read_opts.trace_spans = o->trace ? BENCH_TRACE_SPANS : 0;
    if (rc == MR_OK)
        rc = mr_fit(p->strategy, p->model, p->data, p->loss, p->optimizer, &opts, &r, &st);
    else
        mr_strategy_abandon(p->strategy, &st);
    read_opts.on_read = NULL;
    read_opts.trace_spans = 0;
    if (rc == MR_OK && r.stopped)
        return cli_flush(128 + SIGTERM);
    if (rc == MR_OK)
        rc = train_of_graph("--save", save_model(o, p, &st), &st);
    if (rc == MR_OK) {
        train_progress_end(&at, &r);
        say_overlap(sums, r.steps);
    }
    read_opts.memory_follows = true;
    if (rc == MR_OK && p->eval)
        rc = train_of_graph("--eval",
                            evaluate(o, p->strategy, p->model, p->eval, p->loss, &opts, &st), &st);
    if (rc != MR_OK) {
        if (o->bar)
            putchar('\n');
        return cli_interrupted() ? CLI_INTERRUPTED : cli_fail(&st, status_of(o, p, &st));
    }
    return cli_flush(at.failed ? CLI_FAILED : CLI_OK);
}

/* Of --processes. */
static int check_processes(const train_opts *o)
{
    const train_processes *p = &o->processes;
    if (!p->has_n && (p->has_restarts || p->has_least))
        return cli_usage(&command, "--restarts and --min-processes need --processes");
    if (p->has_least && p->least > p->n)
        return cli_usage(&command, "--min-processes is more than --processes");
    if (p->has_least && !p->has_restarts)
        return cli_usage(&command, "--min-processes needs --restarts");
    if (p->has_n && (o->strategy && strcmp(o->strategy, "multi_worker_mirrored") != 0))
        return cli_usage(&command, "--processes needs the strategy multi_worker_mirrored");
    return -1;
}

/* The parent of --processes: the graph was parsed, so errors of usage were reported once. */
static int run_processes(train_opts *o, const parts *p)
{
    bool backed_up = false;
    for (size_t i = 0; i < p->n_callbacks; i++)
        backed_up = backed_up || p->callbacks[i].backs_up;
    if (o->cluster.has_task)
        return cli_usage(&command, "--processes starts a new job, but this process is one "
                                   "of a cluster already");
    if (o->processes.restarts > 0 && !backed_up)
        return cli_usage(
            &command, "--restarts needs --callback 'backup_and_restore(\"DIR\")', from which the "
                      "job continues");
    o->processes.peer_timeout = o->peer_timeout;
    return train_run_processes(&o->processes, as_started);
}

/* The cluster, if this process is part of one. Returns -1, or an exit status. */
static int find_cluster(train_opts *o)
{
    mr_status st;
    int64_t rank;
    if (mr_cluster_from_launcher(&o->cluster, &st) != MR_OK)
        return cli_fail(&st, CLI_USAGE);
    if (mr_cluster_worker(&o->cluster, &rank, &st) != MR_OK)
        return cli_fail(&st, CLI_FAILED);
    /* The processes of a launcher write to one place. Those of TF_CONFIG do not. */
    bool apart = o->json && o->cluster.source == MR_CLUSTER_TF_CONFIG;
    o->silent = wants_workers(o) && !mr_cluster_is_chief(&o->cluster) && !apart;
    return -1;
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
        return cli_usage(&command, "--replicas and --devices cannot be combined");
    return -1;
}

static int train(int argc, char **argv)
{
    static const char *const logs[] = {"json", "text", NULL};
    static const char *const strategies[] = {
        "default",         "one_device",       "mirrored", "multi_worker_mirrored",
        "central_storage", "parameter_server", "tpu",      NULL};
    static const char *const cross_device_ops[] = {"auto", "nccl", "hierarchical_copy",
                                                   "reduction_to_one_device", NULL};
    static const char *const communications[] = {"auto", "ring", "nccl", "mpi", NULL};
    static const char *const policies[] = {"auto", "file", "data", "off", "hint", "range", NULL};
    train_opts o = {.replicas = 1, .connect_timeout = 60, .peer_timeout = 20};
    o.metrics.v = cli_words(argc);
    o.weighted_metrics.v = cli_words(argc);
    o.callbacks.v = cli_words(argc);
    cli_flag run_flags[CLI_RUN_FLAGS], cluster_flags[CLI_CLUSTER_FLAGS];
    cli_run_flags(&o.run, run_flags, false);
    cli_cluster_flags(&o.run, cluster_flags);
    const cli_flag flags[] = {
        /* what is trained, on what */
        {.name = "data",
         .kind = CLI_TEXT,
         .value = &o.data,
         .what = "EXPR",
         .help = "data to train on"},
        {.name = "validation",
         .kind = CLI_TEXT,
         .value = &o.validation,
         .what = "EXPR",
         .help = "data to evaluate on after every epoch"},
        {.name = "validation-steps",
         .kind = CLI_INT,
         .value = &o.validation_steps,
         .what = "N",
         .min = 1,
         .max = INT64_MAX,
         .help = "number of batches of --validation to evaluate (default: all)"},
        {.name = "eval",
         .kind = CLI_TEXT,
         .value = &o.eval,
         .what = "EXPR",
         .help = "data to evaluate on after training"},
        {.name = "from-function",
         .kind = CLI_SWITCH,
         .value = &o.from_function,
         .help = "--data is an input function, which does its own sharding: it may use "
                 "num_input_pipelines, input_pipeline_id, num_replicas_in_sync and "
                 "per_replica_batch_size"},
        {.name = "model",
         .kind = CLI_TEXT,
         .value = &o.model,
         .what = "MODEL",
         .help = "layers, such as 'flatten().dense(128, activation=\"relu\").dense(10)'"},
        {.name = "loss",
         .kind = CLI_TEXT,
         .value = &o.loss,
         .what = "LOSS",
         .help = "such as 'sparse_categorical_crossentropy(from_logits=true)'; for several outputs "
                 "{\"a\": mse, \"b\": mae}"},
        {.name = "loss-weights",
         .kind = CLI_TEXT,
         .value = &o.loss_weights,
         .what = "WEIGHTS",
         .help = "weights of the losses of several outputs, such as {\"a\": 1.0, \"b\": 0.5}"},
        {.name = "optimizer",
         .kind = CLI_TEXT,
         .value = &o.optimizer,
         .what = "OPT",
         .help = "such as 'adam(learning_rate=0.001)'"},
        {.name = "metrics",
         .kind = CLI_TEXTS,
         .value = &o.metrics,
         .what = "NAME...",
         .help = "such as accuracy; for one of several outputs a.accuracy"},
        {.name = "weighted-metrics",
         .kind = CLI_TEXTS,
         .value = &o.weighted_metrics,
         .what = "NAME...",
         .help = "metrics with sample and class weights, as weighted(accuracy) in --metrics"},
        {.name = "class-weights",
         .kind = CLI_TEXT,
         .value = &o.class_weights,
         .what = "WEIGHTS",
         .help = "factors of the losses of each class in training: 1.0,5.0 from class 0 on, or "
                 "1:5.0,3:2.0 for some classes; default: 1"},
        {.name = "mixed-precision",
         .kind = CLI_SWITCH,
         .value = &o.mixed_precision,
         .help = "bfloat16 math in dense layers and convolutions, with float32 variables"},
        /* how long */
        {.name = "epochs",
         .kind = CLI_INT,
         .value = &o.epochs,
         .what = "N",
         .min = 1,
         .max = INT64_MAX,
         .help = "pass over the data N times"},
        {.name = "steps",
         .kind = CLI_INT,
         .value = &o.steps,
         .what = "N",
         .min = 1,
         .max = INT64_MAX,
         .help = "stop after N steps"},
        {.name = "steps-per-epoch",
         .kind = CLI_INT,
         .value = &o.steps_per_epoch,
         .what = "N",
         .min = 1,
         .max = INT64_MAX,
         .help = "number of steps in an epoch (default: a pass over the data)"},
        /* saving, resuming, output */
        {.name = "init",
         .kind = CLI_TEXT,
         .value = &o.init,
         .what = "DIR",
         .help = "start with the weights of a saved model or checkpoint"},
        {.name = "save",
         .kind = CLI_TEXT,
         .value = &o.save,
         .what = "DIR",
         .help = "save the model in DIR after training"},
        {.name = "callback",
         .kind = CLI_TEXTS,
         .value = &o.callbacks,
         .what = "CALL...",
         .help = "such as 'early_stopping(patience=3)'; may be repeated"},
        {.name = "resume-changed",
         .kind = CLI_SWITCH,
         .value = &o.resume_changed,
         .help = "continue from a backup although the seed, or settings of the model, the loss or "
                 "the optimizer, have changed"},
        {.name = "restart-epoch",
         .kind = CLI_SWITCH,
         .value = &o.restart_epoch,
         .help = "restart the interrupted epoch from its first step; needed if other processes, "
                 "replicas, data or seeds cannot continue it"},
        {.name = "restore-by-name",
         .kind = CLI_SWITCH,
         .value = &o.by_name,
         .help = "continue from a backup although the sources or weights of mix differ"},
        {.name = "log",
         .kind = CLI_TEXT,
         .value = &o.log,
         .what = "FORMAT",
         .words = logs,
         .help = "json: one object per line; text (default): one line per epoch, and a bar on a "
                 "terminal"},
        cli_ledger_flag(&o.ledger),
        {.name = "trace",
         .kind = CLI_TEXT,
         .value = &o.trace,
         .what = "FILE",
         .help = "write a trace of the training data's operations and of each step's submission "
                 "and run, for Perfetto or chrome://tracing"},
        /* devices and processes */
        {.name = "replicas",
         .kind = CLI_INT,
         .value = &o.replicas,
         .given = &o.has_replicas,
         .what = "N",
         .min = 1,
         .max = 256,
         .help = "number of replicas, distributed over the devices (default: one for each GPU, or "
                 "one)"},
        {.name = "devices",
         .kind = CLI_TEXT,
         .value = &o.devices,
         .what = "LIST",
         .help = "one replica on each of these, as in cpu:0,cpu:1; cuda means every GPU"},
        {.name = "strategy",
         .kind = CLI_TEXT,
         .value = &o.strategy,
         .what = "S",
         .words = strategies,
         .help = "how replicas share variables (default: multi_worker_mirrored in a cluster, "
                 "else mirrored, else one_device)"},
        {.name = "cross-device-ops",
         .kind = CLI_TEXT,
         .value = &o.cross_device_ops,
         .what = "O",
         .words = cross_device_ops,
         .help = "how the replicas of a process sum gradients (default auto: nccl if each has a "
                 "GPU, else hierarchical_copy)"},
        {.name = "no-cuda-graph",
         .kind = CLI_SWITCH,
         .value = &o.no_cuda_graph,
         .help = "submit the operations of a step to GPUs one at a time, not as CUDA graphs"},
        {.name = "check-replicas",
         .kind = CLI_SWITCH,
         .value = &o.check_replicas,
         .help = "compare the variables of all replicas after each step"},
        {.name = "processes",
         .kind = CLI_INT,
         .value = &o.processes.n,
         .given = &o.processes.has_n,
         .what = "P",
         .min = 1,
         .max = 1024,
         .help =
             "start P processes on this host, with --replicas replicas each, and wait for them"},
        {.name = "restarts",
         .kind = CLI_INT,
         .value = &o.processes.restarts,
         .given = &o.processes.has_restarts,
         .what = "N",
         .max = 1000000,
         .help = "restart them up to N times if one of them is lost; needs backup_and_restore"},
        {.name = "min-processes",
         .kind = CLI_INT,
         .value = &o.processes.least,
         .given = &o.processes.has_least,
         .what = "M",
         .min = 1,
         .max = 1024,
         .help =
             "restart with P minus the processes killed by a signal, but at least M (default: P)"},
        {.name = "communication",
         .kind = CLI_TEXT,
         .value = &o.communication,
         .what = "C",
         .words = communications,
         .help = "how processes sum gradients: ring (TCP and shared memory), nccl (GPUs, one for "
                 "each replica), mpi (started by mpirun) or auto"},
        {.name = "auto-shard",
         .kind = CLI_TEXT,
         .value = &o.auto_shard,
         .what = "POLICY",
         .words = policies,
         .help = "how processes share the data: auto, file, data, off, hint or range"},
        {.name = "elastic",
         .kind = CLI_INT,
         .value = &o.elastic,
         .what = "S",
         .min = 1,
         .max = 65536,
         .help = "cut the data into S streams, so that a backup continues with any number of "
                 "processes and replicas up to S"},
        {.name = "connect-timeout",
         .kind = CLI_INT,
         .value = &o.connect_timeout,
         .what = "S",
         .min = 1,
         .max = 86400,
         .help = "seconds for the processes to find each other (default 60)"},
        {.name = "peer-timeout",
         .kind = CLI_INT,
         .value = &o.peer_timeout,
         .what = "S",
         .min = 1,
         .max = 86400,
         .help = "peer timeout in seconds (default 20)"},
        {.name = "any-user",
         .kind = CLI_SWITCH,
         .value = &o.any_user,
         .help = "admit processes of other users on this host as ranks"},
        {.name = "variable-partitioner",
         .kind = CLI_TEXT,
         .value = &o.partitioner,
         .what = "P",
         .help =
             "how parameter servers cut variables: fixed_shards(n), min_size(bytes, max_shards) "
             "or max_size(bytes)"},
        {.name = "keep-servers",
         .kind = CLI_SWITCH,
         .value = &o.keep_servers,
         .help = "leave the parameter servers and their workers running"},
        {0}};
    const cli_flag *const tables[] = {flags, cluster_flags, run_flags, NULL};
    const char **rest = cli_words(argc);
    size_t n;
    parts p = {0};
    mr_status st;
    int status = cli_parse(&command, tables, argc, argv, rest, &n);
    if (status < 0 && n)
        status = cli_usage(&command, "unexpected '%s'", rest[0]);
    if (status < 0) {
        train_split_at_commas(&o.metrics);
        train_split_at_commas(&o.weighted_metrics);
        train_add_weighted(&o.metrics, &o.weighted_metrics);
        o.n_added = o.weighted_metrics.n;
        status = missing(&o);
    }
    if (status < 0)
        status = check_processes(&o);
    if (status < 0) {
        o.json = o.log && strcmp(o.log, "json") == 0;
        if (o.json)
            cli_print_whole_lines();
        cli_run_start(&o.run);
        o.run.opts.on_mismatch = o.by_name ? MR_RESTORE_BY_NAME : MR_REFUSE_MISMATCH;
        status = find_cluster(&o);
    }
    if (status < 0) {
        o.bar = !o.json && !o.silent && isatty(STDOUT_FILENO);
        status = parse_parts(&o, &p, &st) != MR_OK ? cli_fail(&st, CLI_USAGE)
                 : o.processes.has_n               ? run_processes(&o, &p)
                                                   : run_parts(&o, &p);
    }
    mr_model_free(p.model);
    mr_loss_free(p.loss);
    mr_optimizer_free(p.optimizer);
    mr_strategy_free(p.strategy);
    mr_timeline_free(p.timeline);
    mr_cluster_reset(&o.cluster);
    mr_dataset_unref(p.data);
    mr_dataset_unref(p.eval);
    mr_dataset_unref(p.validation);
    mr_saved_close(p.init);
    for (size_t i = 1; i < p.n_callbacks; i++)
        mr_callback_reset(&p.callbacks[i]);
    mr_free(p.callbacks);
    mr_free(o.callbacks.v);
    mr_free(rest);
    for (size_t i = 0; i < o.n_added; i++) /* they are the last */
        mr_free((void *)(uintptr_t)o.metrics.v[o.metrics.n - 1 - i]);
    mr_free(o.metrics.v);
    mr_free(o.weighted_metrics.v);
    mr_free(o.weights);
    return status;
}

const cli_program cli_this = {.add_ops = mr_service_register_ops};

int main(int argc, char **argv)
{
    cli_start(argv);
    as_started = train_copy_arguments(argv);
    argc = cli_load_plugins(argc, argv);
    static const cli_command *const others[] = {&cli_devices, &cli_export,  &cli_evaluate,
                                                &cli_adapt,   &cli_predict, &cli_checkpoints,
                                                &cli_summary, &cli_server,  &cli_components};
    for (size_t i = 0; argc > 0 && i < sizeof others / sizeof *others; i++)
        if (strcmp(argv[0], others[i]->name) == 0)
            return others[i]->run(argc, argv);
    int status = train(argc, argv);
    mr_free(as_started);
    return status;
}
