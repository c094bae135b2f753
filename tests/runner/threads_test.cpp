#include "runner/device/threads.h"

#include <cstdlib>
#include <optional>

#include "tests/doctest.h"
#include "tests/support.h"

using namespace trainrun;  // NOLINT(google-build-using-namespace)

namespace {

Waiting waiting_with(const std::optional<std::string>& policy, const std::optional<std::string>& turns) {
  const test::EnvironmentVariable first("OMP_WAIT_POLICY", policy);
  const test::EnvironmentVariable second("GOMP_SPINCOUNT", turns);
  return thread_waiting();
}

constexpr int64_t kMuch = 1'000'000'000;

}  // namespace

TEST_CASE("the recipe's number of threads is taken; auto goes by the environment, the CPUs and the work") {
  CHECK(choose_num_threads(int64_t{3}, kMuch, 8, true, 8) == 3);
  CHECK(choose_num_threads("auto", kMuch, 8, false, 8) == 8);
  CHECK(choose_num_threads("auto", kMuch, 2, false, 8) == 2);    // a container that may use two
  CHECK(choose_num_threads("auto", 100'000, 8, false, 8) == 1);  // the threads would only wait for each other
  CHECK(choose_num_threads("auto", 100'000, 8, true, 4) == 4);   // OMP_NUM_THREADS
  CHECK(choose_num_threads("auto", 0, 8, false, 8) == 8);        // not known
}

TEST_CASE("how threads wait follows from what OpenMP read") {
  CHECK(waiting_with(std::nullopt, std::nullopt).is_busy);
  CHECK(waiting_with("active", std::nullopt).is_busy);
  CHECK_FALSE(waiting_with("passive", std::nullopt).is_busy);
  CHECK_FALSE(waiting_with("PASSIVE", "100").is_busy);
  CHECK_FALSE(waiting_with(std::nullopt, "100").is_busy);
  CHECK(waiting_with("passive", "1000000000").is_busy);
  CHECK(waiting_with("passive", "infinity").is_busy);
}

TEST_CASE("a hint is given where threads wait busily and others want their CPUs") {
  CHECK(waiting_hint(true, 2, 3, 2).find("num_threads: 1") != std::string::npos);
  CHECK(waiting_hint(false, 2, 3, 2) == "");
  CHECK(waiting_hint(true, 1, 3, 2) == "");
  CHECK(waiting_hint(true, 2, 2, 2) == "");
  CHECK(num_runnable() >= 1);  // this one
  CHECK(usable_cpus() >= 1);
}
