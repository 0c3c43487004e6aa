/* SPDX-License-Identifier: Apache-2.0 */
/* Every function at once: its descriptor is sound, its example runs; and functions that users
 * register, with parameters of every type. */
#include "pipeline/functions/descriptor.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "pipeline/engine/iterator.h"
#include "pipeline/formats/tfrecord/example.h"
#include "pipeline/formats/tfrecord/tfrecord.h"
#include "tests/fault.h"
#include "tests/harness.h"
#include "tests/pipeline/functions/evaluate.h"

static const mr_function *function_at(size_t i)
{
    const mr_function *f = mr_function_at(i);
    if (f)
        mr_test_context("function %s", f->form ? f->form : f->name);
    return f;
}

MR_TEST(descriptors_are_sound)
{
    const mr_function *f;
    for (size_t i = 0; (f = function_at(i)); i++) {
        mr_eq_u64(f->abi, MR_ABI_VERSION);
        mr_check(f->doc[strlen(f->doc) - 1] == '.');
        const char *written = strcmp(f->name, "[ ]") == 0   ? "]["
                              : strcmp(f->name, "[:]") == 0 ? "[:,"
                                                            : f->name;
        mr_has_str(f->example, written);
        if (f->form)
            mr_check(mr_function_find(f->name) == NULL);
        else
            mr_check(mr_function_find(f->name) == f);
        for (const mr_param *p = f->params; p->name; p++) {
            mr_check(p->doc[strlen(p->doc) - 1] == '.');
            mr_check(mr_param_input(p) || p->at < f->params_size);
        }
    }
    mr_check(mr_function_find("nonsense") == NULL);
}

static void write_records(const char *path, const char *junk_in_second)
{
    mr_status st;
    mr_tfrecord_writer *w = NULL;
    uint8_t *record = NULL;
    size_t room = 0, n = 0;
    const int64_t label = 7;
    const mr_bytes image = {"pixels", 6};
    const mr_example_value v[] = {{"image", 5, MR_STRING, &image, 1},
                                  {"label", 5, MR_INT64, &label, 1}};
    mr_ok(mr_example_encode(v, 2, &record, &room, &n, &st), &st);
    mr_ok(mr_tfrecord_writer_open(&w, path, NULL, &st), &st);
    for (int i = 0; i < 4; i++) {
        char all[256];
        size_t junk = i == 2 ? strlen(junk_in_second) : 0;
        memcpy(all, record, n);
        memcpy(all + n, junk_in_second, junk);
        mr_ok(mr_tfrecord_writer_append(w, all, n + junk, &st), &st);
    }
    mr_ok(mr_tfrecord_writer_close(w, &st), &st);
    mr_free(record);
}

/* The elements and errors of a pipeline, "!" before the text of an error. */
static const char *show(const char *text, const mr_iterator_opts *opts)
{
    static char buf[8192];
    mr_status st;
    mr_dataset *ds = NULL;
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    const mr_row_errors none = MR_ROW_ERRORS_EMPTY;
    size_t n = 0;
    buf[0] = '\0';
    mr_code rc = mr_dataset_from_text(text, strlen(text), NULL, &ds, &st);
    if (rc != MR_OK) {
        snprintf(buf, sizeof buf, "refused: %s", st.message);
        return buf;
    }
    mr_ok(mr_iterator_open(&it, ds, opts, &st), &st);
    while ((rc = mr_iterator_next(it, 1, &b, &st)) != MR_END) {
        n += (size_t)snprintf(buf + n, sizeof buf - n, "%s", n ? "; " : "");
        if (rc == MR_OK)
            evaluate_print(mr_dataset_spec(ds), &b, &none, buf + n, sizeof buf - n);
        else {
            snprintf(buf + n, sizeof buf - n, "!");
            mr_status_format(&st, buf + n + 1, sizeof buf - n - 1);
        }
        n += strlen(buf + n);
    }
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    return buf;
}

MR_TEST(every_example_runs)
{
    const mr_function *f;
    write_records(mr_test_path("train-0.tfrecord"), "");
    mr_check(chdir(mr_test_dir()) == 0);
    for (size_t i = 0; (f = function_at(i)); i++) {
        const char *shown = show(f->example, NULL);
        mr_check(*shown && !strchr(shown, '!') && !strstr(shown, "refused"));
    }
    mr_eq_str(show(mr_function_find("parse_example")->example, NULL),
              "{image: \"pixels\", label: 7}; {image: \"pixels\", label: 7}; "
              "{image: \"pixels\", label: 7}; {image: \"pixels\", label: 7}");
    mr_check(chdir("/") == 0);
}

