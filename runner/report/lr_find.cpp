#include "runner/report/lr_find.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "runner/base/text.h"
#include "runner/train/job.h"
#include "runner/train/train_step.h"
#include "runner/train/training_error.h"

namespace trainrun {
namespace {

constexpr double kMemory = 0.98;        // of the smoothed loss; fastai's
constexpr size_t kUncountedFirst = 10;  // whose losses are still of the initial weights
constexpr size_t kUncountedLast = 1;    // with which the loss leaps

/// Groups keep their ratios: the first one that learns gets `lr`.
void set_rates(Job& job, const std::vector<GroupRates>& base, double lr) {
  const auto learns = std::find_if(base.begin(), base.end(), [](const GroupRates& group) { return group.lr > 0; });
  const double unit = learns == base.end() ? 1 : learns->lr;
  for (size_t i = 0; i < base.size(); ++i) job.rates[i].lr = base[i].lr / unit * lr;
}

std::string short_number(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2g", number);
  return text;
}

/// Makes the steps, and notes the loss of each.
class Finder {
 public:
  Finder(Job& job, const LrFindOptions& options, LrFind& found) : job_(job), options_(options), found_(found) {}

  void run() {
    const std::vector<GroupRates> base = job_.rates;
    Progress& progress = job_.progress;
    for (; progress.step < options_.steps && found_.stopped.empty(); ++progress.epoch, progress.batch = 0) {
      const auto batches = job_.train_loader->iterate(progress.epoch);
      while (progress.batch < job_.train_loader->num_batches() && progress.step < options_.steps) {
        const double lr = rate(progress.step);
        set_rates(job_, base, lr);
        if (!step(*batches, lr)) return;
      }
    }
  }

 private:
  double rate(int64_t step) const {
    const double share = options_.steps > 1 ? static_cast<double>(step) / static_cast<double>(options_.steps - 1) : 0;
    return options_.min_lr * std::pow(options_.max_lr / options_.min_lr, share);
  }

  /// Whether to go on.
  bool step(BatchStream& batches, double lr) {
    try {
      if (!train_step(job_, batches)) return false;
      read_account(job_);
    } catch (const TrainingError&) {  // at some rate the loss is no longer finite: that is the end
      if (found_.points.size() <= kUncountedFirst) throw;
      found_.stopped = "the loss was not finite at a learning rate of " + short_number(lr);
      return false;
    }
    const double loss = job_.account->figures().loss;
    sum_ = kMemory * sum_ + (1 - kMemory) * loss;
    const double smoothed = sum_ / (1 - std::pow(kMemory, static_cast<double>(found_.points.size() + 1)));
    found_.points.push_back({lr, loss, smoothed});
    best_ = found_.points.size() == 1 ? smoothed : std::min(best_, smoothed);
    if (found_.points.size() <= kUncountedFirst || smoothed <= options_.stop_at * best_) return true;
    found_.stopped = "the loss was more than " + detail::number_text(options_.stop_at) +
                     " times the best at a learning rate of " + short_number(lr);
    return false;
  }

  Job& job_;
  const LrFindOptions& options_;
  LrFind& found_;
  double sum_ = 0;
  double best_ = 0;
};

}  // namespace

std::optional<double> steepest(const std::vector<LrFind::Point>& points) {
  std::optional<double> rate;
  double least = 0;
  for (size_t i = kUncountedFirst; i + kUncountedLast + 1 < points.size(); ++i) {
    const double slope =
        (points[i + 1].smoothed - points[i - 1].smoothed) / (std::log(points[i + 1].lr) - std::log(points[i - 1].lr));
    if (slope >= least) continue;
    least = slope;
    rate = points[i].lr;
  }
  return rate;
}

LrFind find_lr(const LoadedRecipe& loaded, const LrFindOptions& options) {
  spdlog::set_level(spdlog::level::off);
  Job::Options job_options;
  job_options.quiet = true;
  job_options.dry_run = true;
  Job job(loaded, job_options);
  job.scheduler.reset();
  job.model->train();
  LrFind found;
  found.name = loaded.recipe.name;
  found.path = loaded.path;
  Finder(job, options, found).run();
  found.suggestion = steepest(found.points);
  return found;
}

std::string to_text(const LrFind& found) {
  constexpr int64_t kRows = 12;
  constexpr int64_t kColumns = 80;
  std::string text = found.name + " (" + found.path + "): the smoothed loss over the learning rate\n\n";
  if (found.points.empty()) return text + "no step was made\n";
  double least = found.points[0].smoothed;
  double most = least;
  for (const LrFind::Point& point : found.points) {
    least = std::min(least, point.smoothed);
    most = std::max(most, point.smoothed);
  }
  std::vector<std::string> rows(kRows, std::string(kColumns, ' '));
  const auto count = static_cast<int64_t>(found.points.size());
  for (int64_t column = 0; column < kColumns; ++column) {
    const LrFind::Point& point = found.points[static_cast<size_t>(column * (count - 1) / (kColumns - 1))];
    const double height = most > least ? (point.smoothed - least) / (most - least) : 0;
    rows[static_cast<size_t>(std::llround((1 - height) * (kRows - 1)))][static_cast<size_t>(column)] = '*';
  }
  for (int64_t row = 0; row < kRows; ++row) {
    std::string label = row == 0 ? decimal(most) : row == kRows - 1 ? decimal(least) : "";
    label.insert(0, label.size() < 10 ? 10 - label.size() : 0, ' ');
    std::string line = rows[static_cast<size_t>(row)];
    line.erase(line.find_last_not_of(' ') + 1);
    text += label + " |" + line + "\n";
  }
  const std::string first = short_number(found.points.front().lr);
  const std::string last = short_number(found.points.back().lr);
  text += std::string(11, ' ') + "+" + std::string(kColumns, '-') + "\n" + std::string(12, ' ') + first +
          std::string(kColumns - first.size() - last.size(), ' ') + last + "\n\n";
  if (!found.stopped.empty()) text += "It ended early: " + found.stopped + ".\n";
  if (!found.suggestion) return text + "The loss never falls: try other rates (--min, --max), or look at the data.\n";
  return text + "The loss falls fastest at optimizer.lr=" + short_number(*found.suggestion) + ".\n";
}

nlohmann::ordered_json to_json(const LrFind& found) {
  nlohmann::ordered_json json = {{"name", found.name}, {"suggestion", nullptr}, {"stopped", found.stopped}};
  if (found.suggestion) json["suggestion"] = *found.suggestion;
  json["points"] = nlohmann::ordered_json::array();
  for (const LrFind::Point& point : found.points) {
    json["points"].push_back({{"lr", point.lr}, {"loss", point.loss}, {"smoothed", point.smoothed}});
  }
  return json;
}

}  // namespace trainrun
