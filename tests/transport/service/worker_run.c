/* SPDX-License-Identifier: Apache-2.0 */
/* A dispatcher, a worker and a client as they run, over loopback, in one process: also when memory
 * is short, which must end in the right elements or in an error, never in anything else. */
#include "transport/service/worker/worker_run.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pipeline/engine/iterator_internal.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/ops/batch.h"
#include "pipeline/ops/sequence.h"
#include "pipeline/ops/sources.h"
#include "pipeline/remote/url_roots_internal.h"
#include "pipeline/system/name_scope.h"
#include "pipeline/system/system.h"
#include "pipeline/system/write_roots.h"
#include "tests/fault.h"
#include "tests/harness.h"
#include "tests/transport/service/cluster.h"
#include "transport/service/job.h"
#include "transport/service/worker/producer.h"
#include "transport/service/worker/file_roots.h"
#include "transport/service/worker/worker_service.h"
#include "transport/service/stream_position.h"
#include "transport/wire/token_file.h"

MR_TEST(a_client_reads_what_a_worker_makes)
{
    static const mr__loop_kind loops[] = {MR__LOOP_AUTO, MR__LOOP_EPOLL};
    for (int i = 0; i < 2; i++) {
        cluster c;
        size_t n;
        mr_status st;
        mr_ok(cluster_start(&c, loops[i], &st), &st);
        for (int again = 0; again < 3; again++) {
            mr_service_opts o = {.streams = CLUSTER_STREAMS,
                                 .max_outstanding_bytes = again == 2 ? 1 : 0};
            mr_code_is(cluster_read(&c, &o, i == 0, &n, &st), MR_END, &st);
            mr_eq_u64(n, CLUSTER_ELEMENTS);
        }
        cluster_stop(&c);
        mr_ok(c.rc[0], &c.st[0]);
        mr_ok(c.rc[1], &c.st[1]);
    }
}

static void *map_nothing_to_read(void *at, size_t n, int protection, int flags, int fd, off_t from)
{
    if (protection == PROT_READ && flags == MAP_SHARED) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return mr__system_real()->mmap(at, n, protection, flags, fd, from);
}

MR_TEST(memory_that_cannot_be_mapped_is_done_without_unless_it_is_asked_for)
{
    mr__system table = *mr__system_real();
    cluster c;
    size_t n;
    mr_status st;
    table.mmap = map_nothing_to_read;
    mr__system_set(&table);
    mr_ok(cluster_start(&c, MR__LOOP_AUTO, &st), &st);
    mr_service_opts o = {.streams = CLUSTER_STREAMS};
    mr_code_is(cluster_read(&c, &o, true, &n, &st), MR_END, &st);
    mr_eq_u64(n, CLUSTER_ELEMENTS);
    o.transfer = (char *)(uintptr_t) "shared_memory";
    mr_code_is(cluster_read(&c, &o, true, &n, &st), MR_FAILED_PRECONDITION, &st);
    mr_has_str(st.message, "shared_memory");
    mr_has_str(st.message, "cannot map memory");
    mr_has_str(st.message, "127.0.0.1:");
    cluster_stop(&c);
    mr__system_set(NULL);
}

MR_TEST(short_of_memory_a_client_reads_the_same_or_gets_an_error)
{
#ifdef __SANITIZE_THREAD__
    mr_skip_test("faults are planned while other threads ask for memory");
#endif
    uint64_t seed = mr_test_seed();
    size_t whole = 0;
    mr_fault_count();     /* before there are threads */
    mr__system_set(NULL); /* only memory fails, and sockets are not in its table */
    for (int run = 0; run < (mr_test_long() ? 200 : 12); run++) {
        double patience = run % 4 ? 2 : 300; /* without a fault it reads all, however slowly */
        mr_service_opts o = {
            .streams = CLUSTER_STREAMS, .connect_timeout = patience, .stall_timeout = patience};
        cluster c;
        size_t n;
        mr_status st;
        mr_test_context("run %d", run);
        mr_ok(cluster_start(&c, MR__LOOP_EPOLL, &st), &st);
        mr_fault_random(MR_FAULT_ALLOCATION, 0, (unsigned)run % 4, mr_test_random(&seed));
        mr_code rc = cluster_read(&c, &o, false, &n, &st);
        mr_fault_off();
        if (rc == MR_END) {
            mr_eq_u64(n, CLUSTER_ELEMENTS);
            whole++;
        } else {
            mr_check(rc < 0 && st.message[0]);
        }
        cluster_stop(&c);
    }
    mr_check(whole > 0);
}

/* ---- positions of streams ---- */

