#include "registry/kinds/dataset_facts.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>

#include <memory>
#include <utility>
#include <vector>

#include "registry/data/joined_datasets.h"
#include "registry/data/views.h"
#include "registry/kinds/dataset.h"
#include "tests/doctest.h"

namespace trainrun {
namespace {

using Strings = std::vector<std::string>;

/// A data set that tells nothing of itself, as a plugin's may.
class Silent : public TensorDataset {
 public:
  DatasetInfo info() const override {
    return {{{"x", {}, at::kLong, std::nullopt}, {"label", {}, at::kLong, 2}}, "label", kSize};
  }
  void open() override {
    set_field("x", at::arange(kSize, at::kLong) * 10);
    set_field("label", at::arange(kSize, at::kLong) % 2);
  }

 protected:
  static constexpr int64_t kSize = 6;
};

class Telling : public Silent {
 public:
  DatasetFacts facts() const override {
    DatasetFacts facts = Silent::facts();
    facts.field = [](const std::string& name) {
      FieldFacts field;
      if (name == "label") {
        field.class_names = {"ant", "bee"};
        field.names_within = {"of an insect"};
        field.padding = 7;
        field.renumbering = "columns: {label: category}";
      }
      return field;
    };
    facts.place = [](int64_t index, const std::string& field) { return std::to_string(index) + "!" + field; };
    facts.stored = [](int64_t index) { return "bytes " + std::to_string(index); };
    facts.texts = [](const std::string& column) { return Strings{"0" + column, "1", "2", "3", "4", "5"}; };
    facts.lengths = [] { return at::arange(kSize, at::kLong) + 100; };
    facts.own_order = [](uint64_t, int64_t) { return at::tensor({5, 4, 3, 2, 1, 0}, at::kLong); };
    facts.series_starts = [] { return std::vector<int64_t>{2, 4}; };
    facts.holes = [](const std::string& column) {
      return std::vector<DatasetFacts::Hole>{{2, column}, {6, std::nullopt}};
    };
    facts.notes = [] { return Strings{"a note"}; };
    facts.inferred = [this] { return inferred_; };
    return facts;
  }
  void set_inferred(const nlohmann::json& inferred) override { inferred_ = inferred; }

 private:
  nlohmann::json inferred_ = "own";
};

std::unique_ptr<Dataset> some_of(std::unique_ptr<Dataset> base, const std::vector<int64_t>& numbers) {
  return choose_samples(std::move(base), [numbers](int64_t) { return at::tensor(numbers, at::kLong); });
}

bool are(const at::Tensor& found, const std::vector<int64_t>& expected) {
  return found.defined() && found.equal(at::tensor(expected, at::kLong));
}

Strings shown(const std::vector<DatasetFacts::Hole>& holes) {
  Strings all;
  for (const DatasetFacts::Hole& hole : holes) all.push_back(std::to_string(hole.before) + hole.text.value_or("?"));
  return all;
}

TEST_CASE("a data set that tells nothing of itself still has a place, and what lies in its tensors") {
  Silent data;
  data.open();
  const DatasetFacts facts = data.facts();
  CHECK(facts.place(3, "x") == "sample 3:x");
  CHECK(are(facts.held("x"), {0, 10, 20, 30, 40, 50}));
  CHECK(facts.field("label").class_names.empty());
  CHECK_FALSE(facts.lengths().defined());
  CHECK_FALSE(facts.own_order);
}

TEST_CASE("some samples of a data set have its facts, by their own numbers") {
  const auto data = some_of(std::make_unique<Telling>(), {4, 1, 3});
  CHECK(data->facts().field("label").class_names == Strings{"ant", "bee"});  // which needs no open
  data->open();
  const DatasetFacts facts = data->facts();
  CHECK(facts.field("label").renumbering == "columns: {label: category}");
  CHECK(facts.field("label").padding == 7);
  CHECK(facts.place(0, "x") == "4!x");
  CHECK(facts.stored(2) == "bytes 3");
  CHECK(facts.texts("a") == Strings{"4", "1", "3"});
  CHECK(are(facts.lengths(), {104, 101, 103}));
  CHECK(are(facts.held("x"), {40, 10, 30}));
  CHECK(are(facts.own_order(0, 0), {0, 2, 1}));
  CHECK(facts.series_starts() == std::vector<int64_t>{1, 2});
  CHECK(facts.notes() == Strings{"a note"});
  data->set_inferred("another's");
  CHECK(data->facts().inferred() == "another's");
}

TEST_CASE("some samples in their order, and joined data, have the holes between their own samples") {
  const auto some = some_of(std::make_unique<Telling>(), {0, 3, 4});
  some->open();
  CHECK(shown(some->facts().holes("a")) == Strings{"1a", "3?"});
  std::vector<std::unique_ptr<Dataset>> parts;
  parts.push_back(std::make_unique<Telling>());
  parts.push_back(some_of(std::make_unique<Telling>(), {0, 3, 4}));
  JoinedDatasets joined("Concat", std::move(parts));
  joined.open();
  CHECK(shown(joined.facts().holes("a")) == Strings{"2a", "6?", "7a", "9?"});
}

TEST_CASE("data sets that are joined have the first one's facts, and each sample has its own") {
  std::vector<std::unique_ptr<Dataset>> parts;
  parts.push_back(std::make_unique<Telling>());
  parts.push_back(some_of(std::make_unique<Telling>(), {5, 0}));
  JoinedDatasets data("Concat", std::move(parts));
  data.open();
  const DatasetFacts facts = data.facts();
  CHECK(facts.field("label").class_names == Strings{"ant", "bee"});
  CHECK(facts.field("label").names_within == Strings{"of an insect"});
  CHECK(facts.field("label").renumbering.empty());
  CHECK(facts.place(5, "x") == "5!x");
  CHECK(facts.place(7, "x") == "0!x");
  CHECK(facts.stored(6) == "bytes 5");
  CHECK(facts.texts("a") == Strings{"0a", "1", "2", "3", "4", "5", "5", "0a"});
  CHECK(are(facts.lengths(), {100, 101, 102, 103, 104, 105, 105, 100}));
  CHECK(facts.series_starts() == std::vector<int64_t>{2, 4, 6, 7});
  CHECK(facts.notes() == Strings{"a note", "a note"});
  CHECK_FALSE(facts.own_order);
}

}  // namespace
}  // namespace trainrun
