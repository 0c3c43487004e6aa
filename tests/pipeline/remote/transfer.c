/* SPDX-License-Identifier: Apache-2.0 */
/* Transfers whose memory runs out, from a server in a thread. What else fails: tests/remote. */
#include <arpa/inet.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "pipeline/engine/iterator.h"
#include "pipeline/ops/sources.h"
#include "pipeline/remote/object_ahead.h"
#include "pipeline/remote/object_list.h"
#include "pipeline/remote/object_ranges.h"
#include "pipeline/remote/object_stream.h"
#include "tests/fault.h"
#include "tests/harness.h"

enum { SIZE = 3 << 20 };

static uint8_t byte_at(int64_t i)
{
    return (uint8_t)(i * 2654435761 >> 13);
}

/* ---- a server: ranges of /a and pages of a bucket ---- */

static const char listing[] =
    "<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>x-1</Key><Size>5</Size>"
    "<ETag>&quot;1&quot;</ETag></Contents><Contents><Key>x-2</Key><Size>6</Size>"
    "<ETag>&quot;2&quot;</ETag></Contents></ListBucketResult>";

static bool send_all(int fd, const void *data, size_t n)
{
    for (const char *p = data; n;) {
        ssize_t sent = send(fd, p, n, MSG_NOSIGNAL);
        if (sent <= 0)
            return false;
        p += sent;
        n -= (size_t)sent;
    }
    return true;
}

static bool send_range(int fd, int64_t from, int64_t to)
{
    char head[200];
    to = to < SIZE ? to : SIZE;
    size_t n = (size_t)(to - from);
    uint8_t *data = malloc(n);
    int k = snprintf(head, sizeof head,
                     "HTTP/1.1 206 Partial Content\r\nETag: \"1\"\r\nContent-Length: %zu\r\n"
                     "Content-Range: bytes %" PRId64 "-%" PRId64 "/%d\r\n\r\n",
                     n, from, to - 1, SIZE);
    for (size_t i = 0; i < n; i++)
        data[i] = byte_at(from + (int64_t)i);
    bool good = send_all(fd, head, (size_t)k) && send_all(fd, data, n);
    free(data);
    return good;
}

static bool send_listing(int fd)
{
    char head[100];
    int k = snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n",
                     sizeof listing - 1);
    return send_all(fd, head, (size_t)k) && send_all(fd, listing, sizeof listing - 1);
}

static void *serve_connection(void *ctx)
{
    int fd = (int)(intptr_t)ctx;
    char text[8192] = "";
    size_t n = 0;
    bool good = true;
    while (good) {
        ssize_t got = recv(fd, text + n, sizeof text - 1 - n, 0);
        if (got <= 0)
            break;
        n += (size_t)got;
        text[n] = '\0';
        char *end = strstr(text, "\r\n\r\n"), *range = strstr(text, "Range: bytes=");
        int64_t from = 0, last = SIZE - 1;
        if (!end)
            continue;
        if (range)
            sscanf(range, "Range: bytes=%" SCNd64 "-%" SCNd64, &from, &last);
        good = range ? send_range(fd, from, last + 1) : send_listing(fd);
        n = 0;
    }
    close(fd);
    return NULL;
}

static void *serve(void *ctx)
{
    int fd = (int)(intptr_t)ctx, client;
    pthread_t thread;
    while ((client = accept(fd, NULL, NULL)) >= 0)
        if (pthread_create(&thread, NULL, serve_connection, (void *)(intptr_t)client) == 0)
            pthread_detach(thread);
    return NULL;
}

/* The address of a server that runs as long as the test. */
static void start_server(char *address, size_t room)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    pthread_t thread;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    mr_check(fd >= 0 && bind(fd, (struct sockaddr *)&at, size) == 0 && listen(fd, 64) == 0);
    mr_check(getsockname(fd, (struct sockaddr *)&at, &size) == 0);
    snprintf(address, room, "http://127.0.0.1:%d", ntohs(at.sin_port));
    mr_check(pthread_create(&thread, NULL, serve, (void *)(intptr_t)fd) == 0);
    pthread_detach(thread);
}

