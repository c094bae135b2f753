// What a bundle begins with: unpacks the program and the run once, and becomes the program. Linked statically, since
// nothing is known of the machine but its kernel.
#include <nlohmann/json.hpp>
#include <sys/auxv.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>

#include "tools/starter/unpacking.h"

namespace trainrun::starter {
namespace {

using nlohmann::json;

struct Call {
  std::string unpack;              // --unpack FOLDER
  std::vector<std::string> words;  // the rest, for the program
};

/// The file of this process. Without /proc (a chroot), the path by which it was started.
std::string own_path() {
  std::error_code unreadable;
  const std::filesystem::path path = std::filesystem::read_symlink("/proc/self/exe", unreadable);
  if (!unreadable) return path.string();
  const auto* started = reinterpret_cast<const char*>(::getauxval(AT_EXECFN));
  return started ? started : "";
}

std::string cache_folder() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache && *cache == '/') return std::string(cache) + "/trainrun/bundles";
  const char* home = std::getenv("HOME");
  if (home && *home != '\0') return std::string(home) + "/.cache/trainrun/bundles";
  throw BundleError("neither XDG_CACHE_HOME nor HOME says where to unpack; add --unpack FOLDER before the verb");
}

json description_of(const BundleFile& bundle) {
  constexpr int kFormat = 1;
  const json about = json::parse(bundle.text("bundle.json"), nullptr, /*allow_exceptions=*/false);
  if (about.is_object() && about.value("format", 0) == kFormat) return about;
  throw BundleError(bundle.path() + ": the bundle is damaged: bundle.json cannot be read; copy it again");
}

std::vector<Part> parts_of(const json& about) {
  std::vector<Part> parts;
  for (const json& part : about.at("parts")) {
    parts.push_back(
        {part.at("name").get<std::string>(), part.at("digest").get<std::string>(), part.at("bytes").get<uint64_t>()});
  }
  return parts;
}

std::string megabytes(uint64_t bytes) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f MB", static_cast<double>(bytes) / 1e6);
  return text.data();
}

void print_help(const BundleFile& bundle, const json& about, const std::string& called, const std::string& root) {
  const std::string name = std::filesystem::path(called).filename().string();
  uint64_t unpacked = 0;
  bool is_there = true;
  for (const Part& part : parts_of(about)) {
    unpacked += part.bytes;
    is_there = is_there && is_unpacked(part, root);
  }
  const auto line = [](const char* what, const std::string& text) { std::printf("  %-11s %s\n", what, text.c_str()); };
  const auto said = [&](const char* key) { return about.at(key).get<std::string>(); };
  std::printf("%s: a trained model with the program that uses it\n\n", name.c_str());
  line("trainrun", said("trainrun"));
  line("run", said("run"));
  line("checkpoint", said("checkpoint"));
  if (!said("labels").empty()) line("labels", said("labels"));
  line("data", said("data"));
  line("device", "cpu");
  line("needs", said("needs"));
  line("size", megabytes(bundle.bytes()) + "; unpacked " + megabytes(unpacked));
  line("unpacks to", root + (is_there ? " (done)" : " (at the first start)"));
  const auto usage = [&](const char* words, const char* text) {
    std::printf("  %s %-22s %s\n", name.c_str(), words, text);
  };
  std::printf("\nUsage: %s [--unpack FOLDER] VERB ...\n", name.c_str());
  usage("predict DATA ...", "what the model says of new data (predict --help: its options)");
  usage("eval", "its figures on the evaluation data");
  usage("run [key=value ...]", "train the recipe from its beginning; also: train");
  usage("resume [key=value ...]", "go on training from the checkpoint");
  usage("--licences", "the licences of the libraries in this file");
  std::printf("\nEvery verb of trainrun works: RUN or RECIPE, its first argument, is the bundle's and is left out.\n");
}

