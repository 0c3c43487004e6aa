/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_DEVICE_DEVICE_MODULES_H
#define MR_TRAINER_DEVICE_DEVICE_MODULES_H
/* Kinds of devices loaded from modules, which are shared objects opened at run time: one build runs
 * on machines with and without the hardware, and reports which it found.
 *
 * A module does not link Millrace's libraries: a program that links them statically exports none of
 * their symbols, and a second copy would have separate registries. The host therefore passes the
 * module a table of the functions it needs.
 *
 * The module of "cuda" is the file that MILLRACE_CUDA_MODULE names, else millrace-cuda.so in the
 * folder of the program or of the trainer's library, else in millrace/ of the library folder.
 *
 * thread   any
 * since    0.1 */
#include <stdarg.h>
#include "../../pipeline/log.h"
#include "device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Functions that a module may call. Each works like the function of that name with the prefix mr_;
 * log takes text. */
typedef struct mr_module_host {
    uint32_t abi, size; /* MR_DEVICE_ABI; sizeof: fields are added at the end only */
    mr_code (*failv)(mr_status *st, mr_code code, const char *fmt, va_list ap);
    void (*log)(mr_log_level level, const char *message);
    void *(*calloc)(size_t n, size_t bytes);
    void *(*aligned_alloc)(size_t alignment, size_t bytes);
    void (*free)(void *p);
    const char *(*device_name)(const mr_device *d);
} mr_module_host;

/* What a module provides; abi is MR_DEVICE_ABI. All of it stays valid for the life of the
 * process. */
typedef struct mr_module {
    uint32_t abi;
    const mr_device_backend *devices;
    const struct mr_collective_backend *collective; /* collective.h; NULL: none */
} mr_module;

/* The only symbol that a module exports. host stays valid for the life of the process. Returns NULL
 * if the module was built for another ABI version than the host's. */
#define MR_MODULE_SYMBOL "millrace_module"
typedef const mr_module *mr_module_fn(const mr_module_host *host);

/* Opens a module and registers what it provides. It is never closed.
 * errors   MR_NOT_FOUND: it cannot be opened; says why · MR_FAILED_PRECONDITION: not a module of
 *          this release · those of mr_device_backend_register */
MR_API mr_code mr_device_module_load(const char *path, mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
