/* SPDX-License-Identifier: Apache-2.0 */
/* Implemented with messages, because MPI_Allreduce cannot be abandoned when a process is lost, and
 * Open MPI's MPI_Iallreduce takes twice as long.
 *
 * Every operation begins with a comparison of the processes' operations, see `meeting`. The values
 * of a short all-reduce are sent along with it; those of a long one travel around a ring at the
 * same time, see `turn`; all others begin after it, with MPI's own operations. */
#include "trainer/collective/mpi/mpi_module.h"

#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h> /* atexit */
#include <string.h>

enum { PIECE = 1 << 28, MAX_PIECES = 256 /* of a broadcast, in bytes */ };
/* Open MPI sends up to 4 KiB, including its own head, without asking the other side first. A small
 * head and a value share a cache line with it. */
enum {
    HEAD = MR__MPI_HEAD,
    SLICE = 3968,
    MAX_SLICES = 2,
    SHORT = MAX_SLICES * SLICE - HEAD /* bytes */
};
enum { TOGETHER = 128 << 10 /* bytes: a longer turn waits for the meeting */ };
enum { AHEAD = 2 /* parts */, PART = MR__MPI_ROOM / AHEAD /* bytes */ };
enum { OF_MEETING, OF_TURN }; /* tags */
enum { LAST_TESTS = 1000 /* of a cancelled message */ };

static const size_t bytes_of[MR__MPI_TYPES] = {2, 2, 4, 8, 4, 8};

static mr__mpi_fold fold_of[MR__MPI_TYPES][3];
static MPI_Comm all; /* a separate communicator: no messages of others */
static int rank, world;
static int n_rounds, pairs; /* for 2^n_rounds + pairs processes, see meeting */
static bool is_open, ends_well;
static bool is_under_way; /* an operation; stays set if it fails */
static int *room_of_both; /* for an all-gather: counts, then offsets */

static mr__mpi_call call; /* the current operation */
static MPI_Request requests[MAX_PIECES];
static int n_requests; /* -1: not yet started */

/* Compares the heads of all processes in pairs, and sums the values that follow them: recursive
 * doubling. If two processes differ, or the pairs between them, one pair detects it. If the number
 * of processes is not 2^k, some first send their values to a neighbour, and get the result from it
 * at the end:
 *
 *     0 --> 1    1 <-> 2    1 <-> 3    1 --> 0        of five, where 1 is the first of four
 *
 * The value from the lower rank is the first operand, on both sides: all get the same bits,
 * including NaNs. All messages, in slices of at most SLICE bytes, fit the receive buffers; the
 * first has the head, and is checked before all others. */
static struct {
    bool runs, waits; /* for the messages of this round */
    int round, to, from, n_slices, got;
    size_t bytes;   /* of values */
    char *values;   /* so far: call.data, or after a head in one of the buffers below */
    char *out, *in; /* a head and values */
    MPI_Request out_slices[MAX_SLICES], in_slices[MAX_SLICES];
} meeting;
static _Alignas(64) char rooms[2][MAX_SLICES * SLICE];

/* A long all-reduce. The values are divided into one segment per process. In each round a
 * process sends one to the next, in parts, and receives one from the previous: in the first half
 * of the rounds it adds its own values to it, in the second it stores it. It then sends that
 * segment on. */
static struct {
    bool runs;
    char why[256];                  /* it failed, possibly because another process runs a different
                                       operation */
    size_t round, sent, asked, got; /* parts of this round */
    char *from[2], *to[2];          /* the segment sent in it, and the one received */
    char *room;                     /* for AHEAD parts */
    MPI_Request out[AHEAD], in[AHEAD];
} turn;

static bool check(int rc, const char *what, char *why, size_t size)
{
    if (rc == MPI_SUCCESS)
        return true;
    char text[MPI_MAX_ERROR_STRING] = "";
    int n;
    MPI_Error_string(rc, text, &n);
    snprintf(why, size, "%s: %s", what, text);
    return false;
}

/* Others wait in MPI_Finalize for this process; after a failure they have gone. */
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
    if (is_under_way) {
        snprintf(why, size,
                 "an operation of this process failed, and MPI may still write its result; restart "
                 "the processes");
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
        snprintf(why, size,
                 "this MPI cannot be called from several threads, not even one at a time");
        return false;
    }
    if (!check(MPI_Comm_dup(MPI_COMM_WORLD, &all), "MPI_Comm_dup", why, size))
        return false;
    MPI_Comm_set_errhandler(all, MPI_ERRORS_RETURN);
    MPI_Comm_rank(all, &rank);
    MPI_Comm_size(all, &world);
    n_rounds = 0;
    while (2 << n_rounds <= world)
        n_rounds++;
    pairs = world - (1 << n_rounds);
    room_of_both = room;
    turn.room = parts;
    is_open = true;
    return true;
}

