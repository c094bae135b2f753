#include "runner/distributed/buffer_pool.h"

#include <ATen/ops/sum.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "tests/doctest.h"

namespace trainrun::test {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

/// Of this process, in bytes.
int64_t address_space() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    int64_t kilobytes = 0;
    if (word == "VmSize:" && status >> kilobytes) return kilobytes << 10;
  }
  return 0;
}

std::vector<at::Tensor> taken(const BufferPool& pool, const std::vector<int64_t>& bytes) {
  std::vector<at::Tensor> tensors;
  for (const int64_t each : bytes) tensors.push_back(pool.empty(each, at::kByte));
  return tensors;
}

}  // namespace

TEST_CASE("buffers of any sizes are used again, and with those in use take no more than ever was in use") {
  const BufferPool pool;
  const std::vector<int64_t> sizes = {2 * kMiB, 4 * kMiB, 8 * kMiB, 16 * kMiB, 32 * kMiB, 48 * kMiB};
  for (at::Tensor& tensor : taken(pool, sizes)) tensor.fill_(1);
  for (const at::Tensor& tensor : taken(pool, {sizes.rbegin(), sizes.rend()})) {
    CHECK(tensor.numel() == at::sum(tensor).item<int64_t>());  // new memory is zeros
  }

  const int64_t before = address_space();  // all 110 MiB are free
  const at::Tensor larger = pool.empty(96 * kMiB, at::kByte);
  CHECK(address_space() <= before + kMiB);
}

}  // namespace trainrun::test
