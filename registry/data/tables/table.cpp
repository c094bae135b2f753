#include "registry/data/tables/table.h"

#include <algorithm>

#include "registry/data/sample_lengths.h"
#include "registry/data/tables/row_reader.h"
#include "registry/data/tables/table_columns.h"
#include "registry/data/tables/table_faults.h"
#include "registry/data/tables/table_fields.h"
#include "registry/data/tables/table_inference.h"
#include "registry/data/tables/table_places.h"
#include "registry/data/tables/table_selection.h"
#include "registry/data/tables/unlabelled_table.h"
#include "registry/data/tables/value_names.h"
#include "registry/kinds/dataset_facts.h"

namespace trainrun {
namespace {

using nlohmann::json;

class TableDataset : public TensorDataset {
 public:
  TableDataset(TableOptions options, std::unique_ptr<TableSource> source, const DatasetInputs& inputs)
      : options_(std::move(options)), source_(std::move(source)), inputs_(inputs), rows_(*source_, options_.ids()) {
    source_->know(options_.memory->source);
    std::erase_if(inputs_.no_features, [this](const auto& name) { return options_.listed().find(name) != nullptr; });
  }

  DatasetInfo info() const override {
    const auto reader = source_->open();
    const std::vector<size_t> places = select_columns(reader->names());
    reader->read_only(places);
    std::vector<std::string> names;
    for (const size_t place : places) names.push_back(reader->names()[place]);
    names.resize(names.size() - num_labels());
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
      std::vector<int64_t> shape = column.shape;
      if (column.is_sequence()) shape.insert(shape.begin(), *column.max_length);  // at most
      info.fields.push_back({name, shape, number ? at::kFloat : at::kLong, categories});
      if (!column.is_sequence()) continue;
      info.fields.push_back({mask_name(name), {*column.max_length}, at::kLong, std::nullopt});
    }
    if (num_features > 0)
      info.fields.insert(info.fields.begin(), {"features", {num_features}, at::kFloat, std::nullopt});
    if (options_.is_classification()) {
      info.fields.push_back({"label", {}, at::kLong, num_classes()});
    } else {
      info.fields.push_back({"label", {static_cast<int64_t>(num_labels())}, at::kFloat, std::nullopt});
    }
    info.target = "label";
    return info;
  }

  void open() override {
    RowReader reader(source_->open(), options_);
    const std::vector<size_t> places = select_columns(reader.names());
    std::vector<size_t> ids;
    for (const std::string& name : rows_.ids()) ids.push_back(place_of_column(*source_, name, reader.names()));
    std::vector<size_t> wanted = places;
    wanted.insert(wanted.end(), ids.begin(), ids.end());
    reader.read_only(wanted);
    columns_ = make_columns(places, reader.names());
    if (options_.is_classification()) num_classes_ = num_classes();
    CellParser parser(*source_, options().na_values, rows_.ids());
    std::vector<std::string> faults(columns_.size());  // the first of each column
    std::vector<Cell> row;
    std::vector<std::string> id(ids.size());
    while (reader.next(row)) {
      for (size_t i = 0; i < ids.size(); ++i) id[i] = text_of(row[ids[i]]);
      require_room(rows_.size(), columns_.size(), options_.path);
      parser.set_row(reader.row_number(), id);
      if (options_.skips()) {
        if (const std::string fault = add_whole(row, parser); !fault.empty()) {
          reader.leave_out(fault);
          continue;
        }
      } else {
        add_all(row, parser, faults);
      }
      rows_.add(reader.row_number(), id);
    }
    throw_faults(options(), *source_, columns_, faults);
    left_out_ = reader.left_out();
    if (rows_.size() == 0) throw DataError(left_out_.nothing_left_text(options_.path));
    if (std::none_of(columns_.begin(), columns_.end(), [](const Column& column) { return column.learns(); })) {
      make_fields();
    }
  }

