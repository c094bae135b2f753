#include "runner/bundle/bundle.h"

#include <dlfcn.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "registry/data/data_files.h"
#include "registry/formats/files/file_mapping.h"
#include "registry/language/error.h"
#include "runner/base/secrets.h"
#include "runner/base/text.h"
#include "runner/bundle/bundle_writer.h"
#include "runner/bundle/bundled_recipe.h"
#include "runner/bundle/library_licences.h"
#include "runner/bundle/loaded_libraries.h"
#include "runner/recipe/recipe_source.h"
#include "runner/recipe/yaml.h"
#include "runner/run/run_record.h"
#include "runner/train/evaluation.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using BundledKind = BundledFile::Kind;

constexpr const char* kStarter = "trainrun-starter";  // beside the libraries
constexpr uint64_t kMostTextBytes = uint64_t{1} << 30;

/// The files below `source`, or that file alone.
void add_tree(const std::string& source, const std::string& target, std::vector<BundledFile>& files) {
  if (!fs::is_directory(source)) {
    files.push_back({target, BundledKind::kPlain, source});
    return;
  }
  for (const auto& entry : fs::recursive_directory_iterator(source, fs::directory_options::follow_directory_symlink)) {
    if (!entry.is_regular_file()) continue;
    files.push_back(
        {target + "/" + entry.path().lexically_relative(source).string(), BundledKind::kPlain, entry.path()});
  }
}

/// The libraries that are opened when they are wanted. What cannot be opened here is left out.
std::vector<std::string> opened_libraries(const std::vector<std::string>& plugins, std::vector<std::string>& notes) {
  std::vector<std::string> opened = plugins;
  const std::string arrow = library_beside("libtrainrun_arrow.so");
  if (fs::exists(arrow) && dlopen(arrow.c_str(), RTLD_LAZY | RTLD_LOCAL)) {
    opened.push_back(arrow);
  } else {
    notes.emplace_back("this trainrun reads no Parquet and Arrow files, and neither will the bundle");
  }
  if (fs::exists(library_beside("libtrainrun_cuda.so"))) {
    notes.emplace_back("the CUDA part of this trainrun and its libraries are left out: the bundle computes on the CPU");
  }
  return opened;
}

BundlePart program_part(const NeededLibraries& needed, const std::vector<std::string>& plugins) {
  BundlePart part{"program", {}};
  part.files.push_back({"bin/trainrun", BundledKind::kExecuted, fs::read_symlink("/proc/self/exe").string()});
  for (const LoadedLibrary& library : needed.libraries) {
    std::error_code gone;
    const bool is_plugin = std::ranges::any_of(
        plugins, [&](const std::string& plugin) { return fs::equivalent(plugin, library.path, gone); });
    if (!is_plugin) part.files.push_back({"lib/" + library.name, BundledKind::kCode, library.path});
  }
  const std::string shipped = "recipes/data/digits.csv.gz";
  const std::string found = shipped_file(shipped);
  add_tree(found.substr(0, found.size() - shipped.size()) + "recipes", "share/trainrun/recipes", part.files);
  return part;
}

/// The checkpoints that go along, by their names: the one that predicts and, where the bundle trains, the newest.
std::vector<fs::path> checkpoints_of(const TrainedModel& trained, bool with_data, std::vector<std::string>& notes) {
  std::vector<fs::path> found = {fs::canonical(trained.checkpoint)};
  if (!with_data || trained.run.empty()) return found;
  const auto note = [&](const std::string& text) {
    if (std::ranges::find(notes, text) == notes.end()) notes.push_back(text);
  };
  const auto newest = CheckpointStore::find_newest(trained.run + "/checkpoints", note);
  if (newest && fs::canonical(*newest) != found[0]) found.push_back(fs::canonical(*newest));
  return found;
}

std::vector<BundledTokenizer> tokenizers_of(const json& state) {
  std::vector<BundledTokenizer> tokenizers;
  const json kept = state.value("learnt", json::object()).value("tokenizers", json::array());
  for (const json& one : kept) {
    tokenizers.push_back({one.at("path").get<std::string>(), one.at("copy").get<std::string>()});
  }
  return tokenizers;
}

