/* SPDX-License-Identifier: Apache-2.0 */
/* Each buffer is one allocation:
 *
 *     [struct mr_buffer | pad to 64 | data, size bytes | MR_SLACK]
 *
 * so plain malloc, which is faster than aligned allocation, suffices. Sizes from 4 KiB to 8 MiB are
 * rounded up to a class (4, 6, 8, 12, 16, ... KiB) and pooled. Each class has HOMES stacks of free
 * buffers under one mutex; a processor uses the stack of its number modulo HOMES. A buffer returns
 * to the stack of the processor that allocated it, which wrote it last: cache lines that another
 * processor wrote cost several times the copy. A pooled buffer keeps its array of held buffers, so
 * that a stream of view columns allocates nothing.
 *
 * The data of large buffers starts at a page boundary, so that nearly all of it can be lent as
 * pages. Classes from 1 MiB on are cut from slabs made of huge pages:
 *
 *     slab  [data, 1 MiB | data, 1 MiB | one page, as slack after the last]
 *
 * The kernel then finds, counts and copies from one page instead of 256: receiving from such memory
 * takes two thirds of the time. A slab is freed when all buffers cut from it are free. Under a
 * limit there are no slabs: their huge pages are resident as a whole, also the parts that are
 * free. */
#include "pipeline/memory/buffer.h"

#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "pipeline/system/system.h"

enum {
    ALIGNMENT = 64,
    CLASS_MIN = 4096,
    N_CLASSES = 23, /* the last is 8 MiB */
    NO_CLASS = N_CLASSES,
    HOMES = 8,
    HUGE_PAGE = 2 << 20,
    SLAB_FROM = 1 << 20, /* smallest class, in bytes, that is cut from slabs */
    MOST_HUGE = 4096,    /* slabs of huge pages: each uses 2 of a process's 65530 mappings */
    KEEP_HELD = 64,      /* capacity up to which a pooled buffer keeps its array `held` */
    MOST_COPIED = 8,     /* entries that mr_buffer_hold_all copies from another buffer */
    LOOK_BACK = 8,       /* recent entries compared with a new one to skip duplicates */
    SQUEEZE_FROM = 64,   /* entries from which duplicates are removed before growing */
    MAX_HELD_DEPTH = 4   /* levels of held buffers to follow */
};
#define POOL_KEEPS ((size_t)32 << 20)
#define MAX_HELD   ((size_t)1 << 32)

#ifdef __SANITIZE_ADDRESS__
#define POOLED 0 /* reused memory would hide use after free */
#else
#define POOLED 1
#endif

typedef struct slab {
    atomic_size_t left; /* buffers cut from it that are not yet freed */
    bool is_huge;
    void *memory;
} slab;

struct mr_buffer {
    atomic_size_t refs;
    void *data;
    size_t size;
    uint16_t class, home;
    bool read_only;
    bool own;                /* allocated here with the C library's allocator */
    atomic_bool is_forsaken; /* another process reads its pages for an unknown time */
    void (*release)(void *ctx, void *data); /* of wrapped memory */
    void *release_ctx;
    void (*on_release)(void *ctx, void *data);
    void *on_release_ctx;
    mr_origin origin; /* path NULL: unknown */
    mr_buffer **held;
    size_t n_held, held_capacity;
    mr_buffer *next_free; /* in the pool */
    slab *slab;           /* data is part of it; NULL: data follows this struct */
};

typedef struct pool_class {
    pthread_mutex_t lock;
    /* under lock: */
    mr_buffer *free[HOMES];
    size_t n_live;
    char pad[64];
} pool_class;

#define C1                                                                                         \
    {                                                                                              \
        .lock = PTHREAD_MUTEX_INITIALIZER                                                          \
    }
