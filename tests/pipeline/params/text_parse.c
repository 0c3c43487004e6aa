/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/params/expr.h"
#include "tests/fault.h"
#include "tests/harness.h"

MR_ONE_THREAD;

static const mr_expr *parse(const char *text)
{
    const mr_expr *e = NULL;
    mr_status st;
    mr_test_context("%.200s", text);
    mr_ok(mr_expr_parse(text, strlen(text), &e, &st), &st);
    return e;
}

static const char *error_of(const char *text, size_t size)
{
    static mr_status st;
    const mr_expr *e = NULL;
    mr_test_context("%.200s", text);
    mr_code_is(mr_expr_parse(text, size, &e, &st), MR_INVALID_ARGUMENT, NULL);
    mr_check(e == NULL);
    mr_has_str(st.message, "line ");
    mr_has_str(st.message, "^");
    return st.message;
}

/* The canonical text of `text`. */
static void prints(const char *text, const char *want)
{
    const mr_expr *e = parse(text);
    char *got = NULL, *again = NULL;
    mr_status st;
    mr_ok(mr_expr_print(e, &got, &st), &st);
    mr_eq_str(got, want);
    mr_expr_unref(e);
    e = parse(got);
    mr_ok(mr_expr_print(e, &again, &st), &st);
    mr_eq_str(again, got);
    mr_expr_unref(e);
    mr_free(got);
    mr_free(again);
}

