#include "registry/data/tables/table.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <string_view>

#include "registry/data/tables/table_columns.h"
#include "registry/data/tables/table_inference.h"
#include "registry/kinds/dataset_facts.h"

namespace trainrun {

namespace {

using nlohmann::json;

template <class T>
at::Tensor tensor_of(const std::vector<T>& values, const std::vector<int64_t>& shape, at::ScalarType dtype) {
  at::Tensor tensor = at::empty(shape, dtype);
  if (!values.empty()) std::memcpy(tensor.data_ptr(), values.data(), values.size() * sizeof(T));
  return tensor;
}

class TableDataset : public TensorDataset {
 public:
  TableDataset(TableOptions options, std::unique_ptr<TableSource> source)
      : options_(std::move(options)), source_(std::move(source)) {}

  DatasetInfo info() const override {
    const auto reader = source_->open();
    const std::vector<size_t> places = select_columns(reader->names());
    reader->read_only(places);
    std::vector<std::string> names;
    for (const size_t place : places) names.push_back(reader->names()[place]);
    names.pop_back();  // the label
    DatasetInfo info;
    int64_t num_features = 0;
    for (const std::string& name : names) {
      const ColumnOptions column = options().column(name);
      if (column.is_feature()) {
        num_features += column.width();
        continue;
      }
      const bool number = column.type == "number";
      const auto categories = column.categories ? std::optional(num_indices(column)) : std::nullopt;
      info.fields.push_back({name, column.shape, number ? at::kFloat : at::kLong, categories});
    }
    if (num_features > 0)
      info.fields.insert(info.fields.begin(), {"features", {num_features}, at::kFloat, std::nullopt});
    if (options_.is_classification()) {
      info.fields.push_back({"label", {}, at::kLong, num_classes()});
    } else {
      info.fields.push_back({"label", {1}, at::kFloat, std::nullopt});
    }
    info.target = "label";
    return info;
  }

  void open() override {
    const auto reader = source_->open();
    const std::vector<size_t> places = select_columns(reader->names());
    reader->read_only(places);
    columns_ = make_columns(places, reader->names());
    CellParser parser(*source_, options().na_values);
    std::vector<std::string> faults(columns_.size());  // the first of each column
    const auto reading = [&](size_t i, const auto& read) {
      if (!faults[i].empty()) return;
      try {
        read();
      } catch (const DataError& error) {
        faults[i] = error.what();
      }
    };
    std::vector<Cell> row;
    const size_t label = columns_.size() - 1;
    while (reader->next(row)) {
      rows_.push_back(reader->row_number());
      require_room(size(), columns_.size(), options_.path);
      parser.set_row(rows_.back());
      for (size_t i = 0; i < label; ++i) reading(i, [&] { parser.add(row[columns_[i].place], columns_[i]); });
      reading(label, [&] { add_label(row[columns_.back().place], parser); });
    }
    throw_faults(faults);
    if (rows_.empty()) throw DataError(options_.path + ": has no rows below the names of its columns");
    if (std::none_of(columns_.begin(), columns_.end(), [](const Column& column) { return column.learns(); })) {
      make_fields();
    }
  }

  int64_t size() const override { return static_cast<int64_t>(rows_.size()); }

  Batch get(const at::Tensor& indices) const override {
    if (!columns_.empty()) throw Error(options_.path + ": its training samples have not been learnt from yet");
    return TensorDataset::get(indices);
  }

  void learn(const at::Tensor& indices) override {
    if (columns_.empty()) return;
    json state = json::object();
    for (Column& column : columns_) {
      if (!column.learns()) continue;
      learn_column(column, indices.contiguous(), options_.path);
      json& own = state[column.name] = json::object();
      if (!column.categories.empty() && !column.options.categories) own["categories"] = column.categories;
      if (column.missing_number) own["missing"] = *column.missing_number;
      if (column.options.is_category() && is_statistic(column.options)) own["missing"] = column.missing_category;
    }
    learnt_ = state;
    make_fields();
  }

  json learnt() const override { return learnt_; }

  void set_learnt(const json& state) override {
    if (columns_.empty()) return;
    try {
      for (Column& column : columns_) {
        if (!column.learns()) continue;
        const json& own = state.at(column.name);
        if (own.contains("categories")) column.categories = own["categories"].get<std::vector<std::string>>();
        if (!own.contains("missing")) continue;
        if (column.options.is_category()) {
          column.missing_category = own["missing"].get<std::string>();
        } else {
          column.missing_number = own["missing"].get<double>();
        }
      }
    } catch (const json::exception&) {
      throw DataError(options_.path + ": what was learnt from the training data is not of these columns");
    }
    learnt_ = state;
    make_fields();
  }

