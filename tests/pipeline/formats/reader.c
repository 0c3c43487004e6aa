/* SPDX-License-Identifier: Apache-2.0 */
/* What all formats have in common: standard input, pipes, files that hide their size. */
#include "pipeline/formats/reader.h"

#include <signal.h>
#include <sys/wait.h>

#include "tests/pipeline/formats/record_files.h"

MR_ONE_THREAD;

/* Makes standard input a pipe that a child writes these bytes to, a few at a time. */
static pid_t feed(const byte_string *b)
{
    int ends[2];
    mr_check(pipe(ends) == 0);
    pid_t child = fork();
    mr_check(child >= 0);
    if (child == 0) {
        close(ends[0]);
        for (size_t at = 0; at < b->n; at += 7)
            if (write(ends[1], b->data + at, b->n - at < 7 ? b->n - at : 7) < 0)
                _exit(1);
        _exit(0);
    }
    close(ends[1]);
    mr_check(dup2(ends[0], 0) == 0);
    close(ends[0]);
    return child;
}

static byte_string lines(size_t n)
{
    byte_string b = {0};
    char line[32];
    for (size_t i = 0; i < n; i++)
        put(&b, line, (size_t)snprintf(line, sizeof line, "line %zu\n", i));
    return b;
}

static int64_t count(const mr_format *format, const char *path, const mr_file_opts *opts,
                     mr_code end)
{
    mr_status st;
    mr_reader *r = NULL;
    int64_t n = 0;
    mr_ok(mr_reader_open(&r, format, path, opts, &st), &st);
    mr_code rc = mr_reader_skip(r, INT64_MAX, &n, &st);
    mr_code_is(rc, end, &st);
    mr_reader_close(r);
    return n;
}

MR_TEST(standard_input_is_read_from_a_pipe_once)
{
    mr_status st;
    mr_reader *r = NULL;
    byte_string b = lines(1000);
    pid_t child = feed(&b);
    mr_eq_i64(count(&mr_format_text_line, "-", NULL, MR_OK), 1000);
    mr_code_is(mr_reader_open(&r, &mr_format_text_line, "-", NULL, &st), MR_FAILED_PRECONDITION,
               &st);
    mr_has_str(st.message, "once");
    mr_eq_i64(waitpid(child, NULL, 0), child);
    child = feed(&b); /* another pipe */
    mr_eq_i64(count(&mr_format_text_line, "-", NULL, MR_OK), 1000);
    mr_eq_i64(waitpid(child, NULL, 0), child);
}

MR_TEST(a_pipe_is_read_in_every_format_and_compression)
{
    const char *const three[] = {"first", "again", "third"};
    const mr_fixed_length_opts own = {.record_bytes = 7, .header_bytes = 21, .footer_bytes = 21};
    byte_string b = framed(three, 3);
    for (int c = MR_COMPRESSION_NONE; c <= MR_COMPRESSION_GZIP; c++)
        for (int detect = 0; detect < 2; detect++) {
            mr_file_opts opts = {.compression = detect ? MR_COMPRESSION_DETECT : (mr_compression)c};
            byte_string z = c ? deflated(b.data, b.n, 31) : b;
            pid_t child = feed(&z);
            mr_eq_i64(count(&mr_format_tfrecord, "-", &opts, MR_OK), 3);
            mr_eq_i64(waitpid(child, NULL, 0), child);
        }
    pid_t child = feed(&b);
    mr_eq_i64(count(&mr_format_fixed_length, "-", &(mr_file_opts){.own = &own}, MR_OK), 3);
    mr_eq_i64(waitpid(child, NULL, 0), child);
}

MR_TEST(standard_input_that_is_a_file_can_be_read_again)
{
    byte_string b = lines(10);
    write_file(mr_test_path("f"), b.data, b.n);
    int fd = open(mr_test_path("f"), O_RDONLY);
    mr_check(dup2(fd, 0) == 0);
    close(fd);
    for (int i = 0; i < 3; i++)
        mr_eq_i64(count(&mr_format_text_line, "-", NULL, MR_OK), 10);
}

MR_TEST(a_place_in_a_pipe_is_reached_by_reading_up_to_it)
{
    mr_status st;
    mr_reader *r = NULL;
    mr_array a = {0};
    byte_string b = lines(100);
    pid_t child = feed(&b);
    mr_ok(mr_reader_open(&r, &mr_format_text_line, "-", NULL, &st), &st);
    mr_ok(mr_reader_seek(r, &(mr_file_position){.offset = 7 * 10 + 8, .record = 11}, &st), &st);
    mr_ok(mr_reader_read(r, 1, 1, &a, &st), &st);
    mr_eq_mem(((const mr_bytes *)a.data)->data, "line 11", 7);
    mr_array_reset(&a);
    mr_code_is(mr_reader_seek(r, &(mr_file_position){0}, &st), MR_FAILED_PRECONDITION, &st);
    mr_reader_close(r);
    mr_eq_i64(waitpid(child, NULL, 0), child);
}

