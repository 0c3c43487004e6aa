/* SPDX-License-Identifier: Apache-2.0 */
/* Runs kernels that were compiled for the processor. The lanes of a warp run one after another,
 * each on a separate stack until it exchanges a value with the others or ends; when all have
 * arrived, they continue. The seed determines the order of the warps. */
#include "tests/cuda_double/on_cpu/on_cpu.h"
#undef __CUDACC__ /* not a kernel: the host's side of the parameters */
#undef __CUDA_ARCH__
#undef __host__
#undef __device__
#include <stdlib.h>
#include <sys/mman.h>
#include "tests/cuda_double/warps.h"
#include "trainer/device/cuda/kernels/kernel_params.h"
extern "C" {
#define DECLARE(family, name, params) void mr_##name(const params p);
MR_CUDA_KERNELS(DECLARE)
}

enum { LANES = 32, STACK = 64 << 10, MOST = 16 };

thread_local cd_thread cd_self;

#define RUN(family, name, params)                                                                  \
    static void run_##name(const void *p)                                                          \
    {                                                                                              \
        mr_##name(*(const params *)p);                                                             \
    }
MR_CUDA_KERNELS(RUN)

static const struct kernel {
    const char *name;
    size_t params;
    void (*run)(const void *p);
} kernels[] = {
#define ROW(family, name, params) {"mr_" #name, sizeof(params), run_##name},
    MR_CUDA_KERNELS(ROW)};
enum { N_KERNELS = sizeof kernels / sizeof *kernels };

int cd_kernel_find(const char *name)
{
    for (int i = 0; i < N_KERNELS; i++)
        if (strcmp(kernels[i].name, name) == 0)
            return i;
    return -1;
}

size_t cd_kernel_params(int k)
{
    return kernels[k].params;
}

const char *cd_kernel_name(int k)
{
    return k < N_KERNELS ? kernels[k].name : NULL;
}

/* Saves the registers that a call keeps and the stack in *from, and continues where `to` was
 * saved. */
extern "C" void cd_switch(void **from, void *to);
#if defined __x86_64__
__asm__(".text\n.globl cd_switch\n.hidden cd_switch\n.type cd_switch, @function\ncd_switch:\n"
        "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
        "mov %rsp, (%rdi)\nmov %rsi, %rsp\n"
        "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n"
        ".size cd_switch, .-cd_switch\n");
enum { SAVED = 6 };
#else
#error "the double's warps are written for x86-64"
#endif

struct lane {
    char *stack;
    void *at; /* where it stopped */
    bool waits;
    unsigned by;
    size_t bytes;
    alignas(16) char value[2][MOST]; /* in turn: a lane may give the next before all took this */
};

struct warp {
    lane lanes[LANES];
    void *back; /* to the one that runs them */
    int running;
    unsigned turn;
    bool faulted;
    const struct kernel *k;
    const void *params;
    cd_thread first; /* of the warp */
};
static thread_local warp *w;

static void lane_main(void)
{
    /* One stack serves lane after lane while none of them stops. */
    for (;;) {
        w->k->run(w->params);
        lane *l = &w->lanes[w->running];
        l->waits = false;
        cd_switch(&l->at, w->back);
    }
}

static void ready(lane *l)
{
    if (!l->stack) {
        void *p = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED)
            cd_misuse("no memory for the stack of a lane");
        l->stack = (char *)p;
    }
    void **top = (void **)(l->stack + STACK - 64);
    *--top = NULL; /* lane_main returns nowhere; and keeps the stack as a call leaves it */
    *--top = (void *)lane_main;
    for (int i = 0; i < SAVED; i++)
        *--top = NULL;
    l->at = top;
}

static void resume(int i, int stack)
{
    w->running = stack;
    cd_self = w->first;
    cd_self.thread.x += (unsigned)i;
    cd_thread_now = 1 + cd_self.block.x * cd_self.block_size.x + cd_self.thread.x;
    cd_switch(&w->back, w->lanes[stack].at);
}

void cd_shuffle(unsigned mask, void *value, size_t bytes, unsigned by)
{
    int me = w->running;
    lane *l = &w->lanes[me];
    unsigned turn = w->turn & 1;
    if (mask != 0xffffffffu || bytes > MOST || by >= LANES)
        cd_misuse("%s: a shuffle of %zu bytes with mask %#x by %u", w->k->name, bytes, mask, by);
    memcpy(l->value[turn], value, bytes);
    l->waits = true;
    l->bytes = bytes;
    l->by = by;
    cd_switch(&l->at, w->back);
    memcpy(value, w->lanes[me ^ (int)by].value[turn], bytes);
}

/* Addresses that nothing is at. */
static const uintptr_t nothing = 1 << 20;

void cd_touched_elsewhere(const void *p)
{
    uintptr_t at = (uintptr_t)p;
    lane *l = &w->lanes[w->running];
    if (at - (uintptr_t)l->stack < STACK || at - (uintptr_t)&cd_self < sizeof cd_self)
        return;
    if (at >= nothing)
        cd_misuse("%s touches memory of the host, %p", w->k->name, p);
    cd_fault();
    w->faulted = true;
    cd_switch(&l->at, w->back);
}