MR_TEST(every_failed_allocation_of_every_example_is_reported)
{
    const mr_function *f;
    write_records(mr_test_path("train-0.tfrecord"), "");
    mr_check(chdir(mr_test_dir()) == 0);
    for (size_t i = 0; (f = function_at(i)); i++)
        mr_fault_each_allocation(n)
        {
            mr_dataset *ds = NULL;
            mr_iterator *it = NULL;
            mr_block b = MR_BLOCK_EMPTY;
            const mr_iterator_opts opts = {.has_threads = true};
            mr_status st;
            mr_code rc = mr_fault_expect(
                mr_dataset_from_text(f->example, strlen(f->example), NULL, &ds, &st), &st);
            if (rc == MR_OK)
                rc = mr_fault_expect(mr_iterator_open(&it, ds, &opts, &st), &st);
            while (rc == MR_OK)
                rc = mr_fault_expect(mr_iterator_next(it, 100, &b, &st), &st);
            mr_block_reset(&b);
            mr_iterator_close(it);
            mr_dataset_unref(ds);
            mr_buffer_pool_trim();
        }
    mr_check(chdir("/") == 0);
}

MR_TEST(arguments_go_by_place_or_by_name)
{
    mr_eq_str(evaluate(1, "x => reshape([1, 2], shape=[2, 1])"), "[[1], [2]]");
    mr_eq_str(evaluate(1, "x => reshape(shape=[2, 1], x=[1, 2])"), "[[1], [2]]");
    mr_eq_str(evaluate(2, "x => one_hot(x, n=2)"), "[1.0, 0.0]; [0.0, 1.0]");
    mr_eq_str(evaluate(1, "x => zeros([2], dtype=int64)"), "[0, 0]");
    mr_eq_str(evaluate(1, "x => zeros(dtype=\"bool\", shape=[2])"), "[false, false]");
    mr_eq_str(evaluate(2, "x => cast(x, dtype=float32)"), "0.0; 1.0");
    mr_eq_str(evaluate(2, "x => abs(x=x)"), "0; 1");
    mr_has_str(evaluate(1, "x => reshape([1], [1], x=[2])"), "x is given twice");
    mr_has_str(evaluate(1, "x => abs(x, y=2)"), "abs has no argument 'y'; it has x");
    mr_has_str(evaluate(1, "x => abs(x, 2)"), "abs takes no further argument here");
    mr_has_str(evaluate(1, "x => abs()"), "abs expects x; an example is range(3)");
    mr_has_str(evaluate(1, "x => one_hot(x)"), "one_hot expects n");
    mr_has_str(evaluate(1, "x => cast(x, \"float31\")"), "expected a dtype, as in \"float32\"");
    mr_has_str(evaluate(1, "x => cast(x, \"float31\")"), "column 14");
    mr_has_str(evaluate(1, "x => sum(\"a\")"), "sum expects numbers, not string");
    mr_has_str(evaluate(1, "x => [1, 2][[0]]"), "[ ] expects an integer, not int64[1]");
    mr_has_str(evaluate(1, "x => foo(x)"), "unknown function 'foo'; 'millrace ops' lists them");
    mr_has_str(evaluate(1, "x => reshap(x, [1])"), "did you mean 'reshape'?");
}

/* ---- a function of a user, with parameters of every type ---- */

struct everything {
    int64_t count;
    double scale;
    bool twice;
    char *word;
    mr_ints ints;
    mr_floats floats;
    mr_strs strs;
    mr_value value;
    mr_dtype dtype;
    mr_exprs exprs;
};

static mr_code type_everything(mr_call *c, mr_status *st)
{
    const struct everything *p = c->params;
    if (p->count == 13)
        return mr_call_fail(c, st, 0, "thirteen");
    mr_spec *parts[2] = {mr_spec_scalar(p->dtype), mr_spec_scalar(MR_STRING)};
    c->spec = mr_spec_record((const char *const[]){"number", "text"}, parts, 2);
    c->plan = mr_memdup("plan", 5);
    return c->spec && c->plan ? MR_OK : mr_fail_memory(st, 5, "a plan");
}

