/* SPDX-License-Identifier: Apache-2.0 */
/* MPI's non-blocking operations. Counts of MPI are ints: longer operations go in pieces. Open MPI's
 * MPI_Iallreduce takes twice as long as MPI_Allreduce for all but few values, but the latter cannot
 * be left when a process is lost: such sums go around from process to process here, see turn. */
#include "trainer/mpi/mpi_module.h"

#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h> /* atexit */

enum { PIECE = 1 << 28, MAX_PIECES = 256 /* of one operation, in values */ };
enum { LONG = 32 << 10, AHEAD = 2 /* parts */, PART = MR__MPI_ROOM / AHEAD /* bytes */ };

static const size_t bytes_of[MR__MPI_TYPES] = {2, 2, 4, 8, 4, 8};

static mr__mpi_fold fold_of[MR__MPI_TYPES][3];
static MPI_Op op_of[MR__MPI_TYPES][3];
static MPI_Datatype type_of[MR__MPI_TYPES];
static MPI_Comm all; /* of our own: nobody else's messages */
static MPI_Request requests[MAX_PIECES];
static int n_requests;
static int *room_of_both; /* of an all-gather: counts, then places */
static bool is_open, ends_well;

/* A long all-reduce. The values are cut into a segment a process. In each round a process sends one
 * to the next, in parts, and gets one from that before: in the first half of the rounds it adds its
 * own values to those, in the second it keeps them. It then sends that segment on. */
static struct {
    bool runs;
    mr__mpi_call call;
    int rank, size;
    size_t round, sent, asked, got; /* parts of this round */
    char *room;                     /* for AHEAD parts */
    MPI_Request out[AHEAD], in[AHEAD];
} turn;

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

static bool mpi_open(mr__mpi_fold folds[MR__MPI_TYPES][3], int *room, void *parts, char *why,
                     size_t size)
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
    turn.room = parts;
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
    MPI_Request *r = &requests[n_requests];
    int rc;
    if (c->kind == MR__MPI_ALL_REDUCE)
        rc = MPI_Iallreduce(MPI_IN_PLACE, (char *)c->data + from * bytes_of[c->type], (int)n,
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

static void start_turn(const mr__mpi_call *c)
{
    turn.runs = true;
    turn.call = *c;
    turn.round = turn.sent = turn.asked = turn.got = 0;
    for (int i = 0; i < AHEAD; i++)
        turn.out[i] = turn.in[i] = MPI_REQUEST_NULL;
    MPI_Comm_rank(all, &turn.rank);
    MPI_Comm_size(all, &turn.size);
}

/* The k-th part of the segment that this process sends (back 0) or gets (back 1) in this round.
 * NULL: there is none. */
static char *part_of(size_t back, size_t k, int *bytes)
{
    const mr__mpi_call *c = &turn.call;
    size_t n = (size_t)turn.size, s = ((size_t)turn.rank + 2 * n - turn.round - back) % n;
    size_t from = c->count / n * s + c->count % n * s / n;
    size_t to = c->count / n * (s + 1) + c->count % n * (s + 1) / n;
    size_t at = from * bytes_of[c->type] + k * PART, end = to * bytes_of[c->type];
    if (at >= end)
        return NULL;
    *bytes = (int)(end - at < PART ? end - at : PART);
    return (char *)c->data + at;
}

/* Starts, ends and adds up what can be. *moved: something was. */
static bool move_turn(bool *moved, char *why, size_t size)
{
    const mr__mpi_call *c = &turn.call;
    int next = (turn.rank + 1) % turn.size, before = (turn.rank + turn.size - 1) % turn.size;
    bool adds = turn.round + 1 < (size_t)turn.size;
    int done = 0, bytes;
    char *p;
    *moved = false;
    while (turn.asked < turn.got + AHEAD && (p = part_of(1, turn.asked, &bytes))) {
        size_t k = turn.asked++ % AHEAD;
        char *to = adds ? turn.room + k * PART : p;
        if (!check(MPI_Irecv(to, bytes, MPI_BYTE, before, 0, all, &turn.in[k]), "MPI_Irecv", why,
                   size))
            return false;
    }
    if ((p = part_of(0, turn.sent, &bytes))) {
        MPI_Request *r = &turn.out[turn.sent % AHEAD];
        if (!check(MPI_Test(r, &done, MPI_STATUS_IGNORE), "MPI_Test", why, size))
            return false;
        if (done && !check(MPI_Isend(p, bytes, MPI_BYTE, next, 0, all, r), "MPI_Isend", why, size))
            return false;
        turn.sent += (size_t)done;
        *moved = done;
    }
    if (!(p = part_of(1, turn.got, &bytes)))
        return true;
    size_t k = turn.got % AHEAD;
    if (!check(MPI_Test(&turn.in[k], &done, MPI_STATUS_IGNORE), "MPI_Test", why, size))
        return false;
    if (done && adds)
        fold_of[c->type][c->op](p, turn.room + k * PART, (size_t)bytes / bytes_of[c->type]);
    turn.got += (size_t)done;
    *moved = *moved || done;
    return true;
}

static bool test_turn(bool *done, char *why, size_t size)
{
    bool moved;
    int bytes, sent = 0;
    do {
        if (!move_turn(&moved, why, size))
            return false;
    } while (moved);
    if (part_of(0, turn.sent, &bytes) || part_of(1, turn.got, &bytes))
        return true;
    if (!check(MPI_Testall(AHEAD, turn.out, &sent, MPI_STATUSES_IGNORE), "MPI_Testall", why, size))
        return false;
    if (sent) {
        turn.round++;
        turn.sent = turn.asked = turn.got = 0;
    }
    *done = turn.round == 2 * ((size_t)turn.size - 1);
    turn.runs = !*done;
    return true;
}

static bool mpi_start(const mr__mpi_call *c, char *why, size_t size)
{
    n_requests = 0;
    if (c->kind == MR__MPI_ALL_REDUCE && c->count >= LONG / bytes_of[c->type]) {
        start_turn(c);
        return true;
    }
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
    *done = false;
    if (turn.runs)
        return test_turn(done, why, size);
    bool good = check(MPI_Testall(n_requests, requests, &flag, MPI_STATUSES_IGNORE), "MPI_Testall",
                      why, size);
    *done = flag;
    return good;
}

static void mpi_close(bool well)
{
    if (is_open && well)
        MPI_Comm_free(&all);
    turn.runs = false;
    turn.room = NULL;
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
