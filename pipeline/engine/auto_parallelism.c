/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/engine/auto_parallelism.h"

#include "pipeline/engine/statistics.h"

enum { READY_TO_FALL = 16 };
#define WEIGHT 0.125 /* weight of the last block in the averages */

static void say(const mr__auto_parallelism *d)
{
    mr__stats_tuned(d->it, d->parameter, d->now, d->service, d->interval);
}

void mr__auto_parallelism_start(mr__auto_parallelism *d, mr_iter *it, const char *parameter,
                                size_t least, size_t now, size_t most)
{
    *d = (mr__auto_parallelism){.it = it, .parameter = parameter, .least = least, .most = most};
    d->now = now < least ? least : now > most ? most : now;
    say(d);
}

static void average(double *mean, double v)
{
    *mean = *mean > 0 ? *mean + WEIGHT * (v - *mean) : v;
}

/* The depth for the consumer's rate measured so far. */
static size_t needed(const mr__auto_parallelism *d)
{
    double n = d->interval > 0 ? d->service / d->interval : (double)d->most;
    size_t whole = n < (double)d->most ? (size_t)n + 2 : d->most; /* rounded up, and one more */
    return whole < d->least ? d->least : whole > d->most ? d->most : whole;
}

void mr__auto_parallelism_took(mr__auto_parallelism *d, double asked, double service,
                               mr__supply supply)
{
    if (d->got > 0)
        average(&d->interval, asked - d->got);
    average(&d->service, service);
    d->got = mr_iter_now();
    size_t enough = needed(d), before = d->now;
    if (supply == MR_SUPPLY_LATE) {
        size_t more = d->now + (d->now + 1) / 2;
        d->now = more > enough ? more : enough;
        d->now = d->now > d->most ? d->most : d->now;
        d->ready = 0;
    } else if (supply == MR_SUPPLY_READY && ++d->ready >= READY_TO_FALL) {
        d->now -= d->now > enough;
        d->ready = 0;
    }
    if (d->now != before || d->ready == 0)
        say(d);
}
