/* SPDX-License-Identifier: Apache-2.0 */
/* MPI's non-blocking collectives. Counts of MPI are ints: longer operations go in pieces. */
#include "trainer/mpi/mpi_module.h"

#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h> /* atexit */

enum { PIECE = 1 << 28, MAX_PIECES = 256 };

static mr__mpi_fold fold_of[MR__MPI_TYPES][3];
static MPI_Op op_of[MR__MPI_TYPES][3];
static MPI_Datatype type_of[MR__MPI_TYPES];
static MPI_Comm all; /* of our own: nobody else's messages */
static MPI_Request requests[MAX_PIECES];
static int n_requests;
static int *room_of_both; /* of an all-gather: counts, then places */
static bool is_open, ends_well;

static bool check(int rc, const char *what, char *why, size_t size)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int n;
    if (rc == MPI_SUCCESS)
        return true;
    MPI_Error_string(rc, text, &n);
    snprintf(why, size, "%s: %s", what, text);
    return false;
}

/* MPI compares floats as it likes where one is NaN, and knows no float16 and bfloat16. */
#define OPERATION(type, op)                                                                        \
    static void do_##type##_##op(void *in, void *own, int *n, MPI_Datatype *t)                     \
    {                                                                                              \
        (void)t;                                                                                   \
        fold_of[type][op](own, in, (size_t)*n);                                                    \
    }
OPERATION(MR__MPI_FLOAT16, MR__MPI_SUM)
OPERATION(MR__MPI_FLOAT16, MR__MPI_MAX)
OPERATION(MR__MPI_FLOAT16, MR__MPI_MIN)
OPERATION(MR__MPI_BFLOAT16, MR__MPI_SUM)
OPERATION(MR__MPI_BFLOAT16, MR__MPI_MAX)
OPERATION(MR__MPI_BFLOAT16, MR__MPI_MIN)
OPERATION(MR__MPI_FLOAT32, MR__MPI_MAX)
OPERATION(MR__MPI_FLOAT32, MR__MPI_MIN)
OPERATION(MR__MPI_FLOAT64, MR__MPI_MAX)
OPERATION(MR__MPI_FLOAT64, MR__MPI_MIN)

static bool make_operations(char *why, size_t size)
{
    static const struct {
        mr__mpi_type type;
        mr__mpi_op op;
        MPI_User_function *fn;
    } own[] = {{MR__MPI_FLOAT16, MR__MPI_SUM, do_MR__MPI_FLOAT16_MR__MPI_SUM},
               {MR__MPI_FLOAT16, MR__MPI_MAX, do_MR__MPI_FLOAT16_MR__MPI_MAX},
               {MR__MPI_FLOAT16, MR__MPI_MIN, do_MR__MPI_FLOAT16_MR__MPI_MIN},
               {MR__MPI_BFLOAT16, MR__MPI_SUM, do_MR__MPI_BFLOAT16_MR__MPI_SUM},
               {MR__MPI_BFLOAT16, MR__MPI_MAX, do_MR__MPI_BFLOAT16_MR__MPI_MAX},
               {MR__MPI_BFLOAT16, MR__MPI_MIN, do_MR__MPI_BFLOAT16_MR__MPI_MIN},
               {MR__MPI_FLOAT32, MR__MPI_MAX, do_MR__MPI_FLOAT32_MR__MPI_MAX},
               {MR__MPI_FLOAT32, MR__MPI_MIN, do_MR__MPI_FLOAT32_MR__MPI_MIN},
               {MR__MPI_FLOAT64, MR__MPI_MAX, do_MR__MPI_FLOAT64_MR__MPI_MAX},
               {MR__MPI_FLOAT64, MR__MPI_MIN, do_MR__MPI_FLOAT64_MR__MPI_MIN}};
    const MPI_Datatype types[] = {MPI_UINT16_T, MPI_UINT16_T, MPI_FLOAT,
                                  MPI_DOUBLE,   MPI_INT32_T,  MPI_INT64_T};
    const MPI_Op usual[] = {MPI_SUM, MPI_MAX, MPI_MIN};
    for (int t = 0; t < MR__MPI_TYPES; t++) {
        type_of[t] = types[t];
        for (int k = 0; k < 3; k++)
            op_of[t][k] = usual[k];
    }
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (!check(MPI_Op_create(own[i].fn, 1, &op_of[own[i].type][own[i].op]), "MPI_Op_create",
                   why, size))
            return false;
    return true;
}

/* Others wait in MPI_Finalize for this process; where something went wrong they are gone. */
static void finalize(void)
{
    if (ends_well)
        MPI_Finalize();
}

