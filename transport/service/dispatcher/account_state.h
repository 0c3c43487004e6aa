/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_SERVICE_ACCOUNT_STATE_H
#define MR_TRANSPORT_SERVICE_ACCOUNT_STATE_H
/* Inside of the account: account.c opens and reads, account_writer.c writes. */
#include <pthread.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdlib.h>
#include "transport/service/dispatcher/account.h"
#include "pipeline/memory/id_map.h"

typedef struct mr__a_record mr__a_record;

enum {
    MR__A_JOB,
    MR__A_STREAM,
    MR__A_FORGET_JOB,
    MR__A_FORGET_STREAMS,
    MR__A_FORGET_SPLITS,
    MR__A_DATASET,
    MR__A_SPLIT,
    MR__A_DRAIN,
    MR__A_FORGET_DRAIN,
    MR__A_N
};

struct mr__account {
    mr__account_opts o;
    char *directory, *path;
    sqlite3 *db;                   /* the writer's, once it runs */
    sqlite3_stmt *change[MR__A_N]; /* the same */
    pthread_t thread;
    bool running;
    uint64_t last;        /* number of the last record */
    mr__posted posted;    /* brings durable, why and lost to the loop */
    uint64_t reported;    /* what the loop knows of durable, */
    bool reported_bad;    /* bad, */
    bool reported_lost;   /* and lost */
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t wake;  /* something waits, or stop */
    mr__a_record *first, *tail;
    mr__id_map latest; /* of a stream's key: its record that waits */
    bool stop, is_posted;
    uint64_t durable;
    bool bad, lost;
    mr_status why;
};

/* Fails with what SQLite says. */
mr_code mr__account_fail(const mr__account *a, const char *what, mr_status *st);
mr_code mr__account_run(mr__account *a, const char *sql, const char *what,
                        mr_status *st) MR_NODISCARD;
mr_code mr__account_prepare(mr__account *a, const char *sql, sqlite3_stmt **out,
                            mr_status *st) MR_NODISCARD;

/* ---- account_writer.c ---- */
void mr__account_init_writer(mr__account *a);
mr_code mr__account_prepare_writer(mr__account *a, mr_status *st) MR_NODISCARD;
void mr__account_free_writer(mr__account *a);
bool mr__account_reports(mr__account *a); /* something is posted to the loop */
#endif
