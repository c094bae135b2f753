#include "registry/data/tables/unlabelled_table.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "registry/data/tables/table_fields.h"
#include "registry/data/tables/table_sources.h"
#include "registry/data/tables/unlabelled_rows.h"
#include "registry/data/tables/value_names.h"
#include "registry/kinds/dataset_facts.h"

namespace trainrun {
namespace {

using nlohmann::json;

constexpr const char* kFeatures = "features";

/// Rows of a table that was read.
class TableRows : public TensorDataset {
 public:
  /// `target`: undefined: zero.
  TableRows(DatasetInfo info, TableFields made, at::Tensor target, std::vector<std::string> places)
      : info_(std::move(info)), places_(std::move(places)) {
    for (auto& [name, rows] : made.fields) set_field(name, rows);
    sequences_ = std::move(made.sequences);
    const FieldInfo& like = *info_.find(info_.target);
    std::vector<int64_t> shape = {static_cast<int64_t>(places_.size())};
    shape.insert(shape.end(), like.shape.begin(), like.shape.end());
    set_field(like.name, target.defined() ? target.to(like.dtype) : at::zeros(shape, like.dtype));
    info_.num_samples = shape[0];
  }
  DatasetInfo info() const override { return info_; }
  void open() override {}
  Batch get(const at::Tensor& indices) const override {
    Batch batch = TensorDataset::get(indices);
    set_sequences(batch, sequences_, indices);
    return batch;
  }
  DatasetFacts facts() const override {
    DatasetFacts facts = TensorDataset::facts();
    facts.place = [this](int64_t index, const std::string& field) {
      return places_.at(static_cast<size_t>(index)) + ":" + field;
    };
    return facts;
  }

 private:
  DatasetInfo info_;
  std::vector<std::string> places_;
  std::vector<std::pair<std::string, RaggedRows>> sequences_;
};

/// Whether `name` is the mask of another field.
bool is_mask(const DatasetInfo& info, const std::string& name) {
  return std::any_of(info.fields.begin(), info.fields.end(),
                     [&](const FieldInfo& field) { return mask_name(field.name) == name; });
}

/// The columns that the model reads, in the order in which the training data had them.
std::vector<std::string> columns_read(const UnlabelledSource& source) {
  std::vector<std::string> names;
  for (const FieldInfo& field : source.info.fields) {
    if (field.name == source.info.target || is_mask(source.info, field.name)) continue;
    if (field.name != kFeatures) {
      names.push_back(field.name);
      continue;
    }
    if (!source.columns.contains(kFeatures)) throw DataError("the names of the columns in features were not saved");
    for (const auto& name : source.columns[kFeatures].get<std::vector<std::string>>()) {
      if (names.empty() || names.back() != name) names.push_back(name);  // one-hot: several numbers
    }
  }
  return names;
}

std::vector<std::unique_ptr<TableSource>> files_of(const UnlabelledSource& source, const TableSource& own,
                                                   const std::string& label) {
  std::vector<std::unique_ptr<TableSource>> files;
  const std::vector<std::string> read = columns_read(source);
  const std::string first = read.empty() ? label : read.front();
  for (const std::string& path : source.paths) files.push_back(source_of_file(own, path, first));
  return files;
}

UnlabelledRows::Columns columns_of(const UnlabelledSource& source, const TableOptions& options) {
  UnlabelledRows::Columns columns = {columns_read(source), options.labels(), options.ids(), source.kept};
  if (source.with_target) columns.read.insert(columns.read.end(), columns.labels.begin(), columns.labels.end());
  return columns;
}

/// What to do where a number is written as the training data do not write theirs: "; write decimal: ','"; else "".
/// `takes_format`: whether the recipe can say how numbers are written.
std::string number_advice(const Cell& cell, const Column& column, const TableSource& file, bool takes_format) {
  const ColumnOptions& options = column.options;
  if (!options.is_feature() || options.is_category() || options.is_date() || options.is_boolean()) return "";
  if (cell.kind != Cell::Kind::kText || parse_cell_number(cell)) return "";
  constexpr NumberFormat kUsual{'.', '\0'};
  const NumberFormat own = cell.format ? *cell.format : kUsual;
  const auto quoted = [](char mark) { return std::string("'") + mark + "'"; };
  for (const NumberFormat& other : {kUsual, NumberFormat{',', '\0'}, NumberFormat{'.', ','}, NumberFormat{',', '.'}}) {
    Cell tried = cell;
    tried.format = &other;
    if (!parse_cell_number(tried)) continue;
    const std::string decimal = other.decimal == own.decimal ? "" : "decimal: " + quoted(other.decimal);
    const bool has_marks = other.thousands != own.thousands;
    const std::string marks = !has_marks                ? ""
                              : other.thousands == '\0' ? "thousands: null"
                                                        : "thousands: " + quoted(other.thousands);
    const std::string format = decimal + (decimal.empty() || marks.empty() ? "" : " and ") + marks;
    return "; " + (takes_format ? file.format_advice(format) : file.TableSource::format_advice(format));
  }
  return "";
}

class UnlabelledTable : public UnlabelledRows {
 public:
  UnlabelledTable(const UnlabelledSource& from, const TableOptions& options, const TableSource& own)
      : UnlabelledRows(from, columns_of(from, options), files_of(from, own, options.labels()[0])),
        na_values_(options.na_values),
        options_(options),
        takes_format_(own.kind() == TableKind::kCsv) {
    for (const std::string& name : columns_read(from)) {
      columns_.push_back(make_column(name, 0, options.column(name)));
      try {
        set_learnt_of(columns_.back(), from.learnt);
      } catch (const json::exception&) {
        throw DataError("what was learnt from the training data does not tell how '" + name + "' is read");
      }
    }
    empty_ = columns_;
    if (!from.with_target) return;
    for (const std::string& name : options.labels()) {
      ColumnOptions column = options.column(name);
      column.missing = 0.0;  // which is kept as NaN
      labels_.push_back(make_column(name, 0, column));
    }
    no_labels_ = labels_;
    for (const std::string& name : columns_read(from)) {
      const bool is_known = std::find(from.known.begin(), from.known.end(), name) != from.known.end();
      are_known_.push_back(is_known);
    }
  }

