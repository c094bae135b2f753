#include "registry/graph/position_steps.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>

#include "registry/graph/shape_mode.h"
#include "registry/kernels/plain_tensor.h"
#include "registry/kernels/row_moves.h"

namespace trainrun {
namespace {

at::Tensor numbers(const at::Tensor& like, int64_t end, int64_t step = 1) {
  return at::arange(0, end, step, like.options().dtype(at::kLong).requires_grad(false));
}

int64_t num_positions(const at::Tensor& sizes) { return sizes.size(0) * sizes.size(1); }

/// The numbers of the first positions [N].
at::Tensor first_of(const at::Tensor& sizes) { return numbers(sizes, num_positions(sizes), sizes.size(1)); }

/// Which positions of a mask [N, T] are read, one after the other.
std::vector<bool> read_positions(const at::Tensor& mask) {
  const at::Tensor seen = (mask != 0).contiguous();
  const bool* const marks = seen.const_data_ptr<bool>();
  const int64_t length = mask.size(1);
  std::vector<bool> read(marks, marks + mask.numel());
  for (int64_t first = 0; first < mask.numel(); first += length) {
    const auto text = read.begin() + first;
    if (std::find(text, text + length, true) == text + length) std::fill(text, text + length, true);
    *text = true;
  }
  return read;
}

at::Tensor masked_of(const at::Tensor& mask) {
  constexpr int64_t kMultiple = 32;
  const int64_t all = num_positions(mask);
  const bool is_known = c10::isIntegralType(mask.scalar_type(), /*includeBool=*/false) && kernels::is_plain_cpu(mask);
  if (ShapeMode::active() || !is_known) return numbers(mask, all);
  const std::vector<bool> read = read_positions(mask);
  const int64_t least = std::count(read.begin(), read.end(), true);
  const int64_t taken = (least + kMultiple - 1) / kMultiple * kMultiple;
  if (taken * 20 >= all * 19) return numbers(mask, all);
  int64_t more = taken - least;
  std::vector<int64_t> rows;
  for (size_t i = 0; i < read.size(); ++i) {
    if (read[i] || more-- > 0) rows.push_back(static_cast<int64_t>(i));
  }
  return at::from_blob(rows.data(), {taken}, at::kLong).clone();
}

at::Tensor first_of_masked(const at::Tensor& x, const at::Tensor& rows, const at::Tensor& sizes) {
  const int64_t length = sizes.size(1);
  if (rows.numel() == num_positions(sizes)) {  // no matter where they are in memory
    return kernels::put_positions(x, rows, sizes).narrow(1, 0, 1).contiguous();
  }
  const auto* const own = rows.const_data_ptr<int64_t>();
  std::vector<int64_t> places;
  for (int64_t i = 0; i < rows.numel(); ++i) {
    if (own[i] % length == 0) places.push_back(i);
  }
  const at::Tensor first = at::from_blob(places.data(), {sizes.size(0)}, at::kLong).clone();
  return kernels::taken_rows(x.squeeze(0), first).unsqueeze(1);
}

/// Of operations that change nothing but where numbers lie.
constexpr Operation::Traits kMoves = {.view = true, .capturable = true, .half_precision = true};

}  // namespace

std::shared_ptr<const Operation> list_masked() {
  return operation_of([](const Tensors& in) -> Tensors { return {masked_of(in[0])}; }, kComputed);
}

std::shared_ptr<const Operation> list_first() {
  return operation_of([](const Tensors& in) -> Tensors { return {first_of(in[0])}; }, kComputed);
}

std::shared_ptr<const Operation> take_masked() {
  return operation_of(
      [](const Tensors& in) -> Tensors {
        TORCH_CHECK(in[0].sizes().slice(0, 2) == in[2].sizes(), "the mask of sequences ", in[0].sizes(), " is ",
                    in[0].sizes().slice(0, 2), ", not ", in[2].sizes());
        return {kernels::taken_positions(in[0], in[1]).unsqueeze(0)};
      },
      kMoves);
}

std::shared_ptr<const Operation> put_masked_back() {
  return operation_of([](const Tensors& in) -> Tensors { return {kernels::put_positions(in[0], in[1], in[2])}; },
                      kMoves);
}

std::shared_ptr<const Operation> take_first() {
  return operation_of([](const Tensors& in) -> Tensors { return {in[0].narrow(1, 0, 1).contiguous()}; }, kMoves);
}

std::shared_ptr<const Operation> take_first_of_masked() {
  return operation_of([](const Tensors& in) -> Tensors { return {first_of_masked(in[0], in[1], in[2])}; }, kMoves);
}

std::shared_ptr<const Operation> put_first_back() {
  return operation_of(
      [](const Tensors& in) -> Tensors { return {kernels::put_positions(in[0], first_of(in[1]), in[1])}; }, kMoves);
}

}  // namespace trainrun
