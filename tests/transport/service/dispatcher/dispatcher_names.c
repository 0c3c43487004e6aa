/* SPDX-License-Identifier: Apache-2.0 */
/* The dispatcher alone: jobs that are tied to the names of clients. */
#include "tests/transport/service/dispatcher/dispatcher_alone.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tests/harness.h"

MR_ONE_THREAD;

static void begin(void)
{
    alone.operator_ = "worker";
    alone.name = "worker";
    alone.has_key = NULL;
    alone_begin(NULL, 0);
    (void)mr__dispatcher_tick(alone.d, alone.now);
}

static void end(void)
{
    mr__dispatcher_free(alone.d);
    alone.operator_ = alone.name = NULL;
    alone.has_key = NULL;
}

/* Joins as `name`; its number, or 0: refused. */
static uint64_t join_as(const char *name, uint64_t connection, const char *job, uint64_t job_id)
{
    alone.name = name;
    alone.job = 0;
    alone_join(connection, job, MR__WIRE__MODE__EXACTLY_ONCE, 0, job_id, false);
    return alone.job;
}

static void ask_as(const char *name, uint64_t connection, const char *what, const char *job)
{
    alone.name = name;
    alone_ask(connection, what, job);
}

MR_TEST(a_name_sees_its_own_jobs_only)
{
    char number[17];
    begin();
    alone_serve(100, "a:1");
    uint64_t hers = join_as("alice", 1, "train", 0);
    mr_check(hers != 0);
    mr_eq_str(alone.owner, "alice");
    mr_eq_u64(alone.key_bytes, MR__JOB_KEY_BYTES);
    uint8_t key[MR__JOB_KEY_BYTES];
    memcpy(key, alone.key, sizeof key);
    uint64_t his = join_as("bob", 2, "train", 0);
    mr_check(his != 0 && his != hers);
    mr_eq_str(alone.owner, "bob");
    mr_check(memcmp(key, alone.key, sizeof key) != 0);
    mr_eq_u64(join_as("bob", 3, "train", hers), 0);
    mr_eq_i64(alone.code, MR_PERMISSION_DENIED);
    mr_eq_u64(join_as("bob", 4, "", hers), 0);
    mr_eq_u64(join_as("", 5, "train", 0), 0);
    mr_has_str(alone.text, "common name");
    ask_as("bob", 6, "jobs", "");
    snprintf(number, sizeof number, "%016" PRIx64, hers);
    mr_check(!strstr(alone.answer, number) && strstr(alone.answer, "bob"));
    ask_as("bob", 7, "streams", number);
    mr_has_str(alone.report, "there is no job");
    ask_as("bob", 8, "cancel", number);
    mr_has_str(alone.report, "there is no job");
    ask_as("bob", 9, "cancel", "train"); /* his */
    mr_eq_str(alone.report, "");
    ask_as("worker", 10, "jobs", "");
    mr_check(strstr(alone.answer, number) && !strstr(alone.answer, "bob"));
    ask_as("worker", 11, "cancel", "train");
    mr_eq_str(alone.report, "");
    mr_eq_u64(alone.forgotten, hers);
    end();
}

MR_TEST(operators_alone_work_and_manage)
{
    static const char *const all[] = {"status", "workers", "page", "drain", "rebalance", "none"};
    begin();
    alone_serve(100, "a:1");
    mr_eq_i64(alone.kind, MR__WIRE__MESSAGE__BODY_REGISTERED);
    static const char *const others[] = {"alice", "", "workers", "worke"};
    for (uint64_t i = 0; i < 4; i++) {
        alone.name = others[i];
        alone_serve(101 + i, "b:1");
        mr_eq_i64(alone.code, MR_PERMISSION_DENIED);
        mr_has_str(alone.text, "--operators");
        for (uint64_t k = 0; k < 6; k++) {
            ask_as(others[i], 200 + 10 * i + k, all[k], "a:1");
            mr_has_str(alone.report, "--operators");
        }
        ask_as(others[i], 300 + i, "jobs", "");
        mr_eq_str(alone.answer, "[]");
    }
    ask_as("worker", 400, "workers", "");
    mr_check(strstr(alone.answer, "a:1") && !strstr(alone.answer, "b:1"));
    end();
}

/* The dispatcher loses its account: workers know the key of the streams that they host. */
MR_TEST(a_rebuilt_job_keeps_its_key)
{
    uint8_t key[MR__JOB_KEY_BYTES];
    memset(key, 7, sizeof key);
    begin();
    alone_serve_former(100, "a:1", 55);
    alone.has_key = key;
    mr_eq_u64(join_as("alice", 1, "train", 55), 55);
    mr_eq_str(alone.owner, "alice");
    mr_eq_mem(alone.key, key, sizeof key);
    mr_eq_u64(join_as("bob", 2, "train", 55), 0);
    mr_check(join_as("bob", 3, "other", 0) != 0); /* a new job's key is not its client's choice */
    mr_check(memcmp(alone.key, key, sizeof key) != 0);
    end();
}

/* What is on record from before jobs were tied to names has no owner. */
MR_TEST(jobs_on_record_keep_their_owner)
{
    static const char *const owners[] = {"alice", ""};
    for (int i = 0; i < 2; i++) {
        mr_status st;
        Mr__Wire__Job job = MR__WIRE__JOB__INIT;
        uint8_t key[MR__JOB_KEY_BYTES] = {9};
        job.block_length = 1;
        job.streams = 2;
        job.has_lists = true;
        job.owner = (char *)(uintptr_t)owners[i];
        job.key = (ProtobufCBinaryData){i == 0 ? sizeof key : 0, key};
        const mr__record r = {.kind = MR__RECORD_JOB, .job_id = 5, .name = "train", .job = &job};
        alone.operator_ = "worker";
        alone_begin(NULL, 0);
        mr_ok(mr__dispatcher_load(alone.d, &r, &st), &st);
        (void)mr__dispatcher_tick(alone.d, alone.now);
        mr_eq_u64(join_as("bob", 1, "train", 5), 0);
        mr_eq_u64(join_as("", 2, "train", 5), 0);
        mr_eq_u64(join_as("alice", 3, "train", 5), i == 0 ? 5 : 0);
        if (i == 0)
            mr_eq_mem(alone.key, key, sizeof key);
        end();
    }
}

MR_TEST(without_the_option_names_and_keys_are_of_no_account)
{
    uint8_t key[MR__JOB_KEY_BYTES] = {1};
    alone_begin(NULL, 0);
    alone.has_key = key;
    uint64_t hers = join_as("alice", 1, "train", 0);
    mr_eq_str(alone.owner, "");
    mr_eq_u64(alone.key_bytes, 0);
    mr__dispatcher_closed(alone.d, 1, alone.now);
    mr_eq_u64(join_as("bob", 2, "train", hers), hers);
    ask_as("bob", 3, "jobs", "");
    mr_check(strstr(alone.answer, "train") && !strstr(alone.answer, "owner"));
    end();
}
