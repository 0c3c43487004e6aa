/* SPDX-License-Identifier: Apache-2.0 */
/* The service under simulated faults. MR_SIMULATION=seed runs one seed and prints its history;
 * MR_SIMULATION_COUNTS prints how often each fault happened. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/harness.h"
#include "tests/transport/service/simulation.h"

MR_ONE_THREAD;

static const char *const modes[] = {"exactly_once", "dynamic", "parallel_epochs", "file", "data",
                                    "file_or_data", "hint"};

static void run(const mr__simulation_opts *o)
{
    const char *broken = mr__simulation_run(o);
    if (broken)
        mr_fail_test("seed %" PRIu64 " (%s, %d workers, %d streams, %d consumers, %d faults%s%s): "
                     "%s; MR_SIMULATION=%" PRIu64 " repeats it",
                     o->seed, modes[o->mode], o->workers, o->streams, o->consumers, o->faults,
                     o->memory ? ", no account" : "", o->restores ? ", restores" : "", broken,
                     o->seed);
}

static void run_seed(uint64_t seed, bool history)
{
    mr__simulation_opts o;
    mr__simulation_draw(seed, &o);
    o.history = history;
    run(&o);
}

/* Each stood still, or lost something, once; no tool drained anything then. */
MR_TEST(seeds_that_found_something)
{
    static const uint64_t seeds[] = {92405, 2022266, 10062672, 375380008, 18368280744};
    for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++) {
        mr__simulation_opts o;
        mr__simulation_draw(seeds[i], &o);
        o.tool = false;
        run(&o);
    }
}

static void run_newcomers(uint64_t seed, bool history, bool no_tool)
{
    mr__simulation_opts o;
    mr__simulation_draw_newcomers(seed, &o);
    o.history = history;
    o.tool = o.tool && !no_tool;
    const char *broken = mr__simulation_run(&o);
    if (broken)
        mr_fail_test("seed %" PRIu64 " (%d workers, %d consumers, %d faults%s): %s; "
                     "MR_SIMULATION=%" PRIu64 " repeats it",
                     o.seed, o.workers, o.consumers, o.faults,
                     o.loses ? ", an account is lost once" : "", broken, o.seed);
}

MR_TEST(seeds_of_lost_accounts_that_found_something)
{
    run_newcomers(9474620824, false, true); /* a split that came while its client was away */
}

/* The client gets the address at the same time, and is at the worker before the graph is. */
MR_TEST(a_large_graph_is_waited_for)
{
    for (uint64_t seed = 0; seed < 60; seed++) {
        mr__simulation_opts o;
        mr__simulation_draw(seed, &o);
        o.faults = 0;
        o.host_ms = 100 << seed % 6;
        run(&o);
    }
}

/* Clients begin before and after the dispatcher loses its account: nothing is lost, and what comes
 * twice is an error at one of them. */
MR_TEST_SLOW(a_lost_account_is_never_silent)
{
    const char *one = getenv("MR_SIMULATION");
    uint64_t first = one ? strtoull(one, NULL, 10) : mr_test_seed() % 1000000 * 20000;
    int n = one ? 1 : mr_test_long() ? 20000 : 1000;
    for (int i = 0; i < n; i++)
        run_newcomers(first + (uint64_t)i, one != NULL, false);
}

/* A client waited for ever for the answer to its last acknowledgement: a dispatcher that ended
 * while a stream moved learned of the newer generation when the client was back, and had read the
 * stream to its end. */
MR_TEST(a_seed_of_moved_streams_that_found_something)
{
    mr__simulation_opts o;
    mr__simulation_draw_balance(32287, &o);
    run(&o);
}

/* Workers come, crash and drain: loads become even in at most 10 s, no stream moves without a
 * reason, and the sequence neither changes nor stalls. */
MR_TEST_SLOW(loads_become_even_and_stay_so)
{
    const char *one = getenv("MR_SIMULATION");
    uint64_t first = one ? strtoull(one, NULL, 10) : mr_test_seed() % 1000000 * 20000;
    int n = one ? 1 : mr_test_long() ? 20000 : 1000;
    uint64_t before = mr__simulation_happened[MR__SIM_MOVED];
    for (int i = 0; i < n; i++) {
        mr__simulation_opts o;
        mr__simulation_draw_balance(first + (uint64_t)i, &o);
        o.history = one != NULL;
        run(&o);
    }
    if (!one && mr__simulation_happened[MR__SIM_MOVED] < before + (uint64_t)n)
        mr_fail_test("%" PRIu64 " moves in %d runs", mr__simulation_happened[MR__SIM_MOVED], n);
}

/* Workers come and go as the dispatcher says: it settles within one of the right number. */
MR_TEST_SLOW(a_load_of_known_cost_gets_its_workers)
{
    const char *one = getenv("MR_SIMULATION");
    uint64_t first = one ? strtoull(one, NULL, 10) : mr_test_seed() % 1000000 * 20000;
    int n = one ? 1 : mr_test_long() ? 400 : 20;
    for (int i = 0; i < n; i++) {
        mr__simulation_opts o;
        mr__simulation_draw_load(first + (uint64_t)i, &o);
        o.history = one != NULL;
        run(&o);
    }
}

MR_TEST_SLOW(every_element_as_promised_whatever_fails)
{
    const char *one = getenv("MR_SIMULATION");
    uint64_t first = one ? strtoull(one, NULL, 10) : mr_test_seed() % 1000000 * 20000;
    int n = one ? 1 : mr_test_long() ? 20000 : 2000;
    for (int i = 0; i < n; i++)
        run_seed(first + (uint64_t)i, one != NULL);
    for (int k = 0; !one && k < MR__SIM_MOVED; k++) /* what the seeds are to show did happen */
        if (mr__simulation_happened[k] == 0)
            mr_fail_test("there were no %s in %d runs", mr__simulation_kinds[k], n);
    for (int k = 0; getenv("MR_SIMULATION_COUNTS") && k < MR__SIM_KINDS; k++)
        printf("%10" PRIu64 " %s\n", mr__simulation_happened[k], mr__simulation_kinds[k]);
}