  int64_t size() const override { return rows_.size(); }
  Batch get(const at::Tensor& indices) const override {
    if (!columns_.empty()) throw Error(options_.path + ": its training samples have not been learnt from yet");
    Batch batch = TensorDataset::get(indices);
    set_sequences(batch, sequences_, indices);
    return batch;
  }

  void learn(const at::Tensor& indices) override {
    if (columns_.empty()) return;
    json state = json::object();
    for (Column& column : columns_) {
      if (!column.learns()) continue;
      learn_column(column, indices.contiguous(), options_.path);
      state[column.name] = learnt_of(column);
    }
    learnt_ = state;
    make_fields();
  }

  json learnt() const override { return learnt_; }
  void set_learnt(const json& state) override {
    if (columns_.empty()) return;
    try {
      for (Column& column : columns_) set_learnt_of(column, state);
    } catch (const json::exception&) {
      throw DataError(options_.path + ": what was learnt from the training data belongs to other columns");
    }
    learnt_ = state;
    make_fields();
  }

  DatasetFacts facts() const override {
    DatasetFacts facts = TensorDataset::facts();
    facts.field = [this](const std::string& name) { return facts_of_field(name); };
    facts.held = [this, of_rows = facts.held](const std::string& name) {
      return sequence_of(name) ? at::Tensor() : of_rows(name);
    };
    facts.lengths = [this] { return sequences_.empty() ? at::Tensor() : lengths_between(sequences_[0].second.begins); };
    facts.place = [this](int64_t index, const std::string& field) {
      return rows_.place(index, field == "label" ? join(options_.labels()) : field);
    };
    facts.texts = [this](const std::string& column) { return texts(column); };
    facts.ids = rows_.ids();
    facts.holes = [this](const std::string& column) { return holes(column); };
    facts.notes = [this] { return notes(); };
    facts.unlabelled = [this](const UnlabelledSource& source) { return read_unlabelled(source, options(), *source_); };
    facts.inferred = [this] { return inferred(); };
    return facts;
  }
  void set_inferred(const json& inferred) override {
    if (!inferred.is_object()) return;
    TableOptions::Memory& memory = *options_.memory;
    const std::lock_guard<std::mutex> lock(memory.mutex);
    if (inferred.contains("source")) source_->know(memory.source = inferred["source"]);
    if (inferred.contains("one_hots") && !resolved_) inferred["one_hots"].get_to(memory.one_hots.emplace());
    if (inferred.contains("features") && !options_.features && !options_.infers()) {
      memory.features = inferred["features"].get<std::vector<std::string>>();
    }
    if (options_.infers() && !resolved_ && inferred.contains("columns")) {
      inferred_ = std::make_shared<const InferredTable>(InferredTable::from_json(inferred));
      memory.table = inferred_;
    }
  }