#define C4 C1, C1, C1, C1
static pool_class pool[N_CLASSES] = {C4, C4, C4, C4, C4, C1, C1, C1};
static atomic_int limits;        /* limits in force */
static atomic_size_t limited_to; /* bytes that the pool keeps under a limit */
static atomic_size_t pool_free;  /* bytes of all free buffers */
static atomic_uint victim;       /* class that frees a buffer next */
static atomic_size_t huge_slabs;

static void take_before_fork(void)
{
    for (unsigned c = 0; c < N_CLASSES; c++)
        pthread_mutex_lock(&pool[c].lock);
}

static void release_after_fork(void)
{
    for (unsigned c = 0; c < N_CLASSES; c++)
        pthread_mutex_unlock(&pool[c].lock);
}

__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(take_before_fork, release_after_fork, release_after_fork);
}

static size_t class_bytes(unsigned c)
{
    size_t power = (size_t)CLASS_MIN << (c / 2);
    return c % 2 ? power + power / 2 : power;
}

static unsigned class_of(size_t bytes)
{
    if (!POOLED || bytes < CLASS_MIN || bytes > class_bytes(N_CLASSES - 1))
        return NO_CLASS;
    if (bytes == CLASS_MIN)
        return 0;
    unsigned k = 63 - (unsigned)__builtin_clzll(bytes - 1); /* 2^k < bytes <= 2^(k+1) */
    return 2 * (k - 12) + (bytes <= (size_t)3 << (k - 1) ? 1 : 2);
}

/* The stack of the current processor. */
static unsigned home(void)
{
    int cpu = sched_getcpu();
    return cpu < 0 ? 0 : (unsigned)cpu % HOMES;
}

static mr_buffer *pool_pop(unsigned c, size_t live, unsigned here)
{
    pool_class *p = &pool[c];
    mr_buffer *b = NULL;
    pthread_mutex_lock(&p->lock);
    for (unsigned i = 0; i < HOMES && !b; i++) {
        mr_buffer **first = &p->free[(here + i) % HOMES];
        b = *first;
        if (b)
            *first = b->next_free;
    }
    p->n_live += live;
    pthread_mutex_unlock(&p->lock);
    /* Relaxed: a statistic; the lock orders the buffers. */
    if (b)
        atomic_fetch_sub_explicit(&pool_free, class_bytes(c), memory_order_relaxed);
    return b;
}

/* Returns this part of the slab to the system; the rest of the slab stays. */
static void free_cut(const mr_buffer *b)
{
    slab *k = b->slab;
    /* Before the decrement: after it another thread may free the slab, and its memory be reused.
     * Relaxed: if the count is 1, only this buffer is left, and the count cannot change. */
    if (atomic_load_explicit(&k->left, memory_order_relaxed) != 1)
        mr__sys->madvise(b->data, class_bytes(b->class), MADV_DONTNEED);
    /* Release: this thread is done with its part. Acquire: so are the others before the slab is
     * freed. */
    if (atomic_fetch_sub_explicit(&k->left, 1, memory_order_acq_rel) != 1)
        return;
    if (k->is_huge) /* relaxed: a statistic */
        atomic_fetch_sub_explicit(&huge_slabs, 1, memory_order_relaxed);
    mr_free(k->memory);
    mr_free(k);
}

static void free_memory(mr_buffer *b)
{
    if (b->slab)
        free_cut(b);
    mr_free(b->held);
    mr_free(b);
}

static void pool_forget(unsigned c)
{
    pthread_mutex_lock(&pool[c].lock);
    pool[c].n_live--;
    pthread_mutex_unlock(&pool[c].lock);
}

