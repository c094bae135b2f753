// The test program's main: doctest's own, but for the end, which is that of tools/main.cpp.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>

int main(int argc, char** argv) {
  const int exit_code = doctest::Context(argc, argv).run();
  std::fflush(nullptr);
  std::_Exit(exit_code);
}
