/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_SYSTEM_NAME_SCOPE_H
#define MR_PIPELINE_SYSTEM_NAME_SCOPE_H
/* Whose names of files are used in this thread. A graph from another process has names that are
 * relative to a directory of that process. They are looked up when the graph is built (the types of
 * a table's columns), analysed (the number of its elements) and run, by sources and by functions:
 * so the scope belongs to the thread, and the executor's tasks have that of the thread that
 * submitted them.
 *
 * thread   any; the scope is thread-local */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "pipeline/status.h"

typedef struct mr__name_scope {
    const char *directory; /* borrowed; NULL: the process's working directory */
    bool of_service;       /* of another process: standard input and descriptors are refused */
    bool may_write;        /* although of_service: its graphs write wherever the process may */
    const char *cache;     /* directory of cached objects; borrowed; NULL: that of the process */
    bool own;              /* a file of this process that no graph named: no root applies */
    int64_t remote_connections, remote_read_ahead; /* as in mr_iterator_opts; 0: not set */
    struct mr_cancel *cancel; /* ends waits for remote files; borrowed; NULL: nothing does */
} mr__name_scope;

/* Returns the previous one. */
mr__name_scope mr__name_scope_set(mr__name_scope s);
mr__name_scope mr__name_scope_get(void);
/* Changes the directory alone, which is borrowed; NULL: not even that. Returns the previous
 * scope. */
mr__name_scope mr__name_scope_enter(const char *directory);
/* Sets `own` alone. Returns the previous scope. */
mr__name_scope mr__name_scope_enter_own(void);
/* out = this process's working directory. false, errno: the system does not tell it. */
bool mr__name_scope_here(char *out, size_t size);
/* True if the directory is known to be this process's working directory. */
bool mr__name_scope_is_here(const char *directory);
/* errors   MR_INVALID_ARGUMENT: the scope is a service's, and the name means standard input or
 *          another open descriptor of this process */
mr_code mr__name_scope_check(mr__name_scope s, const char *name, mr_status *st) MR_NODISCARD;
#endif
