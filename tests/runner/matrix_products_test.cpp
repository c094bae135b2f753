#include "runner/process/matrix_products.h"

#include <dlfcn.h>

#include <filesystem>

#include "tests/doctest.h"

namespace trainrun {

TEST_CASE("MKL asks trainrun, and not itself, whether the processor is Intel's") {
  void* found = dlsym(RTLD_DEFAULT, "mkl_serv_intel_cpu_true");
  REQUIRE(found != nullptr);
  Dl_info place{};
  REQUIRE(dladdr(found, &place) != 0);
  CHECK(std::filesystem::path(place.dli_fname).filename().string().find("torch_cpu") == std::string::npos);
  const int answer = reinterpret_cast<int (*)()>(found)();
  __builtin_cpu_init();
  const bool has_products = __builtin_cpu_is("intel") || (__builtin_cpu_is("amd") && __builtin_cpu_supports("avx2"));
  if (!std::getenv("TRAINRUN_PLAIN_MKL")) CHECK((answer != 0) == has_products);
  CHECK(matrix_products_text().starts_with("MKL"));
}

}  // namespace trainrun
