#include "registry/data/windows.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_unique.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/argsort.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <iterator>
#include <numeric>

#include "registry/data/partition.h"
#include "registry/data/series_columns.h"
#include "registry/data/series_holes.h"
#include "registry/data/time_steps.h"
#include "registry/data/unlabelled_windows.h"
#include "registry/data/views.h"
#include "registry/data/window_starts.h"
#include "registry/kinds/dataset_facts.h"
#include "registry/language/text_forms.h"

namespace trainrun {
namespace {

/// A sample is `length` rows of the base, each field [length, …], and the targets of the `horizon` rows that follow.
/// The past of a target that is a number goes into `features`, behind the others. No window has rows of two series.
class WindowsDataset : public Dataset {
 public:
  WindowsDataset(const Windows& options, std::unique_ptr<Dataset> base) : options_(options), base_(std::move(base)) {}

  DatasetInfo info() const override {
    DatasetInfo info;
    const DatasetInfo rows = base_->info();
    for (const auto* column : {&options_.group, &options_.time}) {
      if (size_ == 0 && *column) base_->facts().texts(**column);  // which refuses one that a table lacks
    }
    info.target = rows.target;
    if (size_ > 0) {
      info.num_samples = size_;
    } else if (rows.num_samples && !options_.group && options_.gaps == "error") {
      info.num_samples = num_windows(SeriesCuts::of(*base_, *rows.num_samples));
    }
    const FieldInfo& target = target_of(rows);
    const bool with_past = has_past(target);
    bool has_features = false;
    for (const FieldInfo& row : rows.fields) {
      if (row.name == rows.target) continue;
      FieldInfo field = row;
      if (with_past && field.name == kFeatures && takes_past(field)) {
        field.shape[0] += width_of(target);
        has_features = true;
      }
      field.shape.insert(field.shape.begin(), options_.length);
      info.fields.push_back(field);
    }
    if (with_past && !has_features) {
      info.fields.insert(info.fields.begin(),
                         {kFeatures, {options_.length, width_of(target)}, target.dtype, std::nullopt});
    }
    add_known_to(info, rows);
    FieldInfo future = target;
    future.shape.clear();
    if (with_past) future.shape = {options_.horizon};
    if (width_of(target) > 1) future.shape.push_back(width_of(target));
    info.fields.push_back(future);
    return info;
  }

  void open() override {
    require_all_drawn(*base_, "Windows");
    try {
      base_->open();
    } catch (const DataError& error) {
      throw DataError(without_series_columns(error.what(), options_.group, options_.time, *base_));
    }
    SeriesCuts cuts = options_.group ? SeriesCuts{bring_groups_together(), {}} : SeriesCuts::of(*base_, base_->size());
    if (options_.group) cuts.split_at(splits_at_holes(*base_, *options_.group, order_, cuts.ends));
    count_lost(cuts);
    if (options_.time) heed_gaps(cuts);
    found_ = find_window_starts(grid(), cuts);
    starts_ = at::tensor(found_.starts, at::kLong);
    size_ = starts_.numel();
    if (size_ > 0) return;
    const int64_t num_series = found_.num_series;
    const std::string among = num_series > 1 ? " in " + std::to_string(num_series) + " series" : "";
    throw DataError("Windows: " + std::to_string(base_->size()) + " rows" + among + " hold no window of " +
                    std::to_string(options_.length) + " and the " + std::to_string(options_.horizon) + " after it" +
                    (options_.holdout > 0 ? ", without the last " + std::to_string(options_.holdout) : "") +
                    (num_series == 1 && cuts.splits.empty() && longest_length() > 0
                         ? "; write length: " + std::to_string(longest_length()) + " or less"
                         : ""));
  }
  int64_t size() const override { return size_; }

