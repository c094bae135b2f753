#include <ATen/autocast_mode.h>

#include <limits>
#include <utility>

#include "registry/graph/casting.h"
#include "registry/graph/fusion.h"
#include "registry/graph/graph.h"
#include "registry/graph/positions.h"
#include "registry/kernels/bernoulli.h"
#include "registry/kernels/row_moves.h"
#include "registry/kernels/row_norm.h"

// A LayerNorm or RMSNorm, alone or with the sum that it reads: a block's residual sum and the norm of what comes next
// (before attention, as GPT-2 has it; after it, as BERT has it), and the dropout of what is added. The sum itself may be
// read by others, too. Under autocast, Linears that read the norm get it in half precision from the kernel.

namespace trainrun {
namespace {

/// How the norm is given to those that cast what they read.
enum class Cast { kNot, kInstead, kToo };

class FusedNorm : public Operation, public CanCastOutput, public ComputesSomePositions {
 public:
  explicit FusedNorm(const FusedLayers& layers, bool has_sum, bool has_dropout)
      : norm_(layers["norm"].layer), is_rms_(layers["norm"].type == "RMSNorm") {
    const auto& eps = layers["norm"].attributes.at("eps");
    eps_ = eps.is_null() ? std::numeric_limits<float>::epsilon() : eps.get<double>();
    if (has_sum) sum_ = layers["sum"].layer.operation;
    if (!has_dropout) return;
    is_turned_ = layers.is_turned("sum");
    dropout_ = layers["dropped"].layer;
    probability_ = layers["dropped"].attributes.at("p").get<double>();
  }

  Tensors run(const Tensors& given) const override {
    const Tensors inputs(given.begin(), given.end() - (is_at_positions_ ? 2 : 0));
    const auto parameters = norm_.state->named_parameters(false);
    const auto parameter = [&](const char* name) {
      const at::Tensor* found = parameters.find(name);
      return found ? *found : at::Tensor();
    };
    const kernels::NormTerms terms{parameter("weight"), parameter("bias"), eps_, is_rms_};
    const size_t first = inputs.size() > 1 && is_wide(inputs[0]) && !dropout_.state ? 0 : inputs.size() - 1;
    kernels::NormAddend addend;
    if (sum_) addend.tensor = inputs[1 - first];
    if (dropout_.state && dropout_.state->is_training()) addend.dropout = probability_;
    // ATen's sum lies as the first of the two does; and no draws may follow the addend's memory.
    const bool is_first = dropout_.state ? is_turned_ : first == 0;
    const bool may_turn = addend.tensor.defined() && addend.dropout == 0 && is_first;
    if (may_turn) addend.tensor = addend.tensor.contiguous();
    if (!kernels::supports_row_norm(inputs[first], addend, terms)) {
      return is_at_positions_ ? by_layers_at_positions(inputs, given.end()[-2], given.back()) : by_layers(inputs);
    }
    if (is_at_positions_ && addend.dropout > 0) addend.kept = kept_at(inputs[0], given.end()[-2], given.back());
    const bool casts = cast_ != Cast::kNot && at::autocast::is_autocast_enabled(at::kCPU) &&
                       at::autocast::get_autocast_dtype(at::kCPU) == at::kBFloat16;
    const bool wants_plain = !casts || cast_ != Cast::kInstead;
    const kernels::Normalized made = kernels::row_norm(inputs[first], addend, terms, wants_plain, casts);
    return outputs(wants_plain ? made.y : made.half, made.sum, casts ? made.half : made.y);
  }

  Traits traits() const override { return {.random = dropout_.state != nullptr}; }

  std::shared_ptr<const Operation> with_cast_output(bool only) const override {
    auto other = std::make_shared<FusedNorm>(*this);
    other->cast_ = only ? Cast::kInstead : Cast::kToo;
    return other;
  }

  std::shared_ptr<const Operation> at_positions() const override {
    auto other = std::make_shared<FusedNorm>(*this);
    other->is_at_positions_ = true;
    return other;
  }

 private:
  static bool is_wide(const at::Tensor& tensor) { return tensor.scalar_type() == at::kFloat; }