static void pool_push(mr_buffer *b)
{
    unsigned c = b->class;
    /* Relaxed: a statistic. */
    size_t all = atomic_fetch_add_explicit(&pool_free, class_bytes(c), memory_order_relaxed);
    size_t keeps = atomic_load_explicit(&limits, memory_order_relaxed)
                       ? atomic_load_explicit(&limited_to, memory_order_relaxed)
                       : POOL_KEEPS;
    if (all + class_bytes(c) > keeps) {
        atomic_fetch_sub_explicit(&pool_free, class_bytes(c), memory_order_relaxed);
        pool_forget(c);
        free_memory(b);
        /* Classes that are no longer used must not fill the pool for ever. */
        unsigned v = atomic_fetch_add_explicit(&victim, 1, memory_order_relaxed) % N_CLASSES;
        mr_buffer *old = v == c ? NULL : pool_pop(v, 0, 0);
        if (old)
            free_memory(old);
        return;
    }
    if (b->held_capacity > KEEP_HELD) {
        mr_free(b->held);
        b->held = NULL;
        b->held_capacity = 0;
    }
    pthread_mutex_lock(&pool[c].lock);
    pool[c].n_live--;
    b->next_free = pool[c].free[b->home];
    pool[c].free[b->home] = b;
    pthread_mutex_unlock(&pool[c].lock);
}

/* Number of buffers of the class that fill whole huge pages. */
static size_t cuts(unsigned c)
{
    size_t n = 1;
    while (n * class_bytes(c) % HUGE_PAGE)
        n++;
    return n;
}

/* Requests huge pages unless MOST_HUGE slabs have them already: each such slab uses mappings of the
 * process. Adjacent slabs without huge pages share one mapping, so their number is unlimited. */
static bool make_huge(void *memory, size_t n)
{
    /* Relaxed: a statistic. */
    if (atomic_fetch_add_explicit(&huge_slabs, 1, memory_order_relaxed) < MOST_HUGE) {
        mr__sys->madvise(memory, n, MADV_HUGEPAGE); /* best effort */
        return true;
    }
    atomic_fetch_sub_explicit(&huge_slabs, 1, memory_order_relaxed);
    return false;
}

/* The buffers of a new slab, as a list; NULL if out of memory. */
static mr_buffer *cut_slab(unsigned c)
{
    size_t each = class_bytes(c), n = cuts(c), made = 0;
    mr_buffer *all = NULL;
    slab *k = mr_malloc(sizeof *k);
    char *memory = k ? mr_aligned_alloc(HUGE_PAGE, n * each + MR__PAGE) : NULL;
    for (; memory && made < n; made++) {
        mr_buffer *b = mr_malloc(sizeof *b);
        if (!b)
            break;
        *b = (mr_buffer){.data = memory + made * each,
                         .class = (uint16_t)c,
                         .own = true,
                         .slab = k,
                         .next_free = all};
        all = b;
    }
    if (!all) {
        mr_free(memory);
        mr_free(k);
        return NULL;
    }
    k->is_huge = make_huge(memory, n * each);
    k->memory = memory;
    atomic_init(&k->left, made);
    return all;
}

static void start(mr_buffer *b, size_t bytes)
{
    atomic_init(&b->refs, 1);
    b->size = bytes;
    b->read_only = false;
    atomic_init(&b->is_forsaken, false);
    b->release = NULL;
    b->on_release = NULL;
    b->origin.path = NULL;
    b->n_held = 0;
}

/* A buffer of class c, or of `bytes` if c is NO_CLASS, whose data follows the struct. */
static mr_buffer *new_buffer(unsigned c, size_t bytes)
{
    size_t all, room = c == NO_CLASS ? bytes : class_bytes(c);
    size_t alignment = room >= MR__LENT_LEAST ? MR__PAGE : ALIGNMENT;
    mr_buffer *b;
    if (__builtin_add_overflow(room, sizeof *b + (alignment - 1) + MR_SLACK, &all))
        return NULL;
    b = mr_malloc(all);
    if (!b)
        return NULL;
    uintptr_t at = (uintptr_t)(b + 1);
    *b = (mr_buffer){.data = (char *)(b + 1) + (-at & (alignment - 1)),
                     .class = (uint16_t)c,
                     .own = mr__allocator_is_plain()};
    return b;
}

