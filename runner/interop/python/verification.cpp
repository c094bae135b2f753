#include "runner/interop/python/verification.h"

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <spawn.h>
#include <spdlog/spdlog.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>

#include "registry/formats/files/file_io.h"
#include "registry/tensors/files/safetensors.h"
#include "runner/interop/python/program.h"
#include "runner/interop/python/verification_recipe.h"
#include "runner/train/job.h"

namespace trainrun::python {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// A folder that is gone when this is.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string name = (fs::temp_directory_path() / "trainrun-verify-XXXXXX").string();
    if (!::mkdtemp(name.data())) throw FileError(name, "make a folder", errno);
    path_ = name;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  std::string file(const std::string& name) const { return (path_ / name).string(); }

 private:
  fs::path path_;
};

std::string content_of(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// The last lines of what a process wrote.
std::string end_of(const std::string& path) {
  constexpr size_t kMost = 2000;
  const std::string text = content_of(path);
  return text.size() <= kMost ? text : "…" + text.substr(text.size() - kMost);
}

/// This process's environment with other values for some variables.
std::vector<std::string> environment_with(const std::vector<std::string>& variables) {
  std::vector<std::string> all = variables;
  for (char** one = environ; *one; ++one) {
    const std::string text = *one;
    const std::string name = text.substr(0, text.find('=') + 1);
    const bool is_set =
        std::any_of(variables.begin(), variables.end(), [&](const auto& other) { return other.starts_with(name); });
    if (!is_set) all.push_back(text);
  }
  return all;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (std::string& text : texts) all.push_back(text.data());
  all.push_back(nullptr);
  return all;
}

/// Runs a program to its end. Throws Error where it cannot be started or fails; `log` gets what it says.
void run(std::vector<std::string> command, const std::vector<std::string>& variables, const std::string& log) {
  std::vector<std::string> environment = environment_with(variables);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  constexpr mode_t kMode = 0600;
  ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, kMode);
  ::posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  pid_t child = 0;
  const int failure = ::posix_spawnp(&child, command[0].c_str(), &actions, nullptr, pointers(command).data(),
                                     pointers(environment).data());
  ::posix_spawn_file_actions_destroy(&actions);
  if (failure != 0) {
    throw Error("export: --verify: cannot start " + command[0] + ": " + std::strerror(failure) +
                "; name a Python that has torch by --python PATH");
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    std::string all;
    for (const std::string& word : command) all += (all.empty() ? "" : " ") + word;
    const std::string said = end_of(log);
    const bool lacks = said.find("ModuleNotFoundError") != std::string::npos;
    throw Error("export: --verify: " + all + " failed:\n" + said +
                (lacks ? "name a Python that has what the program imports by --python PATH" : ""));
  }
}

void write_initial_weights(const LoadedRecipe& loaded, const std::string& path) {
  const auto level = spdlog::get_level();
  spdlog::set_level(spdlog::level::off);
  Job::Options options;
  options.quiet = true;
  options.rendezvous.emplace();
  options.rendezvous->rank = 0;
  options.rendezvous->world_size = 1;
  options.dry_run = true;
  const Job job(loaded, options);
  write_safetensors(path, job.model->state_dict(), {});
  spdlog::set_level(level);
}

void read_run(const std::string& folder, Verification& result, std::map<std::string, double>& figures) {
  std::istringstream lines(content_of(folder + "/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const json figure = json::parse(line);
    if (figure.value("split", "") == "train") {
      result.losses.push_back(figure.at("train/loss").get<double>());
      continue;
    }
    for (const auto& [name, value] : figure.items()) {
      if (name.starts_with("eval/") && value.is_number()) figures[name.substr(5)] = value.get<double>();
    }
  }
}

}  // namespace

double Verification::worst() const {
  if (losses.size() != others.size() || losses.empty()) return std::numeric_limits<double>::infinity();
  double least = 0;
  for (const double loss : losses) {
    if (loss <= 0) least = mean_size();
  }
  double worst = 0;
  for (size_t i = 0; i < losses.size(); ++i) {
    const double size = std::max({std::abs(losses[i]), std::abs(others[i]), least});
    const double difference = size == 0 ? 0 : std::abs(losses[i] - others[i]) / size;
    worst = std::isnan(difference) ? std::numeric_limits<double>::infinity() : std::max(worst, difference);
  }
  return worst;
}

double Verification::mean_size() const {
  double sum = 0;
  for (const double loss : losses) sum += std::abs(loss);
  return sum / static_cast<double>(losses.size());
}

Verification verify_program(const LoadedRecipe& loaded, const Catalog& catalog, const VerificationOptions& options) {
  const ScratchFolder scratch;
  const std::string run_folder = scratch.file("run");
  VerificationRecipe derived = verification_recipe(loaded.resolved, options.steps, run_folder, catalog);
  const std::string recipe = scratch.file(fs::path(loaded.path).stem().string() + ".yaml");
  write_file_atomically(recipe, resolved_text(derived.resolved));
  Catalog own = catalog;
  const LoadedRecipe changed = load_recipe(recipe, {}, own);
  write_file_atomically(scratch.file("program.py"), write_program(changed, own).text);
  const std::string weights = scratch.file("weights.safetensors");
  write_initial_weights(changed, weights);
  begin_with(derived.resolved, weights);
  write_file_atomically(recipe, resolved_text(derived.resolved));
  // The same kernels and threads on both sides, so that sums are rounded alike.
  const std::vector<std::string> alike = {"TRAINRUN_PLAIN_MKL=1", "ATEN_CPU_CAPABILITY=default", "OMP_NUM_THREADS=1",
                                          "CUDA_VISIBLE_DEVICES="};
  run({"/proc/self/exe", "--quiet", "run", recipe}, alike, scratch.file("trainrun.log"));
  run({options.python, scratch.file("program.py"), "--weights", weights, "--losses", scratch.file("losses.json"),
       "--output", scratch.file("trained.pt")},
      alike, scratch.file("program.log"));
  Verification result;
  result.changes = derived.changes;
  std::map<std::string, double> figures;
  read_run(run_folder, result, figures);
  const json written = json::parse(content_of(scratch.file("losses.json")));
  result.others = written.at("losses").get<std::vector<double>>();
  for (const auto& [name, value] : written.at("evaluation").items()) {
    if (figures.contains(name)) result.figures.push_back({name, figures[name], value.get<double>()});
  }
  return result;
}

}  // namespace trainrun::python
