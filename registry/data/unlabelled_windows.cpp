#include "registry/data/unlabelled_windows.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <limits>
#include <map>

#include "registry/data/time_steps.h"
#include "registry/kinds/dataset_facts.h"
#include "registry/language/error.h"
#include "registry/language/text_forms.h"

namespace trainrun {
namespace {

using Texts = std::vector<std::string>;
constexpr const char* kFeatures = "features";
constexpr const char* kFile = "file";

/// How many numbers of each row are forecast, of windows whose target is `target`.
int64_t width_of(const FieldInfo& target) { return target.shape.size() > 1 ? target.shape[1] : 1; }

/// The rows that windows are made of, by the windows' own fields.
UnlabelledSource source_of_rows(const UnlabelledSource& windows, const LastWindow& window) {
  UnlabelledSource rows = windows;
  rows.begin = 0;
  rows.broken = nullptr;  // without a row its series would have a hole
  rows.known = window.known;
  if (window.group) rows.kept.push_back(*window.group);
  if (window.time) rows.kept.push_back(*window.time);
  const FieldInfo& target = *windows.info.find(windows.info.target);
  rows.with_target = at::isFloatingType(target.dtype);
  const int64_t width = width_of(target);
  Texts names;
  if (windows.columns.contains(kFeatures)) names = windows.columns[kFeatures].get<Texts>();
  if (rows.with_target) names.resize(names.size() - std::min(names.size(), static_cast<size_t>(width)));
  rows.columns[kFeatures] = names;
  rows.info.fields.clear();
  for (FieldInfo field : windows.info.fields) {
    const bool is_known = field.name == "known" || field.name.starts_with("known_");
    if (is_known || (field.name == kFeatures && names.empty())) continue;
    if (field.name == windows.info.target) {
      field.shape = rows.with_target ? std::vector<int64_t>{width} : std::vector<int64_t>();
    } else {
      field.shape.erase(field.shape.begin());
      if (field.name == kFeatures) field.shape = {static_cast<int64_t>(names.size())};
    }
    rows.info.fields.push_back(std::move(field));
  }
  return rows;
}

std::string text_at(const ValueColumn& column, size_t row) {
  if (const auto* texts = std::get_if<Texts>(&column.values)) return (*texts)[row];
  if (const auto* numbers = std::get_if<at::Tensor>(&column.values)) {
    return std::to_string((*numbers)[static_cast<int64_t>(row)].item<int64_t>());
  }
  const nlohmann::json& value = std::get<std::vector<nlohmann::json>>(column.values)[row];
  return value.is_string() ? value.get<std::string>() : value.is_null() ? "" : value.dump();
}

/// All rows of some files, in their order.
struct AllRows {
  std::vector<std::unique_ptr<Dataset>> pieces;
  std::vector<std::pair<size_t, int64_t>> places;  // of each row: the piece, and the row within it
  std::vector<std::pair<std::string, at::Tensor>> fields;
  std::map<std::string, Texts> beside;  // what stands beside each row: kFile, the group, the time
  Texts notes;

