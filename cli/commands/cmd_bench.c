/* SPDX-License-Identifier: Apache-2.0 */
/* millrace bench: runs a graph without printing its elements, and reports where the time went. */
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <millrace/pipeline/engine/op_iterator.h>
#include <millrace/pipeline/memory/alloc.h>
#include "../bench.h"
#include "../cli.h"
#include "distributed.h"
#include "../host_table.h"
#include "../ledger_flag.h"

enum { WANT = 32768 };

typedef struct bench_opts {
    cli_run run;
    int64_t limit, repeat, warmup;
    double seconds;
    bool has_limit, has_seconds, json, tuning;
    const char *trace_file, *ledger_file;
    mr_ledger *ledger; /* of ledger_file */
    bench_trace trace;
} bench_opts;

typedef struct result {
    int64_t elements, bytes;
    double seconds, cpu_seconds, first_element_seconds;
    long peak_rss_bytes;
    mr_op_stats *ops;
    size_t n_ops;
    mr_host_stats *hosts; /* of URLs, during the run */
    size_t n_hosts;
} result;

/* --seconds: ends the current run, also while it waits for an element. */
static mr_cancel *time_up;

static void on_alarm(int sig)
{
    (void)sig;
    mr_cancel_trigger(time_up);
}

/* seconds 0: stops the clock. */
static void set_clock(double seconds)
{
    enum { MOST = 1000000000 };
    struct sigaction act = {.sa_handler = on_alarm};
    double whole = seconds < MOST ? (double)(time_t)seconds : MOST;
    struct itimerval at = {.it_value.tv_sec = (time_t)whole};
    if (seconds < MOST)
        at.it_value.tv_usec = (suseconds_t)((seconds - whole) * 1e6);
    if (seconds > 0 && !at.it_value.tv_sec && !at.it_value.tv_usec)
        at.it_value.tv_usec = 1;
    sigaction(SIGALRM, &act, NULL);
    setitimer(ITIMER_REAL, &at, NULL);
}

