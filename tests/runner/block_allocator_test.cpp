#include "runner/process/block_allocator.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sum.h>

#include <cstdint>
#include <vector>

#include "tests/address_space.h"
#include "tests/doctest.h"

namespace trainrun::test {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

at::Tensor numbers_of(int64_t bytes) { return at::empty({bytes / 8}, at::kLong); }

std::vector<at::Tensor> taken(const std::vector<int64_t>& bytes) {
  std::vector<at::Tensor> tensors;
  for (const int64_t each : bytes) tensors.push_back(numbers_of(each));
  return tensors;
}

}  // namespace

TEST_CASE("blocks of any sizes are used again, and with those in use take hardly more than ever was in use") {
  reuse_large_blocks(kLargeShardedTensor);
  const std::vector<int64_t> sizes = {2 * kMiB, 4 * kMiB, 8 * kMiB, 16 * kMiB, 32 * kMiB, 48 * kMiB};
  for (at::Tensor& tensor : taken(sizes)) tensor.fill_(1);
  for (const at::Tensor& tensor : taken({sizes.rbegin(), sizes.rend()})) {
    CHECK(tensor.numel() == at::sum(tensor).item<int64_t>());  // new memory is zeros
  }

  const int64_t before = address_space();  // all 110 MiB are free
  const at::Tensor larger = numbers_of(96 * kMiB);
  CHECK(address_space() <= before + 110 * kMiB / 16);

  return_free_memory();
  CHECK(address_space() <= before - 10 * kMiB);
}

}  // namespace trainrun::test
