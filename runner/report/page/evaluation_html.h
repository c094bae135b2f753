#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

#include "runner/report/run_evaluation.h"

namespace trainrun {

/// A chart, as the page's script draws it.
struct ChartOnPage {
  std::string title;
  nlohmann::ordered_json data;
  std::string description = {};  // for those who cannot see it
};

/// Numbers the charts of a page.
class PageCharts {
 public:
  /// The place of a chart on the page.
  std::string add(const ChartOnPage& chart);
  /// What the script draws.
  nlohmann::ordered_json take() { return std::move(charts_); }

 private:
  nlohmann::ordered_json charts_ = nlohmann::ordered_json::array();
};

/// What a run's model says of its evaluation data: tables, curves, the worst mistakes.
std::string evaluation_html(const std::string& run, const RunEvaluation& evaluation, PageCharts& charts);

}  // namespace trainrun