/* Returns the first buffer of a new slab and puts the others into the pool. */
static mr_buffer *new_slab(unsigned c, unsigned here)
{
    mr_buffer *b = cut_slab(c), *others = b ? b->next_free : NULL;
    while (others) {
        mr_buffer *next = others->next_free;
        others->home = (uint16_t)here;
        pthread_mutex_lock(&pool[c].lock);
        pool[c].n_live++; /* pool_push counts it as released */
        pthread_mutex_unlock(&pool[c].lock);
        pool_push(others);
        others = next;
    }
    return b;
}

static bool may_cut(unsigned c)
{
    return c != NO_CLASS && class_bytes(c) >= SLAB_FROM && mr__allocator_is_plain() &&
           atomic_load_explicit(&limits, memory_order_relaxed) == 0; /* relaxed: best effort */
}

mr_code mr_buffer_alloc(mr_buffer **out, size_t bytes, mr_status *st)
{
    unsigned c = class_of(bytes);
    unsigned here = c == NO_CLASS ? 0 : home();
    mr_buffer *b = c == NO_CLASS ? NULL : pool_pop(c, 1, here);
    if (!b && may_cut(c))
        b = new_slab(c, here);
    if (!b)
        b = new_buffer(c, bytes);
    if (!b) {
        if (c != NO_CLASS)
            pool_forget(c);
        return mr_fail_memory(st, bytes, "a buffer");
    }
    b->home = (uint16_t)here;
    start(b, bytes);
    *out = b;
    return MR_OK;
}

mr_code mr_buffer_wrap(mr_buffer **out, void *data, size_t bytes, bool read_only,
                       void (*release)(void *ctx, void *data), void *ctx, mr_status *st)
{
    mr_buffer *b = mr_malloc(sizeof *b);
    if (!b)
        return mr_fail_memory(st, sizeof *b, "a buffer");
    start(b, bytes);
    b->data = data;
    b->class = NO_CLASS;
    b->held = NULL;
    b->held_capacity = 0;
    b->read_only = read_only;
    b->own = false;
    b->slab = NULL;
    b->release = release;
    b->release_ctx = ctx;
    *out = b;
    return MR_OK;
}

mr_buffer *mr_buffer_ref(mr_buffer *b)
{
    /* Relaxed: the caller already holds a reference. */
    atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);
    return b;
}

/* Replaces the pages at these addresses by new ones; the process that reads the old ones keeps
 * them. */
static bool drop_pages(const mr_buffer *b)
{
    uintptr_t from = ((uintptr_t)b->data + MR__PAGE - 1) & ~(uintptr_t)(MR__PAGE - 1);
    uintptr_t end = ((uintptr_t)b->data + b->size) & ~(uintptr_t)(MR__PAGE - 1);
    return end <= from || mr__sys->madvise((char *)b->data + (from - (uintptr_t)b->data),
                                           end - from, MADV_DONTNEED) == 0;
}

static void destroy(mr_buffer *b)
{
    if (b->on_release)
        b->on_release(b->on_release_ctx, b->data);
    if (b->release)
        b->release(b->release_ctx, b->data);
    for (size_t i = 0; i < b->n_held; i++)
        mr_buffer_unref(b->held[i]);
    mr_buffer_unref(b->origin.path);
    /* Relaxed: the last unref is ordered after all other holders' accesses. Locked memory cannot be
     * dropped, so it is leaked rather than reused. */
    if (atomic_load_explicit(&b->is_forsaken, memory_order_relaxed) && !drop_pages(b))
        return;
    if (b->class == NO_CLASS)
        free_memory(b);
    else
        pool_push(b);
}

void mr_buffer_unref(mr_buffer *b)
{
    if (!b)
        return;
    /* A sole owner needs no locked instruction: no other thread can change the count. Acquire pairs
     * with the other holders' release below. */
    if (atomic_load_explicit(&b->refs, memory_order_acquire) != 1) {
        /* Release: this thread's accesses happen before the last holder destroys the buffer. */
        if (atomic_fetch_sub_explicit(&b->refs, 1, memory_order_release) != 1)
            return;
        atomic_load_explicit(&b->refs, memory_order_acquire);
    }
    destroy(b);
}

