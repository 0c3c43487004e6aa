/* SPDX-License-Identifier: Apache-2.0 */
/* The tasks of a job and their ranks. */
#include "shard/cluster/cluster.h"
#include "pipeline/fnv.h"
#include "pipeline/memory/alloc.h"

#include <inttypes.h>
#include <string.h>

enum { MAX_TASKS = 65536 };

static const char *const type_names[MR_N_TASK_TYPES] = {"chief", "worker", "ps", "evaluator"};

const char *mr_task_type_name(mr_task_type type)
{
    return type < MR_N_TASK_TYPES ? type_names[type] : "unknown";
}

void mr_cluster_reset(mr_cluster *c)
{
    for (size_t t = 0; t < MR_N_TASK_TYPES; t++) {
        for (size_t i = 0; i < c->tasks[t].n; i++)
            mr_free(c->tasks[t].addresses[i]);
        mr_free(c->tasks[t].addresses);
    }
    *c = (mr_cluster){0};
}

mr_code mr_cluster_add(mr_cluster *c, mr_task_type type, const char *address, mr_status *st)
{
    if ((size_t)type >= sizeof c->tasks / sizeof *c->tasks || !address)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "a task needs a type of mr_task_type and an address");
    mr_tasks *t = &c->tasks[type];
    MR_TRY(MR_GROW(t->addresses, t->capacity, t->n + 1, MAX_TASKS, "the tasks of a cluster", st));
    char *copy = mr_strdup(address);
    if (!copy)
        return mr_fail_memory(st, strlen(address) + 1, "the address of a task");
    t->addresses[t->n++] = copy;
    return MR_OK;
}

mr_code mr_cluster_set_task(mr_cluster *c, mr_task_type type, int64_t index, mr_status *st)
{
    static const mr_task_type lone[] = {MR_TASK_CHIEF, MR_TASK_EVALUATOR};
    for (size_t i = 0; i < 2; i++)
        if (c->tasks[lone[i]].n > 1)
            return mr_fail(st, MR_INVALID_ARGUMENT, "a cluster has at most one %s, this has %zu",
                           type_names[lone[i]], c->tasks[lone[i]].n);
    /* The evaluator is separate from the cluster and need not be listed in it. */
    size_t n = c->tasks[type].n;
    if (type == MR_TASK_EVALUATOR && n == 0)
        n = 1;
    if (n == 0)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "this task is %s %" PRId64 ", but the cluster has no %s; list it, or change "
                       "the task's type",
                       type_names[type], index, type_names[type]);
    if (index < 0 || (uint64_t)index >= n)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "the task's index %" PRId64
                       " is out of range: the cluster has %zu %s task%s "
                       "(0 to %zu)",
                       index, n, type_names[type], n == 1 ? "" : "s", n - 1);
    c->has_task = true;
    c->type = type;
    c->index = index;
    return MR_OK;
}

int64_t mr_cluster_num_workers(const mr_cluster *c)
{
    if (c->has_task && c->type == MR_TASK_EVALUATOR)
        return 1;
    size_t n = c->tasks[MR_TASK_CHIEF].n + c->tasks[MR_TASK_WORKER].n;
    return n ? (int64_t)n : 1;
}

mr_code mr_cluster_worker(const mr_cluster *c, int64_t *rank, mr_status *st)
{
    if (c->has_task && c->type == MR_TASK_PS)
        return mr_fail(
            st, MR_FAILED_PRECONDITION,
            "ps %" PRId64
            " stores variables and reads no input; only the chief, workers and the evaluator do",
            c->index);
    *rank = 0;
    if (c->has_task && c->type == MR_TASK_WORKER)
        *rank = (int64_t)c->tasks[MR_TASK_CHIEF].n + c->index;
    return MR_OK;
}

bool mr_cluster_is_chief(const mr_cluster *c)
{
    if (!c->has_task || c->type == MR_TASK_CHIEF || c->type == MR_TASK_EVALUATOR)
        return true;
    return c->type == MR_TASK_WORKER && c->index == 0 && c->tasks[MR_TASK_CHIEF].n == 0;
}

uint64_t mr_cluster_hash(const mr_cluster *c)
{
    uint64_t h = MR__FNV_BASIS;
    for (size_t t = 0; t < MR_N_TASK_TYPES; t++) {
        /* Some launchers list the evaluator only in its own description. */
        if (t == MR_TASK_EVALUATOR)
            continue;
        for (size_t i = 0; i < c->tasks[t].n; i++) {
            const char *address = c->tasks[t].addresses[i];
            h = mr__fnv1a(h, type_names[t], strlen(type_names[t]) + 1);
            h = mr__fnv1a(h, address, strlen(address) + 1);
        }
    }
    return h;
}
