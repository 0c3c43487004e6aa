/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of strings: what Python gives for the same arguments, and what is refused. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "pipeline/engine/iterator.h"
#include "tests/fault.h"
#include "tests/harness.h"
#include "tests/pipeline/functions/evaluate.h"

MR_ONE_THREAD;

MR_TEST(parts_of_strings)
{
    mr_eq_str(evaluate(1, "x => (length(\"abc\"), length(\"\"), length([\"a\", \"b\"]))"),
              "(3, 0, 2)");
    mr_eq_str(evaluate(1, "x => (length(\"h\\u00e9\"), length(\"h\\u00e9\", unit=\"char\"))"),
              "(3, 2)");
    mr_eq_str(evaluate(1, "x => length(\"\\xffa\\xe2\\x82\", unit=\"char\")"), "4");
    mr_has_str(evaluate(1, "x => length(x)"), "length of a scalar");
    mr_has_str(evaluate(1, "x => length(\"a\", unit=\"word\")"), "unit");
    mr_eq_str(evaluate(4, "x => substring(\"abc\", x)"), "\"abc\"; \"bc\"; \"c\"; \"\"");
    mr_eq_str(evaluate(1, "x => substring(\"abc\", -2)"), "\"bc\"");
    mr_eq_str(evaluate(1, "x => substring(\"abc\", -9, 2)"), "\"ab\"");
    mr_eq_str(evaluate(1, "x => substring(\"abc\", 1, length=9)"), "\"bc\"");
    mr_eq_str(evaluate(1, "x => substring([\"abc\", \"d\", \"\"], 0, 1)"), "[\"a\", \"d\", \"\"]");
    mr_eq_str(evaluate(1, "x => substring(\"abc\", 1, none)"), "\"bc\"");
    mr_eq_str(evaluate(1, "x => substring(\"h\\u00e9llo\", 1, 2, unit=\"char\") == \"\\u00e9l\""),
              "true");
    mr_has_str(evaluate(1, "x => substring(\"abc\", 1, -1)"), "the length must not be negative");
    mr_eq_str(evaluate(2, "x => substring(\"abc\", 1, -x)"),
              "\"\"; !substring: the length is negative: -1 in substring(\"abc\", 1, -x)");
    mr_eq_str(evaluate(1, "x => (lower(\"aBC1\\xc4\") == \"abc1\\xc4\", upper([\"aBz\", \"\"]))"),
              "(true, [\"ABZ\", \"\"])");
    mr_eq_str(evaluate(1, "x => [strip(\" \\ta b\\x0b\\n\"), lstrip(\" a \"), rstrip(\" a \")]"),
              "[\"a b\", \"a \", \" a\"]");
    mr_eq_str(evaluate(1, "x => [strip(\" \"), strip(\"\")]"), "[\"\", \"\"]");
    mr_has_str(evaluate(1, "x => lower(x)"), "lower expects strings, not int64");
}

MR_TEST(strings_are_found_in_strings)
{
    mr_eq_str(evaluate(1, "x => starts_with([\"abc\", \"b\", \"\"], \"ab\")"),
              "[true, false, false]");
    mr_eq_str(evaluate(1, "x => ends_with([\"abc\", \"c\", \"\"], \"bc\")"),
              "[true, false, false]");
    mr_eq_str(evaluate(1, "x => contains([\"abc\", \"c\", \"\"], \"b\")"), "[true, false, false]");
    mr_eq_str(evaluate(1, "x => find([\"abcb\", \"c\", \"\"], \"b\")"), "[1, -1, -1]");
    mr_eq_str(evaluate(1, "x => (find(\"\", \"\"), contains(\"a\", \"\"), ends_with(\"\", \"\"))"),
              "(0, true, true)");
    mr_eq_str(
        evaluate(1, "x => (find(\"\\u00e9b\", \"b\"), find(\"\\u00e9b\", \"b\", unit=\"char\"))"),
        "(2, 1)");
    mr_eq_str(evaluate(2, "x => starts_with(\"10\", format(\"{}\", x))"), "false; true");
    mr_has_str(evaluate(1, "x => find(\"a\", [\"a\"])"),
               "the string to search for must be one string");
}