  DatasetFacts facts() const override {
    DatasetFacts facts = TensorDataset::facts();
    facts.field = [this](const std::string& name) {
      FieldFacts field;
      if (name == "features") field.names_within = feature_names_;
      if (name == "label") field.class_names = class_names();
      if (name == "label") field.renumbering = renumbering();
      return field;
    };
    facts.place = [this](int64_t index, const std::string& field) { return place(index, field); };
    facts.texts = [this](const std::string& column) { return texts(column); };
    facts.inferred = [this] { return inferred(); };
    return facts;
  }
  void set_inferred(const json& inferred) override {
    if (options_.infers() && !resolved_ && !inferred.is_null()) {
      inferred_ = std::make_shared<const InferredTable>(InferredTable::from_json(inferred));
      const std::lock_guard<std::mutex> lock(options_.memory->mutex);
      options_.memory->table = inferred_;
    }
  }

 private:
  /// "people.csv:17:age"
  std::string place(int64_t index, const std::string& field) const {
    const bool is_label = field == "label";
    return source_->place(rows_.at(static_cast<size_t>(index))) + ":" + (is_label ? options_.label : field);
  }
  /// The file is read once more: not all its columns are kept.
  std::vector<std::string> texts(const std::string& column) const {
    const auto reader = source_->open();
    const size_t place = place_of(column == "label" ? options_.label : column, reader->names());
    reader->read_only({place});
    std::vector<std::string> texts;
    std::vector<Cell> row;
    while (reader->next(row)) texts.push_back(text_of(row[place]));
    return texts;
  }
  /// Of the label.
  std::string renumbering() const {
    const bool are_numbers = options_.is_classification() && !options_.num_classes && !options_.infers();
    return are_numbers ? "columns: {" + yaml_text(options_.label) + ": category}" : "";
  }
  std::vector<std::string> class_names() const {
    if (!options_.is_classification()) return {};
    const ColumnOptions label = options().column(options_.label);
    if (label.categories) return *label.categories;
    const json own = learnt_.is_object() ? learnt_.value(options_.label, json::object()) : json::object();
    return own.value("categories", std::vector<std::string>());
  }
  json inferred() const {
    if (!options_.infers()) return nullptr;
    options();
    return inferred_->to_json();
  }

  /// What the recipe says, or what follows from the file where it leaves that open.
  const TableOptions& options() const {
    if (!options_.infers()) return options_;
    const std::lock_guard<std::mutex> lock(options_.memory->mutex);
    if (resolved_) return *resolved_;
    if (!inferred_) {
      std::shared_ptr<const InferredTable>& known = options_.memory->table;
      if (!known) {
        const std::vector<std::string> names = source_->open()->names();
        known = std::make_shared<const InferredTable>(infer_table(options_, *source_, select_columns(names)));
      }
      inferred_ = known;
    }
    resolved_ = options_;
    resolved_->columns = inferred_->listed();
    if (!resolved_->num_classes) resolved_->num_classes = inferred_->num_classes;
    return *resolved_;
  }

  /// All at once, each with what to write into the recipe.
  void throw_faults(const std::vector<std::string>& faults) const {
    std::vector<size_t> faulty;  // of columns_
    std::vector<size_t> places;
    for (size_t i = 0; i < faults.size(); ++i) {
      if (faults[i].empty()) continue;
      faulty.push_back(i);
      places.push_back(columns_[i].place);
    }
    if (faulty.empty()) return;
    int64_t rows = 0;
    const auto facts = look_at_columns(*source_, places, MissingValues(options().na_values), options_.path, rows);
    std::string lines;
    std::vector<std::string> unreadable;  // whose values are texts that no type can read
    for (size_t i = 0; i < faulty.size(); ++i) {
      const Column& column = columns_[faulty[i]];
      const bool is_label = faulty[i] + 1 == columns_.size();
      const std::string format = facts[i].number_format();
      const std::string cure = format.empty() ? column_cure(options_, column.options, facts[i], is_label) : "";
      lines += (lines.empty() ? "" : "\n") + faults[faulty[i]];
      if (!format.empty()) lines += "; " + source_->format_advice(format);
      if (!cure.empty()) lines += "; write columns: {" + yaml_text(column.name) + ": " + cure + "}";
      std::string fault;
      if (format.empty() && cure.empty() && !is_label) facts[i].options(fault);
      if (!fault.empty()) unreadable.push_back(column.name);
    }
    std::vector<std::string> names;
    for (size_t i = 0; i + 1 < columns_.size(); ++i) names.push_back(columns_[i].name);
    const std::string features = unreadable.empty() ? "" : features_text(names, unreadable);
    if (!features.empty()) {
      lines += "\n" + options_.path + ": to leave out what cannot be read write " + features;
    }
    throw DataError(lines);
  }

