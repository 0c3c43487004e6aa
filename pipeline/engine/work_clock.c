/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/engine/work_clock.h"

#include "pipeline/system/system.h"
#include "pipeline/wait/wait.h"

/* The kernel's clock of the time on a processor costs a system call, so it is read only when
 * mr__ticks_to_look have passed since the last time: a shorter frame counts as work throughout. */
static _Thread_local struct {
    int64_t ticks, waited, clock_ns, cpu_ns; /* when it was read last */
    int64_t outside;                         /* awake since then, outside of all frames */
    int64_t left;                            /* work_ticks when the last frame ended */
    int64_t lost;                            /* neither slept in a known place nor worked, in all */
    int depth;                               /* of frames */
    bool in_pool;                            /* its work between frames counts for the next frame */
} processor;

static int64_t work_ticks(int64_t now, int64_t waited)
{
    return now - waited - processor.lost;
}

/* Reads the clocks. correct: all time since the last reading, except `outside`, was in frames. */
static void look(int64_t now, int64_t waited, bool correct)
{
    int64_t clock = mr__clock_ns(CLOCK_MONOTONIC), cpu = mr__clock_ns(CLOCK_THREAD_CPUTIME_ID);
    if (correct && clock > processor.clock_ns) {
        double share = (double)(cpu - processor.cpu_ns) / (double)(clock - processor.clock_ns);
        int64_t all = now - processor.ticks, ran = (int64_t)((double)all * share);
        int64_t worked = all - (waited - processor.waited) - processor.outside;
        /* Work outside of frames cannot be distinguished from sleep. Without such work, a wait's
         * own work counts. */
        if (processor.outside && ran > worked)
            ran = worked;
        processor.lost += worked - ran;
    }
    processor.ticks = now;
    processor.waited = waited;
    processor.clock_ns = clock;
    processor.cpu_ns = cpu;
    processor.outside = 0;
}

void mr__work_clock_of_pool(void)
{
    processor.in_pool = true;
    look(mr__ticks(), mr__waited_ticks(), false);
    processor.left = work_ticks(processor.ticks, processor.waited);
}

int64_t mr__work_clock_enter(bool by_cpu, int64_t *now, int64_t *waited)
{
    *now = mr__ticks();
    *waited = mr__waited_ticks();
    bool outside = processor.depth++ == 0 && !processor.in_pool;
    if (by_cpu) {
        if (*now - processor.ticks > mr__ticks_to_look())
            look(*now, *waited, !outside);
        else if (outside)
            processor.outside += work_ticks(*now, *waited) - processor.left;
    }
    bool next_task = processor.depth == 1 && processor.in_pool;
    return next_task ? processor.left : work_ticks(*now, *waited);
}

int64_t mr__work_clock_leave(bool by_cpu, int64_t *now, int64_t *waited)
{
    *now = mr__ticks();
    *waited = mr__waited_ticks();
    processor.depth--;
    if (by_cpu && *now - processor.ticks > mr__ticks_to_look())
        look(*now, *waited, true);
    processor.left = work_ticks(*now, *waited);
    return processor.left;
}