  std::string place(size_t row, const std::string& column) const {
    const auto& [piece, within] = places[row];
    return pieces[piece]->facts().place(within, column);
  }
};

AllRows read_all_rows(UnlabelledData& data, const UnlabelledSource& source) {
  AllRows all;
  std::map<std::string, std::vector<at::Tensor>> parts;
  Texts order;
  while (auto piece = data.next()) {
    const int64_t count = piece->samples->size();
    const Batch batch = piece->samples->get(at::arange(count, at::kLong));
    for (const Batch::Field& field : batch.fields()) {
      std::vector<at::Tensor>& own = parts[field.name];
      if (own.empty()) order.push_back(field.name);
      own.push_back(field.tensor);
      if (own[0].sizes().slice(1) == field.tensor.sizes().slice(1)) continue;
      throw DataError("'" + field.name + "' has lists of different lengths, which cannot be forecast");
    }
    for (const ValueColumn& column : piece->beside) {
      const bool is_kept = std::find(source.kept.begin(), source.kept.end(), column.name) != source.kept.end();
      if (!is_kept && column.name != kFile) continue;
      Texts& texts = all.beside[column.name];
      for (int64_t row = 0; row < count; ++row) texts.push_back(text_at(column, static_cast<size_t>(row)));
    }
    for (int64_t row = 0; row < count; ++row) all.places.emplace_back(all.pieces.size(), row);
    all.pieces.push_back(std::move(piece->samples));
  }
  for (const std::string& name : order) all.fields.emplace_back(name, at::cat(parts[name]));
  all.notes = data.notes();
  return all;
}

/// Rows, series after series, each as long as a window and what comes after it.
class SeriesRows : public TensorDataset {
 public:
  SeriesRows(DatasetInfo info, nlohmann::json columns, int64_t series_length)
      : info_(std::move(info)), columns_(std::move(columns)), series_length_(series_length) {}
  void set(const std::string& name, at::Tensor rows) {
    info_.num_samples = rows.size(0);
    set_field(name, std::move(rows));
  }
  DatasetInfo info() const override { return info_; }
  void open() override {}
  DatasetFacts facts() const override {
    DatasetFacts facts = TensorDataset::facts();
    facts.field = [this](const std::string& name) {
      FieldFacts field;
      field.names_within = columns_.value(name, Texts());
      return field;
    };
    facts.series_starts = [this] {
      std::vector<int64_t> starts;
      for (int64_t row = series_length_; row < size(); row += series_length_) starts.push_back(row);
      return starts;
    };
    return facts;
  }

 private:
  DatasetInfo info_;
  nlohmann::json columns_;
  int64_t series_length_;
};

struct Series {
  std::vector<size_t> rows;
  size_t num_past = 0;  // of them, up to the last that has a target
};

class LastWindows : public UnlabelledData {
 public:
  LastWindows(const UnlabelledSource& source, LastWindow window, const OpenRows& open_rows, MakeWindows make_windows)
      : windows_(source),
        source_(source_of_rows(source, window)),
        window_(std::move(window)),
        rows_(open_rows(source_)),
        make_windows_(std::move(make_windows)) {}

  std::optional<Piece> next() override {
    if (!rows_) return std::nullopt;
    all_ = read_all_rows(*std::exchange(rows_, nullptr), source_);
    if (all_.places.empty()) return std::nullopt;
    std::vector<Series> series = series_of_rows();
    num_series_ = static_cast<int64_t>(series.size());
    const auto first = static_cast<size_t>(std::min(windows_.begin, num_series_));
    series.erase(series.begin(), series.begin() + static_cast<std::ptrdiff_t>(first));
    if (series.empty()) return std::nullopt;
    Piece piece;
    piece.num_read = static_cast<int64_t>(series.size());
    piece.rows_per_sample = window_.horizon;
    const auto is_left_out = [&](const Series& one) { return leave_out(fault_of(one)); };
    series.erase(std::remove_if(series.begin(), series.end(), is_left_out), series.end());
    piece.beside = beside(series);
    piece.samples = make_windows_(rows_of(series));
    if (!series.empty()) piece.samples->open();
    return piece;
  }
  std::optional<int64_t> size() const override { return num_series_; }
  Texts notes() const override {
    Texts notes = all_.notes;
    if (num_beyond_ > 0) {
      notes.push_back(counted(num_beyond_, "row", "rows") + " beyond the " + std::to_string(window_.horizon) +
                      " steps of a forecast are not read");
    }
    return notes;
  }

 private:
  bool leave_out(const std::string& fault) const {
    if (fault.empty()) return false;
    if (!windows_.broken) throw DataError(fault);
    windows_.broken(fault);
    return true;
  }

  const at::Tensor& field(const std::string& name) const {
    return std::find_if(all_.fields.begin(), all_.fields.end(), [&](const auto& own) { return own.first == name; })
        ->second;
  }
  const std::string& beside_of(size_t row, const std::string& column) const { return all_.beside.at(column)[row]; }

