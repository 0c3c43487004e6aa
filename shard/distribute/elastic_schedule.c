/* SPDX-License-Identifier: Apache-2.0 */
#include "shard/distribute/elastic_schedule.h"

int64_t mr__schedule_share(const mr__schedule *s, int64_t j)
{
    int64_t n = s->n_live, q = s->batch / n, t = s->batch % n;
    int64_t turn = (j - s->step % n * t) % n;
    int64_t share = q + ((turn < 0 ? turn + n : turn) < t);
    int64_t part = s->batch / s->streams + (s->batch % s->streams != 0);
    return part <= INT64_MAX / 2 && share > 2 * part ? 2 * part : share;
}
