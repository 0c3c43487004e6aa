/* SPDX-License-Identifier: Apache-2.0 */
/* Shared memory between a lender and a borrower, who are two processes in one test and both here in
 * the others. */
#include "transport/net/lent_memory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pipeline/system/system.h"
#include "tests/fault.h"
#include "tests/harness.h"
#include "transport/net/shared_memory.h"

MR_ONE_THREAD;

enum { SIZE = 1 << 20, PAGE = 4096, ROOM = SIZE - PAGE };

static void meet(mr__lender **l, mr__borrower **b)
{
    mr_status st;
    int fd;
    mr_ok(mr__lender_new(l, SIZE, &fd, &st), &st);
    mr_ok(mr__borrower_new(b, fd, SIZE, &st), &st);
    close(fd);
}

MR_TEST(bytes_that_were_written_are_read_and_given_back)
{
    mr__lender *l;
    mr__borrower *b;
    mr_buffer *got;
    mr_status st;
    uint64_t at, back;
    meet(&l, &b);
    char *p = mr__lender_take(l, 5000, &at);
    memset(p, 'x', 5000);
    mr_ok(mr__borrower_wrap(b, at, 5000, 5000, &got, &st), &st);
    mr_eq_u64(mr_buffer_size(got), 5000);
    mr_eq_mem(mr_buffer_data(got), p, 5000);
    mr_check(!mr_buffer_writable(got));
    mr_eq_u64(mr__borrower_done(b, 0, &back, 1), 0);
    mr_buffer_unref(got);
    mr_eq_u64(mr__borrower_done(b, 5001, &back, 1), 0); /* not worth a message yet */
    mr_eq_u64(mr__borrower_done(b, 5000, &back, 1), 1);
    mr_eq_u64(back, at);
    mr_eq_u64(mr__borrower_done(b, 0, &back, 1), 0);
    mr_eq_u64(mr__lender_held(l), 2 * PAGE);
    mr_check(mr__lender_give(l, at));
    mr_check(!mr__lender_give(l, at));
    mr_eq_u64(mr__lender_held(l), 0);
    mr__borrower_unref(b);
    mr__lender_unref(l);
}

MR_TEST(the_first_place_that_is_large_enough_is_used)
{
    mr__lender *l;
    mr__borrower *b;
    uint64_t at[4], next;
    meet(&l, &b);
    for (size_t i = 0; i < 4; i++) {
        mr_check(mr__lender_take(l, (i + 1) * PAGE, &at[i]) != NULL);
        mr_eq_u64(at[i], i * (i + 1) / 2 * PAGE);
    }
    mr_check(mr__lender_give(l, at[1]) && mr__lender_give(l, at[3]));
    mr_check(mr__lender_take(l, 2 * PAGE + 1, &next) != NULL);
    mr_eq_u64(next, at[3]);
    mr_check(mr__lender_take(l, 2 * PAGE, &next) != NULL);
    mr_eq_u64(next, at[1]);
    mr_check(!mr__lender_give(l, at[1] + 1) && !mr__lender_give(l, UINT64_MAX));
    mr_check(!mr__lender_take(l, ROOM, &next) && !mr__lender_take(l, SIZE_MAX, &next));
    mr_check(mr__lender_take(l, ROOM - 9 * PAGE, &next) != NULL);
    mr_check(!mr__lender_take(l, 1, &next)); /* all of it is held */
    mr__borrower_unref(b);
    mr__lender_unref(l);
}

MR_TEST(no_two_blocks_share_a_byte_whatever_the_order_they_go_in)
{
    typedef struct held {
        mr_buffer *buffer;
        size_t n;
        unsigned char value;
    } held;
    mr__lender *l;
    mr__borrower *b;
    mr_status st;
    held h[64];
    size_t n = 0, full = 0;
    uint64_t random = mr_test_seed(), places[64];
    meet(&l, &b);
    for (int step = 0; step < 20000; step++) {
        if (n < 64 && mr_test_random(&random) % 2) {
            size_t bytes = 1 + mr_test_random(&random) % (ROOM / 20);
            uint64_t at;
            void *p = mr__lender_take(l, bytes, &at);
            full += !p;
            if (!p)
                continue;
            h[n] = (held){.n = bytes, .value = (unsigned char)step};
            memset(p, h[n].value, bytes);
            mr_ok(mr__borrower_wrap(b, at, bytes, bytes, &h[n].buffer, &st), &st);
            n++;
        } else if (n) {
            size_t i = mr_test_random(&random) % n;
            const unsigned char *p = mr_buffer_data(h[i].buffer);
            for (size_t k = 0; k < h[i].n; k++)
                if (p[k] != h[i].value)
                    mr_eq_u64(p[k], h[i].value);
            mr_buffer_unref(h[i].buffer);
            h[i] = h[--n];
        }
        size_t done = mr__borrower_done(b, ROOM / 10, places, 64);
        for (size_t i = 0; i < done; i++)
            mr_check(mr__lender_give(l, places[i]));
    }
    mr_check(full > 0);
    while (n)
        mr_buffer_unref(h[--n].buffer);
    for (size_t done; (done = mr__borrower_done(b, 0, places, 64));)
        while (done)
            mr_check(mr__lender_give(l, places[--done]));
    mr_eq_u64(mr__lender_held(l), 0);
    mr__borrower_unref(b);
    mr__lender_unref(l);
}