  static int64_t num_indices(const ColumnOptions& column) {
    return static_cast<int64_t>(column.categories->size()) + (column.allow_unknown ? 1 : 0);
  }
  std::optional<int64_t> num_classes() const {
    const ColumnOptions label = options().column(options_.label);
    if (label.is_boolean()) return std::max<int64_t>(options().num_classes.value_or(2), 2);
    return label.categories ? num_indices(label) : options().num_classes;
  }

  /// The places of the features, then that of the label.
  std::vector<size_t> select_columns(const std::vector<std::string>& names) const {
    std::vector<size_t> places;
    std::set<std::string_view> different;
    for (const std::string& name : names) {
      if (different.insert(name).second) continue;
      throw DataError(source_->place(1) + ":" + name + ": two columns are called '" + name + "'");
    }
    const size_t label = place_of(options_.label, names);
    if (options_.features) {
      for (const std::string& feature : *options_.features) places.push_back(place_of(feature, names));
    } else if (inferred_) {  // in the training file's order
      for (const InferredTable::Entry& entry : inferred_->columns) {
        if (entry.name != options_.label) places.push_back(place_of(entry.name, names));
      }
    } else {
      for (size_t i = 0; i < names.size(); ++i) {
        if (i != label) places.push_back(i);
      }
    }
    if (places.empty()) throw DataError(options_.path + ": has no column but the label '" + options_.label + "'");
    for (const auto& [name, unused] : options_.listed().entries) place_of(name, names);
    places.push_back(label);
    return places;
  }

  size_t place_of(const std::string& name, const std::vector<std::string>& names) const {
    const auto it = std::find(names.begin(), names.end(), name);
    if (it == names.end()) {
      const std::string advice = source_->column_advice(name, names);
      throw DataError(source_->place(1) + ":" + name + ": there is no such column" +
                      (advice.empty() ? suggestion(name, names) : advice));
    }
    return static_cast<size_t>(it - names.begin());
  }

  std::vector<Column> make_columns(const std::vector<size_t>& places, const std::vector<std::string>& names) const {
    std::vector<Column> columns;
    for (const size_t place : places) {
      Column& column = columns.emplace_back();
      column.name = names[place];
      column.options = options().column(column.name);
      column.place = place;
      if (column.options.categories) column.categories = *column.options.categories;
      if (is_statistic(column.options) || is_error(column.options)) continue;
      if (const auto* number = std::get_if<double>(&column.options.missing)) {
        column.missing_number = *number;
        column.missing_category = detail::number_text(*number);
      } else {
        column.missing_category = std::get<std::string>(column.options.missing);
      }
    }
    return columns;
  }

  void add_label(const Cell& cell, const CellParser& parser) {
    Column& label = columns_.back();
    if (label.options.is_category()) {
      parser.add_category(cell, label);
    } else if (label.options.is_boolean()) {
      label.integers.push_back(parser.boolean(cell, label.name) ? 1 : 0);
    } else if (options_.is_classification()) {
      label.integers.push_back(parser.class_index(cell, label.name, options().num_classes));
    } else {
      label.numbers.push_back(parser.number(cell, label.name));
    }
  }

