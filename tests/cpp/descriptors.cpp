// SPDX-License-Identifier: Apache-2.0
// pipeline/cpp/descriptors.hpp: rows equal to those of C, ops and functions written in C++.
#include "kit.hpp"
#include "rows.h"
#include <memory>
#include <system_error>

using kit::error_of;
using kit::numbers;
using kit::rest_of;
using millrace::dataset;
using millrace::iterator;

// ---- rows ----

static constexpr mr_param rows[] = {
    MR_ARG(all_types, count).range(1, INT64_MAX).doc("A number."),
    MR_PARAM(all_types, rate).def(0.5).range(-1, 1).doc("A rate."),
    MR_PARAM(all_types, on).def(true).doc("A switch."),
    MR_PARAM(all_types, maybe).def(true).doc("A switch, or neither."),
    MR_PARAM(all_types, word).def("first").names(rows_words).doc("A word."),
    MR_ARG(all_types, fn).doc("A function."),
    MR_ARG(all_types, value).doc("A value."),
    MR_PARAM(all_types, ints).range(-1, 9).doc("Integers."),
    MR_PARAM(all_types, floats).range(0.0, 0.25).doc("Numbers."),
    MR_ARG(all_types, strings).flags(MR_P_VARIADIC, MR_P_PATTERN).doc("Files."),
    MR_PARAM_OWN(all_types, dtype, mr_option_dtype, "A dtype."),
    MR_OPT(all_types, seed).has(offsetof(all_types, o.has_seed)).flags(MR_P_NONE).doc("A seed."),
    MR_OPT(all_types, again).def(true).doc("Once more."),
    MR_INPUT(mr_input_strings, "x", "An input."),
    MR_INPUT(rows_kind, "y", "Another.", MR_P_OPTIONAL, MR_P_ALIKE),
    {}};

static bool same_text(const char *a, const char *b)
{
    return a && b ? std::strcmp(a, b) == 0 : a == b;
}

// Whichever member the row's type uses.
static bool same(const mr_param &p, const mr_pval &a, const mr_pval &b)
{
    switch (p.type) {
    case MR_PT_F64:
    case MR_PT_FLOATS:
        return a.f == b.f;
    case MR_PT_BOOL:
    case MR_PT_TRI:
        return a.b == b.b;
    case MR_PT_STR:
        return same_text(a.s, b.s);
    default:
        return a.i == b.i;
    }
}

TEST(rows_equal_those_of_c)
{
    std::size_t n = 0;
    const mr_param *of_c = rows_of_c(&n);
    EXPECT(n == sizeof rows / sizeof *rows);
    for (std::size_t i = 0; i < n; i++) {
        const mr_param &a = rows[i], &b = of_c[i];
        const std::string name = b.name ? b.name : "the end";
        if (!same_text(a.name, b.name) || !same_text(a.doc, b.doc) || a.type != b.type ||
            a.flags != b.flags || a.at != b.at || a.has_at != b.has_at || !same(b, a.def, b.def) ||
            a.names != b.names || a.kind != b.kind)
            kit::failed(__FILE__, __LINE__, name + " differs");
        const bool ranges = b.type == MR_PT_I64 || b.type == MR_PT_F64 || b.type == MR_PT_INTS ||
                            b.type == MR_PT_FLOATS;
        if (ranges && (!same(b, a.min, b.min) || !same(b, a.max, b.max)))
            kit::failed(__FILE__, __LINE__, name + " has another range");
    }
}

// ---- an op whose state is a class ----

struct params {
    std::int64_t n;
    char *fails; // where it throws
};

static int alive;
struct counted {
    counted()
    {
        alive++;
    }
    ~counted()
    {
        alive--;
    }
    counted(const counted &) = delete;
    counted &operator=(const counted &) = delete;
    std::vector<std::int64_t> held = std::vector<std::int64_t>(100, 7);
    std::int64_t left = -1;
    std::uint64_t skipped = 0;
};

