#pragma once

#include <cstdint>
#include <optional>

#include "registry/kinds/layer.h"

namespace trainrun {

/// torch.nn.Linear.
struct Linear {
  int64_t out_features = 0;
  bool bias = true;
  std::optional<int64_t> in_features;
  static void describe(Fields<Linear>& f);
  Layer build(const LayerInputs& in) const;
  void onnx(OnnxForm& form) const;
};

/// Hugging Face's Conv1D: a Linear whose weight lies the other way round, [in, out].
struct TransposedLinear {
  int64_t out_features = 0;
  bool bias = true;
  std::optional<int64_t> in_features;
  static void describe(Fields<TransposedLinear>& f);
  Layer build(const LayerInputs& in) const;
  void onnx(OnnxForm& form) const;
};

}  // namespace trainrun