MR_TEST(a_stream_begins_again_after_where_it_was_left)
{
    mr_dataset *ds =
        mr_shuffle(mr_range(0, 20, 1), 5, &(mr_shuffle_opts){.seed = 3, .has_seed = true});
    mr_status st;
    mr_iterator *a, *b;
    mr_block x = MR_BLOCK_EMPTY, y = MR_BLOCK_EMPTY;
    uint8_t *position;
    void *saved, *again;
    size_t n, size;
    const mr_iterator_opts o = {.positions = true};
    mr_ok(mr_iterator_open(&a, ds, &o, &st), &st);
    mr_ok(mr_iterator_next(a, 4, &x, &st), &st);
    mr_ok(mr_iterator_save(a, &saved, &n, &st), &st);
    position = mr_malloc(MR__STREAM_POSITION_BYTES + n);
    mr__stream_position_put(position);
    memcpy(position + MR__STREAM_POSITION_BYTES, saved, n);
    mr_ok(mr__stream_position_again(position, MR__STREAM_POSITION_BYTES + n, 2, &again, &size, &st),
          &st);
    mr_ok(mr__stream_skip(a, 2, &st), &st);
    mr_ok(mr_iterator_rewind(a, &st), &st);
    /* as another process finds it */
    mr_dataset *same =
        mr_shuffle(mr_range(0, 20, 1), 5, &(mr_shuffle_opts){.seed = 3, .has_seed = true});
    mr_ok(mr_iterator_open(&b, same, &o, &st), &st);
    mr_ok(mr__stream_position_go(b, again, size, &st), &st);
    for (size_t got = 0; got < 20; got += x.rows) {
        mr_ok(mr_iterator_next(a, 1, &x, &st), &st);
        mr_ok(mr_iterator_next(b, 1, &y, &st), &st);
        mr_eq_i64(*(const int64_t *)x.columns[0].data, *(const int64_t *)y.columns[0].data);
    }
    mr_code_is(mr__stream_skip(b, 1, &st), MR_INVALID_ARGUMENT, &st);
    for (size_t cut = 1; cut < size; cut++) {
        mr_ok(mr_iterator_rewind(b, &st), &st);
        mr_code rc = mr__stream_position_go(b, again, cut, &st);
        mr_check(rc == MR_INVALID_ARGUMENT || cut == MR__STREAM_POSITION_BYTES);
        mr_iterator_close(b);
        mr_ok(mr_iterator_open(&b, same, &o, &st), &st);
    }
    mr_block_reset(&x);
    mr_block_reset(&y);
    mr_iterator_close(a);
    mr_iterator_close(b);
    mr_dataset_unref(ds);
    mr_dataset_unref(same);
    mr_free(position);
    mr_free(saved);
    mr_free(again);
}

/* ---- roots ---- */