static bool fails(const mr_iter *it, const char *where)
{
    const char *chosen = millrace::params_of<params>(it).fails;
    return chosen && std::strcmp(chosen, where) == 0;
}

static void fail_as(const std::string &how)
{
    if (how == "error") {
        mr_status st;
        (void)mr_fail(&st, MR_DATA_LOSS, "lost");
        mr_status_at(&st, "a.txt", -1, 3);
        throw millrace::error(st);
    }
    if (how == "memory")
        throw std::bad_alloc();
    if (how == "argument")
        throw std::invalid_argument("an argument");
    if (how == "range")
        throw std::out_of_range("a range");
    if (how == "other")
        throw std::runtime_error("100% another");
    if (how == "number")
        throw 3;
}

static mr_code leading_check(const void *p, mr_status *)
{
    if (static_cast<const params *>(p)->n == 13)
        throw std::invalid_argument("13 brings bad luck");
    return MR_OK;
}

static mr_code leading_open(mr_iter *it, mr_status *)
{
    auto &s = millrace::state_of<counted>(it);
    if (s.held.size() != 100 || s.left != -1)
        throw std::logic_error("not constructed");
    if (fails(it, "open"))
        throw std::runtime_error("no opening");
    s.left = millrace::params_of<params>(it).n;
    return MR_OK;
}

static mr_code leading_next(mr_iter *it, std::size_t want, mr_block *out, mr_status *st)
{
    auto &s = millrace::state_of<counted>(it);
    if (s.left == 0)
        return MR_END;
    if (s.left == 2)
        if (const char *how = millrace::params_of<params>(it).fails) {
            s.left = 0;
            fail_as(how);
        }
    MR_TRY(mr_iter_pull(it, 0, s.left == 2 || want > 1 ? 1 : want, out, st));
    s.left--;
    return MR_OK;
}

static mr_code leading_skip(mr_iter *it, std::uint64_t n, std::uint64_t *skipped, mr_status *st)
{
    auto &s = millrace::state_of<counted>(it);
    const auto most = std::min(n, static_cast<std::uint64_t>(s.left));
    MR_TRY(mr_iter_skip_input(it, 0, most, skipped, st));
    s.left -= static_cast<std::int64_t>(*skipped);
    return MR_OK;
}

static mr_code leading_save(mr_iter *it, mr_state_w *w, mr_status *st)
{
    if (fails(it, "save"))
        throw std::runtime_error("no saving");
    MR_TRY(
        mr_state_put_u64(w, static_cast<std::uint64_t>(millrace::state_of<counted>(it).left), st));
    return mr_iter_save_input(it, 0, w, st);
}

static mr_code leading_restore(mr_iter *it, mr_state_r *r, mr_status *st)
{
    std::uint64_t left = 0;
    MR_TRY(mr_state_get_u64(r, &left, st));
    if (left > static_cast<std::uint64_t>(millrace::params_of<params>(it).n))
        return mr_state_damaged(st, "more are left than the op emits");
    millrace::state_of<counted>(it).left = static_cast<std::int64_t>(left);
    return mr_iter_restore_input(it, 0, r, st);
}

static int closed;
static void leading_close(mr_iter *it)
{
    if (millrace::state_of<counted>(it).held[99] == 7)
        closed++;
}

static std::int64_t leading_cardinality(const mr_dataset *, const void *p, const std::int64_t *in)
{
    const std::int64_t n = static_cast<const params *>(p)->n;
    return in[0] < 0 ? MR_UNKNOWN_COUNT : std::min(n, in[0]);
}

static constexpr mr_param table[] = {MR_ARG(params, n).range(0, 1000).doc("Elements to emit."),
                                     MR_PARAM(params, fails).doc("Where it fails, or how."),
                                     {}};