MR_TEST(strings_are_split_and_joined)
{
    mr_eq_str(evaluate(1, "x => split(\" a  b c \")"), "[\"a\", \"b\", \"c\"]");
    mr_eq_str(evaluate(1, "x => split(\" 1  2 3 \", maxsplit=1)"), "[\"1\", \"2 3 \"]");
    mr_eq_str(evaluate(1, "x => split(\" 1 \", none, 0)"), "[\"1 \"]");
    mr_eq_str(evaluate(1, "x => split(\"\")"), "[]");
    mr_eq_str(evaluate(1, "x => split(\"  \")"), "[]");
    mr_eq_str(evaluate(1, "x => split(\"a,b,,c,\", \",\")"), "[\"a\", \"b\", \"\", \"c\", \"\"]");
    mr_eq_str(evaluate(1, "x => split(\"a,b,c\", \",\", maxsplit=1)"), "[\"a\", \"b,c\"]");
    mr_eq_str(evaluate(1, "x => split(\"a,b,c,d\", \",\", maxsplit=2)"), "[\"a\", \"b\", \"c,d\"]");
    mr_eq_str(evaluate(1, "x => split(\"\", sep=\",\")"), "[\"\"]");
    mr_eq_str(evaluate(1, "x => split(\"a::b:\", \"::\")"), "[\"a\", \"b:\"]");
    mr_eq_str(evaluate(3, "x => split(join(where(ones([x]) > 0, \"a\", \"\"), \",\"), \",\")"),
              "[\"\"]; [\"a\"]; [\"a\", \"a\"]");
    mr_eq_str(evaluate(1, "x => split([\"a b\", \"\", \"c\"])"), "[[\"a\", \"b\"], [], [\"c\"]]");
    mr_has_str(evaluate(1, "x => split(\"a\", \"\")"), "the separator is empty");
    mr_has_str(evaluate(1, "x => split([[\"a\"]])"), "a string or a vector of strings");
    mr_eq_str(evaluate(1, "x => join([\"a\", \"\", \"c\"], \"-\")"), "\"a--c\"");
    mr_eq_str(evaluate(1, "x => join([[\"a\", \"b\"], [\"c\", \"d\"]])"), "[\"ab\", \"cd\"]");
    mr_eq_str(evaluate(1, "x => join(split(\"\"), \"-\")"), "\"\"");
    mr_has_str(evaluate(1, "x => join(\"a\")"), "join of one string");
}

MR_TEST(patterns_match_and_rewrite)
{
    mr_eq_str(evaluate(1, "x => regex_replace(\"baac\", \"a*\", \"x\")"), "\"xbxxcx\"");
    mr_eq_str(evaluate(1, "x => regex_replace(\"a1b22\", \"([a-z])([0-9]+)\", \"\\\\2\\\\1.\")"),
              "\"1a.22b.\"");
    mr_eq_str(evaluate(1, "x => regex_replace(\"aaa\", \"a\", \"b\", global=false)"), "\"baa\"");
    mr_eq_str(evaluate(1, "x => regex_replace([\"ab\", \"\"], \"^\", \"\\\\\\\\\") == "
                          "[\"\\\\ab\", \"\\\\\"]"),
              "[true, true]");
    mr_eq_str(evaluate(1, "x => regex_replace(\"ab\", \"(a)|(b)\", \"<\\\\1\\\\2\\\\0>\")"),
              "\"<aa><bb>\"");
    mr_eq_str(evaluate(1, "x => regex_replace(\"\\u00e9\", \"(*UTF).\", \"x\")"), "\"x\"");
    mr_eq_str(evaluate(1, "x => regex_replace(\"\\u00e9\", \".\", \"x\")"), "\"xx\"");
    mr_eq_str(
        evaluate(1, "x => regex_replace(\"a\\u00e9\", \"(*UTF)x*\", \"-\") == \"-a-\\u00e9-\""),
        "true");
    mr_eq_str(evaluate(1, "x => regex_match([\"ab\", \"abc\", \"\"], \"a.\")"),
              "[true, false, false]");
    mr_eq_str(evaluate(1, "x => regex_match(\"ab\", \"a|ab\")"), "true");
    mr_eq_str(evaluate(1, "x => regex_search([\"cab\", \"\"], \"a.$\")"), "[true, false]");
    mr_has_str(evaluate(1, "x => regex_match(\"a\", \"(\")"), "byte 1 of the pattern: missing");
    mr_has_str(evaluate(1, "x => regex_replace(\"a\", \"(a)\", \"\\\\2\")"),
               "the rewrite has \\2, the pattern 1 groups");
    mr_has_str(evaluate(1, "x => regex_replace(\"a\", \"a\", \"\\\\n\")"), "must precede a digit");
    mr_has_str(evaluate(1, "x => regex_search(\"\\xff\", \"(*UTF)a\")"),
               "!regex_search: UTF-8 error");
    mr_has_str(
        evaluate(1,
                 "x => regex_match(\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\", \"([ab]+)+[0-9]\")"),
        "!regex_match: match limit exceeded");
}

