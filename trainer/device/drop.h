/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_DEVICE_DROP_H
#define MR_TRAINER_DEVICE_DROP_H
/* Work that a cancellation drops to end a run within a step.
 *
 * A step is a numbered section in the streams of all replicas. Before its first change of a
 * variable each stream decides to keep it. A section is kept by all streams or by none: the number
 * of the last one that is kept and the cancellation share a word, and after the cancellation the
 * number stays. The rest of a section that is not kept does nothing.
 *
 *     begin(k)   forward, backward       dropped once the cancellation is seen, unless kept
 *     keep       here the stream decides
 *                updates, results        as decided
 *     end
 *
 * thread   cancel: any, and signal handlers */
#include <stdatomic.h>
#include "trainer/device/device.h"

struct mr_drop {
    _Atomic uint64_t word; /* the last section kept, and MR__DROPPED */
};

#define MR__DROPPED (UINT64_C(1) << 63)

/* No section is in any stream. */
static inline void mr__drop_reset(mr_drop *d)
{
    atomic_store(&d->word, 0);
}

static inline void mr__drop_cancel(mr_drop *d)
{
    atomic_fetch_or(&d->word, MR__DROPPED);
}

/* Whether this section is not kept and will not be. */
static inline bool mr__drop_is_dropped(const mr_drop *d, uint64_t section)
{
    uint64_t word = atomic_load(&d->word);
    return word & MR__DROPPED && (word & ~MR__DROPPED) < section;
}

static inline void mr__drop_keep(mr_drop *d, uint64_t section)
{
    uint64_t word = atomic_load(&d->word);
    while (!(word & MR__DROPPED) && word < section &&
           !atomic_compare_exchange_weak(&d->word, &word, section))
        ;
}

/* Whether the stream's device can drop work. */
bool mr__stream_can_drop(const mr_stream *s);
/* What follows belongs to this section. The device can drop work; d must outlive the section. */
mr_code mr__stream_section_begin(mr_stream *s, mr_drop *d, uint64_t section,
                                 mr_status *st) MR_NODISCARD;
/* Without effect outside a section. */
mr_code mr__stream_section_keep(mr_stream *s, mr_status *st) MR_NODISCARD;
mr_code mr__stream_section_end(mr_stream *s, mr_status *st) MR_NODISCARD;
#endif