static constexpr mr_op leading = millrace::op<params, counted>("leading", "The first elements.")
                                     .example("range(5).leading(3)")
                                     .state_doc("the number of elements left")
                                     .table(table)
                                     .inputs(1)
                                     .role(MR_ROLE_PASS)
                                     .props(MR_OP_REORDERS)
                                     .check<leading_check>()
                                     .cardinality<leading_cardinality>()
                                     .open<leading_open>()
                                     .next<leading_next>()
                                     .skip<leading_skip>()
                                     .save<leading_save>()
                                     .restore<leading_restore>()
                                     .close<leading_close>();
static_assert(leading.abi == MR_ABI_VERSION && leading.params_size == sizeof(params));
static_assert(leading.min_inputs == 1 && leading.max_inputs == 1);
static_assert(leading.iter_size > sizeof(counted));

// ---- ops whose state is plain, or has only initial values, and one without ----

struct plain {
    std::int64_t at;
};
static mr_code plain_open(mr_iter *it, mr_status *)
{
    return millrace::state_of<plain>(it).at == 0 ? MR_OK : MR_INTERNAL; // zeroed
}
static mr_code plain_infer(const mr_dataset *, const void *, mr_spec **out, mr_status *)
{
    *out = mr_spec_scalar(MR_INT64);
    if (!*out)
        throw std::bad_alloc();
    return MR_OK;
}
static mr_code plain_next(mr_iter *it, std::size_t, mr_block *out, mr_status *st)
{
    auto &s = millrace::state_of<plain>(it);
    if (s.at == 3)
        return MR_END;
    MR_TRY(mr_block_prepare(out, 1, st));
    MR_TRY(mr_array_alloc(&out->columns[0], MR_INT64, 0, nullptr, 1, st));
    *static_cast<std::int64_t *>(out->columns[0].data) = s.at++;
    out->rows = 1;
    return MR_OK;
}
static int plain_closed;
static void plain_close(mr_iter *)
{
    plain_closed++;
}
static constexpr mr_op three = millrace::op<void, plain>("three", "Three numbers.")
                                   .example("three()")
                                   .inputs(0)
                                   .role(MR_ROLE_SOURCE)
                                   .infer<plain_infer>()
                                   .open<plain_open>()
                                   .next<plain_next>()
                                   .close<plain_close>();
static_assert(three.params_size == 0 && three.iter_size == sizeof(plain));

struct initial {
    std::int64_t left = 2;
};
static mr_code initial_next(mr_iter *it, std::size_t, mr_block *out, mr_status *st)
{
    auto &s = millrace::state_of<initial>(it);
    if (s.left == 0)
        return MR_END;
    MR_TRY(mr_iter_pull(it, 0, 1, out, st));
    s.left--;
    return MR_OK;
}
static constexpr mr_op two = millrace::op<void, initial>("two", "The first two elements.")
                                 .example("range(5).two()")
                                 .inputs(1)
                                 .role(MR_ROLE_PASS)
                                 .next<initial_next>();

static mr_code through_next(mr_iter *it, std::size_t want, mr_block *out, mr_status *st) noexcept
{
    return mr_iter_pull(it, 0, want, out, st);
}
static constexpr mr_op through = millrace::op("through", "The elements.")
                                     .example("range(5).through()")
                                     .inputs(1)
                                     .role(MR_ROLE_PASS)
                                     .props(MR_OP_KEEPS_COUNT)
                                     .next<through_next>();
static_assert(through.iter_size == 0 && !through.open && !through.close);

// ---- a function with options and a plan ----

