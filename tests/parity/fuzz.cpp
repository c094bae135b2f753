#include "tests/parity/fuzz.h"

#include <sys/resource.h>
#include <sys/time.h>

#include <algorithm>
#include <cctype>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <set>
#include <typeinfo>

#include "registry/kinds/sample_draws.h"
#include "registry/language/splitmix.h"
#include "registry/tensors/component_error.h"
#include "tests/parity/fuzz_changes.h"

namespace trainrun {

namespace {

namespace fs = std::filesystem;

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TRAINRUN_SANITIZED
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define TRAINRUN_SANITIZED
#endif
#ifdef TRAINRUN_SANITIZED
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

constexpr double kMostSeconds = kSanitized ? 50 : 5;
constexpr int64_t kHangSeconds = kSanitized ? 1200 : 120;
constexpr int64_t kMostBytes = int64_t{1} << 30;
constexpr size_t kMostFindings = 10;

double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// A number of kB in /proc/self/status, in bytes.
int64_t memory_figure(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name + ":")) return std::stoll(line.substr(name.size() + 1)) * 1024;
  }
  throw Error("/proc/self/status has no " + name);
}

/// How much memory is taken in an object's life at most, beyond what was in use before.
class MemoryPeak {
 public:
  MemoryPeak() {
    std::ofstream reset("/proc/self/clear_refs");
    reset << "5" << std::flush;  // the highest so far is what is in use
    if (!reset) throw Error("/proc/self/clear_refs cannot be written: the memory that a file takes is not known");
    before_ = memory_figure("VmHWM");
  }
  int64_t bytes() const { return memory_figure("VmHWM") - before_; }

 private:
  int64_t before_ = 0;
};

/// Ends the process where one file takes too long; without sanitizers also makes a request for absurd memory fail, as
/// on a machine that does not have it.
class Limits {
 public:
  Limits() {
    if (kSanitized) return;  // whose shadow memory is larger than any limit
    getrlimit(RLIMIT_AS, &before_);
    rlimit limit = before_;
    limit.rlim_cur = static_cast<rlim_t>(memory_figure("VmSize") + 3 * kMostBytes);
    setrlimit(RLIMIT_AS, &limit);
  }
  Limits(const Limits&) = delete;
  Limits& operator=(const Limits&) = delete;
  ~Limits() {
    set_timer(0);
    if (!kSanitized) setrlimit(RLIMIT_AS, &before_);
  }
  static void begin_round() { set_timer(kHangSeconds); }

 private:
  static void set_timer(int64_t seconds) {
    itimerval timer{};
    timer.it_value.tv_sec = seconds;
    setitimer(ITIMER_PROF, &timer, nullptr);
  }
  rlimit before_{};
};

/// Leads the seeds' places to the seeds themselves, and one of them to the changed file.
class Places {
 public:
  Places(const std::vector<FuzzSeed>& seeds, const std::string& folder) : seeds_(seeds) {
    for (size_t i = 0; i < seeds.size(); ++i) {
      originals_.push_back(folder + "/seed-" + std::to_string(i));
      if (seeds[i].place.empty()) continue;
      std::ofstream(originals_[i], std::ios::binary) << seeds[i].content;
    }
  }
  void lead(size_t to_changed, const std::string& changed) const {
    for (size_t i = 0; i < seeds_.size(); ++i) {
      const std::string& place = seeds_[i].place;
      const std::string& target = i == to_changed ? changed : originals_[i];
      std::error_code is_none;  // or a file of the reader's own
      if (place.empty() || fs::read_symlink(place, is_none) == target) continue;
      fs::remove(place);
      fs::create_symlink(target, place);
    }
  }

 private:
  const std::vector<FuzzSeed>& seeds_;
  std::vector<std::string> originals_;
};

/// The same for findings that begin alike, but for numbers and quoted words.
std::string kind_of(const std::string& text) {
  constexpr size_t kMostCompared = 80;
  std::string kind;
  bool quoted = false;
  for (const char c : text.substr(0, kMostCompared)) {
    if (c == '\'' || c == '"') quoted = !quoted;
    if (!quoted && !std::isdigit(static_cast<unsigned char>(c))) kind += c;
  }
  return kind;
}

std::string shortened(const std::string& text) {
  constexpr size_t kMostShown = 400;
  return text.size() > kMostShown ? text.substr(0, kMostShown) + "…" : text;
}

class Fuzzer {
 public:
  Fuzzer(const FuzzedReader& reader, const std::vector<FuzzSeed>& seeds, const FuzzPlan& plan)
      : reader_(reader), seeds_(seeds), plan_(plan), places_(seeds, plan.folder) {}

