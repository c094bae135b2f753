#include "registry/kinds/unlabelled_data.h"

#include <iterator>

namespace trainrun {
namespace {

template <class T>
std::vector<T> taken(std::vector<T>& values, int64_t first, int64_t count) {
  const auto begin = values.begin() + static_cast<std::ptrdiff_t>(first);
  return {std::make_move_iterator(begin), std::make_move_iterator(begin + static_cast<std::ptrdiff_t>(count))};
}

}  // namespace

int64_t ValueColumn::size() const {
  if (const auto* numbers = std::get_if<at::Tensor>(&values)) return numbers->size(0);
  if (const auto* texts = std::get_if<std::vector<std::string>>(&values)) return static_cast<int64_t>(texts->size());
  return static_cast<int64_t>(std::get<std::vector<nlohmann::json>>(values).size());
}

ValueColumn ValueColumn::take(int64_t first, int64_t count) {
  if (const auto* numbers = std::get_if<at::Tensor>(&values)) return {name, numbers->narrow(0, first, count)};
  if (auto* texts = std::get_if<std::vector<std::string>>(&values)) return {name, taken(*texts, first, count)};
  return {name, taken(std::get<std::vector<nlohmann::json>>(values), first, count)};
}

}  // namespace trainrun
