/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_MEMORY_OBJECT_H
#define MR_PIPELINE_MEMORY_OBJECT_H
/* Base of reference-counted, immutable objects (datasets, specs, functions): their structs start
 * with an mr__object. A column of dataset references is an array of mr__object pointers, so
 * pipeline/memory copies and frees such columns without the definition of a dataset.
 *
 * thread   any */
#include <stdatomic.h>
#include <stddef.h>

typedef struct mr__object mr__object;
struct mr__object {
    atomic_size_t refs;
    void (*destroy)(mr__object *self); /* called once, when the last reference is dropped */
};

static inline void mr__object_init(mr__object *o, void (*destroy)(mr__object *))
{
    atomic_init(&o->refs, 1);
    o->destroy = destroy;
}

static inline void mr__object_ref(mr__object *o)
{
    /* Relaxed: the caller already holds a reference. */
    atomic_fetch_add_explicit(&o->refs, 1, memory_order_relaxed);
}

static inline void mr__object_unref(mr__object *o)
{
    /* Release pairs with the acquire in the decrement of the thread that destroys the object. (Not
     * an acquire fence: ThreadSanitizer does not support fences.) */
    if (o && atomic_fetch_sub_explicit(&o->refs, 1, memory_order_acq_rel) == 1)
        o->destroy(o);
}
#endif
