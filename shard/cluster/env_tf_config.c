/* SPDX-License-Identifier: Apache-2.0 */
/* The cluster from TF_CONFIG. The text is untrusted: jansson limits its nesting; this file limits
 * its size and checks every field. */
#include "shard/cluster/cluster.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TEXT = 16 << 20 };

static const char *json_kind(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "a list";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
        return "an integer";
    case JSON_REAL:
        return "a number with a fraction";
    case JSON_TRUE:
    case JSON_FALSE:
        return "a bool";
    default:
        return "null";
    }
}

static mr_code find_type(const char *name, const char *where, mr_task_type *out, mr_status *st)
{
    for (int t = 0; t < MR_N_TASK_TYPES; t++)
        if (strcmp(name, mr_task_type_name((mr_task_type)t)) == 0) {
            *out = (mr_task_type)t;
            return MR_OK;
        }
    return mr_fail(st, MR_INVALID_ARGUMENT,
                   "TF_CONFIG: unknown task type '%.64s' in %s; a task is chief, worker, ps or "
                   "evaluator%s",
                   name, where, strcmp(name, "master") == 0 ? " (master is now called chief)" : "");
}

static mr_code read_addresses(mr_cluster *c, mr_task_type type, const json_t *list, mr_status *st)
{
    const char *name = mr_task_type_name(type);
    if (!json_is_array(list))
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "TF_CONFIG: cluster.%s must be a list of addresses, not %s", name,
                       json_kind(list));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        if (!json_is_string(v))
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "TF_CONFIG: cluster.%s[%zu] must be a string (host:port), not %s", name,
                           i, json_kind(v));
        if (json_string_length(v) == 0)
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "TF_CONFIG: cluster.%s[%zu] is empty; expected host:port", name, i);
        MR_TRY(mr_cluster_add(c, type, json_string_value(v), st));
    }
    return MR_OK;
}

/* Task addresses: {"host:port": "worker[1]"}. No other task connects to an evaluator. */
static mr_code check_address(json_t *seen, mr_task_type type, size_t index, const char *address,
                             mr_status *st)
{
    const char *before = json_string_value(json_object_get(seen, address));
    if (before)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "TF_CONFIG: cluster.%s and cluster.%s[%zu] have the same address, %.200s; "
                       "each task needs its own",
                       before, mr_task_type_name(type), index, address);
    json_t *name = json_sprintf("%s[%zu]", mr_task_type_name(type), index);
    return json_object_set_new(seen, address, name) == 0
               ? MR_OK
               : mr_fail_memory(st, strlen(address), "the addresses of a cluster");
}

static mr_code check_addresses(const mr_cluster *c, mr_status *st)
{
    json_t *seen = json_object();
    mr_code rc = seen ? MR_OK : mr_fail_memory(st, 0, "the addresses of a cluster");
    for (int t = 0; t < MR_N_TASK_TYPES; t++)
        for (size_t i = 0; i < c->tasks[t].n && rc == MR_OK && t != MR_TASK_EVALUATOR; i++)
            rc = check_address(seen, (mr_task_type)t, i, c->tasks[t].addresses[i], st);
    json_decref(seen);
    return rc;
}

static mr_code read_cluster(mr_cluster *c, json_t *cluster, mr_status *st)
{
    if (!json_is_object(cluster))
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "TF_CONFIG: cluster must be an object of lists of addresses, not %s",
                       json_kind(cluster));
    const char *name;
    json_t *list;
    json_object_foreach(cluster, name, list)
    {
        mr_task_type type = MR_TASK_WORKER;
        MR_TRY(find_type(name, "cluster", &type, st));
        MR_TRY(read_addresses(c, type, list, st));
    }
    return check_addresses(c, st);
}

static mr_code read_task(mr_cluster *c, const json_t *task, mr_status *st)
{
    if (!task && c->tasks[MR_TASK_PS].n > 0)
        return MR_OK; /* the coordinator of parameter servers may be outside the cluster */
    if (!task)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "TF_CONFIG: there is a cluster but no task; expected \"task\": {\"type\": "
                       "\"worker\", \"index\": 0}");
    if (!json_is_object(task))
        return mr_fail(st, MR_INVALID_ARGUMENT, "TF_CONFIG: task must be an object, not %s",
                       json_kind(task));
    const json_t *type = json_object_get(task, "type"), *index = json_object_get(task, "index");
    if (!type || !index)
        return mr_fail(st, MR_INVALID_ARGUMENT, "TF_CONFIG: task.%s is missing",
                       type ? "index" : "type");
    if (!json_is_string(type))
        return mr_fail(st, MR_INVALID_ARGUMENT, "TF_CONFIG: task.type must be a string, not %s",
                       json_kind(type));
    if (!json_is_integer(index))
        return mr_fail(st, MR_INVALID_ARGUMENT, "TF_CONFIG: task.index must be an integer, not %s",
                       json_kind(index));
    mr_task_type t = MR_TASK_WORKER;
    MR_TRY(find_type(json_string_value(type), "task.type", &t, st));
    mr_code rc = mr_cluster_set_task(c, t, json_integer_value(index), st);
    if (rc != MR_OK && st) {
        char message[sizeof st->message];
        memcpy(message, st->message, sizeof message);
        mr_fail(st, rc, "TF_CONFIG: %.700s", message);
    }
    return rc;
}

mr_code mr_cluster_from_tf_config(mr_cluster *c, const char *json, size_t size, mr_status *st)
{
    if (size == 0)
        return MR_OK;
    if (size > MAX_TEXT)
        return mr_fail(st, MR_INVALID_ARGUMENT, "TF_CONFIG has %zu bytes, at most %d are accepted",
                       size, (int)MAX_TEXT);
    json_error_t error;
    json_t *root = json_loadb(json, size, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        return mr_fail(st, MR_INVALID_ARGUMENT, "TF_CONFIG is not JSON: line %d, column %d: %.200s",
                       error.line, error.column, error.text);
    mr_code rc = MR_OK;
    json_t *cluster = NULL;
    if (!json_is_object(root))
        rc = mr_fail(st, MR_INVALID_ARGUMENT,
                     "TF_CONFIG must be an object with cluster and task, not %s", json_kind(root));
    else
        cluster = json_object_get(root, "cluster");
    if (rc == MR_OK && cluster)
        rc = read_cluster(c, cluster, st);
    /* {"cluster": {}} is the same as no description. */
    if (rc == MR_OK && cluster && json_object_size(cluster))
        rc = read_task(c, json_object_get(root, "task"), st);
    json_decref(root);
    if (rc != MR_OK)
        mr_cluster_reset(c);
    else if (c->has_task)
        c->source = MR_CLUSTER_TF_CONFIG;
    return rc;
}

mr_code mr_cluster_from_env(mr_cluster *c, mr_status *st)
{
    const char *text = getenv("TF_CONFIG");
    return mr_cluster_from_tf_config(c, text ? text : "", text ? strlen(text) : 0, st);
}
