/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/formats/reader.h"

#include "tests/pipeline/formats/record_files.h"

MR_ONE_THREAD;

static void expect(const char *text, size_t n, const char *rows)
{
    static const size_t wants[] = {1, 3, 1024};
    write_file(mr_test_path("t"), text, n);
    for (size_t k = 0; k < 3; k++) {
        mr_status st;
        mr_reader *r = NULL;
        mr_array a = {0};
        byte_string b = {0};
        mr_code rc;
        mr_ok(mr_reader_open(&r, &mr_format_text_line, mr_test_path("t"), NULL, &st), &st);
        put(&b, "", 0);
        b.data[0] = '\0';
        while ((rc = mr_reader_read(r, wants[k], 1 << 18, &a, &st)) == MR_OK) {
            put_rows(&b, &a);
            mr_array_reset(&a);
        }
        mr_code_is(rc, MR_END, &st);
        mr_eq_str((char *)b.data, rows);
        mr_reader_close(r);
    }
}

MR_TEST(lines_end_as_on_any_system)
{
    expect("", 0, "");
    expect("a\nb\nc", 5, "a|b|c|");
    expect("a\nb\n", 4, "a|b|");
    expect("a\n\nb\n\n", 6, "a||b||");
    expect("a\r\nb\r\n\r\nc", 9, "a|b||c|");
    expect("a\rb\r\rc", 6, "a|b||c|");
    expect("a\rb\r", 4, "a|b|");
    expect("a\rb\r\nc\nd\n\re", 11, "a|b|c|d||e|");
    expect("\r\r\n", 3, "||");
    expect("a\n\r", 3, "a||");
    expect("\r", 1, "|");
    expect("\n", 1, "|");
}

MR_TEST(a_byte_order_mark_is_no_text)
{
    expect("\xEF\xBB\xBF", 3, "");
    expect("\xEF\xBB\xBF\n", 4, "|");
    expect("\xEF\xBB\xBF"
           "a\r\nb",
           7, "a|b|");
    expect("\xEF\xBB", 2, "\xEF\xBB|");
    expect("\xEF\xBB\n", 3, "\xEF\xBB|");
    expect("a\n\xEF\xBB\xBF"
           "b\n",
           7,
           "a|\xEF\xBB\xBF"
           "b|");
    expect("\xFE", 1, "\xFE|");
}

MR_TEST(utf16_and_utf32_are_refused)
{
    static const char *const texts[] = {("\xFF\xFE"
                                         "a\0\n"),
                                        "\xFE\xFF\0a", "\xFF\xFE\0\0", "\0\0\xFE\xFF"};
    for (size_t i = 0; i < 4; i++) {
        mr_status st;
        mr_reader *r = NULL;
        mr_array a = {0};
        write_file(mr_test_path("u"), texts[i], 4);
        mr_ok(mr_reader_open(&r, &mr_format_text_line, mr_test_path("u"), NULL, &st), &st);
        mr_code_is(mr_reader_read(r, 9, 100, &a, &st), MR_UNIMPLEMENTED, &st);
        mr_has_str(st.message, i < 2 ? "the text is UTF-16" : "the text is UTF-32");
        mr_code_is(mr_reader_read(r, 9, 100, &a, &st), MR_END, &st);
        mr_reader_close(r);
    }
}

/* A line's end of two bytes is in two chunks, and the first of a file is far away. */
MR_TEST(line_ends_on_the_edges_of_chunks)
{
    enum { CHUNK = 512 << 10, N = 3 * CHUNK };
    static const char *const ends[] = {"\n", "\r\n", "\r"};
    char *text = malloc(N + 8);
    for (size_t e = 0; e < 3; e++)
        for (int at = CHUNK - 2; at <= CHUNK + 1; at++) {
            mr_status st;
            mr_reader *r = NULL;
            mr_array a = {0};
            size_t n = strlen(ends[e]), lines = 0, bytes = 0;
            memset(text, 'x', N);
            memcpy(text + at, ends[e], n);
            memcpy(text + N - 5, ends[e], n);
            write_file(mr_test_path("e"), text, N);
            mr_ok(mr_reader_open(&r, &mr_format_text_line, mr_test_path("e"), NULL, &st), &st);
            while (mr_reader_read(r, 100, 1 << 20, &a, &st) == MR_OK) {
                for (size_t i = 0; i < a.rows; i++)
                    bytes += ((const mr_bytes *)a.data)[i].size;
                if (lines == 0)
                    mr_eq_u64(((const mr_bytes *)a.data)[0].size, (size_t)at);
                lines += a.rows;
                mr_array_reset(&a);
            }
            mr_eq_u64(lines, 3);
            mr_eq_u64(bytes, N - 2 * n);
            mr_reader_close(r);
        }
    free(text);
}

MR_TEST(long_lines_go_over_chunks_and_positions_restore)
{
    enum { N = 9 };
    static const size_t sizes[N] = {5, 300000, 0, 262143, 262144, 1, 1500000, 3, 70000};
    byte_string file = {0};
    for (int i = 0; i < N; i++) {
        char *line = malloc(sizes[i] + 1);
        memset(line, 'a' + i, sizes[i]);
        line[sizes[i]] = '\n';
        put(&file, line, sizes[i] + 1);
        free(line);
    }
    byte_string z = deflated(file.data, file.n, 31);
    for (int gzip = 0; gzip < 2; gzip++) {
        mr_status st;
        mr_file_opts opts = {.compression = gzip ? MR_COMPRESSION_GZIP : MR_COMPRESSION_NONE};
        write_file(mr_test_path("l"), gzip ? z.data : file.data, gzip ? z.n : file.n);
        mr_file_position at[N];
        mr_reader *r = NULL;
        mr_ok(mr_reader_open(&r, &mr_format_text_line, mr_test_path("l"), &opts, &st), &st);
        for (int pass = 0; pass < 2; pass++)
            for (int i = 0; i < N; i++) {
                mr_array a = {0};
                int k = pass ? N - 1 - i : i;
                if (pass)
                    mr_ok(mr_reader_seek(r, &at[k], &st), &st);
                else
                    mr_reader_position(r, &at[k]);
                mr_ok(mr_reader_read(r, 1, 1, &a, &st), &st);
                const mr_bytes *v = a.data;
                mr_eq_i64(at[k].record, k);
                mr_eq_u64(v->size, sizes[k]);
                if (v->size)
                    mr_check(v->data[0] == 'a' + k && v->data[v->size - 1] == 'a' + k);
                mr_array_reset(&a);
            }
        mr_reader_close(r);
    }
}

MR_TEST(lines_are_numbered_whatever_the_blocks_are)
{
    for (size_t want = 1; want <= 6; want++) {
        mr_status st;
        mr_reader *r = NULL;
        mr_array a = {0};
        mr_file_position at;
        write_file(mr_test_path("n"), "a\nb\n\nc\nd", 8);
        mr_ok(mr_reader_open(&r, &mr_format_text_line, mr_test_path("n"), NULL, &st), &st);
        for (int64_t lines = 0; lines < 5;) {
            mr_reader_position(r, &at);
            mr_eq_i64(at.record, lines);
            mr_ok(mr_reader_read(r, want, 1 << 18, &a, &st), &st);
            lines += (int64_t)a.rows;
            mr_array_reset(&a);
        }
        mr_reader_position(r, &at);
        mr_eq_i64(at.record, 5);
        mr_reader_close(r);
    }
}