static mr_code run_everything(const mr_rows *r, mr_array *out, mr_status *st)
{
    const struct everything *p = r->params;
    char text[256];
    snprintf(text, sizeof text, "%s %lld %g %d %s %zu %zu %zu %d %zu%s", (const char *)r->plan,
             (long long)p->count, p->scale, p->twice, p->word, p->ints.n, p->floats.n, p->strs.n,
             p->value.kind == MR_V_UNSET, p->exprs.n,
             p->exprs.n && p->exprs.names[0] ? p->exprs.names[0] : "");
    mr_buffer *bytes = NULL;
    MR_TRY(mr_array_alloc(&out[0], MR_INT64, 0, NULL, r->rows, st));
    MR_TRY(mr_array_alloc(&out[1], MR_STRING, 0, NULL, r->rows, st));
    MR_TRY(mr_buffer_alloc(&bytes, strlen(text), st));
    memcpy(mr_buffer_data(bytes), text, strlen(text));
    for (size_t i = 0; i < r->rows; i++) {
        int64_t sum = 0;
        for (size_t k = 0; k < r->n; k++) {
            mr_check(!r->constant[k] && r->in[k].rows == r->rows);
            sum += ((const int64_t *)r->in[k].data)[i];
        }
        if (sum == 5)
            mr_row_fail(r, i, MR_OUT_OF_RANGE, "five");
        ((int64_t *)out[0].data)[i] = sum;
        ((mr_bytes *)out[1].data)[i] = (mr_bytes){mr_buffer_data(bytes), strlen(text)};
    }
    mr_code rc = mr_buffer_hold(out[1].owner, bytes, st);
    mr_buffer_unref(bytes);
    return rc;
}

#define OPTION(f, ...)                                                                             \
    {                                                                                              \
        .name = #f, .doc = "One.", .at = offsetof(struct everything, f), __VA_ARGS__               \
    }
static const mr_param everything_table[] = {
    MR_INPUT_WITH(mr_input_integers, "x", MR_P_VARIADIC | MR_P_ALIKE, "Integers."),
    OPTION(count, .type = MR_PT_I64, .def.i = 3, .min.i = 1, .max.i = 100),
    OPTION(scale, .type = MR_PT_F64, .def.f = 0.5),
    OPTION(twice, .type = MR_PT_BOOL, .def.b = true),
    OPTION(word, .type = MR_PT_STR, .def.s = "one",
           .names = (const char *const[]){"one", "two", NULL}),
    OPTION(ints, .type = MR_PT_INTS),
    OPTION(floats, .type = MR_PT_FLOATS),
    OPTION(strs, .type = MR_PT_STRS),
    OPTION(value, .type = MR_PT_VALUE),
    OPTION(dtype, .type = MR_PT_OWN, .kind = &mr_option_dtype, .def.s = "int64"),
    OPTION(exprs, .type = MR_PT_OWN, .kind = &mr_option_exprs, .flags = MR_P_VARIADIC),
    {0}};
static const mr_function everything = {
    .abi = MR_ABI_VERSION,
    .name = "test_everything",
    .doc = "All there is.",
    .example = "range(3).map(x => test_everything(x, 2))",
    .params = everything_table,
    .params_size = sizeof(struct everything),
    .type = type_everything,
    .free_plan = mr_free,
    .run = run_everything,
};

