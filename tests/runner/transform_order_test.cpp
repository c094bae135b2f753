#include "runner/data/transform_order.h"

#include "tests/doctest.h"

namespace trainrun {
namespace {

class Doing : public Transform {
 public:
  explicit Doing(Values values) : values_(values) {}
  void describe(DatasetInfo&) const override {}
  void apply(Batch&, const SampleDraws&) const override {}
  Values values() const override { return values_; }

 private:
  Values values_;
};

BatchTransforms doing(const std::vector<Values>& values) {
  BatchTransforms transforms;
  for (const Values each : values) transforms.push_back(std::make_shared<Doing>(each));
  return transforms;
}

using Order = std::vector<size_t>;
Order order_of(const std::vector<Values>& values) { return application_order(doing(values)); }
size_t last_of(const std::vector<Values>& values) {
  return num_pointwise_last(doing(values), application_order(doing(values)));
}

constexpr Values kChanged = Values::kChanged;
constexpr Values kMoved = Values::kMoved;
constexpr Values kScaled = Values::kScaled;
constexpr Values kByItself = Values::kPointwise;

}  // namespace

TEST_CASE("what scales values comes after what only moves them, and no other transform changes its place") {
  CHECK(order_of({}).empty());
  CHECK(order_of({kScaled, kMoved, kMoved, kByItself}) == Order{1, 2, 0, 3});
  CHECK(order_of({kScaled, kChanged, kMoved}) == Order{0, 1, 2});
  CHECK(order_of({kByItself, kMoved}) == Order{0, 1});
  CHECK(order_of({kScaled, kScaled, kMoved, kChanged, kMoved}) == Order{2, 0, 1, 3, 4});
}

TEST_CASE("pointwise transforms that come last may be applied on the GPU") {
  CHECK(last_of({}) == 0);
  CHECK(last_of({kScaled, kMoved, kByItself}) == 2);
  CHECK(last_of({kScaled, kByItself, kMoved}) == 0);
  CHECK(last_of({kChanged, kByItself}) == 1);
  CHECK(last_of({kScaled, kByItself}) == 2);
}

}  // namespace trainrun