  /// In the order in which they begin.
  std::vector<Series> series_of_rows() {
    std::map<std::pair<std::string, std::string>, size_t> numbers;
    std::vector<Series> series;
    for (size_t row = 0; row < all_.places.size(); ++row) {
      const std::string file = all_.beside.contains(kFile) ? beside_of(row, kFile) : "";
      const std::string group = window_.group ? beside_of(row, *window_.group) : "";
      const auto [it, is_new] = numbers.try_emplace({file, group}, series.size());
      if (is_new) series.emplace_back();
      series[it->second].rows.push_back(row);
    }
    find_ends(series);
    if (window_.time) find_times(series);
    return series;
  }
  void find_ends(std::vector<Series>& series) {
    if (!source_
             .with_target) {  // one class is predicted, that of the next row, which is there if something is known of it
      const size_t num_known = window_.known.empty() ? 0 : 1;
      for (Series& one : series) one.num_past = one.rows.size() - std::min(one.rows.size(), num_known);
      return;
    }
    missing_ = at::isnan(field(source_.info.target)).reshape({static_cast<int64_t>(all_.places.size()), -1});
    const at::Tensor none = missing_.all(1);
    for (Series& one : series) {
      one.num_past = one.rows.size();
      while (one.num_past > 0 && none[static_cast<int64_t>(one.rows[one.num_past - 1])].item<bool>()) --one.num_past;
    }
  }
  /// The times of the steps to come, and gaps.
  void find_times(const std::vector<Series>& series) {
    SeriesTimes past;
    std::vector<size_t> rows;
    for (const Series& one : series) {
      for (const size_t row : one.rows) rows.push_back(row);
      past.ends.push_back(static_cast<int64_t>(rows.size()));
    }
    for (const size_t row : rows) past.texts.push_back(beside_of(row, *window_.time));
    past.place = [&](size_t i) { return all_.place(rows[i], *window_.time); };
    const TimeGaps gaps = find_gaps(past);
    for (size_t i = 0; i < gaps.starts.size(); ++i)
      gaps_.emplace(rows[static_cast<size_t>(gaps.starts[i])], gaps.texts[i]);
    const Texts after = times_after(past, window_.horizon);
    for (size_t i = 0; i < series.size() && !after.empty(); ++i) {
      const auto begin = after.begin() + static_cast<std::ptrdiff_t>(i * static_cast<size_t>(window_.horizon));
      times_after_.emplace(series[i].rows[0], Texts(begin, begin + static_cast<std::ptrdiff_t>(window_.horizon)));
    }
  }

  std::string called(const Series& one) const {
    const size_t row = one.rows[0];
    std::string name = all_.beside.contains(kFile) ? beside_of(row, kFile) : join(windows_.paths);
    if (window_.group) name += ": " + *window_.group + " " + beside_of(row, *window_.group);
    return name;
  }
  /// Why it cannot be forecast; "".
  std::string fault_of(const Series& one) const {
    const auto length = static_cast<size_t>(window_.length);
    if (one.num_past < length) {
      return called(one) + " has " + counted(static_cast<int64_t>(one.num_past), "row", "rows") +
             (source_.with_target ? " up to its last with a target" : "") + ", and the model reads " +
             std::to_string(length);
    }
    const size_t begin = one.num_past - length;
    for (size_t i = begin; i < one.num_past && source_.with_target; ++i) {
      if (!missing_[static_cast<int64_t>(one.rows[i])].any().item<bool>()) continue;
      return all_.place(one.rows[i], source_.info.target) + ": the target is missing, and the model reads the last " +
             std::to_string(length) + " of them";
    }
    const size_t end = std::min(one.rows.size(), one.num_past + static_cast<size_t>(window_.horizon));
    for (size_t i = begin + 1; i < end; ++i) {
      if (const auto gap = gaps_.find(one.rows[i]); gap != gaps_.end())
        return gap->second + "; fill in the missing rows";
    }
    if (window_.known.empty() || end - one.num_past == static_cast<size_t>(window_.horizon)) return "";
    return called(one) + " has " + counted(static_cast<int64_t>(end - one.num_past), "row", "rows") +
           " after its last with a target, and the model reads " + join(window_.known) + " of the " +
           std::to_string(window_.horizon) + " to come: add rows for these, in which the target is empty";
  }