MR_TEST(a_file_that_says_it_is_empty_is_read_to_its_end)
{
    mr_status st;
    mr_reader *r = NULL;
    mr_array a = {0};
    mr_file_position start;
    int64_t n = count(&mr_format_text_line, "/proc/self/status", NULL, MR_OK);
    mr_check(n > 10);
    mr_ok(mr_reader_open(&r, &mr_format_text_line, "/proc/self/status", NULL, &st), &st);
    mr_reader_position(r, &start);
    for (int pass = 0; pass < 2; pass++) { /* it can be sought, too */
        mr_ok(mr_reader_seek(r, &start, &st), &st);
        mr_ok(mr_reader_read(r, 1, 1, &a, &st), &st);
        mr_eq_mem(((const mr_bytes *)a.data)->data, "Name:", 5);
        mr_array_reset(&a);
    }
    mr_reader_close(r);
    write_file(mr_test_path("none"), "", 0);
    mr_eq_i64(count(&mr_format_text_line, mr_test_path("none"), NULL, MR_OK), 0);
}

/* Memory of the user's: every third buffer is unavailable. */
typedef struct land {
    uint8_t *memory;
    size_t bytes, used, asked, gone;
} land;

static void land_gone(void *ctx, void *data)
{
    (void)data;
    ((land *)ctx)->gone++;
}

static mr_buffer *take_land(void *ctx, size_t bytes)
{
    land *l = ctx;
    mr_buffer *b = NULL;
    size_t n = (bytes + MR_SLACK + 63) / 64 * 64;
    if (l->asked++ % 3 == 2 || n > l->bytes - l->used)
        return NULL;
    if (mr_buffer_wrap(&b, l->memory + l->used, bytes, false, land_gone, l, NULL) == MR_OK)
        l->used += n;
    return b;
}

/* All records, each held until the end; *landed: how many lie in l. */
static byte_string all_held(const mr_format *format, const char *path, const mr_file_opts *opts,
                            const land *l, size_t *landed)
{
    mr_status st;
    mr_reader *r = NULL;
    mr_array a[200] = {0};
    size_t n = 0;
    byte_string all = {0};
    mr_code rc;
    mr_ok(mr_reader_open(&r, format, path, opts, &st), &st);
    while ((rc = mr_reader_read(r, 5000, 1 << 18, &a[n], &st)) == MR_OK)
        mr_check(++n < 200);
    mr_code_is(rc, MR_END, &st);
    mr_reader_close(r);
    *landed = 0;
    for (size_t i = 0; i < n; i++) {
        const mr_bytes *v = a[i].data;
        for (size_t k = 0; k < a[i].rows; k++) {
            uintptr_t at = (uintptr_t)v[k].data - (uintptr_t)l->memory;
            *landed += v[k].size && at < l->used;
        }
        put_rows(&all, &a[i]);
        mr_array_reset(&a[i]);
    }
    return all;
}

MR_TEST(records_land_in_memory_of_the_users_while_there_is_some)
{
    const char *path = mr_test_path("lines");
    byte_string b = lines(400000), packed = deflated(b.data, b.n, 31);
    for (int c = 0; c < 2; c++) {
        land l = {.bytes = (size_t)32 << 20};
        mr_read_slots slots = {take_land, &l};
        mr_file_opts opts = {.compression = c ? MR_COMPRESSION_GZIP : MR_COMPRESSION_NONE};
        size_t n, landed;
        l.memory = aligned_alloc(64, l.bytes);
        write_file(path, c ? packed.data : b.data, c ? packed.n : b.n);
        byte_string want = all_held(&mr_format_text_line, path, &opts, &l, &n);
        mr_eq_u64(n, 0);
        opts.read_slots = &slots;
        byte_string got = all_held(&mr_format_text_line, path, &opts, &l, &landed);
        mr_eq_u64(want.n, got.n);
        mr_eq_mem(want.data, got.data, want.n);
        mr_check(l.asked >= 6 && landed > 400000 / 2 && landed < 400000);
        mr_eq_u64(l.gone, l.asked - l.asked / 3); /* none is held any more */
        free(l.memory);
    }
}