BundlePart run_part(const TrainedModel& trained, const BundledRecipe& recipe,
                    const std::vector<fs::path>& checkpoints) {
  const fs::path run = fs::path(trained.recipe).parent_path();
  BundlePart part{"run", {}};
  const std::string heading =
      "# the recipe of a run, as its bundle has it: its paths begin where the bundle was unpacked\n";
  part.files.push_back({"recipe.yaml", BundledKind::kPlain, "", heading + to_yaml(recipe.value)});
  for (const fs::path& checkpoint : checkpoints) {
    add_tree(checkpoint.string(), "checkpoints/" + checkpoint.filename().string(), part.files);
  }
  part.files.push_back({"checkpoints/best", BundledKind::kLink, "", checkpoints[0].filename().string()});
  for (const char* name : {"summary.json", "metrics.jsonl"}) {
    if (fs::exists(run / name))
      part.files.push_back({name, BundledKind::kPlain, "", read_file(run / name, kMostTextBytes)});
  }
  if (fs::exists(run / "tokenizers")) add_tree((run / "tokenizers").string(), "tokenizers", part.files);
  for (const BundledPath& one : recipe.of_run) {
    const bool is_code = one.target.starts_with("plugins/");
    part.files.push_back({one.target, is_code ? BundledKind::kCode : BundledKind::kPlain, one.source});
  }
  return part;
}

std::string labels_text(const DataContract& contract) {
  constexpr size_t kMostShown = 20;
  std::vector<std::string> names = contract.class_names(contract.target);
  const size_t count = names.size();
  if (count <= kMostShown) return join(names);
  names.resize(kMostShown);
  return join(names) + ", … (" + std::to_string(count) + ")";
}

std::string data_text(const BundledRecipe& recipe, const BundlePart& data, bool with_data) {
  if (!data.files.empty()) return "included, " + bytes_text(static_cast<double>(data.bytes));
  if (with_data || recipe.left_out.empty()) return "none needed but what comes with trainrun";
  return "not included (" + join(recipe.left_out) + ")";
}

/// What is said of the run: "digits, finished".
std::string run_text(const RunRecord& record) {
  std::string text = record.name + ", " + state_word(record.state);
  if (record.state != RunRecord::State::kFinished && record.step) text += " at step " + std::to_string(*record.step);
  return text;
}

/// The licences as members of the archive.
void add_licences(const NeededLibraries& needed, const std::vector<std::string>& plugins, BundleWriter& writer,
                  std::vector<std::string>& notes) {
  std::vector<std::string> paths;
  for (const LoadedLibrary& library : needed.libraries) {
    const bool is_plugin = std::ranges::find(plugins, library.path) != plugins.end();
    if (!is_plugin && !library.name.starts_with("libtrainrun_")) paths.push_back(library.path);
  }
  if (Dl_info libc; dladdr(reinterpret_cast<const void*>(&::stat), &libc) != 0 && libc.dli_fname) {
    paths.emplace_back(libc.dli_fname);  // glibc: a part of it is in the starter
  }
  const LibraryLicences licences = licences_of(paths);
  for (const auto& [name, path] : licences.files) {
    writer.add_text("licences/" + name, read_file(path, kMostTextBytes));
  }
  for (const std::string& library : licences.unknown) {
    notes.push_back("no licence was found of " + library +
                    ", which is in the bundle; pass it on only where its licence allows that");
  }
}

struct Contents {
  json about;
  std::vector<BundlePart> parts;
  NeededLibraries needed;
  std::vector<std::string> plugins;
};

int64_t write(const Contents& contents, const BundleOptions& options, std::vector<std::string>& notes) {
  const FileMapping starter(library_beside(kStarter));
  const FileDigest digest = write_file_atomically(options.output, [&](FileWriter& file) {
    const std::string written = temporary_path(options.output);
    if (::chmod(written.c_str(), 0755) < 0) throw FileError(written, "make executable", errno);
    BundleWriter writer(file, starter.bytes(), options.level);
    writer.add_text("bundle.json", contents.about.dump(2) + "\n");
    for (const BundlePart& part : contents.parts) writer.add_text(part.name + ".list", part.list);
    add_licences(contents.needed, contents.plugins, writer, notes);
    for (const BundlePart& part : contents.parts) writer.add_files(part);
    writer.finish();
  });
  return digest.bytes;
}

