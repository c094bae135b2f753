#pragma once

#include <limits>
#include <string>
#include <vector>

#include "registry/kinds/dataset.h"
#include "runner/report/surveyed_data.h"

namespace trainrun {

/// Means, deviations and the like of one field, batch by batch: of each channel of pictures, of each column of rows,
/// or of all numbers.
class FieldMeasure {
 public:
  /// `names`: of the columns, where they have any.
  FieldMeasure(FieldInfo field, std::vector<std::string> names) : field_(std::move(field)), names_(std::move(names)) {}
  const std::string& field() const { return field_.name; }
  /// The field of a batch; padding does not count.
  void add(const Batch& batch);
  std::vector<SurveyedSet::Column> columns() const;
  /// How many samples had one and the same number everywhere, of pictures alone.
  int64_t blank() const { return blank_; }

 private:
  struct Sums {
    double count = 0, sum = 0, squares = 0;
    double least = std::numeric_limits<double>::infinity();
    double most = -std::numeric_limits<double>::infinity();
    int64_t not_finite = 0;
  };
  std::string name_of(size_t column) const;

  FieldInfo field_;
  std::vector<std::string> names_;
  std::vector<Sums> sums_;
  int64_t blank_ = 0;
};

/// A digest of what each of the samples `indices` holds before it is changed at random: of its file, or of its fields
/// other than the target.
std::vector<std::string> contents_of(const Dataset& data, const std::vector<int64_t>& indices);

}  // namespace trainrun