 private:
  size_t num_labels() const { return options_.labels().size(); }
  const RaggedRows* sequence_of(const std::string& field) const {
    for (const auto& [name, rows] : sequences_) {
      if (field == name || field == mask_name(name)) return &rows;
    }
    return nullptr;
  }
  /// Also before the rows are read.
  FeatureNames feature_names() const {
    if (columns_.empty() && rows_.size() > 0) return feature_names_;
    FeatureNames found;
    const std::vector<std::string> names = source_->open()->names();
    const std::vector<size_t> places = select_columns(names);
    for (size_t i = 0; i + num_labels() < places.size(); ++i) {
      const ColumnOptions column = options().column(names[places[i]]);
      if (column.is_feature()) found.add(names[places[i]], column);
    }
    return found;
  }
  FieldFacts facts_of_field(const std::string& name) const {
    FieldFacts field;
    if (name == "features") feature_names().name(field);
    if (const RaggedRows* rows = sequence_of(name)) {
      const bool is_mask =
          std::none_of(sequences_.begin(), sequences_.end(), [&](const auto& one) { return one.first == name; });
      field.padding = is_mask ? 0 : static_cast<int64_t>(rows->padding);
    }
    if (name != "label") {
      const ColumnOptions column = options().column(name);
      if (column.is_category() && !column.is_feature()) field.class_names = categories_of(name, column);
      return field;
    }
    if (options_.has_several_labels()) field.names_within = options_.labels();
    if (field.names_within.empty()) field.called = options_.labels()[0];
    field.class_names = class_names();
    field.renumbering = renumbering();
    return field;
  }
  /// The file is read once more: not all its columns are kept.
  std::vector<std::string> texts(const std::string& column) const {
    if (column == "label" && options_.has_several_labels()) return {};
    if (std::vector<std::string> ids = rows_.texts(column); !ids.empty()) return ids;
    RowReader reader(source_->open(), options_);
    const size_t place = place_of_column(*source_, column == "label" ? options_.labels()[0] : column, reader.names());
    std::vector<std::string> texts;
    if (rows_.size() == 0) return texts;  // they are not open: which rows there will be is not known yet
    reader.read_only({place});
    std::vector<Cell> row;
    while (reader.next(row)) {
      if (left_out_.count > 0 && !rows_.is_next(texts.size(), reader.row_number())) continue;
      texts.push_back(text_of(row[place]));
    }
    return texts;
  }
  /// The rows that are left out; the file is read once more.
  std::vector<DatasetFacts::Hole> holes(const std::string& column) const {
    std::vector<DatasetFacts::Hole> all;
    if (left_out_.count == 0) return all;
    RowReader reader(source_->open(), options_);
    const size_t place = place_of_column(*source_, column == "label" ? options_.labels()[0] : column, reader.names());
    reader.read_only({place});
    int64_t before = 0;
    int64_t num_unread = 0;
    std::vector<Cell> row;
    while (reader.next(row)) {
      if (reader.left_out().count > num_unread) all.push_back({before, std::nullopt});
      num_unread = reader.left_out().count;
      if (rows_.is_next(static_cast<size_t>(before), reader.row_number())) {
        ++before;
      } else {
        all.push_back({before, text_of(row[place])});
      }
    }
    return all;
  }
  std::string renumbering() const {
    const bool are_numbers = options_.is_classification() && !options_.num_classes && !options_.infers();
    return are_numbers ? "columns: {" + yaml_text(options_.labels()[0]) + ": category}" : "";
  }
  /// As the recipe lists them, or else as they are learnt: empty until then.
  std::vector<std::string> categories_of(const std::string& name, const ColumnOptions& column) const {
    if (column.categories) return *column.categories;
    const json own = learnt_.is_object() ? learnt_.value(name, json::object()) : json::object();
    return own.value("categories", std::vector<std::string>());
  }
  std::vector<std::string> class_names() const {
    if (!options_.is_classification()) return {};
    const std::string name = options_.labels()[0];
    const ColumnOptions label = options().column(name);
    if (label.categories || label.is_category()) return categories_of(name, label);
    const std::vector<std::string> names = label.is_boolean() ? label_words_ : source_->class_names(name);
    const bool are_all = !options().num_classes || *options().num_classes == static_cast<int64_t>(names.size());
    return are_all ? names : std::vector<std::string>();
  }
  /// The types of columns, or else their order alone, by which other data are read.
  json inferred() const {
    json told = json::object();
    options();
    if (options_.infers()) told = inferred_->to_json();
    if (!options_.infers() && !options_.features) told["features"] = features();
    if (options_.memory->one_hots) told["one_hots"] = *options_.memory->one_hots;
    if (json of_source = source_->told(); !of_source.is_null()) told["source"] = std::move(of_source);
    return told.empty() ? json() : told;
  }
  /// Of the training data, where the recipe does not name them.
  std::vector<std::string> features() const {
    if (auto known = known_features()) return *known;
    const std::vector<std::string> names = source_->open()->names();
    std::vector<std::string> features;
    for (const size_t place : select_columns(names)) features.push_back(names[place]);
    features.resize(features.size() - num_labels());
    return features;
  }