  std::unique_ptr<Dataset> rows_of(const std::vector<Series>& series) {
    std::vector<int64_t> chosen;
    std::vector<int64_t> stand_ins;  // places in `chosen` of rows that the file does not have
    for (const Series& one : series) {
      for (int64_t i = 0; i < window_.length + window_.horizon; ++i) {
        const size_t at = one.num_past - static_cast<size_t>(window_.length) + static_cast<size_t>(i);
        if (at >= one.rows.size()) stand_ins.push_back(static_cast<int64_t>(chosen.size()));
        chosen.push_back(static_cast<int64_t>(one.rows[std::min(at, one.rows.size() - 1)]));
      }
      const size_t end = one.num_past + static_cast<size_t>(window_.horizon);
      if (one.rows.size() > end) num_beyond_ += static_cast<int64_t>(one.rows.size() - end);
    }
    auto rows = std::make_unique<SeriesRows>(source_.info, source_.columns, window_.length + window_.horizon);
    const at::Tensor indices = at::tensor(chosen, at::kLong);
    for (const auto& [name, tensor] : all_.fields) {
      at::Tensor own = tensor.index_select(0, indices);
      if (name == source_.info.target && source_.with_target && !stand_ins.empty()) {
        own.index_fill_(0, at::tensor(stand_ins, at::kLong), std::numeric_limits<double>::quiet_NaN());
      }
      rows->set(name, own);
    }
    return rows;
  }

  std::vector<ValueColumn> beside(const std::vector<Series>& series) const {
    Texts files;
    Texts groups;
    Texts times;
    std::vector<int64_t> steps;
    for (const Series& one : series) {
      for (int64_t step = 1; step <= window_.horizon; ++step) {
        if (all_.beside.contains(kFile)) files.push_back(beside_of(one.rows[0], kFile));
        if (window_.group) groups.push_back(beside_of(one.rows[0], *window_.group));
        if (window_.time) times.push_back(time_of(one, step));
        steps.push_back(step);
      }
    }
    std::vector<ValueColumn> columns;
    if (all_.beside.contains(kFile)) columns.push_back({kFile, std::move(files)});
    if (window_.group) columns.push_back({*window_.group, std::move(groups)});
    if (window_.time) columns.push_back({*window_.time, std::move(times)});
    columns.push_back({"step", at::tensor(steps, at::kLong)});
    return columns;
  }
  std::string time_of(const Series& one, int64_t step) const {
    const size_t at = one.num_past + static_cast<size_t>(step) - 1;
    if (at < one.rows.size()) return beside_of(one.rows[at], *window_.time);
    const auto after = times_after_.find(one.rows[0]);
    return after == times_after_.end() ? "" : after->second.at(at - one.rows.size());
  }

  UnlabelledSource windows_;
  UnlabelledSource source_;  // of their rows
  LastWindow window_;
  std::unique_ptr<UnlabelledData> rows_;
  MakeWindows make_windows_;
  AllRows all_;
  at::Tensor missing_;                   // [rows, K]: of the target
  std::map<size_t, std::string> gaps_;   // before these rows
  std::map<size_t, Texts> times_after_;  // of a series, by its first row: after its last row
  int64_t num_series_ = 0;
  int64_t num_beyond_ = 0;
};

}  // namespace

std::unique_ptr<UnlabelledData> read_last_windows(const UnlabelledSource& source, LastWindow window,
                                                  const OpenRows& open_rows, MakeWindows make_windows) {
  return std::make_unique<LastWindows>(source, std::move(window), open_rows, std::move(make_windows));
}

}  // namespace trainrun