struct power_options {
    std::int64_t exponent;
    bool negates;
};
static int plans;
static mr_code power_type(mr_call *c, mr_status *)
{
    const auto &o = *static_cast<const power_options *>(c->params);
    if (o.exponent == 13)
        throw std::invalid_argument("13 brings bad luck");
    c->out = *c->in[0];
    c->plan = new std::vector<double>(1, o.negates ? -1.0 : 1.0);
    plans++;
    return MR_OK;
}
static void power_free(void *plan)
{
    plans -= plan != nullptr;
    delete static_cast<std::vector<double> *>(plan);
}
static mr_code power_run(const mr_rows *r, mr_array *out, mr_status *st)
{
    const auto &o = *static_cast<const power_options *>(r->params);
    const mr_array &in = r->in[0];
    MR_TRY(mr_array_alloc(out, MR_FLOAT64, in.rank, in.shape, r->rows, st));
    auto *y = static_cast<double *>(out->data);
    for (double x : millrace::column(in).all<double>()) {
        double power = static_cast<const std::vector<double> *>(r->plan)->front();
        for (std::int64_t k = 0; k < o.exponent; k++)
            power *= x;
        *y++ = power;
    }
    if (o.exponent == 99)
        throw std::runtime_error("too large");
    return MR_OK;
}
static constexpr mr_input_kind doubles = {
    {}, "numbers as float64", MR_DTYPE_BIT(MR_FLOAT64), false, false};
static constexpr mr_param power_table[] = {
    MR_INPUT(doubles, "x", "The base."),
    MR_PARAM(power_options, exponent).def(2).range(0, 99).doc("The exponent."),
    MR_PARAM(power_options, negates).doc("Returns the negated power."),
    {}};
static constexpr mr_function power = millrace::function<power_options>("int_power", "A power.")
                                         .example("range(3).map(x => int_power(x / 1))")
                                         .table(power_table)
                                         .type<power_type>()
                                         .run<power_run>()
                                         .free_plan<power_free>();

static numbers run(const std::string &text)
{
    iterator it(dataset::from_text(text));
    return rest_of(it);
}

TEST(an_op_in_cpp_runs_in_graphs)
{
    EXPECT(run("range(9).leading(3)") == numbers{0, 1, 2});
    EXPECT(run("range(2).leading(3)") == numbers{0, 1});
    EXPECT(run("range(9).leading(0)").empty());
    EXPECT(run("range(9).leading(5).skip(3)") == numbers{3, 4});
    EXPECT(run("range(9).leading(3).repeat(2).batch(4)") == numbers{0, 1, 2, 0, 1, 2});
    EXPECT(run("three()") == numbers{0, 1, 2});
    EXPECT(run("range(9).two()") == numbers{0, 1});
    EXPECT(run("range(3).through()") == numbers{0, 1, 2});
    EXPECT(dataset::from_text("range(9).leading(4)").cardinality() == 4);
    EXPECT(dataset::from_text("range(9).through()").cardinality() == 9);
    EXPECT(dataset::from_text("range(9).leading(4)").text() == "range(9).leading(4)");
    EXPECT(plain_closed == 1);
}

TEST(a_constructor_in_cpp_makes_a_node)
{
    mr_dataset *input = mr_range(0, 9, 1);
    params p{};
    p.n = 2;
    iterator it(dataset(mr_dataset_new(&leading, &p, &input, 1)));
    EXPECT(rest_of(it) == numbers{0, 1});
}

TEST(state_of_a_class_is_destroyed_with_its_iterator)
{
    EXPECT(alive == 0);
    closed = 0;
    {
        iterator it(dataset::from_text("range(9).leading(3)"));
        EXPECT(alive == 1);
    }
    EXPECT(alive == 0 && closed == 1);
    // Its open fails, after the state was made.
    millrace::error e = error_of([] { run("range(9).leading(3, fails=\"open\")"); });
    EXPECT(e.code() == MR_UNKNOWN && std::string(e.message()) == "no opening");
    EXPECT(std::string(e.status().op) == "leading");
    EXPECT(alive == 0 && closed == 2);
    // That of its input does, so that it has no state when it is closed.
    e = error_of([] { run("range(9).leading(3, fails=\"open\").leading(3)"); });
    EXPECT(std::string(e.status().op) == "leading/leading");
    EXPECT(alive == 0 && closed == 3);
}