  /// What the recipe says, or what follows from the file where it leaves that open.
  const TableOptions& options() const {
    const std::vector<std::string> open_one_hots = options_.open_one_hots();
    if (!options_.infers() && open_one_hots.empty()) return options_;
    const std::lock_guard<std::mutex> lock(options_.memory->mutex);
    if (resolved_) return *resolved_;
    if (!options_.infers()) {
      auto& known = options_.memory->one_hots;
      if (!known) known = one_hots_in(options_, *source_, open_one_hots);
      resolved_ = with_one_hots(options_, *known);
      return *resolved_;
    }
    if (!inferred_) {
      std::shared_ptr<const InferredTable>& known = options_.memory->table;
      if (!known) {
        const std::vector<std::string> names = source_->open()->names();
        InferredTable inferred = infer_table(options_, *source_, selected(names), inputs_.no_features);
        if (inferred.num_classes && !options_.num_classes) {  // the rows may lack the last classes that there are
          const size_t named = source_->class_names(options_.labels()[0]).size();
          inferred.num_classes = std::max(*inferred.num_classes, static_cast<int64_t>(named));
        }
        known = std::make_shared<const InferredTable>(std::move(inferred));
      }
      inferred_ = known;
    }
    resolved_ = options_;
    resolved_->columns = inferred_->listed();
    if (!resolved_->num_classes) resolved_->num_classes = inferred_->num_classes;
    return *resolved_;
  }

  static int64_t num_indices(const ColumnOptions& column) {
    return static_cast<int64_t>(column.categories->size()) + (column.allow_unknown ? 1 : 0);
  }
  std::optional<int64_t> num_classes() const {
    const ColumnOptions label = options().column(options_.labels()[0]);
    if (label.is_boolean()) return std::max<int64_t>(options().num_classes.value_or(2), 2);
    if (label.categories) return num_indices(label);
    if (options().num_classes || label.is_category()) return options().num_classes;
    const size_t known = source_->class_names(options_.labels()[0]).size();
    return known > 0 ? std::optional(static_cast<int64_t>(known)) : std::nullopt;
  }

  std::optional<std::vector<std::string>> known_features() const {
    if (options_.infers()) return std::nullopt;  // which tells of the types as well
    const std::lock_guard<std::mutex> lock(options_.memory->mutex);
    return options_.memory->features;
  }
  /// Also names columns of the file that the training data do not have.
  std::vector<std::string> notes() const {
    std::vector<std::string> notes = source_->notes();
    if (left_out_.count > 0) notes.push_back(left_out_.text(options_.path));
    for (const std::string& note : inferred_ ? inferred_->notes : std::vector<std::string>()) notes.push_back(note);
    for (const UnknownCategories& unknown : unknown_) notes.push_back(options_.path + ": " + text_of(unknown));
    const WantedColumns wanted = wanted_columns();
    if (options_.features || (!wanted.features && wanted.no_features.empty())) return notes;
    if (auto note = note_on_columns(wanted, source_->open()->names()); !note.empty()) notes.push_back(std::move(note));
    return notes;
  }
  WantedColumns wanted_columns() const {
    WantedColumns wanted{options_.path, options_.labels(), rows_.ids(), options_.features, {}, inputs_.target_alone};
    if (!wanted.features) wanted.features = known_features();
    if (!options_.infers()) wanted.no_features = inputs_.no_features;
    return wanted;
  }
  /// The places of the features, then those of the labels.
  std::vector<size_t> select_columns(const std::vector<std::string>& names) const {
    options();  // which may find out which columns are features
    return selected(names);
  }
  /// By what is known so far.
  std::vector<size_t> selected(const std::vector<std::string>& names) const {
    WantedColumns wanted = wanted_columns();
    if (!wanted.features && inferred_) {  // in the training file's order
      wanted.features.emplace();
      for (const InferredTable::Entry& entry : inferred_->columns) {
        if (!options_.is_label(entry.name)) wanted.features->push_back(entry.name);
      }
    }
    for (const auto& [name, unused] : options_.listed().entries) wanted.named.push_back(name);
    return trainrun::select_columns(*source_, wanted, names);
  }

