#include "registry/data/tables/table_selection.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "registry/language/error.h"

namespace trainrun {
namespace {

/// "the label 'price'"
std::string without_features_text(const WantedColumns& wanted) {
  const std::string label = "the label '" + join(wanted.labels) + "'";
  return wanted.ids.empty() ? label : label + " and the id '" + join(wanted.ids) + "'";
}

}  // namespace

size_t place_of_column(const TableSource& source, const std::string& column, const std::vector<std::string>& names) {
  const auto it = std::find(names.begin(), names.end(), column);
  if (it == names.end()) {
    const std::string advice = source.column_advice(column, names);
    throw DataError(source.place(1) + ":" + column + ": there is no such column" +
                    (advice.empty() ? suggestion(column, names) : advice));
  }
  return static_cast<size_t>(it - names.begin());
}

std::vector<size_t> select_columns(const TableSource& source, const WantedColumns& wanted,
                                   const std::vector<std::string>& names) {
  std::set<std::string_view> different;
  for (const std::string& name : names) {
    if (different.insert(name).second) continue;
    throw DataError(source.place(1) + ":" + name + ": two columns are called '" + name + "'");
  }
  const auto places_of = [&](const std::vector<std::string>& columns) {
    std::vector<size_t> places;
    for (const std::string& column : columns) places.push_back(place_of_column(source, column, names));
    return places;
  };
  const std::vector<size_t> labels = places_of(wanted.labels);
  std::set<size_t> others(labels.begin(), labels.end());  // than features
  for (const size_t place : places_of(wanted.ids)) others.insert(place);
  std::vector<size_t> places;
  if (wanted.features) {
    places = places_of(*wanted.features);
  } else {
    for (size_t i = 0; i < names.size(); ++i) {
      if (!others.contains(i)) places.push_back(i);
    }
  }
  if (places.empty() && !wanted.may_lack_features) {
    throw DataError(wanted.path + ": has no column but " + without_features_text(wanted));
  }
  places_of(wanted.named);
  places.insert(places.end(), labels.begin(), labels.end());
  return places;
}

}  // namespace trainrun