  Tensors outputs(const at::Tensor& norm, const at::Tensor& sum, const at::Tensor& cast) const {
    Tensors all = {norm};
    if (sum_) all.push_back(sum);
    if (cast_ == Cast::kToo) all.push_back(cast);
    return all;
  }

  Tensors by_layers(Tensors inputs) const {
    if (dropout_.state) inputs[0] = dropout_.forward({inputs[0]})[0];
    if (is_turned_) std::swap(inputs[0], inputs[1]);
    const at::Tensor sum = sum_ ? sum_->run(inputs)[0] : inputs[0];
    const at::Tensor norm = norm_.forward({sum})[0];
    return outputs(norm, sum, norm);
  }

  /// What the dropout keeps of `x`, some positions of all.
  at::Tensor kept_at(const at::Tensor& x, const at::Tensor& sizes, const at::Tensor& rows) const {
    const int64_t all = sizes.size(0) * sizes.size(1);
    at::Tensor kept = at::empty({all, x.numel() / (x.size(0) * x.size(1))}, x.options().dtype(at::kByte));
    kernels::bernoulli(kept, 1 - probability_, std::nullopt);
    return kernels::taken_rows(kept, rows).view(x.sizes());
  }

  Tensors by_layers_at_positions(const Tensors& inputs, const at::Tensor& sizes, const at::Tensor& rows) const {
    Tensors all;
    for (const at::Tensor& x : inputs) all.push_back(kernels::put_positions(x, rows, sizes));
    Tensors made = by_layers(all);
    for (at::Tensor& y : made) y = kernels::taken_positions(y, rows).view(inputs[0].sizes());
    return made;
  }

  Layer norm_;
  bool is_rms_;
  double eps_ = 0;
  std::shared_ptr<const Operation> sum_;
  Layer dropout_;           // without state there is none
  bool is_turned_ = false;  // the sum is of x and what the dropout leaves, in this order
  double probability_ = 0;
  bool is_at_positions_ = false;  // as ComputesSomePositions says
  Cast cast_ = Cast::kNot;
};

/// Null unless the norm is over the last dimension, and the sum one of two tensors of one size.
std::shared_ptr<const Operation> fuse_norm(const FusedLayers& layers, bool has_sum, bool has_dropout) {
  const GraphNode& norm = layers["norm"];
  const auto& sizes = norm.attributes.at("normalized_shape");
  if (sizes.is_array() && sizes.size() != 1) return nullptr;
  if (has_sum) {
    const GraphNode& sum = layers["sum"];
    if (sum.inputs.size() != 2 || sum.input_shapes.at(0) != sum.input_shapes.at(1)) return nullptr;
    if (sum.attributes.contains("other") && !sum.attributes.at("other").is_null()) return nullptr;
  }
  return std::make_shared<FusedNorm>(layers, has_sum, has_dropout);
}

}  // namespace

void add_add_norm(FusionRegistry& fusions) {
  const std::vector<std::string> norms = {"LayerNorm", "RMSNorm"};
  fusions.add(
      {"DropoutAddNorm",
       "a dropout, the sum that it is added to and the LayerNorm or RMSNorm that reads it, in one pass: equal but "
       "for the order of sums",
       {.nodes = {{"dropped", {"Dropout"}}, {"sum", {"Add"}, {"dropped", "x"}, true}, {"norm", norms, {"sum"}}},
        .gives = {"norm", "sum"}},
       [](const FusedLayers& layers) { return fuse_norm(layers, true, true); }});
  fusions.add({"AddNorm",
               "a sum and the LayerNorm or RMSNorm that reads it, in one pass: equal but for the order of sums",
               {.nodes = {{"sum", {"Add"}}, {"norm", norms, {"sum"}}}, .gives = {"norm", "sum"}},
               [](const FusedLayers& layers) { return fuse_norm(layers, true, false); }});
  fusions.add({"RowNorm",
               "a LayerNorm or RMSNorm by itself, in one pass: equal but for the order of sums",
               {.nodes = {{"norm", norms}}},
               [](const FusedLayers& layers) { return fuse_norm(layers, false, false); }});
}

}  // namespace trainrun
