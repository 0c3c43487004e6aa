/* SPDX-License-Identifier: Apache-2.0 */
#include "host_table.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <millrace/pipeline/memory/alloc.h>
#include "cli.h"

void host_table_since(mr_host_stats *now, size_t n, const mr_host_stats *before, size_t n_before)
{
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < n_before; k++) {
            if (strcmp(now[i].host, before[k].host) != 0)
                continue;
            now[i].bytes -= before[k].bytes;
            now[i].requests -= before[k].requests;
            now[i].retries -= before[k].retries;
            now[i].cached_bytes -= before[k].cached_bytes;
            now[i].cache_hits -= before[k].cache_hits;
            now[i].cache_misses -= before[k].cache_misses;
            now[i].first_byte_seconds -= before[k].first_byte_seconds;
            for (size_t b = 0; b <= MR_HOST_BOUNDS; b++)
                now[i].first_bytes[b] -= before[k].first_bytes[b];
        }
}

static int64_t answers(const mr_host_stats *s)
{
    int64_t n = 0;
    for (size_t b = 0; b <= MR_HOST_BOUNDS; b++)
        n += s->first_bytes[b];
    return n;
}

void host_table_json(const mr_host_stats *v, size_t n)
{
    fputs(", \"hosts\": [", stdout);
    for (size_t i = 0; i < n; i++) {
        fputs(i ? ", {\"host\": " : "{\"host\": ", stdout);
        cli_print_string(stdout, v[i].host, strlen(v[i].host));
        printf(", \"bytes\": %" PRId64 ", \"requests\": %" PRId64 ", \"retries\": %" PRId64
               ", \"open_connections\": %" PRId64 ", \"cached_bytes\": %" PRId64
               ", \"cache_hits\": %" PRId64 ", \"cache_misses\": %" PRId64
               ", \"first_byte_seconds\": ",
               v[i].bytes, v[i].requests, v[i].retries, v[i].open_connections, v[i].cached_bytes,
               v[i].cache_hits, v[i].cache_misses);
        cli_print_double(stdout, v[i].first_byte_seconds);
        fputs(", \"first_bytes\": [", stdout);
        for (size_t b = 0; b <= MR_HOST_BOUNDS; b++) {
            fputs(b ? ", {\"at_most\": " : "{\"at_most\": ", stdout);
            if (b < MR_HOST_BOUNDS)
                cli_print_double(stdout, mr_host_bounds[b]);
            else
                fputs("null", stdout);
            printf(", \"answers\": %" PRId64 "}", v[i].first_bytes[b]);
        }
        fputs("]}", stdout);
    }
    putchar(']');
}

/* The bound below which that part of the answers began: "<= 25". */
static void put_bound(const mr_host_stats *s, double part)
{
    int64_t n = answers(s), seen = 0;
    char text[24] = "-";
    for (size_t b = 0; b <= MR_HOST_BOUNDS && n; b++) {
        seen += s->first_bytes[b];
        if ((double)seen < part * (double)n)
            continue;
        if (b < MR_HOST_BOUNDS)
            snprintf(text, sizeof text, "<= %g", mr_host_bounds[b] * 1e3);
        else
            snprintf(text, sizeof text, "> %g", mr_host_bounds[b - 1] * 1e3);
        break;
    }
    printf(" %9s", text);
}

void host_table_text(const mr_host_stats *v, size_t n)
{
    bool cached = false;
    for (size_t i = 0; i < n; i++)
        cached = cached || v[i].cache_hits || v[i].cache_misses;
    if (n)
        printf("  %-36s %12s %9s %8s %12s %9s %9s %9s", "host", "MB", "requests", "retries",
               "connections", "first ms", "50 %", "99 %");
    if (cached)
        printf(" %12s %9s %9s", "cached MB", "hits", "misses");
    if (n)
        putchar('\n');
    for (size_t i = 0; i < n; i++) {
        int64_t k = answers(&v[i]);
        printf("  %-36s %12.3f %9" PRId64 " %8" PRId64 " %12" PRId64 " %9.2f", v[i].host,
               (double)v[i].bytes * 1e-6, v[i].requests, v[i].retries, v[i].open_connections,
               k ? v[i].first_byte_seconds / (double)k * 1e3 : 0.0);
        put_bound(&v[i], 0.5);
        put_bound(&v[i], 0.99);
        if (cached)
            printf(" %12.3f %9" PRId64 " %9" PRId64, (double)v[i].cached_bytes * 1e-6,
                   v[i].cache_hits, v[i].cache_misses);
        putchar('\n');
    }
}

mr_host_stats *host_table_own(size_t *n)
{
    size_t room = mr_host_stats_read(NULL, 0);
    mr_host_stats *v = mr_calloc(room + 1, sizeof *v);
    *n = v ? mr_host_stats_read(v, room) : 0;
    *n = *n < room ? *n : room; /* one may have come meanwhile */
    return v;
}
