#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "registry/kinds/dataset.h"
#include "runner/report/surveyed_data.h"

namespace trainrun {

/// What is suspicious about sets of data, which are added one after another, the training data first; a sentence each.
class DataWarnings {
 public:
  void add_text(std::string text) { texts_.push_back(std::move(text)); }
  /// Classes that never come, columns that never change, numbers that are none.
  void add(const SurveyedSet& set);
  /// Columns of the features that are the target but for a factor and an offset.
  void add_copies(const std::string& set, const std::vector<std::string>& names);
  /// Pictures of one colour.
  void add_blank(const SurveyedSet& set, int64_t blank);
  /// Samples `indices` of a set that are alike, or like one of a set before it.
  void add_contents(const std::string& set, const Dataset& data, const std::vector<int64_t>& indices);
  std::vector<std::string> texts() const { return texts_; }
  /// Of these, what makes figures better than they will be for new data: samples of training in another set, and features
  /// that are the target.
  std::vector<std::string> leaks() const { return leaks_; }

 private:
  struct Sample {
    size_t set;
    std::string place;
  };
  void add_leak(const std::string& text);
  void add_classes(const SurveyedSet& set);
  void add_columns(const SurveyedSet& set);

  std::vector<std::string> sets_;
  std::vector<SurveyedSet::ClassCount> trained_;  // classes of the training data
  std::unordered_map<std::string, Sample> seen_;  // the first sample of each content
  std::vector<std::string> texts_;
  std::vector<std::string> leaks_;
};

}  // namespace trainrun