  Batch get(const at::Tensor& indices) const override {
    const int64_t n = indices.numel();
    const Batch past = base_->get(rows_of(indices, 0, options_.length).flatten());
    const std::string target = base_->info().target;
    const at::Tensor& targets = past.at(target);
    const bool with_past = targets.is_floating_point();
    const at::Tensor past_targets = with_past ? targets.reshape({targets.size(0), -1}) : targets;
    Batch batch;
    const auto in_steps = [n](const at::Tensor& rows, int64_t steps) {  // [n * steps, …] to [n, steps, …]
      std::vector<int64_t> sizes = rows.sizes().vec();
      sizes[0] = steps;
      sizes.insert(sizes.begin(), n);
      return rows.reshape(sizes);
    };
    bool has_features = false;
    for (const Batch::Field& field : past.fields()) {
      if (field.name == target) continue;
      at::Tensor rows = field.tensor;
      if (with_past && field.name == kFeatures && rows.dim() == 2 && rows.is_floating_point()) {
        rows = at::cat({rows, past_targets}, 1);
        has_features = true;
      }
      batch.set(field.name, in_steps(rows, options_.length));
    }
    if (with_past && !has_features) batch.set(kFeatures, in_steps(past_targets, options_.length));
    const Batch future = base_->get(rows_of(indices, options_.length, options_.horizon).flatten());
    if (const std::vector<int64_t> places = known_places(); !places.empty()) {
      batch.set(kKnown,
                in_steps(future.at(kFeatures).index_select(1, at::tensor(places, at::kLong)), options_.horizon));
    }
    for (const std::string& name : known_fields())
      batch.set(known_name(name), in_steps(future.at(name), options_.horizon));
    const at::Tensor& next = future.at(target);
    if (!with_past) {
      batch.set(target, next);
    } else {
      batch.set(target,
                past_targets.size(1) > 1 ? in_steps(next, options_.horizon) : next.reshape({n, options_.horizon}));
    }
    return batch;
  }

  void learn(const at::Tensor& indices) override {
    const at::Tensor rows = rows_of(indices, 0, options_.length + options_.horizon);
    base_->learn(std::get<0>(at::_unique(rows, true)));
  }
  nlohmann::json learnt() const override { return base_->learnt(); }
  void set_inferred(const nlohmann::json& inferred) override { base_->set_inferred(inferred); }
  /// What is known of rows, but for what does not hold for windows of them.
  DatasetFacts facts() const override {
    const DatasetFacts rows = base_->facts();
    DatasetFacts facts;
    facts.field = [this, of_row = rows.field](const std::string& name) {
      FieldFacts field;
      const FieldFacts row = of_row(column_of(name));
      field.class_names = row.class_names;
      field.called = row.called;
      field.names_within = names_within(name);
      field.one_hot_names = one_hot_names(name);
      return field;
    };
    facts.place = [this](int64_t index, const std::string& field) { return place(index, field); };
    facts.texts = [this](const std::string& column) { return texts(column); };
    facts.notes = [this] { return notes(); };
    facts.inferred = rows.inferred;
    facts.ids = rows.ids;
    if (rows.unlabelled) {
      facts.unlabelled = [options = options_, of_rows = rows.unlabelled](const UnlabelledSource& source) {
        return read_last_windows(source, last_window(options), of_rows, [options](std::unique_ptr<Dataset> last) {
          return std::make_unique<WindowsDataset>(only_windows(options), std::move(last));
        });
      };
    }
    return facts;
  }
  void set_learnt(const nlohmann::json& state) override { base_->set_learnt(state); }

 private:
  static constexpr const char* kFeatures = "features";
  static constexpr const char* kKnown = "known";

