/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/remote/cache_directory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pipeline/bytes.h"
#include "pipeline/crc32c.h"
#include "pipeline/remote/cache_fetch.h"
#include "pipeline/remote/cache_list.h"
#include "pipeline/remote/object_cache.h"
#include "pipeline/remote/object_stream.h"
#include "pipeline/system/name_scope.h"
#include "pipeline/system/system.h"
#include "tests/fault.h"
#include "tests/harness.h"

MR_ONE_THREAD;

static mr__cache *open_cache(const char *name, int64_t limit)
{
    mr__cache *c = NULL;
    mr_status st;
    mr_ok(mr__cache_open(&c, mr_test_path(name), limit, true, &st), &st);
    return c;
}

static bool is_there(const mr__cache *c, const char *name, bool part)
{
    char path[PATH_MAX];
    mr__cache_path(c, name, part, path);
    return access(path, F_OK) == 0;
}

static int64_t counted(mr__cache *c)
{
    char text[256] = "";
    long long limit = 0, bytes = -1;
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/millrace-cache", c->directory);
    FILE *f = fopen(path, "r");
    mr_check(f && fread(text, 1, sizeof text - 1, f) > 0 && fclose(f) == 0);
    mr_eq_i64(sscanf(text, "millrace cache 1\nlimit %lld\nbytes %lld\n", &limit, &bytes), 2);
    return bytes;
}

/* ---- claims ---- */

MR_TEST(one_writer_has_the_claim)
{
    mr__cache *a = open_cache("c", 1 << 20), *b = open_cache("c", 0);
    mr__claim mine, other;
    mr_eq_i64(mr__claim_take(a, "x.piece", 5000, false, &mine), MR__CLAIM_MINE);
    mr_eq_i64(mr__claim_take(b, "x.piece", 5000, false, &other), MR__CLAIM_BUSY);
    mr_eq_i64(counted(a), 8192);
    mr_check(write(mine.fd, "abc", 3) == 3 && mr__claim_commit(a, &mine));
    mr_eq_i64(mr__claim_take(b, "x.piece", 5000, false, &other), MR__CLAIM_DONE);
    mr_eq_i64(mr__claim_take(b, "x.piece", 100, true, &other), MR__CLAIM_MINE);
    mr__claim_drop(b, &other);
    mr_eq_i64(counted(a), 8192);
    mr_check(is_there(a, "x.piece", false) && !is_there(a, "x.piece", true));
    mr_eq_i64(mr__claim_take(b, "x.piece", 100, true, &other), MR__CLAIM_MINE);
    mr_check(mr__claim_commit(b, &other));
    mr_eq_i64(counted(a), 4096);
    mr__cache_close(a);
    mr__cache_close(b);
}

