/* SPDX-License-Identifier: Apache-2.0 */
/* Arenas of device memory and of pinned memory, and who touched which word of them last. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "tests/cuda_double/double.h"

enum { PAGE = 4096, WORD = 4, READERS = 3, MAX_BLOCKS = 1 << 20 };
#define GIB ((size_t)1 << 30)

/* Epochs of the last write and of reads since; 0: none. */
typedef struct cell {
    uint32_t written, read[READERS];
    uint32_t writer, reader; /* threads of the kernel that did; SEVERAL; 0: it was no kernel */
} cell;
#define SEVERAL UINT32_MAX

__thread uint32_t cd_thread_now;

typedef struct block {
    int arena;
    size_t at, bytes;
    uint32_t born, freed; /* epochs */
    bool dead;
} block;

typedef struct arena {
    char *seen, *work; /* the same for pinned memory */
    cell *cells;
    uint8_t *touched; /* pages with cells that are not 0 */
    uint32_t *owner;  /* of a page: number of its block, 0: none */
    int file;
    size_t next, live;
    bool peers[CD_DEVICES]; /* devices that may touch it, besides its own */
} arena;

static arena arenas[CD_ARENAS];
static size_t arena_bytes; /* addresses of one; set with the first of them */
static block *blocks[MAX_BLOCKS];
static uint32_t n_blocks;
static size_t live_blocks, live_bytes;

/* Not mmap: sanitizers would fill shadows of all of it. */
static void *map(size_t bytes, int protection, int flags, int file)
{
    long p = syscall(SYS_mmap, NULL, bytes, protection, flags, file, 0L);
    if (p == -1)
        cd_misuse("no addresses for %zu MiB", bytes >> 20);
    return (void *)(uintptr_t)p;
}