  static LastWindow last_window(const Windows& options) {
    return {options.length, options.horizon, options.group, options.time, options.known};
  }
  /// Of series each of which is one window.
  static Windows only_windows(const Windows& options) {
    Windows own = options;
    own.stride = own.length + own.horizon;
    own.group.reset();
    own.time.reset();
    own.origins.reset();
    own.holdout = 0;
    return own;
  }
  /// The field of rows whose values to come `name` is, or `name` itself.
  std::string column_of(const std::string& name) const {
    const std::vector<std::string> fields = known_fields();
    const auto found = std::ranges::find(fields, name, known_name);
    return found == fields.end() ? name : *found;
  }
  static std::string known_name(const std::string& field) { return std::string(kKnown) + "_" + field; }
  /// The places in `features` of the columns that are known beforehand, in the order in which the recipe lists them.
  std::vector<int64_t> known_places() const {
    std::vector<int64_t> places;
    const std::vector<std::string> names = known_names_within();
    for (const std::string& column : options_.known) {
      for (size_t i = 0; i < names.size(); ++i) {
        if (names[i] == column) places.push_back(static_cast<int64_t>(i));
      }
    }
    return places;
  }
  std::vector<std::string> known_names_within() const {
    return options_.known.empty() ? std::vector<std::string>() : base_->facts().field(kFeatures).names_within;
  }
  /// Those that are fields of their own.
  std::vector<std::string> known_fields() const {
    if (options_.known.empty()) return {};
    std::vector<std::string> fields;
    const std::vector<std::string> within = known_names_within();
    const DatasetInfo rows = base_->info();
    for (const std::string& column : options_.known) {
      if (std::find(within.begin(), within.end(), column) != within.end()) continue;
      const FieldInfo* field = rows.find(column);
      if (field && column != rows.target) {
        fields.push_back(column);
        continue;
      }
      std::vector<std::string> all = within;
      for (const FieldInfo& other : rows.fields) all.push_back(other.name);
      throw DataError("Windows: known: there is no column '" + column + "' among the features" +
                      suggestion(column, all));
    }
    return fields;
  }
  void add_known_to(DatasetInfo& info, const DatasetInfo& rows) const {
    const std::vector<std::string> fields = known_fields();  // also refuses what is not there
    if (const std::vector<int64_t> places = known_places(); !places.empty()) {
      const FieldInfo& features = *rows.find(kFeatures);
      info.fields.push_back(
          {kKnown, {options_.horizon, static_cast<int64_t>(places.size())}, features.dtype, std::nullopt});
    }
    for (const std::string& name : fields) {
      FieldInfo field = *rows.find(name);
      field.name = known_name(name);
      field.shape.insert(field.shape.begin(), options_.horizon);
      info.fields.push_back(field);
    }
  }

  /// Refuses series whose times are not in order or have gaps, or splits them there.
  void heed_gaps(SeriesCuts& cuts) {
    const std::vector<std::string> texts = base_->facts().texts(*options_.time);
    if (texts.empty()) throw DataError("Windows: time: these data have no columns whose texts could be read as times");
    SeriesTimes times;
    std::set_union(cuts.ends.begin(), cuts.ends.end(), cuts.splits.begin(), cuts.splits.end(),
                   std::back_inserter(times.ends));
    const auto row = [this](size_t i) {
      return order_.defined() ? order_.const_data_ptr<int64_t>()[i] : static_cast<int64_t>(i);
    };
    for (size_t i = 0; i < texts.size(); ++i) times.texts.push_back(texts[static_cast<size_t>(row(i))]);
    times.place = [&](size_t i) { return base_->facts().place(row(i), *options_.time); };
    const TimeGaps gaps = find_gaps(times);
    if (gaps.starts.empty()) return;
    num_gaps_ = static_cast<int64_t>(gaps.starts.size());
    if (options_.gaps == "error") {
      constexpr size_t kMostNamed = 5;
      std::string lines;
      for (size_t i = 0; i < std::min(gaps.texts.size(), kMostNamed); ++i) lines += gaps.texts[i] + "\n";
      if (gaps.texts.size() > kMostNamed) {
        lines += "and " + std::to_string(gaps.texts.size() - kMostNamed) + " gaps more\n";
      }
      throw DataError(lines +
                      "fill in the missing rows, or write gaps: split, so that no window reaches over a gap; rows that "
                      "are filled in need a label, too");
    }
    cuts.split_at(gaps.starts);
  }