TEST(positions_of_an_op_in_cpp)
{
    mr_iterator_opts opts{};
    opts.positions = true;
    const dataset ds = dataset::from_text("range(9).leading(5)");
    for (int k = 1; k < 5; k++) {
        iterator it(ds, opts), later(ds);
        millrace::block b;
        for (int i = 0; i < k; i++)
            EXPECT(it.next(b));
        later.restore(it.save());
        EXPECT(rest_of(later) == rest_of(it));
    }
    iterator it(dataset::from_text("range(9).leading(5, fails=\"save\")"), opts);
    millrace::block b;
    EXPECT(error_of([&] {
               it.next(b);
               it.save();
           }).code() == MR_UNKNOWN);
}

TEST(exceptions_become_the_error_of_the_element)
{
    struct {
        const char *how;
        mr_code code;
        const char *message;
    } const cases[] = {{"error", MR_DATA_LOSS, "lost"},
                       {"argument", MR_INVALID_ARGUMENT, "an argument"},
                       {"range", MR_OUT_OF_RANGE, "a range"},
                       {"other", MR_UNKNOWN, "100% another"},
                       {"number", MR_UNKNOWN, "an exception that is not a std::exception"}};
    for (const auto &c : cases) {
        iterator it(
            dataset::from_text("range(9).leading(4, fails=\"" + std::string(c.how) + "\")"));
        millrace::block b;
        EXPECT(it.next(b) && it.next(b));
        millrace::error e = error_of([&] { it.next(b); });
        EXPECT(e.code() == c.code && std::string(e.message()) == c.message);
        EXPECT(e.status().record == (c.code == MR_DATA_LOSS ? 3 : -1));
        EXPECT(!it.next(b));
    }
    iterator it(dataset::from_text("range(9).leading(4, fails=\"memory\")"));
    millrace::block b;
    EXPECT(it.next(b) && it.next(b));
    millrace::error e = error_of([&] { it.next(b); });
    EXPECT(e.code() == MR_RESOURCE_EXHAUSTED && e.status().sys_errno == ENOMEM);
    e = error_of([] { dataset::from_text("range(9).leading(13)"); });
    EXPECT(e.code() == MR_INVALID_ARGUMENT && std::strstr(e.message(), "13 brings bad luck"));
    e = error_of([] { dataset::from_text("range(9).leading(-1)"); });
    EXPECT(std::strstr(e.message(), "n must be at least 0, not -1"));
}

TEST(a_function_in_cpp_runs_in_expressions)
{
    auto values = [](const char *text) {
        std::vector<double> seen;
        iterator it(dataset::from_text(text));
        for (const millrace::block &b : it.blocks(4))
            for (double x : b.column(0).all<double>())
                seen.push_back(x);
        return seen;
    };
    EXPECT(values("range(4).map(x => int_power(x / 1))") == std::vector<double>{0, 1, 4, 9});
    EXPECT(values("range(3).map(x => int_power(x / 1, exponent=3, negates=true))") ==
           std::vector<double>{-0.0, -1, -8});
    EXPECT(error_of([] {
               dataset::from_text("range(4).map(x => int_power(x / 1, exponent=13))");
           }).code() == MR_INVALID_ARGUMENT);
    millrace::error e =
        error_of([&] { values("range(4).map(x => int_power(x / 1, exponent=99))"); });
    EXPECT(e.code() == MR_UNKNOWN && std::strstr(e.message(), "too large"));
    e = error_of([] { dataset::from_text("range(4).map(x => int_power(x))"); });
    EXPECT(std::strstr(e.message(), "numbers as float64"));
    EXPECT(plans == 0);
}

int main()
{
    millrace::status st;
    for (const mr_op *op : {&leading, &three, &two, &through})
        st.check(mr_op_register(op, st.get()));
    st.check(mr_function_register(&power, st.get()));
    return kit::run("descriptors");
}
