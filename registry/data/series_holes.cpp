#include "registry/data/series_holes.h"

#include <algorithm>

#include "registry/kinds/dataset_facts.h"

namespace trainrun {

std::vector<int64_t> splits_at_holes(const Dataset& rows, const std::string& group, const at::Tensor& order,
                                     const std::vector<int64_t>& ends) {
  const DatasetFacts facts = rows.facts();
  const std::vector<DatasetFacts::Hole> holes = facts.holes(group);
  if (holes.empty()) return {};
  const std::vector<std::string> groups = facts.texts(group);
  const int64_t* places = order.const_data_ptr<int64_t>();
  std::vector<int64_t> splits;
  int64_t begin = 0;
  for (const int64_t end : ends) {
    for (const DatasetFacts::Hole& hole : holes) {
      const bool is_of_another = hole.text && *hole.text != groups.at(static_cast<size_t>(places[begin]));
      const int64_t split = std::lower_bound(places + begin, places + end, hole.before) - places;
      if (!is_of_another && split > begin && split < end) splits.push_back(split);
    }
    begin = end;
  }
  std::sort(splits.begin(), splits.end());
  splits.erase(std::unique(splits.begin(), splits.end()), splits.end());
  return splits;
}

}  // namespace trainrun
