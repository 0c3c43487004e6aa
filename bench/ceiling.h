/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_BENCH_CEILING_H
#define MR_BENCH_CEILING_H
/* Runs two loops alternately, the one measured and its ceiling, and takes the medians of their
 * times: only figures of the same minute on the same machine can be compared. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <millrace/pipeline/status.h>

typedef double (*bench_fn)(void *ctx); /* does the work, returns its units (bytes, rows) */

static inline double bench_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline int bench_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static inline _Noreturn void bench_die(const char *what)
{
    fprintf(stderr, "%s: %s\n", program_invocation_short_name, what);
    exit(1);
}

/* Ends the program if rc is an error, which st describes. */
static inline void bench_must(mr_code rc, const mr_status *st)
{
    char text[2048];
    if (rc == MR_OK)
        return;
    mr_status_format(st, text, sizeof text);
    bench_die(text);
}

/* Prints "name  figure unit  ceiling unit  ratio"; rates are units * scale per second. */
static inline void bench_in_turns(const char *name, const char *unit, double scale, int repetitions,
                                  bench_fn measured, bench_fn ceiling, void *ctx)
{
    double rates[2][64];
    if (repetitions > 64)
        repetitions = 64;
    for (int r = -1; r < repetitions; r++) /* one round to warm up */
        for (int k = 0; k < 2; k++) {
            double start = bench_now(), units = (k ? ceiling : measured)(ctx);
            if (r >= 0)
                rates[k][r] = units * scale / (bench_now() - start);
        }
    for (int k = 0; k < 2; k++)
        qsort(rates[k], (size_t)repetitions, sizeof(double), bench_compare);
    double figure = rates[0][repetitions / 2], top = rates[1][repetitions / 2];
    printf("%-28s %9.3f %s   ceiling %9.3f %s   ratio %.2f\n", name, figure, unit, top, unit,
           figure / top);
    fflush(stdout);
}
#endif