MR_TEST(binds_as_python_does)
{
    static const char *const cases[][2] = {
        {"1+2*3", "1 + 2 * 3"},
        {"(1+2)*3", "(1 + 2) * 3"},
        {"1-(2-3)-4", "1 - (2 - 3) - 4"},
        {"-x**2", "-x ** 2"},
        {"(-x)**2", "(-x) ** 2"},
        {"-2**2", "-2 ** 2"},
        {"(-2)**2", "(-2) ** 2"},
        {"2**-1", "2 ** -1"},
        {"2**3**4", "2 ** 3 ** 4"},
        {"(2**3)**4", "(2 ** 3) ** 4"},
        {"2*-x", "2 * -x"},
        {"-(2)", "-(2)"},
        {"--2", "--2"},
        {"2--3", "2 - -3"},
        {"a//b%c", "a // b % c"},
        {"a//(b%c)", "a // (b % c)"},
        {"not a and b or c", "not a and b or c"},
        {"not (a and b)", "not (a and b)"},
        {"not a==b", "not a == b"},
        {"(not a)==b", "(not a) == b"},
        {"(a<b)==c", "(a < b) == c"},
        {"a<b and b<=c", "a < b and b <= c"},
        {"a!=b or a>=b", "a != b or a >= b"},
        {"a if b else c if d else e", "a if b else c if d else e"},
        {"(a if b else c) if d else e", "(a if b else c) if d else e"},
        {"(a if b else c) + 1", "(a if b else c) + 1"},
        {"x => y => x", "x => y => x"},
        {"(x => x)", "x => x"},
        {"x=>x if x>0 else -x", "x => x if x > 0 else -x"},
        {"(a,b)=>(b,a+1)", "(a, b) => (b, a + 1)"},
        {"(a,)=>a", "a => a"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        prints(cases[i][0], cases[i][1]);
}

MR_TEST(prints_every_form_canonically)
{
    static const char *const cases[][2] = {
        {"range ( 3 ) # numbers\n . batch ( 2 , drop_remainder = true , )",
         "range(3).batch(2, drop_remainder=true)"},
        {"()", "()"},
        {"(1,)", "1"},
        {"(1,2,)", "(1, 2)"},
        {"[ ]", "[]"},
        {"[[1,2],[3,4],]", "[[1, 2], [3, 4]]"},
        {"{'a':1,\"b/c\":x[0],}", "{\"a\": 1, \"b/c\": x[0]}"},
        {"x[3,4]", "x[3, 4]"},
        {"x[(3,4)]", "x[3, 4]"},
        {"x[()]", "x[()]"},
        {"x[ 1 : 2 ]", "x[1:2]"},
        {"x[:]", "x[:]"},
        {"x[::]", "x[:]"},
        {"x[::-2,]", "x[::-2]"},
        {"x[1:,:a+1:b,-1]", "x[1:, :a + 1:b, -1]"},
        {"x[a if b else c:][0]", "x[a if b else c:][0]"},
        {"int64[]", "int64[]"},
        {"x[\"name\"][-1]", "x[\"name\"][-1]"},
        {"(a+b)[0].f()", "(a + b)[0].f()"},
        {"(-1).f()", "(-1).f()"},
        {"f(x=>x,k=(a,b)=>a)", "f(x => x, k=(a, b) => a)"},
        {"none", "none"},
        {"auto", "auto"},
        {"true and false", "true and false"},
        {"1.5", "1.5"},
        {"1.", "1.0"},
        {".5", "0.5"},
        {"1e3", "1000.0"},
        {"1e-4", "0.0001"},
        {"1e30", "1e30"},
        {"1.25E-9", "1.25e-9"},
        {"-0.0", "-0.0"},
        {"0.1", "0.1"},
        {"16777217.0", "16777217.0"},
        {"123456789.123456789", "123456789.12345679"},
        {"1e999", "1e999"},
        {"9223372036854775807", "9223372036854775807"},
        {"-9223372036854775808", "-9223372036854775808"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        prints(cases[i][0], cases[i][1]);
}

static void string_is(const char *text, const char *want, size_t n)
{
    const mr_expr *e = parse(text);
    mr_eq_i64(e->kind, MR_EX_STRING);
    mr_eq_u64(e->text_size, n);
    mr_eq_mem(e->text, want, n);
    mr_expr_unref(e);
}

MR_TEST(strings_are_bytes_with_escapes)
{
    string_is("\"a\\n\\t\\\\\\\"\\'b\"", "a\n\t\\\"'b", 7);
    string_is("'say \"hi\"'", "say \"hi\"", 8);
    string_is("\"\\x00\\xff\\xAb\"", "\0\xff\xab", 3);
    string_is("\"\\u00e9\\u20AC\\ud83d\\ude00\"", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", 9);
    string_is("\"# no comment\"", "# no comment", 12);
    string_is("\"two\nlines\"", "two\nlines", 9);
    prints("'\\x00\\xc3\\xa9\\xff\"\\n'", "\"\\x00\xc3\xa9\\xff\\\"\\n\"");
}

MR_TEST(integers_are_int64_and_floats_keep_their_digits)
{
    const mr_expr *e = parse("[9223372036854775807, -9223372036854775808, 0.1, -1.5]");
    mr_eq_i64(e->children[0]->i, INT64_MAX);
    mr_eq_i64(e->children[1]->i, INT64_MIN);
    mr_check(e->children[2]->f == 0.1);
    mr_check(e->children[3]->f == -1.5);
    mr_expr_unref(e);
}

MR_TEST(errors_show_the_place_and_what_was_expected)
{
    static const char *const cases[][2] = {
        {"range(3", "line 1, column 8: expected ',' or ')' to close the '(' of line 1, found the "
                    "end of the text\n  range(3\n         ^"},
        {"range(3)\n  .batch(2,, 3)", "line 2, column 12: expected a value, found ,\n"
                                      "    .batch(2,, 3)\n             ^"},
        {"", "expected a value, found the end"},
        {"x +", "expected a value, found the end"},
        {"x x", "expected an operator or the end, found x"},
        {"range(3) batch(2)", "expected '.' and a method, an operator or the end, found batch"},
        {"range(3).", "expected a method's name"},
        {"range(3).batch", "expected '(' and arguments"},
        {"a < b < c", "comparisons do not chain"},
        {"f(a=1, 2)", "positional arguments come first, found 2"},
        {"f(a=1, a=2)", "each name once, found a twice"},
        {"{\"a\": 1, \"a\": 2}", "each name once, found a twice"},
        {"{}", "a component's name in quotes"},
        {"{a: 1}", "a component's name in quotes"},
        {"{\"a\" 1}", "':' and the component's value"},
        {"{\"a\\x00\": 1}", "no NUL"},
        {"(x, x) => x", "each name once, found x twice"},
        {"() => 1", "expected a parameter"},
        {"\"abc", "expected a closing \""},
        {"'abc\\'", "expected a closing '"},
        {"\"\\q\"", "one of the escapes"},
        {"\"\\x4\"", "one of the escapes"},
        {"\"\\ud800\"", "one of the escapes"},
        {"12abc", "letters follow its digits"},
        {"0x10", "letters follow its digits"},
        {"9223372036854775808", "within int64"},
        {"-9223372036854775809", "within int64"},
        {"a if b", "expected 'else'"},
        {"1 + not x", "expected a value, found not"},
        {"!x", "expected !="},
        {"x ! y", "expected !="},
        {"a & b", "no such character"},
        {"f(x)(y)", "only a name can be called"},
        {"x[1:2:3:4]", "expected ',' or ']'"},
        {"x[1:2", "expected ',' or ']' to close the '[' of line 1"},
        {"[1:2]", "expected ',' or ']'"},
        {"[1, 2", "expected ',' or ']' to close the '[' of line 1"},
        {"if", "expected a value, found if"},
        {"f(if=3)", "expected a value, found if"},
        {"\xc3\xa9", "no such character"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        mr_has_str(error_of(cases[i][0], strlen(cases[i][0])), cases[i][1]);
    mr_has_str(error_of("a\0b", 3), "no such character");
}

MR_TEST(the_caret_stands_under_characters_not_bytes)
{
    mr_has_str(
        error_of("f(\"\xc3\xa9\xc3\xa9\", ?)", 12),
        "column 9: no such character in an expression\n  f(\"\xc3\xa9\xc3\xa9\", ?)\n          ^");
}

/* A text of n copies of `part`, then `end`; owned. */
static char *many(const char *part, size_t n, const char *end, size_t *size)
{
    size_t length = strlen(part);
    char *text = mr_malloc(length * n + strlen(end) + 1);
    mr_check(text != NULL);
    for (size_t i = 0; i < n; i++)
        memcpy(text + i * length, part, length);
    strcpy(text + n * length, end);
    *size = n * length + strlen(end);
    return text;
}

MR_TEST(deep_nesting_is_a_clean_error)
{
    static const char *const parts[] = {"(",
                                        "[",
                                        "f(",
                                        "-",
                                        "not ",
                                        "x=>",
                                        "2**",
                                        "{\"a\":",
                                        "a if b else ",
                                        "x[",
                                        "1 or 1 and 1 == 1 + 1 * ("};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        size_t size;
        char *text = many(parts[i], 10000, "1", &size);
        mr_has_str(error_of(text, size), "too deeply nested");
        mr_free(text);
    }
}

MR_TEST(long_chains_are_one_level_each)
{
    size_t size;
    char *text = many("f(1).g().", 450, "h()", &size);
    const mr_expr *e = NULL;
    mr_status st;
    mr_ok(mr_expr_parse(text, size, &e, &st), &st);
    mr_eq_i64(e->depth, 902);
    mr_expr_unref(e);
    mr_free(text);
    static const char *const parts[] = {"a().", "1+", "1*1-", "a or "};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        text = many(parts[i], 20000, i ? "1" : "b()", &size);
        mr_has_str(error_of(text, size), "too deeply nested");
        mr_free(text);
    }
}

MR_TEST(a_megabyte_of_text_is_fine)
{
    size_t size;
    char *body = many("1234567,", 131072, "]", &size);
    char *text = mr_malloc(size + 2);
    snprintf(text, size + 2, "[%s", body);
    const mr_expr *e = NULL;
    mr_status st;
    mr_ok(mr_expr_parse(text, size + 1, &e, &st), &st);
    mr_eq_u64(e->n, 131072);
    mr_expr_unref(e);
    mr_free(body);
    mr_free(text);
    text = many("# nothing\n", 104858, "x", &size);
    mr_ok(mr_expr_parse(text, size, &e, &st), &st);
    mr_expr_unref(e);
    mr_free(text);
    text = many(" ", MR_EXPR_MAX_TEXT, "x", &size);
    mr_code_is(mr_expr_parse(text, size, &e, &st), MR_INVALID_ARGUMENT, NULL);
    mr_free(text);
}

MR_TEST(a_subtree_keeps_the_tree_alive)
{
    const mr_expr *e = parse("f(x => x + 1, 2)");
    const mr_expr *body = mr_expr_ref(e->children[0]->children[0]);
    size_t size;
    mr_expr_unref(e);
    mr_eq_i64(body->op, '+');
    mr_eq_str(mr_expr_source(body, &size), "f(x => x + 1, 2)");
    mr_eq_u64(body->begin, 7);
    mr_eq_u64(body->end, 12);
    mr_expr_unref(body);
}

MR_TEST(a_message_about_a_method_points_at_its_name)
{
    const mr_expr *e = parse("((f(1))\n # here\n ) . take(2)");
    mr_eq_u64(mr_expr_place(e), 21);
    mr_eq_u64(mr_expr_place(e->children[0]), 2);
    mr_expr_unref(e);
}

MR_TEST(every_failed_allocation_is_reported)
{
    static const char text[] =
        "range(3).map(x => {\"a\": [x, 2.5, \"s\\n\"], \"b\": x[0]}, k=(1, 2))";
    mr_fault_each_allocation(n)
    {
        const mr_expr *e = NULL;
        char *out = NULL;
        mr_status st;
        if (mr_fault_expect(mr_expr_parse(text, sizeof text - 1, &e, &st), &st) != MR_OK)
            continue;
        if (mr_fault_expect(mr_expr_print(e, &out, &st), &st) == MR_OK)
            mr_free(out);
        mr_expr_unref(e);
    }
}
