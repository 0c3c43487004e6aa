/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_SHARD_CLUSTER_H
#define MR_SHARD_CLUSTER_H
/* Who takes part in a job: tasks of four types, each with an address, and which of them this
 * process is. Input workers are the chief and the workers, in that order; a parameter server (ps)
 * makes no input; the evaluator is a job of its own.
 *
 *     chief   ["a:1"]            rank 0
 *     worker  ["b:1", "c:1"]     rank 1, 2
 *
 * thread   one at a time per object
 * since    0.1 */
#include "../pipeline/status.h"
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum mr_task_type {
    MR_TASK_CHIEF,
    MR_TASK_WORKER,
    MR_TASK_PS,
    MR_TASK_EVALUATOR,
    MR_N_TASK_TYPES
} mr_task_type;

typedef struct mr_tasks {
    char **addresses; /* owned */
    size_t n, capacity;
} mr_tasks;

/* The caller's memory; {0} is a process alone: one worker, rank 0. */
typedef struct mr_cluster {
    mr_tasks tasks[MR_N_TASK_TYPES];
    bool has_task; /* the two below say which task this process is */
    mr_task_type type;
    int64_t index;
} mr_cluster;

/* "chief", "worker", "ps", "evaluator". */
MR_API const char *mr_task_type_name(mr_task_type type);

/* Lets everything go; c becomes {0}. */
MR_API void mr_cluster_reset(mr_cluster *c);
/* Adds the next task of a type. errors MR_RESOURCE_EXHAUSTED (also: more than 65536 of a type) */
MR_API mr_code mr_cluster_add(mr_cluster *c, mr_task_type type, const char *address,
                              mr_status *st) MR_NODISCARD;
/* Says which task this process is, and checks the whole.
 * errors   MR_INVALID_ARGUMENT: no such task; more than one chief or evaluator */
MR_API mr_code mr_cluster_set_task(mr_cluster *c, mr_task_type type, int64_t index,
                                   mr_status *st) MR_NODISCARD;

/* Input workers of the job that this process belongs to: at least 1. */
MR_API int64_t mr_cluster_num_workers(const mr_cluster *c);
/* This process among them, from 0.
 * errors   MR_FAILED_PRECONDITION: a ps has no input */
MR_API mr_code mr_cluster_worker(const mr_cluster *c, int64_t *rank, mr_status *st) MR_NODISCARD;
/* Writes checkpoints and logs: the chief, else worker 0; the evaluator; a process alone. */
MR_API bool mr_cluster_is_chief(const mr_cluster *c);
/* Equal on every input worker of a job, whichever of them this process is. */
MR_API uint64_t mr_cluster_hash(const mr_cluster *c);

/* Reads the description that TensorFlow's jobs carry in TF_CONFIG:
 *   {"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}}
 * c is {0} before; empty text, {} or no cluster: a process alone. Other top-level keys are ignored.
 * errors   MR_INVALID_ARGUMENT: not JSON (with line and column), a missing field, a wrong type, an
 *          unknown task type, an index out of range; c is {0} then */
MR_API mr_code mr_cluster_from_tf_config(mr_cluster *c, const char *json, size_t size,
                                         mr_status *st) MR_NODISCARD;
/* The same from the environment variable TF_CONFIG; unset: a process alone. */
MR_API mr_code mr_cluster_from_env(mr_cluster *c, mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