static void put(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    mr_check(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

static mr_code read_line(const char *path, mr_status *st)
{
    mr_dataset *ds = mr_text_line(&path, 1, NULL);
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    mr_ok(mr_iterator_open(&it, ds, NULL, st), st);
    mr_code rc = mr_iterator_next(it, 1, &b, st);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    return rc;
}

MR_TEST(graphs_of_clients_write_below_their_directories)
{
    mr_status st;
    char dir[512], path[600];
    snprintf(dir, sizeof dir, "%s", mr_test_path("may"));
    mkdir(dir, 0777);
    mr_check(symlink("..", mr_test_path("may/up")) == 0);
    mr_code_is(mr_service_allow_writes(&(const char *){mr_test_path("none")}, 1, &st),
               MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "none");
    mr_code_is(mr_service_allow_writes(&(const char *){"s3://bucket/"}, 1, &st),
               MR_INVALID_ARGUMENT, &st);
    mr_code_is(mr_service_allow_writes(&(const char *){NULL}, 1, &st), MR_INVALID_ARGUMENT, &st);
    mr_code_is(mr_service_allow_writes(NULL, 1, &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "directory 0 is NULL");
    mr__name_scope_set((mr__name_scope){.of_service = true});
    snprintf(path, sizeof path, "%s/a", dir);
    mr_code_is(mr__write_roots_check(path, &st), MR_PERMISSION_DENIED, &st);
    mr_has_str(st.message, "its operator can allow it with --allow-writes DIR");
    mr_ok(mr_service_allow_writes(&(const char *){dir}, 1, &st), &st);
    const char *good[] = {"", "/a", "/a/b/c", "/./a", "/../may/a"};
    const char *bad[] = {"/..", "-not", "/../a", "/up/a", "/none/../../a", "/none/../a"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        snprintf(path, sizeof path, "%s%s", dir, good[i]);
        mr_test_context("%s", path);
        mr_ok(mr__write_roots_check(path, &st), &st);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(path, sizeof path, "%s%s", dir, bad[i]);
        mr_test_context("%s", path);
        mr_code_is(mr__write_roots_check(path, &st), MR_PERMISSION_DENIED, &st);
        mr_has_str(st.message, "below the directories that its --allow-writes names");
    }
    mr__name_scope_set((mr__name_scope){.of_service = true, .may_write = true});
    mr_ok(mr__write_roots_check(path, &st), &st); /* graphs of a training job */
    mr__name_scope_set((mr__name_scope){.of_service = false});
    mr_ok(mr__write_roots_check(path, &st), &st); /* this process's own graphs */
    mr_ok(mr_service_allow_writes(NULL, 0, &st), &st);
}

MR_TEST(files_are_opened_only_below_the_roots)
{
    mr_status st;
    const mr__system *table;
    char in[512], in_dir[512], out[512], link[512], dots[600], next_to[600];
    snprintf(in_dir, sizeof in_dir, "%s", mr_test_path("in"));
    mkdir(in_dir, 0777);
    snprintf(in, sizeof in, "%s", mr_test_path("in/a"));
    snprintf(out, sizeof out, "%s", mr_test_path("b"));
    snprintf(link, sizeof link, "%s", mr_test_path("in/link"));
    snprintf(dots, sizeof dots, "%s/../b", in_dir);
    snprintf(next_to, sizeof next_to, "%s-not", in_dir);
    put(in, "a\n");
    put(out, "b\n");
    put(next_to, "c\n");
    mr_check(symlink("../b", link) == 0);
    mr_code_is(mr__file_roots_set(&(const char *){mr_test_path("none")}, 1, &table, &st),
               MR_NOT_FOUND, &st);
    mr_has_str(st.message, "none");
    mr_ok(mr__file_roots_set(NULL, 0, &table, &st), &st);
    mr_check(!table);
    mr_ok(mr__file_roots_set(&(const char *){in_dir}, 1, &table, &st), &st);
    mr__system_set(table);
    mr_ok(read_line(in, &st), &st);
    const char *bad[] = {out, link, dots, next_to, "/proc/self/environ"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        mr_test_context("%s", bad[i]);
        mr_code_is(read_line(bad[i], &st), MR_PERMISSION_DENIED, &st);
        mr__file_roots_explain(&st);
        mr_has_str(st.message, "--root");
    }
    /* What a link to nothing leads to is not made, and nothing tells what exists elsewhere. */
    char to[600];
    snprintf(to, sizeof to, "%s/to", in_dir);
    mr_check(symlink(mr_test_path("new"), to) == 0);
    mr_check(mr__sys->open(to, O_WRONLY | O_CREAT | O_CLOEXEC, 0666) < 0 && errno == EACCES);
    mr_check(access(mr_test_path("new"), F_OK) != 0);
    struct stat is;
    const char *elsewhere[] = {out, mr_test_path("none"), "/none/none", "/"};
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++)
        mr_check(mr__sys->stat(elsewhere[i], &is) != 0 && errno == EACCES);
    mr_check(mr__sys->stat(mr_test_path("in/none/none"), &is) != 0 && errno == ENOENT);
    mr_check(mr__sys->stat(link, &is) != 0 && errno == EACCES);
    mr_check(mr__sys->lstat(link, &is) == 0 && S_ISLNK(is.st_mode));
    mr_check(mr__sys->rename_exchange(in, out) != 0 && errno == EACCES);
    mr_check(mr__sys->rmdir(mr_test_path(".")) != 0 && errno == EACCES);
    snprintf(to, sizeof to, "%s/fifo", in_dir);
    mr_check(mkfifo(to, 0666) == 0);
    mr_code_is(read_line(to, &st), MR_PERMISSION_DENIED, &st);
    mr__file_roots_explain(&st);
    mr_has_str(st.message, "neither a file nor a directory");
    mr_check(mr__memory_resident() > 0); /* the process's own files are open to it */
    const char *const urls[] = {"https://host/data", "s3://bucket/a/"};
    mr_ok(mr__file_roots_set(urls, 2, &table, &st), &st); /* and no local file */
    mr_code_is(read_line(in, &st), MR_PERMISSION_DENIED, &st);
    mr__name_scope_set((mr__name_scope){.of_service = true});
    const char *const refused[] = {"http://host/data/a",       "https://host/database",
                                   "https://host/data/../a",   "https://host@other/data",
                                   "https://host/data/%2E%2e", "s3://bucket/b",
                                   "s3://bucket-a/a/b",        "s3://bucket/a",
                                   "http://169.254.169.254/a"};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        mr_test_context("%s", refused[i]);
        mr_code_is(mr__url_roots_check(refused[i], &st), MR_PERMISSION_DENIED, &st);
    }
    mr_ok(mr__url_roots_check("https://host/data", &st), &st);
    mr_ok(mr__url_roots_check("https://host/data/a", &st), &st);
    mr_ok(mr__url_roots_check("s3://bucket/a/b", &st), &st);
    mr__name_scope_set((mr__name_scope){.directory = NULL});
    mr_ok(mr__url_roots_check("http://other/b", &st), &st);
    const char *const open_roots[] = {"http://10.0.0.5:80/data/", "http://localhost/",
                                      "https://[fd00::5]/", "s3://10.0.0.6/"};
    mr_ok(mr__url_roots_set(open_roots, 4, &st), &st);
    const struct {
        const char *address;
        bool allowed;
    } addresses[] = {{"8.8.8.8", true},
                     {"10.0.0.5", true},
                     {"127.0.0.1", true},
                     {"::1", true},
                     {"fd00::5", true},
                     {"2606:4700::1111", true},
                     {"10.0.0.6", false},
                     {"172.31.0.1", false},
                     {"172.32.0.1", true},
                     {"192.168.1.1", false},
                     {"169.254.169.254", false},
                     {"100.64.0.1", false},
                     {"0.0.0.0", false},
                     {"224.0.0.1", false},
                     {"fd00::6", false},
                     {"fe80::1", false},
                     {"::", false},
                     {"::ffff:10.0.0.6", false},
                     {"::ffff:8.8.8.8", true},
                     {"64:ff9b::a9fe:a9fe", false},
                     {"2002:a00:6::1", false},
                     {"ff02::1", false}};
    for (size_t i = 0; i < sizeof addresses / sizeof *addresses; i++) {
        struct sockaddr_in v4 = {.sin_family = AF_INET};
        struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
        mr_test_context("%s", addresses[i].address);
        bool is_4 = inet_pton(AF_INET, addresses[i].address, &v4.sin_addr) == 1;
        mr_check(is_4 || inet_pton(AF_INET6, addresses[i].address, &v6.sin6_addr) == 1);
        mr_check(
            mr__url_roots_allow_address(is_4 ? (struct sockaddr *)&v4 : (struct sockaddr *)&v6) ==
            addresses[i].allowed);
    }
    mr_code_is(mr__file_roots_set(&(const char *){"s3://"}, 1, &table, &st), MR_INVALID_ARGUMENT,
               &st);
    mr_ok(mr__file_roots_set(&(const char *){in_dir}, 1, &table, &st), &st);
    mr_code_is(read_line(mr_test_path("in/missing"), &st), MR_NOT_FOUND, &st);
    struct stat s;
    char new[600];
    snprintf(new, sizeof new, "%s-new", in_dir);
    mr_check(!mr__sys->opendir("/") && errno == EACCES);
    DIR *dir = mr__sys->opendir(in_dir);
    mr_check(dir && closedir(dir) == 0);
    mr_check(mr__sys->stat(out, &s) != 0 && mr__sys->stat(in, &s) == 0);
    mr_check(mr__sys->rename(in, new) != 0 && mr__sys->rename(out, in) != 0);
    mr_check(mr__sys->mkdir(new, 0777) != 0);
    mr_check(mr__sys->unlink(out) != 0 && errno == EACCES && mr__sys->unlink(in) == 0);
}

MR_TEST(what_is_skipped_of_a_stream_counts_its_errors)
{
    static const char text[] = "range(6).map(x => 6 // (x - 2))";
    mr_status st;
    mr_dataset *ds = NULL;
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    mr_ok(mr_dataset_from_text(text, strlen(text), NULL, &ds, &st), &st);
    mr_ok(mr_iterator_open(&it, ds, NULL, &st), &st);
    mr_ok(mr__stream_skip(it, 4, &st), &st);
    mr_ok(mr_iterator_next(it, 1, &b, &st), &st);
    mr_eq_i64(*(const int64_t *)mr_array_at(&b.columns[0], 0), 3);
    mr_block_reset(&b);
    mr_code_is(mr__stream_skip(it, 9, &st), MR_INVALID_ARGUMENT, &st);
    mr_iterator_close(it);
    /* A repetition after 3 elements: 1 rewind, after as many. */
    void *position;
    size_t size;
    uint32_t again;
    uint64_t skipped;
    mr_ok(mr__stream_position_again(NULL, 0, 3, &position, &size, &st), &st);
    mr_eq_u64(size, MR__STREAM_POSITION_BYTES);
    memcpy(&again, position, sizeof again);
    memcpy(&skipped, (const char *)position + sizeof again, sizeof skipped);
    mr_eq_u64(again, 1);
    mr_eq_u64(skipped, 3);
    mr_free(position);
    mr_dataset_unref(ds);
}

/* ---- the token's file ---- */

MR_TEST(a_token_is_what_its_file_holds)
{
    mr_status st;
    mr__token t;
    char path[512], *large = mr_malloc(MR__MOST_TOKEN + 2);
    snprintf(path, sizeof path, "%s", mr_test_path("token"));
    mr_ok(mr__token_read(NULL, &t, &st), &st);
    mr_check(!t.data);
    put(path, "secret \n\n");
    mr_ok(mr__token_read(path, &t, &st), &st);
    mr_eq_u64(t.bytes, 6);
    mr_eq_mem(t.data, "secret", 6);
    mr__token_free(&t);
    setenv("MILLRACE_TOKEN_FILE", path, 1);
    mr_ok(mr__token_read(NULL, &t, &st), &st);
    mr_eq_u64(t.bytes, 6);
    mr__token_free(&t);
    put(path, " \n");
    mr_code_is(mr__token_read(path, &t, &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, path);
    memset(large, 'x', MR__MOST_TOKEN + 1);
    large[MR__MOST_TOKEN + 1] = '\0';
    put(path, large);
    mr_code_is(mr__token_read(path, &t, &st), MR_INVALID_ARGUMENT, &st);
    mr_code_is(mr__token_read(mr_test_path("none"), &t, &st), MR_NOT_FOUND, &st);
    mr_fault_each_allocation(n)
    {
        put(path, "secret");
        if (mr_fault_expect(mr__token_read(path, &t, &st), &st) == MR_OK)
            mr__token_free(&t);
    }
    mr_free(large);
}

MR_TEST(a_token_file_may_have_names)
{
    mr_status st;
    mr__token t;
    char path[512];
    snprintf(path, sizeof path, "%s", mr_test_path("names"));
    put(path, "# names\r\n\n# ours\nworker  one two \r\nalice\tthree\nalice four");
    mr_ok(mr__token_read_names(path, &t, &st), &st);
    mr_eq_u64(t.n_names, 3);
    mr_eq_str(t.names[0].name, "worker");
    mr_eq_u64(t.names[0].bytes, 7);
    mr_eq_mem(t.names[0].data, "one two", 7);
    mr_eq_str(t.names[1].name, "alice");
    mr_eq_mem(t.names[2].data, "four", 4);
    mr_eq_u64(t.bytes, 7); /* of who connects: the first */
    mr_eq_mem(t.data, "one two", 7);
    mr__token_free(&t);
    mr_code_is(mr__token_read(path, &t, &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "single token");
    put(path, "# namesake\n"); /* a token like any other */
    mr_ok(mr__token_read_names(path, &t, &st), &st);
    mr_check(!t.names);
    mr_eq_u64(t.bytes, 10);
    mr__token_free(&t);
    static const char *const wrong[][2] = {{"# names\n", "no line"},
                                           {"# names", "no line"},
                                           {"# names\nalice\n", "line 2 is not NAME TOKEN"},
                                           {"# names\nalice  \n", "line 2 is not NAME TOKEN"},
                                           {"# names\na one\nb one\n", "line 3 has the token of a"},
                                           {"# names\n\x1b[1m one\n", "line 2 is not"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        put(path, wrong[i][0]);
        mr_code_is(mr__token_read_names(path, &t, &st), MR_INVALID_ARGUMENT, &st);
        mr_has_str(st.message, wrong[i][1]);
        mr_has_str(st.message, path);
    }
    char *many = mr_malloc(MR__MOST_TOKENS * 16);
    size_t at = (size_t)sprintf(many, "# names\n");
    for (int i = 0; i <= MR__MOST_TOKENS; i++) {
        if (i == MR__MOST_TOKENS) {
            put(path, many);
            mr_ok(mr__token_read_names(path, &t, &st), &st);
            mr_eq_u64(t.n_names, MR__MOST_TOKENS);
            mr__token_free(&t);
        }
        at += (size_t)sprintf(many + at, "a t%d\n", i);
    }
    put(path, many);
    mr_code_is(mr__token_read_names(path, &t, &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "more than 1024 tokens");
    mr_free(many);
    mr_fault_each_allocation(n)
    {
        put(path, "# names\na one\nb two\n");
        if (mr_fault_expect(mr__token_read_names(path, &t, &st), &st) == MR_OK)
            mr__token_free(&t);
    }
}

/* ---- compression by the link ---- */

typedef struct made_blocks {
    mr__producer *p;
    double link;
    size_t n, packed, lent;
    bool gone;
} made_blocks;

static void block_made(void *ctx, uint64_t number, const mr__made *made)
{
    made_blocks *b = ctx;
    mr__produced *block = made->block;
    mr_eq_u64(number, 7);
    b->n++;
    b->packed += block->frame.packed != NULL;
    b->lent += block->frame.lends;
    mr__producer_drop(block);
    mr__producer_go(b->p, b->link);
}

static void stream_failed(void *ctx, uint64_t number, uint64_t first, const mr_status *why,
                          const void *position, size_t position_bytes, bool fatal)
{
    (void)ctx;
    (void)number;
    (void)first;
    (void)position;
    (void)position_bytes;
    mr_fail_test("%s (fatal %d)", why->message, fatal);
}

static void stream_ended(void *ctx, uint64_t number, uint64_t elements, const void *position,
                         size_t position_bytes)
{
    made_blocks *b = ctx;
    (void)number;
    mr_eq_u64(elements, 400);
    mr_check(position && position_bytes > MR__STREAM_POSITION_BYTES);
    mr__producer_stop(b->p);
}

static void stream_gone(void *ctx, uint64_t number)
{
    (void)number;
    ((made_blocks *)ctx)->gone = true;
}

/* ---- what is made ahead ---- */

enum { LARGE = 1 << 20, LARGE_BLOCKS = 40, AHEAD = 4 * LARGE };

typedef struct ahead_blocks {
    mr__producer *p;
    mr__lender *lender;
    uint64_t next;
    bool waits, errors_too, gone;
} ahead_blocks;

static void ahead_made(void *ctx, uint64_t number, const mr__made *made)
{
    ahead_blocks *b = ctx;
    (void)number;
    mr_eq_u64(made->first, b->next); /* in their order, none twice */
    mr_eq_u64(made->rows, 1);
    mr_check(made->bytes >= LARGE);
    b->next++;
    mr_check(mr__lender_held(b->lender) <= AHEAD);
    mr__producer_drop(made->block);
    b->waits = true;
}

static void ahead_failed(void *ctx, uint64_t number, uint64_t first, const mr_status *why,
                         const void *position, size_t position_bytes, bool fatal)
{
    ahead_blocks *b = ctx;
    (void)number;
    mr_check(!fatal && position && position_bytes && b->errors_too);
    mr_eq_u64(first, b->next);
    mr_has_str(why->message, "at worker w");
    b->next++;
    b->waits = true;
}

static void ahead_ended(void *ctx, uint64_t number, uint64_t elements, const void *position,
                        size_t position_bytes)
{
    ahead_blocks *b = ctx;
    (void)number;
    (void)position;
    (void)position_bytes;
    mr_eq_u64(elements, LARGE_BLOCKS);
    mr_eq_u64(b->next, LARGE_BLOCKS);
    mr__producer_stop(b->p);
}

static void ahead_gone(void *ctx, uint64_t number)
{
    (void)number;
    ((ahead_blocks *)ctx)->gone = true;
}

/* Reads `most` of them, then stops it. */
static void read_ahead(mr__loop *l, mr_executor *executor, const char *graph, uint64_t most)
{
    static const mr__producer_out out = {
        .made = ahead_made, .failed = ahead_failed, .ended = ahead_ended, .gone = ahead_gone};
    static const struct timespec moment = {.tv_nsec = 1000000};
    ahead_blocks b = {.errors_too = strstr(graph, "//") != NULL};
    mr_status st;
    mr_dataset *ds = NULL;
    Mr__Wire__Job *job, *final;
    Mr__Wire__Place place = MR__WIRE__PLACE__INIT;
    Mr__Wire__Host host = MR__WIRE__HOST__INIT;
    Mr__Wire__Open open = MR__WIRE__OPEN__INIT;
    int fd;
    mr_ok(mr_dataset_from_text(graph, strlen(graph), NULL, &ds, &st), &st);
    const mr__job_opts jo = {.streams = 1, .block_length = 1, .match = "worker"};
    mr_ok(mr__job_new(ds, &jo, &job, &st), &st);
    mr_ok(mr__job_finish(job, NULL, 0, &final, &st), &st);
    mr_ok(mr__lender_new(&b.lender, (size_t)64 << 20, &fd, &st), &st);
    close(fd);
    host.job = final;
    host.place = &place;
    const mr__producer_opts po = {
        .loop = l, .executor = executor, .worker = "w", .lender = b.lender, .out = &out, .ctx = &b};
    mr_ok(mr__producer_start(&b.p, 7, &host, &open, &po, &st), &st);
    while (!b.gone) {
        mr_ok(mr__loop_turn(l, INT64_MAX, &st), &st);
        if (!b.waits)
            continue;
        b.waits = false;
        /* Nothing was asked for: it makes blocks all the same, up to its bound. */
        while (b.next == 1 && mr__lender_held(b.lender) < AHEAD / 2)
            nanosleep(&moment, NULL);
        mr_check(mr__lender_held(b.lender) <= AHEAD);
        if (b.next == most)
            mr__producer_stop(b.p);
        else
            mr__producer_go(b.p, 0);
    }
    mr_eq_u64(b.next, most < LARGE_BLOCKS ? most : LARGE_BLOCKS);
    mr_eq_u64(mr__lender_held(b.lender), 0); /* also of those that were not requested */
    mr__lender_unref(b.lender);
    mr__wire_free(job);
    mr__wire_free(final);
    mr_dataset_unref(ds);
}

MR_TEST_SLOW(a_stream_is_made_ahead_within_bounds_and_given_in_order)
{
    static const char large[] = "range(40).map(x => zeros([1048576], \"uint8\"))",
                      broken[] = "range(40).map(x => (zeros([1048576], \"uint8\"), 6 // (x - 9)))";
    mr_status st;
    mr__loop *l;
    mr_executor *executor;
    mr_ok(mr__loop_open(MR__LOOP_AUTO, &l, &st), &st);
    mr_ok(mr_executor_new(0, &executor, &st), &st);
    read_ahead(l, executor, large, UINT64_MAX);
    read_ahead(l, executor, broken, UINT64_MAX);
    for (uint64_t most = 1; most < 8; most++)
        read_ahead(l, executor, large, most);
    mr_executor_free(executor);
    mr__loop_close(l);
}

/* Records of a stream that are named where they landed, and all of them. */
typedef struct landed {
    mr__producer *p;
    uint64_t named, all;
    bool waits, gone;
} landed;

static void landed_made(void *ctx, uint64_t number, const mr__made *made)
{
    landed *x = ctx;
    mr__produced *block = made->block;
    const uint8_t *front = block->frame.v[0].iov_base;
    Mr__Wire__BlockHead *head;
    mr__frame f;
    mr_status st;
    (void)number;
    mr_ok(mr__frame_get(front, MR__FRAME_MOST_HEAD, &f, &st), &st);
    mr_ok(mr__wire_unpack(&mr__wire__block_head__descriptor, front + MR__FRAME_BYTES, f.head_bytes,
                          &head, &st),
          &st);
    x->all += made->rows;
    x->named += head->columns[0]->form == MR__WIRE__FORM__PLACES ? made->rows : 0;
    mr_eq_u64(block->frame.raw, made->bytes); /* what counts against the credit */
    mr_check(made->bytes >= 1000 * made->rows);
    mr__wire_free(head);
    mr__producer_drop(block);
    x->waits = true;
}

static void landed_ended(void *ctx, uint64_t number, uint64_t elements, const void *position,
                         size_t position_bytes)
{
    landed *x = ctx;
    (void)number;
    (void)position;
    (void)position_bytes;
    mr_eq_u64(elements, x->all);
    mr__producer_stop(x->p);
}

static void landed_gone(void *ctx, uint64_t number)
{
    (void)number;
    ((landed *)ctx)->gone = true;
}

/* A client of this host gets the records of a file where they were read to. */
MR_TEST(records_of_a_file_are_not_copied_for_a_client_that_shares_memory)
{
    enum { LINES = 20000 };
    static const mr__producer_out out = {
        .made = landed_made, .failed = ahead_failed, .ended = landed_ended, .gone = landed_gone};
    const char *path = mr_test_path("lines");
    char graph[512];
    FILE *f = fopen(path, "w");
    mr_check(f != NULL);
    for (int i = 0; i < LINES; i++)
        fprintf(f, "%01000d\n", i);
    fclose(f);
    snprintf(graph, sizeof graph, "text_line(\"%s\").repeat(2)", path);
    landed x = {0};
    mr_status st;
    mr_dataset *ds = NULL;
    Mr__Wire__Job *job, *final;
    Mr__Wire__Place place = MR__WIRE__PLACE__INIT;
    Mr__Wire__Host host = MR__WIRE__HOST__INIT;
    Mr__Wire__Open open = MR__WIRE__OPEN__INIT;
    mr__lender *lender;
    mr__loop *l;
    mr_executor *executor;
    int fd;
    mr_ok(mr__loop_open(MR__LOOP_AUTO, &l, &st), &st);
    mr_ok(mr_executor_new(0, &executor, &st), &st);
    mr_ok(mr_dataset_from_text(graph, strlen(graph), NULL, &ds, &st), &st);
    const mr__job_opts jo = {.streams = 1, .block_length = 1, .match = "worker"};
    mr_ok(mr__job_new(ds, &jo, &job, &st), &st);
    mr_ok(mr__job_finish(job, NULL, 0, &final, &st), &st);
    mr_ok(mr__lender_new(&lender, (size_t)64 << 20, &fd, &st), &st);
    close(fd);
    host.job = final;
    host.place = &place;
    const mr__producer_opts po = {
        .loop = l, .executor = executor, .worker = "w", .lender = lender, .out = &out, .ctx = &x};
    mr_ok(mr__producer_start(&x.p, 7, &host, &open, &po, &st), &st);
    while (!x.gone) {
        mr_ok(mr__loop_turn(l, INT64_MAX, &st), &st);
        if (x.waits)
            mr__producer_go(x.p, 0);
        x.waits = false;
    }
    mr_eq_u64(x.all, 2 * LINES);
    mr_check(x.named > x.all / 10 * 9); /* all but the first small blocks */
    mr_eq_u64(mr__lender_held(lender), 0);
    mr__lender_unref(lender);
    mr__wire_free(job);
    mr__wire_free(final);
    mr_dataset_unref(ds);
    mr_executor_free(executor);
    mr__loop_close(l);
}

/* Maps of memory that this process lends: the borrower's are of the same file, and read-only. */
static size_t lent_maps(void)
{
    FILE *f = fopen("/proc/self/maps", "r");
    char line[512];
    size_t n = 0;
    mr_check(f != NULL);
    while (fgets(line, sizeof line, f))
        n += strstr(line, "/memfd:millrace") && strstr(line, " rw-s ");
    fclose(f);
    return n;
}

/* Blocks keep what landed, and what landed keeps the memory it is in: a worker would never be rid
 * of it where clients go away. */
MR_TEST(memory_is_free_when_a_client_goes_with_blocks_in_its_hands)
{
    enum { LINES = 4000, MOST = 100 };
    const char *path = mr_test_path("lines");
    FILE *f = fopen(path, "w");
    mr_check(f != NULL);
    for (int i = 0; i < LINES; i++)
        fprintf(f, "%01000d\n", i);
    fclose(f);
    cluster c;
    mr_status st;
    mr_ok(cluster_start(&c, MR__LOOP_AUTO, &st), &st);
    for (int round = 0; round < 2; round++) { /* it goes in the middle, and at the end */
        const mr_service_opts o = {.streams = 1,
                                   .transfer = (char *)(uintptr_t) "shared_memory",
                                   .max_outstanding_bytes = 1 << 20};
        mr_dataset *ds = mr_service_distribute(mr_text_line(&path, 1, NULL), c.address, &o);
        mr_iterator *it;
        mr_block held[MOST];
        size_t n = 0, rows = 0;
        mr_ok(mr_iterator_open(&it, ds, NULL, &st), &st);
        for (mr_code rc = MR_OK; rc == MR_OK && n < MOST && (round || rows < LINES / 2); n++) {
            held[n] = (mr_block)MR_BLOCK_EMPTY;
            rc = mr_iterator_next(it, SIZE_MAX, &held[n], &st);
            mr_check(rc == MR_OK || rc == MR_END);
            rows += rc == MR_OK ? held[n].rows : 0;
        }
        mr_eq_u64(rows == LINES, round);
        if (round == 0) /* at the end the client may be done with the worker */
            mr_eq_u64(lent_maps(), 1);
        mr_iterator_close(it);
        mr_dataset_unref(ds);
        mr_await(lent_maps() == 0);
        while (n)
            mr_block_reset(&held[--n]);
    }
    cluster_stop(&c);
}

MR_TEST(blocks_are_compressed_where_the_link_is_slower_than_that)
{
#ifdef __SANITIZE_THREAD__
    mr_skip_test("no link is slower than compression under ThreadSanitizer");
#endif
    static const mr__producer_out out = {
        .made = block_made, .failed = stream_failed, .ended = stream_ended, .gone = stream_gone};
    static const double links[] = {0, 1e3, 1e12}; /* the second one also on a busy machine */
    mr_status st;
    mr__loop *l;
    mr_executor *executor;
    Mr__Wire__Job *job, *final;
    mr_ok(mr__loop_open(MR__LOOP_EPOLL, &l, &st), &st);
    mr_ok(mr_executor_new(0, &executor, &st), &st);
    mr_dataset *ds = mr_batch(mr_range(0, 400 * 1000, 1), 1000, NULL);
    const mr__job_opts jo = {.streams = 1, .block_length = 1, .match = "worker"};
    mr_ok(mr__job_new(ds, &jo, &job, &st), &st);
    mr_ok(mr__job_finish(job, NULL, 0, &final, &st), &st);
    for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
        made_blocks b = {.link = links[i]};
        Mr__Wire__Place place = MR__WIRE__PLACE__INIT;
        Mr__Wire__Host host = MR__WIRE__HOST__INIT;
        Mr__Wire__Open open = MR__WIRE__OPEN__INIT;
        host.job = final;
        host.place = &place;
        open.compression = 1;
        open.measured = true;
        const mr__producer_opts po = {
            .loop = l, .executor = executor, .worker = "w", .out = &out, .ctx = &b};
        mr_ok(mr__producer_start(&b.p, 7, &host, &open, &po, &st), &st);
        while (!b.gone)
            mr_ok(mr__loop_turn(l, INT64_MAX, &st), &st);
        mr_check(b.n > 10);
        if (links[i] == 1e3)
            mr_eq_u64(b.packed, b.n - 1); /* nothing was known of the link for the first */
        else
            mr_check(b.packed <= 1); /* to measure it */
    }
    mr__wire_free(job);
    mr__wire_free(final);
    mr_dataset_unref(ds);
    mr_executor_free(executor);
    mr__loop_close(l);
}

/* A client could say that it has received blocks, and read those of other jobs in their pages. */
MR_TEST(pages_are_not_lent_for_jobs_with_a_key)
{
    static const mr__producer_out out = {
        .made = block_made, .failed = stream_failed, .ended = stream_ended, .gone = stream_gone};
    uint8_t key[MR__JOB_KEY_BYTES] = {1};
    mr_status st;
    mr__loop *l;
    mr_executor *executor;
    Mr__Wire__Job *job, *final;
    mr_ok(mr__loop_open(MR__LOOP_EPOLL, &l, &st), &st);
    mr_ok(mr_executor_new(0, &executor, &st), &st);
    mr_dataset *ds = mr_batch(mr_range(0, 400 * 20000, 1), 20000, NULL); /* of 160 KB */
    const mr__job_opts jo = {.streams = 1, .block_length = 1, .match = "worker"};
    mr_ok(mr__job_new(ds, &jo, &job, &st), &st);
    mr_ok(mr__job_finish(job, NULL, 0, &final, &st), &st);
    for (int has_key = 0; has_key < 2; has_key++) {
        made_blocks b = {0};
        Mr__Wire__Place place = MR__WIRE__PLACE__INIT;
        Mr__Wire__Host host = MR__WIRE__HOST__INIT;
        Mr__Wire__Open open = MR__WIRE__OPEN__INIT;
        Mr__Wire__Job of_name = *final;
        of_name.key = (ProtobufCBinaryData){has_key ? sizeof key : 0, key};
        host.job = &of_name;
        host.place = &place;
        const mr__producer_opts po = {
            .loop = l, .executor = executor, .worker = "w", .out = &out, .ctx = &b};
        mr_ok(mr__producer_start(&b.p, 7, &host, &open, &po, &st), &st);
        while (!b.gone)
            mr_ok(mr__loop_turn(l, INT64_MAX, &st), &st);
        mr_check(b.n > 10);
        mr_eq_u64(b.lent, has_key ? 0 : b.n);
    }
    mr__wire_free(job);
    mr__wire_free(final);
    mr_dataset_unref(ds);
    mr_executor_free(executor);
    mr__loop_close(l);
}