  std::vector<std::string> notes() const override {
    std::vector<std::string> notes = notes_of_files();
    for (const UnknownCategories& unknown : unknown_) notes.push_back(text_of(unknown));
    return notes;
  }

 protected:
  void take(const std::vector<Cell*>& cells, const TableSource& file, int64_t row_number,
            const std::string& place) override {
    CellParser parser(file, na_values_);
    parser.set_row(row_number);
    for (size_t i = 0; i < labels_.size(); ++i) parser.add(*cells[columns_.size() + i], labels_[i]);
    const bool is_to_come = !labels_.empty() && std::all_of(labels_.begin(), labels_.end(), [](const Column& label) {
      return std::isnan(label.numbers[label.numbers.size() - 1]);
    });
    for (size_t i = 0; i < columns_.size(); ++i) {
      // What a row to come does not know of itself is not read either: the row before stands in for it.
      const bool stands_in = is_to_come && !are_known_[i] && !last_.empty() && missing_.contains(*cells[i], false);
      const Cell& cell = stands_in ? last_[i] : *cells[i];
      try {
        parser.add(cell, columns_[i]);
      } catch (const DataError& error) {
        throw DataError(error.what() + number_advice(cell, columns_[i], file, takes_format_));
      }
      require_known(columns_[i], place);
    }
    if (labels_.empty() || is_to_come) return;
    last_.resize(columns_.size());
    for (size_t i = 0; i < columns_.size(); ++i) last_[i] = *cells[i];
  }
  void cut(int64_t count) override {
    for (Column& column : columns_) column.cut(count);
    for (Column& label : labels_) label.cut(count);
  }
  std::unique_ptr<Dataset> make(std::vector<std::string> places, std::vector<int64_t>) override {
    const auto count = static_cast<int64_t>(places.size());
    const RowPlace place = [&](size_t row, const std::string& column) { return places[row] + ":" + column; };
    TableFields made = fields_of(columns_, count, place);
    columns_ = empty_;
    for (const UnknownCategories& found : made.unknown) {
      const auto is_same = [&](const UnknownCategories& own) { return own.column == found.column; };
      const auto own = std::find_if(unknown_.begin(), unknown_.end(), is_same);
      if (own == unknown_.end()) {
        unknown_.push_back(found);
      } else {
        own->count += found.count;
      }
    }
    at::Tensor target;
    if (!labels_.empty()) target = label_field(labels_, options_, count, place);
    labels_ = no_labels_;
    return std::make_unique<TableRows>(source().info, std::move(made), target, std::move(places));
  }

 private:
  /// Throws where the last row's category is none that was learnt: said of the row itself, which can be left out.
  static void require_known(Column& column, const std::string& place) {
    if (!column.options.is_category() || column.options.allow_unknown) return;
    const int64_t last = column.integers.back();
    const bool is_missing = last == kMissingCategory;
    if (!is_missing && static_cast<size_t>(last) + 1 != column.seen.size()) return;  // seen before
    const std::string name = is_missing ? column.missing_category : column.seen.back();
    if (known_category(column, name)) return;
    if (!is_missing) {  // so that it is found again in another row
      column.places.erase(name);
      column.seen.pop_back();
    }
    throw DataError(place + ":" + column.name + ": " + category_fault(column, name));
  }

  std::optional<std::vector<std::string>> na_values_;
  std::vector<Column> columns_;  // that the model reads
  std::vector<Column> empty_;    // the same without a row
  TableOptions options_;
  bool takes_format_;           // the recipe's data set is of delimited text
  std::vector<Column> labels_;  // with_target
  std::vector<Column> no_labels_;
  std::vector<bool> are_known_;  // of columns_: their values to come are given
  std::vector<Cell> last_;       // of them in the last row that has a target
  MissingValues missing_{na_values_};
  std::vector<UnknownCategories> unknown_;  // of the rows that were read
};

}  // namespace

std::unique_ptr<UnlabelledData> read_unlabelled(const UnlabelledSource& source, const TableOptions& options,
                                                const TableSource& own) {
  return std::make_unique<UnlabelledTable>(source, options, own);
}

}  // namespace trainrun