static void mpi_describe(int *own, int *size, char *version, size_t room)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int n, end = 0;
    *own = rank;
    *size = world;
    MPI_Get_library_version(text, &n);
    while (text[end] && text[end] != ',')
        end++;
    snprintf(version, room, "%.*s", end, text);
}

/* ---- the meeting ---- */

static void start_meeting(size_t bytes)
{
    meeting.runs = world > 1;
    meeting.waits = false;
    meeting.round = 0;
    meeting.bytes = bytes;
    meeting.n_slices = (int)((HEAD + bytes + SLICE - 1) / SLICE);
    meeting.values = call.data;
    meeting.out = rooms[0];
    meeting.in = rooms[1];
    for (int i = 0; i < MAX_SLICES; i++)
        meeting.in_slices[i] = MPI_REQUEST_NULL;
}

/* The partners of this process in a round; MPI_PROC_NULL: none. false: no more rounds. */
static bool partners(int round, int *to, int *from)
{
    /* 0 and 1, 2 and 3, ...: the odd ones continue for both */
    bool is_paired = rank < 2 * pairs, rests = is_paired && rank % 2 == 0;
    *to = *from = MPI_PROC_NULL;
    if (round == 0 && is_paired)
        *(rests ? to : from) = rank ^ 1;
    else if (round > 0 && round <= n_rounds && !rests) {
        int other = (is_paired ? rank / 2 : rank - pairs) ^ 1 << (round - 1);
        *to = *from = other < pairs ? other * 2 + 1 : other + pairs;
    } else if (round > n_rounds && is_paired)
        *(rests ? from : to) = rank ^ 1;
    return round <= n_rounds + (pairs > 0);
}

/* The first slice is a head and values, the others are values. Sends precede receives, which are
 * posted while the messages are in transit. */
static bool start_round(char *why, size_t size)
{
    size_t first = meeting.bytes < SLICE - HEAD ? meeting.bytes : SLICE - HEAD, at = first;
    meeting.got = 0;
    memcpy(meeting.out, call.head, HEAD);
    if (meeting.values != meeting.out + HEAD && first)
        memcpy(meeting.out + HEAD, meeting.values, first);
    for (int i = 0; i < meeting.n_slices; i++) {
        size_t n = i == 0 ? HEAD + first : meeting.bytes - at < SLICE ? meeting.bytes - at : SLICE;
        if (!check(MPI_Isend(i == 0 ? meeting.out : meeting.values + at, (int)n, MPI_BYTE,
                             meeting.to, OF_MEETING, all, &meeting.out_slices[i]),
                   "MPI_Isend", why, size))
            return false;
        at += i == 0 ? 0 : n;
    }
    for (int i = 0; i < meeting.n_slices; i++)
        if (!check(MPI_Irecv(meeting.in + i * SLICE, SLICE, MPI_BYTE, meeting.from, OF_MEETING, all,
                             &meeting.in_slices[i]),
                   "MPI_Irecv", why, size))
            return false;
    return true;
}

/* Whether this process gets values that another one summed for it. */
static bool gets_result(void)
{
    return meeting.round > 0 && meeting.to == MPI_PROC_NULL;
}

static bool take_slice(char *why, size_t size)
{
    size_t from = meeting.got ? (size_t)meeting.got * SLICE - HEAD : 0;
    size_t to = (size_t)(meeting.got + 1) * SLICE - HEAD;
    char *theirs = meeting.in + HEAD + from, *own = meeting.values + from;
    if (meeting.from == MPI_PROC_NULL)
        return true;
    if (meeting.got == 0 && !call.same(call.ctx, meeting.from, meeting.in)) {
        snprintf(why, size, "process %d runs another operation", meeting.from);
        return false;
    }
    if (meeting.bytes == 0 || gets_result())
        return true;
    size_t n = ((to < meeting.bytes ? to : meeting.bytes) - from) / bytes_of[call.type];
    if (meeting.from < rank)
        fold_of[call.type][call.op](own, theirs, n);
    else
        fold_of[call.type][call.op](theirs, own, n);
    return true;
}

/* The values replace the operand from the higher rank. */
static void end_round(void)
{
    if (meeting.from > rank) {
        char *in = meeting.in;
        meeting.in = meeting.out;
        meeting.out = in;
        meeting.values = in + HEAD;
    }
    meeting.round++;
    meeting.waits = false;
}