MR_TEST(a_place_that_is_not_in_the_memory_is_refused)
{
    static const uint64_t wrong[][2] = {{0, 0},
                                        {1, 10},
                                        {SIZE, 1},
                                        {SIZE - PAGE, PAGE},
                                        {0, SIZE},
                                        {0, UINT64_MAX},
                                        {UINT64_MAX - PAGE + 1, PAGE},
                                        {UINT64_MAX / PAGE * PAGE, UINT64_MAX},
                                        {PAGE, SIZE - PAGE - 63}};
    mr__lender *l;
    mr__borrower *b;
    mr_buffer *got;
    mr_status st;
    meet(&l, &b);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        mr_code_is(mr__borrower_wrap(b, wrong[i][0], wrong[i][1], wrong[i][1], &got, &st),
                   MR_DATA_LOSS, &st);
    mr_has_str(st.message, "is outside");
    mr_ok(mr__borrower_wrap(b, PAGE, SIZE - PAGE - 64, SIZE - PAGE - 64, &got, &st), &st);
    mr_buffer_unref(got);
    mr__borrower_unref(b);
    mr__lender_unref(l);
}

MR_TEST(memory_that_is_not_as_agreed_is_refused)
{
    mr__lender *l;
    mr__borrower *b;
    mr_status st;
    int fd, pipes[2], loose = memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    mr_check(loose >= 0 && ftruncate(loose, SIZE) == 0 && pipe(pipes) == 0);
    mr_code_is(mr__borrower_new(&b, loose, SIZE, &st), MR_DATA_LOSS, &st); /* it could shrink */
    mr_code_is(mr__borrower_new(&b, pipes[0], SIZE, &st), MR_DATA_LOSS, &st);
    mr_ok(mr__lender_new(&l, SIZE, &fd, &st), &st);
    mr_code_is(mr__borrower_new(&b, fd, 2 * SIZE, &st), MR_DATA_LOSS, &st);
    /* No process can make it smaller, and only the lender can write to it. */
    mr_check(ftruncate(fd, 10) != 0 && errno == EPERM);
    mr_check(mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
    close(fd);
    close(loose);
    close(pipes[0]);
    close(pipes[1]);
    mr__lender_unref(l);
}

MR_TEST(blocks_outlive_both_sides)
{
    mr__lender *l;
    mr__borrower *b;
    mr_buffer *got;
    mr_status st;
    uint64_t at;
    meet(&l, &b);
    memset(mr__lender_take(l, 100, &at), 'y', 100);
    mr_ok(mr__borrower_wrap(b, at, 100, 100, &got, &st), &st);
    mr__lender_unref(l);
    mr__borrower_unref(b);
    for (size_t i = 0; i < 100; i++)
        mr_eq_i64(((char *)mr_buffer_data(got))[i], 'y');
    mr_buffer_unref(got);
}

static bool send_descriptors(int to, int fd, size_t n)
{
    int both[2] = {fd, fd};
    char byte = 1;
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof both)];
    } room = {0};
    struct iovec v = {&byte, 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = room.bytes};
    m.msg_controllen = CMSG_SPACE(n * sizeof(int));
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(n * sizeof(int));
    memcpy(CMSG_DATA(c), both, n * sizeof(int));
    return sendmsg(to, &m, 0) == 1;
}

static size_t open_descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    size_t n = 0;
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

