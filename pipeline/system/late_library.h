/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_SYSTEM_LATE_LIBRARY_H
#define MR_PIPELINE_SYSTEM_LATE_LIBRARY_H
/* A shared library that is loaded on first use. Mapping and relocating a library takes about as
 * long as running a small graph, so libraries that few graphs need are not linked. Their functions
 * are called through a table of pointers:
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
#include <stdatomic.h>

#include "pipeline/status.h"

typedef struct mr__late_library {
    const char *what;    /* its purpose, the start of the error message: "PNG images are decoded" */
    const char *soname;  /* for the dynamic linker */
    const char *package; /* Debian package */
    const char *names;   /* NUL-terminated names of the functions; an empty one ends the list */
    void *table;         /* of pointers to them, in that order */
    atomic_bool open;    /* the table is filled and stays so */
} mr__late_library;

#define MR__LATE_MEMBER(function) __typeof__(function) *function;
/* Two macros, so that a name that is itself a macro is expanded first. */
#define MR__LATE_NAME(function) MR__LATE_TEXT(function)
#define MR__LATE_TEXT(function) #function "\0"
#define MR__LATE_LIBRARY(what, soname, package, FUNCTIONS, table)                                  \
    {                                                                                              \
        what, soname, package, FUNCTIONS(MR__LATE_NAME), &(table), false                           \
    }

/* Loads the library and fills the table, unless it is filled. After a failure, the next call tries
 * again.
 * errors   MR_NOT_FOUND: the library cannot be opened; MR_FAILED_PRECONDITION: it lacks a function.
 *          Both belong to no element */
mr_code mr__late_library_need(mr__late_library *l, mr_status *st) MR_NODISCARD;
#endif