void *mr_buffer_data(const mr_buffer *b)
{
    return b->data;
}

size_t mr_buffer_size(const mr_buffer *b)
{
    return b->size;
}

bool mr_buffer_writable(const mr_buffer *b)
{
    /* Acquire pairs with the release in other holders' unref. It also makes is_forsaken visible,
     * which a holder sets before its unref. */
    return !b->read_only && atomic_load_explicit(&b->refs, memory_order_acquire) == 1 &&
           !atomic_load_explicit(&b->is_forsaken, memory_order_relaxed);
}

static int compare_held(const void *x, const void *y)
{
    uintptr_t a = (uintptr_t) * (mr_buffer *const *)x, b = (uintptr_t) * (mr_buffer *const *)y;
    return (a > b) - (a < b);
}

/* Drops duplicates, so that n_held stays within twice the number of different buffers. */
static void squeeze(mr_buffer *b)
{
    qsort(b->held, b->n_held, sizeof(mr_buffer *), compare_held);
    size_t n = 0;
    for (size_t i = 0; i < b->n_held; i++) {
        if (n && b->held[n - 1] == b->held[i])
            mr_buffer_unref(b->held[i]);
        else
            b->held[n++] = b->held[i];
    }
    b->n_held = n;
}

mr_code mr_buffer_hold(mr_buffer *b, mr_buffer *other, mr_status *st)
{
    size_t back = b->n_held < LOOK_BACK ? b->n_held : LOOK_BACK;
    for (size_t i = 1; i <= back; i++) {
        if (b->held[b->n_held - i] == other)
            return MR_OK;
    }
    if (!other || other == b)
        return MR_OK;
    if (b->n_held == b->held_capacity) {
        if (b->n_held >= SQUEEZE_FROM)
            squeeze(b);
        /* Growing even if squeezing made a little room keeps squeezes rare. */
        if (b->n_held > b->held_capacity / 2 || b->held_capacity == 0)
            MR_TRY(MR_GROW(b->held, b->held_capacity, b->held_capacity + 1, MAX_HELD,
                           "the list of held buffers", st));
    }
    b->held[b->n_held++] = mr_buffer_ref(other);
    return MR_OK;
}

mr_code mr_buffer_hold_all(mr_buffer *b, const mr_buffer *views, mr_status *st)
{
    if (!views || views == b)
        return MR_OK;
    /* A block with one buffer per row may be split in many calls: copying its entries each time
     * would be quadratic. */
    if (views->n_held > MOST_COPIED)
        return mr_buffer_hold(b, (mr_buffer *)(uintptr_t)views, st);
    for (size_t i = 0; i < views->n_held; i++)
        MR_TRY(mr_buffer_hold(b, views->held[i], st));
    return MR_OK;
}

static size_t held_bytes(const mr_buffer *b, int depth)
{
    size_t bytes = 0;
    for (size_t i = 0; i < b->n_held; i++) {
        const mr_buffer *h = b->held[i];
        bytes += h->class == NO_CLASS ? h->size : class_bytes(h->class);
        if (depth > 1)
            bytes += held_bytes(h, depth - 1);
    }
    return bytes;
}

static const mr_buffer *owning(const mr_buffer *b, uintptr_t p, size_t n, int depth)
{
    uintptr_t at = p - (uintptr_t)b->data;
    if (at < b->size && n <= b->size - at)
        return b->own ? b : NULL;
    const mr_buffer *found = NULL;
    for (size_t i = 0; i < b->n_held && !found && depth > 0; i++)
        found = owning(b->held[i], p, n, depth - 1);
    return found;
}