  FuzzResult run() {
    const Limits limits;
    check_seeds();
    const double start = processor_seconds();
    for (int64_t i = 0; plan_.seconds > 0 ? processor_seconds() - start < plan_.seconds : i < plan_.rounds; ++i) {
      if (result_.findings.size() >= kMostFindings) break;
      run_round(plan_.first + i);
    }
    return std::move(result_);
  }

 private:
  void check_seeds() const {
    for (size_t i = 0; reader_.reads_seeds && i < seeds_.size(); ++i) {
      const std::string written = plan_.folder + "/" + seeds_[i].name;
      std::ofstream(written, std::ios::binary) << seeds_[i].content;
      places_.lead(i, written);
      try {
        reader_.read({seeds_[i].place.empty() ? written : seeds_[i].place, seeds_[i].content, i});
      } catch (const std::exception& error) {
        throw Error("the reader " + reader_.name + " refuses " + seeds_[i].name + " as it is: " + error_text(error));
      }
      fs::remove(written);
    }
  }

  std::string changed_content(size_t seed, RandomStream& random) const {
    const auto other = static_cast<size_t>(random.integer(static_cast<int64_t>(seeds_.size())));
    std::string content = changed(seeds_[seed], seeds_[other], reader_.words, random);
    if (reader_.mend && random.integer(4) > 0) reader_.mend(content, seeds_[seed]);
    return content;
  }

  void run_round(int64_t round) {
    RandomStream random(splitmix64(splitmix64(plan_.seed) + static_cast<uint64_t>(round)));
    FuzzedFile file;
    file.seed = static_cast<size_t>(random.integer(static_cast<int64_t>(seeds_.size())));
    const FuzzSeed& seed = seeds_[file.seed];
    file.content = changed_content(file.seed, random);
    const std::string written = plan_.folder + "/" + reader_.name + "-" + std::to_string(round) + "-" + seed.name;
    std::ofstream(written, std::ios::binary) << file.content;
    places_.lead(file.seed, written);
    file.path = seed.place.empty() ? written : seed.place;
    const std::string finding = read(file);
    ++result_.rounds;
    if (finding.empty() || !kinds_.insert(kind_of(finding)).second) {
      fs::remove(written);
      return;
    }
    result_.findings.push_back(reader_.name + ", round " + std::to_string(round) + " of seed " +
                               std::to_string(plan_.seed) + ", from " + seed.name + ": " + shortened(finding) +
                               "; the file is " + written);
  }

  /// What is wrong with how the file was read or refused; "": nothing.
  std::string read(const FuzzedFile& file) {
    Limits::begin_round();
    const MemoryPeak memory;
    const double start = processor_seconds();
    std::string finding;
    try {
      reader_.read(file);
      ++result_.read;
    } catch (const std::exception& error) {
      finding = refusal(file, error);
    }
    const double seconds = processor_seconds() - start;
    const int64_t bytes = memory.bytes();
    result_.most_seconds = std::max(result_.most_seconds, seconds);
    result_.most_bytes = std::max(result_.most_bytes, bytes);
    if (seconds > kMostSeconds) finding += " It took " + std::to_string(seconds) + " seconds.";
    if (bytes > kMostBytes) finding += " It took " + std::to_string(bytes >> 20) + " MiB of memory.";
    return finding;
  }

  std::string refusal(const FuzzedFile& file, const std::exception& error) {
    ++result_.refused;
    const std::string text = error.what();
    const bool refuses = reader_.refuses ? reader_.refuses(error) : dynamic_cast<const DataError*>(&error) != nullptr;
    if (!refuses) return std::string("it threw ") + typeid(error).name() + ": " + error_text(error);
    const fs::path path(file.path);
    const bool is_named = text.find(path.parent_path().string()) != std::string::npos ||
                          text.find(path.filename().string()) != std::string::npos;
    return reader_.names_file && !is_named ? "the error does not name the file: " + text : "";
  }

  const FuzzedReader& reader_;
  const std::vector<FuzzSeed>& seeds_;
  const FuzzPlan& plan_;
  const Places places_;
  FuzzResult result_;
  std::set<std::string> kinds_;  // of findings
};

}  // namespace

FuzzResult fuzz(const FuzzedReader& reader, const std::vector<FuzzSeed>& seeds, const FuzzPlan& plan) {
  if (seeds.empty()) throw Error("a fuzzer needs at least one file to change");
  return Fuzzer(reader, seeds, plan).run();
}

}  // namespace trainrun
