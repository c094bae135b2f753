// A shared library, and not a plugin: none of its code may run.
#include <cstdio>

extern "C" int trainrun_test_answer() { return 42; }

namespace {
const int kShown = std::puts("code of a library that is not a plugin has run");
}  // namespace
