#include "registry/data/mixed_texts.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/ones_like.h>

#include <algorithm>

namespace trainrun {
namespace {

constexpr const char* kIds = "input_ids";
constexpr const char* kMask = "attention_mask";
constexpr const char* kPositions = "position_ids";
constexpr const char* kLabels = "labels";

bool is_row_of_tokens(const FieldInfo* field) { return field && field->dtype == at::kLong && field->shape.size() == 1; }

bool are_texts(const DatasetInfo& info) {
  return is_row_of_tokens(info.find(kIds)) && is_row_of_tokens(info.find(kLabels));
}

/// 1 for each token up to the last one of its row that has a target.
at::Tensor mask_of(const at::Tensor& labels) {
  const at::Tensor later = labels.ne(kNoLabel).to(at::kLong).flip(1).cumsum(1).flip(1);  // targets from here on
  return later.gt(0).to(at::kLong);
}

}  // namespace

void complete_text_infos(std::vector<DatasetInfo>& infos) {
  const auto has = [](const char* name) {
    return [name](const DatasetInfo& info) { return info.find(name) != nullptr; };
  };
  if (!std::ranges::all_of(infos, are_texts) || std::ranges::none_of(infos, has(kMask))) return;
  int64_t longest = 0;
  for (const DatasetInfo& info : infos) longest = std::max(longest, info.find(kIds)->shape[0]);
  for (const char* name : {kMask, kPositions}) {
    if (std::ranges::none_of(infos, has(name))) continue;
    for (DatasetInfo& info : infos) {
      if (info.find(name)) continue;
      const auto labels = std::ranges::find(info.fields, kLabels, &FieldInfo::name);
      info.fields.insert(labels, {name, {longest}, at::kLong, std::nullopt});
    }
  }
  for (DatasetInfo& info : infos) {
    for (FieldInfo& field : info.fields) {
      if (is_row_of_tokens(&field)) field.shape = {longest};
    }
  }
}

Batch completed_texts(Batch rows, const DatasetInfo& info) {
  const auto has = [&](const char* name) {
    return std::ranges::any_of(rows.fields(), [&](const Batch::Field& field) { return field.name == name; });
  };
  if (info.find(kMask) && !has(kMask)) rows.set(kMask, mask_of(rows.at(kLabels)));
  if (info.find(kPositions) && !has(kPositions)) {
    const at::Tensor& ids = rows.at(kIds);
    rows.set(kPositions, at::arange(ids.size(1), at::kLong).expand_as(ids).contiguous());
  }
  return rows;
}

}  // namespace trainrun