static bool mpi_open(mr__mpi_fold folds[MR__MPI_TYPES][3], int *room, char *why, size_t size)
{
    int level = 0, there = 0;
    if (is_open) {
        snprintf(why, size, "MPI is in use in this process already");
        return false;
    }
    for (int t = 0; t < MR__MPI_TYPES; t++)
        for (int k = 0; k < 3; k++)
            fold_of[t][k] = folds[t][k];
    MPI_Initialized(&there);
    if (!there) {
        if (!check(MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level), "MPI_Init_thread",
                   why, size))
            return false;
        atexit(finalize);
    } else
        MPI_Query_thread(&level);
    ends_well = false;
    if (level < MPI_THREAD_SERIALIZED) {
        snprintf(why, size, "this MPI cannot be called from several threads in turn");
        return false;
    }
    if (!check(MPI_Comm_dup(MPI_COMM_WORLD, &all), "MPI_Comm_dup", why, size))
        return false;
    MPI_Comm_set_errhandler(all, MPI_ERRORS_RETURN);
    room_of_both = room;
    is_open = make_operations(why, size);
    return is_open;
}

static void mpi_describe(int *rank, int *size, char *version, size_t room)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int n, end = 0;
    MPI_Comm_rank(all, rank);
    MPI_Comm_size(all, size);
    MPI_Get_library_version(text, &n);
    while (text[end] && text[end] != ',')
        end++;
    snprintf(version, room, "%.*s", end, text);
}

static bool start_piece(const mr__mpi_call *c, size_t from, size_t n, char *why, size_t size)
{
    static const size_t bytes[MR__MPI_TYPES] = {2, 2, 4, 8, 4, 8};
    MPI_Request *r = &requests[n_requests];
    int rc;
    if (c->kind == MR__MPI_ALL_REDUCE)
        rc = MPI_Iallreduce(MPI_IN_PLACE, (char *)c->data + from * bytes[c->type], (int)n,
                            type_of[c->type], op_of[c->type][c->op], all, r);
    else
        rc = MPI_Ibcast((char *)c->data + from, (int)n, MPI_BYTE, c->root, all, r);
    if (!check(rc, c->kind == MR__MPI_ALL_REDUCE ? "MPI_Iallreduce" : "MPI_Ibcast", why, size))
        return false;
    n_requests++;
    return true;
}

static bool start_gather(const mr__mpi_call *c, char *why, size_t size)
{
    int n;
    size_t at = 0;
    MPI_Comm_size(all, &n);
    int *counts = room_of_both, *places = counts + n;
    for (int i = 0; i < n; at += c->sizes[i++]) {
        if (at + c->sizes[i] > INT_MAX) {
            snprintf(why, size, "MPI gathers at most %d bytes", INT_MAX);
            return false;
        }
        counts[i] = (int)c->sizes[i];
        places[i] = (int)at;
    }
    n_requests = 1;
    return check(MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, c->data, counts, places,
                                 MPI_BYTE, all, &requests[0]),
                 "MPI_Iallgatherv", why, size);
}

static bool mpi_start(const mr__mpi_call *c, char *why, size_t size)
{
    n_requests = 0;
    if (c->kind == MR__MPI_ALL_GATHER)
        return start_gather(c, why, size);
    if (c->count / PIECE >= MAX_PIECES) {
        snprintf(why, size, "%zu values are too many for one operation", c->count);
        return false;
    }
    size_t from = 0;
    do {
        size_t n = c->count - from < PIECE ? c->count - from : PIECE;
        if (!start_piece(c, from, n, why, size))
            return false;
        from += n;
    } while (from < c->count);
    return true;
}

static bool mpi_test(bool *done, char *why, size_t size)
{
    int flag = 0;
    bool good = check(MPI_Testall(n_requests, requests, &flag, MPI_STATUSES_IGNORE), "MPI_Testall",
                      why, size);
    *done = flag;
    return good;
}

static void mpi_close(bool well)
{
    if (is_open && well)
        MPI_Comm_free(&all);
    room_of_both = NULL;
    is_open = false;
    ends_well = well;
}

__attribute__((visibility("default"))) const mr__mpi *millrace_mpi(void);
const mr__mpi *millrace_mpi(void)
{
    static const mr__mpi module = {.abi = MR__MPI_ABI,
                                   .open = mpi_open,
                                   .describe = mpi_describe,
                                   .start = mpi_start,
                                   .test = mpi_test,
                                   .close = mpi_close};
    return &module;
}
