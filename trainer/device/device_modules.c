/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/device/device_modules.h"
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "pipeline/memory/alloc.h"
#include "pipeline/system/fork.h"
#include "trainer/device/device_modules_impl.h"

static void log_text(mr_log_level level, const char *message)
{
    mr_log(level, "%s", message);
}

static const mr_module_host host = {
    .abi = MR_DEVICE_ABI,
    .size = sizeof(mr_module_host),
    .failv = mr_failv,
    .log = log_text,
    .calloc = mr_calloc,
    .aligned_alloc = mr_aligned_alloc,
    .free = mr_free,
    .device_name = mr_device_name,
};

/* Engines of loaded modules, which collective.c fetches: devices do not depend on it. */
enum { MAX_ENGINES = 16 };
static mr__lock engines_lock = MR__LOCK_FREE;
static const struct mr_collective_backend *engines[MAX_ENGINES];
static size_t n_engines;

const struct mr_collective_backend *mr__module_engine(size_t i)
{
    mr__lock_take(&engines_lock);
    const struct mr_collective_backend *b = i < n_engines ? engines[i] : NULL;
    mr__lock_release(&engines_lock);
    return b;
}

static mr_code take(const mr_module *m, const char *path, mr_status *st)
{
    if (!m || m->abi != MR_DEVICE_ABI)
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "%s is not a device module of this release; use the one that was built with "
                       "the program",
                       path);
    MR_TRY(mr_device_backend_register(m->devices, st));
    mr__lock_take(&engines_lock);
    if (m->collective && n_engines < MAX_ENGINES)
        engines[n_engines++] = m->collective;
    mr__lock_release(&engines_lock);
    return MR_OK;
}

mr_code mr_device_module_load(const char *path, mr_status *st)
{
    void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!so)
        return mr_fail(st, MR_NOT_FOUND, "the module cannot be opened: %s", dlerror());
    mr_module_fn *entry;
    void *symbol = dlsym(so, MR_MODULE_SYMBOL);
    memcpy(&entry, &symbol, sizeof entry);
    /* It stays open even if it is refused: it may have started threads. */
    return take(entry ? entry(&host) : NULL, path, st);
}

/* The kinds for which Millrace has modules. */
static const struct module {
    const char *kind, *file, *variable;
} modules[] = {{"cuda", "millrace-cuda.so", "MILLRACE_CUDA_MODULE"}};
enum { N_MODULES = sizeof modules / sizeof *modules };

static char not_loaded[N_MODULES][256]; /* why; "": loaded */
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* *out = the file in a folder given relative to that of `from`. Returns whether it is readable. */
static bool beside(const char *from, const char *folder, const char *file, char *out, size_t room)
{
    const char *end = strrchr(from, '/');
    int n = end ? snprintf(out, room, "%.*s/%s%s", (int)(end - from), from, folder, file) : -1;
    return n > 0 && (size_t)n < room && access(out, R_OK) == 0;
}

static bool find_file(const char *file, char *out, size_t room)
{
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n > 0) {
        self[n] = '\0';
        if (beside(self, "", file, out, room) ||
            beside(self, MR_BIN_TO_MODULES "/", file, out, room))
            return true;
    }
    /* The shared library of the trainer, independent of the program's location. */
    Dl_info info;
    return dladdr(&host, &info) && info.dli_fname &&
           (beside(info.dli_fname, "", file, out, room) ||
            beside(info.dli_fname, "millrace/", file, out, room));
}

bool mr__module_find(const char *file, const char *variable, char *out, size_t room)
{
    const char *given = getenv(variable);
    if (!given)
        return find_file(file, out, room);
    snprintf(out, room, "%s", given);
    return true;
}

static void find(const struct module *m, char *why, size_t size)
{
    char path[PATH_MAX];
    mr_status st;
    if (!mr__module_find(m->file, m->variable, path, sizeof path))
        snprintf(why, size, "module not built");
    else if (mr_device_module_load(path, &st) != MR_OK)
        snprintf(why, size, "%.*s", (int)size - 1, st.message);
}

static void find_all(void)
{
    for (size_t i = 0; i < N_MODULES; i++)
        find(&modules[i], not_loaded[i], sizeof not_loaded[i]);
}

void mr__device_modules_load(void)
{
    pthread_once(&once, find_all);
}

const char *mr__device_module_missing(unsigned i, const char **why)
{
    mr__device_modules_load();
    for (size_t k = 0; k < N_MODULES; k++)
        if (not_loaded[k][0] && i-- == 0) {
            *why = not_loaded[k];
            return modules[k].kind;
        }
    return NULL;
}