MR_TEST(a_claim_without_progress_is_taken_over)
{
    mr__cache *a = open_cache("c", 1 << 20), *b = open_cache("c", 0);
    mr__claim mine, seen, other;
    const struct timespec times[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
    char path[PATH_MAX], text[3];
    mr_eq_i64(mr__claim_take(a, "x.piece", 3, false, &mine), MR__CLAIM_MINE);
    mr_eq_i64(mr__claim_take(b, "x.piece", 3, false, &seen), MR__CLAIM_BUSY);
    mr_check(futimens(mine.fd, times) == 0); /* as a write does: another time */
    mr__claim_break(b, &seen);
    mr_eq_i64(mr__claim_take(b, "x.piece", 3, false, &seen), MR__CLAIM_BUSY);
    mr__claim_break(b, &seen);
    mr_eq_i64(mr__claim_take(b, "x.piece", 3, false, &other), MR__CLAIM_MINE);
    mr_check(write(mine.fd, "old", 3) == 3);
    mr_check(!mr__claim_commit(a, &mine));
    mr_check(!is_there(a, "x.piece", false) && is_there(a, "x.piece", true));
    mr_check(write(other.fd, "new", 3) == 3 && mr__claim_commit(b, &other));
    mr__cache_path(a, "x.piece", false, path);
    FILE *f = fopen(path, "r");
    mr_check(f && fread(text, 1, 3, f) == 3 && fclose(f) == 0 && memcmp(text, "new", 3) == 0);
    mr__cache_close(a);
    mr__cache_close(b);
}

MR_TEST(what_a_dead_writer_left_is_removed)
{
    mr__cache *c = open_cache("c", 40960);
    mr__claim claim;
    mr_status st;
    int64_t bytes;
    for (int i = 0; i < 2; i++) {
        pid_t child = fork();
        if (child == 0) {
            mr__claim_state s = mr__claim_take(c, i ? "y.piece" : "x.piece", 20480, false, &claim);
            _exit(s == MR__CLAIM_MINE ? 0 : 1);
        }
        int status;
        mr_check(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    }
    mr_check(is_there(c, "x.piece", true) && is_there(c, "y.piece", true));
    mr_eq_i64(counted(c), 40960);
    mr_eq_i64(mr__claim_take(c, "x.piece", 20480, false, &claim), MR__CLAIM_MINE);
    mr_check(!is_there(c, "y.piece", true)); /* there was no room without it */
    mr_check(mr__claim_commit(c, &claim));
    mr_ok(mr__cache_shrink(c, INT64_MAX, &bytes, &st), &st);
    mr_eq_i64(bytes, 20480);
    mr__cache_close(c);
}

static void put(mr__cache *c, const char *name, int64_t bytes, time_t used)
{
    mr__claim claim;
    const struct timespec times[2] = {{.tv_sec = used}, {.tv_nsec = UTIME_OMIT}};
    mr_eq_i64(mr__claim_take(c, name, bytes, false, &claim), MR__CLAIM_MINE);
    mr_check(futimens(claim.fd, times) == 0 && mr__claim_commit(c, &claim));
}

MR_TEST(the_least_recently_used_make_room)
{
    mr__cache *c = open_cache("c", 32768);
    mr__claim claim;
    put(c, "a.piece", 8192, 30);
    put(c, "b.piece", 8192, 10);
    put(c, "c.list", 8192, 20);
    put(c, "d.piece", 8192, 40);
    put(c, "e.piece", 4096, 50); /* and a sixteenth of the limit goes */
    mr_check(is_there(c, "a.piece", false) && !is_there(c, "b.piece", false));
    mr_check(is_there(c, "c.list", false) && is_there(c, "d.piece", false));
    mr_eq_i64(counted(c), 28672);
    /* One that is being written is not removed, so that there may be no room. */
    mr_eq_i64(mr__claim_take(c, "f.piece", 20480, false, &claim), MR__CLAIM_MINE);
    mr__claim more;
    mr_eq_i64(mr__claim_take(c, "g.piece", 16384, false, &more), MR__CLAIM_NONE);
    mr_check(!atomic_load(&c->closed));
    mr_eq_i64(mr__claim_take(c, "g.piece", 32769, false, &more), MR__CLAIM_NONE);
    mr_check(is_there(c, "f.piece", true) && !is_there(c, "g.piece", true));
    mr__claim_drop(c, &claim);
    mr__cache_close(c);
}

/* ---- directories ---- */

static unsigned long file_system;

static int other_statfs(const char *path, struct statfs *out)
{
    int rc = statfs(path, out);
    out->f_type = (__typeof__(out->f_type))file_system;
    return rc;
}

MR_TEST(network_file_systems_are_refused)
{
    static const struct {
        unsigned long type;
        const char *name;
    } all[] = {{0x6969, "NFS"}, {0xFF534D42, "CIFS"}, {0x0BD00BD0, "Lustre"}, {0x65735546, "FUSE"}};
    mr__system table = *mr__system_real();
    mr__cache *c = NULL;
    mr_status st;
    table.statfs = other_statfs;
    mr__system_set(&table);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        file_system = all[i].type;
        mr_code_is(mr__cache_open(&c, mr_test_path("c"), 0, true, &st), MR_FAILED_PRECONDITION,
                   &st);
        mr_has_str(st.message, all[i].name);
        mr_check(mr_status_is_of_no_element(&st));
    }
    file_system = 0xEF53;
    mr_ok(mr__cache_open(&c, mr_test_path("c"), 0, true, &st), &st);
    mr__cache_close(c);
    mr__system_set(NULL);
}

static int failing;

static int other_ftruncate(int fd, off_t size)
{
    errno = failing;
    return failing ? -1 : ftruncate(fd, size);
}

MR_TEST(a_full_disk_ends_writing)
{
    static const int errors[] = {ENOSPC, EDQUOT, EROFS, EACCES};
    mr__system table = *mr__system_real();
    table.ftruncate = other_ftruncate;
    mr__system_set(&table);
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        mr__cache *c = open_cache("c", 1 << 20);
        mr__claim claim;
        put(c, i ? "b.piece" : "a.piece", 100, 1);
        failing = errors[i];
        mr_eq_i64(mr__claim_take(c, "x.piece", 100, false, &claim), MR__CLAIM_NONE);
        mr_check(atomic_load(&c->closed) && !is_there(c, "x.piece", true));
        failing = 0;
        mr_eq_i64(mr__claim_take(c, "x.piece", 100, false, &claim), MR__CLAIM_NONE);
        mr_eq_i64(mr__claim_take(c, "a.piece", 100, false, &claim), MR__CLAIM_DONE);
        mr__cache_remove(c, "b.piece", &(struct stat){0}); /* not that file */
        char path[PATH_MAX];
        struct stat is;
        mr__cache_path(c, "b.piece", false, path);
        if (i && stat(path, &is) == 0)
            mr__cache_remove(c, "b.piece", &is);
        mr_check(!is_there(c, "b.piece", false));
        mr__cache_close(c);
    }
    mr__system_set(NULL);
}