MR_TEST(numbers_out_of_strings)
{
    mr_eq_str(evaluate(1, "x => to_number([\"1.5\", \" -2e3\\n\", \"+.5\"])"),
              "[1.5, -2000.0, 0.5]");
    mr_eq_str(evaluate(1, "x => to_number(\"0.1\", \"float64\")"), "0.1");
    mr_eq_str(evaluate(1, "x => to_number([\"inf\", \"-Infinity\"])"), "[1e999, -1e999]");
    static const char *const large[][3] = {{"1e39", "float32"},
                                           {"-3.4028236e38", "float32"},
                                           {"65520", "float16"},
                                           {"1e39", "bfloat16"},
                                           {"1e309", "float64"}};
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        char f[100], message[100];
        snprintf(f, sizeof f, "x => to_number(\"%s\", \"%s\")", large[i][0], large[i][1]);
        snprintf(message, sizeof message, "\"%s\" does not fit %s", large[i][0], large[i][1]);
        mr_has_str(evaluate(1, f), message);
    }
    mr_eq_str(evaluate(1, "x => to_number(\"3.4028235e38\")"), "3.4028235e38");
    mr_eq_str(evaluate(1, "x => to_number(\"65504\", float16)"), "65504.0");
    mr_eq_str(evaluate(1, "x => to_number([\"-128\", \"127\"], \"int8\")"), "[-128, 127]");
    mr_eq_str(evaluate(1, "x => to_number([\"18446744073709551615\", \"-0\"], \"uint64\")[1]"),
              "0");
    mr_eq_str(evaluate(1, "x => to_number(\"-9223372036854775808\", \"int64\")"),
              "-9223372036854775808");
    static const char *const bad[] = {"", "a", "1a", "0x10", "1 2", "--1", "+", "nan(1)", "1e"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char f[100];
        snprintf(f, sizeof f, "x => to_number(\"%s\", \"float32\")", bad[i]);
        mr_has_str(evaluate(1, f), "is not a number in to_number");
        snprintf(f, sizeof f, "x => to_number(\"%s\", \"int32\")", bad[i]);
        mr_has_str(evaluate(1, f), "is not an integer in to_number");
    }
    mr_has_str(evaluate(1, "x => to_number(\"1.0\", \"int32\")"), "\"1.0\" is not an integer");
    mr_has_str(evaluate(1, "x => to_number(\"128\", \"int8\")"), "\"128\" does not fit int8");
    mr_has_str(evaluate(1, "x => to_number(\"-1\", \"uint8\")"), "does not fit uint8");
    mr_has_str(evaluate(1, "x => to_number(\"9223372036854775808\", \"int64\")"), "does not fit");
    mr_has_str(evaluate(1, "x => to_number(\"99999999999999999999\", \"uint64\")"), "does not fit");
    mr_has_str(evaluate(1, "x => to_number(\"1\", \"bool\")"), "makes numbers, not bool");
}

