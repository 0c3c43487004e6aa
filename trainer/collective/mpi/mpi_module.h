/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_COLLECTIVE_MPI_MPI_MODULE_H
#define MR_TRAINER_COLLECTIVE_MPI_MPI_MODULE_H
/* The interface of millrace-mpi.so: operations over the processes that mpirun started, on host
 * memory. The module depends on nothing else of Millrace, so that one build of the trainer runs
 * with and without MPI.
 *
 * thread   one at a time */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MR__MPI_ABI    4
#define MR__MPI_SYMBOL "millrace_mpi"

enum { MR__MPI_ROOM = 16 << 20, MR__MPI_HEAD = 32 /* bytes */ };

typedef enum mr__mpi_kind {
    MR__MPI_ALL_REDUCE,
    MR__MPI_BROADCAST,
    MR__MPI_ALL_GATHER
} mr__mpi_kind;
typedef enum mr__mpi_op { MR__MPI_SUM, MR__MPI_MAX, MR__MPI_MIN } mr__mpi_op;
typedef enum mr__mpi_type {
    MR__MPI_FLOAT16,
    MR__MPI_BFLOAT16,
    MR__MPI_FLOAT32,
    MR__MPI_FLOAT64,
    MR__MPI_INT32,
    MR__MPI_INT64,
    MR__MPI_TYPES
} mr__mpi_type;

/* own[i] = in[i] (op) own[i]; n values. */
typedef void (*mr__mpi_fold)(void *own, const void *in, size_t n);

typedef struct mr__mpi_call {
    mr__mpi_kind kind;
    mr__mpi_op op;       /* all-reduce */
    mr__mpi_type type;   /* all-reduce */
    int root;            /* broadcast */
    void *data;          /* in and out */
    size_t count;        /* values of an all-reduce, bytes of a broadcast */
    const size_t *sizes; /* all-gather: bytes of each process, which are contiguous */
    const void *head;    /* MR__MPI_HEAD bytes, sent to the others; borrowed until the end */
    /* Whether the operation of another process, which has this head, is the same; false: test
     * fails. */
    bool (*same)(void *ctx, int rank, const void *head);
    void *ctx;
} mr__mpi_call;

typedef struct mr__mpi {
    uint32_t abi; /* MR__MPI_ABI */
    /* Joins MPI, once per process. room: two ints for each process; parts: MR__MPI_ROOM bytes; both
     * are borrowed until close returns true. false: see `why`. */
    bool (*open)(mr__mpi_fold folds[MR__MPI_TYPES][3], int *room, void *parts, char *why,
                 size_t size);
    /* This process's rank, the number of processes, and the MPI version. */
    void (*describe)(int *rank, int *size, char *version, size_t room);
    /* Starts an operation; all processes start the same ones in the same order. `same` detects one
     * that differs: its result is never used. */
    bool (*start)(const mr__mpi_call *call, char *why, size_t size);
    /* *done: it has ended. false: it failed; then call neither test nor start again. */
    bool (*test)(bool *done, char *why, size_t size);
    /* Call after an operation that failed or is no longer awaited, while its memory is valid:
     * whatever can still complete does so now or never. */
    void (*call_off)(void);
    /* well: MPI is finalised when the process ends. Otherwise it is abandoned, since the others may
     * have gone. false: an operation has not ended, and MPI may still use its memory: room and
     * parts must stay valid, and it cannot be opened again. */
    bool (*close)(bool well);
} mr__mpi;

typedef const mr__mpi *mr__mpi_fn(void);
#endif