  /// Of the target its first row to come, of the others the first row of the past.
  std::string place(int64_t index, const std::string& field) const {
    const bool is_target = field == base_->info().target;
    return base_->facts().place(row_of(index, is_target ? options_.length : 0), field);
  }
  /// Of the first row to come.
  std::vector<std::string> texts(const std::string& column) const {
    const std::vector<std::string> rows = base_->facts().texts(column);
    std::vector<std::string> texts;
    for (int64_t i = 0; !rows.empty() && i < size_; ++i) {
      texts.push_back(rows[static_cast<size_t>(row_of(i, options_.length))]);
    }
    return texts;
  }
  std::vector<std::string> notes() const {
    std::vector<std::string> notes = base_->facts().notes();
    if (found_.too_short > 0 && size_ > 0) {
      notes.push_back("Windows: " + std::to_string(found_.too_short) + " of " + std::to_string(found_.num_series) +
                      " series are left out, which are too short for a window of " + std::to_string(options_.length) +
                      " rows and the " + std::to_string(options_.horizon) + " after it");
    }
    if (num_gaps_ > 0) {
      notes.push_back("Windows: steps of " + *options_.time + " are missing at " + std::to_string(num_gaps_) +
                      (num_gaps_ == 1 ? " place" : " places") + ", where series are split");
    }
    if (num_holes_ > 0) {
      notes.push_back("Windows: series are split at " + counted(num_holes_, "place", "places") +
                      " where rows are left out, so that no window reaches over one: there are " +
                      counted(num_lost_, "window", "windows") + " fewer");
    }
    if (found_.cut_origins > 0) {
      notes.push_back("Windows: " + std::to_string(found_.cut_origins) + " of " +
                      counted(found_.num_origins, "origin is", "origins are") +
                      " left out, whose windows would reach over a place where a series is split");
    }
    if (found_.fewer_origins > 0) {
      notes.push_back("Windows: " + std::to_string(found_.fewer_origins) + " of " + std::to_string(found_.num_series) +
                      " series are too short for " + std::to_string(*options_.origins) +
                      " origins, and have as many as fit");
    }
    return notes;
  }
  /// Of the target the numbers of the steps to come, from 1.
  std::vector<std::string> names_within(const std::string& field) const {
    const DatasetInfo rows = base_->info();
    const FieldInfo& target = target_of(rows);
    std::vector<std::string> names;
    if (field == rows.target && has_past(target) && width_of(target) == 1) {
      for (int64_t step = 1; step <= options_.horizon; ++step) names.push_back(std::to_string(step));
      return names;
    }
    if (field == kKnown && !options_.known.empty()) {
      const std::vector<std::string> within = known_names_within();
      for (const int64_t place : known_places()) names.push_back(within[static_cast<size_t>(place)]);
      return names;
    }
    names = base_->facts().field(field).names_within;
    if (field != kFeatures || !has_past(target)) return names;
    const std::vector<std::string> labels = base_->facts().field(rows.target).names_within;
    if (labels.empty()) names.push_back(rows.target);
    names.insert(names.end(), labels.begin(), labels.end());
    return names;
  }

  std::vector<std::string> one_hot_names(const std::string& field) const {
    const std::vector<std::string> of_rows = base_->facts().field(kFeatures).one_hot_names;
    const bool has_known = field == kKnown && !options_.known.empty();
    if (of_rows.empty() || (field != kFeatures && !has_known)) return {};
    std::vector<std::string> names = names_within(field);
    if (!has_known) {
      std::ranges::copy(of_rows, names.begin());  // behind them is the target's past
      return names;
    }
    const std::vector<int64_t> places = known_places();
    for (size_t i = 0; i < places.size(); ++i) names[i] = of_rows[static_cast<size_t>(places[i])];
    return names;
  }

