// The test program's main: doctest's own, but for the end, which is that of tools/main.cpp.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "runner/process/process_changes.h"
#include "tests/faults/fsync.h"

/// In place of the C library's, for all that this program is linked with.
// NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name): theirs is a name that only they may use
extern "C" __attribute__((visibility("default"))) int fsync(int file) {
  if (const auto instead = trainrun::test::instead_of_fsync.load()) return instead(file);
  return trainrun::test::fsync_does_nothing ? 0 : static_cast<int>(::syscall(SYS_fsync, file));
}

int main(int argc, char** argv) {
  trainrun::install_library_changes();
  const int exit_code = doctest::Context(argc, argv).run();
  std::fflush(nullptr);
  std::_Exit(exit_code);
}
