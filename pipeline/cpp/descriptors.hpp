/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_CPP_DESCRIPTORS_HPP
#define MR_PIPELINE_CPP_DESCRIPTORS_HPP
/* Descriptors of ops and functions in C++17: constants, as in C. The rows of a parameter table have
 * the macros of C, which name the struct and the field; methods set the rest. Name and type of a
 * row come from the field, so that both always agree.
 *
 *     struct params {
 *         std::int64_t count;
 *     };
 *     static constexpr mr_param table[] = {
 *         MR_ARG(params, count).range(0, INT64_MAX).doc("Elements to emit."), {}};
 *     static constexpr mr_op first = millrace::op<params, state>("first", "Emits the first ones.")
 *         .example("range(5).first(3)")
 *         .table(table)
 *         .inputs(1)
 *         .role(MR_ROLE_PASS)
 *         .open<first_open>()
 *         .next<first_next>();
 *
 * first_open and first_next are the functions that op_iterator.h describes, with the same arguments
 * (and with names that <unistd.h> does not use). They may throw: the exception becomes the status,
 * millrace::error as it is and std::bad_alloc as a lack of memory. The state may be a class: it is
 * constructed before `open` and destroyed after `close`. params_of and state_of return both as what
 * they are.
 *
 *     static mr_code first_next(mr_iter *it, std::size_t want, mr_block *out, mr_status *st)
 *     {
 *         state &s = millrace::state_of<state>(it);
 *
 * examples/cpp/own_op.cpp is a complete plugin.
 *
 * thread   descriptors are static and immutable
 * since    0.2 */
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <new>
#include <stdexcept>
#include <tuple>
#include <type_traits>
#include <utility>
#include "../engine/op_iterator.h"
#include "../functions/descriptor.h"
#include "../graph/op.h"
#include "objects.hpp"

