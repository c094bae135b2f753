#include "registry/kernels/rank_sums.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/randint.h>

#include <string>
#include <vector>

#include "tests/doctest.h"

using namespace trainrun::kernels;

namespace {

/// Numbers of all kinds, subnormal and not finite ones among them.
at::Tensor any_bits(int64_t count, at::ScalarType dtype, uint64_t seed) {
  at::Generator generator = at::detail::createCPUGenerator(seed);
  const auto bytes = count * static_cast<int64_t>(c10::elementSize(dtype));
  return at::randint(0, 256, {bytes}, generator, at::kByte).view(dtype);
}

/// As ATen adds them, one after the other; 16-bit numbers in float32, rounded once.
at::Tensor added(const std::vector<at::Tensor>& numbers, double divisor) {
  const at::ScalarType dtype = numbers[0].scalar_type();
  at::Tensor sum;
  for (const at::Tensor& given : numbers) {
    at::Tensor own = divisor == 1 ? given : given.div(divisor);
    if (c10::elementSize(dtype) == 2) own = own.to(at::kFloat);
    sum = sum.defined() ? sum + own : own;
  }
  return sum.to(dtype);
}

void check_alike(at::ScalarType dtype, int64_t num_ranks, int64_t count, double divisor, CpuPath path) {
  CAPTURE(std::string(c10::toString(dtype)));
  CAPTURE(num_ranks);
  CAPTURE(count);
  CAPTURE(divisor);
  CAPTURE(name_of(path));
  std::vector<at::Tensor> numbers;
  std::vector<const void*> from;
  for (int64_t rank = 0; rank < num_ranks; ++rank) {
    numbers.push_back(any_bits(count, dtype, static_cast<uint64_t>(rank + 1)));
    from.push_back(numbers.back().const_data_ptr());
  }
  at::Tensor found = at::empty_like(numbers[0]);
  const at::Tensor expected = added(numbers, divisor);
  std::vector<void*> to = {found.data_ptr(), numbers[1].data_ptr()};  // the second is one of those that are added
  add_ranks(*number_type(dtype), {from.data(), num_ranks, to.data(), 2, count}, divisor, path);
  for (const at::Tensor& sum : {found, numbers[1]}) {
    CHECK(expected.eq(sum).logical_or(expected.ne(expected).logical_and(sum.ne(sum))).all().item<bool>());
  }
}

}  // namespace

TEST_CASE("the numbers of ranks are added as ATen adds them one after the other, on every path") {
  for (const CpuPath path : available_cpu_paths()) {
    for (const at::ScalarType dtype :
         {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kLong, at::kInt, at::kChar, at::kByte}) {
      for (const int64_t num_ranks : {2, 3, 5}) {
        for (const int64_t count : {0, 1, 511, 1300}) {
          check_alike(dtype, num_ranks, count, 1, path);
          if (!c10::isFloatingType(dtype)) continue;
          check_alike(dtype, num_ranks, count, 2, path);
          check_alike(dtype, num_ranks, count, 3, path);
        }
      }
    }
  }
}

TEST_CASE("numbers that are not added between ranks have no type") {
  CHECK_FALSE(number_type(at::kBool));
  CHECK_FALSE(number_type(at::kComplexFloat));
}
