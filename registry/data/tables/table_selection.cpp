#include "registry/data/tables/table_selection.h"

#include <algorithm>
#include <iterator>
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
      const bool is_left_out = std::ranges::find(wanted.no_features, names[i]) != wanted.no_features.end();
      if (!others.contains(i) && !is_left_out) places.push_back(i);
    }
  }
  if (places.empty() && !wanted.may_lack_features) {
    throw DataError(wanted.path + ": has no column but " + without_features_text(wanted));
  }
  places_of(wanted.named);
  places.insert(places.end(), labels.begin(), labels.end());
  return places;
}

std::vector<std::string> others_among(const std::vector<std::string>& names,
                                      const std::vector<std::vector<std::string>>& known) {
  std::vector<std::string> others;
  for (const std::string& name : names) {
    const bool is_known = std::any_of(known.begin(), known.end(), [&](const std::vector<std::string>& list) {
      return std::find(list.begin(), list.end(), name) != list.end();
    });
    if (!is_known) others.push_back(name);
  }
  return others;
}

std::string note_on_columns(const WantedColumns& wanted, const std::vector<std::string>& names) {
  const auto is_no_feature = [&](const std::string& name) {
    return std::ranges::find(wanted.no_features, name) != wanted.no_features.end();
  };
  if (!wanted.features) {
    std::vector<std::string> found;
    std::ranges::copy_if(names, std::back_inserter(found), is_no_feature);
    return no_features_note(wanted.path, found);
  }
  std::vector<std::string> others = others_among(names, {*wanted.features, wanted.labels, wanted.ids});
  std::erase_if(others, is_no_feature);
  if (others.empty()) return "";
  return wanted.path + ": columns that the training data do not have are not read: " + join(others);
}

std::string no_features_note(const std::string& path, const std::vector<std::string>& names) {
  if (names.empty()) return "";
  const bool is_one = names.size() == 1;
  return path + ": " + join(names) + (is_one ? " tells" : " tell") + " rows apart (group, time), and " +
         (is_one ? "is" : "are") + " not among the features; to learn from " + (is_one ? "it" : "them") +
         ", too, list all features by features: […]";
}

}  // namespace trainrun