/* The thread releases a transfer a little after it was dropped. */
static void wait_for_thread(int64_t live)
{
    for (int i = 0; i < 300000; i++) {
        mr_buffer_pool_trim();
        if (mr_fault_live_allocations() <= live)
            break;
        usleep(200);
    }
}

static void skip_without_libcurl(void)
{
    mr_status st;
    mr__object_info info;
    mr_fault_count();
    int64_t live = mr_fault_live_allocations();
    setenv("MILLRACE_REMOTE_RETRIES", "1", 1);
    mr_code rc = mr__object_look("http://127.0.0.1:1/", &info, &st);
    unsetenv("MILLRACE_REMOTE_RETRIES");
    if (rc == MR_UNIMPLEMENTED || rc == MR_NOT_FOUND)
        mr_skip_test("built without libcurl, or it is not installed");
    wait_for_thread(live);
}

static mr_code read_ranges(mr__object *o, mr_status *st)
{
    static uint8_t data[4][100000];
    /* The first two are fetched as one. */
    const int64_t offsets[] = {1000, 120000, 1500000, SIZE - 50000};
    mr__object_range v[4];
    for (size_t i = 0; i < 4; i++)
        v[i] = (mr__object_range){
            .object = o, .offset = offsets[i], .size = sizeof data[i], .data = data[i]};
    MR_TRY(mr__object_ranges_read(v, 4, NULL, st));
    mr_code rc = MR_OK;
    for (size_t i = 0; i < 4; i++) {
        if (v[i].why && rc == MR_OK) {
            rc = v[i].why->code;
            *st = *v[i].why;
        }
        mr_free(v[i].why);
        for (size_t k = 0; k < v[i].got; k++)
            if (v[i].data[k] != byte_at(v[i].offset + (int64_t)k))
                mr__test_fail(__FILE__, __LINE__, "byte %zu of a range is another", k);
    }
    return rc;
}

static mr_code read_ahead(mr__object *o, mr_status *st)
{
    /* The first two are requested as one; the third is two pieces if little is read ahead. */
    static uint8_t data[300000];
    mr__object_part parts[] = {{2000000, 2300000}, {1000, 101000}, {120000, 130000}};
    mr__object_ahead *a = NULL;
    MR_TRY(mr__object_ahead_open(&a, o, parts, 3, st));
    mr_code rc = MR_OK;
    for (size_t i = 0; i < 3 && rc == MR_OK; i++)
        for (int64_t at = parts[i].from; at < parts[i].to && rc == MR_OK; at += 70000) {
            size_t n = (size_t)(parts[i].to - at), got;
            n = n < 70000 ? n : 70000;
            rc = mr__object_ahead_read(a, at, data, n, &got, NULL, st);
            for (size_t k = 0; rc == MR_OK && k < got; k++)
                if (data[k] != byte_at(at + (int64_t)k))
                    mr__test_fail(__FILE__, __LINE__, "byte %zu of a part is another", k);
            if (rc == MR_OK)
                mr_eq_u64(got, n);
        }
    mr__object_ahead_close(a);
    return rc;
}

static mr_code read_stream(const char *url, mr_status *st)
{
    mr__object_stream *s = NULL;
    mr_code rc = mr__object_stream_open(&s, url, 0, true, NULL, st);
    int64_t at = 0;
    while (rc == MR_OK) {
        mr_buffer *slot = NULL;
        uint8_t *data;
        size_t got;
        rc = mr__object_stream_next(s, &slot, &data, &got, st);
        for (size_t i = 0; rc == MR_OK && i < got; i++)
            if (data[i] != byte_at(at + (int64_t)i))
                mr__test_fail(__FILE__, __LINE__, "byte %" PRId64 " is another", at + (int64_t)i);
        if (rc == MR_OK) {
            at += (int64_t)got;
            mr_buffer_unref(slot);
        }
    }
    if (rc == MR_END)
        mr_eq_i64(at, SIZE);
    mr__object_stream_close(s);
    return rc;
}