  std::vector<Column> make_columns(const std::vector<size_t>& places, const std::vector<std::string>& names) const {
    std::vector<Column> columns;
    for (const size_t at : places) columns.push_back(make_column(names[at], at, options().column(names[at])));
    return columns;
  }

  /// Adds a cell to the column `i`, where a label is not read as features are.
  void add_cell(const Cell& cell, size_t i, const CellParser& parser) {
    Column& column = columns_[i];
    if (i < columns_.size() - num_labels() || column.options.is_category()) {
      parser.add(cell, column);
    } else if (options_.is_classification() && column.options.is_boolean()) {
      parser.add_boolean_class(cell, column);
    } else if (options_.is_classification()) {
      column.integers.push_back(parser.class_index(cell, column.name, num_classes_));
    } else if (column.options.is_boolean()) {
      column.numbers.push_back(parser.boolean(cell, column.name) ? 1 : 0);
    } else {
      column.numbers.push_back(parser.number(cell, column.name));
    }
  }

  /// Adds a row but for the columns that have `faults` already, where it puts new ones.
  void add_all(const std::vector<Cell>& row, const CellParser& parser, std::vector<std::string>& faults) {
    for (size_t i = 0; i < columns_.size(); ++i) {
      if (!faults[i].empty()) continue;
      try {
        add_cell(row[columns_[i].place], i, parser);
      } catch (const DataError& error) {
        faults[i] = error.what();
      }
    }
  }
  /// Adds all of a row, or nothing of one that has a fault, which it returns.
  std::string add_whole(const std::vector<Cell>& row, const CellParser& parser) {
    try {
      for (size_t i = 0; i < columns_.size(); ++i) add_cell(row[columns_[i].place], i, parser);
    } catch (const DataError& error) {
      for (Column& column : columns_) column.cut(rows_.size());
      return error.what();
    }
    return "";
  }

  /// From the columns, whose memory is then given back.
  void make_fields() {
    const auto first = columns_.end() - static_cast<std::ptrdiff_t>(num_labels());
    const std::vector<Column> labels(std::make_move_iterator(first), std::make_move_iterator(columns_.end()));
    columns_.erase(first, columns_.end());
    const RowPlace place = [this](size_t row, const std::string& column) {
      return rows_.place(static_cast<int64_t>(row), column);
    };
    TableFields made = fields_of(columns_, size(), place);
    feature_names_ = std::move(made.feature_names);
    sequences_ = std::move(made.sequences);
    unknown_ = std::move(made.unknown);
    for (auto& [name, rows] : made.fields) set_field(name, rows);
    set_field("label", label_field(labels, options(), size(), place));
    label_words_ = boolean_words(labels);
    columns_.clear();
  }

  TableOptions options_;
  mutable std::optional<TableOptions> resolved_;  // with what was inferred
  mutable std::shared_ptr<const InferredTable> inferred_;
  std::unique_ptr<TableSource> source_;
  DatasetInputs inputs_;
  FeatureNames feature_names_;
  TablePlaces rows_;
  std::vector<Column> columns_;  // the labels last; empty once the fields are made
  std::vector<std::pair<std::string, RaggedRows>> sequences_;
  std::vector<UnknownCategories> unknown_;
  RowsLeftOut left_out_;
  std::vector<std::string> label_words_;  // of a boolean: boolean_words
  std::optional<int64_t> num_classes_;    // of a label that is their numbers, once open
  json learnt_;
};

}  // namespace

std::unique_ptr<Dataset> make_table(const TableOptions& options, std::unique_ptr<TableSource> source,
                                    const DatasetInputs& inputs) {
  auto table = std::make_unique<TableDataset>(options, std::move(source), inputs);
  if (!options.split) return table;
  return options.split->part_of(std::move(table));
}

}  // namespace trainrun
