#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "registry/components/metrics/accumulators.h"

// Precision, recall and F1 of whole entities, such as names of several words, that the tags of words mark: seqeval's.

namespace trainrun {

/// What is made of the figures of types of entities.
enum class EntityAverage { kMicro, kMacro, kWeighted, kNone };
template <>
struct Words<EntityAverage> {
  static constexpr std::array kWords = {"micro", "macro", "weighted", "none"};
};

namespace {

/// What a class says of a word: "B-PER" is 'B' of the type "PER", the first of `types`.
struct EntityTag {
  char tag = 'O';
  int64_t type = -1;  // of O: none
};

/// From the first word of an entity to its last.
struct Entity {
  int64_t type, first, last;
  auto operator<=>(const Entity&) const = default;
};

/// Whether an entity ends before a word. Source: Nakayama 2018, seqeval 1.2.2, end_of_chunk: all schemes are read, and
/// entities that do not begin with B count (mode "default").
bool ends_before(const EntityTag& before, const EntityTag& next) {
  if (before.tag == 'E' || before.tag == 'S') return true;
  if ((before.tag == 'B' || before.tag == 'I') && (next.tag == 'B' || next.tag == 'S' || next.tag == 'O')) return true;
  return before.tag != 'O' && before.type != next.type;
}

/// Likewise start_of_chunk.
bool begins_with(const EntityTag& before, const EntityTag& next) {
  if (next.tag == 'B' || next.tag == 'S') return true;
  const bool is_apart = before.tag == 'E' || before.tag == 'S' || before.tag == 'O';
  if (is_apart && (next.tag == 'E' || next.tag == 'I')) return true;
  return next.tag != 'O' && before.type != next.type;
}

std::vector<Entity> entities_of(const std::vector<EntityTag>& tags) {
  std::vector<Entity> entities;
  EntityTag before;
  int64_t begin = 0;
  for (size_t i = 0; i <= tags.size(); ++i) {
    const EntityTag next = i < tags.size() ? tags[i] : EntityTag();
    if (ends_before(before, next)) entities.push_back({before.type, begin, static_cast<int64_t>(i) - 1});
    if (begins_with(before, next)) begin = static_cast<int64_t>(i);
    before = next;
  }
  return entities;
}

/// Of one type of entities, or of all.
struct EntityCounts {
  double right = 0;
  double predicted = 0;
  double actual = 0;
};
double share(double part, double whole) { return whole == 0 ? 0 : part / whole; }
double precision_of(const EntityCounts& counts) { return share(counts.right, counts.predicted); }
double recall_of(const EntityCounts& counts) { return share(counts.right, counts.actual); }
double f1_of(const EntityCounts& counts) {
  const double precision = precision_of(counts);
  const double recall = recall_of(counts);
  return share(2 * precision * recall, precision + recall);
}

class EntityMetric final : public KnownMetric {
 public:
  using Score = double (*)(const EntityCounts&);
  EntityMetric(Score score, EntityAverage average, int64_t num_classes, int64_t ignore_index)
      : KnownMetric(MonitorMode::kMax),
        score_(score),
        average_(average),
        num_classes_(num_classes),
        ignore_index_(ignore_index) {
    EntityMetric::reset();
  }

  /// Throws DataError where a class is not a tag of an entity.
  void name_classes(const std::vector<std::string>& names) override {
    tags_.clear();
    types_.clear();
    for (const std::string& name : names) {
      const bool is_tag =
          name == "O" || (name.size() > 2 && std::string("BIES").find(name[0]) != std::string::npos && name[1] == '-');
      if (!is_tag) {
        throw DataError(
            "the class '" + name +
            "' is not a tag of entities; expected O, and B-, I-, E- or S- before a type, such as B-PER; for "
            "classes of single words use Accuracy or F1 with class_dim: -1");
      }
      tags_.push_back({name[0], name == "O" ? -1 : type_of(name.substr(2))});
    }
  }

  void update(const Tensors& inputs) override {
    if (inputs[0].is_meta()) return;
    if (static_cast<int64_t>(tags_.size()) > num_classes_ || tags_.empty()) {
      throw Error(tags_.empty()
                      ? "it needs the names of the tags, but the data have none; it is for TokenClassification"
                      : "the output has " + std::to_string(num_classes_) + " classes, but there are " +
                            std::to_string(tags_.size()) + " tags");
    }
    const at::Tensor predicted = inputs[0].argmax(-1).to(at::kCPU).contiguous();
    const at::Tensor actual = inputs[1].to(at::kCPU).contiguous();
    const int64_t length = actual.size(1);
    for (int64_t row = 0; row < actual.size(0); ++row) {
      add(predicted.const_data_ptr<int64_t>() + row * length, actual.const_data_ptr<int64_t>() + row * length, length);
    }
  }