MR_TEST(values_are_formatted)
{
    mr_eq_str(evaluate(2, "x => format(\"{} of {}\", x, x / 2)"), "\"0 of 0.0\"; \"1 of 0.5\"");
    mr_eq_str(evaluate(1, "x => format(\"{1}{0}{{}}\", \"a\", \"b\")"), "\"ba{}\"");
    mr_eq_str(evaluate(1, "x => format(\"plain\")"), "\"plain\"");
    mr_eq_str(evaluate(1, "x => format(\"\")"), "\"\"");
    mr_eq_str(evaluate(1, "x => format(\"{}\", [1, 2])"), "[\"1\", \"2\"]");
    mr_eq_str(evaluate(2, "x => format(\"{}-{}\", [\"a\", \"b\"], x)"),
              "[\"a-0\", \"b-0\"]; [\"a-1\", \"b-1\"]");
    mr_eq_str(evaluate(1, "x => format(\"{:5}|{:<5}|{:05}|{:+}\", 42, 42, -42, 42)"),
              "\"   42|42   |-0042|+42\"");
    mr_eq_str(evaluate(1, "x => format(\"{:.2f} {:e} {:g} {:8.3f}\", 1.5, 1.5, 1e10, -1.5)"),
              "\"1.50 1.500000e+00 1e+10   -1.500\"");
    mr_eq_str(evaluate(1, "x => format(\"{:x} {:d} {}\", 255, -1, true)"), "\"ff -1 True\"");
    mr_eq_str(evaluate(1, "x => format(\"{} {:3}|{:<3}|{:+}\", x > 0, true, true, false)"),
              "\"False   1|1  |+0\"");
    mr_eq_str(evaluate(1, "x => format(\"{} {} {} {} {}\", 1e15, 1e16, -0.0001, -0.00001, 1e-30)"),
              "\"1000000000000000.0 1e+16 -0.0001 -1e-05 1e-30\"");
    mr_eq_str(evaluate(1, "x => format(\"{} {} {} {}\", 1.25e20, 0.0000125, 0.0, 2.5e-310 * 1.0)"),
              "\"1.25e+20 1.25e-05 0.0 0.0\"");
    mr_eq_str(evaluate(1, "x => format(\"{:4}|{:>4}|{:.1}\", \"ab\", \"ab\", \"ab\")"),
              "\"ab  |  ab|a\"");
    mr_eq_str(evaluate(1, "x => format(\"{} {}\", -1e999, cast(0.5, \"float16\"))"),
              "\"-inf 0.5\"");
    mr_eq_str(evaluate(1, "x => format(\"{}\", cast(-1, \"uint64\"))"), "\"18446744073709551615\"");
    mr_eq_str(
        evaluate(1, "x => length(format(\"{:.1000f}\", to_number(\"-1.7e308\", \"float64\")))"),
        "1311");
    mr_has_str(evaluate(1, "x => format(\"{} {}\", 1)"), "there is no value for this field");
    mr_has_str(evaluate(1, "x => format(\"a}b\", 1)"), "byte 1 of the text: a lone }");
    mr_has_str(evaluate(1, "x => format(\"{\", 1)"), "a field is {}");
    mr_has_str(evaluate(1, "x => format(\"{:d}\", 1.5)"), "does not apply to the value's type");
    mr_has_str(evaluate(1, "x => format(\"{:5000}\", 1)"), "over 1000");
    mr_has_str(evaluate(1, "x => format(x, 1)"), "unknown name 'x'");
    mr_has_str(evaluate(3, "x => format(\"{}{}\", ones([x]), [1])"),
               "!format: tensors of different shapes");
}

MR_TEST(hashes_never_change)
{
    mr_eq_str(evaluate(1, "x => hash([\"\", \"a\", \"abc\"])"),
              "[3244421341483603138, 16629034431890738719, 8696274497037089104]");
    mr_eq_str(evaluate(1, "x => hash([\"\", \"a\", \"abc\"], buckets=10)"), "[8, 9, 4]");
    mr_eq_str(evaluate(1, "x => hash(\"a\", 1)"), "0");
    mr_has_str(evaluate(1, "x => hash(\"a\", 0)"), "buckets must be");
    mr_has_str(evaluate(1, "x => hash(x)"), "hash expects strings, not int64");
}

