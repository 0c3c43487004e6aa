/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TESTS_TRANSPORT_SERVICE_SIMULATION_H
#define MR_TESTS_TRANSPORT_SERVICE_SIMULATION_H
/* The whole service in one thread on a virtual clock: the real dispatcher, hosts and readers,
 * joined by simulated connections, an account on a simulated disk, and producers of numbered
 * elements. All that happens is a function of the seed.
 *
 * Faults, while they last: parts crash and start again, workers drain, by themselves or by a tool,
 * connections break or fall silent at one end or both, messages are lost with them, late, said
 * twice, and overtake those of other connections, workers are slow or do not see a file, the disk
 * is slow, full, and loses the last transaction, the clock jumps.
 *
 * Held for every run: the consumers get every element as often as the mode promises, in the order
 * that it promises; an element that was acknowledged durably is never given again; nothing leaks;
 * the run ends. */
#include <stdbool.h>
#include <stdint.h>
#include "transport/wire/messages.h"

typedef struct mr__simulation_opts {
    uint64_t seed;
    Mr__Wire__Mode mode;
    int workers, streams, block_length, consumers;
    int repetitions; /* exactly_once: of the job, one after the other */
    int splits;      /* dynamic: of the source */
    int passes;      /* dynamic: how often the graph repeats it */
    int faults;      /* about how many in a run */
    bool memory;     /* the dispatcher keeps no account */
    bool restores;   /* consumers that crash restore a saved position; else they resume */
    bool unordered;  /* exactly_once with deterministic=false */
    bool has_lists;  /* the client matched the patterns */
    bool blind;      /* worker 0 does not see the files of odd streams, which move */
    bool elsewhere;  /* worker 0 is of another host, and clients read from their own alone */
    bool first_come; /* static modes: the list consists of the first workers to register */
    bool newcomers;  /* dynamic, no account: clients begin at any time, and none crashes */
    bool loses;      /* an account is kept, and lost as the dispatcher ends the first time */
    bool tool;       /* drains workers too */
    bool balance;    /* longer streams; workers come one after the other */
    bool calm;       /* balance: only workers fail */
    /* load: elements of endless streams take a worker cost_ms each, one after the other, and the
     * consumer own_ms; workers are started and drained as the dispatcher says, at first there is
     * one. It has to say `right`. 0: not so. */
    int cost_ms, own_ms, right;
    int restore_ms; /* balance: how long a producer takes before its first block */
    int host_ms;    /* Host arrives that much later than other messages: its graph is large */
    bool history;   /* print what happens */
} mr__simulation_opts;

/* What happened in all runs so far, by MR__SIM_ number. */
enum {
    MR__SIM_DISPATCHER_CRASH,
    MR__SIM_WORKER_CRASH,
    MR__SIM_CLIENT_CRASH,
    MR__SIM_WORKER_DRAINS,
    MR__SIM_DRAIN_ASKED,
    MR__SIM_LINK_BREAKS,
    MR__SIM_LINK_SILENT,
    MR__SIM_HALF_OPEN,
    MR__SIM_MESSAGE_LOST,
    MR__SIM_MESSAGE_LATE,
    MR__SIM_MESSAGE_TWICE,
    MR__SIM_OVERTAKEN,
    MR__SIM_SLOW_WORKER,
    MR__SIM_SLOW_DISK,
    MR__SIM_FULL_DISK,
    MR__SIM_TRANSACTION_LOST,
    MR__SIM_TRANSACTION_WHOLE,
    MR__SIM_CLOCK_JUMP,
    MR__SIM_FILE_UNSEEN,
    MR__SIM_MOVED,
    MR__SIM_KINDS
};
extern uint64_t mr__simulation_happened[MR__SIM_KINDS];
extern const char *const mr__simulation_kinds[MR__SIM_KINDS];

/* Drawn from the seed. */
void mr__simulation_draw(uint64_t seed, mr__simulation_opts *o);
/* Drawn too, with newcomers. */
void mr__simulation_draw_newcomers(uint64_t seed, mr__simulation_opts *o);
/* Drawn too: workers that come and go, and streams that move. */
void mr__simulation_draw_balance(uint64_t seed, mr__simulation_opts *o);
/* Drawn too: loads of known cost. */
void mr__simulation_draw_load(uint64_t seed, mr__simulation_opts *o);
/* NULL: all held; else what did not, static text. */
const char *mr__simulation_run(const mr__simulation_opts *o);
#endif
