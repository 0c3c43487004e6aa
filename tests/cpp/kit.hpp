// SPDX-License-Identifier: Apache-2.0
// Tests of the C++ headers: TEST(name) { EXPECT(...); }, and a main that runs them and prints TAP.
#ifndef MR_TESTS_CPP_KIT_HPP
#define MR_TESTS_CPP_KIT_HPP
#include <millrace/millrace.hpp>
#include <cstring>
#include <functional>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

namespace kit
{

using tests = std::vector<std::pair<const char *, void (*)()>>;
inline tests &all()
{
    static tests list;
    return list;
}
struct added {
    added(const char *name, void (*run)())
    {
        all().emplace_back(name, run);
    }
};
[[noreturn]] inline void failed(const char *file, int line, const std::string &what)
{
    throw std::logic_error(std::string(file) + ":" + std::to_string(line) + ": " + what);
}
inline int run(const char *suite)
{
    int failures = 0;
    for (auto [name, test] : all()) {
        std::string why;
        try {
            test();
        } catch (const std::exception &e) {
            why = e.what();
            failures++;
        }
        std::cout << (why.empty() ? "ok" : "not ok") << " - cpp::" << suite << "::" << name << '\n';
        if (!why.empty())
            std::cerr << "FAILED " << suite << "::" << name << ": " << why << '\n';
    }
    return failures > 0;
}
// The error that `work` throws; none: a failure of the test.
inline millrace::error error_of(const std::function<void()> &work)
{
    try {
        work();
    } catch (const millrace::error &e) {
        return e;
    }
    throw std::logic_error("no error was thrown");
}

// All values of the first column of the remaining blocks.
inline std::vector<std::int64_t> rest_of(millrace::iterator &it, std::size_t want = 3)
{
    std::vector<std::int64_t> seen;
    for (const millrace::block &b : it.blocks(want))
        for (std::int64_t x : b.column(0).all<std::int64_t>())
            seen.push_back(x);
    return seen;
}
using numbers = std::vector<std::int64_t>;

} // namespace kit

#define TEST(name)                                                                                 \
    static void name();                                                                            \
    static const kit::added added_##name(#name, name);                                             \
    static void name()
#define EXPECT(...)                                                                                \
    do {                                                                                           \
        if (!(__VA_ARGS__))                                                                        \
            kit::failed(__FILE__, __LINE__, #__VA_ARGS__);                                         \
    } while (0)
#endif