MR_TEST(characters_are_decoded)
{
    mr_eq_str(evaluate(1, "x => utf8_decode(\"a\\u00e9\\u20ac\\xf0\\x9f\\x98\\x80\")"),
              "[97, 233, 8364, 128512]");
    mr_eq_str(evaluate(1, "x => utf8_decode(\"\")"), "[]");
    mr_eq_str(evaluate(1, "x => utf8_decode([\"ab\", \"\", \"c\"])"), "[[97, 98], [], [99]]");
    static const char *const bad[] = {"\\xff",           "\\xc0\\x80",           "\\xe2\\x82",
                                      "\\xed\\xa0\\x80", "\\xf4\\x90\\x80\\x80", "\\x80"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char f[100];
        snprintf(f, sizeof f, "x => utf8_decode(\"ab%s\")", bad[i]);
        mr_has_str(evaluate(1, f), "!utf8_decode: byte 2 of the string is not valid UTF-8");
        snprintf(f, sizeof f, "x => utf8_decode(\"a%s\", errors=\"replace\")[:2]", bad[i]);
        mr_eq_str(evaluate(1, f), "[97, 65533]");
    }
}

/* ---- lookup ---- */

static const char *in_file(size_t rows, const char *path, const char *form)
{
    char f[1000];
    snprintf(f, sizeof f, form, path);
    return evaluate(rows, f);
}

MR_TEST(tokens_are_looked_up)
{
    mr_eq_str(
        evaluate(1, "x => lookup([\"a\", \"c\", \"e\"], [\"a\", \"b\", \"c\", \"d\", \"f\"])"),
        "[1, 3, 0]");
    mr_eq_str(evaluate(1, "x => lookup([\"a\", \"e\"], vocabulary=[\"a\"], default=-1)"),
              "[1, -1]");
    mr_eq_str(evaluate(1, "x => lookup([\"b\", \"e\"], [\"a\", \"b\"], oov=0, default=9)"),
              "[1, 9]");
    mr_eq_str(evaluate(1, "x => lookup([\"\", \"a\", \"abc\", \"z\"], [\"z\"], oov=10)"),
              "[8, 9, 4, 10]");
    mr_eq_str(evaluate(3, "x => lookup(x, [2, 0])"), "2; 0; 1");
    mr_eq_str(evaluate(1, "x => lookup(cast([7, 8], \"uint8\"), [8])"), "[0, 1]");
    mr_eq_str(evaluate(2, "x => lookup(x, [0], oov=0)"),
              "0; !lookup: 1 is not in the vocabulary in lookup(x, [0], oov=0)");
    mr_has_str(evaluate(1, "x => lookup(\"e\", [\"a\"], oov=0)"), "!lookup: \"e\" is not in");
    mr_has_str(evaluate(1, "x => lookup(\"e\", [\"a\", \"b\", \"a\"])"),
               "token 2 of the vocabulary");
    mr_has_str(evaluate(1, "x => lookup(x, [\"a\"])"), "must be a list of integers, or the name");
    mr_has_str(evaluate(1, "x => lookup(\"a\", [1])"), "must be a list of strings, or the name");
    mr_has_str(evaluate(1, "x => lookup(\"a\", [])"), "must be a list of strings, or the name");
    mr_has_str(evaluate(1, "x => lookup(1.5, [1])"), "lookup expects strings or integers");
    mr_eq_str(
        evaluate(1, "x => text_vectorization(\"The  CAT's, \\tcat - a\", [\"cat\", \"the\"], 6)"),
        "[3, 1, 2, 1, 0, 0]"); /* "the", "cats", "cat", "a" */
    mr_eq_str(evaluate(1, "x => text_vectorization([\"a b c\", \"\"], [\"b\"], 2)"),
              "[[1, 2], [0, 0]]");
    mr_eq_str(evaluate(1, "x => text_vectorization([[\"b\"], [\"...\"]], [\"b\"], 1)"),
              "[[2], [0]]");
    mr_has_str(evaluate(1, "x => text_vectorization(x, [\"b\"], 2)"),
               "text_vectorization expects strings");
    mr_has_str(evaluate(1, "x => text_vectorization(\"a\", [\"b\"], 0)"), "output_sequence_length");
    mr_eq_str(evaluate(1, "x => hashing([\"a\", \"b\"], 10) == hash([\"a\", \"b\"], buckets=10)"),
              "[true, true]");
    mr_has_str(evaluate(1, "x => hashing(\"a\", num_bins=0)"), "num_bins");
    mr_has_str(evaluate(1, "x => text_vectorization(\"a\", [1], 2)"), "list of strings");
    mr_has_str(evaluate(1, "x => lookup(\"a\", [\"b\"], oov=-1)"), "oov must be");
}

