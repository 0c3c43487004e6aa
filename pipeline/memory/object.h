/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_MEMORY_OBJECT_H
#define MR_PIPELINE_MEMORY_OBJECT_H
/* Reference counting, once: what is shared and immutable (datasets, specs, functions) starts with
 * an mr__object. A column of dataset references is an array of mr__object pointers, so that the
 * memory room can copy and free such columns without knowing what a dataset is.
 *
 * thread   any */
#include <stdatomic.h>
#include <stddef.h>

typedef struct mr__object mr__object;
struct mr__object {
    atomic_size_t refs;
    void (*destroy)(mr__object *self); /* called once, when the last reference goes */
};

static inline void mr__object_init(mr__object *o, void (*destroy)(mr__object *))
{
    atomic_init(&o->refs, 1);
    o->destroy = destroy;
}

static inline void mr__object_ref(mr__object *o)
{
    /* Relaxed: whoever refs already holds a reference. */
    atomic_fetch_add_explicit(&o->refs, 1, memory_order_relaxed);
}

static inline void mr__object_unref(mr__object *o)
{
    /* Release pairs with the acquire of the thread that destroys (its own decrement, since a fence
     * is something that ThreadSanitizer does not see). */
    if (o && atomic_fetch_sub_explicit(&o->refs, 1, memory_order_acq_rel) == 1)
        o->destroy(o);
}
#endif