void print_licences(const BundleFile& bundle) {
  for (const auto& [name, member] : bundle.members()) {
    if (!name.starts_with("licences/")) continue;
    std::printf("=== %s\n\n%s\n\n", name.substr(9).c_str(), bundle.text(name).c_str());
  }
}

/// The program's words: after the verb what it is to work on. `run`: the folder of the run.
std::vector<std::string> program_words(const Call& call, const json& about, const std::string& run) {
  std::vector<std::string> words = call.words;
  size_t at = 0;
  while (at < words.size() && words[at].starts_with('-')) ++at;  // --quiet, --offline
  if (at == words.size()) return words;
  const std::string recipe = run + "/recipe.yaml";
  const bool resumes = words[at] == "resume";
  if (resumes || words[at] == "train") words[at] = "run";
  const auto insert = [&](const std::string& word) {
    words.insert(words.begin() + static_cast<std::ptrdiff_t>(++at), word);
  };
  const json& verbs = about.at("verbs");
  const auto verb = verbs.find(words[at]);
  if (verb != verbs.end()) insert(*verb == "recipe" ? recipe : run);
  if (resumes) insert("checkpoint.resume=" + run);
  return words;
}

[[noreturn]] void become(const std::string& program, std::vector<std::string> words) {
  const std::string binary = program + "/bin/trainrun";
  const char* libraries = std::getenv("LD_LIBRARY_PATH");
  const std::string path = program + "/lib" + (libraries && *libraries != '\0' ? ":" + std::string(libraries) : "");
  ::setenv("LD_LIBRARY_PATH", path.c_str(), 1);
  words.insert(words.begin(), binary);
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  ::execv(binary.c_str(), pointers.data());
  const int error_number = errno;
  std::string why = std::strerror(error_number);
  if (error_number == ENOENT) why = "this machine has no glibc (/lib64/ld-linux-x86-64.so.2)";
  if (error_number == EACCES)
    why += " (is the folder on a disk that is mounted noexec? add --unpack FOLDER before the verb)";
  throw BundleError("cannot start " + binary + ": " + why);
}

/// Takes --unpack FOLDER out of what precedes the verb.
Call call_of(int argc, char** argv) {
  Call call;
  bool has_verb = false;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (!has_verb && word == "--unpack") {
      if (i + 1 == argc) throw BundleError("--unpack needs a folder: --unpack FOLDER");
      call.unpack = std::filesystem::absolute(argv[++i]).lexically_normal().string();
    } else if (!has_verb && word.starts_with("--unpack=")) {
      call.unpack = std::filesystem::absolute(word.substr(9)).lexically_normal().string();
    } else {
      has_verb = has_verb || !word.starts_with('-');
      call.words.push_back(word);
    }
  }
  return call;
}

int start(int argc, char** argv) {
  const Call call = call_of(argc, argv);
  const BundleFile bundle(own_path());
  const json about = description_of(bundle);
  const std::string first = call.words.empty() ? "" : call.words[0];
  if (first == "--licences") {
    print_licences(bundle);
    return 0;
  }
  const std::string root = call.unpack.empty() ? cache_folder() : call.unpack;
  if (first == "--help" || first == "-h" || first == "help" || (first.empty() && call.unpack.empty())) {
    print_help(bundle, about, argv[0], root);
    return 0;
  }
  std::string program;
  std::string run;
  for (const Part& part : parts_of(about)) {
    const std::string folder = unpack(bundle, part, root);
    if (part.name == "program") program = folder;
    if (part.name == "run") run = folder;
    if (part.name == "run") ::setenv("TRAINRUN_BUNDLE_RUN", folder.c_str(), 1);  // of which recipe.yaml speaks
    if (part.name == "data") ::setenv("TRAINRUN_BUNDLE_DATA", folder.c_str(), 1);
  }
  if (first.empty()) return 0;
  become(program, program_words(call, about, run));
}

}  // namespace
}  // namespace trainrun::starter

int main(int argc, char** argv) {
  try {
    return trainrun::starter::start(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
    return 1;
  }
}