MR_TEST(users_register_functions)
{
    mr_status st;
    mr_ok(mr_function_register(&everything, &st), &st);
    mr_check(mr_function_find("test_everything") == &everything);
    mr_code_is(mr_function_register(&everything, &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(show(everything.example, NULL), "{number: 2, text: \"plan 3 0.5 1 one 0 0 0 1 0\"}");
    mr_eq_str(evaluate(1, "x => test_everything(x, 1, count=2 * 4, scale=2, twice=false, "
                          "word=\"two\", ints=[1, 2], floats=[0.5], strs=[\"a\", \"b\", \"c\"], "
                          "value=(1, \"a\"), name=x + 1)"),
              "{number: 1, text: \"plan 8 2 0 two 2 1 3 0 1name\"}");
    mr_eq_str(evaluate(3, "x => test_everything(x, 3)[\"number\"]"),
              "3; 4; !five in test_everything(x, 3)");
    mr_eq_str(evaluate(3, "x => test_everything(size(ones([x])), x, x)[\"number\"]"), "0; 3; 6");
    mr_has_str(evaluate(1, "x => test_everything(x, count=0)"), "count must be at least 1");
    mr_has_str(evaluate(1, "x => test_everything(x, count=0)"), "column 31");
    mr_has_str(evaluate(1, "x => test_everything(x, word=\"ONE\")"), "write \"one\"");
    mr_has_str(evaluate(1, "x => test_everything(x, count=13)"), "thirteen");
    mr_has_str(evaluate(1, "x => test_everything(x, count=x)"), "unknown name 'x'");
    mr_has_str(evaluate(1, "x => test_everything(x, cast(x, \"int32\"))"), "different types");
    mr_has_str(evaluate(1, "x => test_everything(1.5)"), "expects integers, not float32");
}

MR_TEST(bad_descriptors_are_refused)
{
    static const mr_param no_doc[] = {MR_INPUT(mr_input_tensor, "x", ""), {0}};
    static const mr_param after_variadic[] = {
        MR_INPUT_WITH(mr_input_tensor, "x", MR_P_VARIADIC, "One."),
        MR_INPUT(mr_input_tensor, "y", "Two."),
        {0}};
    mr_function f[10];
    for (size_t i = 0; i < 10; i++) {
        f[i] = everything;
        f[i].name = "test_refused";
    }
    f[0].abi = 99;
    f[1].name = "sum";
    f[2].name = "batch";
    f[3].name = "if";
    f[4].doc = "";
    f[5].params = no_doc;
    f[6].params = after_variadic;
    f[7].form = "a ? b";
    f[8].props |= 1u << 16; /* the library's own functions have it */
    f[9].props |= 1u << 31;
    for (size_t i = 0; i < 10; i++) {
        mr_status st;
        mr_test_context("descriptor %zu", i);
        mr_code_is(mr_function_register(&f[i], &st), MR_INVALID_ARGUMENT, &st);
        mr_check(st.message[0] != '\0');
    }
    mr_status st;
    mr_code_is(mr_function_register(NULL, &st), MR_INVALID_ARGUMENT, &st);
    mr_check(mr_function_find("test_refused") == NULL);
}

/* ---- places ---- */

MR_TEST(a_bad_record_is_named_with_its_file)
{
    /* A whole Example followed by another byte is not an Example. */
    static const char *const forms[] = {
        "tfrecord(\"%s\").map(x => parse_example(x, label=int64))",
        "tfrecord(\"%s\").batch(4).map(x => parse_example(x, label=int64))",
        "tfrecord(\"%s\").map(x => parse_example(x, label=int64), num_parallel_calls=2)"};
    const char *path = mr_test_path("junk.tfrecord");
    write_records(path, "\x07");
    for (size_t i = 0; i < 3; i++) {
        char text[1024], where[600];
        snprintf(text, sizeof text, forms[i], path);
        mr_test_context("%s", text);
        const char *shown = show(text, NULL);
        snprintf(where, sizeof where, "element %d: %s: record 2 at byte ", i == 1 ? 0 : 2, path);
        mr_has_str(shown, where);
        mr_has_str(shown, "in parse_example(x, label=int64)");
        if (i != 1)
            mr_has_str(shown, "{label: 7}; {label: 7}; !");
    }
}

MR_TEST(an_error_names_its_element)
{
    static const char *const forms[] = {"range(7).map(x => 6 // (x % 3))",
                                        "range(7).map(x => 6 // (x % 3), num_parallel_calls=2)",
                                        "range(7).map(x => 6 // (x % 3)).prefetch(2)"};
    for (size_t i = 0; i < 3; i++)
        for (int64_t block = 1; block < 5; block += 3) {
            const mr_iterator_opts opts = {.block_rows = block};
            const char *shown = show(forms[i], &opts);
            mr_test_context("%s in blocks of %d", forms[i], (int)block);
            mr_has_str(shown, "map: element 0: invalid argument: integer division by zero in 6 //");
            mr_has_str(shown, "; 6; 3; !");
            mr_has_str(shown, "map: element 3: invalid argument");
            mr_has_str(shown, "map: element 6: invalid argument");
        }
}

MR_TEST(an_element_keeps_its_number_over_a_restore)
{
    static const char text[] = "range(7).map(x => 6 // (x - 5))";
    mr_status st;
    mr_iterator *it = NULL, *again = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    void *position = NULL;
    size_t size = 0;
    mr_dataset *ds = mr_test_graph(text);
    const mr_iterator_opts opts = {.positions = true};
    mr_ok(mr_iterator_open(&it, ds, &opts, &st), &st);
    for (int i = 0; i < 3; i++)
        mr_ok(mr_iterator_next(it, 1, &b, &st), &st);
    mr_ok(mr_iterator_save(it, &position, &size, &st), &st);
    mr_ok(mr_iterator_open(&again, ds, &opts, &st), &st);
    mr_ok(mr_iterator_restore(again, position, size, &st), &st);
    while (mr_iterator_next(again, 1, &b, &st) == MR_OK)
        continue;
    mr_eq_i64(st.element, 5);
    mr_eq_i64(st.code, MR_INVALID_ARGUMENT);
    mr_free(position);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_iterator_close(again);
    mr_dataset_unref(ds);
}