MR_TEST(a_service_uses_the_cache_of_its_process)
{
    mr__cache *c = NULL;
    mr_status st;
    const mr__name_scope graph = {.cache = mr_test_path("g")};
    mr__name_scope service = graph;
    service.of_service = true;
    unsetenv("MILLRACE_CACHE_DIR");
    mr_ok(mr__cache_current(&c, &st), &st);
    mr_check(!c);
    mr__name_scope_set(service);
    mr_ok(mr__cache_current(&c, &st), &st);
    mr_check(!c);
    setenv("MILLRACE_CACHE_DIR", mr_test_path("p"), 1);
    mr_ok(mr__cache_current(&c, &st), &st);
    mr_eq_str(c->directory, mr_test_path("p"));
    mr__name_scope_set(graph);
    mr_ok(mr__cache_current(&c, &st), &st);
    mr_eq_str(c->directory, mr_test_path("g"));
    mr__name_scope_set((mr__name_scope){0});
    unsetenv("MILLRACE_CACHE_DIR");
}

/* ---- names ---- */

static const char *name_of(const char *url, const char *etag, int64_t size, int64_t number)
{
    static char names[64][MR__CACHE_NAME];
    static unsigned n;
    mr__cache_key k;
    mr_status st;
    mr_ok(mr__cache_key_make(&k, url, etag, size, &st), &st);
    mr_check(!strstr(k.url, "SECRET"));
    char *out = names[n++ % 64];
    mr__cache_name(&k, number, "piece", out);
    mr_free(k.text);
    return out;
}

MR_TEST(names_of_pieces)
{
    static const char url[] = "https://host/a";
    const char *name = name_of(url, "\"1\"", 10, 0);
    static const char *const same[] = {"https://host/a?X-Amz-Signature=SECRET&X-Amz-Date=2",
                                       "https://host/a?Expires=5&Signature=SECRET",
                                       "https://host/a?se=2026&sv=1&sp=r&sig=SECRET",
                                       "https://host/a#part"};
    static const char *const others[] = {
        "https://host/a?id=1", "https://host/a?id=1&sig=SECRET2", "https://host/a?key=SECRET",
        "https://host/b",      "https://user:SECRET@host/a",      "s3://host/a"};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        mr_eq_str(name_of(same[i], "\"1\"", 10, 0), name);
    mr_eq_str(name_of("https://host/a?id=1&sig=SECRET", "", 1, 0),
              name_of("https://host/a?sig=SECRET&id=1&sv=3", "", 1, 0));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        mr_check(strcmp(name_of(others[i], "\"1\"", 10, 0), name) != 0);
        for (size_t k = 0; k < i; k++)
            mr_check(strcmp(name_of(others[i], "\"1\"", 10, 0),
                            name_of(others[k], "\"1\"", 10, 0)) != 0);
    }
    mr_check(strcmp(name_of(url, "\"2\"", 10, 0), name) != 0);
    mr_check(strcmp(name_of(url, "\"1\"", 11, 0), name) != 0);
    mr_check(strcmp(name_of(url, "\"1\"", 10, 1), name) != 0);
    const char *ours = name_of("s3://bucket/a", "\"1\"", 10, 0);
    setenv("AWS_ENDPOINT_URL", "http://other:9000", 1);
    mr_check(strcmp(name_of("s3://bucket/a", "\"1\"", 10, 0), ours) != 0);
    unsetenv("AWS_ENDPOINT_URL");
}