static void run_warp(void)
{
    /* Until one stops, all run on the stack of the first. */
    int first = 0;
    ready(&w->lanes[0]);
    w->lanes[0].waits = false;
    for (; first < LANES; first++) {
        resume(first, 0);
        if (w->faulted)
            return;
        if (w->lanes[0].waits)
            break;
    }
    if (first == LANES)
        return;
    if (first > 0)
        cd_misuse("%s: lane %d shuffles, lane 0 of its warp has ended", w->k->name, first);
    for (int i = 1; i < LANES && !w->faulted; i++) {
        ready(&w->lanes[i]);
        resume(i, i);
    }
    while (w->lanes[0].waits && !w->faulted) {
        for (int i = 0; i < LANES && !w->faulted; i++)
            if (!w->lanes[i].waits || w->lanes[i].by != w->lanes[0].by ||
                w->lanes[i].bytes != w->lanes[0].bytes)
                cd_misuse("%s: lanes 0 and %d of a warp go different ways", w->k->name, i);
        w->turn++;
        for (int i = 0; i < LANES && !w->faulted; i++)
            resume(i, i);
    }
    for (int i = 0; i < LANES && !w->faulted; i++)
        if (w->lanes[i].waits)
            cd_misuse("%s: lane %d shuffles, lane 0 of its warp has ended", w->k->name, i);
}

void cd_kernel_run(int k, const void *params, unsigned blocks, unsigned threads, uint64_t seed)
{
    unsigned n = blocks * (threads / LANES), step = 1, at;
    if (!w && !(w = (warp *)calloc(1, sizeof *w)))
        cd_misuse("no memory for a warp");
    /* A stride without a common divisor comes by all of them. */
    for (step = (unsigned)(cd_random(&seed) % n) | 1; step > 1; step--) {
        unsigned a = n, b = step;
        while (b) {
            unsigned c = a % b;
            a = b;
            b = c;
        }
        if (a == 1)
            break;
    }
    at = (unsigned)(cd_random(&seed) % n);
    w->k = &kernels[k];
    w->params = params;
    w->faulted = false;
    for (unsigned i = 0; i < n && !w->faulted; i++, at = (at + step) % n) {
        unsigned in_block = threads / LANES;
        w->first = {
            {at % in_block * LANES, 0, 0}, {at / in_block, 0, 0}, {threads, 1, 1}, {blocks, 1, 1}};
        run_warp();
    }
    cd_thread_now = 0;
}

void cd_kernel_end(void)
{
    for (int i = 0; w && i < LANES; i++)
        if (w->lanes[i].stack)
            munmap(w->lanes[i].stack, STACK);
    free(w);
    w = NULL;
}

/* No two threads run at a time, so that plain accesses do. */
template <typename Change>
static unsigned long long atomically(unsigned long long *p, Change change)
{
    uint32_t me = cd_thread_now;
    unsigned long long old = *p;
    cd_thread_now = 0;
    cd_touched(p, sizeof *p, false);
    cd_touched(p, sizeof *p, true);
    cd_thread_now = me;
    *p = change(old);
    return old;
}

unsigned long long atomicAdd(unsigned long long *p, unsigned long long v)
{
    return atomically(p, [v](unsigned long long old) { return old + v; });
}

unsigned long long atomicMin(unsigned long long *p, unsigned long long v)
{
    return atomically(p, [v](unsigned long long old) { return v < old ? v : old; });
}

/* The calls that -fsanitize=thread puts before each access: kernels are compiled with it, and this
 * is what they are linked to. */
#define ACCESS(bytes)                                                                              \
    extern "C" void __tsan_read##bytes(const void *p);                                             \
    extern "C" void __tsan_write##bytes(const void *p);                                            \
    extern "C" void __tsan_unaligned_read##bytes(const void *p);                                   \
    extern "C" void __tsan_unaligned_write##bytes(const void *p);                                  \
    extern "C" void __tsan_read##bytes(const void *p)                                              \
    {                                                                                              \
        cd_touched(p, bytes, false);                                                               \
    }                                                                                              \
    extern "C" void __tsan_write##bytes(const void *p)                                             \
    {                                                                                              \
        cd_touched(p, bytes, true);                                                                \
    }                                                                                              \
    extern "C" void __tsan_unaligned_read##bytes(const void *p)                                    \
    {                                                                                              \
        cd_touched(p, bytes, false);                                                               \
    }                                                                                              \
    extern "C" void __tsan_unaligned_write##bytes(const void *p)                                   \
    {                                                                                              \
        cd_touched(p, bytes, true);                                                                \
    }
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)
extern "C" void __tsan_init(void);
extern "C" void __tsan_init(void)
{
}
extern "C" void __tsan_func_entry(void *);
extern "C" void __tsan_func_entry(void *)
{
}
extern "C" void __tsan_func_exit(void);
extern "C" void __tsan_func_exit(void)
{
}
extern "C" void __tsan_read_range(const void *p, size_t n);
extern "C" void __tsan_read_range(const void *p, size_t n)
{
    cd_touched(p, n, false);
}
extern "C" void __tsan_write_range(const void *p, size_t n);
extern "C" void __tsan_write_range(const void *p, size_t n)
{
    cd_touched(p, n, true);
}