/// What killed processes left of this file.
void remove_leftovers_of(const std::string& output) {
  const fs::path path = fs::absolute(output);
  std::error_code unreadable;
  for (const auto& entry : fs::directory_iterator(path.parent_path(), unreadable)) {
    const std::string name = entry.path().filename().string();
    if (!is_temporary_name(name, path.filename().string())) continue;
    const std::string process = name.substr(name.rfind('-') + 1);
    if (!fs::exists("/proc/" + process, unreadable)) remove_all(entry.path().string());
  }
}

/// The run's recipe in source form, and the tokenizers that the run kept.
BundledRecipe recipe_of(const TrainedModel& trained, const json& state, bool with_data) {
  const ResolvedRecipe source = resolve_recipe(trained.recipe, {});
  size_t num_kept = 0;
  Value written = with_secrets_kept(escape_interpolation(source.value), source.kept, num_kept);
  return bundled_recipe(std::move(written), tokenizers_of(state), with_data);
}

/// As the bundle will open it.
std::vector<std::string> overrides_for(const BundledRecipe& recipe) {
  std::vector<std::string> overrides = {"device=cpu"};
  const Value* processes = recipe.value.find("distributed_type");
  if (processes && processes->is_scalar()) overrides.push_back("distributed_type='" + processes->text() + "'");
  return overrides;
}

BundlePart data_part(const BundledRecipe& recipe) {
  BundlePart part{"data", {}};
  for (const BundledPath& one : recipe.of_data) add_tree(one.source, one.target, part.files);
  return part;
}

/// Reads all files, and says what is in them: bundle.json.
json description_of(Contents& contents, const BundledRecipe& recipe, bool with_data, BundleReport& report) {
  json parts = json::array();
  for (BundlePart& part : contents.parts) {
    add_digests(part);
    report.unpacked += static_cast<int64_t>(part.bytes);
    parts.push_back({{"name", part.name}, {"digest", part.digest}, {"bytes", part.bytes}});
  }
  const BundlePart& last = contents.parts.back();
  return {{"format", 1},
          {"trainrun", TRAINRUN_VERSION},
          {"data", data_text(recipe, last.name == "data" ? last : BundlePart{"data", {}}, with_data)},
          {"needs", "Linux on x86-64 with glibc " + contents.needed.glibc + " or newer"},
          {"parts", parts}};
}

}  // namespace

BundleReport write_bundle(const BundleOptions& options, Catalog& catalog) {
  BundleReport report;
  const TrainedModel trained = find_trained(options.run);
  const RunRecord record = read_run(fs::path(trained.recipe).parent_path().string(), catalog);
  if (record.state != RunRecord::State::kFinished) {
    report.notes.push_back("the run is not finished (" + run_text(record) + "); what it has saved is bundled");
  }
  report.notes.insert(report.notes.end(), trained.notes.begin(), trained.notes.end());
  const std::vector<fs::path> checkpoints = checkpoints_of(trained, options.with_data, report.notes);
  const json state = CheckpointStore::verify(checkpoints[0].string());
  const BundledRecipe recipe = recipe_of(trained, state, options.with_data);
  const TrainedRun run(trained, overrides_for(recipe), catalog);  // it can be opened, and its plugins are loaded now
  Contents contents;
  for (const BundledPath& one : recipe.of_run) {
    if (one.target.starts_with("plugins/")) contents.plugins.push_back(one.source);
  }
  contents.needed = needed_libraries(opened_libraries(contents.plugins, report.notes));
  contents.parts = {program_part(contents.needed, contents.plugins), run_part(trained, recipe, checkpoints)};
  if (BundlePart data = data_part(recipe); !data.files.empty()) contents.parts.push_back(std::move(data));
  contents.about = description_of(contents, recipe, options.with_data, report);
  contents.about["run"] = run_text(record);
  contents.about["checkpoint"] = checkpoints[0].filename().string();
  contents.about["labels"] = labels_text(run.contract());
  contents.about["verbs"] = options.verbs;
  remove_leftovers_of(options.output);
  report.bytes = write(contents, options, report.notes);
  for (const std::string& one : recipe.left_out) {
    report.notes.push_back("training reads " + one + ", which is not in the bundle; --with-data takes it along");
  }
  report.notes.insert(report.notes.end(), recipe.notes.begin(), recipe.notes.end());
  return report;
}

}  // namespace trainrun
