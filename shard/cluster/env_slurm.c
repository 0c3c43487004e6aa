/* SPDX-License-Identifier: Apache-2.0 */
/* The cluster from the variables of a Slurm step, and Slurm's lists of hosts. */
#include "shard/cluster/env_launcher.h"
#include "shard/cluster/env_values.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NAME = 255, MAX_HOSTS = 65536, MAX_DIGITS = 9, MAX_BRACKETS = 4 };

typedef struct expansion {
    const char *list; /* the whole, for messages */
    mr_code (*fn)(void *ctx, const char *name, mr_status *st);
    void *ctx;
    size_t n;
    char name[MAX_NAME + 1];
} expansion;

static mr_code bad_list(const expansion *x, const char *at, const char *what, mr_status *st)
{
    return mr_fail(
        st, MR_INVALID_ARGUMENT,
        "the list of hosts '%.200s' has %s at character %zu; expected a form like n[1-3,7],m4",
        x->list, what, (size_t)(at - x->list) + 1);
}

/* A number with a fixed number of digits: 007 is followed by 008. */
static mr_code read_number(const expansion *x, const char **at, long *v, int *digits, mr_status *st)
{
    const char *from = *at;
    *v = 0;
    for (; **at >= '0' && **at <= '9'; (*at)++) {
        if (*at - from == MAX_DIGITS)
            return bad_list(x, from, "a number of more than 9 digits", st);
        *v = *v * 10 + (**at - '0');
    }
    *digits = (int)(*at - from);
    return *digits ? MR_OK : bad_list(x, from, "no number", st);
}

/* Expands the rest of the entry, from `at`, after the first `length` characters of the name. */
static mr_code expand(expansion *x, const char *at, const char *end, size_t length, int brackets,
                      mr_status *st)
{
    for (; at < end && *at != '['; at++) {
        if (*at == ']' || *at <= ' ')
            return bad_list(x, at, *at == ']' ? "a ']' without '['" : "a blank", st);
        if (length == MAX_NAME)
            return bad_list(x, at, "a name of more than 255 characters", st);
        x->name[length++] = *at;
    }
    if (at == end) {
        x->name[length] = '\0';
        if (length == 0)
            return bad_list(x, at, "an empty name", st);
        if (++x->n > MAX_HOSTS)
            return bad_list(x, at, "more than 65536 hosts", st);
        return x->fn(x->ctx, x->name, st);
    }
    const char *close = memchr(at, ']', (size_t)(end - at));
    if (!close)
        return bad_list(x, at, "a '[' without ']'", st);
    if (brackets == MAX_BRACKETS)
        return bad_list(x, at, "too many brackets in a name", st);
    do {
        long first, last;
        int digits, digits_of_last;
        at++;
        MR_TRY(read_number(x, &at, &first, &digits, st));
        last = first;
        if (*at == '-') {
            at++;
            MR_TRY(read_number(x, &at, &last, &digits_of_last, st));
        }
        if (last < first)
            return bad_list(x, at, "a range that runs backwards", st);
        if (*at != ',' && *at != ']')
            return bad_list(x, at, "something that is not a range", st);
        for (long v = first; v <= last; v++) {
            int n = snprintf(x->name + length, sizeof x->name - length, "%0*ld", digits, v);
            if (length + (size_t)n > MAX_NAME)
                return bad_list(x, at, "a name of more than 255 characters", st);
            MR_TRY(expand(x, close + 1, end, length + (size_t)n, brackets + 1, st));
        }
    } while (*at == ',');
    return MR_OK;
}

mr_code mr__slurm_hosts(const char *list, mr_code (*fn)(void *ctx, const char *name, mr_status *),
                        void *ctx, mr_status *st)
{
    expansion x = {.list = list, .fn = fn, .ctx = ctx};
    const char *at = list;
    for (;;) {
        /* An entry ends at a comma outside brackets. */
        const char *end = at;
        bool inside = false;
        for (; *end && (inside || *end != ','); end++)
            inside = *end == '[' || (inside && *end != ']');
        MR_TRY(expand(&x, at, end, 0, 0, st));
        if (!*end)
            return MR_OK;
        at = end + 1;
    }
}

static mr_code keep_first(void *ctx, const char *name, mr_status *st)
{
    char *first = ctx;
    (void)st;
    if (!*first)
        snprintf(first, MAX_NAME + 1, "%s", name);
    return MR_OK;
}

/* A launcher that runs inside the step numbers the processes; Slurm numbered only those that srun
 * started, and its variables are inherited. */
static bool inner_launcher(void)
{
    return mr__env_text("TORCHELASTIC_RUN_ID") || mr__env_text("OMPI_COMM_WORLD_SIZE");
}

mr_code mr__cluster_from_slurm(mr_cluster *c, bool *found, mr_status *st)
{
    const char *nodes = mr__env_text("SLURM_STEP_NODELIST");
    *found = mr__env_text("SLURM_PROCID") && nodes && !inner_launcher();
    if (!*found)
        return MR_OK;
    const char *world_name =
        mr__env_text("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
    int64_t rank, world, job, port;
    char first[MAX_NAME + 1] = "";
    MR_TRY(mr__env_int(world_name, 1, 65536, &world, st));
    MR_TRY(mr__env_int("SLURM_PROCID", 0, 65535, &rank, st));
    mr_status why;
    if (mr__slurm_hosts(nodes, keep_first, first, &why) != MR_OK)
        return mr_fail(st, why.code, "SLURM_STEP_NODELIST: %s", why.message);
    MR_TRY(mr__env_int("SLURM_JOB_ID", 0, INT64_MAX, &job, st));
    MR_TRY(mr__env_port(20000 + job % 20000, &port, st));
    return mr__env_workers(c, MR_CLUSTER_SLURM, rank, world, "SLURM_PROCID", world_name, first,
                           port, st);
}
