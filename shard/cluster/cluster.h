/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_SHARD_CLUSTER_CLUSTER_H
#define MR_SHARD_CLUSTER_CLUSTER_H
/* The members of a job: tasks of four types, each with an address, and which of them this process
 * is. Input workers are the chief and the workers, in that order; a parameter server (ps) reads no
 * input; the evaluator is a separate job.
 *
 *     chief   ["a:1"]            rank 0
 *     worker  ["b:1", "c:1"]     rank 1, 2
 *
 * thread   one at a time per object
 * since    0.1 */
#include "../../pipeline/status.h"
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

/* The source of the description. */
typedef enum mr_cluster_source {
    MR_CLUSTER_ALONE, /* no description: a single process */
    MR_CLUSTER_TF_CONFIG,
    MR_CLUSTER_SLURM,
    MR_CLUSTER_TORCHRUN,
    MR_CLUSTER_MPI
} mr_cluster_source;

/* The caller's memory; {0} describes a single process: one worker, rank 0. TF_CONFIG contains the
 * address of every task. The other sources contain only that of worker 0, where all processes meet;
 * the other addresses are "". */
typedef struct mr_cluster {
    mr_cluster_source source;
    mr_tasks tasks[MR_N_TASK_TYPES];
    bool has_task; /* the two below say which task this process is */
    mr_task_type type;
    int64_t index;
} mr_cluster;

/* "chief", "worker", "ps", "evaluator". */
MR_API const char *mr_task_type_name(mr_task_type type);

/* Frees everything; c becomes {0}. */
MR_API void mr_cluster_reset(mr_cluster *c);
/* Adds the next task of a type. errors MR_RESOURCE_EXHAUSTED (also: more than 65536 of a type) */
MR_API mr_code mr_cluster_add(mr_cluster *c, mr_task_type type, const char *address,
                              mr_status *st) MR_NODISCARD;
/* Sets which task this process is, and checks the whole description.
 * errors   MR_INVALID_ARGUMENT: no such task; more than one chief or evaluator */
MR_API mr_code mr_cluster_set_task(mr_cluster *c, mr_task_type type, int64_t index,
                                   mr_status *st) MR_NODISCARD;

/* The number of input workers in this process's job: at least 1. */
MR_API int64_t mr_cluster_num_workers(const mr_cluster *c);
/* *rank = the index of this process among the input workers, from 0.
 * errors   MR_FAILED_PRECONDITION: a ps has no input */
MR_API mr_code mr_cluster_worker(const mr_cluster *c, int64_t *rank, mr_status *st) MR_NODISCARD;
/* True for the process that writes checkpoints and logs: the chief, or worker 0 of a cluster
 * without a chief; the evaluator; a single process. */
MR_API bool mr_cluster_is_chief(const mr_cluster *c);
/* The same number on every input worker of a job. */
MR_API uint64_t mr_cluster_hash(const mr_cluster *c);

/* Reads a description in the format of TensorFlow's TF_CONFIG:
 *   {"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}}
 * c must be {0}. Empty text, {} or no cluster: a single process. Other top-level keys are ignored.
 * errors   MR_INVALID_ARGUMENT: not JSON (with line and column), a missing field, a wrong type, an
 *          unknown task type, an index out of range; c is {0} then */
MR_API mr_code mr_cluster_from_tf_config(mr_cluster *c, const char *json, size_t size,
                                         mr_status *st) MR_NODISCARD;
/* The same from the environment variable TF_CONFIG; unset: a single process. */
MR_API mr_code mr_cluster_from_env(mr_cluster *c, mr_status *st) MR_NODISCARD;

/* "TF_CONFIG", "Slurm", "torchrun", "MPI", "nowhere". */
MR_API const char *mr_cluster_source_name(mr_cluster_source source);

/* Detects the launcher from the environment. c must be {0}. TF_CONFIG is used if it is set, else
 * the variables of the first of these launchers that started this process:
 *   Slurm      SLURM_PROCID, SLURM_STEP_NODELIST, SLURM_STEP_NUM_TASKS (else SLURM_NTASKS),
 *              SLURM_JOB_ID. All meet on the first node, port 20000 + job id mod 20000. Ignored if
 *              torchrun or mpirun runs inside the step: those number the processes
 *   torchrun   RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT. All meet there, one port higher if
 *              TORCHELASTIC_USE_AGENT_STORE is True, because torchrun itself uses the first
 *   MPI        OMPI_COMM_WORLD_RANK and _SIZE (Open MPI), or PMI_RANK and PMI_SIZE (MPICH, Intel).
 *              All meet at MASTER_ADDR, port MASTER_PORT. Without MASTER_ADDR, if all run on this
 *              machine, they meet here, at a port derived from the job's name
 * MILLRACE_PORT overrides the port, except with TF_CONFIG.
 * errors   MR_INVALID_ARGUMENT: a variable is missing or invalid; the message has its name and
 *          value, and c is {0} · MR_FAILED_PRECONDITION: MPI on several machines without
 *          MASTER_ADDR */
MR_API mr_code mr_cluster_from_launcher(mr_cluster *c, mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