namespace millrace
{

/* ---- rows of parameter tables ---- */

/* The row of a field of type Field; a method returns the row with one more part set. */
template <class Field> class row
{
  public:
    constexpr row(const char *name, std::size_t at, int flags) noexcept
        : p_{name,
             nullptr,
             type(),
             static_cast<std::uint16_t>(flags),
             static_cast<std::uint32_t>(at),
             0,
             mr_pval(),
             mr_pval(),
             mr_pval(),
             nullptr,
             nullptr}
    {
    }
    constexpr operator mr_param() const noexcept
    {
        return p_;
    }

    constexpr row doc(const char *sentence) const noexcept
    {
        return {p_, sentence, p_.flags, p_.has_at, p_.def, p_.min, p_.max, p_.names};
    }
    /* More flags MR_P_... than those of the macro. */
    template <class... Flags> constexpr row flags(Flags... more) const noexcept
    {
        const auto all = static_cast<std::uint16_t>((int{p_.flags} | ... | int{more}));
        return {p_, p_.doc, all, p_.has_at, p_.def, p_.min, p_.max, p_.names};
    }
    /* The offset of the field's has_ bool: offsetof(T, has_f). */
    constexpr row has(std::size_t at) const noexcept
    {
        return {p_,     p_.doc, p_.flags, static_cast<std::uint32_t>(at),
                p_.def, p_.min, p_.max,   p_.names};
    }
    /* The default: an integer, a number, a bool (also for mr_tri) or a word. */
    template <class V> constexpr row def(V value) const noexcept
    {
        static_assert(!is_list(), "a list has no default");
        return {p_, p_.doc, p_.flags, p_.has_at, of(value), p_.min, p_.max, p_.names};
    }
    /* The values allowed, both ends included: of integers and numbers, and of lists of them. */
    template <class V, class W> constexpr row range(V least, W most) const noexcept
    {
        static_assert(type() == MR_PT_I64 || type() == MR_PT_F64 || type() == MR_PT_INTS ||
                          type() == MR_PT_FLOATS,
                      "only numbers have a range");
        return {p_, p_.doc, p_.flags, p_.has_at, p_.def, of(least), of(most), p_.names};
    }
    /* The words allowed, which nullptr ends. */
    constexpr row names(const char *const *words) const noexcept
    {
        static_assert(type() == MR_PT_STR, "only strings have names");
        return {p_, p_.doc, p_.flags, p_.has_at, p_.def, p_.min, p_.max, words};
    }

  private:
    constexpr row(const mr_param &p, const char *sentence, std::uint16_t flags,
                  std::uint32_t has_at, mr_pval def, mr_pval min, mr_pval max,
                  const char *const *words) noexcept
        : p_{p.name, sentence, p.type, flags, p.at, has_at, def, min, max, words, p.kind}
    {
    }
    template <class T> static constexpr bool is = std::is_same_v<Field, T>;
    static constexpr bool is_list() noexcept
    {
        return is<mr_ints> || is<mr_floats> || is<mr_strs>;
    }
    static constexpr mr_ptype type() noexcept
    {
        static_assert(is<std::int64_t> || is<double> || is<bool> || is<mr_tri> || is<char *> ||
                          is<mr_fn *> || is<mr_value> || is_list(),
                      "a parameter is an int64_t, double, bool, mr_tri, char *, mr_fn *, mr_value, "
                      "mr_ints, mr_floats or mr_strs");
        return is<std::int64_t> ? MR_PT_I64
               : is<double>     ? MR_PT_F64
               : is<bool>       ? MR_PT_BOOL
               : is<mr_tri>     ? MR_PT_TRI
               : is<char *>     ? MR_PT_STR
               : is<mr_fn *>    ? MR_PT_FN
               : is<mr_value>   ? MR_PT_VALUE
               : is<mr_ints>    ? MR_PT_INTS
               : is<mr_floats>  ? MR_PT_FLOATS
                                : MR_PT_STRS;
    }
    template <class V> static constexpr mr_pval of(V value) noexcept
    {
        if constexpr (is<double> || is<mr_floats>) {
            static_assert(std::is_arithmetic_v<V>, "a number");
            return mr_pval(static_cast<double>(value));
        } else if constexpr (is<bool> || is<mr_tri>) {
            static_assert(std::is_same_v<V, bool>, "true or false");
            return mr_pval(value);
        } else if constexpr (is<char *>) {
            return mr_pval(static_cast<const char *>(value));
        } else {
            static_assert(std::is_integral_v<V> && !std::is_same_v<V, bool>, "an integer");
            return mr_pval(static_cast<std::int64_t>(value));
        }
    }
    mr_param p_;
};

/* The row of an input of a function, with more flags than MR_P_POSITIONAL. */
template <class... Flags>
constexpr mr_param input(const mr_input_kind &kind, const char *name, const char *doc,
                         Flags... more) noexcept
{
    return {name,       doc,
            MR_PT_OWN,  static_cast<std::uint16_t>((int{MR_P_POSITIONAL} | ... | int{more})),
            0,          0,
            mr_pval(),  mr_pval(),
            mr_pval(),  nullptr,
            &kind.param};
}
/* The row of an option of a type that `kind` reads. */
constexpr mr_param own(const mr_param_kind &kind, const char *name, const char *doc, std::size_t at,
                       int flags = MR_P_OPTIONAL) noexcept
{
    return {name,
            doc,
            MR_PT_OWN,
            static_cast<std::uint16_t>(flags),
            static_cast<std::uint32_t>(at),
            0,
            mr_pval(),
            mr_pval(),
            mr_pval(),
            nullptr,
            &kind};
}

/* Field f of struct T, with flags `with`. */
#define MR_PARAM_WITH(T, f, with)                                                                  \
    (::millrace::row<decltype(::std::declval<T &>().f)>(#f, offsetof(T, f), with))
/* A required parameter; an optional one, given by position or by name. */
#define MR_ARG(T, f)   MR_PARAM_WITH(T, f, MR_P_POSITIONAL)
#define MR_PARAM(T, f) MR_PARAM_WITH(T, f, MR_P_OPTIONAL)
/* An option, given by name: field o.f of struct T. */
#define MR_OPT(T, f) (::millrace::row<decltype(::std::declval<T &>().o.f)>(#f, offsetof(T, o.f), 0))
/* An optional parameter of a custom type: k is an mr_param_kind, d its doc. */
#define MR_PARAM_OWN(T, f, k, d) (::millrace::own(k, #f, d, offsetof(T, f)))
/* An input of a function: k is an mr_input_kind, n its name, then its doc and any flags:
 * MR_INPUT(mr_input_numbers, "x", "Any numbers.", MR_P_OPTIONAL, MR_P_ALIKE). */
#define MR_INPUT(k, n, ...) (::millrace::input(k, n, __VA_ARGS__))

/* ---- exceptions and state, which C does not know ---- */

namespace detail
{

/* The status of the exception that is being handled. */
inline mr_code caught(mr_status *st) noexcept
{
    try {
        throw;
    } catch (const error &e) {
        if (st)
            *st = e.status();
        return e.code();
    } catch (const std::bad_alloc &) {
        return mr_fail_errno(st, ENOMEM, "an object of C++");
    } catch (const std::invalid_argument &e) {
        return mr_fail(st, MR_INVALID_ARGUMENT, "%s", e.what());
    } catch (const std::out_of_range &e) {
        return mr_fail(st, MR_OUT_OF_RANGE, "%s", e.what());
    } catch (const std::exception &e) {
        return mr_fail(st, MR_UNKNOWN, "%s", e.what());
    } catch (...) {
        return mr_fail(st, MR_UNKNOWN, "an exception that is not a std::exception");
    }
}

/* F for callers that know no exceptions; its last argument is an mr_status *. */
template <auto F, class... A> struct guard {
    static mr_code call(A... a) noexcept
    {
        try {
            return F(a...);
        } catch (...) {
            return caught(std::get<sizeof...(A) - 1>(std::tie(a...)));
        }
    }
};
template <auto F, class... A> constexpr auto guarded(mr_code (*)(A...)) noexcept
{
    return &guard<F, A...>::call;
}

/* F for callers that know no exceptions: one ends the program. */
template <auto F, class R, class... A> struct sealed {
    static R call(A... a) noexcept
    {
        return F(a...);
    }
};
template <auto F, class R, class... A> constexpr auto unfailing(R (*)(A...)) noexcept
{
    return &sealed<F, R, A...>::call;
}

/* A state that must be constructed is followed by a byte that is 1 while it exists: the engine
 * closes an iterator that it could not open, too. */
template <class State>
constexpr bool is_plain =
    std::is_trivially_default_constructible_v<State> &&std::is_trivially_destructible_v<State>;
template <class State> unsigned char &exists(mr_iter *it) noexcept
{
    return static_cast<unsigned char *>(it->state)[sizeof(State)];
}
template <class State, auto Open> mr_code open(mr_iter *it, mr_status *st) noexcept
{
    try {
        ::new (it->state) State();
        exists<State>(it) = 1;
        if constexpr (!std::is_null_pointer_v<decltype(Open)>)
            return Open(it, st);
        else
            return MR_OK;
    } catch (...) {
        return caught(st);
    }
}
template <class State, auto Close> void close(mr_iter *it) noexcept
{
    if (!exists<State>(it))
        return;
    if constexpr (!std::is_null_pointer_v<decltype(Close)>)
        Close(it);
    std::launder(static_cast<State *>(it->state))->~State();
}

} // namespace detail

/* The parameters of an iterator's op, and its state. */
template <class Params> const Params &params_of(const mr_iter *it) noexcept
{
    return *static_cast<const Params *>(it->params);
}
template <class State> State &state_of(const mr_iter *it) noexcept
{
    return *std::launder(static_cast<State *>(it->state));
}

/* ---- ops ---- */

/* The descriptor of an op with this struct of parameters and this state of an iterator; void: it
 * has none. The methods are named after the fields of mr_op (graph/op.h). */
template <class Params = void, class State = void> class op
{
  public:
    constexpr op(const char *name, const char *doc) noexcept
    {
        d_.abi = MR_ABI_VERSION;
        d_.name = name;
        d_.doc = doc;
        if constexpr (!std::is_void_v<Params>) {
            static_assert(std::is_standard_layout_v<Params> && std::is_trivially_copyable_v<Params>,
                          "parameters are copied as bytes");
            d_.params_size = sizeof(Params);
        }
        if constexpr (!std::is_void_v<State>) {
            static_assert(alignof(State) <= alignof(std::max_align_t),
                          "the engine's memory is not aligned that much");
            d_.iter_size = sizeof(State) + !detail::is_plain<State>;
            if constexpr (!detail::is_plain<State>) {
                d_.open = detail::open<State, nullptr>;
                d_.close = detail::close<State, nullptr>;
            }
        }
    }
    constexpr operator mr_op() const noexcept
    {
        return d_;
    }

    constexpr op example(const char *text) const noexcept
    {
        return with(&mr_op::example, text);
    }
    constexpr op order_doc(const char *phrase) const noexcept
    {
        return with(&mr_op::order_doc, phrase);
    }
    constexpr op memory_doc(const char *phrase) const noexcept
    {
        return with(&mr_op::memory_doc, phrase);
    }
    constexpr op state_doc(const char *phrase) const noexcept
    {
        return with(&mr_op::state_doc, phrase);
    }
    constexpr op count_doc(const char *phrase) const noexcept
    {
        return with(&mr_op::count_doc, phrase);
    }
    constexpr op table(const mr_param *params) const noexcept
    {
        static_assert(!std::is_void_v<Params>, "name the struct of the parameters: op<Params>");
        return with(&mr_op::params, params);
    }
    constexpr op inputs(int n) const noexcept
    {
        return inputs(n, n);
    }
    constexpr op inputs(int least, int most) const noexcept // most -1: any number
    {
        return with(&mr_op::min_inputs, static_cast<std::int8_t>(least))
            .with(&mr_op::max_inputs, static_cast<std::int8_t>(most));
    }
    constexpr op role(mr_role role) const noexcept
    {
        return with(&mr_op::role, role);
    }
    constexpr op props(unsigned bits) const noexcept
    {
        return with(&mr_op::props, static_cast<std::uint32_t>(bits));
    }
    constexpr op kind(const void *kind) const noexcept
    {
        return with(&mr_op::kind, kind);
    }

    /* Functions whose exceptions become the status. */
    template <auto F> constexpr op check() const noexcept
    {
        return with(&mr_op::check, detail::guarded<F>(F));
    }
    template <auto F> constexpr op infer() const noexcept
    {
        return with(&mr_op::infer, detail::guarded<F>(F));
    }
    template <auto F> constexpr op open() const noexcept
    {
        if constexpr (std::is_void_v<State>)
            return with(&mr_op::open, detail::guarded<F>(F));
        else if constexpr (detail::is_plain<State>)
            return with(&mr_op::open, detail::guarded<F>(F));
        else
            return with(&mr_op::open, &detail::open<State, F>);
    }
    template <auto F> constexpr op next() const noexcept
    {
        return with(&mr_op::next, detail::guarded<F>(F));
    }
    template <auto F> constexpr op skip() const noexcept
    {
        return with(&mr_op::skip, detail::guarded<F>(F));
    }
    template <auto F> constexpr op save() const noexcept
    {
        return with(&mr_op::save, detail::guarded<F>(F));
    }
    template <auto F> constexpr op restore() const noexcept
    {
        return with(&mr_op::restore, detail::guarded<F>(F));
    }
    template <auto F> constexpr op save_shared() const noexcept
    {
        return with(&mr_op::save_shared, detail::guarded<F>(F));
    }
    template <auto F> constexpr op restore_shared() const noexcept
    {
        return with(&mr_op::restore_shared, detail::guarded<F>(F));
    }
    /* Functions that cannot fail: an exception ends the program. */
    template <auto F> constexpr op close() const noexcept
    {
        if constexpr (std::is_void_v<State>)
            return with(&mr_op::close, detail::unfailing<F>(F));
        else if constexpr (detail::is_plain<State>)
            return with(&mr_op::close, detail::unfailing<F>(F));
        else
            return with(&mr_op::close, &detail::close<State, F>);
    }
    template <auto F> constexpr op cardinality() const noexcept
    {
        return with(&mr_op::cardinality, detail::unfailing<F>(F));
    }
    template <auto F> constexpr op needs() const noexcept
    {
        return with(&mr_op::needs, detail::unfailing<F>(F));
    }

  private:
    template <class M, class V> constexpr op with(M mr_op::*member, V value) const noexcept
    {
        op copy = *this;
        copy.d_.*member = value;
        return copy;
    }
    mr_op d_ = mr_op();
};

/* ---- functions ---- */

/* The descriptor of a function of expressions with this struct of options; void: it has none. The
 * methods are named after the fields of mr_function (functions/descriptor.h). */
template <class Options = void> class function
{
  public:
    constexpr function(const char *name, const char *doc) noexcept
    {
        d_.abi = MR_ABI_VERSION;
        d_.name = name;
        d_.doc = doc;
        if constexpr (!std::is_void_v<Options>) {
            static_assert(std::is_standard_layout_v<Options> &&
                              std::is_trivially_copyable_v<Options>,
                          "options are copied as bytes");
            d_.params_size = sizeof(Options);
        }
    }
    constexpr operator mr_function() const noexcept
    {
        return d_;
    }

    constexpr function example(const char *pipeline) const noexcept
    {
        return with(&mr_function::example, pipeline);
    }
    constexpr function table(const mr_param *params) const noexcept
    {
        return with(&mr_function::params, params);
    }
    constexpr function form(const char *text) const noexcept
    {
        return with(&mr_function::form, text);
    }
    constexpr function props(unsigned bits) const noexcept
    {
        return with(&mr_function::props, static_cast<std::uint32_t>(bits));
    }
    constexpr function family(const void *data) const noexcept
    {
        return with(&mr_function::family, data);
    }
    /* Functions whose exceptions become the status; in run, one for all of its rows. */
    template <auto F> constexpr function type() const noexcept
    {
        return with(&mr_function::type, detail::guarded<F>(F));
    }
    template <auto F> constexpr function run() const noexcept
    {
        return with(&mr_function::run, detail::guarded<F>(F));
    }
    /* Functions that cannot fail: an exception ends the program. */
    template <auto F> constexpr function free_plan() const noexcept
    {
        return with(&mr_function::free_plan, detail::unfailing<F>(F));
    }
    template <auto F> constexpr function shrink() const noexcept
    {
        return with(&mr_function::shrink, detail::unfailing<F>(F));
    }

  private:
    template <class M, class V>
    constexpr function with(M mr_function::*member, V value) const noexcept
    {
        function copy = *this;
        copy.d_.*member = value;
        return copy;
    }
    mr_function d_ = mr_function();
};

} // namespace millrace
#endif
