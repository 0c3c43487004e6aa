/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/engine/block_size_tuner.h"

#include "pipeline/engine/executor.h"
#include "pipeline/engine/run.h"

enum { MOST_ROWS = 1 << 20 };
enum { FORGETS = 256 };      /* requests, after which a maximum has decayed to about a third */
#define SHORT_REQUEST 0.0005 /* seconds: below, the next request is for more rows */
#define LONG_REQUEST  0.004  /* above, for fewer */

static bool has_threads(const mr_iterator_opts *o)
{
    if (o->executor)
        return mr__executor_threads(o->executor) > 0;
    return !o->has_threads || o->threads > 0;
}

void mr__block_size_tuner_start(mr__block_size_tuner *t, const mr_iter *it, size_t row_bytes)
{
    t->by_clock = has_threads(&it->run->opts);
    t->rows = row_bytes ? MOST_ROWS : 1;
    t->row_bytes = t->widest = row_bytes;
    t->largest = 0;
}

size_t mr__block_size_tuner_ask(const mr__block_size_tuner *t, const mr_iter *it, size_t want)
{
    return mr_iter_block_rows(it, want < t->rows ? want : t->rows, t->row_bytes);
}

size_t mr__block_size_tuner_expect(const mr__block_size_tuner *t, size_t rows)
{
    return rows ? t->widest + (rows - 1) * t->row_bytes : 0;
}

static size_t of_late(size_t most, size_t bytes)
{
    size_t less = most - most / FORGETS;
    return bytes > less ? bytes : less;
}

void mr__block_size_tuner_note(mr__block_size_tuner *t, size_t asked, double seconds, size_t rows,
                               size_t bytes)
{
    if (rows)
        t->row_bytes = bytes / rows;
    t->widest = of_late(t->widest, t->row_bytes);
    t->largest = of_late(t->largest, bytes);
    double scale = t->seconds > 0 ? t->seconds / SHORT_REQUEST : 1;
    if (t->by_clock && seconds > LONG_REQUEST * scale) {
        if (t->rows > 1)
            t->rows = asked > 1 ? asked / 2 : 1;
    } else if (!t->by_clock || seconds < SHORT_REQUEST * scale) {
        /* The time of a request that something else limited to far fewer rows is not
         * representative. */
        if (asked >= t->rows / 2 && t->rows < MOST_ROWS)
            t->rows = 2 * asked > t->rows ? 2 * asked : t->rows;
    }
}
