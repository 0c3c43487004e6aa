/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_MEMORY_OBJECT_H
#define MR_PIPELINE_MEMORY_OBJECT_H
/* Reference counting, once: what is shared and immutable (datasets, specs, functions) starts with
 * an mr_object. A column of dataset references is an array of mr_object pointers, so that the
 * memory room can copy and free such columns without knowing what a dataset is.
 *
 * thread   any */
#include <stdatomic.h>
#include <stddef.h>

typedef struct mr_object mr_object;
struct mr_object {
    atomic_size_t refs;
    void (*destroy)(mr_object *self); /* called once, when the last reference goes */
};

static inline void mr_object_init(mr_object *o, void (*destroy)(mr_object *))
{
    atomic_init(&o->refs, 1);
    o->destroy = destroy;
}

static inline void mr_object_ref(mr_object *o)
{
    /* Relaxed: whoever refs already holds a reference. */
    atomic_fetch_add_explicit(&o->refs, 1, memory_order_relaxed);
}

static inline void mr_object_unref(mr_object *o)
{
    /* Release pairs with the acquire of the thread that destroys (its own decrement, since a fence
     * is something that ThreadSanitizer does not see). */
    if (o && atomic_fetch_sub_explicit(&o->refs, 1, memory_order_acq_rel) == 1)
        o->destroy(o);
}

/* true if the caller holds the only reference. */
static inline int mr_object_sole(const mr_object *o)
{
    /* Acquire pairs with other holders' release when they let go. */
    return atomic_load_explicit(&o->refs, memory_order_acquire) == 1;
}
#endif