/* ---- everything fails once ---- */

enum { BYTES = 40000 };

/* Writes a piece and a list, and reads them as graphs do offline. */
static void use_cache(const char *directory)
{
    static uint8_t data[BYTES], sums[4 * ((BYTES + MR__PIECE_BLOCK - 1) / MR__PIECE_BLOCK)];
    static const char url[] = "https://host/object";
    mr__cache *c = NULL;
    mr__cache_key k = {0};
    mr__list_note note = {0};
    mr__claim claim;
    mr_object_cache shown = {0};
    mr_status st;
    memset(data, 7, sizeof data);
    for (size_t at = 0, i = 0; at < BYTES; at += MR__PIECE_BLOCK, i++)
        mr__store_le(
            sums + 4 * i,
            mr_crc32c(data + at, BYTES - at < MR__PIECE_BLOCK ? BYTES - at : MR__PIECE_BLOCK), 4);
    mr_code rc = mr_fault_expect(mr__cache_open(&c, directory, 1 << 20, true, &st), &st);
    if (rc == MR_OK)
        rc = mr_fault_expect(mr__cache_key_make(&k, url, "\"1\"", BYTES, &st), &st);
    if (rc == MR_OK) {
        char name[MR__CACHE_NAME];
        uint8_t head[8192];
        mr__cache_name(&k, 0, "piece", name);
        uint32_t n = mr__piece_head(&k, BYTES);
        mr__piece_make_head(&k, 0, BYTES, sums, head);
        mr__claim_state s = mr__claim_take(c, name, (int64_t)n + BYTES, true, &claim);
        if (s == MR__CLAIM_MINE) {
            if (mr__sys->write(claim.fd, head, n) == (ssize_t)n &&
                mr__sys->write(claim.fd, data, BYTES) == BYTES)
                (void)mr__claim_commit(c, &claim);
            else
                mr__claim_drop(c, &claim);
        } else
            mr_check(mr_fault_seen());
        mr__object_info info = {.size = BYTES, .etag = "\"1\"", .ranges = true};
        mr__list_note_add(&note, url, &info);
        mr__list_note_end(&note, c, url);
        rc = mr_fault_expect(mr_object_cache_read(&shown, directory, &st), &st);
        if (rc == MR_OK && !mr_fault_seen()) {
            mr_eq_i64(shown.n_objects, 1);
            mr_eq_i64(shown.objects[0].cached_bytes, BYTES);
        }
        if (rc == MR_OK)
            mr_object_cache_reset(&shown);
    }
    mr_free(k.text);
    mr__cache_close(c);

    mr__object_stream *s = NULL;
    size_t all = 0;
    rc = mr_fault_expect(mr__object_stream_open(&s, url, 0, true, NULL, &st), &st);
    while (rc == MR_OK) {
        mr_buffer *slot = NULL;
        uint8_t *at;
        size_t got;
        rc = mr_fault_expect(mr__object_stream_next(s, &slot, &at, &got, &st), &st);
        if (rc != MR_OK)
            break;
        mr_eq_mem(at, data, got);
        all += got;
        mr_buffer_unref(slot);
    }
    if (rc == MR_END)
        mr_eq_i64(all, BYTES);
    mr__object_stream_close(s);
}

MR_TEST(everything_fails_once)
{
    static const int errors[] = {EIO, ENOSPC, EINTR};
    setenv("MILLRACE_OFFLINE", "1", 1);
    setenv("MILLRACE_CACHE_DIR", mr_test_path("c"), 1);
    const char *directory = getenv("MILLRACE_CACHE_DIR");
    mr_fault_each_allocation(n) use_cache(directory);
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        mr_fault_each(n, MR_FAULT_SYSTEM_CALL, errors[i], false) use_cache(directory);
        if (errors[i] != EINTR)
            mr_fault_each(n, MR_FAULT_SYSTEM_CALL, errors[i], true) use_cache(directory);
    }
}
