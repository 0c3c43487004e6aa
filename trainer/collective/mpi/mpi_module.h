/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_MPI_MPI_MODULE_H
#define MR_TRAINER_MPI_MPI_MODULE_H
/* What millrace-mpi.so brings: operations over the processes that mpirun started, on host memory.
 * It knows nothing of Millrace but this, so that one build of the trainer runs with and without
 * MPI.
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
    const size_t *sizes; /* all-gather: bytes of each process, which lie one after the other */
    const void *head;    /* MR__MPI_HEAD bytes, which others get; borrowed until the end */
    /* Is what another process does, of which this is the head, the same? false: test fails. */
    bool (*same)(void *ctx, int rank, const void *head);
    void *ctx;
} mr__mpi_call;

typedef struct mr__mpi {
    uint32_t abi; /* MR__MPI_ABI */
    /* Joins MPI, once a process. room: of two ints for each process; parts: of MR__MPI_ROOM bytes;
     * both borrowed until close says otherwise. false: why not. */
    bool (*open)(mr__mpi_fold folds[MR__MPI_TYPES][3], int *room, void *parts, char *why,
                 size_t size);
    /* Which process this is, of how many, by which MPI. */
    void (*describe)(int *rank, int *size, char *version, size_t room);
    /* Starts an operation; all processes start the same ones in the same order. One that starts
     * another one is found by `same`: never is a result taken from what differs. */
    bool (*start)(const mr__mpi_call *call, char *why, size_t size);
    /* *done: it has ended. false: it failed; it then is neither tested nor followed by another. */
    bool (*test)(bool *done, char *why, size_t size);
    /* After an operation that failed, or is not awaited any more, while its memory is there: what
     * can be of it comes now or not at all. */
    void (*call_off)(void);
    /* well: MPI is left in order when the process ends. Else it is just left, since the others may
     * not be there any more. false: an operation has not ended, and MPI may still use its memory:
     * room and parts must stay, and there is no opening any more. */
    bool (*close)(bool well);
} mr__mpi;

typedef const mr__mpi *mr__mpi_fn(void);
#endif