  /// Row by row, the index of each category.
  std::vector<int64_t> indices_of(const Column& column) const {
    std::map<std::string, int64_t> index;
    for (size_t i = 0; i < column.categories.size(); ++i) index.emplace(column.categories[i], i);
    const auto index_of = [&](const std::string& name) {
      const auto it = index.find(name);
      if (it != index.end()) return it->second;
      return column.options.allow_unknown ? static_cast<int64_t>(column.categories.size()) : kMissingCategory;
    };
    std::vector<int64_t> of_seen;
    for (const std::string& name : column.seen) of_seen.push_back(index_of(name));
    const int64_t of_missing = index_of(column.missing_category);
    std::vector<int64_t> indices;
    for (size_t row = 0; row < column.integers.size(); ++row) {
      const int64_t place = column.integers[row];
      indices.push_back(place == kMissingCategory ? of_missing : of_seen[static_cast<size_t>(place)]);
      if (indices.back() != kMissingCategory) continue;
      const std::string& name =
          place == kMissingCategory ? column.missing_category : column.seen[static_cast<size_t>(place)];
      throw DataError(source_->place(rows_[row]) + ":" + column.name + ": category " + shown(name) +
                      (column.options.categories ? " is not listed" : " is in no training sample") +
                      suggestion(name, column.categories) + "; allow_unknown: true gives it an index of its own");
    }
    return indices;
  }

  /// From the columns, whose memory is then given back.
  void make_fields() {
    make_features();
    for (size_t i = 0; i + 1 < columns_.size(); ++i) {
      const Column& column = columns_[i];
      if (column.options.is_feature()) continue;
      std::vector<int64_t> shape = {size()};
      shape.insert(shape.end(), column.options.shape.begin(), column.options.shape.end());
      const bool number = column.options.type == "number";
      set_field(column.name, number                         ? column.numbers.tensor(shape)
                             : column.options.is_category() ? tensor_of(indices_of(column), shape, at::kLong)
                                                            : tensor_of(column.integers, shape, at::kLong));
    }
    set_label(columns_.back());
    columns_.clear();
  }

  void make_features() {
    std::vector<const Column*> features;
    int64_t width = 0;
    bool is_wide = false;
    for (size_t i = 0; i + 1 < columns_.size(); ++i) {
      const Column& column = columns_[i];
      if (!column.options.is_feature()) continue;
      features.push_back(&column);
      width += column.options.width();
      is_wide = is_wide || column.numbers.is_wide();
      for (int64_t k = 0; k < column.options.width(); ++k) feature_names_.push_back(column.name);
    }
    if (features.empty()) return;
    at::Tensor rows = at::zeros({size(), width}, is_wide ? at::kDouble : at::kFloat);
    if (is_wide) {
      fill_features(features, width, rows.mutable_data_ptr<double>());
    } else {
      fill_features(features, width, rows.mutable_data_ptr<float>());
    }
    set_field("features", rows);
  }

  /// `first`: of the first column, in the first row.
  template <class T>
  void fill_features(const std::vector<const Column*>& features, int64_t width, T* first) const {
    for (const Column* column : features) {
      if (column->options.is_category()) {
        const std::vector<int64_t> indices = indices_of(*column);
        for (int64_t row = 0; row < size(); ++row) {  // what is unknown is all 0
          const int64_t index = indices[static_cast<size_t>(row)];
          if (index < column->options.width()) first[row * width + index] = 1;
        }
      } else {
        for (int64_t row = 0; row < size(); ++row) {
          const double value = column->numbers[static_cast<size_t>(row)];
          first[row * width] = static_cast<T>(std::isnan(value) ? *column->missing_number : value);
        }
      }
      first += column->options.width();
    }
  }

  void set_label(const Column& label) {
    if (!options_.is_classification()) return set_field("label", label.numbers.tensor({size(), 1}));
    if (!label.options.is_category()) return set_field("label", tensor_of(label.integers, {size()}, at::kLong));
    if (options_.num_classes && static_cast<int64_t>(label.categories.size()) > *options_.num_classes) {
      throw DataError(options_.path + ": '" + label.name + "' has " + std::to_string(label.categories.size()) +
                      " categories, num_classes is " + std::to_string(*options_.num_classes));
    }
    set_field("label", tensor_of(indices_of(label), {size()}, at::kLong));
  }

  TableOptions options_;
  mutable std::optional<TableOptions> resolved_;  // with what was inferred
  mutable std::shared_ptr<const InferredTable> inferred_;
  std::unique_ptr<TableSource> source_;
  std::vector<std::string> feature_names_;
  std::vector<Column> columns_;  // the label last; empty once the fields are made
  std::vector<int64_t> rows_;    // numbers of the rows
  json learnt_;
};

}  // namespace

std::unique_ptr<Dataset> make_table(const TableOptions& options, std::unique_ptr<TableSource> source) {
  auto table = std::make_unique<TableDataset>(options, std::move(source));
  if (!options.split) return table;
  return options.split->part_of(std::move(table));
}

}  // namespace trainrun