MR_TEST(what_adapt_wrote_is_read)
{
    const char *path =
        mr_test_file("normalization.json", "{\"mean\": [1, 2], \"variance\": [4, 1]}");
    char directory[400];
    snprintf(directory, sizeof directory, "%.*s", (int)(strrchr(path, '/') - path), path);
    mr_eq_str(in_file(2, path, "x => normalization([x, 4], adapted=\"%s\")"),
              "[-0.5, 2.0]; [0.0, 2.0]");
    mr_eq_str(in_file(1, directory, "x => normalization([[1, 4], [3, 2]], adapted=\"%s\")"),
              "[[0.0, 2.0], [1.0, 0.0]]");
    mr_has_str(in_file(1, path, "x => normalization([1, 2, 3], adapted=\"%s\")"),
               "do not match an axis of 3");
    mr_has_str(in_file(1, path, "x => discretization(x, \"%s\")"), "no list \"boundaries\"");
    mr_has_str(in_file(1, directory, "x => discretization(x, \"%s\")"), "boundaries.json: cannot");
    path = mr_test_file("boundaries.json", "{\"boundaries\": [0.5, 2]}");
    mr_eq_str(in_file(3, path, "x => discretization(x, \"%s\")"), "0; 1; 2");
    mr_eq_str(in_file(3, directory, "x => discretization(x, \"%s\")"), "0; 1; 2");
    mr_has_str(in_file(1, path, "x => normalization(x, adapted=\"%s\")"), "no list \"mean\"");
    path = mr_test_file("flat.json", "{\"mean\": [1], \"variance\": [0]}");
    mr_eq_str(in_file(1, path, "x => normalization([x + 1], adapted=\"%s\")"), "[0.0]");
    path = mr_test_file("two.json", "{\"boundaries\": [1], \"boundaries\": [2]}");
    mr_has_str(in_file(1, path, "x => discretization(x, \"%s\")"), "it is not JSON");
    mr_test_file("vocabulary.txt", "a\nb\n");
    mr_eq_str(in_file(1, directory, "x => lookup([\"b\", \"z\"], \"%s\")"), "[2, 0]");
    path = mr_test_file("fall.json", "{\"boundaries\": [2, 2]}");
    mr_has_str(in_file(1, path, "x => discretization(x, \"%s\")"), "boundary 1 is 2");
    mr_has_str(evaluate(1, "x => discretization(x, \"\")"), "is empty or has a NUL byte");
}

/* /dev/zero never ends; a file of holes says its size. */
MR_TEST(a_file_that_is_too_large_is_an_error)
{
    const char *path = mr_test_file("large", "");
    mr_has_str(evaluate(1, "x => discretization(x, \"/dev/zero\")"),
               "/dev/zero: it has more than the 268435456 bytes");
    mr_eq_i64(truncate(path, (1 << 28) + 1), 0);
    mr_has_str(in_file(1, path, "x => normalization([x], adapted=\"%s\")"),
               "large: it has more than the 268435456 bytes");
    mr_eq_i64(truncate(path, (1 << 30) + 1), 0);
    mr_has_str(in_file(1, path, "x => lookup(\"a\", \"%s\")"),
               "large: it has more than the 1073741824 bytes");
}

