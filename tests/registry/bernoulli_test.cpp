#include "registry/kernels/bernoulli.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/ops/bernoulli_native.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>

#include <string>

#include "registry/language/error.h"
#include "tests/doctest.h"

using namespace trainrun::kernels;

namespace {

/// Draws the same by ATen and by `path`; both tensors have these strides.
void check_alike(const at::Tensor& like, double p, int64_t drawn_before, CpuPath path) {
  CAPTURE(std::string(c10::toString(like.scalar_type())));
  CAPTURE(like.numel());
  CAPTURE(p);
  CAPTURE(drawn_before);
  CAPTURE(name_of(path));
  at::Generator theirs = at::detail::createCPUGenerator(7), ours = at::detail::createCPUGenerator(7);
  for (const auto& generator : {theirs, ours}) at::rand({drawn_before}, generator);
  at::Tensor expected = like.clone(), found = like.clone();
  at::native::bernoulli_(expected, p, theirs);
  bernoulli(found, p, ours, path);
  CHECK(expected.equal(found));
  CHECK((expected.strides() == found.strides()));
  CHECK(theirs.get_state().equal(ours.get_state()));
  CHECK(at::rand({3}, theirs).equal(at::rand({3}, ours)));
}

}  // namespace

TEST_CASE("zeros and ones are drawn as ATen draws them, on every path") {
  for (const CpuPath path : available_cpu_paths()) {
    for (const double p : {0.0, 1e-20, 0.1, 0.5, 0.9, 1 - 1e-16, 1.0}) {
      for (const int64_t drawn_before : {0, 1, 623, 624, 625}) {
        check_alike(at::empty({2000}), p, drawn_before, path);
      }
    }
    for (const at::ScalarType dtype :
         {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kByte, at::kBool, at::kLong, at::kChar}) {
      for (const int64_t size : {0, 1, 63, 64, 311, 312, 313, 1023, 1024, 1025, 5001}) {
        check_alike(at::empty({size}, dtype), 0.3, 5, path);
      }
      const at::Tensor images = at::empty({3, 5, 12, 7}, dtype);
      check_alike(images.contiguous(at::MemoryFormat::ChannelsLast), 0.3, 0, path);
      check_alike(images.transpose(0, 3), 0.3, 0, path);
    }
  }
}

TEST_CASE("many are drawn by several threads as ATen draws them") {
  const int threads = at::get_num_threads();
  for (const int count : {2, 3}) {
    at::set_num_threads(count);
    for (const CpuPath path : available_cpu_paths()) {
      for (const int64_t drawn_before : {0, 1, 311, 623, 624}) {
        for (const int64_t size : {32768, 65537, 79872, 80185, 300000}) {
          check_alike(at::empty({size}, at::kByte), 0.9, drawn_before, path);
        }
      }
      for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
        check_alike(at::empty({90001}, dtype), 0.3, 5, path);
      }
    }
  }
  at::set_num_threads(threads);
}

TEST_CASE("a tensor with gaps is drawn as ATen draws it, and what lies between is left alone") {
  at::Generator theirs = at::detail::createCPUGenerator(7), ours = at::detail::createCPUGenerator(7);
  at::Tensor expected = at::ones({100, 9}), found = at::ones({100, 9});
  at::Tensor column = expected.select(1, 4), other = found.select(1, 4);
  at::native::bernoulli_(column, 0.5, theirs);
  bernoulli(other, 0.5, ours);
  CHECK(expected.equal(found));
  CHECK(theirs.get_state().equal(ours.get_state()));
}

TEST_CASE("LibTorch's own dropout draws by it, and its numbers stay") {
  use_quick_bernoulli();
  use_quick_bernoulli();
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const at::Tensor state = generator.get_state();
  const at::Tensor x = at::ones({40, 50});
  const at::Tensor dropped = at::dropout(x, 0.25, true);
  generator.set_state(state);
  at::Tensor kept = at::empty_like(x);
  at::native::bernoulli_(kept, 0.75, {});
  CHECK(dropped.equal(x * kept.div_(0.75)));
  CHECK_THROWS_AS(at::dropout(x, 1.5, true), c10::Error);
  at::Tensor y = at::empty({100});
  CHECK_THROWS_AS(bernoulli(y, -0.5, {}), c10::Error);
}