  WindowGrid grid() const {
    return {options_.length, options_.horizon, options_.stride, options_.holdout, options_.origins};
  }
  int64_t longest_length() const { return base_->size() - options_.horizon - options_.holdout; }
  /// Where each series ends, where equal values of a column make them: their rows are brought together, in their order.
  std::vector<int64_t> bring_groups_together() {
    const std::vector<int64_t> keys = keys_of(*base_, *options_.group);
    order_ = at::tensor(keys, at::kLong).argsort(/*stable=*/true, /*dim=*/0, /*descending=*/false);
    std::vector<int64_t> ends;
    for (const int64_t key : keys) {
      if (static_cast<size_t>(key) >= ends.size()) ends.resize(static_cast<size_t>(key) + 1);
      ++ends[static_cast<size_t>(key)];
    }
    std::partial_sum(ends.begin(), ends.end(), ends.begin());
    return ends;
  }
  /// The windows that would reach over rows that are left out, at which `cuts` splits series.
  void count_lost(const SeriesCuts& cuts) {
    num_holes_ = static_cast<int64_t>(cuts.splits.size());
    num_lost_ = std::max<int64_t>(num_windows({cuts.ends, {}}) - num_windows(cuts), 0);
  }
  int64_t num_windows(const SeriesCuts& cuts) const {
    return static_cast<int64_t>(find_window_starts(grid(), cuts).starts.size());
  }
  /// [N, count]: the rows from `offset` on of each window.
  at::Tensor rows_of(const at::Tensor& indices, int64_t offset, int64_t count) const {
    const at::Tensor starts = starts_.index_select(0, indices);
    const at::Tensor places = starts.unsqueeze(1) + at::arange(offset, offset + count, at::kLong);
    return order_.defined() ? order_.index_select(0, places.flatten()).view(places.sizes()) : places;
  }
  int64_t row_of(int64_t index, int64_t offset) const {
    const int64_t place = starts_.const_data_ptr<int64_t>()[index] + offset;
    return order_.defined() ? order_.const_data_ptr<int64_t>()[place] : place;
  }
  static bool has_past(const FieldInfo& target) { return at::isFloatingType(target.dtype); }
  static bool takes_past(const FieldInfo& features) {
    return features.shape.size() == 1 && at::isFloatingType(features.dtype);
  }
  /// How many numbers of a row are to be predicted.
  static int64_t width_of(const FieldInfo& target) { return target.shape.empty() ? 1 : target.shape[0]; }
  const FieldInfo& target_of(const DatasetInfo& rows) const {
    const FieldInfo& target = *rows.find(rows.target);
    const bool single =
        target.shape.empty() || (target.shape.size() == 1 && (has_past(target) || target.shape[0] == 1));
    if (!single) throw DataError("Windows: '" + target.name + "' must be numbers, or one class, in each row");
    if (!has_past(target) && options_.horizon > 1) {
      throw DataError("Windows: one class is predicted, that of the next row; horizon must be 1");
    }
    return target;
  }

  Windows options_;
  std::unique_ptr<Dataset> base_;
  WindowStarts found_;
  at::Tensor starts_;  // [N]: where each window begins, in order_
  at::Tensor order_;   // of the rows: series after series; undefined: the data's own
  int64_t size_ = 0;
  int64_t num_gaps_ = 0;
  int64_t num_holes_ = 0;
  int64_t num_lost_ = 0;  // windows, for the holes
};

}  // namespace

std::unique_ptr<Dataset> Windows::build(const DatasetInputs& inputs) const {
  DatasetInputs of_rows = inputs;
  of_rows.target_alone = true;
  for (const auto* column : {&group, &time}) {
    const bool is_read = *column && std::ranges::find(known, **column) != known.end();
    if (*column && !is_read) of_rows.no_features.push_back(**column);
  }
  std::unique_ptr<Dataset> rows = dataset.build(of_rows);
  const std::string fault = rows->facts().disorder(group);
  if (!fault.empty()) {
    throw RecipeError(
        {{dataset.place, dataset.path, "Windows needs rows that follow each other in time, but " + fault}});
  }
  return std::make_unique<WindowsDataset>(*this, std::move(rows));
}

void add_windows(DatasetRegistry& datasets) {
  datasets.add<Windows>("Windows", "the rows of another data set as sliding windows: forecasts of what comes next");
}

}  // namespace trainrun
