#include "runner/data/pixels.h"

#include <algorithm>
#include <vector>

namespace trainrun {
namespace {

class PixelsToFloats : public Transform {
 public:
  void describe(DatasetInfo& info) const override {
    for (FieldInfo& field : info.fields) {
      if (field.dtype == at::kByte) field.dtype = at::kFloat;
    }
  }
  Values values() const override { return Values::kScaled; }
  void apply(Batch& batch, const SampleDraws&) const override {
    constexpr double kMost = 255;
    for (const Batch::Field& field : std::vector(batch.fields())) {
      if (field.tensor.scalar_type() != at::kByte) continue;
      batch.set(field.name, field.tensor.to(at::kFloat).div_(kMost));
    }
  }
};

/// Those that transforms have left in float64: see fits_float32.
class Float64ToFloats : public Transform {
 public:
  void describe(DatasetInfo&) const override {}  // which calls them float32 already
  Values values() const override { return Values::kPointwise; }
  void apply(Batch& batch, const SampleDraws&) const override {
    for (const Batch::Field& field : std::vector(batch.fields())) {
      if (field.tensor.scalar_type() == at::kDouble) batch.set(field.name, field.tensor.to(at::kFloat));
    }
  }
};

}  // namespace

std::unique_ptr<Transform> float64_to_floats() { return std::make_unique<Float64ToFloats>(); }

std::unique_ptr<Transform> pixels_to_floats(DatasetInfo& info) {
  const bool has_bytes = std::any_of(info.fields.begin(), info.fields.end(),
                                     [](const FieldInfo& field) { return field.dtype == at::kByte; });
  if (!has_bytes) return nullptr;
  auto transform = std::make_unique<PixelsToFloats>();
  transform->describe(info);
  return transform;
}

}  // namespace trainrun
