/* SPDX-License-Identifier: Apache-2.0 */
/* millrace bench: runs a graph without printing its elements, and tells where the time went. */
#include <inttypes.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "cli/cli.h"
#include "pipeline/engine/iter.h"
#include "pipeline/memory/alloc.h"

enum { WANT = 32768 };

typedef struct bench_opts {
    cli_run run;
    int64_t limit, repeat, warmup;
    double seconds;
    bool has_limit, json;
} bench_opts;

typedef struct result {
    int64_t elements, bytes;
    double seconds, cpu_seconds, first_element_seconds;
    long peak_rss_bytes;
    mr_op_stats *ops;
    size_t n_ops;
} result;

static double cpu(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static mr_code run_once(mr_iterator *it, const bench_opts *o, double began, result *r,
                        mr_status *st)
{
    mr_block b = MR_BLOCK_EMPTY;
    mr_code rc = MR_OK;
    while (!o->has_limit || r->elements < o->limit) {
        size_t want =
            o->has_limit && o->limit - r->elements < WANT ? (size_t)(o->limit - r->elements) : WANT;
        if ((rc = mr_iterator_next(it, want, &b, st)) != MR_OK)
            break;
        if (!r->elements)
            r->first_element_seconds = mr_iter_now() - began;
        r->elements += (int64_t)b.rows;
        r->bytes += (int64_t)mr_block_payload_bytes(&b);
        if (o->seconds > 0 && mr_iter_now() - began >= o->seconds)
            break;
    }
    mr_block_reset(&b);
    return rc < 0 ? rc : MR_OK;
}

static mr_code measure(mr_dataset *ds, const bench_opts *o, mr_iterator **kept, result *r,
                       mr_status *st)
{
    *r = (result){0};
    double cpu0 = cpu(), t0 = mr_iter_now();
    MR_TRY(mr_iterator_open(kept, ds, &o->run.opts, st));
    cli_watch_iterator(*kept);
    MR_TRY(run_once(*kept, o, t0, r, st));
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

static const char *slowest(const result *r)
{
    size_t at = 0;
    for (size_t i = 1; i < r->n_ops; i++)
        if (r->ops[i].busy_seconds > r->ops[at].busy_seconds)
            at = i;
    return r->n_ops ? r->ops[at].path : "";
}

static void print_json(const result *r, int64_t run)
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
        putchar('}');
    }
    printf("], \"slowest\": \"%s\"}\n", slowest(r));
}

static void print_table(const result *r, int64_t run, int64_t runs)
{
    double s = r->seconds > 0 ? r->seconds : 1e-9;
    if (runs > 1)
        printf("run %" PRId64 "\n", run);
    printf("%" PRId64 " elements in %.3f s: %.4g elements/s, %.4g MB/s, %.3f CPU seconds, first "
           "element after %.2f ms, peak memory %.1f MiB\n\n",
           r->elements, r->seconds, (double)r->elements / s, (double)r->bytes / s * 1e-6,
           r->cpu_seconds, r->first_element_seconds * 1e3, (double)r->peak_rss_bytes / (1 << 20));
    printf("  %-40s %12s %12s %9s %9s\n", "op", "elements", "MB", "busy s", "wait s");
    const char *slow = slowest(r);
    for (size_t i = 0; i < r->n_ops; i++) {
        const mr_op_stats *o = &r->ops[i];
        printf("  %-40s %12" PRId64 " %12.3f %9.3f %9.3f%s\n", o->path, o->elements,
               (double)o->bytes * 1e-6, o->busy_seconds, o->wait_seconds,
               o->path == slow ? "  <- slowest" : "");
    }
    putchar('\n');
}

static int bench(mr_dataset *ds, const bench_opts *o)
{
    int status = CLI_OK;
    for (int64_t i = -o->warmup; i < o->repeat && status == CLI_OK; i++) {
        result r;
        mr_iterator *it = NULL;
        mr_status st;
        mr_code rc = measure(ds, o, &it, &r, &st);
        if (rc != MR_OK)
            status = cli_interrupted() ? CLI_INTERRUPTED : cli_fail(&st, CLI_FAILED);
        else if (i >= 0 && o->json)
            print_json(&r, i + 1);
        else if (i >= 0)
            print_table(&r, i + 1, o->repeat);
        if (rc == MR_OK)
            status = cli_flush(status);
        cli_watch_iterator(NULL);
        mr_iterator_close(it); /* what the statistics name lives until here */
        mr_free(r.ops);
    }
    return status;
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
         .what = "S",
         .help = "stop after S seconds"},
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
         .help = "passes before that, not counted"},
        {.name = "json", .kind = CLI_SWITCH, .value = &o.json, .help = "one JSON object a run"},
        {0}};
    const cli_flag *const tables[] = {flags, run_flags, NULL};
    const char **rest = cli_words(argc);
    size_t n, size = 0;
    char *text = NULL;
    mr_dataset *ds = NULL;
    mr_status st;
    int status = cli_parse(&cli_bench, tables, argc, argv, rest, &n);
    if (status < 0)
        status = cli_expression(&cli_bench, &o.run, rest, n, &text, &size);
    if (status < 0) {
        cli_run_start(&o.run);
        status = mr_dataset_from_text(text, size, NULL, &ds, &st) == MR_OK
                     ? bench(ds, &o)
                     : cli_fail(&st, CLI_USAGE);
    }
    mr_dataset_unref(ds);
    mr_free(text);
    mr_free(rest);
    return status;
}

const cli_command cli_bench = {
    .name = "bench",
    .summary = "runs a pipeline without printing, and tells where the time went",
    .usage = "EXPR [--limit N | --seconds S] [--repeat K] [--warmup W] [--json]",
    .run = run,
};
