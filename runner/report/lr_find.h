#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runner/model/recipe_loader.h"

namespace trainrun {

struct LrFindOptions {
  double min_lr = 1e-7;
  double max_lr = 10;
  int64_t steps = 100;
  double stop_at = 4;  // times the best smoothed loss
};

/// How the loss goes while the learning rate grows from step to step.
struct LrFind {
  struct Point {
    double lr = 0;
    double loss = 0;
    double smoothed = 0;  // an exponential mean of the losses so far, corrected for its beginning
  };
  std::string name;
  std::string path;
  std::vector<Point> points;  // each taken before the step with that rate has its effect
  std::string stopped;        // why it ended before the last rate; "": it did not
  /// Where the loss falls fastest with the logarithm of the rate; nothing where it never falls.
  std::optional<double> suggestion;
};

/// Trains the recipe's model by the recipe's optimizer, without its scheduler, at learning rates that grow
/// exponentially, until the loss is `stop_at` times the best; writes nothing. Source: Smith 2017, "Cyclical learning
/// rates for training neural networks", section 3.3; the suggestion as in Lightning's and fastai's finders.
LrFind find_lr(const LoadedRecipe& loaded, const LrFindOptions& options);

/// The rate of the steepest descent of the smoothed loss; the first points and the last do not count.
std::optional<double> steepest(const std::vector<LrFind::Point>& points);

/// A plot and the suggestion, within 100 columns.
std::string to_text(const LrFind& found);
nlohmann::ordered_json to_json(const LrFind& found);

}  // namespace trainrun