/* *moved: a round of messages began or ended. */
static bool move_meeting(bool *moved, char *why, size_t size)
{
    *moved = true;
    if (!meeting.waits) {
        meeting.waits = partners(meeting.round, &meeting.to, &meeting.from);
        if (meeting.waits)
            return start_round(why, size);
        if (meeting.bytes && meeting.values != call.data)
            memcpy(call.data, meeting.values, meeting.bytes);
        meeting.runs = false;
        return true;
    }
    for (int done; meeting.got < meeting.n_slices; meeting.got++) {
        if (!check(MPI_Test(&meeting.in_slices[meeting.got], &done, MPI_STATUS_IGNORE), "MPI_Test",
                   why, size))
            return false;
        /* Values being sent must not change, as they would when summed. */
        if (done && !check(MPI_Test(&meeting.out_slices[meeting.got], &done, MPI_STATUS_IGNORE),
                           "MPI_Test", why, size))
            return false;
        *moved = done;
        if (!done)
            return true;
        if (!take_slice(why, size))
            return false;
    }
    end_round();
    return true;
}

static bool test_meeting(char *why, size_t size)
{
    bool moved = true;
    while (meeting.runs && moved)
        if (!move_meeting(&moved, why, size))
            return false;
    return true;
}

/* ---- the ring */

static void start_round_of_turn(void)
{
    size_t n = (size_t)world, size = bytes_of[call.type];
    turn.sent = turn.asked = turn.got = 0;
    for (size_t back = 0; back < 2; back++) {
        size_t s = ((size_t)rank + 2 * n - turn.round - back) % n;
        size_t from = call.count / n * s + call.count % n * s / n;
        size_t to = call.count / n * (s + 1) + call.count % n * (s + 1) / n;
        turn.from[back] = (char *)call.data + from * size;
        turn.to[back] = (char *)call.data + to * size;
    }
}

static void start_turn(void)
{
    turn.runs = world > 1;
    turn.why[0] = '\0';
    turn.round = 0;
    for (int i = 0; i < AHEAD; i++)
        turn.out[i] = turn.in[i] = MPI_REQUEST_NULL;
    start_round_of_turn();
}

/* The k-th part of the segment that this process sends (back 0) or receives (back 1) in this round.
 * NULL: none. */
static char *part_of(size_t back, size_t k, int *bytes)
{
    size_t at = k * PART, size = (size_t)(turn.to[back] - turn.from[back]);
    if (at >= size)
        return NULL;
    *bytes = (int)(size - at < PART ? size - at : PART);
    return turn.from[back] + at;
}

/* Starts, completes and sums as much as possible. *moved: there was progress. */
static bool move_turn(bool *moved)
{
    int next = (rank + 1) % world, before = (rank + world - 1) % world;
    bool adds = turn.round + 1 < (size_t)world;
    int done = 0, bytes;
    char *p;
    *moved = false;
    while (turn.asked < turn.got + AHEAD && (p = part_of(1, turn.asked, &bytes))) {
        size_t k = turn.asked++ % AHEAD;
        char *to = adds ? turn.room + k * PART : p;
        if (!check(MPI_Irecv(to, bytes, MPI_BYTE, before, OF_TURN, all, &turn.in[k]), "MPI_Irecv",
                   turn.why, sizeof turn.why))
            return false;
    }
    if ((p = part_of(0, turn.sent, &bytes))) {
        MPI_Request *r = &turn.out[turn.sent % AHEAD];
        if (!check(MPI_Test(r, &done, MPI_STATUS_IGNORE), "MPI_Test", turn.why, sizeof turn.why))
            return false;
        if (done && !check(MPI_Isend(p, bytes, MPI_BYTE, next, OF_TURN, all, r), "MPI_Isend",
                           turn.why, sizeof turn.why))
            return false;
        turn.sent += (size_t)done;
        *moved = done;
    }
    if (!(p = part_of(1, turn.got, &bytes)))
        return true;
    size_t k = turn.got % AHEAD;
    if (!check(MPI_Test(&turn.in[k], &done, MPI_STATUS_IGNORE), "MPI_Test", turn.why,
               sizeof turn.why))
        return false;
    if (done && adds)
        fold_of[call.type][call.op](p, turn.room + k * PART, (size_t)bytes / bytes_of[call.type]);
    turn.got += (size_t)done;
    *moved = *moved || done;
    return true;
}

static bool test_turn(void)
{
    bool moved;
    int bytes, sent = 0;
    do {
        if (!move_turn(&moved))
            return false;
    } while (moved);
    if (part_of(0, turn.sent, &bytes) || part_of(1, turn.got, &bytes))
        return true;
    if (!check(MPI_Testall(AHEAD, turn.out, &sent, MPI_STATUSES_IGNORE), "MPI_Testall", turn.why,
               sizeof turn.why))
        return false;
    if (sent) {
        turn.round++;
        start_round_of_turn();
    }
    turn.runs = turn.round < 2 * ((size_t)world - 1);
    return true;
}

