/* SPDX-License-Identifier: Apache-2.0 */
/* Uploads whose memory runs out, to a store in a thread. What else fails: tests/remote. */
#include "pipeline/remote/upload.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "pipeline/remote/object_ranges.h"
#include "tests/fault.h"
#include "tests/harness.h"

enum { PART = 64 << 10, SIZE = 150000, MOST_PARTS = 4, ROOM = 1 << 20 };

static uint8_t byte_at(size_t i)
{
    return (uint8_t)(i * 2654435761u >> 13);
}

/* ---- a store of one object ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the store */
static struct {
    uint8_t parts[MOST_PARTS][PART], object[SIZE];
    size_t sizes[MOST_PARTS], size; /* of the object; 0: not there */
    int uploads;                    /* that were begun and neither completed nor aborted */
    bool damaged;                   /* more came than was sent */
} store;

static void take_part(int number, const uint8_t *body, size_t n)
{
    if (number < 1 || number > MOST_PARTS || n > PART) {
        store.damaged = true;
        return;
    }
    memcpy(store.parts[number - 1], body, n);
    store.sizes[number - 1] = n;
}

static void complete(void)
{
    store.size = 0;
    for (size_t i = 0; i < MOST_PARTS; i++) {
        if (store.size + store.sizes[i] > SIZE) {
            store.damaged = true;
            return;
        }
        memcpy(store.object + store.size, store.parts[i], store.sizes[i]);
        store.size += store.sizes[i];
    }
    store.uploads--;
}

/* What the store answers to a request; it has been done then. */
static const char *answer(const char *head, const uint8_t *body, size_t n)
{
    const char *line_end = strchr(head, '\r'), *part = strstr(head, "partNumber=");
    const char *id = strstr(head, "uploadId=");
    bool of_part = part && part < line_end, of_upload = id && id < line_end;
    const char *said = "HTTP/1.1 200 OK\r\nETag: \"e\"\r\nContent-Length: 0\r\n\r\n";
    pthread_mutex_lock(&lock);
    if (strncmp(head, "PUT ", 4) == 0 && of_part)
        take_part(atoi(part + 11), body, n);
    else if (strncmp(head, "PUT ", 4) == 0) {
        store.size = n < SIZE ? n : SIZE;
        memcpy(store.object, body, store.size);
    } else if (strncmp(head, "DELETE ", 7) == 0 && of_upload) {
        store.uploads--;
        said = "HTTP/1.1 204 No Content\r\n\r\n";
    } else if (strncmp(head, "POST ", 5) == 0 && of_upload) {
        complete();
        said = "HTTP/1.1 200 OK\r\nContent-Length: 33\r\n\r\n<CompleteMultipartUploadResult />";
    } else if (strncmp(head, "POST ", 5) == 0) {
        store.uploads++;
        said = "HTTP/1.1 200 OK\r\nContent-Length: 23\r\n\r\n<UploadId>u1</UploadId>";
    } else
        said = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
    pthread_mutex_unlock(&lock);
    return said;
}

static void *serve_connection(void *ctx)
{
    int fd = (int)(intptr_t)ctx;
    char *text = malloc(ROOM);
    size_t n = 0;
    for (;;) {
        ssize_t got = text ? recv(fd, text + n, ROOM - 1 - n, 0) : 0;
        if (got <= 0)
            break;
        n += (size_t)got;
        text[n] = '\0';
        const char *end = strstr(text, "\r\n\r\n");
        const char *length = end ? strcasestr(text, "Content-Length:") : NULL;
        size_t size = length && length < end ? (size_t)atol(length + 15) : 0;
        if (!end || n < (size_t)(end + 4 - text) + size)
            continue;
        const char *said = answer(text, (const uint8_t *)end + 4, size);
        if (send(fd, said, strlen(said), MSG_NOSIGNAL) < 0)
            break;
        n = 0;
    }
    free(text);
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

/* A store that runs as long as the test. */
static void start_store(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    pthread_t thread;
    char address[64];
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    mr_check(fd >= 0 && bind(fd, (struct sockaddr *)&at, size) == 0 && listen(fd, 64) == 0);
    mr_check(getsockname(fd, (struct sockaddr *)&at, &size) == 0);
    snprintf(address, sizeof address, "http://127.0.0.1:%d", ntohs(at.sin_port));
    setenv("AWS_ENDPOINT_URL", address, 1);
    setenv("AWS_ACCESS_KEY_ID", "id", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
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
    if (rc == MR_UNIMPLEMENTED || rc == MR_NOT_FOUND)
        mr_skip_test("built without libcurl, or it is not installed");
    wait_for_thread(live);
}

static mr_code write_object(mr__upload *u, size_t size, mr_status *st)
{
    uint8_t data[1000];
    for (size_t at = 0; at < size; at += sizeof data) {
        size_t n = size - at < sizeof data ? size - at : sizeof data;
        for (size_t i = 0; i < n; i++)
            data[i] = byte_at(at + i);
        MR_TRY(mr__upload_put(u, data, n, st));
    }
    MR_TRY(mr__upload_finish(u, st));
    return mr__upload_commit(u, st);
}

static void every_allocation_fails(size_t size)
{
    mr_status st;
    skip_without_libcurl();
    start_store();
    mr_fault_each_allocation(n)
    {
        int64_t live = mr_fault_live_allocations();
        mr__upload *u = NULL;
        memset(&store, 0, sizeof store);
        mr__upload_group *g = mr__upload_group_new(PART, 2 * PART);
        if (!g)
            continue;
        mr_code rc = mr__upload_open(&u, "s3://bucket/key", &(mr__upload_opts){.group = g}, &st);
        if (rc == MR_OK)
            rc = write_object(u, size, &st);
        mr_fault_expect(rc, &st);
        mr__upload_close(u);
        mr__upload_group_free(g);
        wait_for_thread(live);
        pthread_mutex_lock(&lock);
        /* The answer that an object is there may be what there was no memory for. */
        mr_check(store.size == size || (rc != MR_OK && store.size == 0));
        for (size_t i = 0; i < store.size; i++)
            if (store.object[i] != byte_at(i))
                mr__test_fail(__FILE__, __LINE__, "byte %zu of the object is another", i);
        mr_eq_i64(store.uploads, 0);
        mr_check(!store.damaged);
        pthread_mutex_unlock(&lock);
    }
}

MR_TEST(every_allocation_of_an_upload_in_parts_fails)
{
    every_allocation_fails(SIZE);
}

MR_TEST(every_allocation_of_a_small_upload_fails)
{
    every_allocation_fails(1500);
}
