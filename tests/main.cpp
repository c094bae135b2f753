// The test program's main: doctest's own, but for the seed of each test case, and for the end, which is that of
// tools/main.cpp.
#include <ATen/CPUGeneratorImpl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "runner/process/process_changes.h"
#include "tests/faults/fsync.h"

#define DOCTEST_CONFIG_IMPLEMENT
#include "tests/doctest.h"

namespace {

/// LibTorch seeds its generator anew in each process. Here each test case, however it is started, draws the same
/// numbers, so that one that fails fails again. TRAINRUN_FUZZ_SEED draws others.
class SeededTestCases : public doctest::IReporter {
 public:
  explicit SeededTestCases(const doctest::ContextOptions& /*options*/) {}

  void test_case_start(const doctest::TestCaseData& /*test_case*/) override { seed(); }
  void test_case_reenter(const doctest::TestCaseData& /*test_case*/) override { seed(); }

  void report_query(const doctest::QueryData& /*query*/) override {}
  void test_run_start() override {}
  void test_run_end(const doctest::TestRunStats& /*stats*/) override {}
  void test_case_end(const doctest::CurrentTestCaseStats& /*stats*/) override {}
  void test_case_exception(const doctest::TestCaseException& /*exception*/) override {}
  void subcase_start(const doctest::SubcaseSignature& /*subcase*/) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData& /*assertion*/) override {}
  void log_message(const doctest::MessageData& /*message*/) override {}
  void test_case_skipped(const doctest::TestCaseData& /*test_case*/) override {}

 private:
  static void seed() {
    const char* wanted = std::getenv("TRAINRUN_FUZZ_SEED");
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    const std::lock_guard<std::mutex> lock(generator.mutex());
    generator.set_current_seed(wanted != nullptr ? std::strtoull(wanted, nullptr, 10) : 0);
  }
};

REGISTER_LISTENER("seeded_test_cases", 1, SeededTestCases);

}  // namespace

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
