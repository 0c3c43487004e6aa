/* SPDX-License-Identifier: Apache-2.0 */
/* The output of bench --tuning. */
#include "bench.h"

#include <inttypes.h>
#include <string.h>

#include <millrace/pipeline/memory/alloc.h>
#include "cli.h"

/* *v is owned. Later calls may return fewer than *n: known parameters stay known. */
static mr_code read_tuning(mr_iterator *it, mr_op_tuning **v, size_t *n, mr_status *st)
{
    *n = mr_iterator_tuning(it, NULL, 0);
    *v = mr_calloc(*n + 1, sizeof **v);
    if (!*v)
        return mr_fail_memory(st, *n * sizeof **v, "what was tuned");
    size_t now = mr_iterator_tuning(it, *v, *n);
    *n = now < *n ? now : *n;
    return MR_OK;
}

mr_code bench_tuning_json(mr_iterator *it, mr_status *st)
{
    mr_op_tuning *v;
    size_t n;
    MR_TRY(read_tuning(it, &v, &n, st));
    fputs(", \"tuning\": [", stdout);
    for (size_t i = 0; i < n; i++) {
        printf("%s{\"op\": \"%s\", \"path\": \"%s\", \"parameter\": \"%s\", \"chosen\": %" PRId64
               ", \"service_seconds\": ",
               i ? ", " : "", v[i].op, v[i].path, v[i].parameter, v[i].chosen);
        cli_print_double(stdout, v[i].service_seconds);
        fputs(", \"interval_seconds\": ", stdout);
        cli_print_double(stdout, v[i].interval_seconds);
        putchar('}');
    }
    putchar(']');
    mr_free(v);
    return MR_OK;
}

static void print_line(const mr_op_tuning *t)
{
    printf("  %-40s %-20s %6" PRId64 " %12.6f %12.6f  ", t->path, t->parameter, t->chosen,
           t->service_seconds, t->interval_seconds);
    /* The engine counts blocks; the graph, elements. */
    if (strcmp(t->parameter, "buffer_size") == 0)
        printf("%s(the elements of %" PRId64 " blocks)\n", t->op, t->chosen);
    else
        printf("%s=%" PRId64 "\n", t->parameter, t->chosen);
}

mr_code bench_tuning_table(mr_iterator *it, bool threads, mr_status *st)
{
    mr_op_tuning *v;
    size_t n;
    MR_TRY(read_tuning(it, &v, &n, st));
    if (n)
        printf("  %-40s %-20s %6s %12s %12s  %s\n", "op", "auto", "chosen", "a block s",
               "consumer s", "to pin it");
    else
        puts(threads ? "no parameter is auto" : "nothing is tuned without threads");
    for (size_t i = 0; i < n; i++)
        print_line(&v[i]);
    putchar('\n');
    mr_free(v);
    return MR_OK;
}
