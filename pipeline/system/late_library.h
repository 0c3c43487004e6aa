/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_LATE_LIBRARY_H
#define MR_PIPELINE_LATE_LIBRARY_H
/* A shared library that is opened when something first needs it. To map and relocate one takes
 * about as long as a small graph, so those that few graphs need are not linked. Its functions are
 * called through a table of pointers:
 *
 *     #define SPNG(X) X(spng_ctx_new2) X(spng_ctx_free)
 *     static struct { SPNG(MR__LATE_MEMBER) } spng;
 *     static mr__late_library library = MR__LATE_LIBRARY("PNG images are decoded", "libspng.so.0",
 *                                                        "libspng0", SPNG, spng);
 *     ...
 *     MR_TRY(mr__late_library_need(&library, st));
 *     spng.spng_ctx_free(png);
 *
 * thread   any */
#include <pthread.h>
#include <stdatomic.h>

#include "pipeline/status.h"

typedef struct mr__late_library {
    const char *what;    /* is done by it: a clause for the error */
    const char *soname;  /* as the dynamic linker finds it */
    const char *package; /* Debian's, which has it */
    const char *names;   /* of the functions, one after the other; the last is empty */
    void *table;         /* of pointers to them, in that order */
    pthread_mutex_t lock;
    atomic_bool open; /* the table is filled, for good */
} mr__late_library;

#define MR__LATE_MEMBER(function) __typeof__(function) *function;
/* Twice: a name that is a macro is the name that it stands for. */
#define MR__LATE_NAME(function) MR__LATE_TEXT(function)
#define MR__LATE_TEXT(function) #function "\0"
#define MR__LATE_LIBRARY(what, soname, package, FUNCTIONS, table)                                  \
    {                                                                                              \
        what, soname, package, FUNCTIONS(MR__LATE_NAME), &(table), PTHREAD_MUTEX_INITIALIZER,      \
            false                                                                                  \
    }

/* Fills the table, once. A later call tries again where it failed.
 * errors   MR_NOT_FOUND: the library cannot be opened; MR_FAILED_PRECONDITION: it lacks a function.
 *          Both are of no element */
mr_code mr__late_library_need(mr__late_library *l, mr_status *st) MR_NODISCARD;
#endif
