#include "registry/data/series_columns.h"

#include <algorithm>
#include <sstream>

#include "registry/data/tables/column_facts.h"
#include "registry/kinds/dataset_facts.h"
#include "registry/language/text_forms.h"

namespace trainrun {

std::string without_series_columns(const std::string& message, const std::optional<std::string>& group,
                                   const std::optional<std::string>& time, const Dataset& rows) {
  std::vector<std::string> left = rows.facts().field("features").names_within;
  left.erase(std::unique(left.begin(), left.end()), left.end());  // a column with one_hot is there several times
  std::istringstream lines(message);
  std::string told;
  std::string advice;
  for (std::string line; std::getline(lines, line);) {
    for (const auto* column : {&group, &time}) {
      const auto feature = *column ? std::find(left.begin(), left.end(), **column) : left.end();
      if (feature == left.end() || line.find(":" + **column + ": ") == std::string::npos) continue;
      line = line.substr(0, line.find("; write columns: "));
      advice += (advice.empty() ? "" : ", and ") + **column + " is the column that " +
                (column == &group ? "group" : "time") + " names";
      left.erase(feature);
    }
    if (line.find(": to leave out what cannot be read write features: ") != std::string::npos) continue;
    told += line + "\n";
  }
  if (advice.empty()) return message;
  std::vector<std::string> names;
  for (const std::string& name : left) names.push_back(yaml_text(name));
  return told + advice + ": leave it out of the features, which are then features: [" + join(names) + "]";
}

}  // namespace trainrun
