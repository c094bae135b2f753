#include "registry/data/tables/table_places.h"

#include <algorithm>

#include "registry/data/tables/table_columns.h"

namespace trainrun {

std::string TablePlaces::place(int64_t index, const std::string& column) const {
  const auto row = static_cast<size_t>(index);
  const std::span<const std::string> id = std::span(values_).subspan(row * ids_.size(), ids_.size());
  return source_.place(numbers_.at(row)) + ":" + column + id_text(ids_, id);
}

std::vector<std::string> TablePlaces::texts(const std::string& column) const {
  const auto found = std::find(ids_.begin(), ids_.end(), column);
  std::vector<std::string> texts;
  if (found == ids_.end()) return texts;
  const auto own = static_cast<size_t>(found - ids_.begin());
  for (size_t row = 0; row < numbers_.size(); ++row) texts.push_back(values_[row * ids_.size() + own]);
  return texts;
}

}  // namespace trainrun
