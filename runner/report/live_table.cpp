#include "runner/report/live_table.h"

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "runner/base/text.h"
#include "runner/control/control_client.h"

namespace trainrun {
namespace {

using nlohmann::json;

constexpr std::chrono::milliseconds kPatience(500);

/// What the run says of itself; null where nobody trains it, or it does not answer.
json status_of(const RunRecord& run) {
  if (!has_control_socket(run.path)) return nullptr;
  try {
    const ControlAnswer answer = ask_run(run.path, "status", kPatience);
    return answer.is_done ? json::parse(answer.text, nullptr, /*allow_exceptions=*/false) : json();
  } catch (const Error&) {
    return nullptr;  // it has ended meanwhile, or another user's process trains it: its records are shown
  }
}

std::string number_cell(const json& status, const char* key, std::string (*text)(double)) {
  const auto found = status.find(key);
  return found != status.end() && found->is_number() ? text(found->get<double>()) : "-";
}

std::string step_cell(int64_t step, int64_t total) {
  return total > 0 ? grouped(step) + "/" + grouped(total) : grouped(step);
}

std::vector<std::string> row_of(const std::string& folder, const RunRecord& run) {
  std::string path = std::filesystem::path(run.path).lexically_relative(folder).string();
  if (path.empty() || path == ".") path = run.path;
  const json status = status_of(run);
  if (!status.is_object()) {
    return {
        path, state_word(run.state), run.step ? grouped(*run.step) : "-", "-", run.loss ? decimal(*run.loss) : "-", "-",
        "-"};
  }
  const double rate = status.value("steps_per_second", 0.0);
  const bool is_whole = status.at("state") == "training";
  return {path,
          is_whole ? "running" : status.value("state", "-"),
          step_cell(status.value("step", int64_t{0}), status.value("total_steps", int64_t{0})),
          rate > 0 ? rate_text(rate) : "-",
          number_cell(status, "loss", [](double loss) { return decimal(loss); }),
          number_cell(status, "seconds_left", duration),
          number_cell(status, "memory", bytes_text)};
}

}  // namespace

std::string live_table(const std::string& folder, const FoundRuns& found, size_t width) {
  using Align = TextTable::Align;
  TextTable table(
      {Align::kLeft, Align::kLeft, Align::kRight, Align::kRight, Align::kRight, Align::kRight, Align::kRight});
  table.add({"run", "state", "step", "steps/s", "loss", "left", "memory"});
  table.add_rule();
  for (const RunRecord& run : found.runs) table.add(row_of(folder, run));
  std::string text = table.to_string();
  if (found.runs.empty()) text = "no runs in " + folder + "\n";
  if (!found.damaged.empty())
    text += grouped(static_cast<int64_t>(found.damaged.size())) + " runs cannot be read; `trainrun runs` names them\n";
  if (width == 0) return text;
  std::string cut;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    cut += (text_width(line) > width ? wrapped(line, width).front() : line) + "\n";
    begin = end + 1;
  }
  return cut;
}

}  // namespace trainrun