/* ---- MPI's own operations ---- */

static bool start_broadcast(char *why, size_t size)
{
    for (size_t from = 0; from < call.count; from += PIECE) {
        size_t n = call.count - from < PIECE ? call.count - from : PIECE;
        if (!check(MPI_Ibcast((char *)call.data + from, (int)n, MPI_BYTE, call.root, all,
                              &requests[n_requests]),
                   "MPI_Ibcast", why, size))
            return false;
        n_requests++;
    }
    return true;
}

static bool start_gather(char *why, size_t size)
{
    size_t at = 0;
    int *counts = room_of_both, *places = counts + world;
    for (int i = 0; i < world; at += call.sizes[i++]) {
        if (at + call.sizes[i] > INT_MAX) {
            snprintf(why, size, "MPI gathers at most %d bytes", INT_MAX);
            return false;
        }
        counts[i] = (int)call.sizes[i];
        places[i] = (int)at;
    }
    n_requests = 1;
    return check(MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, call.data, counts, places,
                                 MPI_BYTE, all, &requests[0]),
                 "MPI_Iallgatherv", why, size);
}

static bool test_requests(bool *done, char *why, size_t size)
{
    int flag = 0;
    if (n_requests < 0) {
        n_requests = 0;
        if (!(call.kind == MR__MPI_BROADCAST ? start_broadcast : start_gather)(why, size))
            return false;
    }
    bool good = check(MPI_Testall(n_requests, requests, &flag, MPI_STATUSES_IGNORE), "MPI_Testall",
                      why, size);
    *done = flag;
    return good;
}

static bool mpi_start(const mr__mpi_call *c, char *why, size_t size)
{
    if (c->kind == MR__MPI_BROADCAST && c->count / PIECE >= MAX_PIECES) {
        snprintf(why, size, "%zu bytes are too many for one operation", c->count);
        return false;
    }
    call = *c;
    is_under_way = true;
    n_requests = -1;
    bool sums = c->kind == MR__MPI_ALL_REDUCE;
    bool is_short = sums && c->count <= SHORT / bytes_of[c->type];
    start_meeting(is_short ? c->count * bytes_of[c->type] : 0);
    if (sums && !is_short)
        start_turn();
    return true;
}

/* A process that sums more values, or fewer, can make a turn fail before the heads arrive. The turn
 * goes first, as its messages take most of the time; but a long one is faster if all begin it at
 * once, after the meeting. */
static bool mpi_test(bool *done, char *why, size_t size)
{
    *done = false;
    bool waits = meeting.runs && call.count > TOGETHER / bytes_of[call.type];
    if (turn.runs && !turn.why[0] && !waits)
        test_turn();
    if (meeting.runs && !test_meeting(why, size))
        return false;
    if (meeting.runs)
        return true;
    if (turn.runs && turn.why[0]) {
        snprintf(why, size, "%s", turn.why);
        return false;
    }
    if (call.kind != MR__MPI_ALL_REDUCE && !test_requests(done, why, size))
        return false;
    if (call.kind == MR__MPI_ALL_REDUCE)
        *done = !turn.runs;
    is_under_way = !*done;
    return true;
}

/* Cancels receives that no message has begun to match; messages in transit may still arrive. */
static void cancel(MPI_Request *in, int n)
{
    for (int i = 0; i < n; i++) {
        int done = in[i] == MPI_REQUEST_NULL || MPI_Cancel(&in[i]) != MPI_SUCCESS;
        for (int k = 0; !done && k < LAST_TESTS; k++)
            if (MPI_Test(&in[i], &done, MPI_STATUS_IGNORE) != MPI_SUCCESS)
                break;
    }
}

static void mpi_call_off(void)
{
    if (meeting.waits)
        cancel(meeting.in_slices, meeting.n_slices);
    if (turn.runs)
        cancel(turn.in, AHEAD);
}

static bool mpi_close(bool well)
{
    if (is_open && well)
        MPI_Comm_free(&all);
    turn.runs = false;
    is_open = false;
    ends_well = well;
    return !is_under_way;
}

__attribute__((visibility("default"))) const mr__mpi *millrace_mpi(void);
const mr__mpi *millrace_mpi(void)
{
    static const mr__mpi module = {.abi = MR__MPI_ABI,
                                   .open = mpi_open,
                                   .describe = mpi_describe,
                                   .start = mpi_start,
                                   .test = mpi_test,
                                   .call_off = mpi_call_off,
                                   .close = mpi_close};
    return &module;
}