static int receive_descriptor(int from)
{
    char byte;
    mr__passing room;
    struct iovec v = {&byte, 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
    mr__expect_descriptor(&m, &room);
    mr_check(recvmsg(from, &m, MSG_CMSG_CLOEXEC) == 1);
    return mr__passed_descriptor(&m);
}

MR_TEST(no_more_than_one_descriptor_comes_in)
{
    int ends[2];
    mr_check(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    size_t before = open_descriptors();
    mr_check(send_descriptors(ends[0], ends[1], 2));
    close(receive_descriptor(ends[1]));
    mr_eq_u64(open_descriptors(), before);
    mr_check(send(ends[0], "x", 1, 0) == 1);
    mr_eq_i64(receive_descriptor(ends[1]), -1);
    close(ends[0]);
    close(ends[1]);
}

/* The child lends a block, and is killed while it writes another. */
static void lend_and_be_killed(int to)
{
    mr__lender *l;
    uint64_t at;
    int fd;
    if (mr__lender_new(&l, SIZE, &fd, NULL) != MR_OK)
        _exit(1);
    memset(mr__lender_take(l, PAGE, &at), 'a', PAGE);
    volatile char *p = mr__lender_take(l, PAGE, &at);
    mr__passing room;
    struct iovec v = {&at, sizeof at};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
    mr__pass_descriptor(&m, &room, fd);
    if (!p || sendmsg(to, &m, 0) != sizeof at)
        _exit(1);
    for (;;)
        p[0]++;
}

MR_TEST(what_a_killed_process_lent_can_be_read)
{
    int ends[2], status;
    mr__borrower *b;
    mr_buffer *got;
    mr_status st;
    mr_check(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    pid_t child = fork();
    if (child == 0)
        lend_and_be_killed(ends[1]);
    char byte;
    mr__passing room;
    struct iovec v = {&byte, 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
    mr__expect_descriptor(&m, &room);
    mr_check(recvmsg(ends[0], &m, MSG_CMSG_CLOEXEC) == 1);
    int fd = mr__passed_descriptor(&m);
    mr_ok(mr__borrower_new(&b, fd, SIZE, &st), &st);
    close(fd);
    kill(child, SIGKILL);
    mr_check(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
    mr_ok(mr__borrower_wrap(b, 0, PAGE, PAGE, &got, &st), &st);
    for (size_t i = 0; i < PAGE; i++)
        mr_eq_i64(((char *)mr_buffer_data(got))[i], 'a');
    mr_buffer_unref(got);
    mr__borrower_unref(b);
    close(ends[0]);
    close(ends[1]);
}

MR_TEST(a_landing_stays_while_a_block_that_was_lent_keeps_it)
{
    mr__lender *l;
    mr__borrower *b;
    mr_buffer *got;
    mr_status st;
    uint64_t at;
    size_t n;
    meet(&l, &b);
    mr_buffer *landing = mr__lender_land(l, 2 * PAGE - MR_SLACK);
    mr_check(landing && mr_buffer_writable(landing));
    char *p = mr_buffer_data(landing);
    mr_eq_u64((uintptr_t)p % 64, 0);
    memset(p, 'x', 2 * PAGE);
    mr_eq_u64(mr__lender_held(l), 2 * PAGE);
    /* It was not lent to a borrower. */
    uint64_t place = (uint64_t)((const uint8_t *)p - mr__lender_memory(l, &n));
    mr_eq_u64(n, SIZE);
    mr_check(!mr__lender_give(l, place) && !mr__lender_keep(l, place, landing));
    mr_check(mr__lender_take(l, 100, &at) != NULL);
    mr_check(mr__lender_keep(l, at, landing) && !mr_buffer_writable(landing));
    mr_buffer_unref(landing);
    mr_eq_u64(mr__lender_held(l), 3 * PAGE);
    mr_ok(mr__borrower_wrap(b, at, 100, 2 * PAGE, &got, &st), &st);
    const uint8_t *seen = mr__borrower_memory(b, &n);
    mr_eq_u64(n, SIZE);
    mr_eq_i64(seen[place + 2 * PAGE - MR_SLACK - 1], 'x');
    mr_buffer_unref(got);
    mr_eq_u64(mr__borrower_done(b, 2 * PAGE, &at, 1), 1); /* what it is worth */
    mr_check(mr__lender_give(l, at));
    mr_eq_u64(mr__lender_held(l), 0);
    /* One that is kept and held goes with the last of the two. */
    landing = mr__lender_land(l, 100);
    mr_check(mr__lender_take(l, 100, &at) && mr__lender_keep(l, at, landing));
    mr_check(mr__lender_give(l, at));
    mr_eq_u64(mr__lender_held(l), PAGE);
    mr__lender_unref(l); /* it is there as long as its landings */
    memset(mr_buffer_data(landing), 'y', 100);
    mr_buffer_unref(landing);
    mr__borrower_unref(b);
}

static void count_gone(void *n, void *data)
{
    (void)data;
    ++*(int *)n;
}

MR_TEST(what_a_block_keeps_goes_with_the_lender_or_where_it_keeps_another)
{
    static char bytes[64];
    mr__lender *l;
    mr__borrower *b;
    mr_status st;
    uint64_t at;
    int gone = 0;
    meet(&l, &b);
    mr_check(mr__lender_take(l, 100, &at) != NULL);
    for (int i = 0; i < 2; i++) {
        mr_buffer *keeps;
        mr_ok(mr_buffer_wrap(&keeps, bytes, sizeof bytes, true, count_gone, &gone, &st), &st);
        mr_check(mr__lender_keep(l, at, keeps));
        mr_buffer_unref(keeps);
        mr_eq_i64(gone, i);
    }
    mr__lender_unref(l); /* without an end of the borrower before */
    mr_eq_i64(gone, 2);
    mr__borrower_unref(b);
}

MR_TEST(landings_leave_most_of_the_memory_to_blocks_and_end_with_the_borrower)
{
    mr__lender *l;
    mr__borrower *b;
    mr_buffer *landing[SIZE / PAGE], *one;
    size_t n = 0;
    uint64_t at;
    meet(&l, &b);
    while ((landing[n] = mr__lender_land(l, PAGE - MR_SLACK)))
        n++;
    mr_eq_u64(n, SIZE / PAGE / MR__LANDED_PART);
    mr_check(!mr__lender_land(l, SIZE_MAX) && mr__lender_take(l, ROOM - n * PAGE, &at));
    mr_check(mr__lender_give(l, at));
    /* One that went leaves room for one more, however often. */
    for (size_t i = 0; i < 2 * n; i++) {
        mr_buffer_unref(landing[i % n]);
        landing[i % n] = mr__lender_land(l, PAGE - MR_SLACK);
        mr_check(landing[i % n] != NULL);
    }
    for (size_t i = 0; i < n; i++) {
        mr_check(mr__lender_take(l, 1, &at) && mr__lender_keep(l, at, landing[i]));
        mr_buffer_unref(landing[i]);
    }
    mr_check((one = mr__lender_land(l, 1)) == NULL);
    mr__lender_end(l);
    mr_eq_u64(mr__lender_held(l), n * PAGE); /* the blocks, which may be on their way */
    mr_check(!mr__lender_land(l, 1));
    mr_buffer *any;
    mr_status st;
    mr_ok(mr_buffer_alloc(&any, 1, &st), &st);
    mr_check(mr__lender_take(l, 1, &at) && !mr__lender_keep(l, at, any));
    mr_buffer_unref(any);
    mr__borrower_unref(b);
    mr__lender_unref(l);
}

static int without_future_write(int fd, int command, int v)
{
    if (command == F_ADD_SEALS && v == 0x10) {
        errno = EINVAL;
        return -1;
    }
    return mr__system_real()->fcntl(fd, command, v);
}

MR_TEST(nothing_lands_where_the_borrower_could_write)
{
    mr__system old = *mr__system_real();
    mr__lender *l;
    mr_status st;
    uint64_t at;
    int fd;
    old.fcntl = without_future_write;
    mr__sys = &old;
    mr_ok(mr__lender_new(&l, SIZE, &fd, &st), &st);
    mr__sys = mr__system_real();
    mr_check(!mr__lender_land(l, 100) && mr__lender_take(l, 100, &at));
    mr__lender_unref(l);
    close(fd);
}

static void use_all(void)
{
    mr__lender *l = NULL;
    mr__borrower *b = NULL;
    mr_buffer *got[3] = {NULL};
    mr_status st;
    uint64_t at;
    int fd = -1;
    mr_code rc = mr__lender_new(&l, SIZE, &fd, &st);
    if (rc == MR_OK)
        rc = mr__borrower_new(&b, fd, SIZE, &st);
    for (size_t i = 0; rc == MR_OK && i < 3; i++) {
        mr_buffer *landing = mr__lender_land(l, 100);
        if (!mr__lender_take(l, 100, &at))
            rc = mr_fail(&st, MR_RESOURCE_EXHAUSTED, "no room"); /* a block goes another way then */
        else if (landing)
            mr_check(mr__lender_keep(l, at, landing));
        mr_buffer_unref(landing);
        if (rc == MR_OK)
            rc = mr__borrower_wrap(b, at, 100, 100, &got[i], &st);
    }
    bool refused = rc == MR_DATA_LOSS && mr_fault_seen(); /* its seals could not be read */
    if (!refused)
        mr_fault_expect(rc, &st);
    for (size_t i = 0; i < 3; i++)
        mr_buffer_unref(got[i]);
    mr__borrower_unref(b);
    if (l)
        mr__lender_end(l); /* what is kept is kept by what it keeps */
    mr__lender_unref(l);
    if (fd >= 0)
        mr__sys->close(fd);
}

MR_TEST(failing_allocations_and_calls_leave_nothing)
{
    mr_fault_each_allocation(n) use_all();
    mr_fault_each(n, MR_FAULT_SYSTEM_CALL, ENOMEM, false) use_all();
}