MR_TEST(a_vocabulary_may_be_a_file)
{
    const char *path = mr_test_file("words", "b\na\r\n\nc d");
    mr_eq_str(in_file(1, path, "x => lookup([\"a\", \"b\", \"\", \"c d\", \"c\"], \"%s\")"),
              "[2, 1, 3, 4, 0]");
    mr_has_str(in_file(1, path, "x => lookup(x, \"%s\")"), "line 1 is not an integer");
    path = mr_test_file("mac", "\xEF\xBB\xBF"
                               "b\ra\r\n\nc d\r");
    mr_eq_str(in_file(1, path, "x => lookup([\"a\", \"b\", \"\", \"c d\", \"c\"], \"%s\")"),
              "[2, 1, 3, 4, 0]");
    path = mr_test_file("utf16", "\xFF\xFE"
                                 "b");
    mr_has_str(in_file(1, path, "x => lookup(\"a\", \"%s\")"), "the text is UTF-16");
    path = mr_test_file("numbers", "\xEF\xBB\xBF"
                                   "30\n-1\r1\n");
    mr_eq_str(in_file(2, path, "x => lookup(x, \"%s\")"), "0; 3");
    mr_eq_str(in_file(2, path, "x => lookup(x - 1, \"%s\", oov=0, default=7)"), "1; 7");
    path = mr_test_file("twice", "a\nb\na\n");
    mr_has_str(in_file(1, path, "x => lookup(\"a\", \"%s\")"), "line 3 is a duplicate");
    path = mr_test_file("empty", "");
    mr_eq_str(in_file(1, path, "x => lookup([\"a\", \"\"], \"%s\")"), "[0, 0]");
    mr_has_str(evaluate(2, "x => lookup(\"a\", \"/nowhere/words\")"),
               "!/nowhere/words: cannot open the file: No such file");
    mr_has_str(evaluate(1, "x => lookup(\"a\", \"az://b/words\")"),
               "!az://b/words: cannot open the file; local files and the schemes");
    mr_has_str(evaluate(1, "x => lookup(\"a\", \"\")"), "is empty or has a NUL byte");
}

MR_TEST(every_failed_call_for_a_vocabulary_is_reported)
{
    char f[1000];
    snprintf(f, sizeof f, "x => lookup([\"a\", \"b\"], \"%s\")", mr_test_file("faulty", "b\nc\n"));
    mr_fault_each(n, MR_FAULT_SYSTEM_CALL, EIO, false)
    {
        const char *shown = evaluate(1, f);
        mr_check(strcmp(shown, "[0, 1]") == 0 || strstr(shown, "cannot "));
    }
}

/* How many elements a graph has. */
static mr_code count(const char *graph, size_t *n, mr_status *st)
{
    mr_dataset *ds = NULL;
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    mr_code rc = mr_dataset_from_text(graph, strlen(graph), NULL, &ds, st);
    if (rc == MR_OK)
        rc = mr_iterator_open(&it, ds, &(mr_iterator_opts){.has_threads = true}, st);
    for (*n = 0; rc == MR_OK; *n += rc == MR_OK ? b.rows : 0)
        rc = mr_iterator_next(it, 100, &b, st);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    return rc;
}

MR_TEST(a_file_that_cannot_be_read_is_an_error_of_no_element)
{
    mr_status st;
    size_t n;
    mr_code rc =
        count("range(20000).map(x => lookup(\"a\", \"/nowhere/words\")).ignore_errors()", &n, &st);
    mr_code_is(rc, MR_NOT_FOUND, &st);
    mr_check(mr_status_is_of_no_element(&st));
    mr_has_str(st.message, "in lookup(\"a\", \"/nowhere/words\")");
    mr_eq_u64(n, 0);
}

MR_TEST(missing_memory_for_a_file_is_no_error_of_an_element)
{
    char graph[1000];
    snprintf(graph, sizeof graph, "range(3).map(x => lookup(\"c\", \"%s\")).ignore_errors()",
             mr_test_file("short", "b\nc\n"));
    mr_fault_each_allocation(k)
    {
        mr_status st;
        size_t n;
        mr_code rc = count(graph, &n, &st);
        if (rc == MR_END)
            mr_eq_u64(n, 3);
        else
            mr_fault_expect(rc, &st);
    }
}
