#include <algorithm>

#include "registry/components/schedulers/closed_form.h"

namespace trainrun {
namespace {

/// What LambdaLR is used for, said with points.
struct Piecewise {
  std::vector<std::array<double, 2>> points;
  std::string interpolation = "linear";
  static void describe(Fields<Piecewise>& f) {
    f.required("points", &Piecewise::points)
        .at_least(0)
        .doc(
            "[when, factor of the learning rate], in order of time; the first factor also holds before its point, the "
            "last after it");
    f.optional("interpolation", &Piecewise::interpolation)
        .one_of({"linear", "constant"})
        .doc("along straight lines from point to point, or constant from each point to the next");
  }
  void check(Checker& checker) const {
    if (points.empty()) checker.fail("points", "needs at least one point");
    const auto no_later = [](const auto& a, const auto& b) { return a[0] >= b[0]; };
    if (std::adjacent_find(points.begin(), points.end(), no_later) != points.end()) {
      checker.fail("points", "must be in order of time, each later than the one before");
    }
  }
  double factor(double t) const {
    const auto next = std::find_if(points.begin(), points.end(), [&](const auto& point) { return point[0] > t; });
    if (next == points.begin()) return points.front()[1];
    const auto& [from, start] = *(next - 1);
    if (next == points.end() || interpolation == "constant") return start;
    const auto& [to, goal] = *next;
    return start + (goal - start) * (t - from) / (to - from);
  }
  std::unique_ptr<Scheduler> build(const SchedulerInputs& inputs) const {
    return closed_form(inputs, [*this](int64_t t, double base) { return base * factor(static_cast<double>(t)); });
  }
};

}  // namespace

void add_piecewise(SchedulerRegistry& schedulers) {
  schedulers.add<Piecewise>("Piecewise", "the rate times factors given for points in time");
}

}  // namespace trainrun