  Figures compute() const override {
    const std::vector<double> sums = numbers_of(sums_);
    std::vector<EntityCounts> types;
    EntityCounts all;
    for (size_t type = 0; type < types_.size(); ++type) {
      types.push_back({sums[3 * type], sums[3 * type + 1], sums[3 * type + 2]});
      all.right += types.back().right, all.predicted += types.back().predicted, all.actual += types.back().actual;
    }
    if (average_ == EntityAverage::kMicro) return {{"", score_(all)}};
    if (average_ == EntityAverage::kNone) {
      Figures figures;
      for (size_t type = 0; type < types_.size(); ++type) figures.emplace_back(types_[type], score_(types[type]));
      return figures;
    }
    double sum = 0;
    double weights = 0;
    for (const EntityCounts& type : types) {
      const bool occurs = type.predicted + type.actual > 0;
      const double weight = average_ == EntityAverage::kMacro ? (occurs ? 1 : 0) : type.actual;
      sum += weight * score_(type);
      weights += weight;
    }
    if (weights == 0 && average_ == EntityAverage::kMacro) return {{"", NAN}};  // as seqeval's mean of no type
    return {{"", share(sum, weights)}};
  }
  void reset() override { sums_ = at::zeros({num_classes_, 3}, at::kDouble); }
  std::vector<at::Tensor> sums() const override { return {sums_}; }
  void set_sums(const std::vector<at::Tensor>& sums) override { sums_ = sums.at(0); }

 private:
  int64_t type_of(const std::string& type) {
    const auto found = std::find(types_.begin(), types_.end(), type);
    if (found == types_.end()) return types_.push_back(type), static_cast<int64_t>(types_.size()) - 1;
    return found - types_.begin();
  }
  EntityTag tag_of(int64_t number, const char* what) const {
    const auto place = static_cast<size_t>(number);
    if (number >= 0 && place < tags_.size()) return tags_[place];
    if (what == nullptr) return {};  // the model has an output for more tags than there are
    throw DataError(std::string(what) + " is class " + std::to_string(number) + ", but there are " +
                    std::to_string(tags_.size()) + " tags");
  }
  /// A sentence: words whose label is ignored are left out.
  void add(const int64_t* predicted, const int64_t* actual, int64_t length) {
    std::vector<EntityTag> own;
    std::vector<EntityTag> right;
    for (int64_t i = 0; i < length; ++i) {
      if (actual[i] == ignore_index_) continue;
      own.push_back(tag_of(predicted[i], nullptr));
      right.push_back(tag_of(actual[i], "a label"));
    }
    const std::vector<Entity> found = entities_of(own);
    const std::vector<Entity> there = entities_of(right);
    const std::set<Entity> known(there.begin(), there.end());
    auto* sums = sums_.mutable_data_ptr<double>();
    for (const Entity& entity : found) {
      sums[3 * entity.type + 1] += 1;
      sums[3 * entity.type] += known.contains(entity) ? 1 : 0;
    }
    for (const Entity& entity : there) sums[3 * entity.type + 2] += 1;
  }

  Score score_;
  EntityAverage average_;
  int64_t num_classes_;
  int64_t ignore_index_;
  std::vector<EntityTag> tags_;  // of classes, by their numbers
  std::vector<std::string> types_;
  at::Tensor sums_;  // [C, 3] float64: of each type the entities that are right, predicted, and there
};

template <EntityMetric::Score kScore>
struct EntityMetricOf {
  EntityAverage average = EntityAverage::kMicro;
  int64_t ignore_index = -100;

  static void describe(Fields<EntityMetricOf>& f) {
    f.optional("average", &EntityMetricOf::average)
        .doc(
            "micro: over all entities; macro: the mean over types that occur; weighted: the same, weighted by the "
            "number of entities of each; none: a figure for each type");
    f.optional("ignore_index", &EntityMetricOf::ignore_index).doc("tokens with this label are left out");
  }
  std::unique_ptr<Metric> build(const MetricInputs& in) const {
    in.require_inputs(2, 2);
    in.require_dims(3, 3, "[N, T, C]");
    const at::IntArrayRef output = in.shape(0);
    if (in.shape(1) != output.slice(0, 2) || in.examples[1].scalar_type() != at::kLong) {
      throw LayerError("it compares logits [N, T, C] with class indices [N, T], not " + shape_text(output) + " and " +
                       shape_text(in.shape(1)));
    }
    return std::make_unique<EntityMetric>(kScore, average, output[2], ignore_index);
  }
};

}  // namespace

void add_entity_metrics(MetricRegistry& metrics) {
  const std::string of =
      " of whole entities, as marked by the tags of words (B-PER, I-PER, O), as seqeval counts them: ";
  metrics.add<EntityMetricOf<precision_of>>("EntityPrecision",
                                            "precision" + of + "the share of those found that are right");
  metrics.add<EntityMetricOf<recall_of>>("EntityRecall", "recall" + of + "the share of those present that were found");
  metrics.add<EntityMetricOf<f1_of>>("EntityF1", "F1" + of + "the harmonic mean of precision and recall");
}

}  // namespace trainrun