static bool is_sole_way(const mr_buffer *b, uintptr_t p, size_t n, int depth)
{
    uintptr_t at = p - (uintptr_t)b->data;
    if (!mr_buffer_writable(b))
        return false;
    if (at < b->size && n <= b->size - at)
        return true;
    bool found = false;
    for (size_t i = 0; i < b->n_held && !found && depth > 0; i++)
        found = is_sole_way(b->held[i], p, n, depth - 1);
    return found;
}

bool mr_buffer_is_sole_way(const mr_buffer *b, const void *p, size_t n)
{
    return is_sole_way(b, (uintptr_t)p, n, MAX_HELD_DEPTH);
}

MR_API mr_buffer *mr__buffer_owning(const mr_buffer *b, const void *p, size_t n)
{
    return b ? (mr_buffer *)(uintptr_t)owning(b, (uintptr_t)p, n, MAX_HELD_DEPTH) : NULL;
}

MR_API void mr__buffer_forsake(mr_buffer *b)
{
    /* Relaxed: the caller's unref, a release, follows. */
    atomic_store_explicit(&b->is_forsaken, true, memory_order_relaxed);
}

size_t mr_buffer_held_bytes(const mr_buffer *b)
{
    return held_bytes(b, MAX_HELD_DEPTH);
}

void mr_buffer_set_origin(mr_buffer *b, const mr_origin *o)
{
    mr_buffer *old = b->origin.path;
    mr_buffer_ref(o->path);
    b->origin = *o;
    mr_buffer_unref(old);
}

/* The buffer of known origin that contains p, among b and the buffers it holds. */
static const mr_buffer *buffer_around(const mr_buffer *b, uintptr_t p, int depth)
{
    uintptr_t from = (uintptr_t)b->origin.at, end = (uintptr_t)b->data + b->size;
    if (b->origin.path && p >= from && p <= end)
        return b;
    const mr_buffer *found = NULL;
    for (size_t i = 0; i < b->n_held && !found && depth > 0; i++)
        found = buffer_around(b->held[i], p, depth - 1);
    return found;
}

void mr_buffer_locate(const mr_buffer *b, const void *p, mr_status *st)
{
    const mr_buffer *chunk = b && p ? buffer_around(b, (uintptr_t)p, MAX_HELD_DEPTH) : NULL;
    if (!chunk)
        return;
    const mr_origin *o = &chunk->origin;
    int64_t n = 0;
    const char *start = o->record_of ? o->record_of(o->at, p, &n) : o->at;
    mr_status_at(st, o->path->data, o->offset + (start - (const char *)o->at), o->record + n);
}

void mr_buffer_on_release(mr_buffer *b, void (*fn)(void *ctx, void *data), void *ctx)
{
    assert(!b->on_release && "a buffer has one release function");
    b->on_release = fn;
    b->on_release_ctx = ctx;
}

void mr__buffer_pool_limit(int change, size_t bytes)
{
    /* Relaxed: a statistic. Buffers already in the pool are freed as they are used. */
    atomic_store_explicit(&limited_to, bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&limits, change, memory_order_relaxed);
}

int mr__buffer_pool_limits(void)
{
    return atomic_load_explicit(&limits, memory_order_relaxed); /* a statistic */
}

void mr_buffer_pool_trim(void)
{
    for (unsigned c = 0; c < N_CLASSES; c++) {
        mr_buffer *b;
        while ((b = pool_pop(c, 0, 0)))
            free_memory(b);
    }
}

void mr_buffer_pool_usage(size_t *live_bytes, size_t *free_bytes)
{
    size_t live = 0;
    for (unsigned c = 0; c < N_CLASSES; c++) {
        pthread_mutex_lock(&pool[c].lock);
        live += pool[c].n_live * class_bytes(c);
        pthread_mutex_unlock(&pool[c].lock);
    }
    if (live_bytes)
        *live_bytes = live;
    if (free_bytes) /* Relaxed: a statistic. */
        *free_bytes = atomic_load_explicit(&pool_free, memory_order_relaxed);
}
