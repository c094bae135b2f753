#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "registry/data/ragged_rows.h"
#include "registry/data/tables/table_columns.h"

namespace trainrun {

struct FieldFacts;

/// Values of a column that are none of its categories, which the recipe allows.
struct UnknownCategories {
  std::string column;
  std::string example;
  int64_t count = 0;
};
/// "city: 3 values are none of the training data's categories, such as 'Bern'; …"
std::string text_of(const UnknownCategories& unknown);

/// What the numbers in `features` are called.
struct FeatureNames {
  std::vector<std::string> within;   // FieldFacts::names_within
  std::vector<std::string> one_hot;  // FieldFacts::one_hot_names, here for each number

  void add(const std::string& column, const ColumnOptions& options);
  /// Names the numbers of the field.
  void name(FieldFacts& field) const;
};

/// The fields that a table's columns make.
struct TableFields {
  std::vector<std::pair<std::string, at::Tensor>> fields;  // [rows, …]; `features` first, if there is such a column
  FeatureNames feature_names;
  std::vector<std::pair<std::string, RaggedRows>> sequences;
  std::vector<UnknownCategories> unknown;
};

/// Says where a column of row `row` (from 0) was read: "people.csv:17:age".
using RowPlace = std::function<std::string(size_t row, const std::string& column)>;

/// Makes fields of the columns' `rows` rows, which have learnt: numbers, booleans, dates and one-hot categories together
/// are `features`, lists of different lengths are sequences, every other column is a field of its own. Throws DataError where a category is unknown.
TableFields fields_of(const std::vector<Column>& columns, int64_t rows, const RowPlace& place);
/// Row by row, the index of a column's category: [rows] int64.
at::Tensor category_indices(const Column& column, const RowPlace& place, bool is_label = false);
/// Of one label, as the task says: a class, [rows] int64; or of all, each a number: [rows, K] float32, or float64.
at::Tensor label_field(const std::vector<Column>& labels, const TableOptions& options, int64_t rows,
                       const RowPlace& place);
/// Whole numbers in this shape: int64.
at::Tensor integers_in(const std::vector<int64_t>& integers, const std::vector<int64_t>& shape);

}  // namespace trainrun
