#include "runner/report/data_warnings.h"

#include <algorithm>
#include <map>
#include <unordered_set>

#include "registry/kinds/dataset_facts.h"
#include "runner/base/text.h"
#include "runner/report/data_measure.h"

namespace trainrun {
namespace {

constexpr size_t kMostNamed = 5;

/// "a, b, c and 12 others"
std::string some_of(std::vector<std::string> names) {
  const size_t others = names.size() > kMostNamed ? names.size() - kMostNamed : 0;
  names.resize(names.size() - others);
  return join(names) + (others > 0 ? " and " + grouped(static_cast<int64_t>(others)) + " others" : "");
}

std::string counted(size_t count, const std::string& one, const std::string& many) {
  return grouped(static_cast<int64_t>(count)) + " " + (count == 1 ? one : many);
}

}  // namespace

void DataWarnings::add_leak(const std::string& text) {
  texts_.push_back(text);
  leaks_.push_back(text);
}

void DataWarnings::add(const SurveyedSet& set) {
  add_classes(set);
  add_columns(set);
}

void DataWarnings::add_classes(const SurveyedSet& set) {
  if (trained_.empty()) trained_ = set.classes;
  std::vector<std::string> absent;
  std::vector<std::string> untrained;
  for (size_t i = 0; i < set.classes.size(); ++i) {
    const bool is_here = set.classes[i].count > 0;
    if (!is_here) absent.push_back(set.classes[i].name);
    if (is_here && i < trained_.size() && trained_[i].count == 0) untrained.push_back(set.classes[i].name);
  }
  if (!absent.empty() && absent.size() < set.classes.size()) {
    texts_.push_back(set.name + ": " + counted(absent.size(), "class never comes", "classes never come") + ": " +
                     some_of(absent));
  }
  if (!untrained.empty()) {
    texts_.push_back(set.name + ": has classes that train does not have: " + some_of(untrained));
  }
}

void DataWarnings::add_columns(const SurveyedSet& set) {
  std::vector<std::string> broken;
  std::vector<std::string> constant;
  for (const SurveyedSet::Column& column : set.columns) {
    if (column.not_finite > 0) broken.push_back(column.name + " (" + grouped(column.not_finite) + " times)");
    if (column.not_finite == 0 && column.least == column.most && set.measured > 1) constant.push_back(column.name);
  }
  if (!broken.empty()) texts_.push_back(set.name + ": NaN or infinite: " + some_of(broken));
  if (!constant.empty()) texts_.push_back(set.name + ": always the same number: " + some_of(constant));
}

void DataWarnings::add_copies(const std::string& set, const std::vector<std::string>& names) {
  if (names.empty()) return;
  add_leak(set + ": " + counted(names.size(), "feature is", "features are") +
           " the label but for a factor and an offset: " + some_of(names) +
           "; is it known when predictions are made? If not, leave it out of features");
}

void DataWarnings::add_blank(const SurveyedSet& set, int64_t blank) {
  if (blank == 0) return;
  texts_.push_back(set.name + ": " + grouped(blank) + " of " + grouped(set.measured) + " pictures are of one colour");
}

void DataWarnings::add_contents(const std::string& set, const Dataset& data, const std::vector<int64_t>& indices) {
  const std::vector<std::string> digests = contents_of(data, indices);
  const std::string field = data.info().fields[0].name;
  const auto place = [&, facts = data.facts()](size_t i) { return facts.place(indices[i], field); };
  std::map<size_t, std::vector<std::string>> alike;  // by the set in which the first one is
  std::unordered_set<std::string> contents;
  for (size_t i = 0; i < digests.size(); ++i) {
    contents.insert(digests[i]);
    const auto [first, is_new] = seen_.emplace(digests[i], Sample{sets_.size(), ""});
    if (is_new) {
      first->second.place = place(i);
    } else {
      alike[first->second.set].push_back(place(i) + " is " + first->second.place);
    }
  }
  const auto own = alike.find(sets_.size());
  sets_.push_back(set);
  if (digests.size() > 1 && contents.size() == 1) {
    texts_.push_back(set + ": all samples are the same");
  } else if (own != alike.end()) {
    texts_.push_back(set + ": " + counted(own->second.size(), "sample comes", "samples come") +
                     " once more: " + some_of(own->second));
  }
  for (const auto& [other, places] : alike) {
    if (sets_[other] == set) continue;
    add_leak(set + ": " + counted(places.size(), "sample is", "samples are") + " also in " + sets_[other] + ": " +
             some_of(places));
  }
}

}  // namespace trainrun
