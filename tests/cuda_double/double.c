/* SPDX-License-Identifier: Apache-2.0 */
/* Settings, calls that fail on demand, and what is left at the end. */
#include "tests/cuda_double/double.h"
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_LEAK = 99, ALIVE = 0x600d600d };

_Thread_local bool cd_in_host_call;
static atomic_ulong calls, kernels;
static atomic_long live[CD_N_KINDS];
static pthread_mutex_t fail_lock = PTHREAD_MUTEX_INITIALIZER;
static char fail_call[64]; /* "": none */
static unsigned long fail_at;
static char failed_call[64]; /* the last that did */

void cd_misuse(const char *format, ...)
{
    va_list ap;
    char text[512];
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    fprintf(stderr, "cuda double: %s\n", text);
    fflush(stderr);
    abort();
}

static unsigned long number(const char *name, unsigned long otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strtoul(text, NULL, 10) : otherwise;
}

/* The n-th call of this name from now on fails. */
static void fail_later(const char *call, unsigned long n)
{
    pthread_mutex_lock(&fail_lock);
    snprintf(fail_call, sizeof fail_call, "%s", call);
    fail_at = n;
    pthread_mutex_unlock(&fail_lock);
}

static cd_settings settings;
static void read_settings(void)
{
    char call[64];
    unsigned long n;
    const char *fail = getenv("MR_DOUBLE_FAIL");
    settings.devices = (int)number("MR_DOUBLE_DEVICES", 4);
    settings.first = (int)number("MR_DOUBLE_FIRST", 0);
    settings.peers = number("MR_DOUBLE_PEERS", 1) != 0;
    settings.memory = number("MR_DOUBLE_MEMORY", 4096) << 20;
    settings.delay_us = (unsigned)number("MR_DOUBLE_DELAY", 100);
    settings.seed = number("MR_TEST_SEED", 1);
    if (settings.devices > CD_DEVICES)
        cd_misuse("MR_DOUBLE_DEVICES is at most %d", CD_DEVICES);
    if (fail && sscanf(fail, "%63[^:]:%lu", call, &n) == 2)
        fail_later(call, n);
    else if (fail && *fail)
        cd_misuse("MR_DOUBLE_FAIL is CALL:N, not '%s'", fail);
}

const cd_settings *cd_set(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_settings);
    return &settings;
}

static bool is_it(const char *call)
{
    pthread_mutex_lock(&fail_lock);
    bool counts = strcmp(fail_call, call) == 0 ||
                  (strcmp(fail_call, "any") == 0 && strcmp(call, "kernel") != 0);
    bool fails = counts && fail_at > 0 && --fail_at == 0;
    if (fails)
        snprintf(failed_call, sizeof failed_call, "%s", call);
    pthread_mutex_unlock(&fail_lock);
    return fails;
}

/* Calls of a thread that captures a stream: those that submit work to it. */
static bool is_captured(const char *call)
{
    static const char *const names[] = {"cudaLaunchKernel", "cudaMemsetAsync", "cudaSetDevice",
                                        "cudaStreamEndCapture"};
    bool is = strncmp(call, "cublasLt", 8) == 0 || strncmp(call, "cudnnConvolution", 16) == 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        is = is || strcmp(call, names[i]) == 0;
    return is;
}

bool cd_fails(const char *call)
{
    cd_set();
    if (cd_in_host_call)
        cd_misuse("%s is called in a function that a stream runs", call);
    if (cd_capturing && !is_captured(call))
        cd_misuse("%s is called while a stream is captured", call);
    atomic_fetch_add(&calls, 1);
    return is_it(call);
}

bool cd_kernel_fails(void)
{
    atomic_fetch_add(&kernels, 1);
    return is_it("kernel");
}

uint64_t cd_random(uint64_t *s)
{
    uint64_t x = *s += 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

static const char *const kind_names[CD_N_KINDS] = {
    "stream",       "event",        "cuBLASLt handle", "product", "matrix layout",
    "preference",   "cuDNN handle", "tensor",          "filter",  "convolution",
    "communicator", "graph",        "executable graph"};

void *cd_new(cd_kind kind, size_t bytes)
{
    cd_head *h = calloc(1, bytes);
    if (!h)
        cd_misuse("no memory of the host");
    h->kind = kind;
    h->alive = ALIVE;
    atomic_fetch_add(&live[kind], 1);
    return h;
}

void cd_check(cd_kind kind, const void *p, const char *call)
{
    const cd_head *h = p;
    if (!h || h->kind != kind || h->alive != ALIVE)
        cd_misuse("%s: %p is no %s that exists", call, p, kind_names[kind]);
}

void cd_retire(cd_kind kind, void *p, const char *call)
{
    cd_check(kind, p, call);
    ((cd_head *)p)->alive = 0;
    atomic_fetch_sub(&live[kind], 1);
}

void cd_drop(cd_kind kind, void *p, const char *call)
{
    cd_retire(kind, p, call);
    free(p);
}

/* The last that runs of a program: what it made must be gone. */
__attribute__((destructor)) static void report(void)
{
    cd_streams_end();
    size_t blocks, bytes = cd_left(&blocks);
    bool leaks = blocks > 0;
    const char *file = getenv("MR_DOUBLE_COUNT");
    FILE *f = file && atomic_load(&calls) > 0 ? fopen(file, "w") : NULL;
    if (f) {
        fprintf(f, "%lu %lu %s\n", atomic_load(&calls), atomic_load(&kernels), failed_call);
        fclose(f);
    }
    if (leaks)
        fprintf(stderr, "cuda double: leak: %zu blocks of memory, %zu bytes\n", blocks, bytes);
    for (int k = 0; k < CD_N_KINDS; k++) {
        long n = atomic_load(&live[k]);
        leaks = leaks || n > 0;
        if (n > 0)
            fprintf(stderr, "cuda double: leak: %ld %s%s\n", n, kind_names[k], n > 1 ? "s" : "");
    }
    if (leaks) {
        fflush(NULL);
        _exit(EXIT_LEAK);
    }
}
