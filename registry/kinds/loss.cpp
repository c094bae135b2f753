#include "registry/kinds/loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>

#include "registry/kinds/metric.h"

namespace trainrun {
namespace {

constexpr const char* kInputsDoc =
    "names of layers and fields of the batch; by default the last layer's output and the data's target";

void check_name(const std::optional<std::string>& name, Checker& checker) {
  if (!name) return;
  if (name->empty() || name->find_first_of("/ \t\n") != std::string::npos) {
    checker.fail("name", "the name becomes part of the names of figures, and cannot contain '/' or spaces");
  }
}

}  // namespace

at::Tensor CountedTargets::count(const at::Tensor& target) const {
  const at::Tensor counted = target.ne(ignore_index);
  if (!weight) return counted.sum().to(at::kDouble);
  const at::Tensor weights = at::tensor(*weight, target.options().dtype(at::kDouble));
  const at::Tensor known = target.masked_fill(counted.logical_not(), 0);  // any index that is one
  return (weights.index_select(0, known.flatten()) * counted.flatten()).sum();
}

void LossCommon::describe(Fields<LossCommon>& f) {
  f.optional("name", &LossCommon::name).doc("name of its figure, if there are several losses; its type by default");
  f.optional("inputs", &LossCommon::inputs).doc(kInputsDoc);
  f.optional("loss_weight", &LossCommon::loss_weight).doc("its factor in the sum that is minimized");
}

void LossCommon::check(Checker& checker) const { check_name(name, checker); }

void MetricCommon::describe(Fields<MetricCommon>& f) {
  f.optional("name", &MetricCommon::name).doc("name of its figures; its type in snake case by default");
  f.optional("inputs", &MetricCommon::inputs).doc(kInputsDoc);
}

void MetricCommon::check(Checker& checker) const { check_name(name, checker); }

std::optional<LossList> Codec<LossList>::read(const Value& value, Reader& reader) {
  LossList losses;
  if (!value.is_list()) {
    auto loss = Codec<Component<LossKind>>::read(value, reader);
    if (!loss) return std::nullopt;
    losses.push_back(std::move(*loss));
    return losses;
  }
  if (value.items().empty()) {
    reader.error(value.place(), "a list of losses needs at least one");
    return std::nullopt;
  }
  const size_t before = reader.problems().size();
  auto items = Codec<std::vector<Component<LossKind>>>::read(value, reader);
  if (!items || reader.problems().size() != before) return std::nullopt;
  losses.assign(std::make_move_iterator(items->begin()), std::make_move_iterator(items->end()));
  return losses;
}

nlohmann::json Codec<LossList>::schema(SchemaContext& context) {
  nlohmann::json list = Codec<std::vector<Component<LossKind>>>::schema(context);
  list["minItems"] = 1;
  return {{"anyOf", {Codec<Component<LossKind>>::schema(context), list}}};
}

}  // namespace trainrun