MR_TEST(every_allocation_of_reading_fails)
{
    char address[64], url[80];
    mr_status st;
    skip_without_libcurl();
    start_server(address, sizeof address);
    snprintf(url, sizeof url, "%s/a", address);
    mr_fault_each_allocation(n)
    {
        int64_t live = mr_fault_live_allocations();
        mr__object *o = NULL;
        mr_code rc = mr__object_open(&o, url, &st);
        if (rc == MR_OK)
            rc = mr__object_need_ranges(o, NULL, &st);
        if (rc == MR_OK)
            rc = read_ranges(o, &st);
        if (rc == MR_OK)
            rc = read_ahead(o, &st);
        if (rc == MR_OK)
            rc = read_stream(url, &st);
        mr_fault_expect(rc, &st);
        mr__object_unref(o);
        wait_for_thread(live);
    }
}

MR_TEST(parts_beside_each_other_and_beyond_the_end)
{
    char address[64], url[80];
    uint8_t data[100];
    size_t got;
    mr_status st;
    mr__object *o = NULL;
    mr__object_ahead *a = NULL;
    /* They overlap, are the same, and end with the object. */
    mr__object_part parts[] = {{SIZE - 50, SIZE}, {0, 100}, {50, 150}, {0, 100}};
    skip_without_libcurl();
    start_server(address, sizeof address);
    snprintf(url, sizeof url, "%s/a", address);
    mr_ok(mr__object_open(&o, url, &st), &st);
    mr_ok(mr__object_need_ranges(o, NULL, &st), &st);
    mr_ok(mr__object_ahead_open(&a, o, parts, 4, &st), &st);
    const int64_t places[] = {0, 50, 0, 0, 60, 1000, SIZE - 50};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        mr_ok(mr__object_ahead_read(a, places[i], data, sizeof data, &got, NULL, &st), &st);
        mr_eq_u64(got, places[i] == SIZE - 50 ? 50 : sizeof data);
        for (size_t k = 0; k < got; k++)
            mr_eq_u64(data[k], byte_at(places[i] + (int64_t)k));
    }
    mr__object_ahead_close(a);
    mr_ok(mr__object_ahead_open(&a, o, parts, 0, &st), &st);
    mr__object_ahead_close(a);
    mr__object_unref(o);
}

MR_TEST(options_out_of_range_are_refused)
{
    mr_status st;
    mr_iterator *it = NULL;
    mr_dataset *ds = mr_range(0, 3, 1);
    const mr_iterator_opts bad[] = {{.remote_connections = -1},
                                    {.remote_connections = MR_REMOTE_CONNECTIONS + 1},
                                    {.remote_read_ahead = -1},
                                    {.remote_read_ahead = (64 << 10) - 1}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        mr_eq_i64(mr_iterator_open(&it, ds, &bad[i], &st), MR_INVALID_ARGUMENT);
        mr_check(strstr(st.message, "remote_"));
    }
    const mr_iterator_opts good = {.remote_connections = MR_REMOTE_CONNECTIONS,
                                   .remote_read_ahead = 64 << 10};
    mr_ok(mr_iterator_open(&it, ds, &good, &st), &st);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
}

static mr_code count(void *ctx, const char *url, mr_status *st)
{
    (void)st;
    *(int *)ctx += strncmp(url, "s3://bucket/x-", 14) == 0;
    return MR_OK;
}

MR_TEST(every_allocation_of_listing_fails)
{
    char address[64];
    mr_status st;
    skip_without_libcurl();
    start_server(address, sizeof address);
    setenv("AWS_ENDPOINT_URL", address, 1);
    setenv("AWS_ACCESS_KEY_ID", "k", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "s", 1);
    /* What is remembered of listed objects stays. */
    mr_ok(mr__object_remember("s3://bucket/x-1", 1, "", &st), &st);
    mr_ok(mr__object_remember("s3://bucket/x-2", 1, "", &st), &st);
    mr_fault_each_allocation(n)
    {
        int64_t live = mr_fault_live_allocations();
        int found = 0;
        mr_code rc = mr__object_list("s3://bucket/x-*", count, &found, &st);
        mr_fault_expect(rc, &st);
        if (rc == MR_OK)
            mr_eq_i64(found, 2);
        wait_for_thread(live);
    }
}