static double cpu(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* The hosts of URLs before a run, and when the trace last got their counters. */
typedef struct hosts {
    mr_host_stats *before;
    size_t n;
    double traced;
} hosts;

static mr_code trace_hosts(bench_opts *o, int64_t run, double began, hosts *h, bool now,
                           mr_status *st)
{
    double at = mr_iter_now();
    if (!o->trace_file || run < 1 || (!now && at < h->traced + 0.01))
        return MR_OK;
    h->traced = at;
    return bench_trace_hosts(&o->trace, run, at - began, h->before, h->n, st);
}

static mr_code run_once(mr_iterator *it, bench_opts *o, int64_t run, double began, hosts *h,
                        result *r, mr_status *st)
{
    mr_block b = MR_BLOCK_EMPTY;
    mr_code rc = trace_hosts(o, run, began, h, true, st);
    if (rc != MR_OK)
        return rc;
    while (!o->has_limit || r->elements < o->limit) {
        size_t want =
            o->has_limit && o->limit - r->elements < WANT ? (size_t)(o->limit - r->elements) : WANT;
        if ((rc = mr_iterator_next(it, want, &b, st)) != MR_OK)
            break;
        if (!r->elements)
            r->first_element_seconds = mr_iter_now() - began;
        r->elements += (int64_t)b.rows;
        r->bytes += (int64_t)mr_block_payload_bytes(&b);
        if ((rc = trace_hosts(o, run, began, h, false, st)) != MR_OK)
            break;
    }
    mr_block_reset(&b);
    mr_status why;
    mr_code traced = trace_hosts(o, run, began, h, true, &why);
    if (rc < 0 || traced == MR_OK)
        return rc < 0 ? rc : MR_OK;
    *st = why;
    return traced;
}

/* run: its number; less than 1: it warms up. */
static mr_code measure_since(mr_dataset *ds, bench_opts *o, int64_t run, hosts *h,
                             mr_iterator **kept, result *r, mr_status *st)
{
    mr_iterator_opts opts = o->run.opts;
    double cpu0 = cpu(), t0 = mr_iter_now();
    MR_TRY(mr_cancel_new(cli_cancel(), &time_up, st));
    opts.cancel = time_up;
    set_clock(o->has_seconds ? o->seconds : 0);
    mr_code rc = mr_iterator_open(kept, ds, &opts, st);
    if (rc == MR_OK)
        rc = run_once(*kept, o, run, t0, h, r, st);
    set_clock(0);
    bool ended = rc != MR_OK && *kept && mr_cancel_is_cancelled(time_up);
    mr_cancel_unref(time_up);
    time_up = NULL;
    /* Measurements up to the time limit or an interrupt count. */
    if (rc != MR_OK && !ended)
        return rc;
    r->seconds = mr_iter_now() - t0;
    r->cpu_seconds = cpu() - cpu0;
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    r->peak_rss_bytes = u.ru_maxrss * 1024;
    r->n_ops = mr_iterator_stats(*kept, NULL, 0);
    r->ops = mr_calloc(r->n_ops + 1, sizeof *r->ops);
    if (!r->ops)
        return mr_fail_memory(st, r->n_ops * sizeof *r->ops, "statistics");
    mr_iterator_stats(*kept, r->ops, r->n_ops);
    return MR_OK;
}

static mr_code measure(mr_dataset *ds, bench_opts *o, int64_t run, mr_iterator **kept, result *r,
                       mr_status *st)
{
    hosts h = {.before = NULL};
    *r = (result){0};
    if (!(h.before = host_table_own(&h.n)))
        return mr_fail_memory(st, 0, "statistics");
    mr_code rc = measure_since(ds, o, run, &h, kept, r, st);
    if (rc == MR_OK && !(r->hosts = host_table_own(&r->n_hosts)))
        rc = mr_fail_memory(st, 0, "statistics");
    if (rc == MR_OK)
        host_table_since(r->hosts, r->n_hosts, h.before, h.n);
    mr_free(h.before);
    return rc;
}

/* No op is below it: what it waits for is a file, a pipe or another producer outside. */
static bool is_source(const result *r, size_t at)
{
    size_t n = strlen(r->ops[at].path);
    for (size_t i = 0; i < r->n_ops; i++)
        if (strncmp(r->ops[i].path, r->ops[at].path, n) == 0 && r->ops[i].path[n] == '/')
            return false;
    return true;
}

/* What the op takes while others may run: its work, and of a source also the wait for its data. */
static double takes(const result *r, size_t at)
{
    const mr_op_stats *s = &r->ops[at];
    return s->busy_seconds + (is_source(r, at) ? s->wait_seconds : 0);
}

static const char *slowest(const result *r)
{
    size_t at = 0;
    for (size_t i = 1; i < r->n_ops; i++)
        if (takes(r, i) > takes(r, at))
            at = i;
    return r->n_ops ? r->ops[at].path : "";
}

/* The op that would save the most time if it were twice as fast; *saves = an upper bound in
 * seconds. Without threads, both working and waiting count. With threads, ops overlap: only work
 * counts, and a source's wait for its data, up to the duration of the run. NULL: nothing ran. */
static const mr_op_stats *what_helps(const result *r, bool threads, double *saves)
{
    const mr_op_stats *best = NULL;
    *saves = 0;
    for (size_t i = 0; i < r->n_ops; i++) {
        const mr_op_stats *s = &r->ops[i];
        double own = threads ? takes(r, i) : s->busy_seconds + s->wait_seconds;
        own = own < r->seconds ? own : r->seconds;
        if (own / 2 > *saves) {
            *saves = own / 2;
            best = s;
        }
    }
    return best;
}

static void print_json(const result *r, int64_t run, bool threads)
{
    printf("{\"run\": %" PRId64 ", \"elements\": %" PRId64 ", \"bytes\": %" PRId64
           ", \"seconds\": ",
           run, r->elements, r->bytes);
    cli_print_double(stdout, r->seconds);
    fputs(", \"cpu_seconds\": ", stdout);
    cli_print_double(stdout, r->cpu_seconds);
    fputs(", \"first_element_seconds\": ", stdout);
    cli_print_double(stdout, r->first_element_seconds);
    printf(", \"peak_rss_bytes\": %ld, \"ops\": [", r->peak_rss_bytes);
    for (size_t i = 0; i < r->n_ops; i++) {
        const mr_op_stats *s = &r->ops[i];
        printf("%s{\"op\": \"%s\", \"path\": \"%s\", \"elements\": %" PRId64 ", \"bytes\": %" PRId64
               ", \"busy_seconds\": ",
               i ? ", " : "", s->op, s->path, s->elements, s->bytes);
        cli_print_double(stdout, s->busy_seconds);
        fputs(", \"wait_seconds\": ", stdout);
        cli_print_double(stdout, s->wait_seconds);
        printf(", \"dropped\": %" PRId64 "}", s->dropped);
    }
    printf("], \"slowest\": \"%s\"", slowest(r));
    double saves;
    const mr_op_stats *s = what_helps(r, threads, &saves);
    if (s) {
        printf(", \"twice_as_fast\": {\"path\": \"%s\", \"saves_seconds\": ", s->path);
        cli_print_double(stdout, saves);
        putchar('}');
    }
}

/* On a terminal: a bar for the time that the op worked and waited, relative to the slowest op. */
static void print_bar(const mr_op_stats *s, double most)
{
    enum { WIDTH = 24 };
    int busy = most > 0 ? (int)(s->busy_seconds / most * WIDTH + 0.5) : 0;
    int wait = most > 0 ? (int)(s->wait_seconds / most * WIDTH + 0.5) : 0;
    fputs(busy + wait ? " " : "", stdout);
    for (int i = 0; i < busy + wait; i++)
        putchar(i < busy ? '#' : '.');
}

static void print_table(const result *r, int64_t run, int64_t runs, bool threads)
{
    bool bars = isatty(STDOUT_FILENO);
    double most = 0, saves;
    double s = r->seconds > 0 ? r->seconds : 1e-9;
    if (runs > 1)
        printf("run %" PRId64 "\n", run);
    printf("%" PRId64 " elements in %.3f s: %.4g elements/s, %.4g MB/s, %.3f CPU seconds, first "
           "element after %.2f ms, peak memory %.1f MiB\n\n",
           r->elements, r->seconds, (double)r->elements / s, (double)r->bytes / s * 1e-6,
           r->cpu_seconds, r->first_element_seconds * 1e3, (double)r->peak_rss_bytes / (1 << 20));
    printf("  %-40s %12s %12s %9s %9s\n", "op", "elements", "MB", "busy s", "wait s");
    const char *slow = slowest(r);
    for (size_t i = 0; i < r->n_ops; i++)
        if (r->ops[i].busy_seconds + r->ops[i].wait_seconds > most)
            most = r->ops[i].busy_seconds + r->ops[i].wait_seconds;
    for (size_t i = 0; i < r->n_ops; i++) {
        const mr_op_stats *o = &r->ops[i];
        printf("  %-40s %12" PRId64 " %12.3f %9.3f %9.3f", o->path, o->elements,
               (double)o->bytes * 1e-6, o->busy_seconds, o->wait_seconds);
        if (bars)
            print_bar(o, most);
        if (o->dropped)
            printf("  %" PRId64 " dropped", o->dropped);
        bool waits = o->path == slow && is_source(r, i) && o->wait_seconds > o->busy_seconds;
        puts(waits ? "  <- slowest: waits for its data" : o->path == slow ? "  <- slowest" : "");
    }
    if (r->n_hosts)
        putchar('\n');
    host_table_text(r->hosts, r->n_hosts);
    const mr_op_stats *helps = what_helps(r, threads, &saves);
    if (helps)
        printf("\n%s twice as fast would save %s%.3f s (%.0f %%)\n", helps->path,
               threads ? "at most " : "", saves, saves / s * 100);
    putchar('\n');
}

static bool has_threads(const bench_opts *o)
{
    return !o->run.opts.has_threads || o->run.opts.threads != 0;
}

static mr_code print_run(const bench_opts *o, const result *r, mr_iterator *it, int64_t run,
                         mr_status *st)
{
    mr_code rc = MR_OK;
    if (!o->json) {
        print_table(r, run, o->repeat, has_threads(o));
        return o->tuning ? bench_tuning_table(it, has_threads(o), st) : MR_OK;
    }
    print_json(r, run, has_threads(o));
    host_table_json(r->hosts, r->n_hosts);
    if (o->tuning)
        rc = bench_tuning_json(it, st);
    puts("}");
    return rc;
}

static int bench_runs(mr_dataset *ds, bench_opts *o)
{
    int status = CLI_OK;
    for (int64_t i = -o->warmup; i < o->repeat && status == CLI_OK; i++) {
        result r;
        mr_iterator *it = NULL;
        mr_status st;
        o->run.opts.trace_spans = o->trace_file && i >= 0 ? BENCH_TRACE_SPANS : 0;
        o->run.opts.ledger = i >= 0 ? o->ledger : NULL;
        mr_code rc = measure(ds, o, i + 1, &it, &r, &st);
        char name[40];
        snprintf(name, sizeof name, "run %" PRId64, i + 1);
        if (rc == MR_OK && i >= 0 && o->trace_file)
            rc = bench_trace_run(&o->trace, it, i + 1, name, r.seconds, &st);
        if (rc == MR_OK && i >= 0)
            rc = print_run(o, &r, it, i + 1, &st);
        if (rc != MR_OK)
            status = cli_interrupted() ? CLI_INTERRUPTED : cli_fail(&st, CLI_FAILED);
        if (rc == MR_OK)
            status = cli_flush(cli_interrupted() ? CLI_INTERRUPTED : status);
        mr_iterator_close(it); /* the statistics borrow from it until here */
        mr_free(r.ops);
        mr_free(r.hosts);
    }
    return status;
}

static int bench(mr_dataset *ds, bench_opts *o)
{
    mr_status st;
    if (o->trace_file)
        cli_catch_termination(); /* the trace will be renamed to it */
    if (o->trace_file && bench_trace_open(&o->trace, o->trace_file, &st) != MR_OK) {
        bench_trace_abort(&o->trace);
        return cli_fail(&st, CLI_FAILED);
    }
    int status = cli_ledger_open(o->ledger_file, false, &o->ledger);
    if (status < 0)
        status = cli_ledger_close(o->ledger, bench_runs(ds, o));
    /* Measurements up to an interrupt count. */
    if ((status == CLI_OK || status == CLI_INTERRUPTED) &&
        bench_trace_close(&o->trace, &st) != MR_OK)
        status = cli_fail(&st, CLI_FAILED);
    bench_trace_abort(&o->trace);
    return status;
}

static int check_seconds(const bench_opts *o)
{
    if (o->has_seconds && !(o->seconds > 0))
        return cli_usage(&cli_bench, "--seconds must be more than 0, not %g", o->seconds);
    return -1;
}

static int run(int argc, char **argv)
{
    bench_opts o = {.repeat = 1};
    cli_flag run_flags[CLI_RUN_FLAGS];
    cli_run_flags(&o.run, run_flags, true);
    const cli_flag flags[] = {
        {.name = "limit",
         .kind = CLI_INT,
         .value = &o.limit,
         .given = &o.has_limit,
         .what = "N",
         .max = INT64_MAX,
         .help = "stop after N elements"},
        {.name = "seconds",
         .kind = CLI_FLOAT,
         .value = &o.seconds,
         .given = &o.has_seconds,
         .what = "S",
         .help = "stop after S seconds, even while waiting for an element"},
        {.name = "repeat",
         .kind = CLI_INT,
         .value = &o.repeat,
         .what = "K",
         .min = 1,
         .max = 1000000,
         .help = "measure K times in one process"},
        {.name = "warmup",
         .kind = CLI_INT,
         .value = &o.warmup,
         .what = "W",
         .max = 1000000,
         .help = "warm-up passes before measuring"},
        {.name = "json",
         .kind = CLI_SWITCH,
         .value = &o.json,
         .help = "print one JSON object per run"},
        {.name = "tuning",
         .kind = CLI_SWITCH,
         .value = &o.tuning,
         .help = "print the values chosen for auto parameters, and how to pin them"},
        {.name = "trace",
         .kind = CLI_TEXT,
         .value = &o.trace_file,
         .what = "FILE",
         .help = "write a trace of when each operation worked and waited, for Perfetto or "
                 "chrome://tracing"},
        cli_ledger_flag(&o.ledger_file),
        {0}};
    const cli_flag *const tables[] = {flags, run_flags, NULL};
    const char **rest = cli_words(argc);
    size_t n, size = 0;
    char *text = NULL;
    mr_dataset *ds = NULL;
    int status = cli_parse(&cli_bench, tables, argc, argv, rest, &n);
    if (status < 0)
        status = check_seconds(&o);
    if (status < 0)
        status = cli_expression(&cli_bench, &o.run, rest, n, &text, &size);
    if (status < 0) {
        cli_run_start(&o.run);
        status = cli_dataset(o.run.file, text, size, &ds);
        if (status < 0) {
            cli_warn_of_cluster(&cli_bench);
            status = bench(ds, &o);
        }
    }
    mr_dataset_unref(ds);
    mr_free(text);
    mr_free(rest);
    return status;
}

const cli_command cli_bench = {
    .name = "bench",
    .summary = "runs a pipeline without printing it, and reports where the time went",
    .usage = "EXPR [--limit N | --seconds S] [--repeat K] [--warmup W] [--json]\n"
             "    [--tuning] [--trace FILE] [--ledger FILE] [OPTIONS]",
    .run = run,
};
