#include "registry/kernels/total_norm.h"

#include <ATen/Parallel.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <cmath>

#include "registry/kernels/parts.h"
#include "registry/kernels/plain_tensor.h"
#include "registry/kernels/total_norm_simd.h"

namespace trainrun::kernels {
namespace {

constexpr int64_t kBlock = kNumbersOfThread;  // numbers whose sum is apart

/// A stretch of a tensor.
struct Block {
  const float* begin;
  int64_t count;
  size_t tensor;
  double sum;  // of squares
};

bool is_ours(const at::Tensor& tensor) {
  return is_plain_cpu(tensor) && tensor.scalar_type() == at::kFloat && tensor.is_non_overlapping_and_dense();
}

std::vector<Block> blocks_of(const std::vector<at::Tensor>& tensors) {
  std::vector<Block> blocks;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto* const numbers = tensors[i].const_data_ptr<float>();
    for (int64_t begin = 0; begin < tensors[i].numel(); begin += kBlock) {
      blocks.push_back({numbers + begin, std::min(kBlock, tensors[i].numel() - begin), i, 0});
    }
  }
  return blocks;
}

}  // namespace

at::Tensor total_norm(const std::vector<at::Tensor>& tensors, CpuPath path) {
  if (!std::all_of(tensors.begin(), tensors.end(), is_ours)) {
    return at::linalg_vector_norm(at::stack(at::_foreach_norm(tensors, 2)), 2);
  }
  std::vector<Block> blocks = blocks_of(tensors);
  at::parallel_for(0, static_cast<int64_t>(blocks.size()), 2, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      Block& block = blocks[static_cast<size_t>(i)];
      block.sum = TRAINRUN_LOOP_OF(path, sum_of_squares)(block.begin, block.count);
    }
  });
  std::vector<double> squares(tensors.size());
  for (const Block& block : blocks) squares[block.tensor] += block.sum;
  double total = 0;
  for (const double square : squares) {
    const auto norm = static_cast<double>(static_cast<float>(std::sqrt(square)));
    total += norm * norm;
  }
  return at::scalar_tensor(std::sqrt(total), tensors[0].options());
}

}  // namespace trainrun::kernels
