#include "registry/data/tables/table_fields.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "registry/data/tables/table_inference.h"
#include "registry/data/tables/value_names.h"
#include "registry/kinds/dataset_facts.h"
#include "registry/language/text_forms.h"

namespace trainrun {
namespace {

/// Writes a column into row-major `features` of `width` numbers a row; `first`: its first one in the first row.
template <class T>
void fill_features(const Column& column, int64_t rows, int64_t width, T* first, const RowPlace& place) {
  if (column.options.is_category()) {
    const at::Tensor indices = category_indices(column, place);
    const int64_t* of_row = indices.const_data_ptr<int64_t>();
    for (int64_t row = 0; row < rows; ++row) {  // what is unknown is all 0
      if (of_row[row] < column.options.width()) first[row * width + of_row[row]] = 1;
    }
    return;
  }
  for (int64_t row = 0; row < rows; ++row) {
    const double value = column.numbers[static_cast<size_t>(row)];
    first[row * width] = static_cast<T>(std::isnan(value) ? *column.missing_number : value);
  }
}

template <class T>
void fill_all(const std::vector<const Column*>& columns, at::Tensor& features, const RowPlace& place) {
  T* first = features.mutable_data_ptr<T>();
  for (const Column* column : columns) {
    fill_features(*column, features.size(0), features.size(1), first, place);
    first += column->options.width();
  }
}

void make_features(const std::vector<Column>& columns, int64_t rows, const RowPlace& place, TableFields& made) {
  std::vector<const Column*> chosen;
  bool is_wide = false;
  for (const Column& column : columns) {
    if (!column.options.is_feature()) continue;
    chosen.push_back(&column);
    is_wide = is_wide || column.numbers.is_wide();
    made.feature_names.add(column.name, column.options);
  }
  if (chosen.empty()) return;
  const auto width = static_cast<int64_t>(made.feature_names.within.size());
  at::Tensor features = at::zeros({rows, width}, is_wide ? at::kDouble : at::kFloat);
  is_wide ? fill_all<double>(chosen, features, place) : fill_all<float>(chosen, features, place);
  made.fields.emplace_back("features", features);
}

/// The same as category_fault of a label, for which a model that has learnt has no output.
std::string class_fault(const Column& label, const std::string& name) {
  std::string fault = category_fault(label, name);
  const size_t advice = fault.find("; allow_unknown: ");
  if (advice == std::string::npos) return fault;  // it is known, in another encoding
  ColumnOptions all = label.options;
  all.categories = label.categories;
  all.categories->push_back(name);
  return fault.substr(0, advice) +
         "; the model has no output for this class: leave such rows out, or write columns: {" + yaml_text(label.name) +
         ": " + recipe_text(all) + "} in the training data, too, so that it has one";
}

}  // namespace

void FeatureNames::add(const std::string& column, const ColumnOptions& options) {
  within.insert(within.end(), static_cast<size_t>(options.width()), column);
  if (!options.is_category()) {
    one_hot.push_back(column);
    return;
  }
  for (const std::string& category : *options.categories) one_hot.push_back(column + "=" + category);
}

void FeatureNames::name(FieldFacts& field) const {
  field.names_within = within;
  if (one_hot != within) field.one_hot_names = one_hot;
}

at::Tensor integers_in(const std::vector<int64_t>& integers, const std::vector<int64_t>& shape) {
  at::Tensor tensor = at::empty(shape, at::kLong);
  if (!integers.empty()) std::memcpy(tensor.data_ptr(), integers.data(), integers.size() * sizeof(int64_t));
  return tensor;
}

at::Tensor category_indices(const Column& column, const RowPlace& place, bool is_label) {
  std::map<std::string, int64_t> index;
  for (size_t i = 0; i < column.categories.size(); ++i) index.emplace(column.categories[i], i);
  const auto index_of = [&](const std::string& name) {
    const auto it = index.find(name);
    if (it != index.end()) return it->second;
    if (const auto known = known_category(column, name)) return index.at(*known);
    return column.options.allow_unknown ? static_cast<int64_t>(column.categories.size()) : kMissingCategory;
  };
  std::vector<int64_t> of_seen;
  for (const std::string& name : column.seen) of_seen.push_back(index_of(name));
  const int64_t of_missing = index_of(column.missing_category);
  std::vector<int64_t> indices;
  indices.reserve(column.integers.size());
  for (size_t row = 0; row < column.integers.size(); ++row) {
    const int64_t seen = column.integers[row];
    indices.push_back(seen == kMissingCategory ? of_missing : of_seen[static_cast<size_t>(seen)]);
    if (indices.back() != kMissingCategory) continue;
    const std::string& name =
        seen == kMissingCategory ? column.missing_category : column.seen[static_cast<size_t>(seen)];
    throw DataError(place(row, column.name) + ": " +
                    (is_label ? class_fault(column, name) : category_fault(column, name)));
  }
  return integers_in(indices, {static_cast<int64_t>(indices.size())});
}

namespace {

/// An integer, or a list: [rows, *shape].
at::Tensor numbers_of(const Column& column, int64_t rows) {
  std::vector<int64_t> shape = {rows};
  shape.insert(shape.end(), column.options.shape.begin(), column.options.shape.end());
  return column.options.type == "number" ? column.numbers.tensor(shape) : integers_in(column.integers, shape);
}

UnknownCategories unknown_in(const Column& column) {
  UnknownCategories unknown{column.name, "", 0};
  std::vector<bool> are_known;
  for (const std::string& name : column.seen) are_known.push_back(known_category(column, name).has_value());
  for (const int64_t value : column.integers) {
    if (value == kMissingCategory || are_known[static_cast<size_t>(value)]) continue;
    if (unknown.count++ == 0) unknown.example = column.seen[static_cast<size_t>(value)];
  }
  return unknown;
}

}  // namespace

std::string text_of(const UnknownCategories& unknown) {
  return unknown.column + ": " + counted(unknown.count, "value is", "values are") +
         " none of the training data's categories, such as " + shown(unknown.example) + "; the model reads " +
         (unknown.count == 1 ? "it" : "them") + " as unknown";
}

TableFields fields_of(const std::vector<Column>& columns, int64_t rows, const RowPlace& place) {
  TableFields made;
  make_features(columns, rows, place, made);
  for (const Column& column : columns) {
    if (!column.options.is_category() || !column.options.allow_unknown) continue;
    UnknownCategories unknown = unknown_in(column);
    if (unknown.count > 0) made.unknown.push_back(std::move(unknown));
  }
  for (const Column& column : columns) {
    if (column.options.is_feature()) continue;
    if (column.options.is_sequence()) {
      const at::Tensor items = numbers_of(column, column.begins.back());
      made.sequences.emplace_back(column.name, RaggedRows{items, column.begins, column.options.padding});
    } else {
      made.fields.emplace_back(
          column.name, column.options.is_category() ? category_indices(column, place) : numbers_of(column, rows));
    }
  }
  return made;
}

at::Tensor label_field(const std::vector<Column>& labels, const TableOptions& options, int64_t rows,
                       const RowPlace& place) {
  const Column& label = labels[0];
  if (options.is_classification()) {
    if (!label.options.is_category()) return integers_in(label.integers, {rows});
    if (options.num_classes && static_cast<int64_t>(label.categories.size()) > *options.num_classes) {
      throw DataError(options.path + ": '" + label.name + "' has " + std::to_string(label.categories.size()) +
                      " categories, num_classes is " + std::to_string(*options.num_classes));
    }
    return category_indices(label, place, /*is_label=*/true);
  }
  bool is_wide = false;
  for (const Column& column : labels) is_wide = is_wide || column.numbers.is_wide();
  std::vector<at::Tensor> columns;
  for (const Column& column : labels) {
    columns.push_back(column.numbers.tensor({rows, 1}).to(is_wide ? at::kDouble : at::kFloat));
  }
  return at::cat(columns, 1);
}

}  // namespace trainrun