static void *sparse(size_t bytes)
{
    return map(bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
}

/* cd_lock is held. */
static arena *ready(int i)
{
    arena *a = &arenas[i];
    if (a->seen)
        return a;
    /* ThreadSanitizer leaves 1.5 TiB of addresses, and an arena takes eight times its own. */
    arena_bytes = (cd_races_are_watched() ? 16 : 64) * GIB;
    a->file = memfd_create("cuda double", MFD_CLOEXEC);
    if (a->file < 0 || ftruncate(a->file, (off_t)arena_bytes) != 0)
        cd_misuse("no memory file");
    a->cells = sparse(arena_bytes / WORD * sizeof *a->cells);
    a->touched = sparse(arena_bytes / PAGE);
    a->owner = sparse(arena_bytes / PAGE * sizeof *a->owner);
    a->next = PAGE;
    a->work = map(arena_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, a->file);
    char *seen =
        i == CD_PINNED ? a->work : map(arena_bytes, PROT_NONE, MAP_SHARED | MAP_NORESERVE, a->file);
    __atomic_store_n(&a->seen, seen, __ATOMIC_RELEASE);
    return a;
}

static int find(const void *p, bool work)
{
    for (int i = 0; i < CD_ARENAS; i++) {
        const char *from = __atomic_load_n(&arenas[i].seen, __ATOMIC_ACQUIRE);
        if (from && work)
            from = arenas[i].work;
        if (from && (uintptr_t)p - (uintptr_t)from < arena_bytes)
            return i;
    }
    return -1;
}

int cd_arena_of(const void *p)
{
    return find(p, false);
}

uint64_t cd_translate(uint64_t word)
{
    int i = find((const void *)(uintptr_t)word, false);
    return i < 0 ? word : word - (uintptr_t)arenas[i].seen + (uintptr_t)arenas[i].work;
}

void cd_allow_peer(int owner, int other)
{
    pthread_mutex_lock(&cd_lock);
    arenas[owner].peers[other] = true;
    pthread_mutex_unlock(&cd_lock);
}

static size_t page_up(size_t n)
{
    return (n + PAGE - 1) / PAGE * PAGE;
}

void *cd_alloc(int i, size_t bytes)
{
    pthread_mutex_lock(&cd_lock);
    arena *a = ready(i);
    if (bytes > cd_set()->memory || a->live + bytes > cd_set()->memory) {
        pthread_mutex_unlock(&cd_lock);
        return NULL;
    }
    block *b = calloc(1, sizeof *b);
    if (!b || n_blocks + 1 == MAX_BLOCKS || a->next + page_up(bytes) + PAGE > arena_bytes)
        cd_misuse("out of addresses after %u blocks", n_blocks);
    *b = (block){.arena = i, .at = a->next, .bytes = bytes};
    blocks[++n_blocks] = b;
    for (size_t page = b->at / PAGE; page < (b->at + bytes + PAGE - 1) / PAGE; page++)
        __atomic_store_n(&a->owner[page], n_blocks, __ATOMIC_RELEASE);
    a->next += page_up(bytes) + PAGE; /* an unused page after each */
    a->live += bytes;
    live_bytes += bytes;
    live_blocks++;
    pthread_mutex_unlock(&cd_lock);
    if (i == CD_PINNED)
        cd_tell_unusable(a->work + b->at + bytes, page_up(bytes) + PAGE - bytes, true);
    return a->seen + b->at;
}

static block *block_at(const arena *a, size_t at)
{
    uint32_t n = __atomic_load_n(&a->owner[at / PAGE], __ATOMIC_ACQUIRE);
    return n ? blocks[n] : NULL;
}

void cd_check_block(int i, const void *p, const char *what)
{
    int at = cd_arena_of(p);
    if (at < 0)
        cd_misuse("%s: %p is not memory of %s", what, p, i == CD_PINNED ? "pins" : "a device");
    if (at != i)
        cd_misuse("%s: %p belongs to arena %d, not to %d", what, p, at, i);
    const arena *a = &arenas[at];
    const block *b = block_at(a, (size_t)((const char *)p - a->seen));
    if (!b || a->seen + b->at != p)
        cd_misuse("%s: no memory begins at %p", what, p);
    if (b->dead || b->freed)
        cd_misuse("%s: the memory at %p is freed twice", what, p);
}

static block *block_of(const void *p)
{
    const arena *a = &arenas[cd_arena_of(p)];
    return block_at(a, (size_t)((const char *)p - a->seen));
}

void cd_born(const void *p, uint32_t epoch)
{
    block_of(p)->born = epoch;
}

void cd_freed(const void *p, uint32_t epoch)
{
    block *b = block_of(p);
    b->freed = epoch;
    live_bytes -= b->bytes;
    live_blocks--;
}

static const char *describe(uint32_t epoch, char *text, size_t size)
{
    snprintf(text, size, "operation %u of stream %u", epoch & 0xffffff, epoch >> 24);
    return text;
}

static _Noreturn void race(const cd_op *op, const block *b, size_t at, uint32_t other,
                           const char *mine, const char *theirs)
{
    char a[48], c[48];
    cd_misuse("missing wait: %s (%s, cuda:%d) %s byte %zu of a block of %zu bytes on %s%d that %s "
              "%s, and neither waits for the other",
              op ? op->name : "the host", op ? describe(op->epoch, a, sizeof a) : "-",
              op ? op->device : -1, mine, at - b->at, b->bytes,
              b->arena == CD_PINNED ? "pins" : "cuda:", b->arena == CD_PINNED ? 0 : b->arena,
              describe(other, c, sizeof c), theirs);
}

static void check_written(const cd_op *op, const cd_clock *c, const block *b, size_t at, uint32_t e,
                          const char *mine)
{
    if (e && !cd_before(e, c))
        race(op, b, at, e, mine, "writes");
}

static void check_read(const cd_op *op, const cd_clock *c, const block *b, size_t at, const cell *w,
                       const char *mine)
{
    for (int i = 0; i < READERS; i++) {
        uint32_t e = __atomic_load_n(&w->read[i], __ATOMIC_RELAXED);
        if (e && !cd_before(e, c))
            race(op, b, at, e, mine, "reads");
    }
}

/* Two threads of one kernel that touch a word that `written` wrote last, and one of them writes. */
static void check_threads(const cd_op *op, const block *b, size_t at, const cell *w,
                          uint32_t written, bool write)
{
    uint32_t me = cd_thread_now;
    bool read = false;
    for (int i = 0; i < READERS && write; i++)
        read = read || __atomic_load_n(&w->read[i], __ATOMIC_RELAXED) == op->epoch;
    if (!me)
        return;
    if ((written == op->epoch && w->writer && w->writer != me) ||
        (read && w->reader && w->reader != me))
        cd_misuse("race: two threads of %s touch byte %zu of a block of %zu bytes on cuda:%d",
                  op->name, at - b->at, b->bytes, b->arena);
}

/* Notes come before the check of what others noted: of two operations on the same word, at least
 * one sees the other, in any order. The note takes a free place, or that of a reader that happened
 * before; if there is neither, the first. */
static void note_read(const cd_op *op, cell *w)
{
    bool first = true;
    for (int i = 0; i < READERS; i++)
        first = first && __atomic_load_n(&w->read[i], __ATOMIC_RELAXED) != op->epoch;
    w->reader = first || w->reader == cd_thread_now ? cd_thread_now : SEVERAL;
    for (bool noted = !first; !noted;) {
        int place = 0;
        uint32_t was = __atomic_load_n(&w->read[0], __ATOMIC_RELAXED);
        for (int i = 0; i < READERS; i++) {
            uint32_t e = __atomic_load_n(&w->read[i], __ATOMIC_RELAXED);
            if (!e || cd_before(e, &op->clock)) {
                place = i;
                was = e;
            }
        }
        noted = __atomic_compare_exchange_n(&w->read[place], &was, op->epoch, false,
                                            __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
    }
}

static void check_alive(const cd_op *op, const block *b, const char *does)
{
    bool freed = __atomic_load_n(&b->dead, __ATOMIC_SEQ_CST) ||
                 (b->freed && cd_before(b->freed, &op->clock));
    if (freed && !cd_any_device_error())
        cd_misuse("%s %s a block of %zu bytes that was freed", op->name, does, b->bytes);
}

/* The block of that place, which op may touch. */
static block *check_place(const cd_op *op, int i, size_t at, size_t bytes, const char *does)
{
    arena *a = &arenas[i];
    block *b = block_at(a, at);
    if (!b)
        cd_misuse("%s %s %zu bytes at %p, which belong to no block", op->name, does, bytes,
                  (void *)(a->seen + at));
    if (at + bytes > b->at + b->bytes)
        cd_misuse("%s %s bytes %zu to %zu of a block of %zu bytes", op->name, does, at - b->at,
                  at - b->at + bytes, b->bytes);
    check_alive(op, b, does);
    if (!cd_before(b->born, &op->clock))
        cd_misuse("missing wait: %s %s a block of %zu bytes that stream %u has not allocated yet",
                  op->name, does, b->bytes, b->born >> 24);
    return b;
}

static void check_device(const cd_op *op, int i, const char *does)
{
    if (i != CD_PINNED && i != op->device && !arenas[i].peers[op->device])
        cd_misuse("%s of cuda:%d %s memory of cuda:%d, which it has no access to", op->name,
                  op->device, does, i);
}

static void touch_pages(arena *a, size_t at, size_t bytes)
{
    for (size_t page = at / PAGE; page <= (at + bytes - 1) / PAGE; page++)
        if (!__atomic_load_n(&a->touched[page], __ATOMIC_RELAXED))
            __atomic_store_n(&a->touched[page], 1, __ATOMIC_RELAXED);
}

static void read_words(const cd_op *op, int i, const block *b, size_t at, size_t bytes, bool wants)
{
    arena *a = &arenas[i];
    touch_pages(a, at, bytes);
    for (size_t w = at / WORD; w <= (at + bytes - 1) / WORD; w++) {
        cell *c = &a->cells[w];
        note_read(op, c);
        uint32_t written = __atomic_load_n(&c->written, __ATOMIC_SEQ_CST);
        if (wants && i != CD_PINNED && !written)
            cd_misuse("%s reads byte %zu of a block of %zu bytes, which nobody wrote", op->name,
                      w * WORD - b->at, b->bytes);
        check_written(op, &op->clock, b, w * WORD, written, "reads");
        check_threads(op, b, w * WORD, c, written, false);
    }
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    check_alive(op, b, "reads"); /* a thread that frees it has seen the notes, or is seen here */
}

static void write_words(const cd_op *op, int i, const block *b, size_t at, size_t bytes)
{
    arena *a = &arenas[i];
    touch_pages(a, at, bytes);
    for (size_t w = at / WORD; w <= (at + bytes - 1) / WORD; w++) {
        cell *c = &a->cells[w];
        uint32_t written = __atomic_load_n(&c->written, __ATOMIC_RELAXED);
        if (written != op->epoch)
            written = __atomic_exchange_n(&c->written, op->epoch, __ATOMIC_SEQ_CST);
        if (written != op->epoch)
            check_written(op, &op->clock, b, w * WORD, written, "writes");
        check_read(op, &op->clock, b, w * WORD, c, "writes");
        check_threads(op, b, w * WORD, c, written, true);
        c->writer = cd_thread_now;
        for (int r = 0; r < READERS; r++)
            __atomic_store_n(&c->read[r], 0, __ATOMIC_RELAXED);
    }
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    check_alive(op, b, "writes");
}

void *cd_reads(const cd_op *op, const void *p, size_t bytes)
{
    int i = cd_arena_of(p);
    if (i < 0)
        cd_tell_access(p, bytes, false);
    if (i < 0 || bytes == 0)
        return (void *)(uintptr_t)p;
    size_t at = (size_t)((const char *)p - arenas[i].seen);
    check_device(op, i, "reads");
    read_words(op, i, check_place(op, i, at, bytes, "reads"), at, bytes, true);
    cd_tell_access(arenas[i].work + at, bytes, false);
    return arenas[i].work + at;
}

void *cd_writes(const cd_op *op, void *p, size_t bytes)
{
    int i = cd_arena_of(p);
    if (i < 0)
        cd_tell_access(p, bytes, true);
    if (i < 0 || bytes == 0)
        return p;
    size_t at = (size_t)((char *)p - arenas[i].seen);
    check_device(op, i, "writes");
    write_words(op, i, check_place(op, i, at, bytes, "writes"), at, bytes);
    cd_tell_access(arenas[i].work + at, bytes, true);
    return arenas[i].work + at;
}

void cd_copy(const cd_op *op, void *to, const void *from, size_t bytes)
{
    int i = cd_arena_of(from), k = cd_arena_of(to);
    size_t at = i < 0 ? 0 : (size_t)((const char *)from - arenas[i].seen);
    size_t there = k < 0 ? 0 : (size_t)((char *)to - arenas[k].seen);
    if (bytes == 0)
        return;
    if (i >= 0)
        read_words(op, i, check_place(op, i, at, bytes, "reads"), at, bytes, false);
    if (k >= 0)
        write_words(op, k, check_place(op, k, there, bytes, "writes"), there, bytes);
    to = k < 0 ? to : arenas[k].work + there;
    from = i < 0 ? from : arenas[i].work + at;
    cd_tell_access(from, bytes, false);
    cd_tell_access(to, bytes, true);
    memmove(to, from, bytes);
    /* Copies of unwritten bytes count as unwritten. */
    if (i >= 0 && i != CD_PINNED && k >= 0 && at % WORD == 0 && there % WORD == 0)
        for (size_t w = 0; w < bytes / WORD; w++)
            if (!__atomic_load_n(&arenas[i].cells[at / WORD + w].written, __ATOMIC_RELAXED))
                __atomic_store_n(&arenas[k].cells[there / WORD + w].written, 0, __ATOMIC_RELAXED);
}

/* By kernels, in the second mapping. */
void cd_touched(const void *p, size_t bytes, bool write)
{
    static _Thread_local int last;
    const cd_op *op = cd_running;
    int i = last;
    if (!arenas[i].seen || (uintptr_t)p - (uintptr_t)arenas[i].work >= arena_bytes) {
        i = find(p, true);
        if (i < 0) {
            cd_touched_elsewhere(p);
            return;
        }
        last = i;
    }
    size_t at = (size_t)((const char *)p - arenas[i].work);
    const block *b = check_place(op, i, at, bytes, write ? "writes" : "reads");
    check_device(op, i, write ? "writes" : "reads");
    if (write)
        write_words(op, i, b, at, bytes);
    else
        read_words(op, i, b, at, bytes, true);
    cd_tell_access(p, bytes, write);
}

void cd_free(void *p, const cd_op *op)
{
    int i = cd_arena_of(p);
    arena *a = &arenas[i];
    size_t at = (size_t)((char *)p - a->seen);
    block *b = block_at(a, at);
    const cd_clock *c = op ? &op->clock : cd_host_clock();
    bool failed = cd_any_device_error(); /* then no wait can succeed */
    __atomic_store_n(&b->dead, true, __ATOMIC_SEQ_CST);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    for (size_t page = at / PAGE; page < (at + b->bytes + PAGE - 1) / PAGE; page++) {
        for (size_t w = page * PAGE / WORD;
             a->touched[page] && !failed && w < (page + 1) * PAGE / WORD; w++) {
            check_written(op, c, b, w * WORD,
                          __atomic_load_n(&a->cells[w].written, __ATOMIC_RELAXED), "frees");
            check_read(op, c, b, w * WORD, &a->cells[w], "frees");
        }
        if (a->touched[page])
            syscall(SYS_madvise, &a->cells[page * PAGE / WORD], PAGE / WORD * sizeof(cell),
                    (long)MADV_DONTNEED);
    }
    if (!failed)
        cd_tell_access(a->work + at, b->bytes, true);
    fallocate(a->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)b->at,
              (off_t)page_up(b->bytes));
    if (i == CD_PINNED) {
        cd_tell_unusable(a->work + b->at, b->bytes, true);
        mprotect(a->work + b->at, page_up(b->bytes), PROT_NONE);
    }
    pthread_mutex_lock(&cd_lock);
    a->live -= b->bytes;
    if (!b->freed) {
        live_bytes -= b->bytes;
        live_blocks--;
    }
    pthread_mutex_unlock(&cd_lock);
}

size_t cd_left(size_t *n)
{
    *n = live_blocks;
    return live_bytes;
}
