# SPDX-License-Identifier: Apache-2.0
"""Writes the C source of millrace._service_ffi: the data service (libmillrace-transport), which
millrace.service and the op distribute load when they are first used.

    python3 build_service_ffi.py OUTPUT.c
"""
import sys

import cffi
from build_ffi import ffi as base

CDEF = """
mr_code mr_service_register_ops(mr_status *st);

typedef struct mr_tls_opts { bool enabled; const char *cert, *key, *client_ca, *ca, *name; } mr_tls_opts;
void mr_service_reload_certificates(void);

typedef struct mr_service_dispatcher mr_service_dispatcher;
typedef struct mr_service_dispatcher_opts { const char *listen, *state, *status, *token_file,
    *status_token_file; const mr_tls_opts *tls; bool insecure, any_user;
    bool jobs_of_name_only; const char *const *operators; size_t n_operators; ...; } mr_service_dispatcher_opts;
mr_code mr_service_dispatcher_open(mr_service_dispatcher **out, const mr_service_dispatcher_opts *opts, mr_status *st);
const char *mr_service_dispatcher_address(const mr_service_dispatcher *d);
const char *mr_service_dispatcher_status_address(const mr_service_dispatcher *d);
mr_code mr_service_dispatcher_start(mr_service_dispatcher *d, mr_status *st);
void mr_service_dispatcher_stop(mr_service_dispatcher *d);
mr_code mr_service_dispatcher_wait(mr_service_dispatcher *d, mr_status *st);
void mr_service_dispatcher_close(mr_service_dispatcher *d);

typedef struct mr_executor mr_executor;
mr_code mr_executor_new(int n_threads, mr_executor **out, mr_status *st);
void mr_executor_free(mr_executor *ex);
typedef struct mr_service_worker mr_service_worker;
typedef struct mr_service_worker_opts { const char *dispatcher, *listen, *status, *token_file,
    *status_token_file; const mr_tls_opts *tls; bool insecure, any_user;
    const char *const *tags; size_t n_tags; mr_executor *executor; int64_t memory_limit; double weight; bool watch, no_uring;
    void (*ready)(void *ctx); ...; } mr_service_worker_opts;
const char *mr_service_worker_status_address(const mr_service_worker *w);
extern "Python" void mrpy_worker_ready(void *ctx);
mr_code mr_service_worker_open(mr_service_worker **out, const mr_service_worker_opts *opts, mr_status *st);
const char *mr_service_worker_address(const mr_service_worker *w);
mr_code mr_service_worker_start(mr_service_worker *w, mr_status *st);
void mr_service_worker_stop(mr_service_worker *w);
mr_code mr_service_worker_wait(mr_service_worker *w, mr_status *st);
void mr_service_worker_close(mr_service_worker *w);
mr_code mr_service_restrict_files(const char *const *directories, size_t n, mr_status *st);
mr_code mr_service_allow_writes(const char *const *directories, size_t n, mr_status *st);

typedef struct mrpy_server { mr_service_dispatcher *dispatcher; mr_service_worker *worker; ...; } mrpy_server;
typedef struct mrpy_limits { const char *const *read, *const *write; size_t n_read, n_write; } mrpy_limits;
size_t mrpy_limits_users(void);
mr_code mrpy_server_limit(mrpy_server *s, const mrpy_limits *limits, mr_status *st);
mr_code mrpy_server_open_worker(mrpy_server *s, mr_service_worker_opts *opts, const int *threads, mr_status *st);
void mrpy_server_free(mrpy_server *s);
"""

ffi = cffi.FFI()
ffi.include(base)
ffi.set_source("millrace._service_ffi", '#include "binding.h"\n#include "server.h"\n')
ffi.cdef(CDEF)

if __name__ == "__main__":
    ffi.emit_c_code(sys.argv[1])
